package executions

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"e3/internal/format/record"
	"e3/internal/host/runner"
	"e3/objectstore"
	"e3/refstore"
)

// verdict is the recorded meaning of a command's end.
type verdict struct {
	state   record.State
	output  objectstore.Info
	message string
	reason  Reason
	err     error // a fault of e3, not of the command
}

// judge decides what the end of the command means. After a success only the outputs remain to be collected.
func (a *assignment) judge(res runner.Result, runErr error) verdict {
	failed := func(reason Reason, message string) verdict {
		return verdict{state: record.Error, reason: reason, message: message}
	}
	var start *runner.StartError
	var unset *unsetError
	var lacking *roomError
	var bad *environmentError
	switch {
	case errors.Is(runErr, errNotRun):
		return verdict{err: runErr}
	case errors.As(runErr, &start):
		return failed(ReasonStart, start.Error()+a.adviceInImage(start))
	case errors.As(runErr, &lacking):
		return failed(ReasonStart, lacking.Error())
	case errors.As(runErr, &bad):
		return failed(ReasonStart, bad.Error())
	case errors.As(runErr, &unset):
		return failed(ReasonStart, unset.Error())
	case errors.Is(runErr, ErrOtherTool):
		return failed(ReasonStart, runErr.Error()+": start again, which reads the programs anew")
	case a.req.Job.Ref != "" && (errors.Is(runErr, runner.ErrExpired) || errors.Is(runErr, runner.ErrSupervisorLost)):
		return failed(ReasonLost, runErr.Error())
	case errors.Is(runErr, errOnLost):
		return failed(ReasonLost, runErr.Error())
	case errors.Is(runErr, runner.ErrSupervisorLost): // the supervisor has killed it, or had not started it
		return failed(ReasonSignal, runErr.Error())
	case runErr != nil && !res.Cancelled:
		return verdict{err: runErr}
	case res.Cancelled:
		return failed(ReasonCancelled, "cancelled")
	case res.TimedOut:
		items := time.Duration(max(1, a.batch.Items))
		return failed(ReasonTimeout, fmt.Sprintf("timed out after %v", a.req.Policy.Timeout*items))
	case res.OOM && (res.Signal != 0 || res.ExitCode != 0): // a command that exits with 0 survived the loss of a child
		return failed(ReasonOOM, a.outOfMemory(&res))
	case res.Signal != 0:
		return failed(ReasonSignal, "killed by signal "+signalName(res.Signal))
	case res.ExitCode != 0:
		return verdict{state: record.Failed, reason: a.req.failure(int64(res.ExitCode))}
	}
	return verdict{state: record.Success}
}

// judgeOutputs collects the outputs of a command that has ended with 0, and decides what they mean.
func (b *box) judgeOutputs(ctx context.Context) verdict {
	info, err := b.collect(ctx)
	var bad *OutputError
	if errors.As(err, &bad) {
		return verdict{state: record.Error, reason: ReasonOutput, message: bad.Error()}
	}
	return verdict{state: record.Success, output: info, err: err}
}

// judgeItem replaces the failure of a batch's command, or of an item in it, by [ReasonBatch]: it says nothing about
// the item, which is then tried alone.
func (i *item) judgeItem(v verdict, exitCode int) verdict {
	if i.batch.Items == 0 || v.err != nil {
		return v
	}
	how := v.message
	switch v.reason {
	case ReasonNone, ReasonSuspended:
		if v.state == record.Success {
			return v
		}
		how = fmt.Sprintf("exit code %d", exitCode)
	case ReasonTimeout, ReasonOOM, ReasonSignal, ReasonStart:
	case ReasonOutput: // its folder is its own again
		how = strings.ReplaceAll(how, itemFolder(0)+"/", itemFolder(i.number)+"/")
	default:
		return v
	}
	return verdict{state: record.Error, reason: ReasonBatch, message: fmt.Sprintf("in a batch of %d: %s", i.batch.Items, how)}
}

// endStatus is the status to record with this verdict.
func (v *verdict) endStatus(a *assignment, end time.Time, res runner.Result) *record.Status {
	status := a.status(v.state)
	status.CompletedAt, status.Message = end, v.message
	switch v.state {
	case record.Failed:
		status.ExitCode = int64(res.ExitCode)
	case record.Success:
		status.OutputHash = v.output.Hash.String()
	}
	return status
}

// endFields are the side fields of the record, apart from the logs and the report of a traced command.
func (v *verdict) endFields(a *assignment, status *record.Status, detail *record.Detail) []refstore.Field {
	fields := []refstore.Field{{Name: fieldDetail, Value: detail.Encode()}}
	if key := a.x.opts.Key; key != nil {
		s := sign(key, statementOf(a.key, status, detail.BytesOut))
		fields = append(fields, refstore.Field{Name: fieldSignature, Value: s.Encode()})
	}
	if v.state != record.Success {
		return fields
	}
	fields = append(fields, outputField(status))
	if other := a.req.against; other != nil && other.Output != v.output.Hash {
		fields = append(fields, refstore.Field{Name: fieldRejected, Value: (&record.Rejection{
			Rejected: true, By: a.x.opts.Worker, At: status.CompletedAt,
			Reason: fmt.Sprintf("run again to verify execution %s, it gave another output", other.ExecutionID),
		}).Encode()})
	}
	return fields
}

// result answers the request.
func (v *verdict) result(a *assignment, status *record.Status) Result {
	return Result{
		ExecutionID: a.id, State: v.state, Output: v.output.Hash, Size: v.output.Size,
		Message: v.message, ExitCode: status.ExitCode, Reason: v.reason,
		Duration: status.CompletedAt.Sub(a.startedAt), EndedAt: status.CompletedAt, Batch: a.batch,
	}
}

// endTime computes the end of an execution with stored outputs.
type endTime struct {
	part  time.Time            // the end of its part of the batch's time; zero: it ends now
	idle  time.Duration        // how long the ended command had waited for this process
	lapse func() time.Duration // time since the command's end without a lease; nil: none
}

// at returns the end. Time after the command's end in which the store did not answer, or no process had the command,
// does not count: it may be a night.
func (e *endTime) at(now, startedAt time.Time) time.Time {
	if !e.part.IsZero() {
		return e.part
	}
	end := now.Add(-e.idle)
	if e.lapse != nil {
		end = end.Add(-e.lapse())
	}
	end = end.Truncate(time.Millisecond)
	if end.Before(startedAt) {
		return startedAt
	}
	return end
}

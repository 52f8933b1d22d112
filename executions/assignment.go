package executions

import (
	"context"
	"fmt"
	"syscall"
	"time"

	"e3/internal/format/record"
	"e3/internal/format/value"
	"e3/internal/host/runner"
	"e3/objectstore"
	"e3/refstore"
)

// An assignment says which execution an attempt makes: its task, its id and its request. The parts of the attempt
// share it.
type assignment struct {
	x         *Executor
	key       Key
	id        string
	req       *Request
	spec      *record.Task // the paths of a batch's item lie in the item's folder
	startedAt time.Time    // of the execution; zero until its command is about to start
	item
	begun   string         // the execution that began the command and was given up; else ""
	left    *record.Detail // what a dead process noted, if its execution is being closed; else nil
	image   *unpacked      // the root file system of its command; nil: the task has no image
	noImage *roomError     // why the image cannot be used

	environment   string            // the folder of its environment; "": it has none
	noEnvironment *environmentError // why the environment was not made
}

// item is the place of an execution in a batch. It is zero if its command serves no other execution.
type item struct {
	batch  record.Batched
	number int
}

// status is the execution's record in a state.
func (a *assignment) status(state record.State) *record.Status {
	return &record.Status{State: state, ExecutionID: a.id, StartedAt: a.startedAt, InputHashes: hexes(a.req.Inputs)}
}

// detail is the detail of the execution's record, with what its command has used.
func (a *assignment) detail(res runner.Result) *record.Detail {
	if a.left != nil {
		return a.left
	}
	return &record.Detail{
		Attempt: a.req.Attempt, Worker: a.x.opts.Worker, RunID: a.req.RunID, Workspace: a.req.Workspace, Task: a.req.Name,
		UserCPU: res.UserCPU, SystemCPU: res.SystemCPU, PeakRSS: res.PeakRSS, BytesIn: a.req.InputBytes,
		Signal: signalName(res.Signal), Version: a.x.opts.Version, Begun: a.begun, Batch: a.batch,
	}
}

// runningFields are the side fields of a running execution's record.
func (a *assignment) runningFields() []refstore.Field {
	fields := []refstore.Field{{Name: fieldDetail, Value: a.detail(runner.Result{}).Encode()}}
	if a.req.Job.Ref != "" {
		fields = append(fields, refstore.Field{Name: fieldJob, Value: []byte(a.req.Job.Ref)})
	}
	return fields
}

// ownsInput tells whether an input belongs to the item that a batch serves.
func (a *assignment) ownsInput(in record.Input) bool {
	return a.spec.Batch != nil && !in.Kind.OfMachine() && a.spec.Batch.Owns(in.Name)
}

func (a *assignment) readValue(ctx context.Context, h objectstore.Hash) (*value.Value, error) {
	data, err := objectstore.ReadAll(ctx, a.x.objects, h, value.MaxBytes)
	if err != nil {
		return nil, err
	}
	return value.Decode(data)
}

// signalName is the number and the system's word for it: "9 (killed)".
func signalName(s syscall.Signal) string {
	if s == 0 {
		return ""
	}
	return fmt.Sprintf("%d (%v)", int(s), s)
}

// marker is the environment entry by which stray children of an execution are recognized.
func marker(id string) string { return "E3_EXECUTION=" + id }

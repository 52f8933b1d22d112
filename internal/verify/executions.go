package verify

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"e3/executions"
	"e3/internal/format/record"
	"e3/internal/reach"
	"e3/objectstore"
	"e3/refstore"
)

// executions checks the executions, several keys at a time, and gives the walk what they name.
func (v *verifier) executions(ctx context.Context) error {
	stores := v.stores()
	if err := stores.JobRoots(ctx, v.walk); err != nil { // a job's roots pass to its execution
		return err
	}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(v.workers())
	var task objectstore.Hash
	var roots *reach.TaskRoots
	for k, err := range v.Curator.Keys(ctx) {
		if err != nil {
			return errors.Join(err, g.Wait())
		}
		if gctx.Err() != nil {
			break
		}
		if roots == nil || k.Task != task {
			task, roots = k.Task, stores.TaskRoots(k.Task, v.walk)
		}
		of := roots
		g.Go(func() error { return v.key(gctx, k, of) })
	}
	return g.Wait()
}

// key checks the executions of a key.
func (v *verifier) key(ctx context.Context, k executions.Key, roots *reach.TaskRoots) error {
	for e, err := range v.Curator.Checked(ctx, k) {
		if err := roots.Execution(ctx, k, e, err); err != nil {
			return err
		}
		var bad *executions.RecordError
		id := ""
		switch {
		case errors.As(err, &bad):
			id = bad.ExecutionID
		case err != nil:
			return err
		default:
			id = e.ExecutionID
			if err = check(e); err == nil {
				err = v.logs(ctx, e)
			}
		}
		v.count(&v.report.Executions)
		v.promises.met(id)
		v.lists.saw(id)
		if err == nil {
			continue
		}
		if err := v.badExecution(ctx, k, id, roots); err != nil {
			return err
		}
	}
	return nil
}

// badExecution checks a faulty execution again, and reports the result.
func (v *verifier) badExecution(ctx context.Context, k executions.Key, id string, roots *reach.TaskRoots) error {
	f := Fault{Kind: BadRecord, Where: executionPath(k, id), For: []string{"execution " + id}}
	e, err := v.Curator.Get(ctx, k, id)
	switch {
	case errors.Is(err, executions.ErrNotFound):
		return nil
	case errors.Is(err, executions.ErrMalformed):
		f.Problem, f.Advice = malformed(err).Error(), "it is no answer any more; its task runs again"
		f.mend = func(ctx context.Context) (string, bool, error) { return v.discard(ctx, k, id) }
		v.fault(f)
		return nil
	case err != nil:
		return err
	}
	if err := roots.Execution(ctx, k, e, nil); err != nil {
		return err
	}
	f.For = []string{describe(e)}
	var output *outputError
	err = check(e)
	if err == nil {
		err = v.output(ctx, e)
	}
	if errors.As(err, &output) {
		f.Where, f.Problem = f.Where+"/output", err.Error()
		f.Advice = "its status stands"
		f.mend = func(ctx context.Context) (string, bool, error) { return v.rewriteOutput(ctx, k, id) }
		v.fault(f)
	} else if err != nil {
		f.Problem, f.Advice = err.Error(), "it would answer what it is no answer to; what it stood for runs again"
		f.mend = func(ctx context.Context) (string, bool, error) { return v.removeExecution(ctx, e, err) }
		v.fault(f)
	}
	if err := v.logs(ctx, e); ctx.Err() != nil {
		return context.Cause(ctx)
	} else if err != nil && !v.gone(ctx, k, id) {
		f = Fault{Kind: BadLog, Where: executionPath(k, id), Problem: err.Error(), For: []string{describe(e)}, Advice: "nothing but the log is concerned"}
		f.mend = func(ctx context.Context) (string, bool, error) {
			err := v.Curator.MendLogs(ctx, e)
			return "kept what can be read, with a line that says so", err == nil, err
		}
		v.fault(f)
	}
	return nil
}

func (v *verifier) gone(ctx context.Context, k executions.Key, id string) bool {
	_, err := v.Curator.Get(ctx, k, id)
	return errors.Is(err, executions.ErrNotFound)
}

func executionPath(k executions.Key, id string) string { return "executions/" + k.String() + "/" + id }

// describe names an execution in messages.
func describe(e *executions.Execution) string {
	if e.Detail != nil && e.Detail.Task != "" {
		return "execution " + e.ExecutionID + " of " + e.Detail.Workspace + "." + e.Detail.Task
	}
	return "execution " + e.ExecutionID
}

// malformed is the reason in a RecordError.
func malformed(err error) error {
	var bad *executions.RecordError
	if errors.As(err, &bad) {
		return bad.Err
	}
	return err
}

// outputError says that the file output beside a status differs from the status.
type outputError struct {
	got    string
	damage error // why it cannot be read; nil if it can
}

func (e *outputError) Error() string {
	if e.damage != nil {
		return e.damage.Error()
	}
	if e.got == "" {
		return "the file is missing"
	}
	return fmt.Sprintf("it says %.80q, which is not the output that the status names", e.got)
}

const fieldOutput = "output"

func recordKey(k executions.Key, id string) refstore.Key {
	return refstore.Key{Partition: "EXECUTION/" + k.String(), Sort: id}
}

// check compares an execution with its place, and its parts with each other.
func check(e *executions.Execution) error {
	inputs := make([]objectstore.Hash, len(e.InputHashes))
	for i, text := range e.InputHashes {
		var err error
		if inputs[i], err = objectstore.ParseHash(text); err != nil {
			return fmt.Errorf("input %d: %w", i+1, err)
		}
	}
	if got := executions.InputsHash(inputs); got != e.Key.Inputs {
		return fmt.Errorf("its inputs hash to %s: it lies under the wrong key", got)
	}
	if e.Metadata != nil && e.Metadata.ExecutionID != e.ExecutionID {
		return fmt.Errorf("its metadata are those of execution %q", e.Metadata.ExecutionID)
	}
	if err := e.CheckSignature(); err != nil {
		return fmt.Errorf("its signature is not of this record: %w", err)
	}
	if e.State != record.Success {
		return nil
	}
	if _, err := objectstore.ParseHash(e.OutputHash); err != nil {
		return fmt.Errorf("output: %w", err)
	}
	return nil
}

// output compares the file output of an execution with its status.
func (v *verifier) output(ctx context.Context, e *executions.Execution) error {
	if e.State != record.Success {
		return nil
	}
	rec, err := v.Records.Get(ctx, recordKey(e.Key, e.ExecutionID), fieldOutput)
	if errors.Is(err, refstore.ErrNotFound) {
		return nil // pruned meanwhile
	}
	if errors.Is(err, refstore.ErrDamaged) { // the other parts were read before
		return &outputError{damage: err}
	}
	if err != nil {
		return err
	}
	if text, _ := rec.Field(fieldOutput); string(text) != e.OutputHash+"\n" {
		return &outputError{got: string(text)}
	}
	return nil
}

// logs reads the logs of an execution.
func (v *verifier) logs(ctx context.Context, e *executions.Execution) error {
	for _, s := range []executions.Stream{executions.Stdout, executions.Stderr} {
		r, err := v.Curator.CheckedLog(ctx, e, s)
		if err == nil {
			err = drain(ctx, r)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", s, err)
		}
	}
	return nil
}

// discard removes an execution that cannot be read.
func (v *verifier) discard(ctx context.Context, k executions.Key, id string) (string, bool, error) {
	gone, err := v.Curator.Discard(ctx, k, id, repairer)
	if err != nil {
		return "", false, err
	}
	if !gone {
		if _, err := v.Curator.Get(ctx, k, id); errors.Is(err, executions.ErrMalformed) {
			return "another process is working on it: check again", false, nil
		}
	}
	v.retired[id] = true
	return "removed", true, nil
}

// removeExecution removes a wrong execution, in the version found.
func (v *verifier) removeExecution(ctx context.Context, e *executions.Execution, problem error) (string, bool, error) {
	gone, err := v.Curator.Remove(ctx, e.Key.Task, e.Victim(), repairer, problem.Error())
	if err != nil {
		return "", false, err
	}
	if !gone && !v.gone(ctx, e.Key, e.ExecutionID) {
		return "another process has changed it meanwhile: check again", false, nil
	}
	v.retired[e.ExecutionID] = true
	return "removed", true, nil
}

// rewriteOutput makes the file output match the status.
func (v *verifier) rewriteOutput(ctx context.Context, k executions.Key, id string) (string, bool, error) {
	rec, err := v.Records.Get(ctx, recordKey(k, id))
	if err != nil {
		return "", false, err
	}
	status, err := record.DecodeStatus(rec.Value)
	if err != nil {
		return "", false, err
	}
	rec.Fields = []refstore.Field{{Name: fieldOutput, Value: []byte(status.OutputHash + "\n")}}
	_, err = v.Records.Put(ctx, rec)
	return "written again after its status", err == nil, err
}

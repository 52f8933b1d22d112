package explain

import (
	"context"

	"e3/internal/format/record"
	"e3/internal/insight/history"
)

// failure describes how an attempt ended, with the end of its log and whether its key ever had a success.
func (x *evidence) failure(a *history.Attempt) (*Failure, error) {
	f := x.failureOf(a)
	if a.Execution == nil {
		return f, nil
	}
	var err error
	if f.Log, f.Tail, err = Ending(x.ctx, x.Executions, a.Key, a.ExecutionID); err != nil {
		if err = x.passing(err); err != nil {
			return nil, err
		}
	}
	for e, err := range x.Executions.List(x.ctx, a.Key) {
		if x.ctx.Err() != nil {
			return nil, context.Cause(x.ctx)
		}
		if err == nil && e.State == record.Success && e.ExecutionID < a.ExecutionID {
			f.Succeeded = ref(history.Of(a.Workspace, a.Task, e))
			break
		}
	}
	return f, nil
}

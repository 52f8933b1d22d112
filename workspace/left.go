package workspace

import "context"

// noteLeft notes the executions for which a run no longer waits, although workers go on with them: the journal tells how
// they end.
func noteLeft(ctx context.Context, r *run) error {
	for _, l := range r.left {
		err := r.w.states.noteLate(ctx, r.ws, &lateExecution{
			Run: r.rec.RunID, Task: l.Task, Key: l.Key, Execution: l.Execution, Attempt: l.Attempt, Worker: l.Worker, Started: l.Started,
		})
		if err != nil {
			return err
		}
		r.late++
	}
	r.left = nil
	return nil
}

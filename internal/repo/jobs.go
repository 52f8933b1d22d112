package repo

import (
	"context"
	"errors"
	"slices"
	"strings"

	"e3/executions"
	"e3/internal/events"
	"e3/internal/format/record"
	"e3/internal/jobs/dispatch"
	"e3/internal/jobs/queue"
	"e3/workspace"
)

// RetryJob queues a failed job again, and tells the retry in the journal of its workspace. It returns
// the errors of [queue.Queue.Retry].
func RetryJob(ctx context.Context, r *Repo, j *queue.Job) (queue.Job, error) {
	now, err := r.queue.Job(ctx, j.Queue, j.ID)
	if err != nil {
		return queue.Job{}, err
	}
	after := now.Execution
	if now.Outcome != nil {
		after = now.Outcome.ExecutionID
	}
	number := now.Attempt + int64(len(now.Lost)) // lost attempts are counted, and so is the failed one
	if history := now.History(); len(history) > 0 {
		number = history[len(history)-1].Number + 1
	}
	note, err := workspace.NoteRetry(ctx, r.Workspaces.States, now.Workspace, &workspace.Retry{
		Run: now.Run, Task: now.Task, Key: keyOf(&now), Attempt: number, After: after, Number: now.Retried + 1, By: r.user(), At: r.opts.Now(),
	})
	if err != nil {
		return queue.Job{}, err
	}
	again, err := r.queue.Retry(ctx, j.Queue, j.ID)
	var moved *queue.TransitionError
	if errors.As(err, &moved) || errors.Is(err, queue.ErrNotFound) {
		return again, errors.Join(err, note.Drop(ctx))
	}
	if err != nil { // it may have taken effect: the note is read later
		return again, err
	}
	return again, note.Tell(ctx)
}

// answered is queue.Options.Answered. It reports whether the next start of the job's workspace would not execute the
// job's key, or a run at work may execute it by itself: the job's own run, or a later run, which looks the key up.
func answered(ctx context.Context, r *Repo, j *queue.Job) (bool, error) {
	_, err := r.Workspaces.States.State(ctx, j.Workspace)
	if errors.Is(err, workspace.ErrNotFound) {
		return true, nil
	}
	ended, err := events.Ended(ctx, r.Records, j.Workspace, j.Run)
	if err != nil {
		return false, err
	}
	busy, err := r.Workspaces.Busy(ctx, j.Workspace)
	if err != nil {
		return false, err
	}
	if busy != nil && (!ended && j.Attempt <= j.Policy.Retries || ended && busy.Operation == record.Dataflow) {
		return true, nil
	}
	key, ok := executions.ParseKey(keyOf(j))
	if !ok {
		return false, nil
	}
	a, err := r.Executions.Lookup(ctx, key)
	return a.Hit != nil, err
}

// QueueStates tells the states of queues, and which runs have left jobs there: runs that have ended, or whose process
// is known to be gone.
func QueueStates(ctx context.Context, r *Repo, names []string) (queue.States, error) {
	known := map[[2]string]bool{}
	ended := func(run queue.RunJobs) (bool, error) {
		key := [2]string{run.Workspace, run.Run}
		if over, looked := known[key]; looked {
			return over, nil
		}
		over, err := events.Ended(ctx, r.Records, run.Workspace, run.Run)
		if err == nil && !over {
			var busy *workspace.BusyError
			busy, err = r.Workspaces.Busy(ctx, run.Workspace)
			over = err == nil && busy == nil
		}
		known[key] = over
		return over, err
	}
	all := queue.States{Queues: make([]queue.State, len(names))}
	for i, name := range names {
		o, err := r.queue.Overview(ctx, name)
		if err == nil {
			all.Queues[i], err = o.State(ended)
		}
		if err != nil {
			return all, err
		}
	}
	return all, nil
}

// queued is workspace.Stores.Queued.
func queued(ctx context.Context, r *Repo, ws, run string) (list []workspace.Queued, err error) {
	jobs, err := r.queue.WaitingOf(ctx, ws, run)
	for i := range jobs {
		j := &jobs[i]
		list = append(list, workspace.Queued{Task: j.Task, Since: j.WaitingSince(), Lost: j.Orphaned()})
	}
	slices.SortFunc(list, func(a, b workspace.Queued) int { return strings.Compare(a.Task, b.Task) })
	return list, err
}

// keyOf is the key of the execution that a job asks for; "" if no such execution can be made.
func keyOf(j *queue.Job) string {
	req, err := dispatch.Request(j)
	if err != nil {
		return ""
	}
	return executions.NewKey(req.Task, req.Inputs).String()
}

// TellJobs tells this user's changes to jobs in the journals of their workspaces, with the reason or the new
// priority.
func TellJobs(
	ctx context.Context, r *Repo, what events.Type, jobs []queue.Job, why string, priority *int64,
) error {
	changes := map[string][]workspace.JobChange{}
	for i := range jobs {
		j := &jobs[i]
		changes[j.Workspace] = append(changes[j.Workspace], workspace.JobChange{
			Type: what, Run: j.Run, Task: j.Task, Key: keyOf(j), Attempt: j.Attempt + int64(len(j.Lost)), By: r.user(), Why: why, Priority: priority,
		})
	}
	var errs []error
	for ws, list := range changes {
		errs = append(errs, workspace.TellJobChanges(ctx, r.Workspaces.States, ws, list))
	}
	return errors.Join(errs...)
}

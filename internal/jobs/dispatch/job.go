package dispatch

import (
	"cmp"
	"fmt"

	"e3/executions"
	"e3/internal/format/record"
	"e3/internal/jobs/queue"
	"e3/objectstore"
)

// Job returns the job of a request; name is the queue of tasks that name none. A job that replaces a lost output is
// forced, because its worker may still remember that output.
func Job(req *executions.Request, name string) queue.Job {
	j := queue.Job{
		Queue: cmp.Or(name, queue.DefaultQueue), Workspace: req.Workspace, Run: req.RunID, Task: req.Name, Step: req.Step, Attempt: max(req.Attempt, 1),
		TaskHash: req.Task.String(), Inputs: make([]string, len(req.Inputs)), InputBytes: req.InputBytes, Force: req.Force || req.Without != "", Mild: req.Mild, After: req.After, MaxAttempts: 1,
	}
	for i, h := range req.Inputs {
		j.Inputs[i] = h.String()
	}
	if p := req.Policy; p != nil {
		j.Policy, j.Labels, j.Priority, j.MaxAttempts = *p, p.Labels, p.Priority, 1+p.LostAttempts()
	}
	j.ID = queue.Identity(&j)
	return j
}

// object returns the body of a task object for its job; nil if this version of e3 has not made the object.
func object(of objectstore.Hash, task *record.Task) []byte {
	if body := task.Body(); objectstore.Sum(record.TaskObject(body)) == of {
		return body
	}
	return nil
}

// Request returns the Executor's request for a job, without its functions, which load the task and report progress.
func Request(j *queue.Job) (*executions.Request, error) {
	task, err := objectstore.ParseHash(j.TaskHash)
	if err != nil {
		return nil, fmt.Errorf("job %s: task: %w", j.Ref(), err)
	}
	inputs := make([]objectstore.Hash, len(j.Inputs))
	for i, text := range j.Inputs {
		if inputs[i], err = objectstore.ParseHash(text); err != nil {
			return nil, fmt.Errorf("job %s: input %d: %w", j.Ref(), i, err)
		}
	}
	policy := j.Policy
	return &executions.Request{
		Task: task, Inputs: inputs, InputBytes: j.InputBytes, Policy: &policy, Attempt: j.Attempt, RunID: j.Run, Workspace: j.Workspace,
		Name: j.Task, Force: j.Force, Mild: j.Mild, Step: j.Step, Job: executions.Job{Ref: j.Ref(), Host: j.Host},
		Kept: true, // by the job
	}, nil
}

// Outcome returns the outcome of a job from its execution's result.
func Outcome(res executions.Result) queue.Outcome {
	o := queue.Outcome{
		ExecutionID: res.ExecutionID, Size: res.Size, ExitCode: res.ExitCode, Reason: string(res.Reason), Message: queue.Truncate(res.Message),
		Duration: max(res.Duration, 0), EndedAt: res.EndedAt,
	}
	switch {
	case res.State == record.Success:
		o.State, o.Output = queue.Succeeded, res.Output.String()
	case res.Reason == executions.ReasonCancelled:
		o.State = queue.Cancelled
	case res.Reason == executions.ReasonTimeout:
		o.State = queue.TimedOut
	default:
		o.State = queue.Failed
	}
	return o
}

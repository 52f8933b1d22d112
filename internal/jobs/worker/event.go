package worker

import (
	"time"

	"e3/executions"
	"e3/internal/format/record"
	"e3/internal/jobs/queue"
)

// EventType is the type of an event.
type EventType string

// The events of a worker.
const (
	JobBegun   EventType = "job.begun"
	JobAdopted EventType = "job.adopted" // an execution that another worker began continues here
	JobEnded   EventType = "job.ended"
	JobGiven   EventType = "job.given_back"  // the job waits for another attempt
	JobLost    EventType = "job.lost"        // another process holds it now; work done here does not count
	Fault      EventType = "worker.fault"    // of this machine or the stores
	Draining   EventType = "worker.draining" // no more jobs are claimed
)

// The events of the process around workers.
const (
	Ready   EventType = "worker.ready"   // it waits for tasks
	Serving EventType = "worker.metrics" // it serves metrics
	Lost    EventType = "worker.lost"    // its lease is lost, and it tries again
	Stalled EventType = "worker.stalled" // the store does not answer
	Resumed EventType = "worker.resumed" // it answers again
)

// Event is something that happened to a job, or to the worker.
type Event struct {
	Type      EventType
	Time      time.Time
	Job       queue.Job         // zero if the event is not about one
	Result    executions.Result // of JobEnded
	Cancelled bool              // of JobEnded: by a person or the run
	Message   string
	Again     time.Time // of JobGiven: the earliest time of another attempt
	Running   int       // of Draining: number of running jobs
}

// Suspended tells whether a job's command has suspended itself: the job has failed, and its run waits for approval.
func (e *Event) Suspended() bool {
	return e.Type == JobEnded && e.Result.Reason == executions.ReasonSuspended
}

// Succeeded tells whether a job has succeeded.
func (e *Event) Succeeded() bool { return e.Type == JobEnded && e.Result.State == record.Success }

func (w *Worker) report(e Event) {
	w.reports.Lock()
	defer w.reports.Unlock()
	e.Time = w.o.Now()
	w.o.Report(e)
}

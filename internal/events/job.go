package events

// The types of events about jobs, in the journal: what a person does to a task in a queue, with or without a run at work.
// Data has who, the run that has queued the task, its key, and the attempt.
const (
	JobRetried       Type = "job.retried"       // a failed task was queued again; Data.At: when
	JobCancelled     Type = "job.cancelled"     // a queued task was cancelled, or a running one is to end; Data.Message: why
	JobReprioritised Type = "job.reprioritised" // Data.Priority
)

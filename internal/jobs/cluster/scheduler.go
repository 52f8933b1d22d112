package cluster

import (
	"context"
	"errors"
	"time"

	"e3/executions"
	"e3/internal/jobs/queue"
)

// A Scheduler is a cluster's scheduler. Its methods may be called at the same time. They return errors that wrap
// ErrTemporary, ErrLimit or ErrUnknown where that is so; [Commands] has those of programs.
type Scheduler interface {
	Traits() Traits
	// Demands are the words by which the needs of a job are asked, or an error that says why they cannot be. Jobs with equal
	// demands may share a batch.
	Demands(*queue.Job) ([]string, error)
	// Submit submits a batch, and returns its id. After an ErrTemporary it may have taken effect. Any other error but
	// ErrLimit refuses the batch.
	Submit(ctx context.Context, b *Batch) (id string, err error)
	// List visits all jobs of this user that e3 has submitted, also from other processes. It need not know ended ones.
	List(ctx context.Context, visit func(Listed)) error
	// Explain visits what is known of one submission. ErrUnknown if that is nothing, or nothing any more.
	Explain(ctx context.Context, id, token string, visit func(Listed)) error
	// Cancel ends submissions, by their ids, and jobs in arrays, by <id>_<index>. Ended ones are no error.
	Cancel(ctx context.Context, ids []string) error
}

// Traits are what a scheduler can do.
type Traits struct {
	Name   string        // for messages
	Array  int           // jobs in a batch
	Index  string        // the variable with the index of a job in a batch; "" where Array is 1
	AtOnce int           // submissions under way
	Unseen time.Duration // how long it may take to list what it was given; a job is missed for at least two polls
}

// A Listed is what a scheduler says of a job.
type Listed struct {
	ID     string // of the submission
	Index  int    // of the job in it
	Token  string // of the batch
	State  State
	Held   string            // why it does not start without a person's help; "": it may
	Reason executions.Reason // why it has ended
	How    string            // the same as a predicate: "was cancelled"
	Node   string            // where it ran, if known
	Said   string            // the scheduler's own words for its state
}

// State is the state of a scheduler's job, in the order of its life.
type State int

// The states of a job: it waits or runs; a cancellation would come too late; it has ended, and Explain may know more of that.
const (
	Alive State = iota
	Ending
	Failed
	Ended
)

// Kinds of errors of a scheduler.
var (
	ErrTemporary = errors.New("it may answer later")
	ErrLimit     = errors.New("it takes no more jobs for now")
	ErrUnknown   = errors.New("it knows no such job")
)

package record

import (
	"slices"
	"strconv"
	"time"

	"e3/internal/format/codec"
)

// Policy is how to run a task. Nothing in it enters a key. It has one form: the decoder of a package file fills it in,
// and package objects and jobs hold it. The tag fact names a field for people if the field is not zero, and may have a
// format for its value. Without the tag the name is the field's own, with small letters and underscores.
type Policy struct {
	Description string        `json:"description,omitempty"`
	Timeout     time.Duration `beast2:"timeoutMs" json:"timeout,omitempty"` // 0: none
	Retries     int64         `json:"retries,omitempty"`                    // further attempts after the first
	// RetryOn are the reasons and exit codes that are retried; none: all.
	RetryOn []string    `json:"retryOn,omitempty" fact:"retries on"`
	Lost    LostRetries `beast2:",min=-1" json:"lost,omitempty" fact:"retries when lost"`
	// pause before the first retry, doubled for each later one
	Backoff   time.Duration `beast2:"backoffMs" json:"backoff,omitempty"`
	CPU       float64       `beast2:",min=0" json:"cpu,omitempty"`                      // 0: one
	Memory    int64         `json:"memory,omitempty" fact:"memory:%s bytes"`            // 0: not declared
	Resources []Amount      `beast2:",dict" json:"resources,omitempty" fact:"resource"` // other declared resources
	// of ready tasks the task with the greatest priority runs first
	Priority int64 `json:"priority,omitempty"`
	// growth of the demand for memory, after memory ran out
	OOM     Escalation `beast2:",option" json:"oom,omitzero"`
	Approve bool       `json:"approve,omitempty"` // a person must approve it before it runs
	// Suspend is the exit code by which the command asks to be resumed later; 0: none.
	Suspend int64 `beast2:",min=0,max=255" json:"suspend,omitempty" fact:"suspend:exit code %s"`
	// OnLost says what happens to the command when the lease of its process is over.
	OnLost  OnLost `json:"onLost,omitempty"`
	MayFail bool   `json:"mayFail,omitempty"` // its failure does not fail the run
	// Batch is the greatest number of items for one command; 0: the task does not run in batches.
	Batch  int64    `beast2:",min=0,max=1000" json:"batch,omitempty" fact:"batch:%s items"`
	Limits bool     `json:"limits,omitempty"`             // CPU and Memory are limits, where the machine can hold them
	Queue  string   `json:"queue,omitempty"`              // queue for workers; "": the run's queue
	Labels []string `json:"labels,omitempty"`             // a worker must have all of them
	Views  []View   `json:"views,omitempty" fact:"shown"` // what people look at among the outputs
}

// MostPassed is the number of later tasks that may overtake a task that waits for cores or memory, in a local run and
// on each worker.
const MostPassed = 32

// Escalation describes the growth of a demand from one attempt to the next.
type Escalation struct {
	Factor float64 `beast2:",min=0" json:"factor,omitempty" fact:"on_oom:memory x%s"` // of the previous demand; 0: it stays
	Max    int64   `beast2:",min=0" json:"max,omitempty" fact:"on_oom max:%s bytes"`  // 0: no bound
}

// Amount is a named quantity of a resource.
type Amount struct {
	Name  string  `json:"name"`
	Value float64 `beast2:",min=0" json:"value"`
}

// OnLost says what happens to a command when the lease of its process is over, because the store does not answer, or
// the process is stopped or gone. The values are the case tags on disk.
type OnLost int

// The values of on_lost.
const (
	OnLostDefault OnLost = iota // keep, or kill if a person has to decide about the task
	OnLostKeep                  // the command goes on
	OnLostKill
)

// KeepsOnLost reports whether the command goes on when the lease is over. A command that a person decides about must not go
// on unseen unless the package says so.
func (p *Policy) KeepsOnLost() bool {
	switch p.OnLost {
	case OnLostKeep:
		return true
	case OnLostKill:
		return false
	}
	return !p.Approve && p.Suspend == 0
}

// Cases are the values' names.
func (o OnLost) Cases() []string { return []string{"default", "keep", "kill"} }

func (o OnLost) String() string { return o.Cases()[min(max(o, 0), OnLostKill)] }

// LostRetries is the number of further attempts, beside the retries, of a task whose worker was lost; 0: three.
type LostRetries int64

const (
	// NeverAfterLoss allows no further attempt after a loss.
	NeverAfterLoss LostRetries = -1

	defaultLost = 3
)

func (l LostRetries) String() string { return strconv.FormatInt(max(int64(l), 0), 10) }

// LostAttempts is the number of further attempts after the loss of a worker. They do not count as Retries.
func (p *Policy) LostAttempts() int64 {
	switch {
	case p.Lost < 0 || len(p.RetryOn) > 0 && !slices.Contains(p.RetryOn, "lost"):
		return 0
	case p.Lost == 0:
		return defaultLost
	}
	return int64(p.Lost)
}

var (
	policies       = codec.New[Policy]("policy")
	optionalPolicy = codec.Optional[Policy]("policy")
)

// Encode returns the bytes of the policy, in the form of a package object. Equal policies have equal bytes.
func (p *Policy) Encode() []byte { return policies.Append(nil, p) }

package record

import (
	"e3/internal/format/beast2"
	"e3/internal/format/notation"
)

// OnLost is what happens to a command when the lease of its process is over, because the store does not answer or the
// process stands still or is gone. Few packages set it, so it is a separate field, like the handling.
type OnLost int64

// The values of on_lost.
const (
	OnLostDefault OnLost = iota // keep, or kill if a person has to decide about the task
	OnLostKeep                  // it goes on
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

// saysOnLost reports whether the policy has a value in the field onLost, which also tells whether the task may fail, whether it
// has limits, and how many items a batch has: an older e3 refuses the greater values, as it would fail the run, hold no limit
// or know no batches.
func (p *Policy) saysOnLost() bool {
	return p.OnLost != OnLostDefault || p.MayFail || p.Limits || p.Batch != 0
}

// mayFail is added to the value of a task that may fail, hasLimits to that of a task with limits, and perItem for each item of a
// batch.
const (
	mayFail   = 4
	hasLimits = 8
	perItem   = 16
)

func (p *Policy) onLostValue() int64 {
	n := int64(p.OnLost) + perItem*p.Batch
	if p.MayFail {
		n += mayFail
	}
	if p.Limits {
		n += hasLimits
	}
	return n
}

func (p *Policy) setOnLost(r *beast2.Reader) {
	at := r.Offset()
	n := readBetween(r, "onLost", int64(OnLostKeep), perItem*notation.MaxBatch+hasLimits+mayFail+int64(OnLostKill))
	p.OnLost, p.MayFail, p.Limits, p.Batch = OnLost(n%mayFail), n&mayFail != 0, n&hasLimits != 0, n/perItem
	if p.OnLost > OnLostKill {
		r.Failf(at, "onLost %d is out of range", n)
	}
}

func onLostField() beast2.Field {
	return beast2.F("onLost", beast2.Dict(beast2.String, beast2.Integer))
}

func (p *Package) appendOnLost(b []byte) []byte {
	return appendTasks(b, p.Tasks, (*Policy).saysOnLost, func(b []byte, q *Policy) []byte {
		return beast2.AppendInteger(b, q.onLostValue())
	})
}

// readOnLost reads the field of appendOnLost. At least one task must set it, unless none is true.
func readOnLost(r *beast2.Reader, tasks []PackageTask, none bool) {
	at := r.Offset()
	n := readTasks(r, "onLost", 2, tasks, func(q *Policy) { q.setOnLost(r) })
	if n == 0 && !none {
		r.Failf(at, "no task says what happens when a lease is over")
	}
}

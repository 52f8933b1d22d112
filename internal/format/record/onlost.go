package record

import "e3/internal/format/beast2"

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

func (t PackageTask) saysOnLost() bool { return t.Policy.OnLost != OnLostDefault }

func onLostField() beast2.Field {
	return beast2.F("onLost", beast2.Dict(beast2.String, beast2.Integer))
}

func (p *Package) appendOnLost(b []byte) []byte {
	n := 0
	for i := range p.Tasks {
		if p.Tasks[i].saysOnLost() {
			n++
		}
	}
	b = beast2.AppendVarint(beast2.AppendInline(b), uint64(n))
	for i := range p.Tasks {
		if t := &p.Tasks[i]; t.saysOnLost() {
			b = beast2.AppendInteger(beast2.AppendString(b, t.Name), int64(t.Policy.OnLost))
		}
	}
	return b
}

// readOnLost reads what tasks say: at least one task of the package, in their order.
func readOnLost(r *beast2.Reader, tasks []PackageTask) {
	at := r.Offset()
	r.Inline()
	n := r.Count(2)
	if n == 0 {
		r.Failf(at, "no task says what happens when a lease is over")
	}
	next := 0
	for range n {
		at := r.Offset()
		name := r.String()
		for next < len(tasks) && tasks[next].Name != name {
			next++
		}
		if next == len(tasks) {
			r.Failf(at, "onLost of %q: there is no such task, or the tasks are in another order", name)
			return
		}
		tasks[next].Policy.OnLost = OnLost(readBetween(r, "onLost", int64(OnLostKeep), int64(OnLostKill)))
		next++
	}
}

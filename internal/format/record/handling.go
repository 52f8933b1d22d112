package record

import (
	"math"
	"slices"

	"e3/internal/format/beast2"
)

// The handling of a task is the part of its policy for retries, approval and the choice of workers. Few packages have
// any, so it is a separate field at the end of the package, which names the tasks that have handling.

// defaultLost is the default of LostAttempts.
const defaultLost = 3

// LostAttempts is the number of further attempts after the loss of a worker. They do not count as Retries.
func (p *Policy) LostAttempts() int64 {
	switch {
	case p.Lost < 0 || len(p.RetryOn) > 0 && !slices.Contains(p.RetryOn, "lost"):
		return 0
	case p.Lost == 0:
		return defaultLost
	}
	return p.Lost
}

// isHandled reports whether the policy sets any handling.
func (p *Policy) isHandled() bool {
	return len(p.RetryOn) > 0 || p.Lost != 0 || p.OOM != Escalation{} || p.Approve || p.Suspend != 0 || p.Queue != "" || len(p.Labels) > 0
}

func handlingField() beast2.Field {
	str, integer := beast2.String, beast2.Integer
	return beast2.F("handling", beast2.Dict(str, beast2.Struct(
		beast2.F("retryOn", beast2.Array(str)), beast2.F("lost", integer), beast2.F("oomFactor", beast2.Float), beast2.F("oomMax", integer),
		beast2.F("approve", beast2.Boolean), beast2.F("suspend", integer), beast2.F("queue", str), beast2.F("labels", beast2.Array(str)))))
}

// anyTask reports whether a condition holds for the policy of a task.
func anyTask(tasks []PackageTask, holds func(*Policy) bool) bool {
	for i := range tasks {
		if holds(&tasks[i].Policy) {
			return true
		}
	}
	return false
}

// appendTasks appends a field that few tasks set: their names, each with what set appends.
func appendTasks(b []byte, tasks []PackageTask, sets func(*Policy) bool, set func([]byte, *Policy) []byte) []byte {
	n := 0
	for i := range tasks {
		if sets(&tasks[i].Policy) {
			n++
		}
	}
	b = beast2.AppendVarint(beast2.AppendInline(b), uint64(n))
	for i := range tasks {
		if t := &tasks[i]; sets(&t.Policy) {
			b = set(beast2.AppendString(b, t.Name), &t.Policy)
		}
	}
	return b
}

// readTasks reads a field of appendTasks, of which each task has at least size bytes, and returns how many tasks set it. They
// must be tasks of the package, in its order.
func readTasks(r *beast2.Reader, field string, size int, tasks []PackageTask, set func(*Policy)) int {
	r.Inline()
	n := r.Count(size)
	next := 0
	for range n {
		at := r.Offset()
		name := r.String()
		for next < len(tasks) && tasks[next].Name != name {
			next++
		}
		if next == len(tasks) {
			r.Failf(at, "%s of %q: there is no such task, or the tasks are in another order", field, name)
		} else {
			set(&tasks[next].Policy)
			next++
		}
		if r.Err() != nil {
			break
		}
	}
	return n
}

func (p *Package) appendHandling(b []byte) []byte {
	return appendTasks(b, p.Tasks, (*Policy).isHandled, func(b []byte, q *Policy) []byte {
		b = beast2.AppendInteger(appendStrings(b, q.RetryOn), q.Lost)
		b = beast2.AppendInteger(beast2.AppendFloat(b, q.OOM.Factor), q.OOM.Max)
		b = beast2.AppendInteger(beast2.AppendBoolean(b, q.Approve), q.Suspend)
		return appendStrings(beast2.AppendString(b, q.Queue), q.Labels)
	})
}

// readHandling reads the handling of tasks: of at least one, unless none is true.
func readHandling(r *beast2.Reader, a *allowance, tasks []PackageTask, none bool) {
	at := r.Offset()
	if n := readTasks(r, "handling", 18, tasks, func(q *Policy) { readHandled(r, a, q) }); n == 0 && !none {
		r.Failf(at, "no task is handled")
	}
}

func readHandled(r *beast2.Reader, a *allowance, p *Policy) {
	at := r.Offset()
	p.RetryOn = a.strings(r)
	p.Lost = readBetween(r, "attempts after a lost worker", -1, math.MaxInt64)
	p.OOM.Factor = readAmount(r)
	p.OOM.Max = readBetween(r, "most memory", 0, math.MaxInt64)
	p.Approve = r.Boolean()
	p.Suspend = readBetween(r, "exit code", 0, 255)
	p.Queue = r.String()
	p.Labels = a.strings(r)
	if r.Err() == nil && !p.isHandled() {
		r.Failf(at, "handling is present but says nothing")
	}
}

// readBetween reads a number, and refuses one outside of the range.
func readBetween(r *beast2.Reader, what string, low, high int64) int64 {
	at := r.Offset()
	n := r.Integer()
	if n < low || n > high {
		r.Failf(at, "%s: %d is out of range", what, n)
		return 0
	}
	return n
}

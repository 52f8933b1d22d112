package record

import (
	"bytes"
	"math"
	"slices"
	"strconv"
	"sync"
	"time"
	"unsafe"

	"e3/internal/format/beast2"
	"e3/internal/format/notation"
)

// Policy is how to run a task. Nothing in it enters a key. It is the one form of what a package file says: its decoder
// fills it in, and a package object and a job hold it. The tag fact names a field that is not zero for people, and may
// have a format for its value; without it that is its name with small letters and underscores.
type Policy struct {
	Description string        `json:"description,omitempty"`
	Timeout     time.Duration `json:"timeout,omitempty"` // 0: none
	Retries     int64         `json:"retries,omitempty"` // further attempts after the first
	// RetryOn are the reasons and exit codes that are retried; none: all.
	RetryOn   []string      `json:"retryOn,omitempty" fact:"retries on"`
	Lost      LostRetries   `json:"lost,omitempty" fact:"retries when lost"`
	Backoff   time.Duration `json:"backoff,omitempty"`                       // before the first retry, doubled for each later one
	CPU       float64       `json:"cpu,omitempty"`                           // 0: one
	Memory    int64         `json:"memory,omitempty" fact:"memory:%s bytes"` // 0: not declared
	Resources []Amount      `json:"resources,omitempty" fact:"resource"`     // other declared resources
	Priority  int64         `json:"priority,omitempty"`                      // greater runs first among ready tasks
	OOM       Escalation    `json:"oom,omitzero"`                            // of the demand for memory, after memory ran out
	Approve   bool          `json:"approve,omitempty"`                       // a person must approve it before it runs
	// Suspend is the exit code by which the command asks to be resumed later; 0: none.
	Suspend int64 `json:"suspend,omitempty" fact:"suspend:exit code %s"`
	// OnLost is what happens to the command when the lease of its process is over.
	OnLost  OnLost `json:"onLost,omitempty"`
	MayFail bool   `json:"mayFail,omitempty"` // its failure does not fail the run
	// Batch is the greatest number of items for one command; 0: the task does not run in batches.
	Batch  int64    `json:"batch,omitempty" fact:"batch:%s items"`
	Limits bool     `json:"limits,omitempty"` // CPU and Memory are limits, where the machine can hold them
	Queue  string   `json:"queue,omitempty"`  // for workers; "": the run's
	Labels []string `json:"labels,omitempty"` // a worker must have all of them
	// OutputKinds maps entries to metrics, plot or report.
	OutputKinds []EnvVar `json:"outputKinds,omitempty" fact:"kind of"`
}

// MostPassed is the number of later tasks that may overtake a task that waits for cores or memory, in a local run and
// on each worker.
const MostPassed = 32

// Escalation describes the growth of a demand from one attempt to the next.
type Escalation struct {
	Factor float64 `json:"factor,omitempty" fact:"on_oom:memory x%s"` // of the previous demand; 0: it stays
	Max    int64   `json:"max,omitempty" fact:"on_oom max:%s bytes"`  // 0: no bound
}

// Amount is a named quantity of a resource.
type Amount struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
}

// OnLost is what happens to a command when the lease of its process is over, because the store does not answer or the
// process stands still or is gone. The values are the case tags on disk.
type OnLost int

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

func (o OnLost) String() string {
	switch o {
	case OnLostKeep:
		return "keep"
	case OnLostKill:
		return "kill"
	}
	return "default"
}

// LostRetries are the further attempts, beside the retries, of a task whose worker was lost; 0: three.
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

func policyType() beast2.Type {
	str, integer, float, boolean, strs := beast2.String, beast2.Integer, beast2.Float, beast2.Boolean, beast2.Array(beast2.String)
	onLost := beast2.Variant(beast2.F("default", beast2.Null), beast2.F("keep", beast2.Null), beast2.F("kill", beast2.Null))
	return beast2.Struct(
		beast2.F("description", str),
		beast2.F("timeoutMs", integer),
		beast2.F("retries", integer), beast2.F("retryOn", strs), beast2.F("lost", integer), beast2.F("backoffMs", integer),
		beast2.F("cpu", float), beast2.F("memory", integer), beast2.F("resources", beast2.Dict(str, float)),
		beast2.F("priority", integer),
		beast2.F("oom", beast2.Option(beast2.Struct(beast2.F("factor", float), beast2.F("max", integer)))),
		beast2.F("approve", boolean),
		beast2.F("suspend", integer),
		beast2.F("onLost", onLost),
		beast2.F("mayFail", boolean),
		beast2.F("batch", integer),
		beast2.F("limits", boolean),
		beast2.F("queue", str), beast2.F("labels", strs),
		beast2.F("outputKinds", beast2.Dict(str, str)))
}

// Encode returns the bytes of the policy, as a package object has them. Equal policies have equal bytes.
func (p *Policy) Encode() []byte { return appendSaid(nil, p) }

// silent are the bytes of a policy that says nothing. It is none in a package.
var silent = sync.OnceValue(func() []byte { return new(Policy).Encode() })

func appendPolicy(b []byte, p *Policy) []byte {
	none := len(b)
	b = appendSaid(append(b, 1), p)
	if bytes.Equal(b[none+1:], silent()) {
		return append(b[:none], 0)
	}
	return b
}

func appendSaid(b []byte, p *Policy) []byte {
	b = beast2.AppendInteger(beast2.AppendString(b, p.Description), p.Timeout.Milliseconds())
	b = appendStrings(beast2.AppendInteger(b, p.Retries), p.RetryOn)
	b = beast2.AppendInteger(beast2.AppendInteger(b, int64(p.Lost)), p.Backoff.Milliseconds())
	b = beast2.AppendInteger(beast2.AppendFloat(b, p.CPU), p.Memory)
	b = beast2.AppendVarint(beast2.AppendInline(b), uint64(len(p.Resources)))
	for _, a := range p.Resources {
		b = beast2.AppendFloat(beast2.AppendString(b, a.Name), a.Value)
	}
	b = beast2.AppendInteger(b, p.Priority)
	if p.OOM == (Escalation{}) {
		b = append(b, 0)
	} else {
		b = beast2.AppendInteger(beast2.AppendFloat(append(b, 1), p.OOM.Factor), p.OOM.Max)
	}
	b = beast2.AppendInteger(beast2.AppendBoolean(b, p.Approve), p.Suspend)
	b = beast2.AppendBoolean(beast2.AppendVarint(b, uint64(p.OnLost)), p.MayFail)
	b = beast2.AppendBoolean(beast2.AppendInteger(b, p.Batch), p.Limits)
	b = appendStrings(beast2.AppendString(b, p.Queue), p.Labels)
	b = beast2.AppendVarint(beast2.AppendInline(b), uint64(len(p.OutputKinds)))
	for _, k := range p.OutputKinds {
		b = beast2.AppendString(beast2.AppendString(b, k.Name), k.Value)
	}
	return b
}

// readPolicy reads the policy of a task that has one. data is what r reads.
func readPolicy(r *beast2.Reader, a *allowance, data []byte) (p Policy) {
	at := r.Offset()
	p.Description, p.Timeout = r.String(), readMillis(r)
	p.Retries, p.RetryOn = r.Integer(), a.strings(r)
	p.Lost = LostRetries(readBetween(r, "attempts after a lost worker", -1, math.MaxInt64))
	p.Backoff = readMillis(r)
	p.CPU, p.Memory = readAmount(r), r.Integer()
	r.Inline()
	for range a.count(r, 9, 2*unsafe.Sizeof(Amount{})) { // a growing slice has up to twice the capacity
		p.Resources = append(p.Resources, Amount{Name: r.String(), Value: readAmount(r)})
	}
	p.Priority = r.Integer()
	if oomAt := r.Offset(); r.Tag(2) == 1 {
		p.OOM = Escalation{Factor: readAmount(r), Max: readBetween(r, "most memory", 0, math.MaxInt64)}
		if p.OOM == (Escalation{}) {
			r.Failf(oomAt, "growth after memory ran out is present but says nothing")
		}
	}
	p.Approve, p.Suspend = r.Boolean(), readBetween(r, "exit code", 0, 255)
	p.OnLost, p.MayFail = OnLost(r.Tag(int(OnLostKill)+1)), r.Boolean()
	p.Batch, p.Limits = readBetween(r, "items of a batch", 0, notation.MaxBatch), r.Boolean()
	p.Queue, p.Labels = r.String(), a.strings(r)
	r.Inline()
	for range a.count(r, 2, 2*unsafe.Sizeof(EnvVar{})) {
		p.OutputKinds = append(p.OutputKinds, EnvVar{Name: r.String(), Value: r.String()})
	}
	if r.Err() == nil && bytes.Equal(data[at:r.Offset()], silent()) {
		r.Failf(at, "policy is present but says nothing")
	}
	return p
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

// readAmount reads a quantity of a resource. It refuses numbers that would spoil a sum.
func readAmount(r *beast2.Reader) float64 {
	at := r.Offset()
	v := r.Float()
	if !(v >= 0 && v <= math.MaxFloat64) {
		r.Failf(at, "amount %v is out of range", v)
		return 0
	}
	return v
}

// readMillis reads a duration. It refuses one that a time.Duration cannot hold.
func readMillis(r *beast2.Reader) time.Duration {
	at := r.Offset()
	ms := r.Integer()
	if ms < 0 || ms > int64(1<<63-1)/int64(time.Millisecond) {
		r.Failf(at, "duration of %d ms is out of range", ms)
		return 0
	}
	return time.Duration(ms) * time.Millisecond
}

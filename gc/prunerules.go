package gc

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"e3/executions"
)

// Rules choose the executions that a prune removes. They add up: an execution that any rule names is removed, unless it
// is protected.
type Rules struct {
	// OlderThan removes executions that were made, or imported, longer ago than this. 0: no such rule.
	OlderThan time.Duration
	// KeepLast keeps this many of the latest successes of each task, by its name. It removes older successes, and
	// failures that are older than all kept successes. 0: no such rule.
	KeepLast int64
	// MaxSize removes the oldest executions until the objects that only the cache holds have at most this many bytes.
	// 0: no such rule.
	MaxSize int64
	// Snapshots also prunes the register: it removes the packages that exports made of workspaces, unless a workspace
	// here has deployed them. Such packages then protect no executions any more.
	Snapshots bool
}

// ofExecutions reports whether there is a rule for executions.
func (r *Rules) ofExecutions() bool { return r.OlderThan > 0 || r.KeepLast > 0 || r.MaxSize > 0 }

// Validate returns an error for rules that make no sense.
func (r *Rules) Validate() error {
	if r.OlderThan < 0 || r.KeepLast < 0 || r.MaxSize < 0 {
		return fmt.Errorf("a rule of pruning is below zero: %+v", *r)
	}
	if *r == (Rules{}) {
		return fmt.Errorf("pruning needs a rule")
	}
	return nil
}

// A Shield is a reason that protects an execution from being pruned.
type Shield uint8

// The shields, strongest first.
const (
	Unshielded Shield = iota
	ByRunning         // the execution has not ended
	ByRun             // the current or the proven run of a workspace names it
	ByStart           // it would be a hit for a start of a workspace or of a registered package
	ByPin             // it is pinned
)

// Protected counts protected executions by the strongest of their shields.
type Protected struct {
	Pinned  int64 `json:"pinned"`
	Run     int64 `json:"run"` // in the run of a workspace
	Running int64 `json:"running"`
	Start   int64 `json:"start"` // hits of a start
}

func (p *Protected) add(s Shield) {
	switch s {
	case ByRunning:
		p.Running++
	case ByRun:
		p.Run++
	case ByStart:
		p.Start++
	case ByPin:
		p.Pinned++
	}
}

// Words describes the protected executions: "3 that are pinned".
func (p *Protected) Words() (list []string) {
	for _, of := range []struct {
		n         int64
		one, many string
	}{
		{p.Running, "that runs", "that run"},
		{p.Run, "that the latest or the proven run of a workspace names", "that the latest or the proven run of a workspace names"},
		{p.Start, "that would answer a start", "that would answer a start"},
		{p.Pinned, "that is pinned", "that are pinned"},
	} {
		switch {
		case of.n == 1:
			list = append(list, "1 "+of.one)
		case of.n > 1:
			list = append(list, fmt.Sprintf("%d %s", of.n, of.many))
		}
	}
	return list
}

// The reasons in tombstones.
const (
	becauseOld  = "older than "
	becauseMany = "not among the last "
	becauseSize = "beyond the size of "
)

// candidate is an execution as the rules see it. There may be a million of them.
type candidate struct {
	id     uuid.UUID
	key    int32 // in the pool
	group  int32 // in the pool
	roots  int32 // in the sizer: the last of its references; -1 without one
	at     int64 // when it was made or imported, ms
	good   bool  // a success that is not rejected
	shield Shield
	rule   rule // the rule that removes it
}

type rule uint8

const (
	stays rule = iota
	tooOld
	tooMany
	tooLarge
	numberOfRules
)

// pool holds the candidates, and the values that many of them share.
type pool struct {
	list   []candidate
	keys   []executions.Key
	groups []string         // names of tasks, as <workspace>.<task>
	byName map[string]int32 // in groups
}

// group returns the number of a task's name.
func (p *pool) group(name string) int32 {
	if p.byName == nil {
		p.byName = map[string]int32{}
	}
	g, ok := p.byName[name]
	if !ok {
		g = int32(len(p.groups))
		p.byName[name] = g
		p.groups = append(p.groups, name)
	}
	return g
}

// free reports whether a rule may still remove a candidate.
func (c *candidate) free() bool { return c.shield == Unshielded && c.rule == stays }

// byAge applies OlderThan.
func (p *pool) byAge(now time.Time, most time.Duration) {
	before := now.Add(-most).UnixMilli()
	for i := range p.list {
		if c := &p.list[i]; c.free() && c.at < before {
			c.rule = tooOld
		}
	}
}

// byNumber applies KeepLast. As in a lookup, the greater id is the later success. Protected executions count among
// those kept.
func (p *pool) byNumber(keep int64) {
	order := make([]int32, len(p.list))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortFunc(order, func(a, b int32) int {
		x, y := &p.list[a], &p.list[b]
		return cmp.Or(cmp.Compare(x.group, y.group), bytes.Compare(y.id[:], x.id[:]))
	})
	for from := 0; from < len(order); {
		to := from
		for to < len(order) && p.list[order[to]].group == p.list[order[from]].group {
			to++
		}
		kept, last := int64(0), to // last is the oldest success that is kept
		for n := from; n < to && kept < keep; n++ {
			if p.list[order[n]].good {
				kept, last = kept+1, n
			}
		}
		for n := last + 1; n < to; n++ {
			if c := &p.list[order[n]]; c.free() {
				c.rule = tooMany
			}
		}
		from = to
	}
}

// oldestFirst returns the candidates that a rule may still remove.
func (p *pool) oldestFirst() []int32 {
	var order []int32
	for i := range p.list {
		if p.list[i].free() {
			order = append(order, int32(i))
		}
	}
	slices.SortFunc(order, func(a, b int32) int {
		x, y := &p.list[a], &p.list[b]
		return cmp.Or(cmp.Compare(x.at, y.at), bytes.Compare(x.id[:], y.id[:]))
	})
	return order
}

// bySize applies MaxSize. held is called with each execution, the latest first, and returns the bytes that it adds to
// the cache. The execution that exceeds the size is removed, and every older one.
func (p *pool) bySize(most int64, held func(i int32) (int64, error)) error {
	order := p.oldestFirst()
	var size int64
	for n := len(order); n > 0; n-- {
		more, err := held(order[n-1])
		if err != nil {
			return err
		}
		if size += more; size > most {
			for _, i := range order[:n] {
				p.list[i].rule = tooLarge
			}
			return nil
		}
	}
	return nil
}

// reason is the text of the tombstone.
func (r Rules) reason(by rule) string {
	switch by {
	case tooOld:
		return becauseOld + days(r.OlderThan)
	case tooMany:
		return becauseMany + fmt.Sprint(r.KeepLast)
	}
	return becauseSize + fmt.Sprintf("%d bytes", r.MaxSize)
}

// days formats a duration in the form of the flag: 30d, 12h.
func days(d time.Duration) string {
	const day = 24 * time.Hour
	if d >= day && d%day == 0 {
		return fmt.Sprintf("%dd", d/day)
	}
	text := d.String()
	if short, ok := strings.CutSuffix(text, "m0s"); ok {
		text = short + "m"
	}
	if short, ok := strings.CutSuffix(text, "h0m"); ok {
		text = short + "h"
	}
	return text
}

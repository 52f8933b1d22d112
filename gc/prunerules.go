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

// Rules say what is taken out of the cache. They add up: what one of them names goes, unless it is protected.
type Rules struct {
	// OlderThan takes out what was made, or brought here, longer ago. 0: no such rule.
	OlderThan time.Duration
	// KeepLast leaves so many of the latest successes of each task, by its name, and takes out the other successes and
	// the failures before the first of those. 0: no such rule.
	KeepLast int64
	// MaxSize takes out the oldest until the objects that only the cache holds have so many bytes at most. 0: no such rule.
	MaxSize int64
	// Snapshots takes packages out of the register that exports have made of workspaces and that no workspace here has. They hold no
	// executions back any more then.
	Snapshots bool
}

// ofExecutions tells whether there is a rule for executions.
func (r *Rules) ofExecutions() bool { return r.OlderThan > 0 || r.KeepLast > 0 || r.MaxSize > 0 }

// Validate says what of the rules makes no sense.
func (r *Rules) Validate() error {
	if r.OlderThan < 0 || r.KeepLast < 0 || r.MaxSize < 0 {
		return fmt.Errorf("a rule of pruning is below zero: %+v", *r)
	}
	if *r == (Rules{}) {
		return fmt.Errorf("pruning needs a rule")
	}
	return nil
}

// A Shield is what keeps an execution from being pruned.
type Shield uint8

// The shields, strongest first.
const (
	Unshielded Shield = iota
	ByRunning         // it has not ended
	ByRun             // the run of a workspace names it
	ByStart           // a start of a workspace, or of a registered package, would be answered by it
	ByPin             // it is pinned
	numberOfShields
)

// Count says of n executions what protects them: "3 that are pinned".
func (s Shield) Count(n int64) string {
	words := [...][2]string{
		Unshielded: {"that nothing protects", "that nothing protects"},
		ByRunning:  {"that runs", "that run"},
		ByRun:      {"that the latest run of a workspace names", "that the latest run of a workspace names"},
		ByStart:    {"that would answer a start", "that would answer a start"},
		ByPin:      {"that is pinned", "that are pinned"},
	}[s]
	if n == 1 {
		return "1 " + words[0]
	}
	return fmt.Sprintf("%d %s", n, words[1])
}

// The reasons that go into tombstones.
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
	roots  int32 // in the pool: the last of its references, -1 without one
	at     int64 // when it was made or brought here, ms
	good   bool  // a success that nobody has rejected
	shield Shield
	rule   rule // that takes it out
}

type rule uint8

const (
	stays rule = iota
	tooOld
	tooMany
	tooLarge
	numberOfRules
)

// pool is the candidates with what many of them share.
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

// free tells whether a rule may still take a candidate out.
func (c *candidate) free() bool { return c.shield == Unshielded && c.rule == stays }

// byAge applies the rule on age.
func (p *pool) byAge(now time.Time, most time.Duration) {
	before := now.Add(-most).UnixMilli()
	for i := range p.list {
		if c := &p.list[i]; c.free() && c.at < before {
			c.rule = tooOld
		}
	}
}

// byNumber applies the rule on the number of successes. Ids tell which is the latest, as they do for a lookup. Protected
// executions count: they are there.
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

// oldestFirst returns the candidates that a rule may still take out.
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

// bySize applies the rule on size: held is told each execution, the latest first, and returns how many bytes the cache
// holds with it that it did not hold before. What makes it too many goes, and all that is older.
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

// reason is what the tombstone says.
func (r Rules) reason(by rule) string {
	switch by {
	case tooOld:
		return becauseOld + days(r.OlderThan)
	case tooMany:
		return becauseMany + fmt.Sprint(r.KeepLast)
	}
	return becauseSize + fmt.Sprintf("%d bytes", r.MaxSize)
}

// days shows a duration as one gives it to the rule: 30d, 12h0m0s.
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

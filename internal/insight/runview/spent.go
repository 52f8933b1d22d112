package runview

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"e3/dataflow/graph"
	"e3/internal/format/moment"
	"e3/internal/human"
)

// Spent says where the time of a run went.
type Spent struct {
	Took     moment.Millis `json:"ms"`              // of all commands together
	Attempts int           `json:"attempts"`        // commands
	Families []FamilyTime  `json:"families"`        // at most 50, those first that took longest
	Waits    []WaitTime    `json:"waits,omitempty"` // of tasks whose inputs were known, by what they waited for; those first in which no command ran for longest
	Cores    CoresUse      `json:"cores"`
	Path     []Stretch     `json:"path,omitempty"`   // the chain of tasks that decided when the run ended; absent where it took less than half of the run, so that cores decided
	PathTook moment.Millis `json:"pathMs,omitempty"` // of that chain; absent: not known
	Whole    moment.Millis `json:"runMs"`            // the run's duration, until now
}

// FamilyTime is the time of the attempts of a family of tasks.
type FamilyTime struct {
	Name     string        `json:"family"`
	Attempts int           `json:"attempts"`
	Took     moment.Millis `json:"ms"`
	Longest  moment.Millis `json:"longestMs"`
}

// CoresUse is how many cores the commands used, by what their tasks ask for: one, if they ask for nothing.
type CoresUse struct {
	Limit   int       `json:"limit,omitempty"` // of the run's process; absent: not known, or they ran at workers
	Average float64   `json:"average"`
	Most    float64   `json:"most"`   // of the averages below
	Levels  []float64 `json:"levels"` // the averages of equal parts of the run's duration
}

// A Stretch is a task of the critical path: from its first attempt's begin to its last one's end.
type Stretch struct {
	Task   string        `json:"task"`
	State  TaskState     `json:"state"`
	Took   moment.Millis `json:"ms"`
	Waited moment.Millis `json:"waitedMs"` // since the end of the task before; for the first task since the run's begin
}

// Bounds of what is said of a run's time.
const (
	mostFamilies = 50
	levels       = 60
)

// SpentOf says where the time of a run went, by its attempts and waits; nil: there are none. Without a graph there is no path.
func SpentOf(g *graph.Graph, all *Spans, r *Report, now time.Time) *Spent {
	spans := all.All(r, now)
	waits := waitTimes(all.Waits(r, now), spans)
	if len(spans)+len(waits) == 0 {
		return nil
	}
	s := &Spent{Whole: moment.Millis(r.RanFor(now)), Families: []FamilyTime{}, Waits: waits}
	at := map[string]int{}
	from, to := r.StartedAt, r.StartedAt.Add(r.RanFor(now))
	for i := range spans {
		x := &spans[i]
		name := FamilyOf(x.Task)
		k, ok := at[name]
		if !ok {
			k = len(s.Families)
			at[name] = k
			s.Families = append(s.Families, FamilyTime{Name: name})
		}
		took := moment.Millis(x.Took())
		f := &s.Families[k]
		f.Attempts, f.Took, f.Longest = f.Attempts+1, f.Took+took, max(f.Longest, took)
		s.Took += took
		s.Attempts++
		if x.End.After(to) {
			to = x.End
		}
		if x.Start.Before(from) {
			from = x.Start
		}
	}
	slices.SortStableFunc(s.Families, func(a, b FamilyTime) int { return cmp.Compare(b.Took, a.Took) })
	s.Families = s.Families[:min(len(s.Families), mostFamilies)]
	limit := 0
	if r.Limits != nil {
		limit = r.Limits.Cores
	}
	s.Cores = coresOf(g, spans, from, to, limit)
	if g != nil && len(spans) > 0 {
		path, took := criticalPath(g, spans, r.StartedAt)
		if s.PathTook = moment.Millis(took); 2*took >= to.Sub(from) {
			s.Path = path
		}
	}
	return s
}

// Text says where the time went, in sentences.
func (s *Spent) Text() string {
	text := fmt.Sprintf("Commands took %s together, in a run of %s.", human.Duration(s.Took.Duration()), human.Duration(s.Whole.Duration()))
	switch {
	case len(s.Path) > 1:
		text += fmt.Sprintf(" The critical path, of %s, took %s.", human.Count(len(s.Path), "task"), human.Duration(s.PathTook.Duration()))
	case len(s.Path) == 0 && s.PathTook > 0 && s.Cores.Limit > 0 && 2*s.Cores.Average >= float64(s.Cores.Limit):
		text += " No chain of tasks took half of that: the cores were the limit."
	}
	if s.Stood() {
		w := &s.Waits[0]
		text += fmt.Sprintf(" For %s no command ran, while %s waited for %s.", human.Duration(w.Idle.Duration()), waiters(w), w.Text())
	}
	return text
}

// Stood reports whether the run stood still for a second or longer: no command ran, and it waited for something.
func (s *Spent) Stood() bool { return len(s.Waits) > 0 && s.Waits[0].Idle.Duration() >= time.Second }

func waiters(w *WaitTime) string {
	if w.For == WaitsStore {
		return "the run"
	}
	return human.Count(w.Tasks, "task")
}

// Text says how many cores were in use.
func (u *CoresUse) Text() string {
	of := ""
	if u.Limit > 0 {
		of = fmt.Sprintf(" of %d", u.Limit)
	}
	return fmt.Sprintf("%.1f%s on average, %.1f at most", u.Average, of, u.Most)
}

// coresOf adds up what commands used in equal parts of the time. limit is that of the run; 0: not known. Short commands
// seem to overlap, since an attempt's times include what happens around its command: beyond the limit nothing counts.
func coresOf(g *graph.Graph, spans []Span, from, to time.Time, limit int) CoresUse {
	u := CoresUse{Limit: limit, Levels: make([]float64, levels)}
	part := max(to.Sub(from)/levels, 1)
	for i := range spans {
		x := &spans[i]
		cores := 1.0
		if g != nil {
			if k, ok := g.Find(x.Task); ok && g.Package.Tasks[k].Policy.CPU > 0 {
				cores = g.Package.Tasks[k].Policy.CPU
			}
		}
		begin, end := x.Start.Sub(from), x.End.Sub(from)
		for k := int(begin / part); k < levels && time.Duration(k)*part < end; k++ {
			within := min(end, time.Duration(k+1)*part) - max(begin, time.Duration(k)*part)
			u.Levels[k] += cores * float64(within) / float64(part)
		}
	}
	for k, level := range u.Levels {
		if limit > 0 {
			level = min(level, float64(limit))
		}
		u.Levels[k] = float64(int(level*100+0.5)) / 100
		u.Average += level / levels
		u.Most = max(u.Most, u.Levels[k])
	}
	u.Average = float64(int(u.Average*100+0.5)) / 100
	return u
}

// criticalPath is the chain of tasks that decided when the run ended, and how long they took. Its last task is the
// task that ended last; before each task comes the one of its dependencies that ended last. Cached tasks took no time,
// and are not on it.
func criticalPath(g *graph.Graph, spans []Span, from time.Time) (path []Stretch, took time.Duration) {
	whole := make(map[string]Span, len(spans))
	last := ""
	for _, at := range spans {
		w, ok := whole[at.Task]
		if !ok {
			w = at
		}
		if at.Start.Before(w.Start) {
			w.Start = at.Start
		}
		if !at.End.Before(w.End) {
			w.End, w.State = at.End, at.State
		}
		whole[at.Task] = w
		if l, ok := whole[last]; !ok || w.End.After(l.End) {
			last = at.Task
		}
	}
	var chain []Span
	for n := 0; n <= g.Len() && last != ""; n++ {
		chain = append(chain, whole[last])
		i, ok := g.Find(last)
		last = ""
		if !ok {
			break
		}
		for _, d := range g.Dependencies(i) {
			name := g.Name(d)
			if w, ran := whole[name]; ran && (last == "" || w.End.After(whole[last].End)) {
				last = name
			}
		}
	}
	for _, at := range slices.Backward(chain) {
		path = append(path, Stretch{at.Task, at.State, moment.Millis(at.Took()), moment.Millis(max(at.Start.Sub(from), 0))})
		took += at.Took()
		from = at.End
	}
	return path, took
}

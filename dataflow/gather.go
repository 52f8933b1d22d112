package dataflow

import (
	"encoding/json"
	"slices"

	"e3/dataflow/graph"
	"e3/internal/events"
	"e3/internal/format/record"
	"e3/objectstore"
)

// Gathering with need (doc/design.md §8, "Tolerant gathering"): a fan-in that needs only some of its members is
// decided when all of them have ended. Members that have failed or were skipped are left out of its directory, and
// named in its manifest.

// isGone tells whether a task has ended without an output.
func (r *reader) isGone(d int32) bool {
	return r.results[d].State == Failed || r.results[d].State == Skipped
}

// members are the entries of a fan-in that have an output.
func (r *reader) members(w *record.Wire) []record.FanItem {
	if !w.Tolerates() || !slices.ContainsFunc(w.Items, r.lacks) {
		return w.Items
	}
	return slices.DeleteFunc(slices.Clone(w.Items), r.lacks)
}

// lacks tells whether a member of a fan-in has no output.
func (r *reader) lacks(it record.FanItem) bool {
	d, ok := r.g.Find(it.Task)
	return ok && r.isGone(d)
}

// listing is the manifest of a fan-in. doc/package-file.md, "The manifest of a fan-in", documents it.
type listing struct {
	Items   []listed `json:"items"`
	Missing []listed `json:"missing"`
}

// listed is one entry of a manifest.
type listed struct {
	Label  string            `json:"label"`
	File   string            `json:"file,omitempty"` // in the directory; "" for a missing member
	Task   string            `json:"task,omitempty"` // of a missing member
	Values map[string]string `json:"values"`
}

// manifest stores the manifest of a fan-in, and returns its hash and size.
func (r *reader) manifest(into objectstore.Store, w *record.Wire) (objectstore.Hash, int64, error) {
	l := listing{Items: []listed{}, Missing: []listed{}}
	for k := range w.Items {
		it := &w.Items[k]
		e := listed{Label: it.Label, File: it.Label, Values: map[string]string{}}
		if it.Task != "" {
			e.Label = graph.LabelOf(it.Task)
		}
		if it.Entry != "" && e.Label == "" {
			e.Label = it.Label
		}
		for n, v := range w.Gather.ValuesOf(k) {
			e.Values[w.Gather.Names[n]] = v
		}
		if w.Tolerates() && r.lacks(*it) {
			e.File, e.Task = "", it.Task
			l.Missing = append(l.Missing, e)
			continue
		}
		l.Items = append(l.Items, e)
	}
	data, err := json.Marshal(l)
	if err != nil {
		return objectstore.Hash{}, 0, err
	}
	data = append(data, '\n')
	h, err := objectstore.PutBytes(r.ctx, into, data)
	return h, int64(len(data)), err
}

// broken returns a task whose failure task i does not tolerate, so that i cannot run; -1: there is none.
func broken(r *reader, i int32) int32 {
	for _, d := range r.g.Dependencies(i) {
		if r.isGone(d) && !r.g.Tolerates(i, d) {
			return d
		}
	}
	return -1
}

// tooFew returns a missing member of a fan-in with too few successful members; -1: there is none.
func tooFew(r *reader, i int32) int32 {
	for _, l := range r.g.Lacks(i, r.isGone) {
		if !l.Enough() {
			return l.Missing[0]
		}
	}
	return -1
}

// mostNamed is how many missing members an event names.
const mostNamed = 20

// gatherFacts describes, for a task's events, its fan-ins that lack members, or only those that lack too many; nil:
// there are none.
func gatherFacts(r *reader, i int32, tooFew bool) *events.Gathered {
	lacks := slices.DeleteFunc(r.g.Lacks(i, r.isGone), func(l graph.Lack) bool { return tooFew && l.Enough() })
	if len(lacks) == 0 {
		return nil
	}
	f := &events.Gathered{}
	for k := range lacks {
		l := &lacks[k]
		f.Members, f.Missing, f.Needed = f.Members+l.Members, f.Missing+len(l.Missing), f.Needed+l.Needed
		for _, d := range l.Missing {
			switch result := &r.results[d]; {
			case result.Rejected:
				f.Rejected++
			case result.State == Failed:
				f.Failed++
			default:
				f.Skipped++
			}
			if len(f.Names) < mostNamed {
				f.Names = append(f.Names, r.g.Name(d))
			}
		}
	}
	return f
}

// tolerate counts down one failed dependency of task d, which can do without it.
func (s *scheduler) tolerate(d int32) {
	t := &s.states[d]
	if t.upstream--; t.upstream == 0 && !t.busy && !s.stopping {
		s.wake(d)
	}
}

// tolerable tells whether all readers of a task in the run can do without its output. If a reader cannot run without
// it, the readers of that reader count instead. A task that nothing reads is not tolerable.
func (s *scheduler) tolerable(i int32) bool {
	if !s.g.AnyTolerant() || s.opts.Strict {
		return false
	}
	if s.mild == nil {
		s.mild = &verdicts{s: s, known: map[int32]int32{}}
	}
	return s.mild.of(i) >= 0
}

// verdicts finds the failures that the run tolerates. With settled it judges the fan-ins as they ended, otherwise as
// they may still end.
type verdicts struct {
	s       *scheduler
	settled bool
	known   map[int32]int32
	lacking map[int32]bool // by tolerant task: too many members have failed
}

// of returns a task that does without the output of task i, if every reader of i does without; else -1.
func (v *verdicts) of(i int32) int32 {
	if by, ok := v.known[i]; ok {
		return by
	}
	by := int32(-1)
	for _, d := range v.s.g.Dependents(i) {
		if !v.s.wants(d) {
			continue
		}
		by = v.reader(i, d)
		if by < 0 {
			break
		}
	}
	v.known[i] = by
	return by
}

// reader is the same as of for one reader.
func (v *verdicts) reader(i, d int32) int32 {
	s := v.s
	switch {
	case !s.g.IsTask(d):
		return -1
	case !s.g.Tolerates(d, i):
		if v.settled && s.results[d].State != Skipped {
			return -1
		}
		return v.of(d)
	case v.settled && v.tooFew(d):
		return -1
	}
	return d
}

// tooFew tells whether too many members have failed. It asks once for each task.
func (v *verdicts) tooFew(d int32) bool {
	lacks, known := v.lacking[d]
	if !known {
		lacks = tooFew(v.s.reader, d) >= 0
		v.lacking[d] = lacks
	}
	return lacks
}

// leaveOut tells which failures the run tolerates, and keeps the others. With Strict all of them fail the run.
func (s *scheduler) leaveOut() {
	if !s.g.AnyTolerant() || s.opts.Strict {
		return
	}
	v := &verdicts{s: s, settled: true, known: map[int32]int32{}, lacking: map[int32]bool{}}
	s.failures = slices.DeleteFunc(s.failures, func(f failure) bool {
		by := v.of(f.task)
		if by >= 0 {
			s.emit(events.Event{Type: events.TaskLeftOut, Task: s.g.Name(f.task), Data: &events.Data{Because: s.g.Name(by)}})
		}
		return by >= 0
	})
}

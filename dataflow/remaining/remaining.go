// Package remaining estimates how a run at work goes on, from the durations on record and from what the run has done
// so far. It is the only estimate: the terminal, the pages and the answers of commands show it. Where no duration is
// known, it says "at least", or nothing.
package remaining

import (
	"iter"
	"math/bits"
	"sync"
	"time"

	"e3/dataflow"
	"e3/dataflow/graph"
	"e3/internal/events"
	"e3/internal/human"
	"e3/internal/insight/runview"
)

// A Run estimates one run. It is safe for concurrent use. Look walks all tasks, at most once a second and for at most
// one percent of the time.
type Run struct {
	g         *graph.Graph
	recorded  []time.Duration // how long each task took the last time; 0: unknown
	family    []int           // of each task, its place among the families
	families  []string
	part      []bool // the tasks that the run selects; nil: all
	force     bool   // what the filter names runs even if it has a result
	named     []bool // by the filter; nil: all
	opts      dataflow.Options
	workers   bool // commands run at workers
	unbounded bool // no limits are known: as much as was seen at work at once is what they can take

	mu    sync.Mutex
	peak  float64 // cores at work at once
	last  Outlook
	at    time.Time // of the last look; zero: none yet
	fresh time.Duration
}

// An Estimate is the time that a run still takes.
type Estimate struct {
	Left    time.Duration
	Known   bool // anything is known; else Left means nothing
	AtLeast bool // for some tasks nothing is known, or a person is waited for: it takes at least Left
}

// An Outlook is how a run is expected to go on.
type Outlook struct {
	Estimate
	Next    []dataflow.Turn  // the commands that are next, at most so many as it lists
	Blocked map[int32]string // what tasks wait for whose inputs are known: see dataflow.Course
	// Expected is how long the command of each task takes, by its index in the graph; 0: unknown. It holds for the
	// run's own commands: a task that turns out to have a result takes no time.
	Expected []time.Duration
}

// Of returns an estimator for a run, before its first task. expected returns how long a task took when it last ran; 0:
// unknown.
func Of(g *graph.Graph, started *events.Data, expected func(task string) time.Duration) *Run {
	r := &Run{g: g, recorded: make([]time.Duration, g.Len()), family: make([]int, g.Len()), force: started.Force}
	places := map[string]int{}
	for i := range g.Len() {
		name := g.Name(int32(i))
		r.recorded[i] = expected(name)
		f := runview.FamilyOf(name)
		if _, ok := places[f]; !ok {
			places[f] = len(r.families)
			r.families = append(r.families, f)
		}
		r.family[i] = places[f]
	}
	if started.Filter != "" {
		r.named, r.part = g.Select(started.Filter)
	}
	if l := started.Limits; l != nil && l.Cores > 0 {
		r.opts = dataflow.Options{Concurrency: min(l.Cores, mostCores), Memory: l.Memory, Capacities: l.Resources}
	} else {
		r.unbounded, r.workers = true, l != nil
	}
	return r
}

// mostCores bounds what an event can make the estimate reckon with.
const mostCores = 1 << 20

// An outlook is reused, less the time that has passed, for a second and for a hundred times the time that it took to
// compute.
const (
	fresh = time.Second
	share = 100
	turns = 20 // that an outlook lists
)

// A View is what the events of a run tell, when it is looked at.
type View func() (tasks iter.Seq[*runview.TaskReport], waiting int64)

// Told is the view of a fold. The graph may lack tasks.
func (r *Run) Told(f *runview.Fold) View {
	return func() (iter.Seq[*runview.TaskReport], int64) { return f.States(r.g), f.Waiting() }
}

// Reported is the view of a report with its tasks.
func Reported(r *runview.Report) View {
	return func() (iter.Seq[*runview.TaskReport], int64) { return r.Each(), r.Waiting() }
}

// Look says how the run goes on.
func (r *Run) Look(view View, now time.Time) Outlook {
	r.mu.Lock()
	defer r.mu.Unlock()
	if passed := now.Sub(r.at); !r.at.IsZero() && passed >= 0 && passed < r.fresh {
		o := r.last
		o.Left = max(o.Left-passed, 0)
		return o
	}
	began := time.Now()
	tasks, waiting := view()
	r.last, r.at = r.look(tasks, waiting, now), now
	r.fresh = max(fresh, share*time.Since(began))
	return r.last
}

func (r *Run) look(tasks iter.Seq[*runview.TaskReport], waiting int64, now time.Time) Outlook {
	l := &look{Run: r, standing: make([]dataflow.Standing, r.g.Len()), ran: make([]bool, r.g.Len()), state: make([]*runview.TaskReport, r.g.Len())}
	for t := range tasks {
		if i, ok := r.g.Find(t.Task); ok {
			l.state[i] = t
			l.stands(i, t)
		}
	}
	l.learn()
	return l.outlook(waiting, now)
}

// A look is what one look at a run has found.
type look struct {
	*Run
	state    []*runview.TaskReport // nil: no turn yet
	standing []dataflow.Standing
	ran      []bool // its command has run, or is at work

	took  []pace // by family: what has run in this run
	whole paces  // of all of them
	older []pace // by family: all recorded durations
	fresh hits   // tasks downstream of one that has run
	stale hits   // the other tasks that were looked up
}

// A pace compares how long commands took with the record.
type pace struct {
	took, recorded time.Duration // of those with a record
	sum            time.Duration // of all
	n              int           // of all
	known          int           // with a record
}

func (p *pace) add(took, recorded time.Duration) {
	p.sum += took
	p.n++
	if recorded > 0 {
		p.took, p.recorded = p.took+took, p.recorded+recorded
		p.known++
	}
}

// factor is by how much commands take longer than on record. A prior, which counts like so many commands, keeps few of
// them from deciding.
func (p *pace) factor(prior float64) float64 {
	const weight = 2
	if p.known == 0 {
		return prior
	}
	some := weight * float64(p.recorded) / float64(p.known)
	return (float64(p.took) + some*prior) / (float64(p.recorded) + some)
}

// mean is the recorded duration of those with a record; 0: none has one.
func (p *pace) mean() time.Duration {
	if p.known == 0 {
		return 0
	}
	return p.recorded / time.Duration(p.known)
}

// paces are the paces of commands by the number of binary digits of their recorded duration. A delay that slows a command of
// milliseconds down, such as its start, tells nothing about one of minutes.
type paces [64]pace

// comparable is how many binary digits two durations may differ by.
const comparable = 2

func (p *paces) add(took, recorded time.Duration) {
	if recorded > 0 {
		p[bits.Len64(uint64(recorded))].add(took, recorded)
	}
}

// factor is the pace of commands of about this recorded duration; 1 if there was none.
func (p *paces) factor(recorded time.Duration) float64 {
	var like pace
	at := bits.Len64(uint64(recorded))
	for i := max(at-comparable, 0); i <= min(at+comparable, len(p)-1); i++ {
		like.took, like.recorded, like.known = like.took+p[i].took, like.recorded+p[i].recorded, like.known+p[i].known
	}
	return like.factor(1)
}

// hits counts the tasks that had to run, and those that had a result.
type hits struct{ ran, hit float64 }

// runs is the chance that another one has to run; none has been seen: it runs.
func (h hits) runs() float64 { return (h.ran + 1) / (h.ran + h.hit + 1) }

// stands notes where a task stands.
func (l *look) stands(i int32, t *runview.TaskReport) {
	s := &l.standing[i]
	switch t.State {
	case "", runview.TaskReady, runview.TaskRetrying, runview.TaskQueued:
	case runview.TaskRunning, runview.TaskClaimed:
		s.Runs, l.ran[i] = true, true
	case runview.TaskDeferred:
		s.Held = true
	case runview.TaskSuccess, runview.TaskFailed, runview.TaskError:
		s.Ended, l.ran[i] = true, true
	default:
		s.Ended = true
	}
}

// learn compares what has run with the record, and counts what had a result.
func (l *look) learn() {
	l.took, l.older = make([]pace, len(l.families)), make([]pace, len(l.families))
	for i := range l.state {
		i := int32(i)
		recorded := l.recorded[i]
		if recorded > 0 {
			l.older[l.family[i]].add(recorded, recorded)
		}
		t := l.state[i]
		if t == nil || t.Proven {
			continue
		}
		if t.State == runview.TaskSuccess && t.Duration > 0 {
			l.took[l.family[i]].add(t.Duration.Duration(), recorded)
			l.whole.add(t.Duration.Duration(), recorded)
		}
		counts := &l.stale
		for _, d := range l.g.Dependencies(i) {
			if l.ran[d] {
				counts = &l.fresh
				break
			}
		}
		switch {
		case l.ran[i]:
			counts.ran++
		case t.State == runview.TaskCached:
			counts.hit++
		}
	}
}

// expected is how long a command takes: as on record, at the pace of its family in this run; else as its family in this
// run; else as its family on record. 0: unknown.
func (l *look) expected(i int32, factors []float64) time.Duration {
	f := l.family[i]
	switch {
	case l.recorded[i] > 0:
		return max(time.Duration(float64(l.recorded[i])*factors[f]), 1)
	case l.took[f].n > 0:
		return max(l.took[f].sum/time.Duration(l.took[f].n), 1)
	case l.older[f].n > 0:
		return max(time.Duration(float64(l.older[f].sum)/float64(l.older[f].n)*factors[f]), 1)
	}
	return 0
}

// outlook foresees the run.
func (l *look) outlook(waiting int64, now time.Time) Outlook {
	factors := make([]float64, len(l.families))
	for f := range factors {
		factors[f] = l.took[f].factor(l.whole.factor(l.older[f].mean()))
	}
	o := Outlook{Expected: make([]time.Duration, l.g.Len())}
	chances := l.chances(waiting, &o)
	atWork := 0.0
	for i := range l.standing {
		i := int32(i)
		s := &l.standing[i]
		if s.Ended {
			continue
		}
		o.Expected[i] = l.expected(i, factors)
		if s.Runs {
			atWork += max(l.g.Package.Tasks[i].Policy.CPU, 1)
		}
		switch {
		case s.Held:
			o.AtLeast = true
			continue
		case o.Expected[i] > 0:
			o.Known = true
		case s.Runs || chances[i] > 0:
			o.AtLeast = true
			s.Takes = 1 // it takes its turn all the same
			continue
		}
		if s.Takes = time.Duration(float64(o.Expected[i]) * chances[i]); s.Runs {
			if t := l.state[i]; t.State == runview.TaskRunning {
				s.Takes = lasts(o.Expected[i], now.Sub(t.StartedAt.Time))
			}
		}
	}
	opts := l.opts
	if l.peak = max(l.peak, atWork); l.unbounded {
		opts.Concurrency = min(int(max(l.peak, 1)), mostCores)
	}
	c := dataflow.Foresee(l.g, &opts, l.standing, turns)
	o.Left, o.Next, o.Blocked = c.Left, c.Next, c.Blocked
	return o
}

// lasts is how long a command still takes after some time. One that is late goes on for as long as it is late already:
// the later it is, the less its record says.
func lasts(expected, elapsed time.Duration) time.Duration { return (expected - elapsed).Abs() }

// chances are the chances that tasks have to run. Downstream of a command that runs, a result is rarely known; elsewhere
// the tasks so far tell. A task without a record has never run here.
func (l *look) chances(waiting int64, o *Outlook) []float64 {
	chances := make([]float64, l.g.Len())
	names := int64(0)
	for _, i := range l.g.Order() {
		s := &l.standing[i]
		if l.part != nil && !l.part[i] {
			s.Ended = true
		}
		switch {
		case l.ran[i]:
			chances[i] = 1
		case s.Ended:
		case l.state[i] != nil && l.state[i].State == runview.TaskRetrying:
			chances[i] = 1
		default:
			if names++; s.Held {
				chances[i] = 1
				break
			}
			none := 1.0 // that nothing upstream runs
			for _, d := range l.g.Dependencies(i) {
				none *= 1 - chances[d]
			}
			stale := l.stale.runs()
			if l.recorded[i] == 0 || l.force && (l.named == nil || l.named[i]) {
				stale = 1
			}
			chances[i] = (1-none)*l.fresh.runs() + none*stale
		}
	}
	switch {
	case waiting > names: // tasks that the package lacks
		o.AtLeast = true
	case waiting < names: // some are proven, and no event says which
		for i := range chances {
			if s := &l.standing[i]; !l.ran[i] && !s.Held {
				chances[i] *= float64(max(waiting, 0)) / float64(names)
			}
		}
	}
	return chances
}

// Text is the estimate in words, as "about 2m05s"; "" if nothing is known that is worth a word.
func (e Estimate) Text() string {
	switch text := human.Seconds(e.Left); {
	case !e.Known, e.AtLeast && e.Left < time.Second:
		return ""
	case e.Left < time.Second:
		return "less than 1s"
	case e.AtLeast:
		return "at least " + text
	default:
		return "about " + text
	}
}

package remaining_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"e3/dataflow/graph"
	"e3/dataflow/remaining"
	"e3/internal/events"
	"e3/internal/format/moment"
	"e3/internal/format/record"
	"e3/internal/insight/runview"

	"e3/dataflow/graph/graphtest"
)

// A scene is a run of a test: what the record says, and what happens in truth.
type scene struct {
	name     string
	g        *graph.Graph
	limits   events.Limits
	recorded []time.Duration
	takes    []time.Duration // in truth
	hit      []bool          // has a result, unless something upstream runs
}

// moments of a task in a run that took place.
type moments struct{ begin, end time.Duration }

// play runs a scene: the ready task with the longest path before it comes first; those that do not fit are passed
// over. It shares no code with the scheduler or its forecast.
func (s *scene) play() (times []moments, ran []bool, whole time.Duration) {
	n := s.g.Len()
	times, ran = make([]moments, n), make([]bool, n)
	rank := make([]time.Duration, n)
	for _, i := range slices.Backward(s.g.Order()) {
		for _, d := range s.g.Dependents(i) {
			rank[i] = max(rank[i], rank[d])
		}
		rank[i] += s.recorded[i]
	}
	started, ended := make([]bool, n), make([]bool, n)
	cores, resources := float64(s.limits.Cores), s.limits.Resources["gpu"]
	for left := n; left > 0; {
		var ready []int
		for i := range n {
			open := started[i]
			for _, d := range s.g.Dependencies(int32(i)) {
				open = open || !ended[d]
			}
			if !open {
				ready = append(ready, i)
			}
		}
		slices.SortStableFunc(ready, func(a, b int) int { return int(rank[b] - rank[a]) })
		settled := false
		for _, i := range ready {
			cpu, gpu := s.demand(i)
			if cpu > cores+1e-9 || gpu > resources+1e-9 {
				continue
			}
			ran[i] = !s.hit[i]
			for _, d := range s.g.Dependencies(int32(i)) {
				ran[i] = ran[i] || ran[d]
			}
			started[i], times[i].begin, times[i].end = true, whole, whole
			if !ran[i] {
				ended[i], settled = true, true
				left--
				continue
			}
			times[i].end += s.takes[i]
			cores, resources = cores-cpu, resources-gpu
		}
		if settled {
			continue
		}
		next := -1
		for i := range n {
			if started[i] && !ended[i] && (next < 0 || times[i].end < times[next].end) {
				next = i
			}
		}
		cpu, gpu := s.demand(next)
		cores, resources, whole = cores+cpu, resources+gpu, times[next].end
		ended[next] = true
		left--
	}
	return times, ran, whole
}

func (s *scene) demand(i int) (cpu, gpu float64) {
	p := &s.g.Package.Tasks[i].Policy
	for _, a := range p.Resources {
		gpu = a.Value
	}
	return max(p.CPU, 1), gpu
}

// at is what the events of a run tell at some time.
func (s *scene) at(times []moments, ran []bool, now time.Duration) (tasks []runview.TaskReport, undecided int64) {
	for i, m := range times {
		t := runview.TaskReport{Task: s.g.Name(int32(i)), StartedAt: moment.At(noon.Add(m.begin))}
		switch {
		case m.begin > now || m.end == m.begin && m.begin == now:
			undecided++
			continue
		case !ran[i]:
			t.State = runview.TaskCached
		case m.end <= now:
			t.State, t.Duration = runview.TaskSuccess, moment.Millis(s.takes[i])
		default:
			t.State, t.Duration = runview.TaskRunning, moment.Millis(now-m.begin)
		}
		tasks = append(tasks, t)
	}
	return tasks, undecided
}

// estimate looks at a run at a part of its duration, and says what was left in truth.
func (s *scene) estimate(part float64) (got remaining.Estimate, truth time.Duration) {
	times, ran, whole := s.play()
	now := time.Duration(float64(whole) * part)
	tasks, undecided := s.at(times, ran, now)
	r := remaining.Of(s.g, &events.Data{Limits: &s.limits}, func(task string) time.Duration {
		i, _ := s.g.Find(task)
		return s.recorded[i]
	})
	return r.Look(seen(undecided, tasks...), noon.Add(now)).Estimate, whole - now
}

// shapes are the lines of packages, as graphtest.Flow reads them.
var shapes = []struct {
	name string
	flow func(r *rand.Rand) []string
}{
	{"chain", func(r *rand.Rand) (lines []string) {
		for i := range 12 + r.IntN(30) {
			lines = append(lines, fmt.Sprintf("t%d: %s", i, before("t%d", i, 1)))
		}
		return lines
	}},
	{"wide", func(r *rand.Rand) (lines []string) {
		for i := range 40 + r.IntN(400) {
			lines = append(lines, fmt.Sprintf("fit[%d]:", i))
		}
		return lines
	}},
	{"diamonds", func(r *rand.Rand) (lines []string) {
		for k := range 4 + r.IntN(6) {
			all, from := "", ""
			if k > 0 {
				from = fmt.Sprintf("join%d", k-1)
			}
			for i := range 2 + r.IntN(12) {
				lines = append(lines, fmt.Sprintf("part%d[%d]: %s", k, i, from))
				all += fmt.Sprintf(" part%d[%d]", k, i)
			}
			lines = append(lines, fmt.Sprintf("join%d:%s", k, all))
		}
		return lines
	}},
	{"stages", func(r *rand.Rand) (lines []string) {
		n, all := 20+r.IntN(100), ""
		for i := range n {
			lines = append(lines, fmt.Sprintf("clean[%d]:", i), fmt.Sprintf("fit[%d]: clean[%d]", i, i), fmt.Sprintf("score[%d]: fit[%d]", i, i))
			all += fmt.Sprintf(" score[%d]", i)
		}
		return append(lines, "report:"+all)
	}},
	{"any", func(r *rand.Rand) (lines []string) {
		for i := range 30 + r.IntN(120) {
			line := fmt.Sprintf("t%d:", i)
			for range min(i, r.IntN(4)) {
				if d := fmt.Sprintf(" t%d", max(i-1-r.IntN(20), 0)); !slices.Contains([]string{line}, d) && i > 0 {
					line += d
					break
				}
			}
			lines = append(lines, line)
		}
		return lines
	}},
}

func before(format string, i, by int) string {
	if i < by {
		return ""
	}
	return fmt.Sprintf(format, i-by)
}

// fates are what befalls the tasks of a shape.
var fates = []struct {
	name  string
	spoil func(s *scene, r *rand.Rand)
}{
	{"as recorded", func(*scene, *rand.Rand) {}},
	{"uneven", func(s *scene, r *rand.Rand) { s.vary(r, 0.5) }},
	{"skewed", func(s *scene, r *rand.Rand) {
		for i := range s.recorded {
			s.recorded[i] = time.Duration(float64(s.recorded[i]) * math.Exp(1.3*r.NormFloat64()))
		}
		s.vary(r, 0.3)
	}},
	{"another machine", func(s *scene, r *rand.Rand) {
		by := 0.55 + 1.25*r.Float64()
		s.vary(r, 0.2)
		for i := range s.takes {
			s.takes[i] = time.Duration(by * float64(s.takes[i]))
		}
	}},
	{"half have results", func(s *scene, r *rand.Rand) {
		s.vary(r, 0.3)
		for i := range s.hit {
			s.hit[i] = r.IntN(2) == 0
		}
	}},
	{"nearly all have results", func(s *scene, r *rand.Rand) {
		s.vary(r, 0.3)
		for i := range s.hit {
			s.hit[i] = r.IntN(10) > 0
		}
	}},
	{"resources", func(s *scene, r *rand.Rand) {
		s.vary(r, 0.3)
		s.limits.Resources = map[string]float64{"gpu": 2}
		for i := range s.g.Package.Tasks {
			switch p := &s.g.Package.Tasks[i].Policy; r.IntN(4) {
			case 0:
				p.Resources = []record.Amount{{Name: "gpu", Value: 1}}
			case 1:
				p.CPU = 2
			}
		}
	}},
	{"some are new", func(s *scene, r *rand.Rand) {
		s.vary(r, 0.3)
		for i := range s.recorded {
			if r.IntN(5) == 0 && len(s.g.Dependencies(int32(i)))+len(s.g.Dependents(int32(i))) < 4 {
				s.recorded[i] = 0
			}
		}
	}},
}

// vary makes the commands take other times than on record.
func (s *scene) vary(r *rand.Rand, by float64) {
	for i := range s.takes {
		s.takes[i] = max(time.Duration(float64(s.recorded[i])*math.Exp(by*r.NormFloat64())), time.Millisecond)
	}
}

func newScene(t testing.TB, shape, fate int, seed uint64) *scene {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, uint64(100*shape+fate)))
	g, err := graph.New(graphtest.Flow(shapes[shape].flow(r)...))
	if err != nil {
		t.Fatal(err)
	}
	s := &scene{
		name: shapes[shape].name + ", " + fates[fate].name, g: g, limits: events.Limits{Cores: []int{2, 4, 8, 16}[r.IntN(4)]},
		recorded: make([]time.Duration, g.Len()), takes: make([]time.Duration, g.Len()), hit: make([]bool, g.Len()),
	}
	usual := map[string]time.Duration{}
	for i := range s.recorded {
		f := runview.FamilyOf(g.Name(int32(i)))
		if usual[f] == 0 {
			usual[f] = time.Duration(1000+r.IntN(60_000)) * time.Millisecond
		}
		s.recorded[i] = time.Duration(float64(usual[f]) * (0.7 + 0.6*r.Float64()))
	}
	copy(s.takes, s.recorded)
	fates[fate].spoil(s, r)
	return s
}

// With recorded durations, after a tenth of a run, the estimate is within a factor of two of the truth in nine runs of
// ten: over all shapes, for each fate of their tasks, and for each shape.
func TestEstimates(t *testing.T) {
	const seeds, part = 8, 0.1
	good, all := map[string]int{}, map[string]int{}
	for shape := range shapes {
		for fate := range fates {
			for seed := range uint64(seeds) {
				s := newScene(t, shape, fate, seed)
				got, truth := s.estimate(part)
				ratio := float64(got.Left) / float64(truth)
				fits := got.Known && ratio >= 0.5 && ratio <= 2
				for _, name := range []string{"all", shapes[shape].name, fates[fate].name} {
					if all[name]++; fits {
						good[name]++
					}
				}
				if !fits {
					t.Logf("seed %d, %s: %d tasks, %d cores: got %v (%s), %v in truth", seed, s.name, s.g.Len(), s.limits.Cores, got.Left, got.Text(), truth)
				}
			}
		}
	}
	for name, n := range all {
		t.Logf("%s: %d of %d within a factor of two", name, good[name], n)
		if 10*good[name] < 9*n {
			t.Errorf("%s: %d of %d within a factor of two, want nine of ten", name, good[name], n)
		}
	}
}

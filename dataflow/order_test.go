package dataflow_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"e3/dataflow"
	"e3/internal/format/record"
	"e3/objectstore"
)

// order is the order in which tasks are taken when one runs at a time. What is launched
// together starts in any order.
func order(t *testing.T, pkg *record.Package, expected map[string]time.Duration) string {
	t.Helper()
	var history func(string) time.Duration
	if expected != nil {
		history = func(task string) time.Duration { return expected[task] }
	}
	return strings.Join(dataflow.Order(graphOf(t, pkg), history), " ")
}

func TestOrderDeclared(t *testing.T) {
	if got, want := order(t, flow("c", "a", "b"), nil), "c a b"; got != want {
		t.Errorf("order is %s, want %s", got, want)
	}
}

// What leads to the longest rest of the graph goes first.
func TestOrderCriticalPath(t *testing.T) {
	pkg := flow("short", "long", "end: long", "middle", "a", "b: a", "c: b")
	for _, test := range []struct {
		name     string
		expected map[string]time.Duration
		want     []string // the first of them
	}{
		{"all alike", nil, []string{"a", "long", "b", "short"}},
		{"history", map[string]time.Duration{"long": time.Minute, "end": time.Second, "short": time.Second, "middle": 30 * time.Second, "a": time.Second, "b": time.Second, "c": time.Second},
			[]string{"long", "middle", "a"}},
		{"a long end", map[string]time.Duration{"long": time.Second, "end": time.Hour, "short": time.Minute, "middle": time.Second, "a": time.Second, "b": time.Second, "c": time.Second},
			[]string{"long", "end", "short"}},
		// A task without history counts as the average: 20 s here, so that a, b, c are 60 s.
		{"part of a history", map[string]time.Duration{"short": 30 * time.Second, "middle": 10 * time.Second}, []string{"a", "long"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := strings.Fields(order(t, pkg, test.expected))
			if !slices.Equal(got[:len(test.want)], test.want) {
				t.Errorf("order is %v, want first %v", got, test.want)
			}
		})
	}
}

func TestOrderPriority(t *testing.T) {
	pkg := flow("a", "b: a", "c: b", "late", "early")
	policy(pkg, "early", record.Policy{Priority: 5})
	policy(pkg, "late", record.Policy{Priority: -5})
	policy(pkg, "c", record.Policy{Priority: 9}) // it cannot pull what it reads
	if got, want := order(t, pkg, nil), "early a b c late"; got != want {
		t.Errorf("order is %s, want %s", got, want)
	}
}

// Whatever tasks declare: those that run together never take more than there is, unless one
// alone asks for more.
func TestLimits(t *testing.T) {
	type limit struct{ cpu, memory, gpu, licence float64 }
	add := func(l *limit, p *record.Policy) {
		cpu := p.CPU
		if cpu == 0 {
			cpu = 1
		}
		l.cpu += cpu
		l.memory += float64(p.Memory)
		for _, a := range p.Resources {
			switch a.Name {
			case "gpu":
				l.gpu += a.Value
			case "licence":
				l.licence += a.Value
			}
		}
	}
	for _, test := range []struct {
		name     string
		policies []record.Policy
		options  func(*dataflow.Options)
		most     limit
		alone    string        // this task runs beside no other
		took     time.Duration // all of them, one second each
	}{
		{"cores", make([]record.Policy, 7), nil, limit{cpu: 3}, "", 3 * time.Second},
		{"several cores", []record.Policy{{CPU: 2}, {CPU: 1}, {CPU: 2}, {CPU: 1}}, nil, limit{cpu: 3}, "", 0},
		{"fractions", []record.Policy{{CPU: 0.5}, {CPU: 0.5}, {CPU: 0.5}, {CPU: 0.5}, {CPU: 0.5}, {CPU: 0.5}}, nil, limit{cpu: 3}, "", time.Second},
		{"more cores than there are", []record.Policy{{}, {CPU: 64}, {}}, nil, limit{cpu: 64}, "t1", 0},
		{"memory", []record.Policy{{Memory: 6}, {Memory: 6}, {Memory: 4}}, func(o *dataflow.Options) { o.Memory = 10 }, limit{memory: 10}, "", 2 * time.Second},
		{"more memory than there is", []record.Policy{{Memory: 1}, {Memory: 99}, {Memory: 1}}, func(o *dataflow.Options) { o.Memory = 10 }, limit{memory: 99}, "t1", 2 * time.Second},
		{"memory without a limit", []record.Policy{{Memory: 1 << 40}, {Memory: 1 << 40}}, nil, limit{memory: 1 << 41}, "", time.Second},
		{"resource", []record.Policy{gpus(1), gpus(1), gpus(1)}, func(o *dataflow.Options) { o.Capacities = map[string]float64{"gpu": 2} }, limit{gpu: 2}, "", 2 * time.Second},
		{"resource without a capacity", []record.Policy{gpus(1), gpus(3), gpus(1)}, nil, limit{gpu: 3}, "", 2 * time.Second},
		{"more of a resource than there is", []record.Policy{gpus(1), gpus(8), gpus(1)}, func(o *dataflow.Options) { o.Capacities = map[string]float64{"gpu": 2} }, limit{gpu: 8}, "t1", 2 * time.Second},
		{"resource of which there is none", []record.Policy{gpus(1), gpus(1)}, func(o *dataflow.Options) { o.Capacities = map[string]float64{"gpu": 0} }, limit{gpu: 2}, "", time.Second},
		{"two resources", []record.Policy{{Resources: []record.Amount{{Name: "gpu", Value: 1}, {Name: "licence", Value: 1}}}, gpus(1), {Resources: []record.Amount{{Name: "licence", Value: 1}}}},
			nil, limit{gpu: 1, licence: 1}, "", 2 * time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			var lines []string
			for i := range test.policies {
				lines = append(lines, fmt.Sprint("t", i))
			}
			pkg := flow(lines...)
			for i, p := range test.policies {
				policy(pkg, lines[i], p)
			}
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				w.behave = func(string, int64) behaviour { return behaviour{takes: time.Second} }
				w.watch = func(live map[string]*record.Policy) {
					var now limit
					for _, p := range live {
						add(&now, p)
					}
					if m := test.most; m.cpu > 0 && now.cpu > m.cpu || m.memory > 0 && now.memory > m.memory || m.gpu > 0 && now.gpu > m.gpu || m.licence > 0 && now.licence > m.licence {
						t.Errorf("%d at once take %+v, more than %+v", len(live), now, m)
					}
					if live[test.alone] != nil && len(live) > 1 {
						t.Errorf("%s runs beside %d others", test.alone, len(live)-1)
					}
				}
				began := time.Now()
				out := run(t.Context(), t, graphOf(t, pkg), w, func(o *dataflow.Options) {
					o.Concurrency = 3
					if test.options != nil {
						test.options(o)
					}
				})
				if out.Summary.Completed != int64(len(test.policies)) {
					t.Errorf("summary is %+v", out.Summary)
				}
				if took := time.Since(began); test.took > 0 && took.Round(time.Second) != test.took {
					t.Errorf("all took %v, want %v", took, test.took)
				}
			})
		})
	}
}

func gpus(n float64) record.Policy {
	return record.Policy{Resources: []record.Amount{{Name: "gpu", Value: n}}}
}

// Many small ones that are ready all the time do not keep a large one from its turn.
func TestLargeTaskGetsItsTurn(t *testing.T) {
	lines := []string{"first", "large: first"}
	for i := range 200 {
		lines = append(lines, fmt.Sprint("small", i))
	}
	pkg := flow(lines...)
	policy(pkg, "first", record.Policy{Priority: 2})
	policy(pkg, "large", record.Policy{Priority: 1, CPU: 4})
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.behave = func(task string, _ int64) behaviour { // hardly ever do two end together
			return behaviour{takes: time.Second + time.Duration(objectstore.Sum([]byte(task))[0])*time.Millisecond}
		}
		run(t.Context(), t, graphOf(t, pkg), w, func(o *dataflow.Options) { o.Concurrency = 4 })
		for i, s := range w.ran {
			if s.task == "large" {
				if i > 60 {
					t.Errorf("the large task came after %d others", i)
				}
				return
			}
		}
		t.Error("the large task did not run")
	})
}

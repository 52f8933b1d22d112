package explain_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"e3/executions"
	"e3/internal/insight/explain"
	"e3/workspace"
)

// keySetting reads a number from an environment variable.
func keySetting(t *testing.T, name string, value int64) int64 {
	t.Helper()
	if text := os.Getenv(name); text != "" {
		var err error
		if value, err = strconv.ParseInt(text, 10, 64); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	return value
}

// The key holds exactly what decides the result. Of a random project one thing is changed. If it decides a result, the
// keys of the affected tasks change, those of other tasks do not, and the explanation names this change, both before
// and after the tasks run. If it decides none, nothing runs. After the change is undone, every task hits. Each change
// is tried in turn; E3_KEY_CHECKS is the number of trials, and E3_KEY_SEED the first one.
func TestKeys(t *testing.T) {
	all := slices.Concat(deciding, neutrals)
	checks := int64(len(all))
	if testing.Short() {
		checks /= 4
	}
	checks = keySetting(t, "E3_KEY_CHECKS", checks)
	seed := keySetting(t, "E3_KEY_SEED", 0)
	done := map[string]int{}
	for k := range checks {
		at := seed + k
		c := all[int(at)%len(all)]
		t.Run(fmt.Sprintf("%d %s", at, c.name), func(t *testing.T) {
			t.Parallel()
			checkChange(t, c, uint64(at))
		})
		done[c.name]++
	}
	t.Logf("%d checks of %d changes, from E3_KEY_SEED=%d on", checks, len(done), seed)
}

// A keyCheck is one change of one project.
type keyCheck struct {
	*house
	env   surroundings
	c     change
	seed  uint64
	names [][]string // of the items of each task, as they are now
}

// surroundings is the environment in which e3 is started.
type surroundings map[string]string

func (s surroundings) lookup(name string) (string, bool) {
	v, ok := s[name]
	return v, ok
}

func checkChange(t *testing.T, c change, seed uint64) {
	k := &keyCheck{c: c, seed: seed, env: surroundings{}}
	r := rand.New(rand.NewPCG(seed, 1))
	var before, after *declaration
	var whys map[int]reason
	for tries := 0; ; tries++ {
		before = drawDeclaration(r)
		after = before.clone()
		var ok bool
		if whys, ok = c.do(after, r); ok {
			break
		}
		if tries == 1000 {
			t.Fatalf("no project has what %q changes", c.name)
		}
	}
	k.house = newHouse(t, t.TempDir())
	defer k.Close()
	k.Workspaces.Getenv = k.env.lookup
	environments := t.TempDir()
	k.executor = executions.NewExecutor(k.Executions, k.Objects, k.Records, maker{}, executions.Options{
		Worker: "ann@lab", Version: "test", Path: os.Getenv("PATH"), Getenv: k.env.lookup, Scratch: k.Scratch, Now: k.Workspaces.Now,
		Environments: executions.EnvironmentOptions{Folder: func() (string, error) { return environments, nil }},
	})
	k.put(before, nil)
	k.deploy("w")
	k.run(-1)
	keys := k.keys()
	k.put(after, before)
	k.foreseen(after, whys)
	k.ran(keys, whys)
	k.put(before, after)
	k.run(0)
	for i, was := range keys {
		if now := k.keys()[i]; !slices.Equal(was, now) {
			k.faultf("with the change taken back task %d has the keys %v, want %v", i, now, was)
		}
	}
}

func (k *keyCheck) faultf(format string, args ...any) {
	k.Helper()
	yaml, _ := os.ReadFile(k.dir + "/e3.yaml")
	k.Errorf("%s: %s\nrepeat it with: E3_KEY_SEED=%d E3_KEY_CHECKS=1\n%s", k.c.name, fmt.Sprintf(format, args...), k.seed, yaml)
}

// put writes the declared project and environment.
func (k *keyCheck) put(d, was *declaration) {
	k.Helper()
	d.put(k.house, was)
	clear(k.env)
	for name, value := range d.env {
		k.env[name] = value
	}
	k.names = nil
	for i := range d.tasks {
		k.names = append(k.names, d.tasks[i].names())
	}
}

// run starts the workspace and expects this number of executed tasks; -1: any number.
func (k *keyCheck) run(want int64) {
	k.Helper()
	s := k.start("w").Run.Summary
	if got := s.Completed - s.Cached; s.Completed != s.Total || want >= 0 && got != want {
		k.faultf("%d of %d tasks are completed, %d executed; want %d", s.Completed, s.Total, got, want)
	}
}

// keys returns the keys of the tasks, which must all have results.
func (k *keyCheck) keys() [][]executions.Key {
	k.Helper()
	p, err := k.Workspaces.Planner.Plan(k.Context(), "w", workspace.PlanOptions{Concurrency: 1})
	k.must(err)
	all := make([][]executions.Key, len(k.names))
	for i, names := range k.names {
		for _, name := range names {
			at, ok := p.Graph.Find(name)
			if !ok || p.Tasks[at].ExecutionID == "" {
				k.Fatalf("task %s is not answered", name)
			}
			e, err := k.Executions.Locate(k.Context(), p.Tasks[at].ExecutionID)
			k.must(err)
			all[i] = append(all[i], e.Key)
		}
	}
	return all
}

// foreseen checks the explanations before anything has run: changed tasks would run for the expected reason, and
// without changes every task hits.
func (k *keyCheck) foreseen(d *declaration, whys map[int]reason) {
	k.Helper()
	if len(d.tasks) > len(k.names) || d.tasks[len(d.tasks)-1].name == "last" {
		return // a new task runs
	}
	for i, names := range k.names {
		why, changed := whys[i]
		if d.below(i, whys) {
			continue // it waits for what is changed
		}
		for _, name := range names {
			w := k.why("w." + name)
			switch {
			case changed && w.State == explain.WouldRun:
				k.check(w, why)
			case changed || w.State != explain.Current:
				k.faultf("%s is said to be %s: %s", name, w.State, w.Sentence)
			}
		}
	}
}

// below reports whether a task reads, directly or not, the output of a changed task.
func (d *declaration) below(i int, whys map[int]reason) bool {
	return slices.ContainsFunc(d.tasks[i].in, func(w declaredWire) bool {
		head, _, _ := strings.Cut(w.source, ".")
		p := slices.IndexFunc(d.tasks, func(t declaredTask) bool { return t.name == head })
		if p < 0 {
			return false
		}
		_, changed := whys[p]
		return changed || d.below(p, whys)
	})
}

// ran starts the changed project, and checks which keys have changed and how these are explained.
func (k *keyCheck) ran(keys [][]executions.Key, whys map[int]reason) {
	k.Helper()
	k.run(-1)
	now := k.keys()
	for i, was := range keys {
		why, changed := whys[i]
		for item := range was {
			name := k.names[i][item]
			if (was[item] != now[i][item]) != changed {
				k.faultf("the key of %s was %v and is %v, want another: %v", name, was[item], now[i][item], changed)
			}
			if changed {
				k.check(k.why("w."+name), why)
			}
		}
	}
}

// check compares the explanation of a task with the expected reason.
func (k *keyCheck) check(w *explain.Explanation, want reason) {
	k.Helper()
	got := w.Root
	right := got.Kind == want.kind && got.Task == w.Task && (want.subject == "" || got.Subject == want.subject) &&
		(want.path == "" || slices.Contains(strings.Split(want.path, "|"), got.Path)) && strings.Contains(got.Text, want.says) &&
		(want.more || len(w.Roots) == 1)
	if !right {
		k.faultf("the reason of %s is %+v, of %d roots, want %+v", w.Task, got, len(w.Roots), want)
	}
}

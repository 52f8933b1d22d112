package gc_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"e3/dataflow"
	"e3/executions"
	"e3/gc"
	"e3/internal/format/record"
	"e3/internal/repo"
	"e3/objectstore"
	"e3/refstore"
	"e3/workspace"
)

func (h *house) curator() *executions.Curator {
	return executions.NewCurator(h.Executions, h.Records, time.Now)
}

func (h *house) prune(o gc.PruneOptions) *gc.Pruned {
	h.Helper()
	o.By = "me@here"
	if o.Now.IsZero() {
		o.Now = time.Now()
	}
	pruned, err := gc.Prune(h.Context(), h.pruneStores(), o)
	h.must(err)
	return pruned
}

// executed returns the recorded executions by id.
func (h *house) executed() map[string]*executions.Execution {
	h.Helper()
	all := map[string]*executions.Execution{}
	for e, err := range h.Executions.All(h.Context()) {
		h.must(err)
		all[e.ExecutionID] = e
	}
	return all
}

// standings returns the freshness of every dataset of every workspace: whether the next start would check it again.
func (h *house) standings() map[string]dataflow.Freshness {
	h.Helper()
	names, err := h.Workspaces.List(h.Context())
	h.must(err)
	all := map[string]dataflow.Freshness{}
	for _, ws := range names {
		st, err := h.Workspaces.Planner.Status(h.Context(), ws)
		h.must(err)
		for _, row := range st.Datasets {
			all[ws+"."+row.Name] = row.Freshness
		}
	}
	return all
}

// needed returns the executions that the current and the proven runs of all workspaces name, and the pinned ones.
func (h *house) needed() map[string]bool {
	h.Helper()
	names, err := h.Workspaces.List(h.Context())
	h.must(err)
	needed := map[string]bool{}
	for _, ws := range names {
		runs, err := h.Workspaces.Runs.InUse(h.Context(), ws)
		if errors.Is(err, workspace.ErrNotFound) {
			continue
		}
		h.must(err)
		for _, run := range runs {
			for t := range run.Tasks.All() {
				needed[t.ExecutionID] = true
			}
		}
	}
	for pin, err := range h.Executions.Pins(h.Context()) {
		h.must(err)
		needed[pin.ExecutionID] = true
	}
	return needed
}

// TestPruneAgainstModel prunes random repositories by random rules: needed executions stay, those that a rule names are
// removed and leave tombstones.
func TestPruneAgainstModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		dir, err := os.MkdirTemp(t.TempDir(), "house")
		if err != nil {
			rt.Fatal(err)
		}
		defer os.RemoveAll(dir)
		h := newHouse(rt, dir)
		defer func() { h.Close() }()
		word := func(label string) string { return rapid.SampledFrom([]string{"x", "y", "z"}).Draw(rt, label) }
		ws := func() string { return rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "workspace") }
		h.project("x")
		deploy := func() {
			lines := []string{inputs, "tasks:"}
			for i := range rapid.IntRange(1, 3).Draw(rt, "tasks") {
				run := rapid.SampledFrom([]string{"make o%d ", "fail "}).Draw(rt, "command") + word("output")
				run = strings.Replace(run, "%d", fmt.Sprint(i), 1)
				in := "file"
				if i > 0 && rapid.Bool().Draw(rt, "chain") {
					in = "t0"
				}
				lines = append(lines, fmt.Sprintf("  t%d: {in: [%s], out: o%d, run: %s}", i, in, i, run))
			}
			h.deploy(ws(), lines...)
		}
		deploy()
		actions := map[string]func(*rapid.T){
			"edit":   func(*rapid.T) { h.project(word("content")) },
			"deploy": func(*rapid.T) { deploy() },
			"start": func(*rapid.T) {
				name := ws()
				if s, err := h.Workspaces.State(h.Context(), name); err == nil && s.Deployed {
					h.start(name)
				}
			},
			"build": func(*rapid.T) {
				built, err := h.Workspaces.Deployer.Build(h.Context(), filepath.Join(h.dir, "e3.yaml"), nil)
				h.must(err)
				err = h.Workspaces.Packages.Add(h.Context(), workspace.PackageRef{Name: "p", Version: word("version"), Hash: built.Hash})
				if !errors.Is(err, workspace.ErrExists) {
					h.must(err)
				}
			},
			"pin": func(rt *rapid.T) {
				if e := draw(rt, h.executed()); e != nil {
					_, err := h.curator().Pin(h.Context(), e.Key, e.ExecutionID, "me", "")
					h.must(err)
				}
			},
			"reject": func(rt *rapid.T) {
				if e := draw(rt, h.executed()); e != nil && e.State == record.Success {
					_, err := h.curator().Reject(h.Context(), e.Key, e.ExecutionID, &record.Rejection{Rejected: true, At: time.Now()})
					h.must(err)
				}
			},
			"prune": func(rt *rapid.T) {
				before, standings, needed := h.executed(), h.standings(), h.needed()
				o := gc.PruneOptions{Now: time.Now().Add(time.Hour)}
				o.KeepLast = rapid.Int64Range(0, 2).Draw(rt, "keep last")
				o.MaxSize = rapid.Int64Range(0, 4).Draw(rt, "max size")
				if e := draw(rt, before); e != nil && rapid.Bool().Draw(rt, "by age") || o.Rules == (gc.Rules{}) {
					o.OlderThan = time.Hour
					if e != nil {
						made, err := executions.ParseID(e.ExecutionID)
						h.must(err)
						o.Now = made.Add(time.Hour) // prune what is older than this one
					}
				}
				o.DryRun = true
				dry := h.prune(o)
				if diff := cmp.Diff(slices.Sorted(maps.Keys(before)), slices.Sorted(maps.Keys(h.executed()))); diff != "" {
					rt.Fatalf("a dry run has changed what is on record:\n%s", diff)
				}
				o.DryRun = false
				pruned := h.prune(o)
				dry.DryRun = false // all else is the same
				if diff := cmp.Diff(dry, pruned); diff != "" {
					rt.Fatalf("the dry run has said something else (-dry +real):\n%s", diff)
				}
				after := h.executed()
				if got := int64(len(before) - len(after)); got != pruned.Executions || pruned.Spared != 0 {
					rt.Fatalf("%d executions went, the report says %+v", got, pruned)
				}
				if diff := cmp.Diff(standings, h.standings()); diff != "" {
					rt.Fatalf("a start would do something else (-before +after):\n%s", diff)
				}
				for id, e := range before {
					if after[id] != nil {
						made, err := executions.ParseID(id)
						h.must(err)
						if o.OlderThan > 0 && made.Before(o.Now.Add(-o.OlderThan)) && !needed[id] && !h.hit(id) {
							rt.Fatalf("execution %s is too old and not needed, and is still there", id)
						}
						continue
					}
					if needed[id] {
						rt.Fatalf("execution %s is needed and gone", id)
					}
					var gone *executions.PrunedError
					if _, err := h.Executions.FindTask(h.Context(), e.Key.Task, id); !errors.As(err, &gone) || gone.By != "me@here" || gone.OutputHash != e.OutputHash {
						rt.Fatalf("execution %s: got %v, want that it was pruned", id, err)
					}
				}
				if rapid.IntRange(0, 3).Draw(rt, "collect") == 0 {
					h.collect(gc.Options{})
					h.check()
				}
			},
		}
		// Only a few steps each, since every write is synced, which is slow.
		for range rapid.IntRange(1, 6).Draw(rt, "steps") {
			for _, name := range []string{"edit", "deploy", "start", "build", "pin", "reject"} {
				if rapid.IntRange(0, 2).Draw(rt, name) == 0 {
					actions[name](rt)
				}
			}
			actions["start"](rt)
		}
		actions["prune"](rt)
	})
}

// hit reports whether an execution would be a hit for a start of a workspace or of a package.
func (h *house) hit(id string) bool {
	h.Helper()
	found := make(chan bool, 1)
	visit := func(_ string, _ executions.Key, hit string) error {
		if hit == id {
			select {
			case found <- true:
			default:
			}
		}
		return nil
	}
	names, err := h.Workspaces.List(h.Context())
	h.must(err)
	for _, ws := range names {
		h.must(h.Workspaces.Planner.Hits(h.Context(), ws, visit))
	}
	packages, err := h.Workspaces.Packages.List(h.Context())
	h.must(err)
	for _, p := range packages {
		h.must(h.Workspaces.Planner.PackageHits(h.Context(), p, visit))
	}
	return len(found) > 0
}

func draw(rt *rapid.T, all map[string]*executions.Execution) *executions.Execution {
	if len(all) == 0 {
		return nil
	}
	return all[rapid.SampledFrom(slices.Sorted(maps.Keys(all))).Draw(rt, "execution")]
}

// series makes a workspace with n executions of one task, of which only the last is needed.
func (h *house) series(n int) {
	h.Helper()
	for i := range n {
		h.project(fmt.Sprint("version ", i))
		h.deploy("w", inputs, `tasks:`, fmt.Sprintf(`  t: {in: [file], out: o, run: make o %s}`, strings.Repeat(string(rune('a'+i)), 100)))
		h.start("w")
	}
}

func TestPruneReport(t *testing.T) {
	h := newHouse(t, t.TempDir())
	h.series(5)
	all := slices.Sorted(maps.Keys(h.executed()))
	_, err := h.curator().Pin(t.Context(), h.executed()[all[1]].Key, all[1], "me", "for the paper")
	h.must(err)
	// The task object and the objects that a start needs are small and do not count; each output has 100 bytes.
	pruned := h.prune(gc.PruneOptions{Rules: gc.Rules{MaxSize: 250}})
	if pruned.Total != 5 || pruned.Executions != 1 || *pruned.Held != 200 || pruned.Objects != 1 || pruned.Bytes != 100 {
		t.Errorf("got %+v, want one of 5 pruned, 200 bytes held, 100 free", pruned)
	}
	if want := []gc.PrunedTask{{Task: "w.t", N: 1}}; !slices.Equal(pruned.Tasks, want) {
		t.Errorf("tasks: got %v, want %v", pruned.Tasks, want)
	}
	if p := pruned.Protected; p.Run != 1 || p.Pinned != 1 || p.Start != 0 {
		t.Errorf("protected: got %v, want one by a run and one by a pin", p)
	}
	if got, want := slices.Sorted(maps.Keys(h.executed())), all[1:]; !slices.Equal(got, want) {
		t.Errorf("left: got %q, want %q", got, want)
	}
	before := len(h.objects())
	if report := h.collect(gc.Options{}); report.Collected.Bytes < 100 || len(h.objects()) >= before {
		t.Errorf("collected: got %+v, want the output of the pruned", report.Collected)
	}
	h.check()
}

// The age of an imported execution counts from its import.
func TestPruneCountsFromTheImport(t *testing.T) {
	h := newHouse(t, t.TempDir())
	now := time.Now()
	for i, imported := range []time.Duration{time.Hour, 100 * time.Hour} {
		in := &executions.Incoming{
			Key: executions.NewKey(objectstore.Sum([]byte{byte(i)}), nil),
			Status: &record.Status{
				State: record.Failed, ExecutionID: []string{"01890a5d-ac96-774b-bcce-b302099a8057", "01890a5d-ac96-774b-bcce-b302099a8058"}[i],
				StartedAt: now, CompletedAt: now, ExitCode: 1,
			},
			Provenance: &record.Provenance{Steps: []record.Step{{By: "them", ImportedBy: "me", ImportedAt: now.Add(-imported)}}},
		}
		end, err := h.curator().Begin(t.Context())
		h.must(err)
		_, err = h.curator().Import(t.Context(), in)
		h.must(err)
		end()
	}
	h.prune(gc.PruneOptions{Rules: gc.Rules{OlderThan: 10 * time.Hour}, Now: now})
	if got, want := slices.Sorted(maps.Keys(h.executed())), []string{"01890a5d-ac96-774b-bcce-b302099a8057"}; !slices.Equal(got, want) {
		t.Errorf("left: got %q, want %q", got, want)
	}
}

// If an import replaces a failure by a success after the rules were applied, the prune spares it.
func TestPruneBesideAnImport(t *testing.T) {
	h := newHouse(t, t.TempDir())
	now := time.Now()
	in := &executions.Incoming{
		Key: executions.NewKey(objectstore.Sum([]byte("task")), nil),
		Status: &record.Status{
			State: record.Failed, ExecutionID: "01890a5d-ac96-774b-bcce-b302099a8057", StartedAt: now, CompletedAt: now, ExitCode: 1,
		},
		Provenance: &record.Provenance{Steps: []record.Step{{By: "them", ImportedBy: "me", ImportedAt: now.Add(-100 * time.Hour)}}},
	}
	take := func(want executions.Outcome) {
		t.Helper()
		end, err := h.curator().Begin(t.Context())
		h.must(err)
		defer end()
		got, err := h.curator().Import(t.Context(), in)
		h.must(err)
		if got != want {
			t.Fatalf("the import: %v, want %v", got, want)
		}
	}
	take(executions.Added)
	measuring := func() {
		in.Status.State, in.Status.ExitCode, in.Status.OutputHash = record.Success, 0, objectstore.Sum([]byte("out")).String()
		in.Provenance.Steps[0].ImportedAt = now
		take(executions.Overwritten)
	}
	stores := h.pruneStores()
	stores.Records = &relisted{Records: h.Records, partition: "PIN", again: measuring}
	pruned, err := gc.Prune(t.Context(), stores, gc.PruneOptions{Rules: gc.Rules{OlderThan: 10 * time.Hour}, Now: now})
	h.must(err)
	if len(h.executed()) != 1 || pruned.Executions != 0 || pruned.Spared != 1 {
		t.Errorf("got %+v with %d executions left, want that it is spared", pruned, len(h.executed()))
	}
}

// relisted calls a function before a partition is listed for the second time.
type relisted struct {
	executions.Records
	partition string
	again     func()
	lists     int
}

func (r *relisted) List(ctx context.Context, q refstore.Query) iter.Seq2[refstore.Record, error] {
	if q.Partition == r.partition {
		if r.lists++; r.lists == 2 {
			r.again()
		}
	}
	return r.Records.List(ctx, q)
}

func (h *house) pruneStores() gc.PruneStores {
	return gc.PruneStores{Records: h.Records, Objects: h.Objects, Workspaces: h.Workspaces, Curator: h.curator(), Jobs: h.Queue()}
}

// A start that had found an execution before it was pruned can still publish its output.
func TestPruneBesideAStart(t *testing.T) {
	h := newHouse(t, t.TempDir())
	h.series(3)
	oldest := slices.Min(slices.Collect(maps.Keys(h.executed())))
	output := h.executed()[oldest].OutputHash
	hash, err := objectstore.ParseHash(output)
	h.must(err)
	h.again()
	worker, err := repo.Open(context.Background(), h.root, repo.Options{Version: "test"}) // the start
	h.must(err)
	defer worker.Close()
	_, err = worker.Records.SessionBegan(t.Context())
	h.must(err)
	if pruned := h.prune(gc.PruneOptions{Rules: gc.Rules{KeepLast: 1}}); pruned.Executions != 2 {
		t.Fatalf("got %+v, want 2 pruned", pruned)
	}
	h.collect(gc.Options{})
	if !h.has(hash) {
		t.Error("the output of what was pruned is gone while a start may be about to publish it")
	}
	h.must(worker.Close())
	h.collect(gc.Options{})
	if h.has(hash) {
		t.Error("the output of what was pruned is there although nothing needs it")
	}
}

// If the needed executions are unknown, nothing is removed.
func TestPruneRefusesToGuess(t *testing.T) {
	for name, damage := range map[string]func(*house, *workspace.State){
		"package":   func(h *house, s *workspace.State) { h.remove(s.PackageHash) },
		"tree":      func(h *house, s *workspace.State) { h.remove(s.RootHash) },
		"run":       func(h *house, s *workspace.State) { h.tear(filepath.Join("dataflows", "w", s.CurrentRunID+".beast2")) },
		"workspace": func(h *house, _ *workspace.State) { h.tear(filepath.Join("workspaces", "w.beast2")) },
	} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t, t.TempDir())
			h.series(2)
			state, err := h.Workspaces.State(t.Context(), "w")
			h.must(err)
			damage(h, state)
			_, err = gc.Prune(t.Context(), h.pruneStores(),
				gc.PruneOptions{Rules: gc.Rules{KeepLast: 1}, Now: time.Now()})
			if n := len(h.executed()); err == nil || n != 2 {
				t.Errorf("got %v with %d executions left, want an error and 2", err, n)
			}
		})
	}
}

func (h *house) tear(name string) {
	h.Helper()
	h.must(os.WriteFile(filepath.Join(h.root, name), []byte("torn"), 0o644))
}

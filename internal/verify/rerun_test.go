package verify_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"e3/executions"
	"e3/gc"
	"e3/internal/format/record"
	"e3/internal/repo"
	"e3/internal/verify"
	"e3/objectstore"
	"e3/workspace"
)

func (s *site) rerun(ws, pattern string) map[string]*verify.Again {
	s.Helper()
	all := map[string]*verify.Again{}
	stores := verify.RerunStores{Objects: s.Objects, Sessions: s.Records, Executor: s.executor, Workspaces: s.Workspaces}
	s.must(verify.Rerun(s.Context(), stores, ws, pattern, func(a *verify.Again) { all[strings.TrimPrefix(a.Task, ws+".")] = a }))
	return all
}

func TestRerun(t *testing.T) {
	s := newSite(t)
	s.write("data.txt", "data")
	s.deploy("w", `inputs: {file: {file: data.txt}}`, `tasks:`,
		`  same: {in: [file], out: o, run: make o text}`,
		`  tree: {in: [same], out: d/, run: make d/ text}`,
		`  vary: {in: [file], out: v, run: vary v}`,
		`  both: {in: [file], out: vd/, run: vary vd/}`,
		`  bad: {in: [file], out: x, run: fail}`)
	s.start("w")
	// The inputs that are on record count, not what the workspace holds now.
	s.write("data.txt", "other data")
	s.redeploy("w")
	before := s.leaf("w", "vary")
	all := s.rerun("w", "*")
	if len(all) != 5 {
		t.Fatalf("got %d tasks, want 5", len(all))
	}
	for _, task := range []string{"same", "tree"} {
		if a := all[task]; a.Result != verify.Same || len(a.Changes) > 0 || a.Is.ExecutionID == a.Was.ExecutionID {
			t.Errorf("%s: got %+v, want the same", task, a)
		}
	}
	if a := all["bad"]; a.Err == nil || a.Result == verify.Same {
		t.Errorf("bad: got %+v, want that there is nothing to compare with", a)
	}
	vary := all["vary"]
	if want := []verify.Change{{Kind: verify.Changed, Was: "49 bytes", Is: "49 bytes"}}; vary.Result == verify.Same || !slices.Equal(vary.Changes, want) {
		t.Errorf("vary: got %+v, want %v", vary.Changes, want)
	}
	e, err := s.Executions.Get(t.Context(), vary.Was.Key, vary.Is.ExecutionID)
	s.must(err)
	if !e.Rejected() || s.leaf("w", "vary") != before {
		t.Errorf("rejected: %v; the dataset was %v, is %v; want it rejected and nothing changed", e.Rejected(), before, s.leaf("w", "vary"))
	}
	both := all["both"]
	file := func(id string) string { return "E3_EXECUTION-" + id }
	want := []verify.Change{
		{Kind: verify.Removed, Path: file(both.Was.ExecutionID), Was: "3 bytes"},
		{Kind: verify.Added, Path: file(both.Is.ExecutionID), Is: "3 bytes"},
		{Kind: verify.Changed, Path: "top", Was: "49 bytes", Is: "49 bytes"},
	}
	if diff := cmp.Diff(want, both.Changes); diff != "" {
		t.Errorf("both (-want +got):\n%s", diff)
	}
	if some := s.rerun("w", "sa*"); len(some) != 1 || some["same"].Result != verify.Same {
		t.Errorf("the pattern sa* gives %v", some)
	}
}

// Without its inputs an execution cannot be made again.
func TestRerunWithoutInputs(t *testing.T) {
	s := newSite(t)
	s.write("data.txt", "data")
	s.deploy("w", `inputs: {file: {file: data.txt}}`, `tasks:`, `  t: {in: [file], out: o, run: make o text}`)
	s.start("w")
	s.remove(objectFile(s.leaf("w", "file").Hash))
	a := s.rerun("w", "t")["t"]
	if !errors.Is(a.Err, objectstore.ErrNotFound) || !strings.Contains(a.Err.Error(), "input file") || a.Is.ExecutionID != "" {
		t.Errorf("got %+v, want that input file is gone", a)
	}
}

// pausedSweep is an object store whose sweep waits.
type pausedSweep struct {
	*objectstore.Dir
	wait func()
}

func (p pausedSweep) SweepShard(ctx context.Context, first byte, cutoff time.Time, keep func(objectstore.Hash) bool, removed func(objectstore.Entry)) error {
	p.wait()
	return p.Dir.SweepShard(ctx, first, cutoff, keep, removed)
}

// pausedStaging is an object store that calls a function before an input is staged.
type pausedStaging struct {
	*objectstore.Dir
	before func()
}

func (p pausedStaging) Materialize(ctx context.Context, h objectstore.Hash, in objectstore.Folder, name string, perm executions.FileMode) error {
	p.before()
	return p.Dir.Materialize(ctx, h, in, name, perm)
}

// A collection that has already chosen the objects to remove does not remove inputs of a rerun.
func TestRerunBesideACollection(t *testing.T) {
	s := newSite(t)
	for _, content := range []string{"data", "other data"} {
		s.write("data.txt", content)
		s.deploy("w", `inputs: {file: {file: data.txt}}`, `tasks:`, `  t: {in: [file], out: o, run: make o text}`)
		if content == "data" {
			s.start("w")
		}
	}
	s.must(s.Repo.Close())
	var err error
	s.Repo, err = repo.Open(context.Background(), s.root, repo.Options{Version: "test"})
	s.must(err)

	collector, err := repo.Open(context.Background(), s.root, repo.Options{Version: "test"})
	s.must(err)
	defer collector.Close()
	marked, staging, swept := make(chan struct{}), make(chan struct{}), make(chan struct{})
	begin := sync.OnceFunc(func() { close(marked); <-staging })
	go func() {
		defer close(swept)
		_, err := gc.Collect(context.WithoutCancel(t.Context()), gc.Stores{
			Records: collector.Records, Objects: pausedSweep{collector.Objects.(*objectstore.Dir), begin}, Executions: collector.Executions,
			Jobs: collector.Queue(), Now: time.Now, Holder: collector.Workspaces.Holder,
		}, gc.Options{})
		if err != nil {
			t.Error(err)
		}
	}()
	<-marked
	sweep := sync.OnceFunc(func() { close(staging); <-swept })
	s.executor = executions.NewExecutor(s.Executions, pausedStaging{s.Objects.(*objectstore.Dir), sweep}, s.Records, commands{}, executions.Options{
		Worker: "me@here", Version: "test", Path: "/bin", Getenv: os.LookupEnv, Scratch: s.Scratch, Now: time.Now,
	})
	a := s.rerun("w", "t")["t"]
	sweep()
	if a.Err != nil || a.Result != verify.Same {
		t.Errorf("got %+v, want the same", a)
	}
}

func TestRerunOfNothing(t *testing.T) {
	s := newSite(t)
	s.write("data.txt", "data")
	s.deploy("w", `inputs: {file: {file: data.txt}}`, `tasks:`, `  t: {in: [file], out: o, run: make o text}`)
	stores := verify.RerunStores{Objects: s.Objects, Sessions: s.Records, Executor: s.executor, Workspaces: s.Workspaces}
	var unknown *workspace.UnknownError
	for _, name := range []string{"nothing", "file", "T"} {
		err := verify.Rerun(t.Context(), stores, "w", name, func(*verify.Again) { t.Error("it is executed") })
		if !errors.As(err, &unknown) || unknown.Name != name {
			t.Errorf("%s: got %v, want that there is no such task", name, err)
		}
	}
	if a := s.rerun("w", "t")["t"]; a.Err == nil || a.Was != nil {
		t.Errorf("before the first run: got %+v, want that there is no output", a)
	}
}

// The output of another version of the task is not compared with that of the present version.
func TestRerunOfAnOlderOutput(t *testing.T) {
	s := newSite(t)
	s.write("data.txt", "data")
	lines := []string{`inputs: {file: {file: data.txt}}`, `tasks:`, `  t: {in: [file], out: o, run: make o text}`}
	s.deploy("w", lines...)
	s.start("w")
	lines[2] = `  t: {in: [file], out: o, run: fail}`
	s.deploy("w", lines...)
	if res := s.start("w"); res.Run.State != record.RunFailed {
		t.Fatalf("the run is %v", res.Run.State)
	}
	if a := s.rerun("w", "t")["t"]; a.Err == nil || a.Was != nil {
		t.Errorf("got %+v, want that there is nothing to compare with", a)
	}
}

package workspace_test

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"e3/internal/repo"
	"e3/workspace"
)

// freshness returns "name state" for every dataset. A planner that remembers must say the same.
func freshness(t *testing.T, p *place) string {
	t.Helper()
	if p.remembering == nil {
		p.remembering = p.ws.Planner.Remembering()
	}
	now, remembered := freshnessBy(t, p, p.ws.Planner), freshnessBy(t, p, p.remembering)
	if now != remembered {
		t.Errorf("a planner that remembers says %s, want %s", remembered, now)
	}
	return now
}

func freshnessBy(t interface{ Fatal(...any) }, p *place, planner *workspace.Planner) string {
	st, err := planner.Status(p.ctx, "w")
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, d := range st.Datasets {
		list = append(list, d.Name+" "+d.Freshness.String())
	}
	for range st.Faults {
		list = append(list, "fault")
	}
	return strings.Join(list, ", ")
}

// Freshness is relative to the next start, whatever has changed.
func TestStandings(t *testing.T) {
	p := newPlace(t)
	p.write("a.txt", "1")
	pkg := "inputs: {a: {file: a.txt}}\ntasks:\n  one: {in: [a], out: o, run: cat $a}\n  two: {in: [a, one], out: p, run: two}\n  other: {out: o, run: cat}"
	p.run = func(ctx context.Context, script, dir string) int {
		if script != "two" {
			return shell(ctx, script, dir)
		}
		data, err := os.ReadFile(filepath.Join(dir, "o"))
		if err != nil || os.WriteFile(filepath.Join(dir, "p"), data, 0o644) != nil {
			return 9
		}
		return 0
	}
	p.deploy(pkg)
	check := func(what, want string) {
		t.Helper()
		if got := freshness(t, p); got != want {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
	}
	check("before the first run", "a current, one missing, two missing, other missing")
	p.start(func(o *workspace.StartOptions) { o.Filter = "one" })
	check("after a part", "a current, one current, two missing, other missing")
	p.start()
	check("after a run", "a current, one current, two current, other current")
	p.write("a.txt", "2")
	check("an input changed on disk", "a stale, one stale, two stale, other current")
	p.write("a.txt", "1")
	check("and back", "a current, one current, two current, other current")
	p.set("a", "3")
	check("an input set", "a current, one stale, two stale, other current")
	p.start()
	check("after a run of it", "a current, one current, two current, other current")
	p.write("e3.yaml", "e3: 1\nname: p\n"+strings.ReplaceAll(pkg, "two}", "two, version: 2}")+"\n")
	check("the package file edited", "a current, one current, two stale, other current")
	p.write("e3.yaml", "e3: 1\nname: p\n"+pkg+"\n  more: {out: o, run: cat}\n")
	check("a task added", "a current, one current, two current, other current, more missing")
	p.write("e3.yaml", "nonsense")
	check("the package file broken", "a current, one current, two current, other current, fault")
	if err := os.Remove(filepath.Join(p.dir, "e3.yaml")); err != nil {
		t.Fatal(err)
	}
	check("the package file gone", "a current, one current, two current, other current, fault")
}

// files is every file of the repository with its time and size.
func files(t *testing.T, root string) map[string]string {
	t.Helper()
	seen := map[string]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil {
			seen[path] = fmt.Sprint(info.ModTime().UnixNano(), " ", info.Size())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return seen
}

// Status writes nothing, even if there are changes to find.
func TestStatusWritesNothing(t *testing.T) {
	p := newPlace(t)
	p.write("a.txt", "1")
	p.write("b.txt", "2")
	p.deploy(twoInputs)
	p.start()
	p.write("a.txt", "changed")
	p.write("e3.yaml", "e3: 1\nname: p\n"+strings.ReplaceAll(twoInputs, "cat $a $b", "cat $b $a"))
	reader, err := repo.Open(context.Background(), p.repo.Root, repo.Options{Version: "test"}) // without a session
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	p.ws = reader.Workspaces
	before := files(t, p.repo.Root)
	if got, want := freshness(t, p), "a stale, b current, t stale"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if _, err := p.ws.Runs.Report(p.ctx, "w", ""); err != nil {
		t.Error(err)
	}
	if _, err := p.ws.Runs.TaskExecutions(p.ctx, "w", "t"); err != nil {
		t.Error(err)
	}
	if after := files(t, p.repo.Root); !maps.Equal(before, after) {
		t.Errorf("the repository changed:\n%s", cmp.Diff(before, after))
	}
}

// Status works while a run is at work. It names the run, and disturbs nothing.
func TestStatusDuringRun(t *testing.T) {
	p := newPlace(t)
	p.write("a.txt", "1")
	p.write("b.txt", "2")
	p.deploy(twoInputs)
	g := newGate()
	p.run = func(ctx context.Context, script, dir string) int {
		g.wait()
		return shell(ctx, script, dir)
	}
	done := make(chan *workspace.RunResult)
	go func() { done <- p.start() }()
	<-g.reached
	st, err := p.ws.Planner.Status(p.ctx, "w")
	if err != nil {
		t.Fatal(err)
	}
	if st.Busy == nil || st.Busy.Operation != "being run" || !strings.HasPrefix(st.Busy.Holder, fmt.Sprintf("process %d (", os.Getpid())) {
		t.Errorf("busy is %+v", st.Busy)
	}
	if st.LastRun == nil || !st.Run.Live || st.LastRun.Status != "running" {
		t.Errorf("the latest run is %+v", st.LastRun)
	}
	close(g.open)
	res := <-done
	if st, err = p.ws.Planner.Status(p.ctx, "w"); err != nil {
		t.Fatal(err)
	}
	if st.Busy != nil || st.LastRun == nil || st.LastRun.Run != res.Run.RunID || st.LastRun.Status != "completed" {
		t.Errorf("afterwards: busy %v, run %+v", st.Busy, st.LastRun)
	}
	// The proof is intact: nothing is looked up again.
	if got := p.start(); got.Outcome != nil {
		t.Error("the run after was not proven current at once")
	}
}

package workspace_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"e3/internal/format/record"
	"e3/internal/repo"
	"e3/refstore"
	"e3/workspace"
)

// The test binary runs itself as another process of the repository when this is set:
// "<helper> <argument> <folder of the project>".
const helperEnv = "E3_TEST_WORKSPACE_HELPER"

var helpers = map[string]func(r *repo.Repo, arg string) error{
	"set":  setMany,
	"hold": holdForever,
}

func TestMain(m *testing.M) {
	words := strings.SplitN(os.Getenv(helperEnv), " ", 3)
	if len(words) != 3 {
		os.Exit(m.Run())
	}
	r, err := repo.Open(context.Background(), words[2], repo.Options{Version: "test"})
	if err == nil {
		err = errors.Join(helpers[words[0]](r, words[1]), r.Close())
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", os.Getenv(helperEnv), err)
		os.Exit(1)
	}
	os.Exit(0)
}

// helper prepares this binary to run as another process on the place's repository.
func (p *place) helper(name, arg string) *exec.Cmd {
	p.t.Helper()
	self, err := os.Executable()
	if err != nil {
		p.t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), helperEnv+"="+name+" "+arg+" "+p.dir)
	cmd.Stderr = os.Stderr
	return cmd
}

// sets is how often each dataset is set.
const sets = 5

// setMany repeatedly sets the inputs v<arg>a and v<arg>b.
func setMany(r *repo.Repo, arg string) error {
	ctx := context.Background()
	for n := range sets {
		for _, suffix := range []string{"a", "b"} {
			leaf, err := r.Workspaces.Datasets.PutValue(ctx, fmt.Sprint(arg, suffix, n))
			if err == nil {
				err = r.Workspaces.Datasets.Set(ctx, "w", "v"+arg+suffix, leaf)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// Sixteen goroutines and three processes set different datasets while a run publishes its results: no write is lost.
func TestConcurrentWriters(t *testing.T) {
	const goroutines, processes, chainLength = 16, 3, 9
	p := newPlace(t)
	var inputs, tasks []string
	for i := range goroutines {
		inputs = append(inputs, fmt.Sprintf("g%d: {value: none}", i))
	}
	for i := range processes {
		inputs = append(inputs, fmt.Sprintf("v%da: {value: none}, v%db: {value: none}", i, i))
	}
	for i := range chainLength {
		task := "{out: o" + strconv.Itoa(i) + ", run: slow o" + strconv.Itoa(i)
		if i > 0 {
			task += fmt.Sprintf(", in: {x: t%d}", i-1)
		}
		tasks = append(tasks, fmt.Sprintf("t%d: %s}", i, task))
	}
	p.deploy("inputs: {"+strings.Join(inputs, ", ")+"}", "tasks: {"+strings.Join(tasks, ", ")+"}")
	p.run = func(_ context.Context, script, dir string) int {
		name := strings.Fields(script)[1]
		<-time.After(150 * time.Millisecond) // long enough in total for an update in the middle
		if os.WriteFile(dir+"/"+name, []byte("made "+name), 0o644) != nil {
			return 1
		}
		return 0
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		if res := p.start(); res.Run.State != record.RunCompleted {
			t.Errorf("the run %v: %s", res.Run.State, res.Run.Error)
		}
	})
	for i := range goroutines {
		wg.Go(func() {
			for n := range sets {
				leaf, err := p.ws.Datasets.PutValue(p.ctx, fmt.Sprint("g", i, " ", n))
				if err == nil {
					err = p.ws.Datasets.Set(p.ctx, "w", fmt.Sprint("g", i), leaf)
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	for i := range processes {
		cmd := p.helper("set", strconv.Itoa(i))
		wg.Go(func() {
			if err := cmd.Run(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()

	want := map[string]record.Leaf{}
	expect := func(name, text string) {
		leaf, err := p.ws.Datasets.PutValue(p.ctx, text)
		if err != nil {
			t.Fatal(err)
		}
		want[name] = leaf
	}
	for i := range goroutines {
		expect(fmt.Sprint("g", i), fmt.Sprint("g", i, " ", sets-1))
	}
	for i := range processes {
		for _, suffix := range []string{"a", "b"} {
			expect(fmt.Sprint("v", i, suffix), fmt.Sprint(i, suffix, sets-1))
		}
	}
	rows, err := p.ws.Datasets.Names(p.ctx, "w")
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) != len(want)+chainLength {
		t.Fatalf("%d datasets, want %d", len(rows), len(want)+chainLength)
	}
	for _, row := range rows {
		if !row.Output && row.Leaf != want[row.Name] {
			t.Errorf("%s is %+v, want what was set last: %+v", row.Name, row.Leaf, want[row.Name])
		}
	}
	for i := range chainLength {
		if got, want := p.read(fmt.Sprint("t", i)), fmt.Sprint("made o", i); got != want {
			t.Errorf("t%d is %q, want %q", i, got, want)
		}
	}
}

// holdForever takes the workspace's lock as a run does, reports that, and waits to be killed.
func holdForever(r *repo.Repo, _ string) error {
	state := record.LockState{Operation: record.Dataflow, Holder: "a process that will be killed", AcquiredAt: time.Now()}
	if _, err := r.Records.TryLock(context.Background(), "workspace/w", refstore.Exclusive, state.Encode()); err != nil {
		return err
	}
	fmt.Println("held")
	killed := make(chan os.Signal, 1)
	signal.Notify(killed, os.Interrupt) // without it, a program without cgo ends with: all goroutines are asleep
	<-killed
	return nil
}

// A dead holder's lock is free at once.
func TestDeadHolder(t *testing.T) {
	p := newPlace(t)
	p.deploy("tasks: {t: {out: o, run: cat}}")
	cmd := p.helper("hold", "-")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
	var busy *workspace.BusyError
	if _, err := p.ws.Runner.Start(p.ctx, "w", startOptions(p, "")); !errors.As(err, &busy) || !strings.Contains(err.Error(), "a process that will be killed") {
		t.Errorf("while it lives: %v", err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	cmd.Wait() // "signal: killed"
	if held, err := p.ws.Busy(p.ctx, "w"); held != nil || err != nil {
		t.Errorf("once it is dead: %v, %v", held, err)
	}
	p.start()
}

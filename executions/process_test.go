package executions_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"e3/executions"
	"e3/internal/format/record"
	"e3/refstore"
)

// helpers are the functions that the test binary runs as another process.
var helpers = map[string]func(dir string) error{
	"ask":    ask,
	"half":   keepHalf,
	"hurry":  hurry,
	"unsent": keepNothing,
	"work":   work,
}

// taskFile, in the repository's folder, is the task object for helpers.
const taskFile = "task.beast2"

// ask executes the task in dir twice at the same time and prints the results.
func ask(dir string) error {
	l, err := openLab(dir, func(o *executions.Options) { o.Announce = 20 * time.Millisecond })
	if err != nil {
		return err
	}
	task, err := leftTask(dir)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("asked-%d", os.Getpid())), nil, 0o644); err != nil {
		return err
	}
	var wg sync.WaitGroup
	results := make([]executions.Result, 2)
	errs := make([]error, 2)
	for i := range results {
		wg.Go(func() { results[i], errs[i] = l.Do(context.Background(), l.request(task)) })
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	if err := errors.Join(l.sup.Close(), l.records.Close()); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(results)
}

// leave writes the task object to taskFile.
func (l *lab) leave(t *testing.T, task *record.Task) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(l.dir, taskFile), task.Encode(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// leftTask reads the task that leave wrote to dir.
func leftTask(dir string) (*record.Task, error) {
	data, err := os.ReadFile(filepath.Join(dir, taskFile))
	if err != nil {
		return nil, err
	}
	return record.DecodeTask(data)
}

// helper prepares this binary to run as another process on the lab's repository.
func (l *lab) helper(t *testing.T, name string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), helperEnv+"="+name+" "+l.dir)
	cmd.Stderr = os.Stderr
	return cmd
}

// Processes share one execution, as goroutines do. The task lasts until all have asked.
func TestSingleFlightAmongProcesses(t *testing.T) {
	for _, test := range []struct {
		name, text string
		state      record.State
	}{
		{"success", "echo x > out", record.Success},
		{"failure", "sleep 0.3; exit 3", record.Failed},
	} {
		t.Run(test.name, func(t *testing.T) {
			l := newLab(t)
			flag := filepath.Join(t.TempDir(), "flag")
			task, runs := counted(t, "until test -e "+flag+"; do sleep 0.01; done; "+test.text)
			l.leave(t, task)
			const n = 3
			var wg sync.WaitGroup
			var mu sync.Mutex
			var all []executions.Result
			for range n {
				cmd := l.helper(t, "ask")
				wg.Go(func() {
					out, err := cmd.Output()
					var results []executions.Result
					if err == nil {
						err = json.Unmarshal(out, &results)
					}
					if err != nil {
						t.Errorf("%v: %s", err, out)
					}
					mu.Lock()
					defer mu.Unlock()
					all = append(all, results...)
				})
			}
			await(t, "all to ask", func() bool {
				asked, err := filepath.Glob(filepath.Join(l.dir, "asked-*"))
				return err == nil && len(asked) == n
			})
			touch(t, flag)
			wg.Wait()
			if len(all) != 2*n {
				t.Fatalf("%d results, want %d", len(all), 2*n)
			}
			fresh := map[string]bool{}
			for _, r := range all {
				if !r.Cached {
					fresh[r.ExecutionID] = true
				}
			}
			for _, r := range all {
				if r.State != test.state || !fresh[r.ExecutionID] {
					t.Errorf("got %+v, want %v of an execution that ran now", r, test.state)
				}
			}
			// On a slow machine a request may come after the failure; it runs the task again.
			if ran := runs(); ran != len(fresh) || test.state == record.Success && ran != 1 || ran > n {
				t.Errorf("it ran %d times under %d ids", ran, len(fresh))
			}
		})
	}
}

// If a process is killed during a task, its command dies too. The next request closes the record and runs the task.
func TestKilledProcess(t *testing.T) {
	l := newLab(t)
	flag := filepath.Join(t.TempDir(), "flag")
	task, runs := counted(t, "echo begun; test -e "+flag+" || sleep 60; echo x > out")
	req := l.request(task)
	l.leave(t, task)
	cmd := l.helper(t, "ask")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var dead string
	await(t, "a running record", func() bool {
		a, err := l.Lookup(t.Context(), keyOf(req))
		if err != nil {
			t.Fatal(err)
		}
		if len(a.Running) > 0 {
			dead = a.Running[0]
		}
		return dead != ""
	})
	await(t, "its log", func() bool { return l.log(t, req, dead, executions.Stdout) == "begun\n" })
	if alive, err := l.Alive(t.Context(), keyOf(req), dead); !alive || err != nil {
		t.Errorf("alive before: %v, %v", alive, err)
	}
	running, err := l.Get(t.Context(), keyOf(req), dead)
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	cmd.Wait() // "signal: killed"
	touch(t, flag)
	res := l.do(t, req)
	if res.State != record.Success || res.Cached || res.ExecutionID == dead {
		t.Errorf("got %+v, want a new success", res)
	}
	e, err := l.Get(t.Context(), keyOf(req), dead)
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("Process %d no longer running (stale execution)", running.PID); e.State != record.Error || e.Message != want {
		t.Errorf("the dead one is %v %q, want error %q", e.State, e.Message, want)
	}
	if got := l.log(t, req, dead, executions.Stdout); got != "begun\n" {
		t.Errorf("its log is %q", got)
	}
	await(t, "the death of its command", func() bool { return !exists(fmt.Sprintf("/proc/%d/stat", running.PID)) || zombie(running.PID) })
	if runs() != 2 {
		t.Errorf("it ran %d times, want 2", runs())
	}
	if n, err := l.records.Sweep(t.Context()); err != nil || n != 1 {
		t.Errorf("%d sessions were swept, %v, want 1", n, err)
	}
}

func zombie(pid int64) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(text), ") Z ")
}

func streamKey(k executions.Key, id string) refstore.Key {
	return refstore.Key{Partition: "LOG/" + k.String() + "/" + id, Sort: string(executions.Stdout)}
}

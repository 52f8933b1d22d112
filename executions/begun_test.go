package executions_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"e3/executions"
	"e3/internal/format/record"
	"e3/refstore"
	reffs "e3/refstore/fs"
)

// hurry executes the task in dir without announcing it.
func hurry(dir string) error {
	l, err := openLab(dir, func(o *executions.Options) { o.Announce = time.Hour })
	if err != nil {
		return err
	}
	task, err := leftTask(dir)
	if err != nil {
		return err
	}
	_, err = l.Do(context.Background(), l.request(task))
	return err
}

// closesBegun is CloseBegun for a store that sweeps.
func closesBegun(do func(context.Context, string) ([]executions.RunOf, error)) func(context.Context, string) error {
	return func(ctx context.Context, dir string) error {
		_, err := do(ctx, dir)
		return err
	}
}

// sweep closes and removes what dead processes have left in the lab's repository, as a start does.
func (l *lab) sweep(t *testing.T) {
	t.Helper()
	s, err := reffs.Open(l.dir, reffs.Options{DeadSession: closesBegun(l.CloseBegun)})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// A command that is killed with its process before it was announced is on record after the next sweep, with its output
// so far.
func TestKilledBeforeAnnouncement(t *testing.T) {
	for _, size := range []int{0, 6, 100_000} { // of the log: none, in the record, beside it
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			l := newLab(t)
			flag := filepath.Join(t.TempDir(), "flag")
			task := script(fmt.Sprintf("head -c %d /dev/zero | tr '\\0' x; echo warned >&2; touch %s; sleep 60; echo x > out", size, flag))
			req := l.request(task)
			l.leave(t, task)
			cmd := l.helper(t, "hurry")
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			await(t, "the command", func() bool { return exists(flag) })
			if all := l.all(t, keyOf(req)); len(all) != 0 {
				t.Fatalf("%d executions are on record before", len(all))
			}
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			cmd.Wait() // "signal: killed"
			l.sweep(t)
			l.sweep(t)
			all := l.all(t, keyOf(req))
			if len(all) != 1 {
				t.Fatalf("%d executions are on record, want 1", len(all))
			}
			e := all[0]
			if want := fmt.Sprintf("Process %d no longer running (stale execution)", cmd.Process.Pid); e.State != record.Error || e.Message != want {
				t.Errorf("it is %v %q, want error %q", e.State, e.Message, want)
			}
			if e.Detail == nil || e.Detail.Task != "task" || e.Detail.RunID != "run" || e.Detail.Attempt != 1 || e.Detail.Worker != "ann@lab" {
				t.Errorf("its detail is %+v", e.Detail)
			}
			if got := l.log(t, req, e.ExecutionID, executions.Stdout); got != strings.Repeat("x", size) {
				t.Errorf("its log has %d bytes, want %d", len(got), size)
			}
			if got := l.log(t, req, e.ExecutionID, executions.Stderr); got != "warned\n" {
				t.Errorf("its other log is %q", got)
			}
			left, err := l.BegunFor(t.Context(), "ws", "run")
			if err != nil || len(left) != 1 || left[0].ExecutionID != e.ExecutionID || left[0].Key != keyOf(req).String() || left[0].Task != "task" {
				t.Errorf("the run is told %+v, %v", left, err)
			}
		})
	}
}

// halting is a store whose process dies when it adopts the second log of an execution.
type halting struct {
	*reffs.Store
	kept *int
}

func (s halting) AdoptStream(ctx context.Context, key refstore.Key, path string) error {
	if *s.kept++; *s.kept == 2 {
		os.Exit(3)
	}
	return s.Store.AdoptStream(ctx, key, path)
}

// doAnnounced executes the task in dir, announces it soon, and copies no log while it runs.
func doAnnounced(dir string, wrap func(*reffs.Store) executions.Records) error {
	l, err := openLab(dir, nil)
	if err != nil {
		return err
	}
	task, err := leftTask(dir)
	if err != nil {
		return err
	}
	_, err = l.executorOn(wrap(l.records)).Do(context.Background(), l.request(task))
	return err
}

// executorOn returns an executor of the lab on wrapped records.
func (l *lab) executorOn(records executions.Records) *executions.Executor {
	return executions.NewExecutor(executions.NewStore(records, l.objects), l.objects, l.records, l.sup, executions.Options{
		Path: os.Getenv("PATH"), Scratch: l.records.SessionDir, Now: time.Now, Announce: 50 * time.Millisecond, LogEvery: time.Hour,
		Getenv: func(string) (string, bool) { return "", false },
	})
}

func keepHalf(dir string) error {
	return doAnnounced(dir, func(s *reffs.Store) executions.Records { return halting{s, new(int)} })
}

func keepNothing(dir string) error {
	return doAnnounced(dir, func(s *reffs.Store) executions.Records { return copied{s} })
}

// If a process dies after it has announced a command, but before it has kept both logs, the next sweep keeps them.
func TestKilledBeforeLogsAreKept(t *testing.T) {
	for _, test := range []struct {
		helper string
		wrap   func(*reffs.Store) executions.Records
	}{
		{"half", func(s *reffs.Store) executions.Records { return s }},
		{"unsent", func(s *reffs.Store) executions.Records { return copied{s} }},
	} {
		t.Run(test.helper, func(t *testing.T) {
			l := newLab(t)
			task := script("echo printed; echo warned >&2; sleep 60; echo x > out")
			req := l.request(task)
			l.leave(t, task)
			cmd := l.helper(t, test.helper)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			await(t, "the record", func() bool { return len(l.all(t, keyOf(req))) == 1 })
			if test.helper == "unsent" { // the other one dies by itself
				if err := cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
			cmd.Wait() // "signal: killed", or "exit status 3"
			s, err := reffs.Open(l.dir, reffs.Options{DeadSession: closesBegun(l.executorOn(test.wrap(l.records)).CloseBegun)})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			for range 2 {
				if _, err := s.Sweep(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			all := l.all(t, keyOf(req))
			if len(all) != 1 || all[0].State != record.Error {
				t.Fatalf("on record are %+v, want one error", all)
			}
			for stream, want := range map[executions.Stream]string{executions.Stdout: "printed\n", executions.Stderr: "warned\n"} {
				if got := l.log(t, req, all[0].ExecutionID, stream); got != want {
					t.Errorf("%s is %q, want %q", stream, got, want)
				}
			}
		})
	}
}

// After an execution whose end is on record there is nothing to close.
func TestNothingLeft(t *testing.T) {
	l := newLab(t)
	req := l.request(script("echo printed; echo x > out"))
	l.Told(l.do(t, req).ExecutionID)
	dir, err := l.records.SessionDir()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.CloseBegun(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	if left, err := l.BegunFor(t.Context(), "ws", "run"); err != nil || len(left) != 0 || l.Unfinished() {
		t.Errorf("left are %+v, %v", left, err)
	}
}

// If the store refuses the record of a command's end, its note stays and the next start writes the record.
func TestFaultKeepsTheNote(t *testing.T) {
	l := newLab(t)
	fault := errors.New("disk full")
	full := &fullRecords{Store: l.records, fault: fault}
	x := executions.NewExecutor(executions.NewStore(full, l.objects), l.objects, l.records, l.sup, executions.Options{
		Path: os.Getenv("PATH"), Scratch: l.records.SessionDir, Now: time.Now, Getenv: func(string) (string, bool) { return "", false },
	})
	req := l.request(script("echo printed; echo x > out"))
	if res, err := x.Do(t.Context(), req); !errors.Is(err, fault) {
		t.Fatalf("got %+v, %v, want the fault", res, err)
	}
	if !x.Unfinished() {
		t.Fatal("the executor has nothing unfinished")
	}
	full.fault = nil
	dir, err := l.records.SessionDir()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := x.CloseBegun(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	all := l.all(t, keyOf(req))
	if len(all) != 1 || all[0].State != record.Error {
		t.Fatalf("on record are %+v", all)
	}
	if got := l.log(t, req, all[0].ExecutionID, executions.Stdout); got != "printed\n" {
		t.Errorf("its log is %q", got)
	}
}

// fullRecords refuse records of executions while they have a fault.
type fullRecords struct {
	*reffs.Store
	fault error
}

func (s *fullRecords) Put(ctx context.Context, r refstore.Record) (refstore.Version, error) {
	if s.fault != nil && strings.HasPrefix(r.Key.Partition, "EXECUTION/") {
		return refstore.Absent, s.fault
	}
	return s.Store.Put(ctx, r)
}

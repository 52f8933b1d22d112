//go:build linux

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"e3/executions"
	"e3/gc"
	"e3/internal/events"
	"e3/internal/host/runner"
	"e3/internal/repo"
	"e3/internal/testing/suite"
	"e3/workspace"
)

// skew is by how much the clocks of two machines differ.
const skew = time.Hour

// A skewed machine is a process of its own as far as the repository is concerned, in this one, with a clock of its
// own.
type skewed struct {
	*repo.Repo
	t    *testing.T
	name string
	dir  string
	now  func() time.Time
	exec *executions.Executor

	ahead atomic.Int64 // of the clock, nanoseconds
}

// skewedMachine opens the repository with a clock that is ahead by so much.
func skewedMachine(t *testing.T, w *world, sup *runner.Supervisor, name string, ahead time.Duration) *skewed {
	t.Helper()
	m := &skewed{t: t, name: name, dir: t.TempDir()}
	m.ahead.Store(int64(ahead))
	m.now = func() time.Time { return time.Now().Add(time.Duration(m.ahead.Load())) }
	r, err := repo.Open(t.Context(), w.location(w.dynamodb, w.s3), repo.Options{Version: "test", Now: m.now, Getenv: func(v string) string {
		switch v {
		case repo.CacheDirVariable, repo.StateDirVariable:
			return filepath.Join(m.dir, v)
		}
		return os.Getenv(v)
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	m.Repo = r
	m.exec = executions.NewExecutor(r.Executions, r.Objects, r.Records, sup, executions.Options{
		Worker: "me@" + name, Version: "test", Path: os.Getenv("PATH"), Getenv: os.LookupEnv, Scratch: r.Scratch, Now: m.now,
	})
	return m
}

// deploy makes a workspace of a package file.
func (m *skewed) deploy(ws, text string) {
	m.t.Helper()
	file := filepath.Join(m.dir, ws+".yaml")
	err := os.WriteFile(file, []byte(text), 0o644)
	if err == nil {
		err = m.Workspaces.Create(m.t.Context(), ws)
	}
	if err == nil {
		_, err = m.Workspaces.Deployer.DeployFile(m.t.Context(), ws, file)
	}
	if err != nil {
		m.t.Fatal(err)
	}
}

// start runs a workspace and returns the tasks that were executed.
func (m *skewed) start(ctx context.Context, ws string) ([]string, error) {
	var mu sync.Mutex
	var ran []string
	res, err := m.Workspaces.Runner.Start(ctx, ws, workspace.StartOptions{
		Executor: m.exec, Concurrency: 4, Process: &events.Process{PID: 1, Host: m.name, User: "me"},
		OnEvent: func(e events.Event) {
			if e.Type == events.TaskStarted {
				mu.Lock()
				ran = append(ran, e.Task)
				mu.Unlock()
			}
		},
	})
	if err == nil && res.Run.Summary.Failed > 0 {
		err = errors.New(res.Run.Error)
	}
	return ran, err
}

const skewGraph = `
e3: 1
name: skew
inputs:
  a: {value: %s}
tasks:
  one: {in: [a], out: one.txt, run: 'sleep 0.5; echo "one $a" > "$out"'}
  two: {in: [one], out: two.txt, run: 'sleep 0.2; cat "$one" > "$out"'}
`

// The clocks of two machines differ by an hour. Nothing that they do depends on it.
func TestClockSkew(t *testing.T) {
	suite.Thorough(t)
	t.Parallel()
	sup, err := runner.New(runner.Options{Grace: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sup.Close() })
	for _, ahead := range []time.Duration{skew, -skew} {
		t.Run(fmt.Sprint(ahead), func(t *testing.T) {
			w := newProxiedWorld(t, 2*time.Second)
			a, b := skewedMachine(t, w, sup, "a", 0), skewedMachine(t, w, sup, "b", ahead)
			a.deploy("one", fmt.Sprintf(skewGraph, "x"))
			b.deploy("two", fmt.Sprintf(skewGraph, "x"))
			ctx := t.Context()

			// Both at once: each task is executed once, by either.
			var g sync.WaitGroup
			var ran [2][]string
			for i, m := range []*skewed{a, b} {
				g.Go(func() {
					var err error
					if ran[i], err = m.start(ctx, []string{"one", "two"}[i]); err != nil {
						t.Errorf("%s: %v", m.name, err)
					}
				})
			}
			g.Wait()
			if n := len(ran[0]) + len(ran[1]); n != 2 {
				t.Errorf("executed were %v and %v, want each of two tasks once", ran[0], ran[1])
			}
			// Either sees what the other has done, under both names.
			for _, ws := range []string{"one", "two"} {
				for _, m := range []*skewed{a, b} {
					if ran, err := m.start(ctx, ws); err != nil || len(ran) > 0 {
						t.Errorf("%s starts %s again: it ran %v, %v", m.name, ws, ran, err)
					}
				}
			}
			busyElsewhere(t, a, b)
			for _, m := range []*skewed{a, b} {
				m.collects(b)
				m.retires()
			}
			w.once(t, &machine{project: &project{t: t, dir: t.TempDir(), location: w.location(w.dynamodb, w.s3)}, w: w})
			a.Close()
			b.Close()
			w.freed(t)
			w.check(t, tolerated{collected: true})
		})
	}
}

// busyElsewhere has one machine find that the other is at work, for longer than a lease lasts.
func busyElsewhere(t *testing.T, a, b *skewed) {
	t.Helper()
	a.deploy("busy", strings.Replace(fmt.Sprintf(skewGraph, "busy"), "sleep 0.5", "sleep 3", 1))
	done := make(chan error, 1)
	go func() {
		_, err := a.start(t.Context(), "busy")
		done <- err
	}()
	eventually(t, patience, "the run", func() string {
		if busy, err := b.Workspaces.Busy(t.Context(), "busy"); err != nil || busy == nil {
			return fmt.Sprintf("it is not seen: %v", err)
		}
		return ""
	})
	_, err := b.start(t.Context(), "busy")
	var busy *workspace.BusyError
	if !errors.As(err, &busy) {
		t.Errorf("the other machine starts it too: %v", err)
	}
	if err := <-done; err != nil {
		t.Errorf("it was disturbed: %v", err)
	}
}

// collects has one machine collect garbage while the other has stored what it has not named yet.
func (m *skewed) collects(writer *skewed) {
	m.t.Helper()
	ctx := m.t.Context()
	h, err := writer.Objects.PutBytes(ctx, []byte("fresh, by "+writer.name+" before "+m.name+" collects"))
	if err != nil {
		m.t.Fatal(err)
	}
	if _, err := gc.Collect(ctx, gc.Stores{
		Records: m.Records, Objects: m.Objects, Executions: m.Executions, Jobs: m.Queue(), Now: m.now, Holder: m.Workspaces.Holder, By: "me@" + m.name,
	}, gc.Options{}); err != nil {
		m.t.Errorf("%s collects: %v", m.name, err)
	}
	if _, err := writer.Objects.Stat(ctx, h); err != nil {
		m.t.Errorf("%s has collected what %s had just stored: %v", m.name, writer.name, err)
	}
}

// retires has one machine remove old events, with the shortest retention that covers the skew, just after both have
// made some.
func (m *skewed) retires() {
	m.t.Helper()
	gone, err := m.Workspaces.Cleaner.CleanEvents(m.t.Context(), "", m.now().Add(-skew-5*time.Minute), false)
	if err != nil || len(gone) > 0 {
		m.t.Errorf("%s has removed the events of %d runs, which are fresh: %v", m.name, len(gone), err)
	}
}

// The clocks of the machine that stores and of the one that collects are set back and forth, by hours and by years,
// while both are at work: what has been stored stays.
func TestClockJumps(t *testing.T) {
	suite.Thorough(t)
	t.Parallel()
	sup, err := runner.New(runner.Options{Grace: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sup.Close() })
	w := newProxiedWorld(t, 2*time.Second)
	a, b := skewedMachine(t, w, sup, "a", 0), skewedMachine(t, w, sup, "b", 0)
	a.deploy("one", fmt.Sprintf(skewGraph, "x"))
	const year = 365 * 24 * time.Hour
	for i, jump := range []struct{ a, b time.Duration }{{-time.Hour, 0}, {time.Hour, -10 * year}, {-10 * year, 10 * year}, {0, 0}} {
		h, err := a.Objects.PutBytes(t.Context(), fmt.Appendf(nil, "before jump %d", i))
		if err != nil {
			t.Fatal(err)
		}
		a.ahead.Store(int64(jump.a))
		b.ahead.Store(int64(jump.b))
		b.collects(a)
		if _, err := a.Objects.Stat(t.Context(), h); err != nil {
			t.Errorf("jump %d: what was stored before it is gone: %v", i, err)
		}
		if _, err := a.start(t.Context(), "one"); err != nil {
			t.Errorf("jump %d: start: %v", i, err)
		}
	}
	a.Close()
	b.Close()
	w.check(t, tolerated{collected: true})
}

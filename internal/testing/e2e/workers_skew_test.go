//go:build linux

package e2e

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"e3/internal/jobs/worker"
	"e3/internal/repo"
	"e3/workspace"

	"e3/internal/jobs/dispatch"
)

// aheadVariable has this program be a worker, or a start with workers, whose clock is ahead by so much.
const aheadVariable = "E3_E2E_AHEAD"

// skewedProcess is such a process: "worker" or "start <workspace>".
func skewedProcess(ahead string, args []string) int {
	by, err := time.ParseDuration(ahead)
	if err == nil {
		err = skewedWork(by, args)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func skewedWork(by time.Duration, args []string) error {
	ctx := context.Background()
	lease, err := time.ParseDuration(os.Getenv("E3_LEASE"))
	if err != nil {
		return err
	}
	r, err := repo.Open(ctx, os.Getenv("E3_REPO"), repo.Options{
		Version: "test", Lease: lease, Now: func() time.Time { return time.Now().Add(by) },
	})
	if err != nil {
		return err
	}
	defer r.Close()
	if len(args) > 0 && args[0] == "worker" {
		w, err := r.Worker(repo.WorkerOptions{Options: worker.Options{Queues: []string{"default"}, Concurrency: 2}, Grace: 200 * time.Millisecond})
		if err != nil {
			return err
		}
		drain, end := signal.NotifyContext(ctx, syscall.SIGTERM)
		defer end()
		fmt.Println(`{"type":"worker.ready"}`)
		return w.Run(ctx, drain.Done())
	}
	if len(args) != 2 {
		return fmt.Errorf("what is to be done: %q", args)
	}
	d := r.Dispatcher(dispatch.Options{})
	defer d.Close()
	x, err := r.Executor(repo.ExecutorOptions{Grace: 200 * time.Millisecond, Remote: d})
	if err != nil {
		return err
	}
	res, err := r.Workspaces.Runner.Start(ctx, args[1], workspace.StartOptions{Executor: x, Outstanding: 100, Process: r.Process()})
	if err == nil && res.Run.Summary.Failed > 0 {
		err = fmt.Errorf("failed: %s", res.Run.Error)
	}
	return err
}

// skewed starts this program as a worker, or a start, whose clock is ahead by so much.
func (m *machine) skewed(ahead time.Duration, args ...string) *process {
	m.t.Helper()
	self, err := os.Executable()
	if err != nil {
		m.t.Fatal(err)
	}
	p := *m.project
	p.env = append(p.env[:len(p.env):len(p.env)], aheadVariable+"="+ahead.String())
	x := p.spawnCommand(append(append(append([]string{}, m.enter...), self), args...)...)
	x.inner = len(m.enter) > 0
	return x
}

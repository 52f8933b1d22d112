package workspace_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"e3/internal/events/eventstest"
	"e3/internal/format/record"
	"e3/internal/testing/suite"
	"e3/objectstore"
	"e3/refstore"
	"e3/workspace"
)

// pair is two tasks; the second takes long enough to be recorded while it runs.
var pair = saga{tasks: []sagaTask{
	{name: "t0", calls: []sagaCall{{takes: 100 * time.Millisecond}, {takes: 100 * time.Millisecond}}},
	{name: "t1", reads: []string{"t0"}},
}}

// value returns a task's output in the workspace, "" if there is none.
func (st *stage) value(name string) (string, error) {
	d, err := st.process().ws.Datasets.Dataset(st.t.Context(), "w0", workspace.DatasetPath{Name: name})
	var nothing *workspace.UnassignedError
	if errors.As(err, &nothing) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return st.object(d.Hash)
}

// A takeover is a machine that stops at some point of an operation, and the operations of others meanwhile.
type takeover struct {
	name    string
	saga    saga
	prepare func(st *stage, t *leaseTable)
	lost    func(ctx context.Context, m *machine) error
	// meanwhile is the successor's operation while the lost machine stands still.
	meanwhile func(ctx context.Context, st *stage, m *machine) error
	want      string // of t1 at the end
}

func (st *stage) object(hash string) (string, error) {
	h, err := objectstore.ParseHash(hash)
	if err != nil {
		return "", err
	}
	data, err := objectstore.ReadAll(st.t.Context(), st.objects, h, 1<<20)
	return string(data), err
}

// state is the record of w0, "" without one.
func (st *stage) state() string {
	rec, err := st.records.Get(st.t.Context(), refstore.Key{Partition: "WORKSPACE", Sort: "w0"})
	if err != nil && !errors.Is(err, refstore.ErrNotFound) {
		st.t.Fatal(err)
	}
	return string(rec.Value)
}

// commands counts the commands that were executed.
func (st *stage) commands() (n int) {
	st.mu.Lock()
	defer st.mu.Unlock()
	for _, calls := range st.calls {
		n += calls
	}
	return n
}

// recorded returns the runs of w0 that have a record.
func (st *stage) recorded() (ids []string) {
	for rec, err := range st.records.List(st.t.Context(), refstore.Query{Partition: "DATAFLOW/w0", KeysOnly: true}) {
		if err != nil {
			st.t.Fatal(err)
		}
		ids = append(ids, rec.Key.Sort)
	}
	return ids
}

func (st *stage) begun(t *leaseTable) {
	st.t.Helper()
	if _, err := st.machine(t, 0).start(st.t.Context()); err != nil {
		st.t.Fatal(err)
	}
}

func start(ctx context.Context, m *machine) error {
	_, err := m.start(ctx)
	return err
}

// edited starts after an edit of the input.
func edited(ctx context.Context, st *stage, m *machine) error {
	st.write("a.txt", "second")
	return start(ctx, m)
}

var takeovers = []takeover{
	{name: "first run", lost: start, meanwhile: edited, want: "t1second" + "t0second"},
	{name: "run of a change", prepare: func(st *stage, t *leaseTable) {
		st.begun(t)
		st.write("a.txt", "between")
	}, lost: start, meanwhile: edited, want: "t1secondt0second"},
	{name: "run that publishes nothing", lost: func(ctx context.Context, m *machine) error {
		_, err := m.ws.Runner.Start(ctx, "w0", workspace.StartOptions{Executor: m.executor, Concurrency: 2, Publish: workspace.Never})
		return err
	}, meanwhile: edited, want: "t1secondt0second"},
	{name: "run with nothing to do", prepare: (*stage).begun, lost: start, meanwhile: edited, want: "t1secondt0second"},
	{name: "run with nothing to do, twice", prepare: (*stage).begun, lost: start,
		meanwhile: func(ctx context.Context, st *stage, m *machine) error { return start(ctx, m) }, want: "t1firstt0first"},
	{name: "run after a dead one", prepare: func(st *stage, t *leaseTable) {
		m := st.machine(t, 18)
		ctx, cancel := context.WithCancel(st.t.Context())
		go m.start(ctx)
		<-m.stopped
		m.session.expire()
		m.session.notice()
		cancel()
		close(m.wake)
		synctest.Wait()
	}, lost: start, meanwhile: edited, want: "t1secondt0second"},
	{name: "deploy", lost: func(ctx context.Context, m *machine) error {
		_, err := m.ws.Deployer.DeployFile(ctx, "w0", filepath.Join(m.dir, "e3.yaml"))
		return err
	}, meanwhile: edited, want: "t1secondt0second"},
	{name: "deploy of another file", lost: func(ctx context.Context, m *machine) error {
		_, err := m.ws.Deployer.DeployFile(ctx, "w0", filepath.Join(m.dir, "other.yaml"))
		return err
	}, prepare: func(st *stage, _ *leaseTable) { st.write("other.yaml", st.saga.yaml()) },
		meanwhile: func(ctx context.Context, st *stage, m *machine) error {
			st.write("a.txt", "second")
			if _, err := m.ws.Deployer.DeployFile(ctx, "w0", filepath.Join(st.dir, "e3.yaml")); err != nil {
				return err
			}
			return start(ctx, m)
		}, want: "t1secondt0second"},
	{name: "removal", prepare: (*stage).begun, lost: func(ctx context.Context, m *machine) error {
		return m.ws.Cleaner.Remove(ctx, "w0")
	}, meanwhile: func(ctx context.Context, st *stage, m *machine) error {
		st.write("a.txt", "second")
		for {
			if err := m.ws.Create(ctx, "w0"); err != nil && !errors.Is(err, workspace.ErrExists) {
				return err
			}
			_, err := m.ws.Deployer.DeployFile(ctx, "w0", filepath.Join(st.dir, "e3.yaml"))
			if errors.Is(err, workspace.ErrNotFound) {
				continue // it was removed before the lock was taken
			}
			if err != nil {
				return err
			}
			return start(ctx, m)
		}
	}, want: "t1secondt0second"},
}

// A holder that was presumed dead resumes at each of its calls of the store, after another process has taken over: when
// that one has finished, or itself stands still at some call. No later write of the first holder undoes anything,
// whether it notices the loss at once or only when it asks.
func TestLostHolder(t *testing.T) {
	suite.Thorough(t)
	for _, to := range takeovers {
		for _, notices := range []bool{true, false} {
			for k, amid := range []bool{false, true} {
				if notices && amid {
					continue // it writes less than one that does not notice
				}
				t.Run(fmt.Sprintf("%s/noticed %v/amid %v", to.name, notices, amid), func(t *testing.T) {
					step := 1
					if testing.Short() {
						step = 5
					}
					for stopAt := 1 + k%step; ; stopAt += step {
						done, nextAt := false, 0
						if amid {
							nextAt = 1 + 7*stopAt%45 // in time every call is tried
						}
						synctest.Test(t, func(t *testing.T) { done = to.play(t, stopAt, nextAt, notices) })
						if done || t.Failed() {
							return
						}
					}
				})
			}
		}
	}
}

// play returns true if the holder made fewer calls. nextAt is the successor's call at which the holder resumes; 0:
// after its end.
func (to takeover) play(t *testing.T, stopAt, nextAt int, notices bool) (done bool) {
	if to.saga.tasks == nil {
		to.saga = pair
	}
	st, table, ctx := newStage(t, &to.saga, true), newLeaseTable(), t.Context()
	if to.prepare != nil {
		to.prepare(st, table)
	}
	lost := st.machine(table, stopAt)
	ended := make(chan error, 1)
	go func() { ended <- to.lost(ctx, lost) }()
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("undisturbed: %v", err)
		}
		return true
	case <-lost.stopped:
	}
	last := lost.last()
	held := lost.session.holds("workspace/w0")
	lost.session.expire()
	next := st.machine(table, nextAt)
	through := make(chan error, 1)
	go func() { through <- to.meanwhile(ctx, st, next) }()
	wait := func(c <-chan error) error {
		select {
		case err := <-c:
			return err
		case <-time.After(time.Hour):
			return errNoEnd
		}
	}
	var nextErr error
	var before *workspace.State
	var err error
	if nextAt == 0 {
		nextErr = wait(through)
		if before, err = next.ws.State(ctx, "w0"); err != nil {
			t.Fatalf("at call %d, %s: %v", stopAt, last, err)
		}
	} else {
		select {
		case nextErr = <-through:
			nextAt = 0
		case <-next.stopped:
			last += fmt.Sprintf(", the successor at call %d, %s", nextAt, next.last())
		}
	}
	amid := st.state()
	if notices {
		lost.session.notice()
	}
	close(lost.wake)
	err = wait(ended)
	// The successor reads the state, rewrites it, and continues. If it recreates the workspace, it makes more calls
	// before.
	if now := st.state(); now != amid && held && nextAt >= 8 {
		t.Errorf("at call %d, %s (%v): the lost holder has changed the state from\n%q to\n%q", stopAt, last, err, amid, now)
	}
	close(next.wake)
	if nextAt > 0 {
		nextErr = wait(through)
	}
	if nextErr != nil {
		t.Errorf("at call %d, %s: the successor: %v", stopAt, last, nextErr)
		return false
	}
	if err != nil && !errors.Is(err, refstore.ErrLost) {
		t.Errorf("at call %d, %s: the lost holder: %v", stopAt, last, err)
	}
	after, stateErr := next.ws.State(ctx, "w0")
	if stateErr != nil || before != nil && after.WorkspaceState != before.WorkspaceState {
		t.Errorf("at call %d, %s (%v): the state was changed from\n%+v to\n%+v, %v", stopAt, last, err, before, after, stateErr)
		return false
	}
	// The next process finds everything in order, and closes the lost one's run.
	commands := st.commands()
	closer := st.machine(table, 0)
	res, err := closer.start(ctx)
	if err != nil || res.Run.State != record.RunCompleted || st.commands() != commands {
		t.Errorf("at call %d, %s: the next run is %+v after %d commands, %v; want no work", stopAt, last, res, st.commands()-commands, err)
		return false
	}
	if got, err := st.value("t1"); got != to.want || err != nil {
		t.Errorf("at call %d, %s: in the end t1 is %q, %v, want %q", stopAt, last, got, err, to.want)
	}
	st.check(ctx, map[eventstest.Edge]int{})
	for _, fault := range st.faults {
		t.Errorf("at call %d, %s: %s", stopAt, last, fault)
	}
	if ids := st.recorded(); !slices.Equal(ids, []string{res.Run.RunID}) {
		t.Errorf("at call %d, %s: records of runs are %v, want only %s", stopAt, last, ids, res.Run.RunID)
	}
	return false
}

func (s *remoteStore) last() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.calls[s.stopAt-1:s.stopAt], "")
}

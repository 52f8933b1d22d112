package history_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"e3/executions"
	"e3/internal/events"
	"e3/internal/format/record"
	"e3/internal/insight/history"
	"e3/internal/repo"
	"e3/objectstore"
	"e3/refstore"
	"e3/refstore/mem"
	"e3/workspace"
)

// now is the current time in all tests.
var now = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// memory is a store in memory with the further methods of a workspace's store.
type memory struct{ *mem.Store }

func (m memory) PutSync(ctx context.Context, r refstore.Record) (refstore.Version, error) {
	return m.Put(ctx, r)
}

func (memory) Sync(context.Context) error { return nil }

// An archive is a repository whose past is written by hand.
type archive struct {
	*testing.T
	history.Stores
	objects workspace.Objects
	records workspace.Records
}

// overArchives runs a test over each backend.
func overArchives(t *testing.T, test func(t *testing.T, a *archive)) {
	t.Run("fs", func(t *testing.T) {
		r := newRepo(t)
		test(t, newArchive(t, r.Records, r.Objects, r.Records))
	})
	t.Run("mem", func(t *testing.T) {
		m := memory{mem.New()}
		test(t, newArchive(t, m, newRepo(t).Objects, m))
	})
}

func newRepo(t testing.TB) *repo.Repo {
	t.Helper()
	root, err := repo.Create(filepath.Join(t.TempDir(), repo.DirName))
	if err != nil {
		t.Fatal(err)
	}
	r, err := repo.Open(context.Background(), root, repo.Options{Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return r
}

func newArchive(t *testing.T, records workspace.Records, objects workspace.Objects, locks refstore.Locker) *archive {
	return &archive{T: t, objects: objects, records: records, Stores: history.Stores{
		Records: records, Executions: executions.NewStore(records, objects),
		Runs: workspace.New(workspace.Stores{Records: records, Objects: objects, Locks: locks, Now: func() time.Time { return now }}).Runs,
	}}
}

func (a *archive) must(err error) {
	a.Helper()
	if err != nil {
		a.Fatal(err)
	}
}

// id is the id of a run or an execution that was made this many minutes ago.
func id(minutes int) string {
	ms := uint64(now.Add(-time.Duration(minutes) * time.Minute).UnixMilli())
	return fmt.Sprintf("%08x-%04x-7000-8000-%012x", ms>>16, ms&0xffff, minutes)
}

// at is the time of that id.
func at(minutes int) time.Time { return now.Add(-time.Duration(minutes) * time.Minute) }

// key is the key of a command on an input.
func key(command, input string) executions.Key {
	return executions.NewKey(objectstore.Sum([]byte(command)), []objectstore.Hash{objectstore.Sum([]byte(input))})
}

// log writes the events of a run that began this many minutes ago.
func (a *archive) log(ws string, minutes int, list ...events.Event) {
	a.Helper()
	l := events.Create(a.Records, ws, id(minutes), func() time.Time { return at(minutes) })
	for _, e := range list {
		l.Emit(e)
	}
	a.must(l.Close())
}

// append writes bytes to the log of a run.
func (a *archive) append(ws string, minutes int, text string) {
	a.Helper()
	k := refstore.Key{Partition: "EVENTS/" + ws, Sort: id(minutes)}
	info, err := a.Records.Size(a.Context(), k)
	a.must(err)
	a.must(a.Records.Append(a.Context(), k, info.Size, []byte(text)))
}

// An attempt and its record.
type made struct {
	id       int // minutes ago
	key      executions.Key
	ws, task string
	run      int
	state    record.State
	attempt  int64
	fields   []refstore.Field
}

func (a *archive) execution(m made) {
	a.Helper()
	s := record.Status{State: m.state, ExecutionID: id(m.id), StartedAt: at(m.id), CompletedAt: at(m.id).Add(1500 * time.Millisecond)}
	switch m.state {
	case record.Success:
		s.OutputHash = objectstore.Sum([]byte("output")).String()
	case record.Failed:
		s.ExitCode = 3
	case record.Error:
		s.Message = "timed out after 1s"
	}
	d := record.Detail{Attempt: max(m.attempt, 1), Worker: "ann@lab", Workspace: m.ws, Task: m.task, PeakRSS: 1 << 20}
	if m.run > 0 {
		d.RunID = id(m.run)
	}
	a.record(m.key, m.id, s.Encode(), append([]refstore.Field{{Name: "detail.beast2", Value: d.Encode()}}, m.fields...)...)
}

// record writes the record of an execution to the store.
func (a *archive) record(k executions.Key, minutes int, value []byte, fields ...refstore.Field) {
	a.Helper()
	_, err := a.Records.Put(a.Context(), refstore.Record{
		Key: refstore.Key{Partition: "EXECUTION/" + k.String(), Sort: id(minutes)}, Value: value, Fields: fields,
	})
	a.must(err)
	if _, ok := a.records.(memory); !ok {
		return // the folders are the records
	}
	for _, key := range []refstore.Key{{Partition: "TASKS", Sort: k.Task.String()}, {Partition: "INPUTS/" + k.Task.String(), Sort: k.Inputs.String()}} {
		if _, err := a.Records.Put(a.Context(), refstore.Record{Key: key}); !errors.Is(err, refstore.ErrConflict) {
			a.must(err)
		}
	}
}

func started(task string, k executions.Key, execution int, attempt int64) events.Event {
	return events.Event{Type: events.TaskStarted, Task: task, Execution: id(execution), Data: &events.Data{Key: k.String(), Attempt: attempt}}
}

func completed(task string, k executions.Key, execution int) events.Event {
	return events.Event{Type: events.TaskCompleted, Task: task, Execution: id(execution), Data: &events.Data{Key: k.String(), Attempt: 1, Duration: 1500, Output: "0123"}}
}

func failed(task string, k executions.Key, execution int, message string) events.Event {
	d := &events.Data{Key: k.String(), Attempt: 1, Duration: 1500, Message: message}
	if message == "" {
		d.ExitCode = 3
	}
	return events.Event{Type: events.TaskFailed, Task: task, Execution: id(execution), Data: d}
}

func cached(task string, k executions.Key, execution int) events.Event {
	return events.Event{Type: events.TaskCached, Task: task, Execution: id(execution), Data: &events.Data{Key: k.String(), Duration: 1500}}
}

// proven is the event of one task that a baseline proves.
func proven(task string, execution, baseline int) events.Event {
	return events.Event{Type: events.TaskCached, Task: task, Execution: id(execution), Data: &events.Data{As: id(baseline)}}
}

var (
	began = events.Event{Type: events.RunStarted, Data: &events.Data{Process: &events.Process{User: "bob", Host: "desk"}}}
	ended = events.Event{Type: events.RunCompleted}
)

// find returns the attempts of one task.
func (a *archive) find(task string, change ...func(*history.Query)) []history.Attempt {
	a.Helper()
	q := history.Query{Workspace: "prod", Tasks: []string{task}}
	for _, c := range change {
		c(&q)
	}
	found, err := history.Find(a.Context(), a.Stores, q)
	a.must(err)
	if len(found.Tasks) != 1 || found.Tasks[0].Name != task {
		a.Fatalf("asked for %s, got %+v", task, found.Tasks)
	}
	return found.Tasks[0].Attempts
}

func deep(q *history.Query) { q.Deep = true }

// line formats an attempt: id, status, runs, the run that made it, and the fault of its record.
func line(x *history.Attempt) string {
	minutes := func(id string) string {
		t, err := executions.ParseID(id)
		if err != nil {
			return id
		}
		return fmt.Sprint(int(now.Sub(t).Minutes()))
	}
	runs := make([]string, len(x.Runs))
	for i, r := range x.Runs {
		runs[i] = minutes(r)
	}
	text := fmt.Sprintf("%s %s by %s in %s", minutes(x.ExecutionID), x.Status, minutes(x.MadeBy), strings.Join(runs, ","))
	switch {
	case x.Pruned() != nil:
		text += " pruned"
	case x.Err != nil && x.Execution == nil:
		text += " gone"
	}
	return text
}

// want checks attempts as line shows them.
func (a *archive) want(got []history.Attempt, want ...string) {
	a.Helper()
	lines := make([]string, len(got))
	for i := range got {
		lines[i] = line(&got[i])
	}
	if strings.Join(lines, "\n") != strings.Join(want, "\n") {
		a.Errorf("got\n\t%s\nwant\n\t%s", strings.Join(lines, "\n\t"), strings.Join(want, "\n\t"))
	}
}

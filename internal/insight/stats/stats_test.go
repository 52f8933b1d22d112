package stats_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"e3/executions"
	"e3/internal/events"
	"e3/internal/insight/stats"
	"e3/internal/testing/suite"
	"e3/refstore/mem"
)

// A story writes runs with increasing ids.
type story struct {
	t       testing.TB
	records *mem.Store
	now     time.Time
}

func newStory(t testing.TB) *story {
	return &story{t, mem.New(), time.Now().Add(-1000 * time.Hour).Truncate(time.Second)}
}

// run writes a run of a workspace by a user and returns its id.
func (s *story) run(ws, user string, list ...events.Event) string {
	s.t.Helper()
	id, err := executions.NewID()
	if err != nil {
		s.t.Fatal(err)
	}
	log := events.Create(s.records, ws, id, func() time.Time { return s.now })
	log.Emit(events.Event{Type: events.RunStarted, Data: &events.Data{Process: &events.Process{User: user, Host: "lab"}}})
	for _, e := range list {
		log.Emit(e)
	}
	log.Emit(events.Event{Type: events.RunCompleted, Data: &events.Data{Requests: &events.Traffic{Reads: 1, Puts: 2}}})
	if err := log.Close(); err != nil {
		s.t.Fatal(err)
	}
	s.now = s.now.Add(time.Hour)
	return id
}

func made(task string, ms int64) events.Event {
	return events.Event{Type: events.TaskCompleted, Task: task, Execution: "x" + task, Data: &events.Data{Key: "k/" + task, Duration: ms, Bytes: 10}}
}

func hit(task string, ms int64) events.Event {
	return events.Event{Type: events.TaskCached, Task: task, Execution: "x" + task, Data: &events.Data{Key: "k/" + task, Duration: ms}}
}

func proven(task, as string) events.Event {
	return events.Event{Type: events.TaskCached, Task: task, Execution: "x" + task, Data: &events.Data{As: as}}
}

func bulk(n int, as string) events.Event {
	return events.Event{Type: events.TaskCached, Data: &events.Data{Tasks: n, As: as}}
}

func failed(task string, ms int64, change func(*events.Data)) events.Event {
	e := events.Event{Type: events.TaskFailed, Task: task, Execution: "f" + task, Data: &events.Data{Duration: ms, ExitCode: 1}}
	if change != nil {
		change(e.Data)
	}
	return e
}

func (s *story) read(o stats.Options) *stats.Stats {
	s.t.Helper()
	got, err := stats.Read(s.t.Context(), s.records, o)
	if err != nil {
		s.t.Fatal(err)
	}
	return got
}

// The effect of each kind of event, including bulk events and events without a duration.
func TestSums(t *testing.T) {
	for _, test := range []struct {
		name string
		runs func(s *story)
		want stats.Sums // of the last run
	}{
		{"executed", func(s *story) { s.run("w", "ann", made("a", 100), made("b", 50)) },
			stats.Sums{Executed: 2, ExecutedMs: 150, Bytes: 20}},
		{"looked up", func(s *story) { s.run("w", "ann", hit("a", 100)) }, stats.Sums{Hits: 1, SavedMs: 100}},
		{"failures", func(s *story) {
			s.run("w", "ann", failed("a", 100, nil), failed("a", 100, nil), // reported again at the end
				failed("b", 7, func(d *events.Data) { d.Shared = true }),   // another run's
				failed("b", 7, func(d *events.Data) { d.Block = "block" }), // had ended before
				events.Event{Type: events.TaskFailed, Task: "c", Data: &events.Data{Message: "no input"}})
		}, stats.Sums{Executed: 1, Failures: 1, ExecutedMs: 100}},
		{"proven one by one", func(s *story) {
			as := s.run("w", "ann", made("a", 100), hit("b", 50))
			as = s.run("w", "ann", proven("a", as), proven("b", as))
			s.run("w", "ann", proven("a", as), proven("b", as))
		}, stats.Sums{Hits: 2, SavedMs: 150}},
		{"proven by a run of another workspace", func(s *story) {
			as := s.run("other", "ann", made("a", 100))
			s.run("w", "ann", proven("a", as))
		}, stats.Sums{Hits: 1, SavedMs: 100}},
		{"many", func(s *story) {
			as := s.run("w", "ann", made("a", 100), made("b", 50), made("c", 1))
			as = s.run("w", "ann", bulk(3, as))
			s.run("w", "ann", bulk(3, as))
		}, stats.Sums{Hits: 3, SavedMs: 151}},
		{"many, and some that are not among them", func(s *story) {
			as := s.run("w", "ann", made("a", 100), made("b", 50), made("c", 1))
			s.run("w", "ann", bulk(2, as), made("b", 70))
		}, stats.Sums{Hits: 2, SavedMs: 101, Executed: 1, ExecutedMs: 70, Bytes: 10}},
		{"many of another workspace", func(s *story) {
			as := s.run("other", "ann", made("a", 100), made("b", 50), made("c", 1))
			s.run("w", "ann", bulk(2, as), made("b", 70))
		}, stats.Sums{Hits: 2, SavedMs: 101, Executed: 1, ExecutedMs: 70, Bytes: 10}},
		{"not known any more", func(s *story) { s.run("w", "ann", proven("a", "gone"), bulk(5, "gone")) }, stats.Sums{Hits: 6, Untimed: 6}},
		{"more than are known", func(s *story) {
			as := s.run("w", "ann", made("a", 100))
			s.run("w", "ann", bulk(3, as))
		}, stats.Sums{Hits: 3, SavedMs: 100, Untimed: 2}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newStory(t)
			test.runs(s)
			test.want.Runs, test.want.Completed, test.want.Requests = 1, 1, events.Traffic{Reads: 1, Puts: 2}
			got := s.read(stats.Options{Workspace: "w", Since: s.now.Add(-90 * time.Minute)})
			if diff := cmp.Diff(test.want, got.Total.Sums); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestGroups(t *testing.T) {
	s := newStory(t)
	s.run("a", "ann", made("t", 10))
	s.run("b", "bob", made("t", 20))
	middle := s.now
	s.run("a", "bob", hit("t", 10))
	names := func(list []stats.Group) (all []string) {
		for _, g := range list {
			all = append(all, fmt.Sprintf("%s %d %d %d", g.Name, g.Runs, g.Hits, g.Executed))
		}
		return all
	}
	got := s.read(stats.Options{})
	if diff := cmp.Diff([]string{"a 2 1 1", "b 1 0 1"}, names(got.Workspaces)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"ann 1 0 1", "bob 2 1 1"}, names(got.Users)); diff != "" {
		t.Error(diff)
	}
	if rate := got.Total.HitRate; rate < 0.33 || rate > 0.34 {
		t.Errorf("the hit rate is %f", rate)
	}
	if diff := cmp.Diff([]string{"a 1 0 1", "b 1 0 1"}, names(s.read(stats.Options{Until: middle}).Workspaces)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"a 1 1 0"}, names(s.read(stats.Options{Since: middle}).Workspaces)); diff != "" {
		t.Error(diff)
	}
	if got := s.read(stats.Options{Workspace: "c"}); got.Total.Runs != 0 || got.Total.HitRate != 0 {
		t.Errorf("of no run: %+v", got.Total)
	}
}

// A thousand runs of a hundred tasks are added up quickly; the test logs the time.
func TestThousandRuns(t *testing.T) {
	const runs, tasks = 1000, 100
	s := newStory(t)
	for i := range runs {
		var list []events.Event
		for j := range tasks {
			if (i+j)%10 == 0 {
				list = append(list, made(fmt.Sprint("task", j), 1000))
			} else {
				list = append(list, hit(fmt.Sprint("task", j), 1000))
			}
		}
		s.run(fmt.Sprint("w", i%5), fmt.Sprint("user", i%3), list...)
	}
	var got *stats.Stats
	suite.Cheap(t, 30*time.Second, func() { got = s.read(stats.Options{}) })
	if want := (stats.Sums{
		Runs: runs, Completed: runs, Hits: runs * tasks * 9 / 10, Executed: runs * tasks / 10, SavedMs: runs * tasks * 900, ExecutedMs: runs * tasks * 100,
		Bytes: runs * tasks, Requests: events.Traffic{Reads: runs, Puts: 2 * runs},
	}); got.Total.Sums != want {
		t.Errorf("got %+v, want %+v", got.Total, want)
	}
}

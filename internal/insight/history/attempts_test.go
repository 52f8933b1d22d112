package history_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"e3/executions"
	"e3/internal/events"
	"e3/internal/format/record"
	"e3/internal/insight/history"
	"e3/internal/insight/runview"
	"e3/objectstore"
	"e3/refstore"
)

// The command changed twice and the input once; each is an attempt of the same name, the latest first.
func TestEveryCommandAndInput(t *testing.T) {
	overArchives(t, func(t *testing.T, a *archive) {
		keys := []executions.Key{key("one", "x"), key("two", "x"), key("three", "x"), key("three", "y")}
		for i, k := range keys {
			run := 90 - 20*i
			a.execution(made{id: run - 1, key: k, ws: "prod", task: "train", run: run, state: record.Success})
			a.log("prod", run, began, started("train", k, run-1, 1), completed("train", k, run-1), ended)
		}
		a.log("prod", 20, began, cached("train", keys[0], 89), ended)
		a.log("prod", 10, began, proven("train", 89, 20), ended)
		a.want(a.find("train"),
			"29 success by 30 in 30", "49 success by 50 in 50", "69 success by 70 in 70", "89 success by 90 in 90,20,10")
		got := a.find("train")[3]
		if got.Key != keys[0] || got.Duration != 1500*time.Millisecond || !got.Timed || got.Worker != "ann@lab" || got.Execution == nil || got.State != runview.TaskSuccess {
			t.Errorf("the first attempt is %+v", got)
		}
		if runs := got.Answered(); len(runs) != 2 || runs[0] != id(20) || runs[1] != id(10) {
			t.Errorf("it answered %v", runs)
		}
		a.want(a.find("trains"))
	})
}

func TestRetries(t *testing.T) {
	overArchives(t, func(t *testing.T, a *archive) {
		k := key("flaky", "x")
		for i, s := range []record.State{record.Failed, record.Error, record.Success} {
			a.execution(made{id: 29 - i, key: k, ws: "prod", task: "flaky", run: 30, state: s, attempt: int64(i + 1)})
		}
		a.log("prod", 30, began,
			started("flaky", k, 29, 1), failed("flaky", k, 29, ""), events.Event{Type: events.TaskRetryScheduled, Task: "flaky"},
			started("flaky", k, 28, 2), failed("flaky", k, 28, "timed out after 1s"), events.Event{Type: events.TaskRetryScheduled, Task: "flaky"},
			started("flaky", k, 27, 3), completed("flaky", k, 27), ended)
		got := a.find("flaky")
		a.want(got, "27 success by 30 in 30", "28 error by 30 in 30", "29 failed by 30 in 30")
		if got[0].Number != 3 || got[1].Message != "timed out after 1s" || got[2].ExitCode != 3 {
			t.Errorf("got %+v", got)
		}
	})
}

// Attempts that only events describe are reported by the events.
func TestRecordsThatAreGone(t *testing.T) {
	overArchives(t, func(t *testing.T, a *archive) {
		k := key("c", "x")
		a.log("prod", 50, began, started("t", k, 49, 1), completed("t", k, 49), ended)
		a.log("prod", 40, began, started("t", k, 39, 2), failed("t", k, 39, ""), ended)
		a.log("prod", 30, began, started("t", k, 29, 1), failed("t", k, 29, "killed by signal 9"), ended)
		a.log("prod", 20, began, started("t", k, 19, 1))
		a.log("prod", 10, began, proven("t", 90, 60), ended)
		got := a.find("t")
		a.want(got, "19 interrupted by 20 in 20 gone", "29 error by 30 in 30 gone", "39 failed by 40 in 40 gone", "49 success by 50 in 50 gone",
			"90 success by  in 10 gone")
		for _, x := range got {
			if !errors.Is(x.Err, executions.ErrNotFound) || x.Execution != nil {
				t.Errorf("%s: %v", line(&x), x.Err)
			}
		}
		x := got[2]
		if x.Number != 2 || x.ExitCode != 3 || x.Duration != 1500*time.Millisecond || !x.Timed || x.Worker != "bob@desk" || x.Key != k || !x.At().Equal(at(40)) {
			t.Errorf("got %+v", x)
		}
		if got[4].Timed {
			t.Error("a proven task's event does not tell how long it took")
		}
	})
}

func TestPruned(t *testing.T) {
	overArchives(t, func(t *testing.T, a *archive) {
		k := key("c", "x")
		stones := record.Tombstones{
			{InputsHash: k.Inputs.String(), ExecutionID: id(49), OutputHash: k.Task.String(), PrunedAt: at(5), By: "ann@lab", Reason: "older than 30d"},
			{InputsHash: k.Inputs.String(), ExecutionID: id(45), PrunedAt: at(5), By: "ann@lab"}, // of another name
		}
		_, err := a.Records.Put(t.Context(), refstore.Record{Key: refstore.Key{Partition: "TOMBSTONE", Sort: k.Task.String()}, Value: stones.Encode()})
		a.must(err)
		a.log("prod", 50, began, started("t", k, 49, 1), completed("t", k, 49), ended)
		a.log("prod", 40, began, started("t", k, 39, 1), completed("t", k, 39), ended)
		got := a.find("t")
		a.want(got, "39 success by 40 in 40 gone", "49 success by 50 in 50 pruned")
		if s := got[1].Pruned(); s == nil || s.By != "ann@lab" || s.Reason != "older than 30d" || !errors.Is(got[1].Err, executions.ErrNotFound) {
			t.Errorf("pruned: %+v, %v", s, got[1].Err)
		}
	})
}

// An unreadable record is distinguished from a missing one.
func TestMalformed(t *testing.T) {
	overArchives(t, func(t *testing.T, a *archive) {
		k := key("c", "x")
		for _, minutes := range []int{49, 35} {
			a.record(k, minutes, []byte("garbage"))
		}
		a.log("prod", 50, began, started("t", k, 49, 1), failed("t", k, 49, ""), ended)
		got := a.find("t")
		a.want(got, "35 unknown by  in  gone", "49 failed by 50 in 50 gone")
		for _, x := range got {
			if !errors.Is(x.Err, executions.ErrMalformed) {
				t.Errorf("%s: %v", line(&x), x.Err)
			}
		}
	})
}

func TestRejectedAndImported(t *testing.T) {
	overArchives(t, func(t *testing.T, a *archive) {
		k := key("c", "x")
		a.execution(made{id: 49, key: k, ws: "prod", task: "t", run: 50, state: record.Success, fields: []refstore.Field{
			{Name: "rejected.beast2", Value: (&record.Rejection{Rejected: true, By: "eve", At: at(1)}).Encode()},
			{Name: "provenance.beast2", Value: (&record.Provenance{Steps: []record.Step{{By: "cas@far", ImportedAt: at(2)}}}).Encode()},
		}})
		a.log("prod", 10, began, cached("t", k, 49), ended)
		got := a.find("t")
		a.want(got, "49 success by 50 in 10")
		if e := got[0].Execution; !e.Rejected() || e.Provenance == nil || e.Provenance.Steps[0].By != "cas@far" {
			t.Errorf("got %+v", e)
		}
	})
}

// Tasks of another name or workspace may have the same key. Their executions do not belong to the task's history,
// unless the task used their results.
func TestSameKeyElsewhere(t *testing.T) {
	overArchives(t, func(t *testing.T, a *archive) {
		k := key("c", "x")
		a.execution(made{id: 59, key: k, ws: "dev", task: "t", run: 60, state: record.Success})
		a.execution(made{id: 49, key: k, ws: "dev", task: "t", run: 50, state: record.Success})
		a.execution(made{id: 39, key: k, ws: "prod", task: "other", run: 40, state: record.Success})
		a.execution(made{id: 29, key: k, ws: "prod", task: "t", run: 30, state: record.Failed})
		a.log("prod", 10, began, cached("t", k, 49), ended)
		a.want(a.find("t"), "29 failed by 30 in ", "49 success by 50 in 10")
		a.want(a.find("other"), []string(nil)...)
		a.want(a.find("other", deep), "39 success by 40 in ")
	})
}

// Two runs wait for one failure, which belongs to the run that made it.
func TestSharedFailure(t *testing.T) {
	overArchives(t, func(t *testing.T, a *archive) {
		k := key("c", "x")
		shared := failed("t", k, 29, "")
		shared.Data.Shared = true
		a.log("dev", 30, began, started("t", k, 29, 1), failed("t", k, 29, ""), ended)
		a.log("prod", 28, began, shared, ended)
		a.want(a.find("t"), "29 failed by  in 28 gone")
		a.execution(made{id: 29, key: k, ws: "dev", task: "t", run: 30, state: record.Failed})
		a.want(a.find("t"), "29 failed by 30 in 28")
	})
}

// Events are gone or never existed: the details of executions name the task.
func TestDeep(t *testing.T) {
	overArchives(t, func(t *testing.T, a *archive) {
		old, new := key("old", "x"), key("new", "x")
		a.execution(made{id: 89, key: old, ws: "prod", task: "t", run: 90, state: record.Success})
		a.execution(made{id: 79, key: old, ws: "dev", task: "t", run: 80, state: record.Success})
		a.execution(made{id: 9, key: new, ws: "prod", task: "t", run: 10, state: record.Success})
		a.record(old, 85, []byte("garbage"))
		a.log("prod", 10, began, started("t", new, 9, 1), completed("t", new, 9), ended)
		a.want(a.find("t"), "9 success by 10 in 10")
		a.want(a.find("t", deep), "9 success by 10 in 10", "89 success by 90 in ")
	})
}

// A damaged log is read up to the damage.
func TestDamagedLog(t *testing.T) {
	overArchives(t, func(t *testing.T, a *archive) {
		k := key("c", "x")
		a.log("prod", 50, began, started("t", k, 49, 1), completed("t", k, 49))
		a.append("prod", 50, `{"seq":4,"type":"task.completed","task":"t"}`+"\n")
		a.log("prod", 40, began, started("t", k, 39, 1), completed("t", k, 39), ended)
		a.log("prod", 30, began, started("t", k, 29, 1))
		a.append("prod", 30, `{"seq":3,"ti`) // torn, which is no damage
		found, err := history.Find(t.Context(), a.Stores, history.Query{Workspace: "prod", Tasks: []string{"t"}})
		a.must(err)
		a.want(found.Tasks[0].Attempts, "29 interrupted by 30 in 30 gone", "39 success by 40 in 40 gone", "49 success by 50 in 50 gone")
		if len(found.Damaged) != 1 {
			t.Errorf("damaged: %v, want one log", found.Damaged)
		}
	})
}

// A failure for want of an input has no execution.
func TestNotStarted(t *testing.T) {
	overArchives(t, func(t *testing.T, a *archive) {
		k := key("c", "x")
		a.log("prod", 50, began, started("t", k, 49, 1), completed("t", k, 49), ended)
		a.log("prod", 40, began, events.Event{Type: events.TaskFailed, Task: "t", Data: &events.Data{Attempt: 1, Reason: "input", Message: "input x is not there"}}, ended)
		a.want(a.find("t"), "49 success by 50 in 50 gone")
		got := a.find("t", func(q *history.Query) { q.NotStarted = true })
		a.want(got, " error by 40 in 40", "49 success by 50 in 50 gone")
		if got[0].Message != "input x is not there" || got[0].Timed {
			t.Errorf("got %+v", got[0])
		}
	})
}

// One query finds several tasks, each with its own attempts.
func TestSeveralTasks(t *testing.T) {
	overArchives(t, func(t *testing.T, a *archive) {
		k := key("c", "x")
		a.execution(made{id: 49, key: k, ws: "prod", task: "t[1]", run: 50, state: record.Success})
		a.execution(made{id: 48, key: k, ws: "prod", task: "t[2]", run: 50, state: record.Failed})
		a.log("prod", 50, began, started("t[1]", k, 49, 1), completed("t[1]", k, 49), started("t[2]", k, 48, 1), failed("t[2]", k, 48, ""), ended)
		found, err := history.Find(t.Context(), a.Stores, history.Query{Workspace: "prod", Pattern: "t*"})
		a.must(err)
		if len(found.Tasks) != 2 || found.Tasks[0].Name != "t[1]" || found.Tasks[1].Name != "t[2]" {
			t.Fatalf("got %+v", found.Tasks)
		}
		a.want(found.Tasks[0].Attempts, "49 success by 50 in 50")
		a.want(found.Tasks[1].Attempts, "48 failed by 50 in 50")
		a.want(a.find("none"))
	})
}

// Hostile events cause odd attempts and nothing worse.
func TestHostileEvents(t *testing.T) {
	overArchives(t, func(t *testing.T, a *archive) {
		a.log("prod", 50,
			events.Event{Type: events.TaskStarted, Task: "t"},
			events.Event{Type: events.TaskCompleted, Task: "t", Execution: "../../x", Data: &events.Data{Key: "no/key", Duration: 1 << 62}},
			events.Event{Type: events.TaskFailed, Task: "t", Execution: "y\x00", Data: &events.Data{Key: key("c", "x").String(), Duration: -5}},
			events.Event{Type: events.TaskCached, Data: &events.Data{Tasks: -1, As: id(50)}},
			events.Event{Type: events.TaskCreated, Data: &events.Data{Tasks: 1 << 62}},
			events.Event{Type: events.RunStarted, Data: &events.Data{PackageHash: "../../etc"}},
		)
		got := a.find("t")
		if len(got) != 2 {
			t.Fatalf("got %+v", got)
		}
		for _, x := range got {
			if x.Duration < 0 || x.Err == nil {
				t.Errorf("got %+v", x)
			}
		}
	})
}

func TestCancelled(t *testing.T) {
	overArchives(t, func(t *testing.T, a *archive) {
		a.log("prod", 50, began, ended)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := history.Attempts(ctx, a.Stores, "prod", "t"); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	})
}

// The hash of a package that the events name, but that is gone, is no fault.
func TestPackageGone(t *testing.T) {
	overArchives(t, func(t *testing.T, a *archive) {
		first := began
		first.Data = &events.Data{PackageHash: objectstore.Sum([]byte("gone")).String()}
		a.log("prod", 50, first, proven("t", 90, 60), events.Event{Type: events.TaskCached, Data: &events.Data{Tasks: 101, As: id(60)}}, ended)
		a.want(a.find("t"), "90 success by  in 50 gone")
	})
}

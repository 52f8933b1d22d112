package workspace_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"e3/internal/events"
	"e3/refstore"
)

// logged returns the ids of the runs whose events are stored.
func (p *place) logged(ws string) []string {
	p.t.Helper()
	runs, err := events.Runs(p.ctx, p.repo.Records, ws)
	if err != nil {
		p.t.Fatal(err)
	}
	var ids []string
	for _, r := range runs {
		ids = append(ids, r.Run)
	}
	return ids
}

func TestCleanEvents(t *testing.T) {
	p := newPlace(t)
	p.write("a.txt", "a")
	p.write("b.txt", "b")
	p.deploy(twoInputs)
	var ids []string
	for i := range 3 {
		p.write("a.txt", fmt.Sprint("a", i))
		ids = append(ids, p.start().Run.RunID)
	}
	later := time.Now().Add(time.Hour)
	if cleaned, err := p.ws.Cleaner.CleanEvents(p.ctx, "", time.Now().Add(-time.Hour), false); err != nil || len(cleaned) > 0 {
		t.Errorf("of young runs: %v, %v", cleaned, err)
	}
	cleaned, err := p.ws.Cleaner.CleanEvents(p.ctx, "", later, true)
	if err != nil || len(cleaned) != 2 || cleaned[0].Run != ids[0] || cleaned[0].Workspace != "w" || cleaned[0].Events < 4 {
		t.Errorf("dry: %+v, %v", cleaned, err)
	}
	if got := p.logged("w"); !slices.Equal(got, ids) {
		t.Errorf("after a dry run: %v, want %v", got, ids)
	}
	if _, err := p.ws.Cleaner.CleanEvents(p.ctx, "w", later, false); err != nil {
		t.Fatal(err)
	}
	if got := p.logged("w"); !slices.Equal(got, ids[2:]) {
		t.Errorf("left are %v, want the run that is shown: %v", got, ids[2:])
	}
	if _, err := p.ws.Runs.Report(p.ctx, "w", ""); err != nil {
		t.Errorf("the run that is shown: %v", err)
	}
	p.start() // reads the remaining run as its baseline
	// While it runs, its events and its predecessor's stay.
	p.write("a.txt", "another")
	run := p.run
	p.run = func(ctx context.Context, script, dir string) int {
		before := p.logged("w") // the run that was shown first; its successor; perhaps the run at work
		if _, err := p.ws.Cleaner.CleanEvents(ctx, "", time.Now().Add(time.Hour), false); err != nil {
			t.Error(err)
		}
		if got := p.logged("w"); !slices.Equal(got, before[1:]) {
			t.Errorf("while it runs %v are left of %v", got, before)
		}
		return run(ctx, script, dir)
	}
	p.start()
	p.run = run
	// The events of a removed workspace can all be removed.
	if err := p.ws.Cleaner.Remove(p.ctx, "w"); err != nil {
		t.Fatal(err)
	}
	if got := p.logged(""); len(got) == 0 {
		t.Error("the events went with the workspace")
	}
	if _, err := p.ws.Cleaner.CleanEvents(p.ctx, "", later, false); err != nil {
		t.Fatal(err)
	}
	if got := p.logged(""); len(got) > 0 {
		t.Errorf("left of the workspace that is gone: %v", got)
	}
}

// One start by a clock that is ahead removes the events of no run.
func TestRetireByAClockAhead(t *testing.T) {
	p := newPlace(t)
	p.write("a.txt", "a")
	p.write("b.txt", "b")
	p.deploy(twoInputs)
	for i := range 3 {
		p.write("a.txt", fmt.Sprint("a", i))
		p.start()
	}
	began := time.Now()
	at := func(after time.Duration) int {
		t.Helper()
		p.ws.Now = func() time.Time { return began.Add(after) }
		cleaned, err := p.ws.Cleaner.Retire(p.ctx, func(context.Context) (time.Duration, error) { return 90 * 24 * time.Hour, nil })
		if err != nil {
			t.Fatal(err)
		}
		return len(cleaned)
	}
	const day = 24 * time.Hour
	for _, step := range []struct {
		after time.Duration
		gone  int
	}{
		{0, 0}, {100 * day, 0}, {time.Hour, 0}, {100*day + time.Hour, 0}, {2 * time.Hour, 0}, // by two machines in turn
		{89 * day, 0}, {91 * day, 0}, {92*day + time.Hour, 2}, // time passes
	} {
		if gone := at(step.after); gone != step.gone {
			t.Errorf("%v later: the events of %d runs are gone, want %d", step.after, gone, step.gone)
		}
	}
}

func TestRetire(t *testing.T) {
	p := newPlace(t)
	p.write("a.txt", "a")
	p.write("b.txt", "b")
	p.deploy(twoInputs)
	asked := 0
	retire := func(keep time.Duration) int {
		t.Helper()
		cleaned, err := p.ws.Cleaner.Retire(p.ctx, func(context.Context) (time.Duration, error) {
			asked++
			return keep, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return len(cleaned)
	}
	for i := range 2 {
		p.write("a.txt", fmt.Sprint("a", i))
		p.start()
	}
	now := time.Now()
	p.ws.Now = func() time.Time { return now }
	for _, step := range []struct {
		name        string
		after       time.Duration
		keep        time.Duration
		asked, gone int
	}{
		{"the first time", 0, 24 * time.Hour, 1, 0},
		{"the same day", 23 * time.Hour, time.Hour, 0, 0},
		{"the next day, for ever", 25 * time.Hour, 0, 1, 0},
		{"the day after", 25 * time.Hour, time.Hour, 1, 1},
		{"the clock was put back", -1000 * time.Hour, time.Hour, 1, 0},
	} {
		now = now.Add(step.after)
		asked = 0
		if gone := retire(step.keep); gone != step.gone || asked != step.asked {
			t.Errorf("%s: %d gone, asked %d times; want %d, %d", step.name, gone, asked, step.gone, step.asked)
		}
	}
	broken := errors.New("settings are damaged")
	now = now.Add(48 * time.Hour)
	if _, err := p.ws.Cleaner.Retire(p.ctx, func(context.Context) (time.Duration, error) { return 0, broken }); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
	key := refstore.Key{Partition: "INDEX/state", Sort: "events-cleaned"}
	rec, err := p.repo.Records.Get(p.ctx, key)
	if err != nil {
		t.Fatal(err)
	}
	rec.Value = []byte("nonsense")
	if _, err := p.repo.Records.Put(p.ctx, rec); err != nil {
		t.Fatal(err)
	}
	asked = 0
	if retire(0); asked != 1 {
		t.Error("a stamp that says nothing is taken for one of today")
	}
}

package workspace_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"e3/executions"
	"e3/internal/format/record"
	"e3/refstore"
	"e3/workspace"
)

// putRun puts the record of a completed run in place.
func (p *place) putRun(ws, id string, state record.RunState, fields ...refstore.Field) {
	p.t.Helper()
	at := time.UnixMilli(1_700_000_000_000)
	run := &record.Run{RunID: id, WorkspaceName: ws, PackageRef: "p@0.0.0", StartedAt: at, CompletedAt: at.Add(time.Second),
		State: state, InputSnapshot: strings.Repeat("0", 64)}
	if state == record.RunRunning {
		run.CompletedAt = time.Time{}
	}
	if _, err := p.repo.Records.Put(p.ctx, refstore.Record{Key: runRecord(ws, id), Value: run.Encode(), Fields: fields}); err != nil {
		p.t.Fatal(err)
	}
}

func runRecord(ws, id string) refstore.Key {
	return refstore.Key{Partition: "DATAFLOW/" + ws, Sort: id}
}

// Ids of runs, in order: the first is in the past, the others are far in the future.
const (
	oldRun   = "018f3b4c-9a2d-7def-8abc-123456789012"
	laterRun = "f18f3b4c-9a2d-7def-8abc-123456789012"
	lastRun  = "f18f3b4c-9a2d-7def-8abc-123456789013"
)

func (p *place) wantShown(want string) {
	p.t.Helper()
	r, err := p.ws.Runs.Report(p.ctx, "w", "")
	if err != nil {
		p.t.Fatal(err)
	}
	if r.RunID != want {
		p.t.Errorf("run %s is shown, want %s", r.RunID, want)
	}
	if te, err := p.ws.Runs.Summary(p.ctx, "w"); err != nil || te.RunID != want {
		p.t.Errorf("the summary is of %+v, %v, want %s", te, err, want)
	}
}

// currentRun makes the state name a run.
func (p *place) currentRun(id string) {
	p.t.Helper()
	key := refstore.Key{Partition: "WORKSPACE", Sort: "w"}
	rec, err := p.repo.Records.Get(p.ctx, key)
	if err != nil {
		p.t.Fatal(err)
	}
	s, err := record.DecodeWorkspaceState(rec.Value)
	if err != nil {
		p.t.Fatal(err)
	}
	s.CurrentRunID = id
	rec.Value = s.Encode()
	if _, err := p.repo.Records.Put(p.ctx, rec); err != nil {
		p.t.Fatal(err)
	}
}

func TestImportedRuns(t *testing.T) {
	p := newPlace(t)
	var unknown *workspace.UnknownError
	if _, err := p.ws.Runs.Report(p.ctx, "w", ""); !errors.As(err, &unknown) || unknown.What != "workspace" {
		t.Errorf("before there is anything: %v", err)
	}
	p.putRun("w", oldRun, record.RunCompleted, provenance())
	p.putRun("w", laterRun, record.RunFailed, provenance())
	p.putRun("w", lastRun, record.RunRunning, provenance())
	p.wantShown(lastRun) // there is no workspace yet
	if r, err := p.ws.Runs.Report(p.ctx, "w", lastRun); err != nil || r.Status() != "unfinished" || r.Provenance == nil {
		t.Errorf("a run that was exported while it ran: %+v, %v", r, err)
	}
	if r, err := p.ws.Runs.Report(p.ctx, "w", "018F"); err != nil || r.RunID != oldRun || r.Status() != "completed" {
		t.Errorf("a run by a prefix of its id: %+v, %v", r, err)
	}
	if _, err := p.ws.Runs.Report(p.ctx, "w", "f18f"); !errors.Is(err, executions.ErrAmbiguous) {
		t.Errorf("a prefix of two ids: %v", err)
	}
	if _, err := p.ws.Runs.Report(p.ctx, "w", "e"); !errors.As(err, &unknown) || unknown.What != "run" || !slices.Equal(unknown.Known, []string{lastRun, laterRun, oldRun}) {
		t.Errorf("a prefix of no id: %v", err)
	}
	for _, odd := range []string{"v", "../w", "w/x", ""} {
		if _, err := p.ws.Runs.Report(p.ctx, odd, "f"); err == nil {
			t.Errorf("workspace %q has a run", odd)
		}
	}

	p.write("a.txt", "1")
	p.deploy("inputs: {a: {file: a.txt}}", "tasks:", "  t: {in: [a], out: o, run: cat $a}")
	p.wantShown(lastRun)
	p.currentRun(laterRun)
	p.wantShown(laterRun)
	p.currentRun("018f3b4c-0000-7def-8abc-123456789012") // a run without a record
	p.wantShown(lastRun)
	p.currentRun(laterRun)

	// A start neither closes nor deletes imported runs, and its own run is shown.
	first := p.start().Run.RunID
	p.wantShown(first)
	if s, err := p.ws.State(p.ctx, "w"); err != nil || s.CurrentRunID != first {
		t.Errorf("the state names %q, %v, want %s", s.CurrentRunID, err, first)
	}
	second := p.start().Run.RunID
	p.wantShown(second)
	var ids []string
	for rec, err := range p.repo.Records.List(p.ctx, refstore.Query{Partition: "DATAFLOW/w", KeysOnly: true}) {
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, rec.Key.Sort)
	}
	if want := []string{oldRun, second, laterRun, lastRun}; !slices.Equal(ids, want) {
		t.Errorf("on record are %v, want %v", ids, want)
	}
	if r, err := p.ws.Runs.Report(p.ctx, "w", lastRun); err != nil || r.State != record.RunRunning {
		t.Errorf("a start has closed an imported run: %+v, %v", r, err)
	}
	if r, err := p.ws.Runs.Report(p.ctx, "w", second); err != nil || r.Provenance != nil {
		t.Errorf("the own run has provenance: %+v, %v", r, err)
	}

	// Removing the workspace removes imported runs.
	if err := p.ws.Cleaner.Remove(p.ctx, "w"); err != nil {
		t.Fatal(err)
	}
	if _, err := p.ws.Runs.Report(p.ctx, "w", ""); !errors.As(err, &unknown) || unknown.What != "workspace" {
		t.Errorf("after its removal: %v", err)
	}
}

// A workspace protects its own runs and the imported run that its state names; runs without a workspace can only be
// removed.
func TestRunsInUse(t *testing.T) {
	p := newPlace(t)
	p.putRun("w", oldRun, record.RunCompleted, provenance())
	p.putRun("w", laterRun, record.RunRunning, provenance())
	inUse := func(want ...string) {
		t.Helper()
		runs, err := p.ws.Runs.InUse(p.ctx, "w")
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, r := range runs {
			got = append(got, r.RunID)
		}
		if !slices.Equal(got, want) {
			t.Errorf("in use: got %q, want %q", got, want)
		}
	}
	if _, err := p.ws.Runs.InUse(p.ctx, "w"); !errors.Is(err, workspace.ErrNotFound) {
		t.Errorf("without a workspace: %v", err)
	}
	if n, err := p.ws.Cleaner.RemoveRuns(p.ctx, "w"); n != 2 || err != nil {
		t.Errorf("removed %d, %v, want 2", n, err)
	}
	if n, err := p.ws.Cleaner.RemoveRuns(p.ctx, "w"); n != 0 || !errors.Is(err, workspace.ErrNotFound) {
		t.Errorf("removed once more: %d, %v", n, err)
	}

	p.putRun("w", oldRun, record.RunCompleted, provenance())
	p.putRun("w", laterRun, record.RunRunning, provenance())
	p.write("a.txt", "1")
	p.deploy("inputs: {a: {file: a.txt}}", "tasks:", "  t: {in: [a], out: o, run: cat $a}")
	inUse()
	p.currentRun(oldRun)
	inUse(oldRun)
	inUse(p.start().Run.RunID)
	if n, err := p.ws.Cleaner.RemoveRuns(p.ctx, "w"); n != 0 || !errors.Is(err, workspace.ErrExists) {
		t.Errorf("removed of a workspace: %d, %v", n, err)
	}
}

// A run that died after its last record becomes the current one, even if an imported run with a greater id was.
func TestDeadRunOvertakesImported(t *testing.T) {
	p := newPlace(t)
	p.write("a.txt", "1")
	p.deploy("inputs: {a: {file: a.txt}}", "tasks:", "  t: {in: [a], out: o, run: cat $a}")
	p.putRun("w", laterRun, record.RunCompleted, provenance())
	p.currentRun(laterRun)
	p.putRun("w", oldRun, record.RunCompleted) // no event says that it has ended
	g := newGate()
	p.run = func(ctx context.Context, script, dir string) int { g.wait(); return shell(ctx, script, dir) }
	done := make(chan struct{})
	go func() { defer close(done); p.start() }()
	<-g.reached
	if s, err := p.ws.State(p.ctx, "w"); err != nil || s.CurrentRunID != oldRun {
		t.Errorf("the state names %q, %v, want %s", s.CurrentRunID, err, oldRun)
	}
	close(g.open)
	<-done
}

// A proof is void once the record that it refers to is another repository's.
func TestImportedRunProvesNothing(t *testing.T) {
	p := newPlace(t)
	p.write("a.txt", "1")
	p.deploy("inputs: {a: {file: a.txt}}", "tasks:", "  t: {in: [a], out: o, run: cat $a}")
	run := p.start().Run.RunID
	rec, err := p.repo.Records.Get(p.ctx, runRecord("w", run))
	if err != nil {
		t.Fatal(err)
	}
	p.forget(rec.Key)
	rec.Version, rec.Fields = refstore.Absent, []refstore.Field{provenance()}
	if _, err := p.repo.Records.Put(p.ctx, rec); err != nil {
		t.Fatal(err)
	}
	if res := p.start(); res.Outcome == nil || res.Outcome.Proven != 0 {
		t.Errorf("an imported run was taken for a proof: %+v", res.Outcome)
	}
	if res := p.start(); res.Outcome != nil {
		t.Errorf("the run after it proves nothing: %+v", res.Outcome)
	}
}

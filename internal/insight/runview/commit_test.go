package runview_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"e3/executions"
	"e3/internal/events"
	"e3/internal/format/record"
	"e3/internal/human"
	"e3/internal/insight/runview"
	"e3/refstore"
	"e3/refstore/mem"
)

// deployed is a workspace of which all runs have ended.
type deployed struct{}

func (deployed) State(context.Context, string) (*record.WorkspaceState, error) {
	return &record.WorkspaceState{}, nil
}
func (deployed) AtWork(context.Context, string, *record.Run) (bool, refstore.Heard, error) {
	return false, refstore.Heard{}, nil
}
func (deployed) Expected(context.Context, string) func(string) time.Duration {
	return func(string) time.Duration { return 0 }
}

func (deployed) Queued(context.Context, string, string) ([]runview.Queued, error) { return nil, nil }

func TestAtCommit(t *testing.T) {
	first, second := "abcd"+strings.Repeat("0", 36), "abce"+strings.Repeat("1", 36)
	store := mem.New()
	runs := &runview.Runs{Records: store, Workspaces: deployed{}, Now: time.Now}
	var ids []string
	for _, r := range []struct {
		git *events.Git
		end events.Type
	}{
		{&events.Git{Commit: first, Branch: "main"}, events.RunCompleted},
		{&events.Git{Commit: first, Branch: "main"}, events.RunCompleted},
		{&events.Git{Commit: second, Branch: "abcd"}, events.RunCompleted}, // a branch goes before a commit
		{&events.Git{Commit: second}, events.RunCompleted},
		{&events.Git{Commit: "\x1b[2J", Branch: "evil"}, events.RunCompleted},
		{&events.Git{Unknown: "a reason"}, events.RunCompleted},
		{&events.Git{Branch: "new"}, events.RunCompleted},
		{&events.Git{Commit: first, Branch: "main"}, events.RunFailed},
		{nil, events.RunCompleted},
	} {
		id, err := executions.NewID()
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
		log := events.Create(store, "w", id, time.Now)
		log.Emit(events.Event{Type: events.RunStarted, Data: &events.Data{Git: r.git}})
		log.Emit(events.Event{Type: r.end, Data: &events.Data{}})
		if err := log.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]int{"main": 1, first: 1, "abcd0": 1, "ABCD0000": 1, second: 3, "abce": 3, "abcd": 2, "new": 6} {
		if got, err := runs.AtCommit(t.Context(), "w", name); err != nil || got != ids[want] {
			t.Errorf("AtCommit(%q) is run %d, %v; want run %d", name, slices.Index(ids, got), err, want)
		}
	}
	for _, name := range []string{"abc", "abcf", "evil", "mai", "", "\x1b[2J"} {
		var unknown *human.UnknownError
		if got, err := runs.AtCommit(t.Context(), "w", name); !errors.As(err, &unknown) || !slices.Contains(unknown.Known, "main") {
			t.Errorf("AtCommit(%q) = %s, %v; want an UnknownError that knows main", name, got, err)
		}
	}
}

func TestAtCommitAmbiguous(t *testing.T) {
	store := mem.New()
	runs := &runview.Runs{Records: store, Workspaces: deployed{}, Now: time.Now}
	for _, digit := range []string{"0", "1"} {
		id, err := executions.NewID()
		if err != nil {
			t.Fatal(err)
		}
		log := events.Create(store, "w", id, time.Now)
		log.Emit(events.Event{Type: events.RunStarted, Data: &events.Data{Git: &events.Git{Commit: "abcd" + strings.Repeat(digit, 36)}}})
		log.Emit(events.Event{Type: events.RunCompleted})
		if err := log.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := runs.AtCommit(t.Context(), "w", "abcd"); !errors.Is(err, executions.ErrAmbiguous) {
		t.Errorf("got %v, want ErrAmbiguous", err)
	}
}

package workspace_test

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"e3/executions"
	"e3/internal/events"
	"e3/internal/format/record"
	"e3/refstore"
	"e3/workspace"
)

// The end of an execution that has gone on without its run is told by the worker that ends it, and by any maintenance:
// once, whatever number of processes do so, and not before the run is closed.
func TestTellLate(t *testing.T) {
	for _, how := range []string{"by the worker", "by maintenance"} {
		t.Run(how, func(t *testing.T) {
			d, claimed := newClaimed(t)
			curator := executions.NewCurator(d.p.repo.Executions, d.p.repo.Records, nil)
			tell := func() {
				var g sync.WaitGroup
				for range 4 {
					g.Go(func() {
						err := workspace.TellLate(t.Context(), d.p.ws.States, "w", claimed, curator)
						if how == "by maintenance" {
							err = workspace.TellAllLate(t.Context(), d.p.ws.States, curator)
						}
						if err != nil && !errors.Is(err, refstore.ErrNotFound) {
							t.Error(err)
						}
					})
				}
				g.Wait()
			}
			tell() // nothing is noted
			for range 30 {
				if _, err := events.AppendJournal(t.Context(), d.p.repo.Records, "w", time.Now, events.Event{Type: "block.approved", Task: "b"}); err != nil {
					t.Fatal(err)
				}
			}
			d.p.start()
			if rec, err := d.p.repo.Records.Get(t.Context(), refstore.Key{Partition: "INDEX/late/w", Sort: claimed}); err != nil || !strings.Contains(string(rec.Value), `"after":3`) {
				t.Errorf("the note is %s, %v; want how far the journal was", rec.Value, err)
			}
			tell()
			ended := record.Status{State: record.Success, ExecutionID: claimed, OutputHash: strings.Repeat("0", 64), StartedAt: time.UnixMilli(1000), CompletedAt: time.UnixMilli(1400)}
			d.put(refstore.Key{Partition: "EXECUTION/" + d.key.String(), Sort: claimed}, ended.Encode())
			d.attempts[0].Open = false
			tell()
			d.p.start()
			tell()
			if told, want := strings.ReplaceAll(d.journal(), "block.approved b, ", ""), "task.started a, task.completed a"; told != want {
				t.Errorf("the journal tells %s, want %s", told, want)
			}
			for range d.p.repo.Records.List(t.Context(), refstore.Query{Partition: "INDEX/late/w"}) {
				t.Error("it is noted still")
			}
		})
	}
}

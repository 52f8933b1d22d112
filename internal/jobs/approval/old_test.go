package approval_test

import (
	"errors"
	"testing"

	"e3/internal/jobs/approval"
	"e3/refstore"
	"e3/refstore/mem"
)

// putOld writes a block as an older e3 does.
func putOld(t *testing.T, s refstore.Store, run, task, text string) {
	t.Helper()
	if _, err := s.Put(t.Context(), refstore.Record{Key: refstore.Key{Partition: "BLOCK/prod", Sort: run + "/" + task}, Value: []byte(text)}); err != nil {
		t.Fatal(err)
	}
}

const oldPending = `{"id":"` + id + `","type":"review","status":"pending","created":"2026-01-02T03:04:05.123Z"}`

// Blocks of an older e3 are decided in a form that it can read, end with their run, and count for no other run.
func TestOld(t *testing.T) {
	s, j := mem.New(), &lines{}
	b := told(s, j)
	for _, run := range []string{run1, run2} {
		putOld(t, s, run, "a", oldPending)
		putOld(t, s, run, "b", oldPending)
	}
	list := func(run string) map[string]approval.Block {
		found := map[string]approval.Block{}
		for block, err := range b.ListOld(t.Context(), "prod", run) {
			if err != nil {
				t.Fatal(err)
			}
			found[block.Task] = block
		}
		return found
	}
	approved := decide(t, b, list(run2)["a"], true)
	rec, err := s.Get(t.Context(), refstore.Key{Partition: "BLOCK/prod", Sort: run2 + "/a"})
	if want := `{"id":"` + id + `","type":"review","status":"approved","created":"2026-01-02T03:04:05.123Z","at":"2026-01-02T03:04:06Z","by":"ann@desk","note":"fine"}`; err != nil || string(rec.Value) != want {
		t.Errorf("it is\n%s, %v, want\n%s", rec.Value, err, want)
	}
	if got := j.said(approved); got != "approved by ann@desk" {
		t.Errorf("the journal says %q", got)
	}
	if _, _, err := b.Withdraw(t.Context(), &approved, approval.Resolution{Approve: true}); !errors.As(err, new(*approval.ResolvedError)) {
		t.Errorf("it is withdrawn: %v", err)
	}
	if got := ask(t, b, review(run3, "a")); got.Status != approval.Pending || got.ID == approved.ID {
		t.Errorf("a later run goes on with %+v", got)
	}
	if err := b.CloseOld(t.Context(), "prod", run2); err != nil {
		t.Fatal(err)
	}
	if got := list(run2); got["a"].Status != approval.Approved || got["b"].Status != approval.Closed {
		t.Errorf("closed, they are %+v", got)
	}
	if err := b.RemoveOld(t.Context(), "prod", run2); err != nil || len(list(run1)) != 0 || len(list(run2)) != 2 {
		t.Errorf("left are %v and %v, %v", list(run1), list(run2), err)
	}
	if err := b.Remove(t.Context(), "prod"); err != nil || len(list(run2)) != 0 {
		t.Errorf("left are %v, %v", list(run2), err)
	}
}

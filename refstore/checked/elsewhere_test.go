package checked_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"e3/refstore"
	"e3/refstore/checked"
	"e3/refstore/fs"
)

// A process that dies in the middle of a move in place leaves a job with the value, and the sum, that it was to have among the
// finished. A job with the sum of yet another place is damaged.
func TestJobThatWasToBeMoved(t *testing.T) {
	dir := t.TempDir()
	store, err := fs.Open(dir, fs.Options{BareJobs: true})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	s := checked.New(store, false)
	key := func(what, sort string) refstore.Key {
		return refstore.Key{Partition: "QUEUE/q/" + what, Sort: sort}
	}
	file := func(k refstore.Key) string {
		return filepath.Join(dir, "queue", filepath.FromSlash(strings.TrimPrefix(k.Partition, "QUEUE/")), k.Sort+".rec")
	}
	id, other := "run."+strings.Repeat("0", 32), "run."+strings.Repeat("1", 32)
	job, finished := key("jobs", id), key("finished/run", id)
	v, err := s.Put(t.Context(), refstore.Record{Key: job, Value: []byte("running")})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := checked.NewFiles(store).Move(t.Context(), job, v, refstore.Record{Key: finished, Value: []byte("succeeded")}); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file(finished), file(job)); err != nil {
		t.Fatal(err)
	}
	listed := 0
	for r, err := range s.List(t.Context(), refstore.Query{Partition: job.Partition}) {
		if listed++; err != nil || string(r.Value) != "succeeded" {
			t.Errorf("listed: got %q, %v", r.Value, err)
		}
	}
	if r, err := s.Get(t.Context(), job); err != nil || string(r.Value) != "succeeded" || r.Key != job || listed != 1 {
		t.Errorf("got %q, %q, %v, %d listed", r.Key, r.Value, err, listed)
	}
	if err := os.Rename(file(job), file(key("jobs", other))); err != nil {
		t.Fatal(err)
	}
	if r, err := s.Get(t.Context(), key("jobs", other)); !errors.Is(err, refstore.ErrDamaged) {
		t.Errorf("another job: got %q, %v, want %v", r.Value, err, refstore.ErrDamaged)
	}
}

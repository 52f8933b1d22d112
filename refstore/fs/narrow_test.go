//go:build linux

package fs_test

import (
	"errors"
	"fmt"
	iofs "io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"e3/refstore"
	"e3/refstore/fs"
)

// narrow opens a store whose syncs are narrow.
func narrow(t *testing.T, dir string) *fs.Store {
	t.Helper()
	return open(t, dir, fs.Options{Narrow: true, BareJobs: true})
}

var (
	execution = refstore.Key{Partition: "EXECUTION/task/inputs", Sort: "id"}
	state     = refstore.Key{Partition: "WORKSPACE", Sort: "w"}
	proof     = refstore.Key{Partition: "INDEX/proofs", Sort: "w"}
)

// A sync covers all files that were written, and all folders that they or other folders were added to.
func TestNarrowSyncCoversAll(t *testing.T) {
	dir := t.TempDir()
	seen := fs.WatchSyncs(t)
	s := narrow(t, dir)
	object := filepath.Join(dir, "objects", "ab", "cdef")
	if err := errors.Join(os.MkdirAll(filepath.Dir(object), 0o777), os.WriteFile(object, []byte("object"), 0o444)); err != nil {
		t.Fatal(err)
	}
	fs.Wrote(s)(filepath.Dir(object))
	fs.Wrote(s)(object)
	log := refstore.Key{Partition: "LOG/task/inputs/other", Sort: "stdout.txt"}
	adopted := filepath.Join(dir, "adopted")
	if err := errors.Join(s.Append(t.Context(), eventsKey, 0, []byte("line\n")), os.WriteFile(adopted, nil, 0o666),
		s.AdoptStream(t.Context(), log, adopted), s.Append(t.Context(), refstore.Key{Partition: log.Partition, Sort: "more"}, 0, []byte("x"))); err != nil {
		t.Fatal(err)
	}
	sums := []refstore.Field{{Name: refstore.SumField, Value: []byte("sum")}, {Name: "field", Value: []byte("value")}}
	version := put(t, s, refstore.Record{Key: state, Value: []byte("one"), Fields: sums})
	put(t, s, refstore.Record{Key: state, Value: []byte("two"), Fields: sums, Version: version})
	put(t, s, refstore.Record{Key: execution, Value: []byte("v"), Fields: []refstore.Field{{Name: "detail", Value: []byte("d")}, {Name: "stderr.txt", Value: []byte("e")}}})
	put(t, s, refstore.Record{Key: refstore.Key{Partition: "EXECUTION/task/inputs", Sort: "other"}, Value: []byte("v")}) // its log is there
	put(t, s, refstore.Record{Key: refstore.Key{Partition: "TASKS", Sort: "alone"}})
	put(t, s, refstore.Record{Key: proof, Value: []byte("p")})
	put(t, s, refstore.Record{Key: refstore.Key{Partition: "PACKAGE", Sort: "p/1"}, Value: []byte("hash")})
	job := refstore.Record{Key: refstore.Key{Partition: "QUEUE/q/jobs", Sort: "j"}, Value: []byte("job")}
	job.Version = put(t, s, job)
	job.Value = []byte("job longer")
	job.Version = put(t, s, job)
	finished := refstore.Record{Key: refstore.Key{Partition: "QUEUE/q/finished", Sort: "j"}, Value: []byte("ended")}
	if _, err := s.Move(t.Context(), job.Key, job.Version, finished); err != nil {
		t.Fatal(err)
	}

	if err := s.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	if seen.Wide() > 0 {
		t.Errorf("the whole file system was synced")
	}
	synced := seen.Paths()
	err := filepath.WalkDir(dir, func(path string, e iofs.DirEntry, err error) error {
		rel, _ := filepath.Rel(dir, path)
		if rel == "tmp" || rel == "locks" {
			return filepath.SkipDir
		}
		if err == nil && !slices.Contains(synced, path) {
			t.Errorf("%s was not synced", rel)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	for _, path := range []string{filepath.Dir(dir), filepath.Join(dir, "queue", "q", "jobs")} {
		if !slices.Contains(synced, path) {
			t.Errorf("%s was not synced", path)
		}
	}

	version = put(t, s, refstore.Record{Key: refstore.Key{Partition: "EXECUTION/task/inputs", Sort: "third"}, Value: []byte("v")})
	before := len(seen.Paths())
	if err := s.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := []string{"executions/task/inputs", "executions/task/inputs/third", "executions/task/inputs/third/status.beast2"}
	var got []string
	for _, path := range seen.Paths()[before:] {
		rel, _ := filepath.Rel(dir, path)
		got = append(got, filepath.ToSlash(rel))
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("the second sync was of %q, want %q", got, want)
	}
	before = len(seen.Paths())
	if err := s.Delete(t.Context(), refstore.Key{Partition: "EXECUTION/task/inputs", Sort: "third"}, version); err != nil {
		t.Fatal(err)
	}
	if err := s.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := seen.Paths()[before:]; !slices.Equal(got, []string{filepath.Join(dir, "executions", "task", "inputs")}) {
		t.Errorf("the sync after a deletion was of %q", got)
	}
	if seen.Wide() > 0 {
		t.Errorf("the whole file system was synced")
	}
}

// Writes that other processes may have left unsynced take a sync of the file system.
func TestNarrowSyncDoubts(t *testing.T) {
	one := refstore.Record{Key: execution, Value: []byte("v")}
	for name, test := range map[string]struct {
		before func(t *testing.T, dir string, s *fs.Store)
		wide   bool
	}{
		"alone":           {func(t *testing.T, _ string, s *fs.Store) { put(t, s, one) }, false},
		"nothing written": {func(*testing.T, string, *fs.Store) {}, true},
		"only what nothing relies on": {func(t *testing.T, _ string, s *fs.Store) {
			put(t, s, refstore.Record{Key: proof, Value: []byte("p")})
		}, true},
		"another process": {func(t *testing.T, dir string, s *fs.Store) {
			put(t, narrow(t, dir), refstore.Record{Key: proof, Value: []byte("p")})
			put(t, s, one)
		}, true},
		"one that has ended": {func(t *testing.T, dir string, s *fs.Store) {
			other := narrow(t, dir)
			put(t, other, refstore.Record{Key: state, Value: []byte("s")})
			if err := errors.Join(other.Sync(t.Context()), other.Close()); err != nil {
				t.Fatal(err)
			}
			put(t, s, one)
		}, false},
		"one that has ended, unsynced": {func(t *testing.T, dir string, s *fs.Store) {
			other := narrow(t, dir)
			put(t, other, refstore.Record{Key: state, Value: []byte("s")})
			if err := other.Close(); err != nil {
				t.Fatal(err)
			}
			put(t, s, one)
		}, true},
		"one that has ended, unsynced, and was swept": {func(t *testing.T, dir string, s *fs.Store) {
			other := narrow(t, dir)
			put(t, other, refstore.Record{Key: state, Value: []byte("s")})
			if err := other.Close(); err != nil {
				t.Fatal(err)
			}
			if n, err := s.Sweep(t.Context()); n != 0 || err != nil {
				t.Fatalf("%d sessions swept, %v", n, err)
			}
			put(t, s, one)
		}, true},
		"swept by another, which has ended, unsynced": {func(t *testing.T, dir string, s *fs.Store) {
			other, third := narrow(t, dir), narrow(t, dir)
			put(t, other, refstore.Record{Key: state, Value: []byte("s")})
			err := other.Close()
			if _, e := third.Sweep(t.Context()); err != nil || e != nil {
				t.Fatal(err, e)
			}
			put(t, third, refstore.Record{Key: state, Value: []byte("t"), Version: versionOf(t, third, state)})
			if err := third.Close(); err != nil {
				t.Fatal(err)
			}
			put(t, s, one)
		}, true},
		"swept by another, which has ended": {func(t *testing.T, dir string, s *fs.Store) {
			other, third := narrow(t, dir), narrow(t, dir)
			put(t, other, refstore.Record{Key: state, Value: []byte("s")})
			err := other.Close()
			if _, e := third.Sweep(t.Context()); err != nil || e != nil {
				t.Fatal(err, e)
			}
			seen := fs.WatchSyncs(t)
			if err := third.Close(); err != nil || seen.Wide() != 1 {
				t.Fatalf("%v, %d syncs of the file system", err, seen.Wide())
			}
			put(t, s, one)
		}, false},
		"many files": {func(t *testing.T, dir string, s *fs.Store) {
			for i := range fs.MaxNarrow {
				fs.Wrote(s)(filepath.Join(dir, fmt.Sprint("nowhere/", i)))
			}
			put(t, s, one)
		}, true},
		"told to": {func(t *testing.T, _ string, s *fs.Store) { fs.SyncAll(s); put(t, s, one) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := narrow(t, dir)
			test.before(t, dir, s)
			seen := fs.WatchSyncs(t)
			if err := s.Sync(t.Context()); err != nil {
				t.Fatal(err)
			}
			if wide := seen.Wide() > 0; wide != test.wide || !wide && len(seen.Paths()) == 0 {
				t.Errorf("%d syncs of the file system, and %d of files", seen.Wide(), len(seen.Paths()))
			}
		})
	}
}

// versionOf is the version of a record.
func versionOf(t *testing.T, s *fs.Store, key refstore.Key) refstore.Version {
	t.Helper()
	r, err := s.Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	return r.Version
}

// A durable update has its sum and its value synced together, before the value has its name, and then the folder; those above
// are synced once.
func TestDurableUpdateSyncs(t *testing.T) {
	dir := t.TempDir()
	s := narrow(t, dir)
	file := filepath.Join(dir, "workspaces", "w.beast2")
	version, err := s.PutSync(t.Context(), refstore.Record{Key: state, Value: []byte("value 0"), Fields: []refstore.Field{{Name: refstore.SumField, Value: []byte("sum 0")}}})
	if err != nil {
		t.Fatal(err)
	}
	seen := fs.WatchSyncs(t)
	for i := 1; i <= 2; i++ {
		early := 0
		seen.Before(func() {
			text, err := os.ReadFile(file)
			sum, bad := os.ReadFile(file + "~sum")
			if err != nil || bad != nil || string(text) != fmt.Sprint("value ", i-1) || string(sum) != fmt.Sprint("sum ", i) {
				early++
			}
		})
		before := len(seen.Paths())
		sum := []refstore.Field{{Name: refstore.SumField, Value: fmt.Append(nil, "sum ", i)}}
		if version, err = s.PutSync(t.Context(), refstore.Record{Key: state, Value: fmt.Append(nil, "value ", i), Fields: sum, Version: version}); err != nil {
			t.Fatal(err)
		}
		paths := seen.Paths()[before:]
		want := []string{filepath.Join(dir, "workspaces")}
		if got := paths[min(2, len(paths)):]; early != 1 || len(paths) != 3 || !slices.Contains(paths, file+"~sum") || !slices.Equal(got, want) {
			t.Errorf("update %d synced %q, %d of them after the value had its name", i, paths, early)
		}
	}
}

// A folder that is made while the folders above it are synced has its name synced by the next durable record in it.
func TestDurableRecordInNewFolder(t *testing.T) {
	dir := t.TempDir()
	s := narrow(t, dir)
	in := func(folder, name string) refstore.Record {
		return refstore.Record{Key: refstore.Key{Partition: "INDEX/" + folder, Sort: name}, Value: []byte("v")}
	}
	seen := fs.WatchSyncs(t)
	seen.Before(sync.OnceFunc(func() { put(t, s, in("new", "one")) }))
	if _, err := s.PutSync(t.Context(), in("old", "one")); err != nil {
		t.Fatal(err)
	}
	before := len(seen.Paths())
	if _, err := s.PutSync(t.Context(), in("new", "two")); err != nil {
		t.Fatal(err)
	}
	matches, err := filepath.Glob(filepath.Join(dir, "*", "new"))
	if err != nil || len(matches) != 1 {
		t.Fatalf("the folder is %q, %v", matches, err)
	}
	if synced := seen.Paths()[before:]; !slices.Contains(synced, filepath.Dir(matches[0])) {
		t.Errorf("the record in %s is durable with a sync of %q", matches[0], synced)
	}
	before = len(seen.Paths())
	if _, err := s.PutSync(t.Context(), in("new", "three")); err != nil {
		t.Fatal(err)
	}
	if synced := seen.Paths()[before:]; !slices.Equal(synced, matches) {
		t.Errorf("another record was durable with a sync of %q, want of %q", synced, matches)
	}
}

// As long as the machine has little to write, a sync of the file system is cheaper.
func TestNarrowSyncOfQuietMachine(t *testing.T) {
	dir := t.TempDir()
	s := narrow(t, dir)
	seen := fs.WatchSyncs(t)
	seen.Machine(1 << 20)
	put(t, s, refstore.Record{Key: execution, Value: []byte("v")})
	if err := s.Sync(t.Context()); err != nil || seen.Wide() != 1 || len(seen.Paths()) > 0 {
		t.Errorf("%v, %d syncs of the file system, and of %q", err, seen.Wide(), seen.Paths())
	}
}

// A store that has synced what matters leaves nothing, whatever it writes afterwards that nothing relies on.
func TestNarrowLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	s := narrow(t, dir)
	put(t, s, refstore.Record{Key: execution, Value: []byte("v")})
	if err := s.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, err := s.PutSync(t.Context(), refstore.Record{Key: state, Value: []byte("s")})
	put(t, s, refstore.Record{Key: proof, Value: []byte("p")})
	if err := errors.Join(err, s.Append(t.Context(), eventsKey, 0, []byte("line\n")), s.Close()); err != nil {
		t.Fatal(err)
	}
	if left := names(t, filepath.Join(dir, "tmp")); len(left) > 0 {
		t.Errorf("tmp holds %q", left)
	}
}

// After a sync that failed the next one is of the file system. A file that has gone is no failure, and one that cannot be
// opened is left to the sync of the file system.
func TestNarrowSyncFails(t *testing.T) {
	dir := t.TempDir()
	s := narrow(t, dir)
	seen := fs.WatchSyncs(t)
	bad := errors.New("the disk is broken")
	put(t, s, refstore.Record{Key: execution, Value: []byte("v")})
	seen.Fail(bad)
	if err := s.Sync(t.Context()); !errors.Is(err, bad) || !strings.Contains(err.Error(), dir) {
		t.Errorf("the sync: %v", err)
	}
	seen.Fail(nil)
	if err := s.Sync(t.Context()); err != nil || seen.Wide() != 1 {
		t.Errorf("the next sync: %v, %d of the file system", err, seen.Wide())
	}
	fs.Wrote(s)(filepath.Join(dir, "gone", "file"))
	if err := s.Sync(t.Context()); err != nil || seen.Wide() != 1 {
		t.Errorf("the sync of a file that has gone: %v, %d of the file system", err, seen.Wide())
	}
	if err := os.Symlink("/nowhere", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	fs.Wrote(s)(filepath.Join(dir, "link"))
	if err := s.Sync(t.Context()); err != nil || seen.Wide() != 2 {
		t.Errorf("the sync of a file that cannot be opened: %v, %d of the file system", err, seen.Wide())
	}
}

// A sync returns after those that began before it, as they may have what it relies on.
func TestNarrowSyncsInTurn(t *testing.T) {
	dir := t.TempDir()
	s := narrow(t, dir)
	put(t, s, refstore.Record{Key: execution, Value: []byte("v")})
	seen := fs.WatchSyncs(t)
	second := make(chan error, 1)
	var early atomic.Bool
	seen.Before(sync.OnceFunc(func() {
		go func() { second <- s.Sync(t.Context()) }()
		for range 100 {
			runtime.Gosched()
			early.Store(early.Load() || len(second) > 0)
		}
	}))
	if err := errors.Join(s.Sync(t.Context()), <-second); err != nil {
		t.Error(err)
	}
	if early.Load() {
		t.Error("the second sync returned during the first")
	}
}

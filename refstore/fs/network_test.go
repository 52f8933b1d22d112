package fs_test

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"e3/internal/jobs/queue"
	"e3/internal/jobs/queue/queuetest"
	"e3/refstore"
	"e3/refstore/fs"
	"e3/refstore/refstoretest"
)

// These tests simulate a network file system by a kernel that caches attributes and missing names until it has to open
// a file or folder.

// TestConformanceOnNetwork: repeated lookups change no result for a single machine.
func TestConformanceOnNetwork(t *testing.T) {
	for _, c := range refstoretest.Cases() {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			err := c.Run(t.Context(), func(context.Context) (refstore.Store, error) {
				s := open(t, t.TempDir(), fs.Options{})
				s.OnNetwork(true)
				s.Remember()
				return s, nil
			})
			if errors.Is(err, errors.ErrUnsupported) {
				t.Skip(err)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
}

func TestQueuesOnNetwork(t *testing.T) {
	queuetest.Run(t, func(t *testing.T) queue.Store {
		s := open(t, t.TempDir(), fs.Options{})
		s.OnNetwork(true)
		s.Remember()
		return queue.Store{Store: s, Files: s}
	})
}

// TestSwapOfWhatIsRemembered: a swap or deletion with cached attributes succeeds only if another machine has not
// replaced the value meanwhile.
func TestSwapOfWhatIsRemembered(t *testing.T) {
	for _, key := range []refstore.Key{job("a"), {Partition: "EXECUTION/t/i", Sort: "a"}} {
		dir := t.TempDir()
		here, there := open(t, dir, fs.Options{}), open(t, dir, fs.Options{})
		here.OnNetwork(true)
		here.Remember()
		first := put(t, there, refstore.Record{Key: key, Value: []byte("1")})
		for range here.List(t.Context(), refstore.Query{Partition: key.Partition, KeysOnly: true}) { // fills the cache
		}
		if err := here.Delete(t.Context(), key, "another"); !errors.Is(err, refstore.ErrConflict) { // fills it too
			t.Fatal(err)
		}
		second := put(t, there, refstore.Record{Key: key, Value: []byte("2"), Version: first})
		_, err := here.Put(t.Context(), refstore.Record{Key: key, Value: []byte("lost"), Version: first})
		if !errors.Is(err, refstore.ErrConflict) {
			t.Errorf("%v: swap of what somebody else has swapped: got %v, want a conflict", key, err)
		}
		if err := here.Delete(t.Context(), key, first); !errors.Is(err, refstore.ErrConflict) {
			t.Errorf("%v: deletion of what somebody else has swapped: got %v, want a conflict", key, err)
		}
		if r, err := there.Get(t.Context(), key); err != nil || string(r.Value) != "2" || r.Version != second {
			t.Errorf("%v: got %q, %v, want what was swapped first", key, r.Value, err)
		}
		put(t, here, refstore.Record{Key: key, Value: []byte("3"), Version: second})
	}
}

// TestFreeNameThatIsRemembered: a file that another machine has made under a name cached as missing is found after the
// folders above it are opened, from the first existing one down.
func TestFreeNameThatIsRemembered(t *testing.T) {
	record := refstore.Record{Key: job("a"), Value: []byte("1"), Fields: []refstore.Field{{Name: "f", Value: []byte("2")}}}
	stream := refstore.Key{Partition: "EVENTS/w", Sort: "run"}
	for name, c := range map[string]struct {
		make func(t *testing.T, there *fs.Store)
		find func(t *testing.T, here *fs.Store) error
	}{
		"get": {
			func(t *testing.T, there *fs.Store) { put(t, there, record) },
			func(t *testing.T, here *fs.Store) error {
				_, err := here.Get(t.Context(), record.Key)
				return err
			},
		},
		"list": {
			func(t *testing.T, there *fs.Store) { put(t, there, record) },
			func(t *testing.T, here *fs.Store) error {
				for range here.List(t.Context(), refstore.Query{Partition: record.Key.Partition}) {
					return nil
				}
				return refstore.ErrNotFound
			},
		},
		"delete": {
			func(t *testing.T, there *fs.Store) { put(t, there, record) },
			func(t *testing.T, here *fs.Store) error {
				err := here.Delete(t.Context(), record.Key, "another")
				if errors.Is(err, refstore.ErrConflict) { // it is there
					return nil
				}
				return err
			},
		},
		"folder": {
			func(t *testing.T, there *fs.Store) {
				put(t, there, refstore.Record{Key: refstore.Key{Partition: "TASKS", Sort: "t"}})
			},
			func(t *testing.T, here *fs.Store) error {
				_, err := here.Get(t.Context(), refstore.Key{Partition: "TASKS", Sort: "t"})
				return err
			},
		},
		"open": {
			func(t *testing.T, there *fs.Store) { appended(t, there, stream) },
			func(t *testing.T, here *fs.Store) error {
				r, err := here.Open(t.Context(), stream, 0)
				if err == nil {
					_, err = io.ReadAll(r)
					err = errors.Join(err, r.Close())
				}
				return err
			},
		},
		"append": {
			func(t *testing.T, there *fs.Store) { appended(t, there, stream) },
			func(t *testing.T, here *fs.Store) error { return here.Append(t.Context(), stream, 3, []byte("two")) },
		},
		"holder": {
			func(t *testing.T, there *fs.Store) {
				l, err := there.TryLock(t.Context(), "l", refstore.Exclusive, []byte("me"))
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = l.Unlock() })
			},
			func(t *testing.T, here *fs.Store) error {
				_, held, err := here.Holder(t.Context(), "l")
				if err == nil && !held {
					err = refstore.ErrNotFound
				}
				return err
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, network := range []bool{true, false} {
				dir := t.TempDir()
				here, there := open(t, dir, fs.Options{}), open(t, dir, fs.Options{})
				here.OnNetwork(network)
				made := false
				here.BeforeEnter(func(entered string) {
					if !made && entered == dir { // as far as it exists
						made = true
						c.make(t, there)
					}
				})
				if err := c.find(t, here); (err == nil) != network {
					t.Errorf("on a network %v: got %v", network, err)
				}
				if made != network {
					t.Errorf("on a network %v: looked again %v", network, made)
				}
			}
		})
	}
}

func appended(t *testing.T, s *fs.Store, key refstore.Key) {
	t.Helper()
	if err := s.Append(t.Context(), key, 0, []byte("one")); err != nil {
		t.Fatal(err)
	}
}

// TestFieldsOfACrash: side fields that an interrupted creation has left do not become those of a record that another
// machine makes.
func TestFieldsOfACrash(t *testing.T) {
	dir := t.TempDir()
	here := open(t, dir, fs.Options{})
	here.OnNetwork(true)
	made := false
	here.BeforeEnter(func(string) {
		if made {
			return
		}
		made = true
		left := filepath.Join(dir, "queue", "default", "a.rec~")
		if err := os.MkdirAll(left, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(left, "f"), []byte("another's"), 0o644); err != nil {
			t.Fatal(err)
		}
	})
	put(t, here, refstore.Record{Key: job("a"), Value: []byte("1")})
	r, err := here.Get(t.Context(), job("a"), "f")
	if err != nil || len(r.Fields) != 0 || !made {
		t.Errorf("got fields %q, %v; want none of what was left, looked %v", r.Fields, err, made)
	}
}

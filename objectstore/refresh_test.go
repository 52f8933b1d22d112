package objectstore_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"e3/internal/testing/suite"
	"e3/objectstore"
	"e3/objectstore/tree"
)

// sessionDir opens the store in base for a session that began at a given time.
func sessionDir(t testing.TB, base string, began time.Time) *objectstore.Dir {
	t.Helper()
	d, err := objectstore.OpenDir(filepath.Join(base, "objects"), objectstore.Options{
		Session: func() (string, time.Time, error) { return base, began, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func setTime(t testing.TB, path string, at time.Time) {
	t.Helper()
	if err := os.Chtimes(path, at, at); err != nil {
		t.Fatal(err)
	}
}

func timeOf(t testing.TB, path string) time.Time {
	t.Helper()
	fi, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	return fi.ModTime()
}

// TestRefreshWhatIsThere puts and refreshes an object of various ages.
func TestRefreshWhatIsThere(t *testing.T) {
	began := time.Now().Add(-time.Hour).Truncate(time.Second)
	for name, test := range map[string]struct {
		age  time.Duration // before the session
		kept bool          // the time does not change
	}{
		"a moment older":      {age: time.Nanosecond},
		"old":                 {age: 1000 * time.Hour},
		"of the beginning":    {age: 0, kept: true},
		"younger":             {age: -time.Minute, kept: true},
		"from another future": {age: -1000 * time.Hour, kept: true},
	} {
		for how, refresh := range map[string]func(d *objectstore.Dir, h objectstore.Hash) error{
			"put": func(d *objectstore.Dir, h objectstore.Hash) error { put(t, d, []byte("x")); return nil },
			"refresh": func(d *objectstore.Dir, h objectstore.Hash) error {
				ok, err := d.Refresh(t.Context(), h)
				if !ok {
					err = errors.Join(err, errors.New("it is said to be absent"))
				}
				return err
			},
			"adopt": func(d *objectstore.Dir, h objectstore.Hash) error {
				path := filepath.Join(filepath.Dir(d.Path()), "work")
				if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
					return err
				}
				defer os.Remove(path)
				_, err := d.Adopt(t.Context(), suite.Paths{}, path)
				return err
			},
		} {
			t.Run(name+" "+how, func(t *testing.T) {
				d := sessionDir(t, t.TempDir(), began)
				h := put(t, d, []byte("x"))
				was := began.Add(-test.age)
				setTime(t, d.File(h), was)
				before := time.Now().Add(-time.Minute)
				if err := refresh(d, h); err != nil {
					t.Fatal(err)
				}
				got := timeOf(t, d.File(h))
				if test.kept && !got.Equal(was) {
					t.Errorf("its time is %v, want it left at %v", got, was)
				}
				if !test.kept && (got.Before(before) || got.After(time.Now().Add(time.Minute))) {
					t.Errorf("its time is %v, want the present", got)
				}
				checkAll(t, d)
			})
		}
	}
}

// TestNothingIsOlderThanItsSession has a session that began in the future, because the clock was set back since.
func TestNothingIsOlderThanItsSession(t *testing.T) {
	ahead := time.Now().Add(time.Hour).Truncate(time.Second)
	for _, named := range []bool{false, true} {
		base := t.TempDir()
		old := put(t, sessionDir(t, base, time.Now().Add(-time.Hour)), []byte("old"))
		d := sessionDir(t, base, ahead)
		if named {
			d.ForceNamed()
		}
		small, large := filepath.Join(base, "small"), filepath.Join(base, "large")
		writeFile(t, small, 1, 100)
		writeFile(t, large, 2, 3<<20)
		put(t, d, []byte("new"))
		if ok, err := d.Refresh(t.Context(), old); err != nil || !ok {
			t.Errorf("refresh: got %v, %v", ok, err)
		}
		for _, path := range []string{small, large} {
			if _, err := d.PutFile(t.Context(), openFile(t, path), objectstore.FileOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		sub := filepath.Join(base, "tree")
		for i := range 3 {
			writeFile(t, filepath.Join(base, fmt.Sprint(i)), byte(10+i), 100+i*(2<<20))
			if _, err := d.Adopt(t.Context(), suite.Paths{}, filepath.Join(base, fmt.Sprint(i))); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Mkdir(sub, 0o777); err != nil {
			t.Fatal(err)
		}
		writeFile(t, filepath.Join(sub, "f"), 20, 10)
		if _, _, err := tree.Put(t.Context(), d, sub, tree.PutOptions{Adopt: true}); err != nil {
			t.Fatal(err)
		}
		n := 0
		for e, err := range d.Walk(t.Context()) {
			if err != nil || e.Time.Before(ahead) {
				t.Errorf("named %v: object %s has the time %v, %v, before the session's %v", named, e.Hash, e.Time, err, ahead)
			}
			n++
		}
		if n != 9 {
			t.Errorf("got %d objects, want 9", n)
		}
	}
}

func TestAdoptedTimes(t *testing.T) {
	for name, age := range map[string]time.Duration{"old": 1000 * time.Hour, "from the future": -1000 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			base := t.TempDir()
			d := newDirIn(t, base)
			path := filepath.Join(base, "out")
			writeFile(t, path, 1, 100)
			setTime(t, path, time.Now().Add(-age))
			adopted(t, d, path) // checks the time
		})
	}
}

func TestRefreshOfWhatIsNoObject(t *testing.T) {
	d := sessionDir(t, t.TempDir(), time.Now())
	absent := objectstore.Sum([]byte("absent"))
	if ok, err := d.Refresh(t.Context(), absent); ok || err != nil {
		t.Errorf("absent: got %v, %v, want false", ok, err)
	}
	if err := os.MkdirAll(d.File(absent), 0o777); err != nil {
		t.Fatal(err)
	}
	if ok, err := d.Refresh(t.Context(), absent); ok || err != nil {
		t.Errorf("a folder: got %v, %v, want false", ok, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := d.Refresh(ctx, absent); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: got %v", err)
	}
}

func TestSweepShard(t *testing.T) {
	base := t.TempDir()
	began := time.Now()
	d := sessionDir(t, base, began)
	want := map[objectstore.Hash]bool{}
	var kept objectstore.HashSet
	for i := range 2000 {
		h := put(t, d, []byte(fmt.Sprint(i)))
		switch i % 3 {
		case 0: // young
		case 1:
			kept.Add(h)
			setTime(t, d.File(h), began.Add(-time.Hour))
		case 2:
			want[h] = true
			setTime(t, d.File(h), began.Add(-time.Nanosecond))
		}
	}
	for i := range objectstore.Shards {
		err := d.SweepShard(t.Context(), byte(i), began, kept.Has, func(e objectstore.Entry) {
			if !want[e.Hash] || e.Size == 0 {
				t.Errorf("removed %+v, which is not old garbage", e)
			}
			delete(want, e.Hash)
			if _, err := os.Lstat(d.File(e.Hash)); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("object %s: %v, want it gone", e.Hash, err)
			}
		})
		if err != nil {
			t.Error(err)
		}
	}
	if len(want) > 0 {
		t.Errorf("%d objects of garbage are left", len(want))
	}
	if n := checkAll(t, d); n != 2000-666 {
		t.Errorf("got %d objects, want %d", n, 2000-666)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	none := func(objectstore.Hash) bool { return false }
	for i := range objectstore.Shards {
		err := d.SweepShard(ctx, byte(i), began.Add(time.Hour), none, func(e objectstore.Entry) { t.Errorf("cancelled: removed %v", e) })
		if err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled: got %v", err)
		}
	}
}

func TestWalkShard(t *testing.T) {
	d := newDir(t)
	for i := range 600 {
		put(t, d, []byte(fmt.Sprint(i)))
	}
	n := 0
	for i := range objectstore.Shards {
		for e, err := range d.WalkShard(t.Context(), byte(i)) {
			if err != nil || int(e.Hash[0]) != i {
				t.Errorf("shard %d: got %+v, %v", i, e, err)
			}
			n++
		}
	}
	if n != 600 {
		t.Errorf("got %d objects, want 600", n)
	}
}

package fs_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"e3/refstore"
	"e3/refstore/checked"
	"e3/refstore/fs"
)

var jobKey = refstore.Key{Partition: "QUEUE/default/jobs", Sort: "id"}

func jobFile(dir string) string { return filepath.Join(dir, "queue", "default", "jobs", "id.rec") }

// TestJobInPlace: a job that grows stays in its file, with a new version, unless the file has other names; one that
// shrinks, or is large, gets a new file.
func TestJobInPlace(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, fs.Options{})
	versions := map[refstore.Version]bool{}
	v := put(t, s, refstore.Record{Key: jobKey, Value: []byte("queued")})
	write := func(value string, inPlace bool) {
		t.Helper()
		before, err := os.Stat(jobFile(dir))
		if err != nil {
			t.Fatal(err)
		}
		versions[v] = true
		v = put(t, s, refstore.Record{Key: jobKey, Value: []byte(value), Version: v})
		after, err := os.Stat(jobFile(dir))
		if err != nil {
			t.Fatal(err)
		}
		if os.SameFile(before, after) != inPlace {
			t.Errorf("%.20q: written in place is %v, want %v", value, !inPlace, inPlace)
		}
		if !after.ModTime().After(before.ModTime()) || versions[v] {
			t.Errorf("%.20q: version %q after %v, at %v after %v", value, v, versions, after.ModTime(), before.ModTime())
		}
		if r, err := s.Get(t.Context(), jobKey); err != nil || string(r.Value) != value || r.Version != v {
			t.Errorf("got %.20q, version %q, %v, want %.20q, %q", r.Value, r.Version, err, value, v)
		}
	}
	write("running by one", true)
	write("running", false)
	write("running by another", true)
	large := string(bytes.Repeat([]byte("x"), 5000))
	write(large, false)
	write("running again", false)
	copied := filepath.Join(dir, "copy")
	if err := os.Link(jobFile(dir), copied); err != nil {
		t.Fatal(err)
	}
	write("running by a third", false)
	if data, err := os.ReadFile(copied); err != nil || string(data) != "running again" {
		t.Errorf("another name of the file: got %q, %v", data, err)
	}
}

// TestJobMovesInPlace: a job that ends and grows takes its file along.
func TestJobMovesInPlace(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, fs.Options{BareJobs: true})
	v := put(t, s, refstore.Record{Key: jobKey, Value: []byte("running")})
	before, err := os.Stat(jobFile(dir))
	if err != nil {
		t.Fatal(err)
	}
	ended := refstore.Record{Key: refstore.Key{Partition: "QUEUE/default/finished/run", Sort: "id"}, Value: []byte("succeeded")}
	moved, err := s.Move(t.Context(), jobKey, v, ended)
	if err != nil {
		t.Fatal(err)
	}
	after, err := os.Stat(filepath.Join(dir, "queue", "default", "finished", "run", "id.rec"))
	if err != nil || !os.SameFile(before, after) || !after.ModTime().After(before.ModTime()) {
		t.Errorf("got %v, %v, want the file of the job", after, err)
	}
	if r, err := s.Get(t.Context(), ended.Key); err != nil || string(r.Value) != "succeeded" || r.Version != moved {
		t.Errorf("got %q, version %q, %v, want version %q", r.Value, r.Version, err, moved)
	}
	if again := put(t, s, refstore.Record{Key: jobKey, Value: []byte("succeeded")}); again == v || again == moved {
		t.Errorf("version %q recurs", again)
	}
}

// TestJobAliasInPlace: the claim of a job whose file has the name of an entry stays in the file. Of a copy that shares the
// file it does not.
func TestJobAliasInPlace(t *testing.T) {
	for _, copied := range []bool{false, true} {
		dir := t.TempDir()
		s := open(t, dir, fs.Options{BareJobs: true})
		v := put(t, s, refstore.Record{Key: jobKey, Value: []byte("queued")})
		entry := refstore.Key{Partition: "QUEUE/default/ready", Sort: "1.id"}
		if err := s.Alias(t.Context(), jobKey, entry); err != nil {
			t.Fatal(err)
		}
		other := filepath.Join(dir, "copy")
		if copied {
			if err := os.Link(jobFile(dir), other); err != nil {
				t.Fatal(err)
			}
		}
		before, err := os.Stat(jobFile(dir))
		if err != nil {
			t.Fatal(err)
		}
		if _, gone, err := s.PutUnaliased(t.Context(), refstore.Record{Key: jobKey, Value: []byte("running"), Version: v}, entry); err != nil || !gone {
			t.Fatalf("gone is %v, %v", gone, err)
		}
		if after, err := os.Stat(jobFile(dir)); err != nil || os.SameFile(before, after) == copied {
			t.Errorf("copied is %v: got %v, %v", copied, after, err)
		}
		if data, err := os.ReadFile(other); copied && (err != nil || string(data) != "queued") {
			t.Errorf("the copy: got %q, %v", data, err)
		}
	}
}

// TestJobCutShort: a write that is cut short, as by a full disk, leaves no torn job: the value goes to a new file.
func TestJobCutShort(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, fs.Options{})
	v := put(t, s, refstore.Record{Key: jobKey, Value: []byte("queued")})
	cut := fs.CutWrites(t, 8)
	now := put(t, s, refstore.Record{Key: jobKey, Value: []byte("running by one"), Version: v})
	if *cut != 1 {
		t.Fatalf("%d writes in place, want 1", *cut)
	}
	if r, err := s.Get(t.Context(), jobKey); err != nil || string(r.Value) != "running by one" || r.Version != now {
		t.Errorf("got %q, version %q, %v, want version %q", r.Value, r.Version, err, now)
	}
}

// TestJobWriterKilled: a writer that is killed before it has set the time of the file leaves another version all the same.
func TestJobWriterKilled(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, fs.Options{})
	v := put(t, s, refstore.Record{Key: jobKey, Value: []byte("queued")})
	before, err := os.Stat(jobFile(dir))
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(jobFile(dir), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("running by one"), 0); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Close(), os.Chtimes(jobFile(dir), time.Time{}, before.ModTime())); err != nil { // a coarse clock
		t.Fatal(err)
	}
	r, err := s.Get(t.Context(), jobKey)
	if err != nil || string(r.Value) != "running by one" || r.Version == v {
		t.Fatalf("got %q, version %q, %v, want another one than %q", r.Value, r.Version, err, v)
	}
	if _, err := s.Put(t.Context(), refstore.Record{Key: jobKey, Value: []byte("running by another"), Version: v}); !errors.Is(err, refstore.ErrConflict) {
		t.Errorf("over the version before: %v, want a conflict", err)
	}
	put(t, s, refstore.Record{Key: jobKey, Value: []byte("running by another"), Version: r.Version})
}

// TestJobReadInTheMiddle: a writer stands still in the middle of a write in place, for as long as two reads take. A reader
// waits for it, and reports no damage.
func TestJobReadInTheMiddle(t *testing.T) {
	dir := t.TempDir()
	s, other := checked.New(open(t, dir, fs.Options{}), false), checked.New(open(t, dir, fs.Options{}), false)
	v, err := s.Put(t.Context(), refstore.Record{Key: jobKey, Value: []byte("queued")})
	if err != nil {
		t.Fatal(err)
	}
	read := make(chan error, 1)
	fs.InMiddleOfWrite(t, func() {
		go func() {
			r, err := other.Get(t.Context(), jobKey)
			if err == nil && string(r.Value) != "running by one" {
				err = fmt.Errorf("got %q", r.Value)
			}
			read <- err
		}()
		for range 50 { // the reader comes as far as the lock
			runtime.Gosched()
			if _, err := other.Get(t.Context(), refstore.Key{Partition: jobKey.Partition, Sort: "none"}); !errors.Is(err, refstore.ErrNotFound) {
				t.Error(err)
			}
		}
	})
	if _, err := s.Put(t.Context(), refstore.Record{Key: jobKey, Value: []byte("running by one"), Version: v}); err != nil {
		t.Fatal(err)
	}
	if err := <-read; err != nil {
		t.Errorf("a read in the middle of a write: %v", err)
	}
}

// TestJobReadWhileWritten: readers of a job see one version or another, with its own bytes, while it changes.
func TestJobReadWhileWritten(t *testing.T) {
	dir := t.TempDir()
	s, other := checked.New(open(t, dir, fs.Options{}), false), checked.New(open(t, dir, fs.Options{}), false)
	content := func(n int) []byte { return bytes.Repeat([]byte{byte('a' + n%26)}, 100+n%300) }
	known := map[refstore.Version]int{}
	v, err := s.Put(t.Context(), refstore.Record{Key: jobKey, Value: content(0)})
	if err != nil {
		t.Fatal(err)
	}
	known[v] = 0
	stop := make(chan struct{})
	var reading sync.WaitGroup
	seen := make([]map[refstore.Version][]byte, 2)
	for n := range seen {
		seen[n] = map[refstore.Version][]byte{}
		reading.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				r, err := other.Get(t.Context(), jobKey)
				if err != nil {
					t.Error(err)
					return
				}
				seen[n][r.Version] = r.Value
			}
		})
	}
	for n := 1; n < 3000; n++ {
		if v, err = s.Put(t.Context(), refstore.Record{Key: jobKey, Value: content(n), Version: v}); err != nil {
			t.Fatal(err)
		}
		if was, ok := known[v]; ok {
			t.Fatalf("version %q of write %d is that of %d", v, n, was)
		}
		known[v] = n
	}
	close(stop)
	reading.Wait()
	for n := range seen {
		for version, value := range seen[n] {
			// A reader may see the bytes before the time of their version is set: then the version is of no use.
			if write, ok := known[version]; ok && !bytes.Equal(value, content(write)) {
				t.Errorf("version %q: got %q, want %q", version, fmt.Sprintf("%.1s × %d", value, len(value)), content(write)[:1])
			}
		}
	}
}

// A record of a job has nothing beside its file, so no fields are taken that would not be found again.
func TestJobHasNoFields(t *testing.T) {
	s := open(t, t.TempDir(), fs.Options{BareJobs: true})
	_, err := s.Put(t.Context(), refstore.Record{Key: jobKey, Value: []byte("{}"), Fields: []refstore.Field{{Name: "f", Value: []byte("x")}}})
	if !errors.Is(err, refstore.ErrInvalid) {
		t.Errorf("a job with a field: %v, want ErrInvalid", err)
	}
	if _, err := s.Get(t.Context(), jobKey); !errors.Is(err, refstore.ErrNotFound) {
		t.Errorf("it is read: %v, want ErrNotFound", err)
	}
}

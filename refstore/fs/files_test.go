//go:build unix

package fs_test

import (
	"errors"
	"fmt"
	iofs "io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"e3/refstore"
	"e3/refstore/fs"
)

// tree lists the files below dir with their contents, and empty folders.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := make(map[string]string)
	err := filepath.WalkDir(dir, func(path string, e iofs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		if e.IsDir() {
			if len(names(t, path)) == 0 {
				files[rel+"/"] = ""
			}
			return nil
		}
		data, err := os.ReadFile(path)
		files[rel] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func TestLayout(t *testing.T) {
	dir := t.TempDir()
	s, err := fs.Open(dir, fs.Options{})
	if err != nil {
		t.Fatal(err)
	}
	want := make(map[string]string)
	for path, key := range map[string]refstore.Key{
		"executions/th/ih/id/status.beast2":  {Partition: "EXECUTION/th/ih", Sort: "id"},
		"executions/th/ih2/id/status.beast2": {Partition: "EXECUTION/th/ih2", Sort: "id"},
		"dataflows/prod/run.beast2":          {Partition: "DATAFLOW/prod", Sort: "run"},
		"workspaces/prod.beast2":             {Partition: "WORKSPACE", Sort: "prod"},
		"packages/model/1.0.0":               {Partition: "PACKAGE", Sort: "model/1.0.0"},
		"packages/@scope%2Fmodel/1.0.0":      {Partition: "PACKAGE", Sort: "@scope/model/1.0.0"},
		"index/history/prod/train.rec":       {Partition: "INDEX/history/prod", Sort: "train"},
		"queue/default/jobs/id.rec":          {Partition: "QUEUE/default/jobs", Sort: "id"},
		"queue/default/jobs.rec":             {Partition: "QUEUE/default", Sort: "jobs"},
		"locks/leases/run/prod.rec":          {Partition: "LEASE/run", Sort: "prod"},
		"tombstones/th.rec":                  {Partition: "TOMBSTONE", Sort: "th"},
		"pins/id.rec":                        {Partition: "PIN", Sort: "id"},
		"cancels/prod.rec":                   {Partition: "CANCEL", Sort: "prod"},
		"approvals/prod/train%2Fsum.rec":     {Partition: "APPROVAL/prod", Sort: "train/sum"},
		"blocks/prod/run%2Ftrain.rec":        {Partition: "BLOCK/prod", Sort: "run/train"},
		"settings/trust.json":                {Partition: "SETTINGS", Sort: "trust"},
	} {
		want[path] = path
		if strings.HasPrefix(key.Partition, "EXECUTION/") {
			want[path] += "\ne3with\n"
		}
		put(t, s, refstore.Record{Key: key, Value: []byte(path)})
	}
	put(t, s, refstore.Record{
		Key:    refstore.Key{Partition: "EXECUTION/th/ih", Sort: "id2"},
		Value:  []byte("v"),
		Fields: []refstore.Field{{Name: "output", Value: []byte("o")}, {Name: "detail.beast2", Value: []byte("d")}},
	})
	want["executions/th/ih/id2/status.beast2"] = "vod\ne3with output=1 detail.beast2=1\n"
	put(t, s, refstore.Record{Key: refstore.Key{Partition: "TASKS", Sort: "th3"}})
	want["executions/th3/"] = ""
	for path, key := range map[string]refstore.Key{
		"events/prod/run.ndjson":         eventsKey,
		"executions/th/ih/id/stdout.txt": {Partition: "LOG/th/ih/id", Sort: "stdout.txt"},
		"executions/th/ih/id/stderr.txt": {Partition: "LOG/th/ih/id", Sort: "stderr.txt"},
	} {
		want[path] = path
		if err := s.Append(t.Context(), key, 0, []byte(path)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	want["tmp/"] = ""
	got := tree(t, dir)
	for path, content := range want {
		if c, ok := got[path]; !ok || c != content {
			t.Errorf("%s holds %q (%v), want %q", path, c, ok, content)
		}
		delete(got, path)
	}
	for path := range got {
		if strings.HasPrefix(path, "locks/records/") {
			continue // appends and the first log took a lock
		}
		t.Errorf("%s is there, which should not be", path)
	}
}

func TestFolderRecords(t *testing.T) {
	s := open(t, t.TempDir(), fs.Options{})
	task := refstore.Key{Partition: "TASKS", Sort: "th"}
	if _, err := s.Get(t.Context(), task); !errors.Is(err, refstore.ErrNotFound) {
		t.Errorf("get: %v, want ErrNotFound", err)
	}
	v := put(t, s, refstore.Record{Key: task})
	if _, err := s.Put(t.Context(), refstore.Record{Key: task}); !errors.Is(err, refstore.ErrConflict) {
		t.Errorf("put again: %v, want ErrConflict", err)
	}
	if _, err := s.Put(t.Context(), refstore.Record{Key: task, Version: v}); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("update: %v, want ErrUnsupported", err)
	}
	put(t, s, refstore.Record{Key: refstore.Key{Partition: "EXECUTION/th/ih", Sort: "id"}})
	put(t, s, refstore.Record{Key: refstore.Key{Partition: "EXECUTION/th2/ih", Sort: "id"}})
	for partition, want := range map[string]string{"TASKS": "[th th2]", "INPUTS/th": "[ih]", "INPUTS/none": "[]"} {
		var got []string
		for r, err := range s.List(t.Context(), refstore.Query{Partition: partition}) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, r.Key.Sort)
		}
		if fmt.Sprint(got) != want {
			t.Errorf("list of %s: got %v, want %s", partition, got, want)
		}
	}
	if err := s.Delete(t.Context(), task, v); !errors.Is(err, refstore.ErrConflict) {
		t.Errorf("delete of a task with executions: %v, want ErrConflict", err)
	}
	empty := refstore.Key{Partition: "TASKS", Sort: "empty"}
	v = put(t, s, refstore.Record{Key: empty})
	if err := s.Delete(t.Context(), empty, v); err != nil {
		t.Error(err)
	}
	if err := s.Delete(t.Context(), empty, v); !errors.Is(err, refstore.ErrNotFound) {
		t.Errorf("delete again: %v, want ErrNotFound", err)
	}
}

// TestVersionsUnderABadClock deletes and creates while the clock stands still or goes back.
func TestVersionsUnderABadClock(t *testing.T) {
	start := time.Now().Add(time.Hour) // ahead of the file system's clock, which then always seems to be set back
	for name, step := range map[string]time.Duration{"still": 0, "back": -time.Minute, "forward": time.Nanosecond} {
		t.Run(name, func(t *testing.T) {
			now := start
			s := open(t, t.TempDir(), fs.Options{Now: func() time.Time { now = now.Add(step); return now }})
			for _, key := range []refstore.Key{job("a"), {Partition: "EXECUTION/t/i", Sort: "e"}} {
				seen := make(map[refstore.Version]bool)
				for range 50 {
					r := refstore.Record{Key: key, Value: []byte("same")}
					for range 3 {
						r.Version = put(t, s, r)
						if seen[r.Version] {
							t.Fatalf("%q: version %q recurs", key, r.Version)
						}
						seen[r.Version] = true
					}
					if err := s.Delete(t.Context(), key, r.Version); err != nil {
						t.Fatal(err)
					}
				}
			}
		})
	}
}

func TestLogsBeforeTheRecord(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, fs.Options{})
	key := refstore.Key{Partition: "EXECUTION/t/i", Sort: "e"}
	log := refstore.Key{Partition: "LOG/t/i/e", Sort: "stdout.txt"}
	if err := s.Append(t.Context(), log, 0, []byte("hello\n")); err != nil {
		t.Fatal(err)
	}
	for _, keysOnly := range []bool{true, false} {
		for r, err := range s.List(t.Context(), refstore.Query{Partition: key.Partition, KeysOnly: keysOnly}) {
			t.Errorf("list of an execution without a record: got %v, %v, want nothing", r, err)
		}
	}
	r := refstore.Record{Key: key, Value: []byte("v"), Fields: []refstore.Field{{Name: "output", Value: []byte("o")}}}
	r.Version = put(t, s, r)
	if _, err := s.Put(t.Context(), refstore.Record{Key: key}); !errors.Is(err, refstore.ErrConflict) {
		t.Errorf("create again: %v, want ErrConflict", err)
	}
	got, err := s.Get(t.Context(), key, "output")
	if err != nil || string(got.Value) != "v" || len(got.Fields) != 1 || got.Version != r.Version {
		t.Errorf("get: got %+v, %v", got, err)
	}
	if info, err := s.Size(t.Context(), log); err != nil || info.Size != 6 {
		t.Errorf("log: got %+v, %v, want 6 bytes", info, err)
	}
	session, err := s.SessionDir()
	if err != nil {
		t.Fatal(err)
	}
	if left := names(t, session); len(left) > 0 {
		t.Errorf("the session holds %q, want nothing", left)
	}
	if err := s.Delete(t.Context(), key, r.Version); err != nil {
		t.Fatal(err)
	}
	if left := names(t, filepath.Join(dir, "executions", "t", "i")); len(left) > 0 {
		t.Errorf("the execution left %q, want nothing", left)
	}
}

func TestSealedFileIsReadOnly(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, fs.Options{})
	if err := errors.Join(s.Append(t.Context(), eventsKey, 0, []byte("x")), s.Seal(t.Context(), eventsKey)); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(dir, "events", "prod", "run.ndjson"))
	if err != nil || info.Mode() != 0o444 {
		t.Errorf("mode of a sealed stream: got %v, %v, want -r--r--r--", info.Mode(), err)
	}
}

// TestPlanted puts files that are not regular in the place of records.
func TestPlanted(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(outside, []byte("secret"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, plant := range map[string]func(path string) error{
		"link":          func(path string) error { return os.Symlink(outside, path) },
		"dangling link": func(path string) error { return os.Symlink(outside+"2", path) },
		"pipe":          func(path string) error { return unix.Mkfifo(path, 0o644) },
		"folder":        func(path string) error { return os.Mkdir(path, 0o755) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := open(t, dir, fs.Options{})
			v := put(t, s, refstore.Record{Key: job("other"), Value: []byte("x")})
			if err := s.Append(t.Context(), refstore.Key{Partition: eventsKey.Partition, Sort: "other"}, 0, nil); err != nil {
				t.Fatal(err)
			}
			for _, path := range []string{"queue/default/a.rec", "events/prod/run.ndjson"} {
				if err := plant(filepath.Join(dir, path)); err != nil {
					t.Fatal(err)
				}
			}
			if r, err := s.Get(t.Context(), job("a")); err == nil || errors.Is(err, refstore.ErrNotFound) {
				t.Errorf("get: got %q, %v, want an error", r.Value, err)
			}
			for what, err := range map[string]error{
				"create": second(s.Put(t.Context(), refstore.Record{Key: job("a")})),
				"update": second(s.Put(t.Context(), refstore.Record{Key: job("a"), Version: v})),
				"delete": s.Delete(t.Context(), job("a"), v),
				"open":   second(s.Open(t.Context(), eventsKey, 0)),
				"size":   second(s.Size(t.Context(), eventsKey)),
				"append": s.Append(t.Context(), eventsKey, 0, []byte("x")),
				"seal":   s.Seal(t.Context(), eventsKey),
			} {
				if err == nil {
					t.Errorf("%s: got no error", what)
				}
			}
			for r, err := range s.List(t.Context(), refstore.Query{Partition: job("").Partition}) {
				if foreign := errors.Is(err, refstore.ErrDamaged) && errors.Is(err, refstore.ErrForeign); foreign != (r.Key == job("a")) || err != nil && !foreign {
					t.Errorf("list: got %v, %v, want the other record, and what is in the place of this one as damage", r.Key, err)
				}
			}
			if data, err := os.ReadFile(outside); err != nil || string(data) != "secret" {
				t.Errorf("the file outside holds %q, %v", data, err)
			}
		})
	}
}

func second[T any](_ T, err error) error { return err }

func TestForeignFilesAreNoRecords(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, fs.Options{})
	put(t, s, refstore.Record{Key: refstore.Key{Partition: "WORKSPACE", Sort: "prod"}, Fields: []refstore.Field{{Name: "f"}}})
	put(t, s, refstore.Record{Key: refstore.Key{Partition: "PACKAGE", Sort: "p/1"}, Fields: []refstore.Field{{Name: "f"}}})
	for _, path := range []string{
		"workspaces/.prod.beast2.swp", "workspaces/notes.txt", "workspaces/a%41.beast2", "workspaces/.beast2", "packages/README", "packages/p/.hidden",
	} {
		if err := os.WriteFile(filepath.Join(dir, path), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for partition, want := range map[string]string{"WORKSPACE": "prod", "PACKAGE": "p/1"} {
		for r, err := range s.List(t.Context(), refstore.Query{Partition: partition}) {
			if err != nil || r.Key.Sort != want {
				t.Errorf("list of %s: got %q, %v, want only %q", partition, r.Key.Sort, err, want)
			}
		}
	}
}

// TestStrayFields tests side fields that a crash leaves without their record.
func TestStrayFields(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, fs.Options{})
	if err := os.MkdirAll(filepath.Join(dir, "queue", "default", "a.rec~"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "queue", "default", "a.rec~", "f"), []byte("stray"), 0o644); err != nil {
		t.Fatal(err)
	}
	put(t, s, refstore.Record{Key: job("a")})
	r, err := s.Get(t.Context(), job("a"), "f")
	if err != nil || len(r.Fields) > 0 {
		t.Errorf("get: got %+v, %v, want no fields", r, err)
	}
}

func TestLargeFolder(t *testing.T) {
	s := open(t, t.TempDir(), fs.Options{})
	var want []string
	for i := range 6000 {
		want = append(want, fmt.Sprintf("%s-%05d", strings.Repeat("long", 20), i))
		put(t, s, refstore.Record{Key: job(want[i])})
	}
	var got []string
	for r, err := range s.List(t.Context(), refstore.Query{Partition: job("").Partition, KeysOnly: true}) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, r.Key.Sort)
	}
	if !slices.Equal(got, want) {
		t.Errorf("list: got %d keys, want the %d that were written, in order", len(got), len(want))
	}
}

func TestSessions(t *testing.T) {
	dir := t.TempDir()
	one, two := open(t, dir, fs.Options{}), open(t, dir, fs.Options{})
	if left := names(t, dir); len(left) > 0 {
		t.Errorf("opening made %q, want nothing", left)
	}
	first, err := one.SessionDir()
	if err != nil {
		t.Fatal(err)
	}
	if again, err := one.SessionDir(); err != nil || again != first {
		t.Errorf("session again: got %q, %v, want %q", again, err, first)
	}
	second, err := two.SessionDir()
	if err != nil || second == first {
		t.Errorf("the other store's session: got %q, %v, want another than %q", second, err, first)
	}
	for _, s := range []*fs.Store{one, two} { // its own session, and another live one
		if n, err := s.Sweep(t.Context()); n != 0 || err != nil {
			t.Errorf("sweep: got %d, %v, want 0", n, err)
		}
	}
	dead := filepath.Join(dir, "tmp", "session-1-deadbeef")
	foreign := filepath.Join(dir, "tmp", "somebody's")
	for _, d := range []string{dead, foreign} {
		if err := os.MkdirAll(filepath.Join(d, "in it"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := two.Sweep(t.Context()); n != 1 || err != nil {
		t.Errorf("sweep: got %d, %v, want 1", n, err)
	}
	if err := one.Close(); err != nil {
		t.Error(err)
	}
	if _, err := one.SessionDir(); !errors.Is(err, iofs.ErrClosed) {
		t.Errorf("session of a closed store: %v, want ErrClosed", err)
	}
	want := []string{filepath.Base(second), filepath.Base(second) + ".lock", filepath.Base(foreign)}
	if got := names(t, filepath.Join(dir, "tmp")); !slices.Equal(got, want) {
		t.Errorf("tmp/ holds %q, want %q", got, want)
	}
}

func TestTmpRemovedByHand(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, fs.Options{})
	put(t, s, refstore.Record{Key: job("a")})
	if err := os.RemoveAll(filepath.Join(dir, "tmp")); err != nil {
		t.Fatal(err)
	}
	put(t, s, refstore.Record{Key: job("b")})
	put(t, s, refstore.Record{Key: refstore.Key{Partition: "EXECUTION/t/i", Sort: "e"}, Fields: []refstore.Field{{Name: "f"}}})
}

func TestDurableWrites(t *testing.T) {
	s := open(t, t.TempDir(), fs.Options{})
	for _, key := range []refstore.Key{job("a"), {Partition: "EXECUTION/t/i", Sort: "e"}, {Partition: "WORKSPACE", Sort: "w"}} {
		r := refstore.Record{Key: key, Value: []byte("v"), Fields: []refstore.Field{{Name: "f", Value: []byte("f")}}}
		for range 2 { // create, update
			v, err := s.PutSync(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			r.Version = v
			got, err := s.Get(t.Context(), key, "f")
			if err != nil || string(got.Value) != "v" || len(got.Fields) != 1 || got.Version != v {
				t.Errorf("get %q: got %+v, %v", key, got, err)
			}
		}
	}
	if err := s.Sync(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestOpenOfNothing(t *testing.T) {
	dir := t.TempDir()
	if _, err := fs.Open(filepath.Join(dir, "none"), fs.Options{}); !errors.Is(err, iofs.ErrNotExist) {
		t.Errorf("open of nothing: %v, want ErrNotExist", err)
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := fs.Open(file, fs.Options{}); err == nil {
		t.Error("open of a file: got no error")
	}
}

func TestUnknownKind(t *testing.T) {
	s := open(t, t.TempDir(), fs.Options{})
	for _, key := range []refstore.Key{
		{Partition: "UNKNOWN/a", Sort: "a"}, {Partition: "EXECUTION/a", Sort: "a"}, {Partition: "EXECUTION/a/b/c", Sort: "a"},
		{Partition: "WORKSPACE/a", Sort: "a"}, {Partition: "DATAFLOW", Sort: "a"}, {Partition: "PACKAGE", Sort: "no version"},
	} {
		if _, err := s.Put(t.Context(), refstore.Record{Key: key}); !errors.Is(err, refstore.ErrInvalid) {
			t.Errorf("put %q: %v, want ErrInvalid", key, err)
		}
		if err := s.Append(t.Context(), key, 0, nil); !errors.Is(err, refstore.ErrInvalid) {
			t.Errorf("append to %q: %v, want ErrInvalid", key, err)
		}
	}
}

package queue_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"e3/internal/format/record"
	"e3/internal/jobs/queue"
	"e3/refstore"
)

// The ids of jobs never change, because a run and its workers may be of different versions.
func TestIdentityVectors(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("testdata", "identity.json"))
	if err != nil {
		t.Fatal(err)
	}
	var vectors []struct {
		Name, ID string
		Job      struct {
			Workspace, Run, Task, Step, TaskHash string
			Attempt                              int64
			Inputs                               []string
		}
	}
	if err := json.Unmarshal(data, &vectors); err != nil {
		t.Fatal(err)
	}
	if len(vectors) < 5 {
		t.Fatalf("got %d vectors, want 5 or more", len(vectors))
	}
	seen := make(map[string]string)
	for _, v := range vectors {
		j := queue.Job{Workspace: v.Job.Workspace, Run: v.Job.Run, Task: v.Job.Task, Step: v.Job.Step, TaskHash: v.Job.TaskHash, Attempt: v.Job.Attempt, Inputs: v.Job.Inputs}
		got := queue.Identity(&j)
		if got != v.ID {
			t.Errorf("%s: got %s, want %s", v.Name, got, v.ID)
		}
		if other, twice := seen[got]; twice {
			t.Errorf("%s and %s have one id", v.Name, other)
		}
		seen[got] = v.Name
		j.Queue, j.Priority, j.Host, j.Force, j.Policy = "other", 7, "else", true, record.Policy{CPU: 3}
		if got := queue.Identity(&j); got != v.ID {
			t.Errorf("%s, with what is no part of it: got %s, want %s", v.Name, got, v.ID)
		}
	}
}

// Records are encoded as in testdata/records.
func TestRecordVectors(t *testing.T) {
	for _, r := range vectors(t) {
		got, ok, err := queue.Reencode(r)
		if err != nil || !ok || !bytes.Equal(got, r.Value) {
			t.Errorf("%s: got %s, %v, %v, want %s", r.Key, got, ok, err, r.Value)
		}
	}
}

// vectors are the example records: partition, sort key and value, each followed by a line "--".
func vectors(t testing.TB) []refstore.Record {
	t.Helper()
	names, err := filepath.Glob(filepath.Join("testdata", "records", "*.txt"))
	if err != nil || len(names) == 0 {
		t.Fatalf("no records: %v", err)
	}
	var records []refstore.Record
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		parts := strings.SplitN(strings.TrimSuffix(string(data), "\n"), "\n--\n", 3)
		if len(parts) != 3 {
			t.Fatalf("%s: %d parts, want 3", name, len(parts))
		}
		records = append(records, refstore.Record{Key: refstore.Key{Partition: parts[0], Sort: parts[1]}, Value: []byte(parts[2])})
	}
	return records
}

// A record is either refused or equal to its own encoding, without a panic.
func FuzzRecord(f *testing.F) {
	for _, r := range vectors(f) {
		f.Add(r.Key.Partition, r.Key.Sort, r.Value)
	}
	f.Fuzz(func(t *testing.T, partition, sort string, value []byte) {
		r := refstore.Record{Key: refstore.Key{Partition: partition, Sort: sort}, Value: value}
		again, ok, err := queue.Reencode(r)
		if !ok || err != nil {
			return
		}
		r.Value = again
		twice, _, err := queue.Reencode(r)
		if err != nil || !bytes.Equal(again, twice) {
			t.Errorf("got %s, %v, want %s", twice, err, again)
		}
	})
}

// A job with a name that does not fit other records is damaged; the other jobs are still reported.
func TestSenselessJob(t *testing.T) {
	w := newWorld(t)
	p := w.on("host")
	ctx := t.Context()
	long := strings.Repeat("x", 300)
	if _, err := p.Enqueue(ctx, job(1, func(j *queue.Job) { j.Workspace = long })); err == nil {
		t.Error("a workspace with a name of 300 bytes was accepted")
	}
	for i := 1; i <= 2; i++ {
		if _, err := p.Enqueue(ctx, job(i)); err != nil {
			t.Fatal(err)
		}
	}
	running := p.claim(t).Job()
	key := refstore.Key{Partition: "QUEUE/default/jobs", Sort: running.ID}
	r, err := w.store.Get(ctx, key)
	if err != nil {
		t.Fatal(err)
	}
	r.Value = bytes.Replace(r.Value, []byte(running.LockedBy), []byte(long), 1)
	if _, err := w.store.Put(ctx, r); err != nil {
		t.Fatal(err)
	}
	o, err := p.Overview(ctx, "default")
	if err != nil || len(o.Faults) != 1 || !errors.Is(o.Faults[0], queue.ErrMalformed) || o.Ready != 1 {
		t.Errorf("got %d ready, faults %v, error %v; want 1 ready, and one fault", o.Ready, o.Faults, err)
	}
}

// Every operation tolerates arbitrary records.
func FuzzHostileStore(f *testing.F) {
	for _, r := range vectors(f) {
		f.Add(r.Key.Partition, r.Key.Sort, r.Value)
	}
	f.Fuzz(func(t *testing.T, partition, sort string, value []byte) {
		r := refstore.Record{Key: refstore.Key{Partition: partition, Sort: sort}, Value: value}
		if r.Validate() != nil || !strings.HasPrefix(partition, queue.Kind+"/") {
			return
		}
		w := newWorld(t)
		if _, err := w.store.Put(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		p := w.on("host")
		ctx := t.Context()
		queues, _ := p.Queues(ctx)
		for _, name := range append(queues, queue.DefaultQueue) {
			_ = p.Reap(ctx, name)
			_ = p.Repair(ctx, name)
			_, _ = p.Overview(ctx, name)
		}
		j, err := p.Enqueue(ctx, job(1, priority(-9)))
		if err != nil {
			return // records under its names are in the way
		}
		for range 3 { // hostile entries may come first
			l, err := p.Claim(ctx, p.want())
			if err != nil {
				return
			}
			if l == nil {
				w.pass(3 * time.Second)
				continue
			}
			_ = l.Finish(ctx, success(l))
		}
		if got, err := p.Job(ctx, j.Queue, j.ID); err == nil && got.Status != queue.Succeeded {
			t.Errorf("the job is %s beside %s", got.Status, r.Key)
		}
		_, _ = p.Clean(ctx, w.now().Add(time.Hour))
	})
}

func TestRefs(t *testing.T) {
	j := job(1)
	j.Queue, j.ID = "fast", queue.Identity(j)
	name, id, err := queue.ParseRef(j.Ref())
	if err != nil || name != "fast" || id != j.ID {
		t.Errorf("got %q, %q, %v, want what the job says", name, id, err)
	}
	for _, bad := range []string{"", "fast", "fast/", "/" + j.ID, "a b/" + j.ID, "fast/" + j.ID + "0", "fast/../" + j.ID, "fast/" + strings.ToUpper(j.ID)} {
		if _, _, err := queue.ParseRef(bad); err == nil {
			t.Errorf("%q: got no error", bad)
		}
	}
}

// An entry that is an alias shows its job with the job's version. Where the job has changed, it is no entry of it any more, and
// no fault either.
func TestAlias(t *testing.T) {
	w := newWorld(t)
	w.moves, w.aliases = true, true
	p := w.on("a")
	p.enqueue(t, job(1))
	entry := func() (r refstore.Record) {
		for r = range w.records(t, "ready") {
			return r
		}
		t.Fatal("there is no entry")
		return r
	}
	is := func(what string, r refstore.Record, entry bool) {
		t.Helper()
		if _, _, err := queue.Reencode(r); (err == nil) != entry {
			t.Errorf("%s: decoding got %v, want an entry: %v", what, err, entry)
		}
		if err := queue.Check(r); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	is("of a queued job", entry(), true)
	gone := false
	p.wire.hook(func(_ int, after bool, op string) error {
		if gone = gone || op == "half of put unaliased jobs" && !after; gone {
			return errGone
		}
		return nil
	})
	if _, err := p.Claim(t.Context(), p.want()); err == nil {
		t.Fatal("the claim was not cut off")
	}
	p.wire.hook(nil)
	r := entry()
	is("of a running job", r, false)
	r.Key.Sort = strings.Replace(r.Key.Sort, run, "other", 1)
	if err := queue.Check(r); !errors.Is(err, queue.ErrMalformed) {
		t.Errorf("an alias in a wrong place: %v", err)
	}
}

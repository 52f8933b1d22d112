package executions_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"e3/executions"
	"e3/internal/format/record"
	"e3/objectstore"
	"e3/refstore"
	reffs "e3/refstore/fs"
	"e3/refstore/mem"
)

// backend is a store of records, logs and locks.
type backend interface {
	refstore.Store
	refstore.Streams
	refstore.Locker
}

// A library is a curator over a store without an executor.
type library struct {
	*executions.Curator
	records backend
	dir     string // "" in memory
	clock   time.Time
}

func newLibrary(records backend) *library {
	l := &library{records: records, clock: time.UnixMilli(1_700_000_000_000).UTC()}
	l.Curator = executions.NewCurator(executions.NewStore(records, &memory{}), records, func() time.Time { return l.clock })
	return l
}

// overLibraries runs a test on the memory store and on the file store.
func overLibraries(t *testing.T, test func(t *testing.T, l *library)) {
	t.Run("mem", func(t *testing.T) { test(t, newLibrary(mem.New())) })
	t.Run("fs", func(t *testing.T) {
		dir := t.TempDir()
		l := newLibrary(openStore(t, dir))
		l.dir = dir
		test(t, l)
	})
}

func openStore(t *testing.T, dir string) *reffs.Store {
	t.Helper()
	s, err := reffs.Open(dir, reffs.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

var importKey = executions.NewKey(objectstore.Sum([]byte("task")), []objectstore.Hash{objectstore.Sum([]byte("in"))})

// statusOf is the recorded status of an execution in a state.
func statusOf(id string, state record.State, who string) *record.Status {
	s := &record.Status{
		State: state, ExecutionID: id, InputHashes: []string{objectstore.Sum([]byte("in")).String()},
		StartedAt: time.UnixMilli(1).UTC(), CompletedAt: time.UnixMilli(2).UTC(),
	}
	switch state {
	case record.Success:
		s.OutputHash = objectstore.Sum([]byte(who)).String()
	case record.Failed:
		s.ExitCode = int64(len(who))
	case record.Error:
		s.Message = who
	case record.Running:
		s.CompletedAt, s.PID, s.BootID = time.Time{}, 4711, who
	}
	return s
}

func detailOf(who string) []byte { return (&record.Detail{Attempt: 2, Worker: who}).Encode() }

var chain = &record.Provenance{Steps: []record.Step{
	{By: "ann@one", Repository: "/a/.e3", Version: "1", ImportedBy: "bob@two", ImportedAt: time.UnixMilli(3).UTC()},
	{By: "bob@two", Repository: "/b/.e3", Version: "2", Signer: record.Signer{Key: "key", Name: "bob"}, ImportedBy: "cas@three", ImportedAt: time.UnixMilli(4).UTC()},
}}

func logOf(text string) func() (io.ReadCloser, int64, error) {
	return func() (io.ReadCloser, int64, error) {
		return io.NopCloser(strings.NewReader(text)), int64(len(text)), nil
	}
}

func incoming(id string, state record.State, stdout, stderr string) *executions.Incoming {
	in := &executions.Incoming{
		Key: importKey, Status: statusOf(id, state, "there"), Detail: detailOf("there"), Provenance: chain, Stdout: logOf(stdout), Stderr: logOf(stderr),
	}
	if stderr == "" {
		in.Stderr = nil
	}
	return in
}

// entry is everything stored of an execution.
type entry struct {
	Status, Output, Detail, Rejected, Metadata, Provenance, Stdout, Stderr string
}

// entry reads the stored bytes of an execution, as an export does.
func (l *library) entry(t *testing.T, id string) *entry {
	t.Helper()
	e := &entry{}
	fields := map[string]*string{
		"output": &e.Output, "detail.beast2": &e.Detail, "rejected.beast2": &e.Rejected, "metadata.beast2": &e.Metadata, "provenance.beast2": &e.Provenance,
	}
	rec, err := l.records.Get(t.Context(), refstore.Key{Partition: "EXECUTION/" + importKey.String(), Sort: id},
		"output", "detail.beast2", "rejected.beast2", "metadata.beast2", "provenance.beast2")
	if errors.Is(err, refstore.ErrNotFound) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	e.Status = string(rec.Value)
	for _, f := range rec.Fields {
		*fields[f.Name] = string(f.Value)
	}
	for stream, text := range map[executions.Stream]*string{executions.Stdout: &e.Stdout, executions.Stderr: &e.Stderr} {
		r, err := l.OpenLog(t.Context(), importKey, id, stream, 0)
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		r.Close()
		if err != nil {
			t.Fatal(err)
		}
		*text = string(data)
		if n, err := l.LogSize(t.Context(), importKey, id, stream); err != nil || n != int64(len(data)) {
			t.Errorf("size of %s is %d, %v, want %d", stream, n, err, len(data))
		}
	}
	return e
}

// imported is the entry that an import of in must make.
func imported(in *executions.Incoming, stdout, stderr string) *entry {
	last := chain.Steps[len(chain.Steps)-1]
	e := &entry{
		Status: string(in.Status.Encode()), Detail: string(in.Detail), Rejected: string(in.Rejection), Provenance: string(chain.Encode()), Stdout: stdout, Stderr: stderr,
		Metadata: string((&record.Metadata{ExecutionID: in.Status.ExecutionID, Origin: record.Origin{SourceRepo: "bob@two:/b/.e3", ImportedAt: last.ImportedAt}}).Encode()),
	}
	if in.Status.State == record.Success {
		e.Output = in.Status.OutputHash + "\n"
	}
	return e
}

func (l *library) put(t *testing.T, id string, value []byte, fields ...refstore.Field) {
	t.Helper()
	_, err := l.records.Put(t.Context(), refstore.Record{
		Key: refstore.Key{Partition: "EXECUTION/" + importKey.String(), Sort: id}, Value: value, Fields: fields})
	if err != nil {
		t.Fatal(err)
	}
}

func (l *library) append(t *testing.T, id string, stream executions.Stream, text string) {
	t.Helper()
	if err := l.records.Append(t.Context(), refstore.Key{Partition: "LOG/" + importKey.String() + "/" + id, Sort: string(stream)}, 0, []byte(text)); err != nil {
		t.Fatal(err)
	}
}

// claimOf is the claim of a running execution.
func claimOf(id string) [32]byte { return sha256.Sum256([]byte("e3 claim execution\x00" + id)) }

// claimOfKey is the claim under which a key is executed.
func claimOfKey(k executions.Key) [32]byte {
	return sha256.Sum256([]byte("e3 claim key\x00" + k.String()))
}

// localStates are the states in which an import may find its id.
var localStates = []struct {
	name string
	make func(t *testing.T, l *library, id string)
}{
	{"none", func(*testing.T, *library, string) {}},
	{"logs of an import that was cut off", func(t *testing.T, l *library, id string) {
		l.append(t, id, executions.Stdout, "leftover that is long")
		l.append(t, id, executions.Stderr, "leftover")
	}},
	{"success", ended(record.Success)},
	{"failed", ended(record.Failed)},
	{"error", ended(record.Error)},
	{"malformed", func(t *testing.T, l *library, id string) {
		l.put(t, id, []byte("torn"), refstore.Field{Name: "rejected.beast2", Value: []byte("stale")})
		l.append(t, id, executions.Stdout, "old")
	}},
	{"success with a torn rejection", func(t *testing.T, l *library, id string) {
		l.put(t, id, statusOf(id, record.Success, "here").Encode(), refstore.Field{Name: "rejected.beast2"})
	}},
	{"another's record", func(t *testing.T, l *library, id string) {
		l.put(t, id, statusOf("another", record.Success, "here").Encode())
	}},
	{"running, dead", func(t *testing.T, l *library, id string) {
		l.put(t, id, statusOf(id, record.Running, "here").Encode(), refstore.Field{Name: "detail.beast2", Value: detailOf("here")})
		l.append(t, id, executions.Stdout, "so far")
	}},
	{"running, alive", func(t *testing.T, l *library, id string) {
		lock, err := l.records.TryClaim(t.Context(), claimOf(id), nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { lock.Unlock() })
		l.put(t, id, statusOf(id, record.Running, "here").Encode())
	}},
}

func ended(state record.State) func(*testing.T, *library, string) {
	return func(t *testing.T, l *library, id string) {
		l.put(t, id, statusOf(id, state, "here").Encode(), refstore.Field{Name: "detail.beast2", Value: detailOf("here")})
		l.append(t, id, executions.Stdout, "printed here")
		l.append(t, id, executions.Stderr, strings.Repeat("long here ", 10_000))
	}
}

// collisions is the table of doc/design.md, "Import", for all localStates.
var collisions = map[string]map[record.State]executions.Outcome{
	"none": {record.Success: executions.Added, record.Failed: executions.Added, record.Error: executions.Added},
	"logs of an import that was cut off": {
		record.Success: executions.Added, record.Failed: executions.Added, record.Error: executions.Added},
	"success": {record.Success: executions.SkippedSuccess, record.Failed: executions.SkippedSuccess, record.Error: executions.SkippedSuccess},
	"failed":  {record.Success: executions.Overwritten, record.Failed: executions.SkippedFailure, record.Error: executions.SkippedFailure},
	"error":   {record.Success: executions.Overwritten, record.Failed: executions.SkippedFailure, record.Error: executions.SkippedFailure},
	"malformed": {
		record.Success: executions.Overwritten, record.Failed: executions.Overwritten, record.Error: executions.Overwritten},
	"success with a torn rejection": {
		record.Success: executions.Overwritten, record.Failed: executions.SkippedSuccess, record.Error: executions.SkippedSuccess},
	"another's record": {
		record.Success: executions.Overwritten, record.Failed: executions.Overwritten, record.Error: executions.Overwritten},
	"running, dead": {
		record.Success: executions.Overwritten, record.Failed: executions.SkippedFailure, record.Error: executions.SkippedFailure},
	"running, alive": {
		record.Success: executions.SkippedRunning, record.Failed: executions.SkippedRunning, record.Error: executions.SkippedRunning},
}

// logSizes are below, at and above the limit for logs in the record, and above the buffer's size.
var logSizes = []int{0, 5, 64 << 10, 64<<10 + 1, 600 << 10}

func TestImportCollisions(t *testing.T) {
	for _, here := range localStates {
		for _, state := range []record.State{record.Success, record.Failed, record.Error, record.Running} {
			t.Run(here.name+"/"+state.String(), func(t *testing.T) {
				overLibraries(t, func(t *testing.T, l *library) {
					for i, size := range logSizes {
						id := newID(t)
						here.make(t, l, id)
						stdout, stderr := strings.Repeat("o", size), strings.Repeat("e", logSizes[len(logSizes)-1-i])
						in := incoming(id, state, stdout, stderr)
						if i == 1 {
							in.Detail = nil // as the reference exports
						}
						if i == 2 && state == record.Success {
							in.Rejection = (&record.Rejection{Rejected: true, By: "ann", At: time.UnixMilli(5)}).Encode()
						}
						want, ok := collisions[here.name][state]
						if !ok {
							want = executions.SkippedUnfinished
						}
						before := l.entry(t, id)
						if got, err := l.Decide(t.Context(), in); err != nil || got != want {
							t.Fatalf("Decide: got %v, %v, want %v", got, err, want)
						}
						if diff := cmp.Diff(before, l.entry(t, id)); diff != "" {
							t.Fatalf("Decide has changed something (-was +is):\n%s", diff)
						}
						got, err := l.Import(t.Context(), in)
						if err != nil || got != want {
							t.Fatalf("Import: got %v, %v, want %v", got, err, want)
						}
						after := l.entry(t, id)
						if want.Skipped() {
							if here.name == "running, dead" && state != record.Running { // it was closed all the same
								before.Status = after.Status
								if s, err := record.DecodeStatus([]byte(after.Status)); err != nil || s.State != record.Error || s.CompletedAt != l.clock {
									t.Errorf("the dead one is %+v, %v", s, err)
								}
							}
							if diff := cmp.Diff(before, after); diff != "" {
								t.Errorf("it was skipped and something changed (-was +is):\n%s", diff)
							}
							continue
						}
						if diff := cmp.Diff(imported(in, stdout, stderr), after); diff != "" {
							t.Errorf("imported (-want +got):\n%s", diff)
						}
						e, err := l.Get(t.Context(), importKey, id)
						if err != nil || e.Provenance == nil || len(e.Provenance.Steps) != 2 || e.Metadata == nil || e.Metadata.Origin.SourceRepo != "bob@two:/b/.e3" {
							t.Errorf("on record: %+v, %v", e, err)
						}
						if again, err := l.Import(t.Context(), in); err != nil || !again.Skipped() {
							t.Errorf("again: %v, %v, want it skipped", again, err)
						}
						if diff := cmp.Diff(after, l.entry(t, id)); diff != "" {
							t.Errorf("again has changed something (-was +is):\n%s", diff)
						}
					}
				})
			})
		}
	}
}

// An unfit execution is refused before anything is written.
func TestImportRefuses(t *testing.T) {
	id := newID(t)
	for _, test := range []struct {
		name   string
		change func(in *executions.Incoming)
		want   string
	}{
		{"id that leads elsewhere", func(in *executions.Incoming) { in.Status.ExecutionID = "../../../x" }, "UUIDv7"},
		{"upper-case id", func(in *executions.Incoming) { in.Status.ExecutionID = strings.ToUpper(id) }, "UUIDv7"},
		{"other inputs", func(in *executions.Incoming) {
			in.Status.InputHashes = append(in.Status.InputHashes, objectstore.Sum(nil).String())
		}, "hash to"},
		{"no inputs", func(in *executions.Incoming) { in.Status.InputHashes = nil }, "hash to"},
		{"input that is no hash", func(in *executions.Incoming) { in.Status.InputHashes[0] = "abc" }, "input 1"},
		{"output that is no hash", func(in *executions.Incoming) { in.Status.OutputHash = "../x" }, "output"},
		{"detail of another type", func(in *executions.Incoming) { in.Detail = in.Status.Encode() }, "execution detail"},
		{"torn detail", func(in *executions.Incoming) { in.Detail = in.Detail[:len(in.Detail)-1] }, "execution detail"},
		{"empty rejection", func(in *executions.Incoming) { in.Rejection = []byte{} }, "rejection"},
		{"rejected failure", func(in *executions.Incoming) {
			in.Status = statusOf(id, record.Failed, "x")
			in.Rejection = (&record.Rejection{Rejected: true}).Encode()
		}, "no success"},
		{"no provenance", func(in *executions.Incoming) { in.Provenance = nil }, "no provenance"},
		{"provenance without steps", func(in *executions.Incoming) { in.Provenance = &record.Provenance{} }, "no provenance"},
		{"too many steps", func(in *executions.Incoming) {
			in.Provenance = &record.Provenance{Steps: make([]record.Step, record.MaxSteps+1)}
		}, "1025 steps"},
	} {
		t.Run(test.name, func(t *testing.T) {
			l := newLibrary(mem.New())
			in := incoming(id, record.Success, "out", "")
			test.change(in)
			_, err := l.Import(t.Context(), in)
			var bad *executions.RecordError
			if !errors.As(err, &bad) || !errors.Is(err, executions.ErrMalformed) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want a RecordError with %q", err, test.want)
			}
			for rec, err := range l.records.List(t.Context(), refstore.Query{Partition: "EXECUTION/" + importKey.String()}) {
				t.Errorf("there is %v, %v", rec.Key, err)
			}
		})
	}
}

// A log whose length differs from the declared one is an error; no record is written, and no log stays.
func TestImportBrokenLog(t *testing.T) {
	broken := errors.New("wrong checksum")
	for _, size := range logSizes {
		for _, test := range []struct {
			name string
			log  func() (io.ReadCloser, int64, error)
			want string
		}{
			{"shorter", func() (io.ReadCloser, int64, error) {
				return io.NopCloser(strings.NewReader(strings.Repeat("x", size))), int64(size) + 1, nil
			}, "ends after"},
			{"longer", func() (io.ReadCloser, int64, error) {
				return io.NopCloser(strings.NewReader(strings.Repeat("x", size+1))), int64(size), nil
			}, "longer"},
			{"broken at its end", func() (io.ReadCloser, int64, error) {
				return io.NopCloser(io.MultiReader(strings.NewReader(strings.Repeat("x", size)), failing{broken})), int64(size), nil
			}, broken.Error()},
			{"cut", func() (io.ReadCloser, int64, error) {
				return io.NopCloser(io.MultiReader(strings.NewReader(strings.Repeat("x", size)), failing{io.ErrUnexpectedEOF})), int64(size), nil
			}, io.ErrUnexpectedEOF.Error()},
			{"cannot be opened", func() (io.ReadCloser, int64, error) { return nil, 0, broken }, broken.Error()},
		} {
			t.Run(fmt.Sprint(test.name, " ", size), func(t *testing.T) {
				overLibraries(t, func(t *testing.T, l *library) {
					id := newID(t)
					in := incoming(id, record.Success, "", "")
					in.Stderr = test.log
					if _, err := l.Import(t.Context(), in); err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), "stderr.txt") {
						t.Errorf("got %v, want %q", err, test.want)
					}
					if e := l.entry(t, id); e != nil {
						t.Errorf("there is %+v", e)
					}
					in.Stderr = logOf("whole")
					if out, err := l.Import(t.Context(), in); err != nil || out != executions.Added {
						t.Fatalf("again, whole: %v, %v", out, err)
					}
					if e := l.entry(t, id); e.Stderr != "whole" {
						t.Errorf("the log is %q", e.Stderr)
					}
				})
			})
		}
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// flaky fails from its nth change on, as if the process had died. With after, the first failed change has taken effect.
type flaky struct {
	*mem.Store
	left  int
	after bool // the first failed change has taken effect
}

var errDied = errors.New("died")

func (f *flaky) step(change func() error) error {
	f.left--
	if f.left > 0 {
		return change()
	}
	if f.left == 0 && f.after {
		if err := change(); err != nil {
			return err
		}
	}
	return errDied
}

func (f *flaky) Put(ctx context.Context, r refstore.Record) (v refstore.Version, err error) {
	err = f.step(func() error { v, err = f.Store.Put(ctx, r); return err })
	return v, err
}

func (f *flaky) Delete(ctx context.Context, k refstore.Key, v refstore.Version) error {
	return f.step(func() error { return f.Store.Delete(ctx, k, v) })
}

func (f *flaky) Append(ctx context.Context, k refstore.Key, offset int64, data []byte) error {
	return f.step(func() error {
		if f.left == 0 && len(data) > 1 {
			data = data[:len(data)/2] // a torn tail
		}
		return f.Store.Append(ctx, k, offset, data)
	})
}

func (f *flaky) Remove(ctx context.Context, k refstore.Key) error {
	return f.step(func() error { return f.Store.Remove(ctx, k) })
}

// An import that is cut off at any change leaves the old entry, nothing, or the whole new entry, and can be repeated.
func TestImportCutOff(t *testing.T) {
	stdout, stderr := strings.Repeat("line\n", 60_000), "short\n"
	for _, here := range localStates {
		if collisions[here.name][record.Success].Skipped() {
			continue
		}
		for _, detail := range []bool{true, false} {
			t.Run(fmt.Sprint(here.name, " detail ", detail), func(t *testing.T) {
				for n, done := 1, false; !done; n++ {
					for _, after := range []bool{false, true} {
						store := &flaky{Store: mem.New(), left: 1 << 30, after: after}
						l, id := newLibrary(store), newID(t)
						here.make(t, l, id)
						in := incoming(id, record.Success, stdout, stderr)
						if !detail {
							in.Detail = nil
						}
						store.left = n
						_, err := l.Import(t.Context(), in)
						done = err == nil
						if err != nil && !errors.Is(err, errDied) {
							t.Fatalf("cut off at change %d: %v", n, err)
						}
						store.left = 1 << 30
						want := imported(in, stdout, stderr)
						if e := l.entry(t, id); e != nil && e.Metadata != "" && !cmp.Equal(e, want) {
							t.Fatalf("cut off at change %d it is half there: %s", n, cmp.Diff(want, e))
						}
						if _, err := l.Import(t.Context(), in); err != nil {
							t.Fatalf("again after change %d: %v", n, err)
						}
						if diff := cmp.Diff(want, l.entry(t, id)); diff != "" {
							t.Fatalf("again after change %d (-want +got):\n%s", n, diff)
						}
					}
				}
			})
		}
	}
}

// Concurrent importers, of the same zip or of different ones, write each execution once and whole.
func TestImportConcurrently(t *testing.T) {
	overLibraries(t, func(t *testing.T, l *library) {
		other := l
		if l.dir != "" { // as another process
			other = newLibrary(openStore(t, l.dir))
		}
		ids := make([]string, 20)
		for i := range ids {
			ids[i] = newID(t)
			localStates[i%len(localStates)].make(t, l, ids[i])
		}
		var mu sync.Mutex
		written := map[string]int{}
		var wg sync.WaitGroup
		for g := range 8 {
			wg.Go(func() {
				for i := range ids {
					text := bytes.Repeat(binary.BigEndian.AppendUint32(nil, uint32(g+1)), (i%3)*50_000) // each importer's differs; a log of zeros would count as torn
					from := []*library{l, other}[g%2]
					out, err := from.Import(context.Background(), incoming(ids[i], record.Success, string(text), string(text)))
					if err != nil {
						t.Error(err)
					}
					if !out.Skipped() {
						mu.Lock()
						written[ids[i]]++
						mu.Unlock()
					}
				}
			})
		}
		wg.Wait()
		for i, id := range ids {
			want := 1
			if collisions[localStates[i%len(localStates)].name][record.Success].Skipped() {
				want = 0
			}
			if written[id] != want {
				t.Errorf("over %s: written %d times, want %d", localStates[i%len(localStates)].name, written[id], want)
			}
			if e := l.entry(t, id); want == 1 && (e.Stdout != e.Stderr || len(e.Stdout) != (i%3)*200_000) {
				t.Errorf("its logs are of %d and %d bytes, want both of %d and of one importer", len(e.Stdout), len(e.Stderr), (i%3)*200_000)
			}
		}
	})
}

// An import that waits for another one stops when its context ends.
func TestImportCancelled(t *testing.T) {
	l := newLibrary(mem.New())
	id := newID(t)
	lock, err := l.records.TryClaim(t.Context(), claimOf(id), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Unlock()
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	time.AfterFunc(10*time.Millisecond, func() { cancel(enough) })
	// A store call that is running then may report context.Canceled.
	if _, err := l.Import(ctx, incoming(id, record.Success, "", "")); !errors.Is(err, enough) && !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the cause", err)
	}
}

// Every outcome has a text and a word of its own.
func TestOutcomeWords(t *testing.T) {
	seen := map[string]bool{}
	for o := executions.Added; o <= executions.SkippedUnfinished; o++ {
		seen[o.String()] = true
		seen[o.Word()+"()"] = true // "added" is text and word
	}
	if len(seen) != 12 || seen["()"] || seen[""] || slices.ContainsFunc([]executions.Outcome{-1, 6}, func(o executions.Outcome) bool { return !strings.HasPrefix(o.String(), "outcome(") }) {
		t.Errorf("the outcomes are called %v", seen)
	}
}

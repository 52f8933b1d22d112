package reach_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"e3/executions"
	"e3/internal/events"
	"e3/internal/format/record"
	"e3/internal/reach"
	"e3/objectstore"
	"e3/refstore"
	reffs "e3/refstore/fs"
)

// rig is a repository into which records are written by hand.
type rig struct {
	*testing.T
	records *reffs.Store
	objects *objectstore.Dir
}

func newRig(t *testing.T) *rig {
	t.Helper()
	root := t.TempDir()
	records, err := reffs.Open(root, reffs.Options{NoNotify: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { records.Close() })
	objects, err := objectstore.OpenDir(filepath.Join(root, "objects"), objectstore.Options{Session: records.Session})
	if err != nil {
		t.Fatal(err)
	}
	return &rig{T: t, records: records, objects: objects}
}

func (r *rig) stores() *reach.Stores {
	return &reach.Stores{Records: r.records, Objects: r.objects, Executions: executions.NewStore(r.records, r.objects), Jobs: r.queues()}
}

func (r *rig) write(partition, sort string, value []byte) {
	r.Helper()
	if _, err := r.records.Put(r.Context(), refstore.Record{Key: refstore.Key{Partition: partition, Sort: sort}, Value: value}); err != nil {
		r.Fatal(err)
	}
}

// execution puts an execution on record and returns its id.
func (r *rig) execution(task objectstore.Hash, state record.State, output string, inputs ...objectstore.Hash) string {
	r.Helper()
	id, err := executions.NewID()
	if err != nil {
		r.Fatal(err)
	}
	status := record.Status{State: state, ExecutionID: id, OutputHash: output, StartedAt: time.Now(), CompletedAt: time.Now()}
	for _, h := range inputs {
		status.InputHashes = append(status.InputHashes, h.String())
	}
	r.write("EXECUTION/"+executions.NewKey(task, inputs).String(), id, status.Encode())
	return id
}

// sink collects the enumerated roots as text.
type sink struct {
	mu     sync.Mutex
	roots  []string
	faults []string
	fail   error
}

func (s *sink) Root(r reach.Root) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	weak := ""
	if r.Weak {
		weak = " (weak)"
	}
	s.roots = append(s.roots, fmt.Sprintf("%s: %s %s%s", r.Owner, r.Owner.Role, r.Ref, weak))
	return s.fail
}

func (s *sink) RecordFault(f *reach.Fault) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !f.Record() {
		return fmt.Errorf("fault of a record with the reference %s", f.Ref)
	}
	s.faults = append(s.faults, f.Error())
	return s.fail
}

func (s *sink) check(t *testing.T, want ...string) {
	t.Helper()
	slices.Sort(s.roots)
	slices.Sort(want)
	if diff := cmp.Diff(want, s.roots); diff != "" {
		t.Errorf("roots (-want +got):\n%s", diff)
	}
	s.roots = nil
}

func TestReferencesOfRecords(t *testing.T) {
	r := newRig(t)
	r.write("PACKAGE", "demo/1.0.0", []byte(hash(1).String()+"\n"))
	r.write("WORKSPACE", "empty", nil)
	r.write("WORKSPACE", "prod", (&record.WorkspaceState{PackageHash: hash(2).String(), RootHash: hash(3).String()}).Encode())
	r.write("DATAFLOW/prod", "run1", (&record.Run{RunID: "run1", InputSnapshot: hash(4).String()}).Encode())
	r.write("DATAFLOW/gone", "run2", (&record.Run{RunID: "run2", InputSnapshot: hash(5).String(), OutputSnapshot: hash(6).String()}).Encode())
	r.write("PIN", "0190", (&record.Pin{Task: hash(7).String(), Inputs: hash(8).String()}).Encode())
	var got sink
	if err := r.stores().References(t.Context(), &got); err != nil {
		t.Fatal(err)
	}
	if len(got.faults) > 0 {
		t.Errorf("faults: got %q, want none", got.faults)
	}
	got.check(t,
		"package demo@1.0.0:  package "+hash(1).String(),
		"workspace prod: package package "+hash(2).String(),
		"workspace prod: tree node "+hash(3).String(),
		"run run1 of workspace prod: inputs nodes "+hash(4).String()+" (weak)",
		"run run2 of workspace gone: inputs nodes "+hash(5).String()+" (weak)",
		"run run2 of workspace gone: outputs nodes "+hash(6).String()+" (weak)",
		"the pin of execution 0190: task task "+hash(7).String()+" (weak)",
	)
	got.fail = errors.New("enough")
	if err := r.stores().References(t.Context(), &got); !errors.Is(err, got.fail) {
		t.Errorf("with a sink that fails: got %v, want its error", err)
	}
}

// The first and the last event of a run name snapshots; other events of its stream name no roots.
func TestReferencesOfEvents(t *testing.T) {
	r := newRig(t)
	const id = "018f3b4c-9a2d-7def-8abc-12345678901"
	log := func(ws, id string, list ...events.Event) {
		t.Helper()
		log := events.Create(r.records, ws, id, time.Now)
		for _, e := range list {
			log.Emit(e)
		}
		if err := log.Close(); err != nil {
			t.Fatal(err)
		}
	}
	raw := func(ws, id, text string) {
		t.Helper()
		if err := r.records.Append(t.Context(), refstore.Key{Partition: "EVENTS/" + ws, Sort: id}, 0, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	started := events.Event{Type: events.RunStarted, Data: &events.Data{Inputs: hash(1).String()}}
	middle := events.Event{Type: events.TaskCached, Data: &events.Data{Inputs: hash(2).String(), Outputs: hash(3).String()}}
	end := func(b byte) events.Event {
		return events.Event{Type: events.RunFailed, Data: &events.Data{Outputs: hash(b).String()}}
	}
	r.write("DATAFLOW/prod", id+"1", (&record.Run{RunID: id + "1", InputSnapshot: hash(1).String()}).Encode())
	log("prod", id+"1", started, middle, end(4))
	log("prod", id+"2", started, middle) // it still runs, or has died
	log("prod", id+"3", events.Event{Type: events.RunStarted}, events.Event{Type: events.RunCompleted})
	log("prod", id+"4", events.Event{Type: events.RunStarted, Data: &events.Data{Inputs: "../x"}}, end(5))
	raw("prod", id+"5", "")
	raw("prod", id+"6", "\x00\x00\n\n")
	raw("prod", id+"7", strings.Repeat("x", 3<<20))
	log("removed", id+"8", events.Event{Type: events.RunStarted, Data: &events.Data{Inputs: hash(6).String()}})
	r.write("DATAFLOW/removed", id, nil)
	rec, err := r.records.Get(t.Context(), refstore.Key{Partition: "DATAFLOW/removed", Sort: id})
	if err == nil {
		err = r.records.Delete(t.Context(), rec.Key, rec.Version)
	}
	if err != nil {
		t.Fatal(err)
	}
	var got sink
	if err := r.stores().EventRoots(t.Context(), &got); err != nil {
		t.Fatal(err)
	}
	if len(got.faults) > 0 {
		t.Errorf("faults: got %q, want none", got.faults)
	}
	root := func(n, ws, role string, b byte) string {
		return "run " + id + n + " of workspace " + ws + ": " + role + " nodes " + hash(b).String() + " (weak)"
	}
	got.check(t, root("1", "prod", "inputs", 1), root("1", "prod", "outputs", 4), root("2", "prod", "inputs", 1),
		root("4", "prod", "outputs", 5), root("8", "removed", "inputs", 6))
	got.fail = errors.New("enough")
	if err := r.stores().EventRoots(t.Context(), &got); !errors.Is(err, got.fail) {
		t.Errorf("with a sink that fails: got %v, want its error", err)
	}
}

func TestReferencesOfExecutions(t *testing.T) {
	r := newRig(t)
	east, _ := reference(t, "testdata/run1-all-executed.zip")
	var foreign objectstore.Hash
	for _, h := range east.Hashes() {
		data, err := objectstore.ReadAll(t.Context(), east, h, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		if children, err := reach.Refs(t.Context(), east, reach.Ref{Kind: reach.Task, Hash: h}); err == nil && len(children) == 1 {
			foreign = put(t, r.objects, data)
		}
	}
	multi := task(record.KindFile)
	multi.Output.Multi = true
	names := map[string]objectstore.Hash{
		"file":  put(t, r.objects, task(record.KindFile, record.KindDir, record.KindFile, record.KindDir).Encode()),
		"dir":   put(t, r.objects, task(record.KindDir).Encode()),
		"multi": put(t, r.objects, multi.Encode()),
		"value": put(t, r.objects, task(record.KindFile, record.KindValue).Encode()),
		"lost":  hash(99), "none": put(t, r.objects, []byte("no task")), "east": foreign,
	}
	var want []string
	expect := func(name, id string, roots ...string) {
		if id == "" {
			want = append(want, fmt.Sprintf("the executions of task %s: task object task %s", names[name].String()[:12], names[name]))
		}
		for _, text := range roots {
			want = append(want, "execution "+id+": "+text)
		}
	}
	for name := range names {
		expect(name, "")
	}
	id := r.execution(names["file"], record.Success, hash(1).String(), hash(2), hash(3), hash(4))
	inputs := []string{"input dirs " + hash(2).String() + " (weak)", "input dirs " + hash(4).String() + " (weak)"}
	expect("file", id, append(inputs, "output file "+hash(1).String())...)
	expect("file", r.execution(names["file"], record.Failed, "", hash(2), hash(3), hash(4)), inputs...)
	expect("file", r.execution(names["file"], record.Running, "", hash(2)), inputs[0]) // fewer inputs than declared
	expect("dir", r.execution(names["dir"], record.Success, hash(5).String()), "output dir "+hash(5).String())
	expect("dir", r.execution(names["dir"], record.Error, ""))
	expect("multi", r.execution(names["multi"], record.Success, hash(6).String()), "output dir "+hash(6).String())
	expect("value", r.execution(names["value"], record.Success, hash(7).String(), hash(8)), "output file "+hash(7).String(), "input file "+hash(8).String()+" (weak)")
	expect("lost", r.execution(names["lost"], record.Success, hash(9).String(), hash(8)), "output file-or-dir "+hash(9).String())
	expect("none", r.execution(names["none"], record.Success, hash(10).String()), "output file-or-dir "+hash(10).String())
	expect("east", r.execution(names["east"], record.Success, hash(11).String(), hash(8)), "output file "+hash(11).String())

	// The key of an unreadable record still names its task.
	bad := r.execution(names["dir"], record.Success, "no hash")
	torn, err := executions.NewID()
	if err != nil {
		t.Fatal(err)
	}
	r.write("EXECUTION/"+executions.NewKey(names["dir"], nil).String(), torn, []byte("torn"))
	var got sink
	if err := r.stores().References(t.Context(), &got); err != nil {
		t.Fatal(err)
	}
	got.check(t, want...)
	if len(got.faults) != 2 || !strings.Contains(fmt.Sprint(got.faults), bad) || !strings.Contains(fmt.Sprint(got.faults), torn) {
		t.Errorf("faults: got %q, want those of %s and %s", got.faults, bad, torn)
	}
}

func TestMalformedRecords(t *testing.T) {
	for _, tt := range []struct {
		partition, sort string
		value           []byte
	}{
		{"PACKAGE", "demo/1", []byte("xyz\n")},
		{"WORKSPACE", "w", []byte("torn")},
		{"WORKSPACE", "w", (&record.WorkspaceState{PackageHash: hash(1).String(), RootHash: "x"}).Encode()},
		{"DATAFLOW/w", "r", []byte("torn")},
		{"PIN", "id", []byte("torn")},
		{"PIN", "id", (&record.Pin{Task: "x"}).Encode()},
		{"TOMBSTONE", hash(1).String(), []byte("torn")},
		{"TOMBSTONE", "x", record.Tombstones{}.Encode()},
		{"TOMBSTONE", hash(1).String(), record.Tombstones{{InputsHash: "x", PrunedAt: time.Now()}}.Encode()},
		{"TOMBSTONE", hash(1).String(), record.Tombstones{{InputsHash: hash(1).String(), OutputHash: "x", PrunedAt: time.Now()}}.Encode()},
	} {
		r := newRig(t)
		r.write(tt.partition, tt.sort, tt.value)
		var got sink
		if err := r.stores().Roots(t.Context(), time.Time{}, nil, &got); err != nil {
			t.Errorf("%s: %v", tt.partition, err)
		}
		if len(got.faults) != 1 || !strings.Contains(got.faults[0], "record "+tt.partition) {
			t.Errorf("%s with %q: faults: got %q, want one that names the record", tt.partition, tt.value, got.faults)
		}
	}
}

func TestTombstonesAndProtected(t *testing.T) {
	r := newRig(t)
	noon := time.Date(2024, 5, 1, 12, 0, 0, 0, time.UTC)
	h := put(t, r.objects, task(record.KindDir).Encode())
	stone := func(b byte, at time.Time) record.Tombstone {
		return record.Tombstone{InputsHash: hash(b).String(), ExecutionID: fmt.Sprint("id", b), OutputHash: hash(b).String(), PrunedAt: at}
	}
	failure := stone(4, noon.Add(time.Hour))
	failure.OutputHash = ""
	r.write("TOMBSTONE", h.String(), record.Tombstones{stone(1, noon.Add(-time.Second)), stone(2, noon), stone(3, noon.Add(time.Hour)), failure}.Encode())
	r.write("TOMBSTONE", hash(9).String(), record.Tombstones{stone(5, noon.Add(-time.Hour))}.Encode())
	var got sink
	// A time within the same millisecond, which is the resolution of tombstones.
	if err := r.stores().Tombstones(t.Context(), func(string) time.Time { return noon.Add(700 * time.Microsecond) }, &got); err != nil {
		t.Fatal(err)
	}
	got.check(t,
		"execution id2, which was pruned:  task "+h.String()+" (weak)",
		"execution id2, which was pruned: output dir "+hash(2).String()+" (weak)",
		"execution id3, which was pruned: output dir "+hash(3).String()+" (weak)")
	sessions := []refstore.SessionInfo{{Began: noon}, {Began: noon, Protected: []string{"node " + hash(1).String(), "package " + hash(2).String()}}}
	if err := reach.Protected(sessions, &got); err != nil {
		t.Fatal(err)
	}
	who := "an e3 at work since " + noon.Local().Format("15:04:05") + ":  "
	got.check(t, who+"node "+hash(1).String()+" (weak)", who+"package "+hash(2).String()+" (weak)")
	sessions[0].Protected = []string{"spell " + hash(1).String()}
	if err := reach.Protected(sessions, &got); err == nil {
		t.Error("a name of an unknown kind: got no error")
	}
}

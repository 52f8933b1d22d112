package verify_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"e3/internal/format/record"
	"e3/internal/jobs/queue"
	"e3/internal/reach"
	"e3/internal/settings"
	"e3/internal/verify"
	"e3/objectstore"
	"e3/objectstore/tree"
	"e3/refstore"
	"e3/workspace"
)

// furnished is a repository with something of everything.
func furnished(t *testing.T) *site { return furnish(newSite(t)) }

func furnish(s *site) *site {
	t := s.T
	s.write("data.txt", "data")
	s.write("images/deep/b", "image")
	s.deploy("w", `inputs: {file: {file: data.txt}, images: {dir: images}, n: {value: [1, 2]}}`, `tasks:`,
		`  one: {in: [file, n], out: o, run: make o one}`,
		`  two: {in: [images], out: d/, run: make d/ two}`,
		`  three: {in: [one], out: o3, run: make o3 three}`,
		`  bad: {in: [images], out: o, run: fail}`)
	s.start("w")
	built, err := s.Workspaces.Deployer.Build(t.Context(), filepath.Join(s.dir, "e3.yaml"), nil)
	s.must(err)
	s.must(s.Workspaces.Packages.Add(t.Context(), workspace.PackageRef{Name: "p", Version: "1", Hash: built.Hash}))
	e := s.execution("two")
	_, err = s.curator().Pin(t.Context(), e.Key, e.ExecutionID, "me", "")
	s.must(err)
	bad := s.execution("bad")
	_, err = s.Records.Put(t.Context(), refstore.Record{
		Key:   refstore.Key{Partition: "TOMBSTONE", Sort: bad.Key.Task.String()},
		Value: record.Tombstones{{InputsHash: bad.Key.Inputs.String(), ExecutionID: "01890a5d-ac96-774b-bcce-b302099a8057"}}.Encode(),
	})
	s.must(err)
	_, err = settings.Update(t.Context(), s.Records, func(s *settings.Settings) error {
		s.RequireSigned = true
		return nil
	})
	s.must(err)
	return s
}

func TestNoFaults(t *testing.T) {
	s := furnished(t)
	r := s.verify(verify.Options{Repair: true})
	if len(r.Faults) > 0 || len(r.Notes) > 0 || r.Executions != 4 || r.Workspaces != 1 || r.Packages != 1 || r.Runs != 1 || r.Objects < 12 || r.Bytes == 0 {
		t.Errorf("got %+v, want 4 executions, a workspace, a package, a run, no fault and no note", r)
	}
	if empty := newSite(t).verify(verify.Options{}); len(empty.Faults) > 0 || empty.Objects != 0 {
		t.Errorf("an empty repository: got %+v", empty)
	}
}

// damage is one way to damage a repository, with the expected result.
type damage struct {
	name string
	do   func(s *site) (where string) // the file with the fault
	kind verify.FaultKind
	// concerns are some of the things that need it.
	concerns []string
	remains  bool     // a repair cannot mend it
	rerun    []string // after a repair
	inputs   []string
	mend     func(s *site) // the user's actions before the next start
	left     bool          // it remains even then
}

func damages() []damage {
	outputOf := func(name string) func(*site) string {
		return func(s *site) string { return objectFile(s.leaf("w", name).Hash) }
	}
	corrupt := func(file func(*site) string) func(*site) string {
		return func(s *site) string {
			s.tear(file(s), "spoiled")
			return file(s)
		}
	}
	missing := func(file func(*site) string) func(*site) string {
		return func(s *site) string {
			where := file(s)
			s.remove(where)
			return where
		}
	}
	deep := func(s *site) string { return objectFile(s.entry(s.leaf("w", "two").Hash, "sub/deep")) }
	image := func(s *site) string { return objectFile(s.entry(s.leaf("w", "images").Hash, "deep/b")) }
	state := func(s *site) *workspace.State {
		st, err := s.Workspaces.State(s.Context(), "w")
		s.must(err)
		return st
	}
	pkg := func(s *site) string { return objectFile(state(s).PackageHash) }
	root := func(s *site) string { return objectFile(state(s).RootHash) }
	task := func(s *site) string { return objectFile(s.execution("one").Key.Task.String()) }
	snapshot := func(s *site) string {
		run, err := s.Workspaces.Runs.Run(s.Context(), "w", "")
		s.must(err)
		return objectFile(run.InputSnapshot)
	}
	executed := func(file string) func(*site) string {
		return func(s *site) string {
			e := s.execution("one")
			return "executions/" + e.Key.String() + "/" + e.ExecutionID + "/" + file
		}
	}
	folder := func(f func(*site) string) func(*site) string {
		return func(s *site) string { return filepath.ToSlash(filepath.Dir(f(s))) }
	}
	torn := func(file func(*site) string, where func(*site) string) func(*site) string {
		return func(s *site) string {
			f, w := file(s), where(s)
			if _, err := os.Lstat(s.path(f)); err != nil {
				s.must(os.WriteFile(s.path(f), nil, 0o644))
			}
			s.tear(f, "torn")
			return w
		}
	}
	tornFile := func(name string) func(*site) string {
		same := func(*site) string { return name }
		return torn(same, same)
	}
	removedFile := func(name string) func(*site) string {
		return func(s *site) string {
			s.remove(name)
			return name
		}
	}
	status := executed("status.beast2")
	return []damage{
		{name: "corrupt output", do: corrupt(outputOf("one")), kind: verify.CorruptObject, concerns: []string{"output w.one", "output of execution"}, rerun: []string{"w.one"}},
		{name: "corrupt output of the same length", do: func(s *site) string {
			s.tear(outputOf("one")(s), "eno")
			return outputOf("one")(s)
		}, kind: verify.CorruptObject, concerns: []string{"output w.one"}, rerun: []string{"w.one"}},
		{name: "missing output", do: missing(outputOf("three")), kind: verify.MissingObject, concerns: []string{"output w.three"}, rerun: []string{"w.three"}},
		{name: "corrupt file in an output", do: corrupt(deep), kind: verify.CorruptObject, concerns: []string{"output w.two at sub/deep"}, rerun: []string{"w.two"}},
		{name: "missing file in an output", do: missing(deep), kind: verify.MissingObject, concerns: []string{"output w.two at sub/deep"}, rerun: []string{"w.two"}},
		{name: "corrupt directory", do: corrupt(outputOf("two")), kind: verify.CorruptObject, concerns: []string{"output w.two"}, rerun: []string{"w.two"}},
		{name: "corrupt input", do: corrupt(outputOf("file")), kind: verify.CorruptObject, concerns: []string{"input w.file", "input file of package p@1"}, remains: true, inputs: []string{"w.file"},
			mend: func(s *site) { s.redeploy("w") }},
		{name: "missing file in an input", do: missing(image), kind: verify.MissingObject, concerns: []string{"input w.images at deep/b"}, remains: true, inputs: []string{"w.images"},
			mend: func(s *site) { s.redeploy("w") }},
		{name: "corrupt package", do: corrupt(pkg), kind: verify.CorruptObject, concerns: []string{"the package of workspace w", "package p@1"}, remains: true,
			mend: func(s *site) { s.redeploy("w") }},
		{name: "corrupt tree", do: corrupt(root), kind: verify.CorruptObject, concerns: []string{"tree of workspace w"}},
		{name: "missing task", do: missing(task), kind: verify.MissingObject, concerns: []string{"task one of the package of workspace w", "task one of package p@1"}, remains: true,
			mend: func(s *site) { s.redeploy("w") }},
		{name: "corrupt snapshot", do: corrupt(snapshot), kind: verify.CorruptObject, concerns: []string{"inputs of run "}},
		{name: "missing snapshot", do: missing(snapshot), kind: verify.MissingObject, concerns: []string{"inputs of run "}},
		{name: "corrupt garbage", do: func(s *site) string {
			h, err := s.Objects.PutBytes(s.Context(), []byte("nobody needs this"))
			s.must(err)
			s.tear(objectFile(h.String()), "torn")
			return objectFile(h.String())
		}, kind: verify.CorruptObject},
		{name: "malformed directory", do: outputIs("two", func(*site) []byte { return []byte("no directory") }), // named as a directory
			kind: verify.MalformedObject, concerns: []string{"output of execution"}, rerun: []string{"w.two"}},
		{name: "link out of a directory", do: outputIs("two", func(s *site) []byte {
			return s.tree(tree.Entry{Name: "l", Kind: tree.KindLink, Target: "../x"})
		}), kind: verify.MalformedObject, concerns: []string{"output of execution"}, rerun: []string{"w.two"}},
		{name: "size in a directory", do: outputIs("two", func(s *site) []byte {
			h, err := s.Objects.PutBytes(s.Context(), []byte("text"))
			s.must(err)
			return s.tree(tree.Entry{Name: "f", Kind: tree.KindFile, Hash: h, Size: 5})
		}), kind: verify.MalformedObject, concerns: []string{"output of execution"}, rerun: []string{"w.two"}},

		{name: "torn status", do: torn(status, folder(status)), kind: verify.BadRecord, concerns: []string{"execution "}, rerun: []string{"w.one"}},
		{name: "cut status", do: func(s *site) string { // without its last line
			where := folder(status)(s)
			data, err := os.ReadFile(s.path(where + "/status.beast2"))
			s.must(err)
			s.tear(where+"/status.beast2", string(data[:bytes.LastIndex(data, []byte("\ne3with"))]))
			return where
		}, kind: verify.BadRecord, rerun: []string{"w.one"}},
		{name: "removed status", do: func(s *site) string {
			where := folder(status)(s)
			s.remove(where + "/status.beast2")
			return where
		}, kind: verify.BadRecord, rerun: []string{"w.one"}},
		{name: "another's status", do: func(s *site) string {
			data, err := os.ReadFile(s.path(status(s)))
			s.must(err)
			three := s.execution("three")
			where := "executions/" + three.Key.String() + "/" + three.ExecutionID
			s.tear(where+"/status.beast2", string(data))
			return where
		}, kind: verify.BadRecord, rerun: []string{"w.three"}},
		{name: "under a wrong key", do: func(s *site) string {
			e := s.execution("three")
			wrong := "executions/" + e.Key.Task.String() + "/" + objectstore.Sum(nil).String()
			s.must(os.Mkdir(s.path(wrong), 0o755))
			wrong += "/" + e.ExecutionID
			s.must(os.Rename(s.path("executions/"+e.Key.String()+"/"+e.ExecutionID), s.path(wrong)))
			return wrong
		}, kind: verify.BadRecord, concerns: []string{"execution "}, rerun: []string{"w.three"}},
		{name: "log that is a folder", do: func(s *site) string {
			s.must(os.Mkdir(s.path(executed("stderr.txt")(s)), 0o755))
			return folder(status)(s)
		}, kind: verify.BadLog, concerns: []string{"of w.one"}, remains: true, left: true},

		{name: "torn run", do: func(s *site) string {
			where := "dataflows/w/" + state(s).CurrentRunID + ".beast2"
			s.tear(where, "torn")
			return where
		}, kind: verify.BadRecord, concerns: []string{"of workspace w"}},
		{name: "damaged events", do: func(s *site) string {
			where := "events/w/" + state(s).CurrentRunID + ".ndjson"
			data, err := os.ReadFile(s.path(where))
			s.must(err)
			lines := strings.SplitAfter(string(data), "\n")
			s.tear(where, lines[0]+"{}\n"+strings.Join(lines[2:], ""))
			return where
		}, kind: verify.BadEvents, concerns: []string{"of workspace w"}},
		{name: "gap in the events", do: func(s *site) string {
			where := "events/w/" + state(s).CurrentRunID + ".ndjson"
			data, err := os.ReadFile(s.path(where))
			s.must(err)
			lines := strings.SplitAfter(string(data), "\n")
			s.tear(where, lines[0]+strings.Join(lines[2:], ""))
			return where
		}, kind: verify.BadEvents},
		{name: "torn workspace", do: tornFile("workspaces/w.beast2"), kind: verify.BadRecord, concerns: []string{"workspace w"}},
		{name: "torn package record", do: tornFile("packages/p/1"), kind: verify.BadRecord, concerns: []string{"package p@1"}},
		{name: "torn pin", do: func(s *site) string { return tornFile("pins/" + s.execution("two").ExecutionID + ".rec")(s) }, kind: verify.BadRecord},
		{name: "torn tombstones", do: func(s *site) string {
			return tornFile("tombstones/" + s.execution("bad").Key.Task.String() + ".rec")(s)
		}, kind: verify.BadRecord},
		{name: "torn settings", do: tornFile("settings/repository.json"), kind: verify.BadRecord, remains: true,
			mend: func(s *site) { s.remove("settings/repository.json"); s.verify(verify.Options{Repair: true}) }},
		{name: "removed settings", do: removedFile("settings/repository.json"), kind: verify.BadRecord, concerns: []string{"settings"}},
		{name: "removed link", do: removedFile("index/links/w.rec"), kind: verify.BadRecord, concerns: []string{"workspace w"}},
		{name: "torn link", do: tornFile("index/links/w.rec"), kind: verify.BadRecord, concerns: []string{"workspace w"}},
		{name: "torn job", do: func(s *site) string {
			task := s.execution("one").Key.Task.String()
			j, err := queue.New(queue.Store{Store: s.Records}, nil, queue.Options{Now: time.Now}).Enqueue(s.Context(), &queue.Job{Workspace: "w", Run: "run", Task: "one", Attempt: 1, TaskHash: task})
			s.must(err)
			return tornFile("queue/default/jobs/" + j.ID + ".rec")(s)
		}, kind: verify.BadRecord, concerns: []string{"queue default"}},
		{name: "torn run of a queue", do: func(s *site) string {
			q := queue.New(queue.Store{Store: s.Records}, nil, queue.Options{Now: time.Now})
			_, err := q.Enqueue(s.Context(), &queue.Job{Workspace: "w", Run: "run", Task: "one", Attempt: 1, TaskHash: s.execution("one").Key.Task.String()})
			s.must(err)
			return tornFile("queue/default/finished/run.rec")(s)
		}, kind: verify.BadRecord, concerns: []string{"queue default"}},
		{name: "torn name of a queue", do: func(s *site) string {
			q := queue.New(queue.Store{Store: s.Records}, nil, queue.Options{Now: time.Now})
			_, err := q.Enqueue(s.Context(), &queue.Job{Workspace: "w", Run: "run", Task: "one", Attempt: 1, TaskHash: s.execution("one").Key.Task.String()})
			s.must(err)
			return tornFile("queue/names/default.rec")(s)
		}, kind: verify.BadRecord, concerns: []string{"queue default"}},
		{name: "torn durations", do: tornFile("index/durations/w.rec"), kind: verify.BadRecord},
	}
}

// Every kind of file is damaged by hand. Only this fault is found, a repair mends it if possible, and otherwise the
// advised action and a start do.
func TestDamage(t *testing.T) {
	for _, tt := range damages() {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := furnish(newSite(t))
			where := tt.do(s)
			r := s.verify(verify.Options{})
			if len(r.Faults) != 1 {
				t.Fatalf("got %d faults, want 1:\n%s", len(r.Faults), list(r))
			}
			f := &r.Faults[0]
			if f.Kind != tt.kind || f.Where != where || f.Problem == "" || f.Repaired || f.Remedy != "" || r.Remaining != 1 {
				t.Errorf("got:\n%swant a %s at %s", list(r), tt.kind, where)
			}
			for _, want := range tt.concerns {
				if !slices.ContainsFunc(f.For, func(s string) bool { return strings.Contains(s, want) }) {
					t.Errorf("it concerns %q, want %q among them", f.For, want)
				}
			}
			r = s.verify(verify.Options{Repair: true})
			if len(r.Faults) != 1 || r.Faults[0].Repaired == tt.remains {
				t.Errorf("repair: got\n%swant one fault, repaired: %v", list(r), !tt.remains)
			}
			if !slices.Equal(r.Rerun, tt.rerun) || !slices.Equal(r.Inputs, tt.inputs) {
				t.Errorf("repair: runs again %q, to be set %q; want %q and %q", r.Rerun, r.Inputs, tt.rerun, tt.inputs)
			}
			if !tt.remains {
				if r := s.verify(verify.Options{}); len(r.Faults) > 0 {
					t.Errorf("after the repair: got\n%swant no faults", list(r))
				}
			}
			if tt.mend != nil {
				tt.mend(s)
			}
			res := s.start("w")
			if got := res.Run.Summary.Completed - res.Run.Summary.Cached; got < int64(len(tt.rerun)) {
				t.Errorf("%d tasks ran again, want at least %q", got, tt.rerun)
			}
			if r := s.verify(verify.Options{}); len(r.Faults) > 0 != tt.left || len(r.Notes) > 0 {
				t.Errorf("after a start: got\n%s%q\nwant no faults and no notes", list(r), r.Notes)
			}
		})
	}
}

func list(r *verify.Report) string {
	var b strings.Builder
	for _, f := range r.Faults {
		b.WriteString("  " + string(f.Kind) + " " + f.Where + ": " + f.Problem + "; for " + strings.Join(f.For, ", ") + "; " + f.Remedy + "\n")
	}
	return b.String()
}

// Missing nodes that only the record of a run names are a fault, and only a note once the record does not name them any
// more.
func TestSnapshotThatOnlyARunHas(t *testing.T) {
	s := furnished(t)
	run, err := s.Workspaces.Runs.Run(s.Context(), "w", "")
	s.must(err)
	children, err := reach.Refs(s.Context(), s.Objects, reach.Ref{Kind: reach.Nodes, Hash: hashOf(t, run.InputSnapshot)})
	s.must(err)
	leaf, err := s.Workspaces.Datasets.PutValue(s.Context(), []any{"another"})
	s.must(err)
	s.must(s.Workspaces.Datasets.Set(s.Context(), "w", "n", leaf))
	s.must(s.Objects.Delete(s.Context(), children[0].Hash))
	r := s.verify(verify.Options{Repair: true})
	if len(r.Faults) != 1 || !r.Faults[0].Repaired || !strings.Contains(list(r), "run "+run.RunID) {
		t.Errorf("got\n%swant one fault of run %s, repaired", list(r), run.RunID)
	}
	r = s.verify(verify.Options{})
	if len(r.Faults) > 0 || len(r.Notes) == 0 {
		t.Errorf("after the repair: got\n%s%q\nwant notes of what events name", list(r), r.Notes)
	}
	s.start("w")
}

func hashOf(t *testing.T, s string) objectstore.Hash {
	t.Helper()
	h, err := objectstore.ParseHash(s)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// An execution that the latest run names and that was removed by hand is reported.
func TestExecutionThatOnlyARunNames(t *testing.T) {
	s := furnished(t)
	if r := s.verify(verify.Options{}); len(r.Notes) > 0 {
		t.Fatalf("notes of a whole repository: %q", r.Notes)
	}
	e := s.execution("one")
	s.must(os.RemoveAll(s.path("executions/" + e.Key.String() + "/" + e.ExecutionID)))
	r := s.verify(verify.Options{})
	if len(r.Faults) != 1 || r.Faults[0].Kind != verify.MissingExecution || !strings.Contains(strings.Join(r.Faults[0].For, ""), e.ExecutionID+" of w.one") {
		t.Errorf("got\n%swant one fault of execution %s", list(r), e.ExecutionID)
	}
	r = s.verify(verify.Options{Repair: true})
	if r.Remaining > 0 || !slices.Contains(r.Rerun, "w.one") {
		t.Errorf("repair: got\n%s%q\nwant that w.one runs again", list(r), r.Rerun)
	}
	if r := s.verify(verify.Options{}); len(r.Faults) > 0 || len(r.Notes) > 0 {
		t.Errorf("after the repair: got\n%s%q", list(r), r.Notes)
	}
	if sum := s.start("w").Run.Summary; sum.Cached == sum.Total {
		t.Errorf("start after the repair: %+v, want that a task runs", sum)
	}
}

// tree is a directory object.
func (s *site) tree(entries ...tree.Entry) []byte {
	data, err := tree.Encode(entries)
	s.must(err)
	return data
}

// outputIs replaces the output of an execution.
func outputIs(task string, content func(*site) []byte) func(*site) string {
	return func(s *site) string {
		h, err := s.Objects.PutBytes(s.Context(), content(s))
		s.must(err)
		e := s.execution(task)
		key := refstore.Key{Partition: "EXECUTION/" + e.Key.String(), Sort: e.ExecutionID}
		rec, err := s.Records.Get(s.Context(), key)
		s.must(err)
		status := e.Status
		status.OutputHash = h.String()
		rec.Value, rec.Fields = status.Encode(), []refstore.Field{{Name: "output", Value: []byte(status.OutputHash + "\n")}}
		_, err = s.Records.Put(s.Context(), rec)
		s.must(err)
		return objectFile(h.String())
	}
}

// An import that was cut off has written the link of a workspace, which names no file, and not the workspace.
func TestLinkOfNoWorkspace(t *testing.T) {
	s := furnished(t)
	for faults, file := range []string{"", "/home/user/e3.yaml"} {
		link := record.Link{File: file}
		_, err := s.Records.Put(s.Context(), refstore.Record{Key: refstore.Key{Partition: "INDEX/links", Sort: "gone" + strconv.Itoa(faults)}, Value: link.Encode()})
		s.must(err)
		if r := s.verify(verify.Options{}); len(r.Faults) != faults {
			t.Errorf("a link to %q without a workspace: got\n%swant %d faults", file, list(r), faults)
		}
	}
}

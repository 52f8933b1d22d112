package workspace_test

import (
	"archive/zip"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"e3/internal/format/beast2"
	"e3/internal/format/record"
	"e3/internal/format/value"
	"e3/internal/insight/runview"
	"e3/objectstore"
	"e3/refstore"
	"e3/workspace"
)

// Two exports of the reference: a run in which all tasks were executed, and the next run, in which one failed.
const (
	goldenRun = "../exportimport/testdata/reference/run1-all-executed.zip"
	failedRun = "../exportimport/testdata/reference/run2-failed-forced.zip"
)

var step = record.Step{
	By: "ann@machine-a", Repository: "/srv/repo", At: time.UnixMilli(1_700_000_000_000).UTC(), Version: "test",
	Signer: record.Signer{Key: "e3pub1x", Name: "Ann"}, ImportedBy: "me@here", ImportedAt: time.UnixMilli(1_700_000_100_000).UTC(),
}

func provenance() refstore.Field {
	return refstore.Field{Name: "provenance.beast2", Value: (&record.Provenance{Steps: []record.Step{step}}).Encode()}
}

// takeIn imports a zip of the reference. It returns the package and the run.
func (p *place) takeIn(file string) (ref workspace.PackageRef, run string) {
	p.t.Helper()
	z, err := zip.OpenReader(file)
	if err != nil {
		p.t.Fatal(err)
	}
	defer z.Close()
	check := func(err error) {
		p.t.Helper()
		if err != nil {
			p.t.Fatal(err)
		}
	}
	found := map[string]refstore.Record{}
	for _, f := range z.File {
		r, err := f.Open()
		check(err)
		data, err := io.ReadAll(r)
		check(errors.Join(err, r.Close()))
		parts := strings.Split(f.Name, "/")
		switch parts[0] {
		case "objects":
			_, err = objectstore.PutBytes(p.ctx, p.repo.Objects, data)
		case "packages":
			ref = workspace.PackageRef{Name: parts[1], Version: parts[2], Hash: strings.TrimSpace(string(data))}
			err = p.ws.Packages.Add(p.ctx, ref)
		case "dataflows":
			run = strings.TrimSuffix(parts[2], ".beast2")
			_, err = p.repo.Records.Put(p.ctx, refstore.Record{
				Key: refstore.Key{Partition: "DATAFLOW/" + parts[1], Sort: run}, Value: data, Fields: []refstore.Field{provenance()}})
		case "executions":
			dir := path.Dir(f.Name)
			rec := found[dir]
			rec.Key = refstore.Key{Partition: "EXECUTION/" + parts[1] + "/" + parts[2], Sort: parts[3]}
			if parts[4] == "status.beast2" {
				rec.Value = data
			} else {
				rec.Fields = append(rec.Fields, refstore.Field{Name: parts[4], Value: data})
			}
			found[dir] = rec
		}
		check(err)
	}
	for _, rec := range found {
		rec.Fields = append(rec.Fields, provenance())
		_, err := p.repo.Records.Put(p.ctx, rec)
		if !errors.Is(err, refstore.ErrConflict) {
			check(err)
		}
	}
	return ref, run
}

// east deploys the package of a zip in the workspace w.
func (p *place) east(file string) {
	p.t.Helper()
	ref, _ := p.takeIn(file)
	if err := p.ws.Create(p.ctx, "w"); err != nil {
		p.t.Fatal(err)
	}
	if err := p.ws.Deployer.Deploy(p.ctx, "w", ref); err != nil {
		p.t.Fatal(err)
	}
}

func TestEastDatasets(t *testing.T) {
	p := newPlace(t)
	p.east(goldenRun)
	st, err := p.ws.Planner.Status(p.ctx, "w")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, d := range st.Datasets {
		got = append(got, fmt.Sprintf("%s %v %v %v", d.Name, d.Kind, d.Output, d.Freshness))
		if want := strings.TrimSuffix(strings.TrimPrefix(d.Name, "tasks."), ".output"); d.Output && d.Task != want {
			t.Errorf("%s is made by %q, want %q", d.Name, d.Task, want)
		}
	}
	want := []string{
		"inputs.later unassigned false missing", "inputs.mode value false current", "inputs.nums value false current",
		"inputs.pt value false current", "inputs.pt2 value false current", "inputs.ratio value false current",
		"inputs.raw value false current", "inputs.text value false current", "tasks.a_copy.output value true current",
		"tasks.b_nums.output value true current", "tasks.c_mode.output value true current", "tasks.d_after.output value true current",
	}
	if !st.East || !slices.Equal(got, want) {
		t.Errorf("made by the reference %t, datasets\n%s\nwant\n%s", st.East, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	names, err := p.ws.Datasets.Names(p.ctx, "w")
	if err != nil || len(names) != len(want) {
		t.Errorf("Names: %v, %v", names, err)
	}
	if text := p.eastText("inputs.text"); text == "" {
		t.Error("inputs.text is empty")
	}
	d, err := p.ws.Datasets.Dataset(p.ctx, "w", datasetPath(t, "tasks.`a_copy`"))
	if err != nil || !d.East || d.Kind != record.LeafNode {
		t.Fatalf("a tree: %+v, %v", d, err)
	}
	entries, err := p.ws.Datasets.EastEntries(p.ctx, d)
	if err != nil || len(entries) != 1 || entries[0].Name != "output" || entries[0].Kind != record.LeafValue {
		t.Errorf("its entries: %+v, %v", entries, err)
	}

	var unknown *workspace.UnknownError
	if _, err := p.ws.Datasets.Dataset(p.ctx, "w", datasetPath(t, "inputs.txt")); !errors.As(err, &unknown) || !slices.Contains(unknown.Known, "inputs.text") {
		t.Errorf("an unknown dataset: %v, known %+v", err, unknown)
	}
	var unassigned *workspace.UnassignedError
	if _, err := p.ws.Datasets.Dataset(p.ctx, "w", datasetPath(t, "inputs.later")); !errors.As(err, &unassigned) || strings.Contains(err.Error(), "e3 set") {
		t.Errorf("a dataset without a value: %v", err)
	}
	if _, err := p.ws.Datasets.Dataset(p.ctx, "w", datasetPath(t, "inputs.text.x")); err == nil || !strings.Contains(err.Error(), "inputs.text of workspace w is a dataset") {
		t.Errorf("below a dataset: %v", err)
	}
}

func datasetPath(t *testing.T, s string) workspace.DatasetPath {
	t.Helper()
	path, err := workspace.ParseDatasetPath(s)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// eastText is the text of a scalar.
func (p *place) eastText(name string) string {
	p.t.Helper()
	d, err := p.ws.Datasets.Dataset(p.ctx, "w", datasetPath(p.t, name))
	if err != nil {
		p.t.Fatal(err)
	}
	h, err := objectstore.ParseHash(d.Hash)
	if err != nil {
		p.t.Fatal(err)
	}
	data, err := objectstore.ReadAll(p.ctx, p.repo.Objects, h, 1<<20)
	if err != nil {
		p.t.Fatal(err)
	}
	v, err := value.Decode(data)
	if err != nil {
		p.t.Fatal(err)
	}
	text, ok := v.Scalar()
	if !ok {
		p.t.Fatalf("%s is no scalar", name)
	}
	return text
}

// Names that are no identifiers are in backticks, and null values may have no object.
func TestEastNames(t *testing.T) {
	p := newPlace(t)
	ref := beast2.Variant(beast2.F("null", beast2.Null), beast2.F("tree", beast2.String), beast2.F("unassigned", beast2.Null), beast2.F("value", beast2.String))
	put := func(typ beast2.Type, v beast2.Value) string {
		data, err := beast2.Encode(typ, v)
		if err != nil {
			t.Fatal(err)
		}
		h, err := objectstore.PutBytes(p.ctx, p.repo.Objects, data)
		if err != nil {
			t.Fatal(err)
		}
		return h.String()
	}
	text := put(beast2.String, "here")
	inner := put(beast2.Struct(beast2.F("a.b", ref), beast2.F("../c/", ref), beast2.F("d", ref)),
		beast2.Record{beast2.Case{Tag: 3, Value: text}, beast2.Case{Tag: 3, Value: text}, beast2.Case{Tag: 0}})
	p.rooted(put(beast2.Struct(beast2.F("two words", ref)), beast2.Record{beast2.Case{Tag: 1, Value: inner}}))
	rows, err := p.ws.Datasets.Names(p.ctx, "w")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, row := range rows {
		got = append(got, row.Name)
		d, err := p.ws.Datasets.Dataset(p.ctx, "w", datasetPath(t, row.Name))
		if err != nil || d.Kind != record.LeafValue || d.Hash != row.Hash {
			t.Errorf("%s: %+v, %v", row.Name, d, err)
		}
	}
	if want := []string{"`two words`.`a.b`", "`two words`.`../c/`", "`two words`.d"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if d, err := p.ws.Datasets.Dataset(p.ctx, "w", datasetPath(t, "`two words`.d")); err != nil || d.Hash != "" {
		t.Errorf("a null without an object: %+v, %v", d, err)
	}
}

// rooted gives the workspace w a package of the reference with the given root.
func (p *place) rooted(root string) {
	p.t.Helper()
	p.east(goldenRun)
	key := refstore.Key{Partition: "WORKSPACE", Sort: "w"}
	rec, err := p.repo.Records.Get(p.ctx, key)
	if err != nil {
		p.t.Fatal(err)
	}
	s, err := record.DecodeWorkspaceState(rec.Value)
	if err != nil {
		p.t.Fatal(err)
	}
	s.RootHash = root
	rec.Value = s.Encode()
	if _, err := p.repo.Records.Put(p.ctx, rec); err != nil {
		p.t.Fatal(err)
	}
}

// The list of a few objects that name each other repeatedly ends.
func TestEastListEnds(t *testing.T) {
	p := newPlace(t)
	ref := beast2.Variant(beast2.F("null", beast2.Null), beast2.F("tree", beast2.String), beast2.F("unassigned", beast2.Null), beast2.F("value", beast2.String))
	level := func(tag int, hash any) string {
		fields, children := make([]beast2.Field, 200), make(beast2.Record, 200)
		for i := range fields {
			fields[i], children[i] = beast2.F(fmt.Sprintf("f%d", i), ref), beast2.Case{Tag: tag, Value: hash}
		}
		data, err := beast2.Encode(beast2.Struct(fields...), children)
		if err != nil {
			t.Fatal(err)
		}
		h, err := objectstore.PutBytes(p.ctx, p.repo.Objects, data)
		if err != nil {
			t.Fatal(err)
		}
		return h.String()
	}
	root := level(2, nil)
	for range 5 {
		root = level(1, root)
	}
	p.rooted(root)
	if _, err := p.ws.Datasets.Names(p.ctx, "w"); err == nil || !strings.Contains(err.Error(), "more than") {
		t.Errorf("200⁶ datasets: %v", err)
	}
}

func TestEastRefusals(t *testing.T) {
	p := newPlace(t)
	p.east(goldenRun)
	var foreign *workspace.NotRunnableError
	_, startErr := p.ws.Runner.Start(p.ctx, "w", workspace.StartOptions{Concurrency: 1, Executor: p.executor})
	_, unsetErr := p.ws.Datasets.Unset(p.ctx, "w", "text")
	_, inputErr := p.ws.Datasets.Input(p.ctx, "w", "text")
	for what, err := range map[string]error{
		"start": startErr, "set": p.ws.Datasets.Set(p.ctx, "w", "text", p.file("x")), "unset": unsetErr, "input": inputErr,
		"settable": p.ws.Datasets.Settable(p.ctx, "w"),
	} {
		if !errors.As(err, &foreign) || !strings.Contains(err.Error(), "package golden@1.0.0-0e4166a6 cannot be run here: it was made by the TypeScript e3 and holds East code") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if runs, err := p.ws.Runs.Run(p.ctx, "w", ""); !errors.Is(err, runview.ErrNoRun) {
		t.Errorf("a refused start left the run %v, %v", runs, err)
	}
	// A package of this e3 can replace it.
	p.write("a.txt", "1")
	p.deploy("inputs: {a: {file: a.txt}}", "tasks:", "  t: {in: [a], out: o, run: cat $a}")
	if res := p.start(); res.Run.State != record.RunCompleted {
		t.Errorf("after another deploy: %v", res.Run.State)
	}
	if err := p.ws.Datasets.Settable(p.ctx, "w"); err != nil {
		t.Errorf("after another deploy: %v", err)
	}
	// And the reverse.
	var unclear *workspace.AmbiguousError
	if _, err := p.ws.Packages.Find(p.ctx, "golden", ""); !errors.As(err, &unclear) || !slices.Equal(unclear.Known, []string{"golden@1.0.0-0e4166a6"}) {
		t.Errorf("a name means an export's snapshot: %v", err)
	}
	ref, err := p.ws.Packages.Find(p.ctx, "golden", "1.0.0-0e4166a6")
	if err != nil {
		t.Fatal(err)
	}
	if err := p.ws.Deployer.Deploy(p.ctx, "w", ref); err != nil {
		t.Fatal(err)
	}
	if st, err := p.ws.Planner.Status(p.ctx, "w"); err != nil || !st.East || st.File != "" || st.LastRun == nil {
		t.Errorf("deployed over ours: %+v, %v", st, err)
	}
	if file, err := p.ws.Deployer.LinkedTo(p.ctx, "w"); err != nil || file != "" {
		t.Errorf("it follows %q, %v", file, err)
	}
}

// Runs of the reference have no events: reports use their record and the executions.
func TestEastRuns(t *testing.T) {
	p := newPlace(t)
	_, first := p.takeIn(goldenRun)
	_, second := p.takeIn(failedRun)
	tell := func(run string) (*runview.Report, string) {
		t.Helper()
		r, err := p.ws.Runs.Report(p.ctx, "prod", run)
		if err != nil {
			t.Fatal(err)
		}
		var states []string
		for _, task := range r.Tasks {
			states = append(states, fmt.Sprintf("%s %s", task.Task, task.State))
			if task.Key == "" || task.StartedAt.IsZero() || task.Duration <= 0 {
				t.Errorf("the execution of %s is not reported: %+v", task.Task, task)
			}
			if task.State == runview.TaskFailed && task.ExitCode == 0 {
				t.Errorf("%s failed with exit code 0", task.Task)
			}
		}
		return r, strings.Join(states, ", ")
	}
	r, got := tell("") // there is no workspace prod here
	if want := "a_copy cached, b_nums cached, c_mode failed"; r.RunID != second || r.Status() != "failed" || got != want {
		t.Errorf("the run that is shown: %s, %s, %s; want %s, failed, %s", r.RunID, r.Status(), got, second, want)
	}
	if r.Provenance == nil || len(r.Provenance.Steps) != 1 || r.Provenance.Steps[0] != step {
		t.Errorf("its provenance is %+v", r.Provenance)
	}
	if r, got = tell(first[:24]); got != "a_copy success, b_nums success, c_mode success, d_after success" || r.RunID != first {
		t.Errorf("the run before: %s, %s", r.RunID, got)
	}
	te, err := p.ws.Runs.TaskExecutions(p.ctx, "prod", "c_mode")
	if err != nil || te.Task == nil || te.Task.State != runview.TaskFailed || len(te.Known) != 1 {
		t.Fatalf("executions of a task: %+v, %v", te, err)
	}
	// The first run's execution has another key, and is found too.
	if e, err := p.ws.Runs.FindExecution(p.ctx, te, "01a1fa79-f9ed"); err != nil || e.State != record.Success {
		t.Errorf("the execution of the run before: %+v, %v", e, err)
	}

	// Without any package the whole repository is searched.
	for _, version := range []string{"1.0.0-0e4166a6", "1.0.0-af752bc6"} {
		if _, err := p.ws.Packages.Remove(p.ctx, "golden", version); err != nil {
			t.Fatal(err)
		}
	}
	if _, got := tell(""); got != "a_copy cached, b_nums cached, c_mode failed" {
		t.Errorf("without its package: %s", got)
	}
	te, err = p.ws.Runs.TaskExecutions(p.ctx, "prod", "c_mode")
	if err != nil || te.Task == nil || te.Task.State != runview.TaskFailed || len(te.Known) != 1 {
		t.Errorf("without its package, executions of a task: %+v, %v", te, err)
	}
	var unknown *workspace.UnknownError
	if _, err := p.ws.Runs.TaskExecutions(p.ctx, "prod", "e"); !errors.As(err, &unknown) {
		t.Errorf("an unknown task: %v", err)
	}
}

// A task with an input of which only the hash is known fails if it has to run; other tasks are not affected.
func TestStartWithoutData(t *testing.T) {
	p := newPlace(t)
	p.write("big.txt", "1")
	if err := os.Mkdir(filepath.Join(p.dir, "dir"), 0o755); err != nil {
		t.Fatal(err)
	}
	p.write("dir/x.txt", "2")
	p.write("a.txt", "3")
	p.deploy("inputs: {big: {file: big.txt, export: false}, d: {dir: dir, export: false}, a: {file: a.txt}}", "tasks:",
		"  known: {in: [big], out: o, run: cat $big $big}", "  fresh: {in: [big, a], out: o, run: cat $big $a}",
		"  after: {in: {x: fresh}, out: p, run: fail 3}", "  folder: {in: [d, a], out: o, run: cat $a}", "  other: {in: [a], out: o, run: cat $a}")
	only := func(o *workspace.StartOptions) { o.Filter = "known" }
	p.start(only)
	// The workspace continues without its file, like an imported one.
	built, err := p.ws.Deployer.Build(p.ctx, filepath.Join(p.dir, "e3.yaml"), nil)
	if err != nil {
		t.Fatal(err)
	}
	ref := workspace.PackageRef{Name: "p", Version: "1", Hash: built.Hash}
	if err := p.ws.Packages.Add(p.ctx, ref); err != nil {
		t.Fatal(err)
	}
	if err := p.ws.Deployer.Deploy(p.ctx, "w", ref); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"1", "2"} {
		if err := p.repo.Objects.Delete(p.ctx, objectstore.Sum([]byte(text))); err != nil {
			t.Fatal(err)
		}
	}
	p.start(only) // a hit needs no content
	res := p.start()
	states := func() string {
		r, err := p.ws.Runs.Report(p.ctx, "w", "")
		if err != nil {
			t.Fatal(err)
		}
		var list []string
		for _, task := range r.Tasks {
			list = append(list, task.Task+" "+string(task.State))
		}
		slices.Sort(list)
		return strings.Join(list, ", ")
	}
	if got, want := states(), "after skipped, folder error, fresh error, known cached, other success"; got != want || res.Run.State != record.RunFailed {
		t.Errorf("%v, tasks %s; want failed, %s", res.Run.State, got, want)
	}
	if !strings.Contains(res.Run.Error, "is not here") || !strings.Contains(res.Run.Error, "e3 set <repo> w.") {
		t.Errorf("the run says %q, want what to set", res.Run.Error)
	}
	p.set("big", "1")
	leaf, err := p.ws.Datasets.PutPath(p.ctx, record.FromDir, filepath.Join(p.dir, "dir"))
	if err != nil {
		t.Fatal(err)
	}
	if err := p.ws.Datasets.Set(p.ctx, "w", "d", leaf); err != nil {
		t.Fatal(err)
	}
	p.start()
	if got, want := states(), "after failed, folder success, fresh success, known cached, other cached"; got != want {
		t.Errorf("once they were set: %s, want %s", got, want)
	}
	// An input that is missing but not marked as such is reported by the tasks that read it and have no hit.
	if err := p.repo.Objects.Delete(p.ctx, objectstore.Sum([]byte("3"))); err != nil {
		t.Fatal(err)
	}
	p.start()
	if got, want := states(), "after failed, folder error, fresh cached, known cached, other error"; got != want {
		t.Errorf("without an input that is not marked: %s, want %s", got, want)
	}
}

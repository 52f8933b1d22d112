package exportimport_test

import (
	"archive/zip"
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"e3/executions"
	"e3/exportimport"
	"e3/internal/events/eventstest"
	"e3/internal/format/record"
	"e3/internal/format/signature"
	"e3/internal/settings"
	"e3/objectstore"
	"e3/refstore"
	"e3/workspace"
)

// A file of a hand-made zip.
type file struct{ name, content string }

// unpack returns the files of a zip.
func unpack(t failer, path string) []file {
	t.Helper()
	names, content := entries(t, path)
	var list []file
	for _, n := range names {
		list = append(list, file{n, content[n]})
	}
	return list
}

// pack writes files to a new zip.
func pack(t *testing.T, files []file) string {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, f := range files {
		e, err := w.Create(f.name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := e.Write([]byte(f.content)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "made.zip")
	if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// sample is an export of a workspace that has been run.
func sample(t *testing.T, o exportimport.ExportOptions) (string, *exportimport.Exported) {
	t.Helper()
	s := newSite(t, "ann@alpha")
	s.pipeline("prod")
	s.start("prod")
	return s.export("prod", o)
}

// unlisted are the files of an export without their list of sums, as the reference writes them.
func unlisted(files []file) []file {
	return slices.DeleteFunc(slices.Clone(files), func(f file) bool { return f.name == "SHA256SUMS" })
}

// visible lists everything in a repository except objects, locks and this machine's caches.
func (s *site) visible() []string {
	s.t.Helper()
	var list []string
	err := filepath.WalkDir(s.repo.Root, func(path string, d fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(s.repo.Root, path)
		top, _, _ := strings.Cut(rel, string(filepath.Separator))
		if err == nil && !d.IsDir() && !slices.Contains([]string{"objects", "locks", "index", "tmp"}, top) {
			list = append(list, rel)
		}
		return err
	})
	s.must(err)
	return list
}

// Every invalid zip is refused completely, with a reason.
func TestRefused(t *testing.T) {
	path, exported := sample(t, exportimport.ExportOptions{})
	good := unlisted(unpack(t, path))
	find := func(files []file, prefix, suffix string) *file {
		i := slices.IndexFunc(files, func(f file) bool { return strings.HasPrefix(f.name, prefix) && strings.HasSuffix(f.name, suffix) })
		if i < 0 {
			t.Fatalf("no %s…%s in the sample", prefix, suffix)
		}
		return &files[i]
	}
	status := func(change func(*record.Status)) func([]file) []file {
		return func(files []file) []file {
			f := find(files, "executions/", "/status.beast2")
			s, err := record.DecodeStatus([]byte(f.content))
			if err != nil {
				t.Fatal(err)
			}
			change(s)
			f.content = string(s.Encode())
			return files
		}
	}
	run := func(change func(*record.Run)) func([]file) []file {
		return func(files []file) []file {
			f := find(files, "dataflows/", "")
			r, err := record.DecodeRun([]byte(f.content))
			if err != nil {
				t.Fatal(err)
			}
			change(r)
			f.content = string(r.Encode())
			return files
		}
	}
	state := func(change func(*record.WorkspaceState)) func([]file) []file {
		return func(files []file) []file {
			f := find(files, "workspaces/", "")
			s, err := record.DecodeWorkspaceState([]byte(f.content))
			if err != nil {
				t.Fatal(err)
			}
			change(s)
			f.content = string(s.Encode())
			return files
		}
	}
	provenance := func(change func(*record.Export)) func([]file) []file {
		return func(files []file) []file {
			f := find(files, "provenance.beast2", "")
			e, err := record.DecodeExport([]byte(f.content))
			if err != nil {
				t.Fatal(err)
			}
			change(e)
			f.content = string(e.Encode())
			return files
		}
	}
	set := func(prefix, suffix string, change func(*file)) func([]file) []file {
		return func(files []file) []file {
			change(find(files, prefix, suffix))
			return files
		}
	}
	drop := func(prefix, suffix string) func([]file) []file {
		return func(files []file) []file {
			name := find(files, prefix, suffix).name
			return slices.DeleteFunc(files, func(f file) bool { return f.name == name })
		}
	}
	other := "01a1fb7b-91d6-7b50-a8fb-f5f218c62fbe"
	for name, c := range map[string]struct {
		change func([]file) []file
		want   string
	}{
		"no package":                {drop("packages/", ""), "it holds no package"},
		"two packages":              {func(f []file) []file { return append(f, file{"packages/a/1", find(f, "packages/", "").content}) }, "more than one entry of its kind"},
		"package is no hash":        {set("packages/", "", func(f *file) { f.content = "x" }), "hash"},
		"package with a bad name":   {set("packages/", "", func(f *file) { f.name = "packages/.hidden/1" }), "cannot be the name"},
		"package of another state":  {set("packages/", "", func(f *file) { f.name = "packages/flow/2" }), "its workspace has package flow@1.0.0"},
		"object with other content": {set("objects/", "", func(f *file) { f.content += "x" }), "is corrupt"},
		"object with a bad name":    {set("objects/", "", func(f *file) { f.name = "objects/zz" + f.name[10:] }), "not the name of an object"},
		"object twice, but not so":  {func(f []file) []file { return append(f, file{find(f, "objects/", "").name, "other"}) }, "twice, with other content"},
		"status of another":         {status(func(s *record.Status) { s.ExecutionID = other }), "it is the record of execution"},
		"status with a path as id":  {status(func(s *record.Status) { s.ExecutionID = "../../../x" }), "it is the record of execution"},
		"other inputs":              {status(func(s *record.Status) { s.InputHashes = append(s.InputHashes, exported.Package.Hash) }), "its inputs hash to"},
		"inputs are no hashes":      {status(func(s *record.Status) { s.InputHashes[0] = "x" }), "input 1"},
		"output is no hash":         {status(func(s *record.Status) { s.OutputHash = "x" }), "output"},
		"output file differs":       {set("executions/", "/output", func(f *file) { f.content = strings.Repeat("0", 64) + "\n" }), "the file beside it"},
		"output is not in it":       {func(f []file) []file { return absentOutput(t, f) }, "not found"},
		"no status":                 {drop("executions/", "/status.beast2"), "has no status.beast2"},
		"status is not one":         {set("executions/", "/status.beast2", func(f *file) { f.content = "x" }), "execution status"},
		"execution id is none":      {set("executions/", "/status.beast2", func(f *file) { f.name = strings.Replace(f.name, f.name[141:177], "x", 1) }), "UUIDv7"},
		"files are scattered": {func(f []file) []file {
			return append(f, file{strings.Replace(find(f, "executions/", "/detail.beast2").name, "detail.beast2", "stderr.txt", 1), "x"})
		}, "do not follow each other"},
		"run of another id":                 {run(func(r *record.Run) { r.RunID = "../../evil" }), "it is the record of run"},
		"run of another workspace":          {run(func(r *record.Run) { r.WorkspaceName = "../evil" }), "it is a run of workspace"},
		"run with a bad snapshot":           {run(func(r *record.Run) { r.InputSnapshot = "x" }), "snapshot"},
		"no run":                            {drop("dataflows/", ""), "names run"},
		"state of another run":              {state(func(s *record.WorkspaceState) { s.CurrentRunID = other }), "names run"},
		"state with a root that is no hash": {state(func(s *record.WorkspaceState) { s.RootHash = "../x" }), "hash"},
		"state with an absent root":         {state(func(s *record.WorkspaceState) { s.RootHash = strings.Repeat("1", 64) }), "not found"},
		"workspace with a bad name":         {set("workspaces/", "", func(f *file) { f.name = "workspaces/a%2Fb.beast2" }), "cannot be the name of a workspace"},
		"events of another run":             {set("events/", "", func(f *file) { f.content = eventstest.Summed(strings.ReplaceAll(f.content, exported.RunID, other)) }), "is of run"},
		"events out of order":               {set("events/", "", func(f *file) { f.content = eventstest.Summed(strings.Replace(f.content, `"seq":2,`, `"seq":3,`, 1)) }), "event 3 is in line 2"},
		"a damaged event":                   {set("events/", "", func(f *file) { f.content = strings.Replace(f.content, `"seq":2,`, `"seq":3,`, 1) }), "its sum is another"},
		"events that are cut off":           {set("events/", "", func(f *file) { f.content = f.content[:len(f.content)-1] }), "cut off"},
		"events that are no JSON":           {set("events/", "", func(f *file) { f.content = "x\n" }), "line 1"},
		"a line without end":                {set("events/", "", func(f *file) { f.content = strings.Repeat("x", 2<<20) }), "more than 1048576 bytes"},
		"provenance is none":                {set("provenance", "", func(f *file) { f.content = "x" }), "export provenance"},
		"provenance without end":            {provenance(func(e *record.Export) { e.By = strings.Repeat("x", 10_000) }), "bytes of text"},
		"provenance of ids that are none": {provenance(func(e *record.Export) {
			e.Earlier = []record.ExportGroup{{Executions: []string{strings.Repeat("x", 36)}}}
		}), "not an id"},
		"provenance tells twice": {provenance(func(e *record.Export) {
			e.Earlier = []record.ExportGroup{{Executions: []string{other}}, {Executions: []string{other}}}
		}), "twice"},
		"provenance that grows": {provenance(func(e *record.Export) {
			g := record.ExportGroup{Steps: make([]record.Step, 1000)}
			for i := range g.Steps {
				g.Steps[i].By = strings.Repeat("x", 4000)
			}
			for i := range 20 {
				g.Executions = append(g.Executions, other[:34]+string("0123456789abcdef"[i/16])+string("0123456789abcdef"[i%16]))
			}
			e.Earlier = []record.ExportGroup{g}
		}), "bytes each"},
		"a bad signature": {func(f []file) []file { return append(f, file{"signature.json", "{}"}) }, "bad signature"},
		"a signature of another": {func(f []file) []file {
			key, err := signature.Generate("x")
			if err != nil {
				t.Fatal(err)
			}
			return append(f, file{"signature.json", string(key.Sign([32]byte{}).Encode())})
		}, "the content is not what was signed"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, "bob@beta")
			before := s.visible()
			made := pack(t, c.change(slices.Clone(good)))
			_, foreseen := s.tryImport(made, exportimport.ImportOptions{NewWorkspace: true, DryRun: true})
			_, err := s.tryImport(made, exportimport.ImportOptions{NewWorkspace: true})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
			if err != nil && (foreseen == nil || foreseen.Error() != err.Error()) {
				t.Errorf("a dry run says %v, the import %v", foreseen, err)
			}
			if !errors.Is(err, exportimport.ErrIntegrity) && !errors.Is(err, signature.ErrBadSignature) {
				t.Errorf("%v is not told as a fault of the zip", err)
			}
			if after := s.visible(); !slices.Equal(before, after) {
				t.Errorf("after a refusal there are %v", after)
			}
		})
	}
}

// absentOutput makes an execution name an output that does not exist.
func absentOutput(t *testing.T, files []file) []file {
	t.Helper()
	absent := strings.Repeat("2", 64)
	for i := range files {
		if !strings.HasSuffix(files[i].name, "/status.beast2") {
			continue
		}
		s, err := record.DecodeStatus([]byte(files[i].content))
		if err != nil {
			t.Fatal(err)
		}
		for j := range files {
			if files[j].name == strings.TrimSuffix(files[i].name, "status.beast2")+"output" {
				files[j].content = absent + "\n"
			}
		}
		s.OutputHash = absent
		files[i].content = string(s.Encode())
		return files
	}
	return files
}

// Unknown entries are skipped, with a note.
func TestUnknownEntries(t *testing.T) {
	path, _ := sample(t, exportimport.ExportOptions{})
	files := append(unlisted(unpack(t, path)), file{"future/thing", "x"}, file{"README", "y"})
	for i, f := range files {
		if strings.HasSuffix(f.name, "/status.beast2") {
			files = slices.Insert(files, i, file{strings.Replace(f.name, "status.beast2", "future.beast2", 1), "z"})
			break
		}
	}
	s := newSite(t, "bob@beta")
	res := s.importZip(pack(t, files), exportimport.ImportOptions{NewWorkspace: true})
	if len(res.Notes) != 3 || res.Taken() != 3 {
		t.Errorf("imported %+v", res)
	}
}

// Existing objects of a wrong size are stored again.
func TestMendsObjects(t *testing.T) {
	path, _ := sample(t, exportimport.ExportOptions{})
	s := newSite(t, "bob@beta")
	s.importZip(path, exportimport.ImportOptions{NewWorkspace: true})
	d, err := s.repo.Workspaces.Datasets.Dataset(s.ctx, "prod", workspace.DatasetPath{Name: "third"})
	s.must(err)
	s.must(rewrite(filepath.Join(filepath.Join(s.repo.Root, "objects"), d.Hash[:2], d.Hash[2:]), []byte("torn")))
	s.importZip(path, exportimport.ImportOptions{})
	if got := s.content("prod", "third"); got == "torn" {
		t.Errorf("the dataset is %q", got)
	}
}

// Conflicts of names are found before anything is written.
func TestNameConflicts(t *testing.T) {
	path, exported := sample(t, exportimport.ExportOptions{})
	s := newSite(t, "bob@beta")
	h, err := objectstore.PutBytes(s.ctx, s.repo.Objects, (&record.Package{Name: "flow", Version: "1.0.0"}).Encode())
	s.must(err)
	s.must(s.repo.Workspaces.Packages.Add(s.ctx, workspace.PackageRef{Name: "flow", Version: "1.0.0", Hash: h.String()}))
	before := s.visible()
	_, err = s.tryImport(path, exportimport.ImportOptions{})
	var conflict *exportimport.ConflictError
	if !errors.As(err, &conflict) || !errors.Is(err, workspace.ErrExists) || conflict.Here != h.String() {
		t.Errorf("got %v", err)
	}
	if after := s.visible(); !slices.Equal(before, after) {
		t.Errorf("after a refusal there are %v", after)
	}
	res := s.importZip(path, exportimport.ImportOptions{As: workspace.PackageRef{Name: "theirs", Version: "7"}})
	if pkg, err := s.repo.Workspaces.Packages.Load(s.ctx, res.Package.Hash); err != nil || pkg.Name != "theirs" || pkg.Version != "7" || len(pkg.Tasks) != 3 {
		t.Errorf("under another name it is %+v, %v", pkg, err)
	}
	res = s.importZip(path, exportimport.ImportOptions{NewWorkspace: true})
	if len(res.Notes) != 1 || !strings.Contains(res.Notes[0], "not registered") {
		t.Errorf("notes are %q", res.Notes)
	}
	if st, err := s.repo.Workspaces.State(s.ctx, "prod"); err != nil || st.PackageHash != exported.Package.Hash {
		t.Errorf("the workspace has %+v, %v", st, err)
	}

	// An empty workspace is filled, any other is kept.
	s.must(s.repo.Workspaces.Create(s.ctx, "empty"))
	s.importZip(path, exportimport.ImportOptions{NewWorkspace: true, Workspace: "empty"})
	if run := s.start("empty"); run.Summary.Cached != 3 {
		t.Errorf("a start gives %+v", run.Summary)
	}
	if _, err := s.tryImport(path, exportimport.ImportOptions{NewWorkspace: true, Workspace: "empty"}); !errors.Is(err, workspace.ErrExists) {
		t.Errorf("into a workspace that has gone on: %v", err)
	}
	var name *exportimport.NameError
	if _, err := s.tryImport(path, exportimport.ImportOptions{NewWorkspace: true, Workspace: "../up"}); !errors.As(err, &name) {
		t.Errorf("with a path as its name: %v", err)
	}
}

// A run is imported with its events, complete and sealed. A workspace of another name gets its own run.
func TestRunAndEvents(t *testing.T) {
	path, exported := sample(t, exportimport.ExportOptions{})
	_, content := entries(t, path)
	want := content["events/prod/"+exported.RunID+".ndjson"]
	s := newSite(t, "bob@beta")
	s.importZip(path, exportimport.ImportOptions{NewWorkspace: true, Workspace: "copy"})
	key := refstore.Key{Partition: "EVENTS/copy", Sort: exported.RunID}
	stream := func() string {
		r, err := s.repo.Records.Open(s.ctx, key, 0)
		s.must(err)
		defer r.Close()
		var b bytes.Buffer
		_, err = b.ReadFrom(r)
		s.must(err)
		return b.String()
	}
	if got := stream(); got != want {
		t.Errorf("the events are\n%s\nwant\n%s", got, want)
	}
	if info, err := s.repo.Records.Size(s.ctx, key); err != nil || !info.Sealed {
		t.Errorf("the stream is %+v, %v", info, err)
	}
	run, err := s.repo.Workspaces.Runs.Run(s.ctx, "copy", exported.RunID)
	if err != nil || run.WorkspaceName != "copy" {
		t.Errorf("the run is %+v, %v", run, err)
	}
	rec, err := s.repo.Records.Get(s.ctx, refstore.Key{Partition: "DATAFLOW/copy", Sort: exported.RunID}, "provenance.beast2")
	if p, _ := rec.Field("provenance.beast2"); err != nil || p == nil {
		t.Errorf("the run has no provenance: %v", err)
	}
	// The remains of an interrupted import are completed.
	s.must(s.repo.Records.Remove(s.ctx, key))
	s.must(s.repo.Records.Append(s.ctx, key, 0, []byte(want[:len(want)/2])))
	s.importZip(path, exportimport.ImportOptions{NewWorkspace: true, Workspace: "copy"})
	if got := stream(); got != want {
		t.Errorf("after a cut the events are\n%s", got)
	}
	// It can be exported under its new name.
	out, _ := s.export("copy", exportimport.ExportOptions{})
	newSite(t, "cid@gamma").importZip(out, exportimport.ImportOptions{NewWorkspace: true})
}

// Results that return to their origin change nothing there, and each repository has recorded their steps.
func TestThereAndBack(t *testing.T) {
	a, b := newSite(t, "ann@alpha"), newSite(t, "bob@beta")
	a.pipeline("prod")
	a.start("prod")
	out, _ := a.export("prod", exportimport.ExportOptions{})
	b.importZip(out, exportimport.ImportOptions{NewWorkspace: true})
	b.set("prod", "text", "from beta")
	b.start("prod")
	back, _ := b.export("prod", exportimport.ExportOptions{AllHistory: true})
	before := a.all()
	res := a.importZip(back, exportimport.ImportOptions{NewWorkspace: true, Workspace: "theirs"})
	if res.Outcomes[executions.Added] != 3 || res.Outcomes[executions.SkippedSuccess] != 3 {
		t.Errorf("imported %+v", res)
	}
	for _, e := range before {
		now, err := a.repo.Executions.Get(a.ctx, e.Key, e.ExecutionID)
		if err != nil || now.Provenance != nil {
			t.Errorf("our own execution %s is %+v, %v", e.ExecutionID, now, err)
		}
	}
	if run := a.start("theirs"); run.Summary.Cached != 3 {
		t.Errorf("a start gives %+v", run.Summary)
	}
	c := newSite(t, "cid@gamma")
	c.importZip(back, exportimport.ImportOptions{})
	steps := map[int]int{}
	for _, e := range c.all() {
		steps[len(e.Provenance.Steps)]++
		if last := e.Provenance.Steps[len(e.Provenance.Steps)-1]; last.By != "bob@beta" || last.ImportedBy != "cid@gamma" {
			t.Errorf("execution %s has come by %+v", e.ExecutionID, e.Provenance.Steps)
		}
	}
	if steps[1] != 3 || steps[2] != 3 {
		t.Errorf("%v executions have come in so many steps, want 3 in 1 and 3 in 2", steps)
	}
}

// Signed zips name their signer; a repository can require that.
func TestSigned(t *testing.T) {
	key, err := signature.Generate("Ann")
	if err != nil {
		t.Fatal(err)
	}
	signed, exported := sample(t, exportimport.ExportOptions{Key: key, AllHistory: true})
	plain, _ := sample(t, exportimport.ExportOptions{})
	s := newSite(t, "bob@beta")
	require := exportimport.ImportOptions{RequireSigned: true}
	if _, err := s.tryImport(plain, require); !errors.Is(err, settings.ErrUnsigned) {
		t.Errorf("without a signature: %v", err)
	}
	if _, err := s.tryImport(signed, require); !errors.Is(err, settings.ErrUntrusted) {
		t.Errorf("signed by an unknown key: %v", err)
	}
	if len(s.all()) != 0 {
		t.Error("what was refused has come in")
	}
	_, err = settings.Update(s.ctx, s.repo.Records, func(all *settings.Settings) error {
		return all.Trust(settings.TrustedKey{Name: "ann", Key: key.Public()})
	})
	s.must(err)
	res := s.importZip(signed, require)
	if res.Verdict.Trust != settings.Trusted || exported.Signer.Key != key.Public().String() {
		t.Errorf("imported %+v", res.Verdict)
	}
	for _, e := range s.all() {
		if e.Provenance.Steps[0].Signer != (record.Signer{Key: key.Public().String(), Name: "Ann"}) {
			t.Errorf("execution %s was signed by %+v", e.ExecutionID, e.Provenance.Steps[0].Signer)
		}
	}
	// A log that was changed.
	files := unpack(t, signed)
	for i := range files {
		if strings.HasSuffix(files[i].name, "/stdout.txt") {
			files[i].content = "HELLO\n"
		}
	}
	if _, err := newSite(t, "cid@gamma").tryImport(pack(t, files), exportimport.ImportOptions{}); !errors.Is(err, signature.ErrBadSignature) {
		t.Errorf("with another log: %v", err)
	}
}

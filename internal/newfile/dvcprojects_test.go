package newfile_test

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"go.yaml.in/yaml/v4"

	_ "e3/internal/repo" // for the cache of go test: what the program is made of
	"e3/internal/testing/built"
)

var (
	updateNotes = flag.Bool("update", false, "write anew what e3 new says of the projects in testdata/dvc")
	updateDVC   = flag.Bool("update-dvc", false, "write anew what DVC makes of the projects in testdata/dvc")
)

// TestProjectsOfDVC converts pipelines of DVC, runs them, and compares each output, and which stages run after an edit,
// with what DVC has made.
//
// Each archive in testdata/dvc is a project: the shape of a public one, written anew, with stubs for programs. The
// lines at its head say
//
//	<prose>                               what is special about it
//	from: pipelines/a/dvc.yaml            the pipeline, if it is not dvc.yaml
//	add: data/raw                         a .dvc file tracks this
//	locked                                dvc.lock is in the project, as in a clone
//	edit: params.yaml: lr: 1 => lr: 2     an edit, made alone
//	unequal: 0 <path>: <reason>           an output that is not equal, after the first start
//	differs: 2 <stage>: <reason>          a stage that DVC runs after the second edit, and e3 does not, or vice versa
//
// Its file "notes" is what e3 new says, with its exit code: -update writes it. Its file "want" is what DVC has made:
// -update-dvc writes it, by the program dvc on the PATH or in E3_TEST_DVC. Where there is one, the thorough suite
// compares that with what DVC makes now.
func TestProjectsOfDVC(t *testing.T) {
	files, err := filepath.Glob("testdata/dvc/*.txtar")
	if err != nil || len(files) < 20 {
		t.Fatalf("%d projects: %v", len(files), err)
	}
	program, bin := "", stubs(t)
	if !*updateDVC {
		program = built.Program(t)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			t.Parallel()
			p := readDVCProject(t, file)
			p.program, p.bin = program, bin
			if *updateDVC || !testing.Short() {
				p.compareDVC()
			}
			if !*updateDVC {
				p.convert()
				p.play()
			}
		})
	}
}

// stubs is a folder with links to this test's binary.
func stubs(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, name := range stubNames {
		if err := os.Symlink(self, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// A dvcProject is a project of DVC, from an archive.
type dvcProject struct {
	t            *testing.T
	file         string
	archive      *txtar.Archive
	from         string
	added        []string
	edits        []edit
	unequal      map[string]string // reasons by edit and path
	differs      map[string]string // reasons by edit and stage
	locked       bool
	notes        string
	want         made
	dir          string
	program, bin string
}

type edit struct{ file, from, to string }

func (e edit) String() string { return fmt.Sprintf("%s: %s => %s", e.file, e.from, e.to) }

func readDVCProject(t *testing.T, file string) *dvcProject {
	t.Helper()
	archive, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	p := &dvcProject{t: t, file: file, archive: archive, from: "dvc.yaml"}
	p.unequal, p.differs = map[string]string{}, map[string]string{}
	for line := range strings.Lines(string(archive.Comment)) {
		line = strings.TrimSpace(line)
		key, rest, _ := strings.Cut(line, ": ")
		name, reason, _ := strings.Cut(rest, ": ")
		switch key {
		case "from":
			p.from = rest
		case "add":
			p.added = append(p.added, rest)
		case "edit":
			before, after, ok := strings.Cut(reason, " => ")
			if !ok {
				t.Fatalf("%s: an edit without =>: %s", file, line)
			}
			p.edits = append(p.edits, edit{name, before, after})
		case "unequal":
			p.unequal[name] = reason
		case "differs":
			p.differs[name] = reason
		case "locked":
			p.locked = true
		}
	}
	for _, f := range archive.Files {
		switch f.Name {
		case "notes":
			p.notes = string(f.Data)
		case "want":
			p.want = parseMade(t, string(f.Data))
		}
	}
	return p
}

// unpack writes the project into a new folder.
func (p *dvcProject) unpack() string {
	p.t.Helper()
	dir := filepath.Join(p.t.TempDir(), "project")
	for _, f := range p.archive.Files {
		if f.Name == "notes" || f.Name == "want" {
			continue
		}
		mode := fs.FileMode(0o666)
		if strings.HasPrefix(string(f.Data), "#!") {
			mode = 0o777
		}
		name := filepath.Join(dir, f.Name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o777), os.WriteFile(name, f.Data, mode)); err != nil {
			p.t.Fatal(err)
		}
	}
	return dir
}

// replace writes a file of the archive anew.
func (p *dvcProject) replace(name, text string) {
	p.t.Helper()
	files := slices.DeleteFunc(p.archive.Files, func(f txtar.File) bool { return f.Name == name })
	p.archive.Files = append(files, txtar.File{Name: name, Data: []byte(text)})
	if err := os.WriteFile(p.file, txtar.Format(p.archive), 0o666); err != nil {
		p.t.Fatal(err)
	}
}

// command runs a program in the project.
func (p *dvcProject) command(program string, args ...string) (out string, code int) {
	p.t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Dir = p.dir
	home := filepath.Dir(p.dir)
	cmd.Env = append(os.Environ(), "PATH="+p.bin+string(os.PathListSeparator)+os.Getenv("PATH"),
		"HOME="+home, "XDG_CONFIG_HOME="+home, "XDG_CACHE_HOME="+home, "E3_REPO=", "E3_ROOM=open",
		"DVC_NO_ANALYTICS=1", "GORACE=atexit_sleep_ms=0")
	text, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		p.t.Fatal(err)
	}
	return string(text), cmd.ProcessState.ExitCode()
}

// made is what a run has made: the outputs and, for each edit, the stages that ran and the outputs that changed.
type made struct {
	outs  map[string]string // sums by path; a folder has a slash at its end, and no sum
	edits []madeByEdit
}

type madeByEdit struct {
	ran  []string
	outs map[string]string
}

var wantHead = "# Made by DVC; -update-dvc makes it anew.\n"

func (m *made) String() string {
	var b strings.Builder
	b.WriteString(wantHead)
	list := func(outs map[string]string) {
		for _, name := range slices.Sorted(maps.Keys(outs)) {
			fmt.Fprintf(&b, "%s\n", strings.TrimSpace(outs[name]+" "+name))
		}
	}
	list(m.outs)
	for i, e := range m.edits {
		fmt.Fprintf(&b, "edit %d runs %s\n", i+1, strings.Join(e.ran, " "))
		list(e.outs)
	}
	return b.String()
}

func parseMade(t *testing.T, text string) (m made) {
	t.Helper()
	m.outs = map[string]string{}
	outs := m.outs
	for line := range strings.Lines(strings.TrimPrefix(text, wantHead)) {
		line = strings.TrimRight(line, "\n")
		if _, ran, ok := strings.Cut(line, " runs"); ok && strings.HasPrefix(line, "edit ") {
			outs = map[string]string{}
			m.edits = append(m.edits, madeByEdit{strings.Fields(ran), outs})
			continue
		}
		sum, name, ok := strings.Cut(line, " ")
		if strings.HasSuffix(line, "/") {
			sum, name, ok = "", line, true
		}
		if !ok {
			t.Fatalf("want: %q", line)
		}
		outs[name] = sum
	}
	return m
}

// sums are the sums of outputs, of which some may be folders.
func (p *dvcProject) sums(outs []string) map[string]string {
	p.t.Helper()
	sums := map[string]string{}
	for _, out := range outs {
		err := filepath.WalkDir(filepath.Join(p.dir, out), func(name string, e fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			rel, err := filepath.Rel(p.dir, name)
			if err != nil || e.Name() == ".gitignore" {
				return err
			}
			if info, err := os.Stat(name); err != nil || info.IsDir() {
				if rel == filepath.Clean(out) {
					sums[rel+"/"] = ""
				}
				return err
			}
			data, err := os.ReadFile(name)
			sums[rel] = shortSum(data)
			return err
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			p.t.Fatal(err)
		}
	}
	return sums
}

// changed are the sums of a that are not in b.
func changed(a, b map[string]string) map[string]string {
	d := map[string]string{}
	for name, sum := range a {
		if old, ok := b[name]; !ok || old != sum {
			d[name] = sum
		}
	}
	return d
}

// edit makes an edit, and returns the function that takes it back.
func (p *dvcProject) edit(e edit) (back func()) {
	p.t.Helper()
	name := filepath.Join(p.dir, e.file)
	data, err := os.ReadFile(name)
	if err != nil {
		p.t.Fatal(err)
	}
	if n := strings.Count(string(data), e.from); n != 1 {
		p.t.Fatalf("%s has %q %d times", e.file, e.from, n)
	}
	write := func(text string) {
		if err := os.WriteFile(name, []byte(text), 0o666); err != nil {
			p.t.Fatal(err)
		}
	}
	write(strings.Replace(string(data), e.from, e.to, 1))
	return func() { write(string(data)) }
}

// compareDVC runs DVC, if it is there, and compares what it makes with what is recorded.
func (p *dvcProject) compareDVC() {
	program := os.Getenv("E3_TEST_DVC")
	if program == "" {
		program, _ = exec.LookPath("dvc")
	}
	if program == "" {
		if *updateDVC {
			p.t.Fatal("-update-dvc needs the program dvc on the PATH or in E3_TEST_DVC")
		}
		return
	}
	p.dir = p.unpack()
	got, lock := p.runDVC(program)
	if *updateDVC {
		if p.locked {
			p.replace(p.lockFile(), lock)
		}
		p.replace("want", got.String())
		return
	}
	if got.String() != p.want.String() {
		p.t.Errorf("DVC makes now\n%s\nand %s has\n%s", &got, p.file, &p.want)
	}
}

var stageRuns = regexp.MustCompile(`(?m)^Running stage '(?:[^':]*:)?([^']+)':`)

// runDVC makes the project by DVC, and returns what that has made, and the dvc.lock before all edits.
func (p *dvcProject) runDVC(dvc string) (m made, lock string) {
	p.t.Helper()
	run := func(program string, args ...string) string {
		p.t.Helper()
		out, code := p.command(program, args...)
		if code != 0 {
			p.t.Fatalf("%s %s: exit code %d\n%s", program, strings.Join(args, " "), code, out)
		}
		return out
	}
	run("git", "init", "-q")
	run(dvc, "init", "-q")
	for _, added := range p.added {
		run(dvc, "add", "-q", added)
	}
	repro := func() (ran, outs []string) {
		p.t.Helper()
		out := run(dvc, "repro", "-P")
		for _, s := range stageRuns.FindAllStringSubmatch(out, -1) {
			ran = append(ran, s[1])
		}
		slices.Sort(ran)
		return ran, p.lockedOuts()
	}
	_, outs := repro()
	m.outs = p.sums(outs)
	lock = p.read(p.lockFile())
	for _, e := range p.edits {
		back := p.edit(e)
		ran, outs := repro()
		m.edits = append(m.edits, madeByEdit{ran, changed(p.sums(outs), m.outs)})
		back()
		repro()
	}
	return m, lock
}

func (p *dvcProject) lockFile() string { return path.Join(path.Dir(p.from), "dvc.lock") }

func (p *dvcProject) read(name string) string {
	p.t.Helper()
	data, err := os.ReadFile(filepath.Join(p.dir, name))
	if err != nil {
		p.t.Fatal(err)
	}
	return string(data)
}

// stages are the folders of the stages in dvc.yaml.
func (p *dvcProject) stages() map[string]string {
	p.t.Helper()
	var pipeline struct {
		Stages map[string]struct {
			Wdir string
			Do   struct{ Wdir string }
		}
	}
	for _, f := range p.archive.Files {
		if f.Name != p.from {
			continue
		}
		if err := yaml.Unmarshal(f.Data, &pipeline); err != nil {
			p.t.Fatal(err)
		}
	}
	folders := map[string]string{}
	for name, s := range pipeline.Stages {
		folders[name] = path.Join(path.Dir(p.from), s.Wdir, s.Do.Wdir)
	}
	return folders
}

// lockedOuts are the outputs in dvc.lock.
func (p *dvcProject) lockedOuts() (list []string) {
	p.t.Helper()
	var lock struct {
		Stages map[string]struct{ Outs []struct{ Path string } }
	}
	if err := yaml.Unmarshal([]byte(p.read(p.lockFile())), &lock); err != nil {
		p.t.Fatal(err)
	}
	folders := p.stages()
	for name, s := range lock.Stages {
		for _, o := range s.Outs {
			list = append(list, path.Join(folders[baseOf(name)], o.Path))
		}
	}
	return list
}

// baseOf is the name in dvc.yaml of a stage that may be one of a family.
func baseOf(stage string) string {
	base, _, _ := strings.Cut(stage, "@")
	return base
}

// convert makes the package file, and compares the notes and the exit code.
func (p *dvcProject) convert() {
	p.dir = p.unpack()
	for _, added := range p.added {
		text := "outs:\n- path: " + path.Base(added) + "\n"
		if err := os.WriteFile(filepath.Join(p.dir, added+".dvc"), []byte(text), 0o666); err != nil {
			p.t.Fatal(err)
		}
	}
	out, code := p.command(p.program, "new", "--from", p.from, "-o", "e3.yaml")
	notes := fmt.Sprintf("exit %d\n", code)
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, "Wrote ") {
			break
		}
		notes += line
	}
	if *updateNotes {
		p.replace("notes", notes)
	} else if notes != p.notes {
		p.t.Errorf("e3 new --from %s says\n%s\nwant\n%s", p.from, notes, p.notes)
	}
}

// play starts the pipeline, and again after each edit.
func (p *dvcProject) play() {
	defer func() {
		if p.t.Failed() {
			p.t.Logf("the package file:\n%s", p.read("e3.yaml"))
		}
	}()
	ran := p.start("start", "-f", "e3.yaml")
	if len(ran) == 0 {
		p.t.Error("the first start runs nothing")
	}
	p.same(0, p.want.outs, p.outputs())
	if ran := p.start("start"); len(ran) > 0 {
		p.t.Errorf("a second start runs %q", ran)
	}
	if len(p.want.edits) != len(p.edits) {
		p.t.Fatalf("%d edits, and DVC has made %d", len(p.edits), len(p.want.edits))
	}
	for i, e := range p.edits {
		want := p.want.edits[i]
		back := p.edit(e)
		ran := p.start("start")
		p.sameStages(i+1, want.ran, ran)
		after := maps.Clone(p.want.outs)
		maps.Copy(after, want.outs)
		p.same(i+1, after, p.outputs())
		back()
		if ran := p.start("start"); len(ran) > 0 {
			p.t.Errorf("back to the old value, after the edit %s, a start runs %q", e, ran)
		}
	}
}

var taskRuns = regexp.MustCompile(`(?m)^  \[start\]\s+(\S+)`)

// start starts the pipeline, and returns the names of the tasks that ran.
func (p *dvcProject) start(args ...string) (ran []string) {
	p.t.Helper()
	out, code := p.command(p.program, append(args, "--progress", "plain")...)
	if code != 0 {
		p.t.Fatalf("e3 %s: exit code %d\n%s", strings.Join(args, " "), code, out)
	}
	for _, m := range taskRuns.FindAllStringSubmatch(out, -1) {
		ran = append(ran, m[1])
	}
	return ran
}

// outputs are the sums of what lies in the project where DVC has made something.
func (p *dvcProject) outputs() map[string]string {
	p.t.Helper()
	var outs []string
	for _, e := range append([]madeByEdit{{outs: p.want.outs}}, p.want.edits...) {
		outs = slices.AppendSeq(outs, maps.Keys(e.outs))
	}
	return p.sums(outs)
}

// same compares outputs. One of which the project says that it is unequal must be so.
func (p *dvcProject) same(edit int, want, got map[string]string) {
	what := "e3"
	if edit > 0 {
		what = fmt.Sprintf("after edit %d (%s), e3", edit, p.edits[edit-1])
	}
	for _, name := range slices.Sorted(maps.Keys(union(want, got))) {
		sum, isMade := got[name]
		wanted, isWanted := want[name]
		equal := sum == wanted && isMade == isWanted
		switch reason, unequal := p.unequal[fmt.Sprint(edit, " ", name)]; {
		case equal && unequal:
			p.t.Errorf("%s made %s as DVC does, and %s says that it is unequal: %s", what, name, p.file, reason)
		case equal || unequal:
		case !isMade:
			p.t.Errorf("%s made no %s", what, name)
		case !isWanted && p.folderOf(want, name) == "":
		case !isWanted:
			p.t.Errorf("%s made %s, and DVC does not", what, name)
		default:
			text, err := os.ReadFile(filepath.Join(p.dir, name))
			p.t.Errorf("%s made another %s than DVC (%s, want %s): %v\n%s", what, name, sum, wanted, err, text)
		}
	}
}

func union(a, b map[string]string) map[string]string {
	u := maps.Clone(a)
	maps.Copy(u, b)
	return u
}

// folderOf is the folder among the outputs in which a file lies.
func (p *dvcProject) folderOf(outs map[string]string, name string) string {
	for out := range outs {
		if strings.HasSuffix(out, "/") && strings.HasPrefix(name, out) {
			return out
		}
	}
	return ""
}

// sameStages compares the tasks that ran after an edit with the stages that DVC runs. Those of a family are counted:
// DVC names them by position or value, e3 by value.
func (p *dvcProject) sameStages(edit int, stages, tasks []string) {
	want, got := map[string]int{}, map[string]int{}
	for _, s := range stages {
		want[baseOf(s)]++
	}
	names := slices.Collect(maps.Keys(p.stages()))
	for _, task := range tasks {
		base := ""
		for _, n := range names {
			rest, ok := strings.CutPrefix(task, n)
			if ok && (rest == "" || rest[0] == '-' || rest[0] == '[') && len(n) > len(base) {
				base = n
			}
		}
		got[base]++
	}
	for _, n := range slices.Sorted(maps.Keys(p.stages())) {
		reason, differs := p.differs[fmt.Sprint(edit, " ", n)]
		switch equal := want[n] == got[n]; {
		case equal && differs:
			p.t.Errorf("after edit %d, e3 runs what DVC runs of %s, and %s says that it differs: %s", edit, n, p.file, reason)
		case !equal && !differs:
			p.t.Errorf("after edit %d (%s), e3 runs %d of %s, and DVC %d", edit, p.edits[edit-1], got[n], n, want[n])
		}
	}
	if n := got[""]; n > 0 {
		p.t.Errorf("after edit %d, e3 runs tasks of no stage: %q", edit, tasks)
	}
}

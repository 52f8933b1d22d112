// Package propose finds files that tasks of a package read and do not declare, from the files that their commands have
// opened (internal/host/trace), and edits the package file accordingly. It proposes only declarations that put a file
// where the command has looked for it.
package propose

import (
	"io/fs"
	"path"
	"slices"
	"strings"

	"e3/internal/format/manifest"
	"e3/internal/host/trace"
)

// A Package holds the sources that a package offers to its tasks.
type Package struct {
	Inputs []manifest.Input
	Tasks  []Producer
}

// A Producer is a task of the package file, with all its items.
type Producer struct {
	Name    string
	Matrix  bool     // the task has items
	Dims    []string // variables that name an item; nil: unknown
	Several bool     // the task's output is a folder with one entry for each of Outputs
	Outputs []Output
}

// An Output is a file or a folder that a task makes.
type Output struct {
	Name, Path string
}

// A Run is the latest command of a task: of one item, if it has several.
type Run struct {
	Task      string // name of the task, with the label of the item
	Traced    bool   // Findings are known
	Succeeded bool
	Findings  []trace.Finding
	Inputs    []Staged
	// Lacks reports whether the message of a command that failed names a path as missing; nil: no path.
	Lacks func(rel string) bool
	// For Hints: the script; the inputs and tasks that the task reads; whether an input has the content of a file of
	// the project, nil: unknown.
	Script  string
	Sources []string
	Content func(rel string) bool
}

// A Staged is an input that the task declares.
type Staged struct {
	Name string
	Path string // where the command finds it; "": it is not in the file system
	// For Hints: whether it is staged as an executable, and, of a folder, whether it has a path.
	Executable bool
	Has        func(rel string) bool
}

// A Project is the folder of a package file.
type Project struct {
	Files fs.FS
	// Ignored reports whether a path is none of the project's sources (.gitignore).
	Ignored func(rel string) bool
	// Made returns the output with the content of a file of the project, as a source of an input; "" for none.
	Made func(rel string) string
}

// A Proposal lists what the tasks of a package read and do not declare, in the order of the file.
type Proposal struct {
	New   []NewInput // new inputs of the package
	Tasks []Task
}

// A NewInput is an input of the package that is to be declared.
type NewInput struct {
	Name string `json:"-"`
	Key  string `json:"key"` // file, dir or glob
	Path string `json:"path"`
}

// A Task is a proposal for one task of the package file.
type Task struct {
	Name     string   `json:"task"`
	Reads    []Read   `json:"reads"`
	Sought   []string `json:"sought"`   // missing paths that a command looked for; folders end in /
	Unread   []string `json:"unread"`   // inputs that no command opened, if all were traced and succeeded
	Traced   int      `json:"traced"`   // commands
	Untraced int      `json:"untraced"` // commands
}

// A Read is a path that the task reads.
type Read struct {
	Path   string    `json:"path"`           // a folder ends in /
	Source string    `json:"source"`         // its name under in
	Input  *NewInput `json:"input"`          // to declare; null if the source exists
	Note   string    `json:"note,omitempty"` // why the file cannot be edited, and what to do
}

// Others lists the paths at which commands find outputs of other tasks, for trace.Look.
func (p *Package) Others() []string {
	var list []string
	for i := range p.Tasks {
		t := &p.Tasks[i]
		if t.Matrix || t.Several {
			list = append(list, t.Name)
		}
		for _, out := range t.Outputs {
			list = append(list, out.Path)
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// Of proposes inputs for the tasks that have run.
func Of(pkg *Package, project *Project, runs []Run) *Proposal {
	p := &Proposal{}
	for i := range pkg.Tasks {
		producer := &pkg.Tasks[i]
		f := finder{pkg: pkg, project: project, task: producer, all: p}
		for k := range runs {
			if base, _, _ := strings.Cut(runs[k].Task, "["); base == producer.Name {
				f.runs = append(f.runs, &runs[k])
			}
		}
		if len(f.runs) == 0 {
			continue
		}
		if t := f.propose(); len(t.Reads) > 0 || len(t.Sought) > 0 || len(t.Unread) > 0 || t.Untraced > 0 || t.Traced > 0 {
			p.Tasks = append(p.Tasks, t)
		}
	}
	return p
}

// Empty reports whether nothing is missing and nothing is declared in vain.
func (p *Proposal) Empty() bool {
	return !slices.ContainsFunc(p.Tasks, func(t Task) bool { return len(t.Reads) > 0 || len(t.Unread) > 0 })
}

// finder finds the proposal for one task.
type finder struct {
	pkg     *Package
	project *Project
	task    *Producer
	all     *Proposal
	runs    []*Run
	out     Task
}

func (f *finder) propose() Task {
	f.out.Name = f.task.Name
	opened := map[trace.Finding]bool{}
	whole := true
	for _, r := range f.runs {
		whole = whole && r.Traced && r.Succeeded
		if !r.Traced {
			f.out.Untraced++
			continue
		}
		f.out.Traced++
		for _, finding := range r.Findings {
			opened[f.needed(r, finding)] = true
		}
	}
	if whole {
		f.unread(opened)
	}
	var files []string
	list := make([]trace.Finding, 0, len(opened))
	for finding := range opened {
		list = append(list, finding)
	}
	slices.SortFunc(list, trace.Finding.Compare)
	for _, finding := range list {
		if finding.Kind == trace.Read || finding.Kind == trace.Sought || trace.Private(finding.Path) || f.project.Ignored(finding.Path) {
			continue
		}
		switch finding.Kind {
		case trace.Missing:
			f.output(finding.Path, finding.Path)
		case trace.File:
			if !f.known(finding.Path) {
				files = append(files, finding.Path)
			}
		case trace.Folder:
			f.folder(finding.Path, list)
		}
	}
	f.sources(files)
	f.sought(list)
	slices.SortStableFunc(f.out.Reads, func(a, b Read) int { return strings.Compare(a.Path, b.Path) })
	return f.out
}

// needed treats a path as opened if a command looked for it and failed without it. cp and ls look before they open.
func (f *finder) needed(r *Run, finding trace.Finding) trace.Finding {
	if finding.Kind != trace.Sought || r.Succeeded || r.Lacks == nil || !r.Lacks(finding.Path) {
		return finding
	}
	info, err := fs.Stat(f.project.Files, finding.Path)
	switch {
	case err != nil:
		finding.Kind = trace.Missing
	case info.IsDir():
		finding.Kind = trace.Folder
	default:
		finding.Kind = trace.File
	}
	return finding
}

// sought lists the paths that were looked for. They are reported and never declared: a program that tests for a file
// may do without it, or may be about to make it. It leaves out a path if a file there or below was opened, or a folder
// above was listed: that finding says more.
func (f *finder) sought(list []trace.Finding) {
	opened := func(rel string) bool {
		return slices.ContainsFunc(list, func(other trace.Finding) bool {
			return other.Kind != trace.Sought && (other.Path == rel || strings.HasPrefix(other.Path, rel+"/") ||
				other.Kind == trace.Folder && strings.HasPrefix(rel, other.Path+"/"))
		})
	}
	for _, finding := range list {
		if finding.Kind != trace.Sought || opened(finding.Path) || trace.Private(finding.Path) || f.project.Ignored(finding.Path) {
			continue
		}
		rel := finding.Path
		if info, err := fs.Stat(f.project.Files, rel); err == nil && info.IsDir() {
			rel += "/"
		}
		f.out.Sought = append(f.out.Sought, rel)
	}
}

// unread lists inputs of the file system that no command has opened.
func (f *finder) unread(opened map[trace.Finding]bool) {
	for _, in := range f.runs[0].Inputs {
		read := false
		for _, r := range f.runs {
			for _, other := range r.Inputs {
				read = read || other.Name == in.Name && (other.Path == "" || opened[trace.Finding{Kind: trace.Read, Path: path.Clean(other.Path)}])
			}
		}
		if !read {
			f.out.Unread = append(f.out.Unread, in.Name)
		}
	}
}

func (f *finder) read(rel, source, note string) {
	for i := range f.out.Reads {
		if f.out.Reads[i].Source == source {
			return
		}
	}
	f.out.Reads = append(f.out.Reads, Read{rel, source, nil, note})
}

// known proposes an existing source of the package: an input, or the output of a task.
func (f *finder) known(rel string) bool {
	for i := range f.pkg.Inputs {
		in := &f.pkg.Inputs[i]
		switch in.Kind {
		case manifest.FileInput:
			if in.Path != rel {
				continue
			}
		case manifest.DirInput:
			if in.Path != "." && !strings.HasPrefix(rel, in.Path+"/") {
				continue
			}
		case manifest.GlobInput:
			if !manifest.MatchGlob(in.Path, rel) {
				continue
			}
			f.read(rel, f.item(in), "")
			return true
		default:
			continue
		}
		f.read(rel, in.Name, "")
		return true
	}
	if source := f.project.Made(rel); source != "" {
		if !f.output(rel, rel) {
			f.read(rel, source, "it is the output of "+source+", as it was left for people: name "+source+" under in, and read it at the path of its variable")
		}
		return true
	}
	return f.output(rel, rel)
}

// item is the source for a file of an input with items: the file of the task's own item, if each command has opened its
// own.
func (f *finder) item(in *manifest.Input) string {
	pattern, err := manifest.ParsePattern(in.Pattern)
	if in.Pattern == "" || err != nil || !f.task.Matrix {
		return in.Name
	}
	names := pattern.Names
	for _, r := range f.runs {
		n := 0
		for _, finding := range r.Findings {
			values, ok := pattern.Match(finding.Path)
			if finding.Kind != trace.File || !ok {
				continue
			}
			if n++; n > 1 || label(names, values) != itemOf(r.Task) {
				return in.Name
			}
		}
		if n != 1 && r.Traced {
			return in.Name
		}
	}
	return in.Name + "[" + strings.Join(names, ",") + "]"
}

// label is the label of an item with these values.
func label(names, values []string) string {
	if len(names) == 1 {
		return manifest.EscapeLabel(values[0])
	}
	var parts []string
	for i, name := range names {
		parts = append(parts, name+"="+manifest.EscapeLabel(values[i]))
	}
	return strings.Join(parts, ",")
}

func itemOf(task string) string {
	_, rest, _ := strings.Cut(task, "[")
	return strings.TrimSuffix(rest, "]")
}

// output proposes the output of a task, if a path is this output or lies in it.
func (f *finder) output(rel, shown string) bool {
	var found []string
	note := ""
	for i := range f.pkg.Tasks {
		t := &f.pkg.Tasks[i]
		if t.Name == f.task.Name {
			continue
		}
		if t.Matrix && rel == t.Name { // where "task[*]" is put
			found = append(found, t.Name+"[*]")
			continue
		}
		if t.Several && rel == t.Name {
			found = append(found, t.Name)
			continue
		}
		for _, out := range t.Outputs {
			if rel != out.Path && !strings.HasPrefix(rel, out.Path+"/") {
				continue
			}
			source := t.Name
			if t.Matrix {
				if t.Dims == nil || !f.hasDims(t.Dims) {
					note = "it is an output of " + t.Name + ", which has several items: name one of them under in"
				}
				source += "[" + strings.Join(t.Dims, ",") + "]"
			}
			if t.Several {
				source += "." + out.Name
			}
			found = append(found, source)
		}
	}
	if len(found) != 1 {
		return false
	}
	f.read(shown, found[0], note)
	return true
}

func (f *finder) hasDims(dims []string) bool {
	for _, d := range dims {
		if !slices.Contains(f.task.Dims, d) {
			return false
		}
	}
	return true
}

// folder proposes a folder that was listed, unless files in it were opened: then these files are proposed.
func (f *finder) folder(rel string, list []trace.Finding) {
	for i := range f.pkg.Inputs {
		in := &f.pkg.Inputs[i]
		if in.Kind == manifest.DirInput && (in.Path == rel || strings.HasPrefix(rel, in.Path+"/")) ||
			in.Kind == manifest.GlobInput && manifest.GlobPrefix(in.Path) == rel {
			f.read(rel+"/", in.Name, "")
			return
		}
	}
	if f.output(rel, rel+"/") {
		return
	}
	if slices.ContainsFunc(list, func(other trace.Finding) bool {
		return other.Kind != trace.Read && other.Kind != trace.Sought && strings.HasPrefix(other.Path, rel+"/")
	}) {
		return
	}
	entries, err := fs.ReadDir(f.project.Files, rel)
	if err != nil || len(entries) == 0 || slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() == manifest.FileName || e.Name() == ".e3" }) {
		return
	}
	f.read(rel+"/", f.declare("dir", rel), "")
}

// fewest is the least number of files for which a pattern is proposed.
const fewest = 3

// sources proposes files that nothing declares: by a pattern if the task has opened all matching files.
func (f *finder) sources(files []string) {
	groups := map[string][]string{}
	for _, file := range files {
		groups[path.Dir(file)+"/*"+path.Ext(file)] = append(groups[path.Dir(file)+"/*"+path.Ext(file)], file)
	}
	for _, file := range files {
		pattern := path.Dir(file) + "/*" + path.Ext(file)
		pattern = path.Clean(pattern)
		if group := groups[path.Dir(file)+"/*"+path.Ext(file)]; len(group) >= fewest && path.Ext(file) != "" && path.Dir(file) != "." && f.matchesOnly(pattern, group) {
			f.read(pattern, f.declare("glob", pattern), "")
			continue
		}
		f.read(file, f.declare("file", file), "")
	}
}

// matchesOnly reports whether a pattern in one folder matches these files and no others.
func (f *finder) matchesOnly(pattern string, files []string) bool {
	entries, err := fs.ReadDir(f.project.Files, path.Dir(pattern))
	n := 0
	for _, e := range entries {
		if e.Type().IsRegular() && manifest.MatchGlob(pattern, path.Dir(pattern)+"/"+e.Name()) {
			n++
		}
	}
	return err == nil && n == len(files)
}

// declare returns the name of a new input of the package.
func (f *finder) declare(key, rel string) string {
	for i := range f.all.New {
		if in := &f.all.New[i]; in.Key == key && in.Path == rel {
			return in.Name
		}
	}
	name := Name(rel)
	for n := 2; f.taken(name); n++ {
		name = Name(rel) + "_" + string(rune('0'+n))
	}
	f.all.New = append(f.all.New, NewInput{name, key, rel})
	return name
}

func (f *finder) taken(name string) bool {
	return slices.ContainsFunc(f.pkg.Inputs, func(in manifest.Input) bool { return in.Name == name }) ||
		slices.ContainsFunc(f.pkg.Tasks, func(t Producer) bool { return t.Name == name }) ||
		slices.ContainsFunc(f.all.New, func(in NewInput) bool { return in.Name == name }) || manifest.BashSets(name) ||
		slices.ContainsFunc(f.task.Outputs, func(out Output) bool { return out.Name == name })
}

// Name makes the name of an input for a path of the project.
func Name(rel string) string {
	base := path.Base(rel)
	if strings.Contains(base, "*") { // the files of a folder
		base = path.Base(path.Dir(rel)) + strings.TrimPrefix(base, "*")
	}
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '_' {
			return r
		}
		return '_'
	}, strings.ToLower(base))
	if name == "" || name[0] < 'a' || name[0] > 'z' {
		name = "in_" + strings.TrimLeft(name, "_")
	}
	return name[:min(len(name), 48)]
}

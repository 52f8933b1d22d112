package propose

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"e3/internal/format/manifest"
	"e3/internal/format/pattern"
	"e3/internal/host/trace"
)

// A command says in words of its own that it misses a file. A hint about such a message must be true whatever the
// command meant: that a file is not among the inputs is said only if nothing that was staged is that file, by any name
// or content; and why a staged file was not found is asked, not told.

// A Miss is a path that a message names as missing.
type Miss struct {
	Path    string // below the working directory, or of the project
	Sure    bool   // the message says of this path that it is missing, and not of another one in the same line
	Program bool   // a shell has looked for it in the PATH
	Whole   bool   // the message has the whole path
}

var (
	missesFile = pattern.Of(`(?i)no such file|cannot open|can't open|could not open|unable to open|does not exist|` +
		`not found|FileNotFoundError|no rule to make target|cannot find module`)
	missesModule = pattern.Of(`No module named '?([A-Za-z_][A-Za-z0-9_]*)|cannot find module '\./([^']+)'`)
	missingNext  = pattern.Of(`(?i)^\)?: *(no such file|does not exist|not found|command not found)`)
	missingHere  = pattern.Of(`(?i)^: *(command )?not found`)
	shellLine    = pattern.Of(`^[^\s:]+: (line )?\d+: `) // what a shell puts before a message about its script
	pathWord     = pattern.Of(`[^\s'"` + "`" + `(),;:‘’“”<>\[\]{}]+`)
	goesTo       = pattern.Of(`^\s*cd\s+['"]?([\w./-]+)['"]?\s*(&&|;|\n)`) // how a script begins elsewhere
	workFolder   = pattern.Of(`^/(.*/)?(room|e3)/work/`)                   // in the open and in a closed room
)

// TellsOfMissing reports whether lines name a file, a package or a value as missing.
func TellsOfMissing(lines []string) bool {
	return slices.ContainsFunc(lines, func(line string) bool {
		return missesFile().MatchString(line) || missesModule().MatchString(line) || missesPackage().MatchString(line) || missesValue().MatchString(line)
	})
}

const quotes = "'\"`‘’“”"

// Misses are the paths that the lines of a message name as missing. roots are the absolute names of the project.
func Misses(lines, roots []string) (list []Miss) {
	for _, line := range lines {
		if !missesFile().MatchString(line) {
			continue
		}
		line = shellLine().ReplaceAllString(line, "")
		for _, at := range pathWord().FindAllStringIndex(line, -1) {
			word, before, after := line[at[0]:at[1]], line[:at[0]], line[at[1]:]
			if m, ok := missed(strings.TrimRight(word, "."), before, after, roots); ok && !slices.Contains(list, m) {
				list = append(list, m)
			}
		}
	}
	return list
}

// missed reads a word of a message, with what stands around it. A word without a dot or a slash may be any word.
func missed(word, before, after string, roots []string) (m Miss, ok bool) {
	first, _ := utf8.DecodeRuneInString(after)
	last, _ := utf8.DecodeLastRuneInString(before)
	quoted := strings.ContainsRune(quotes, last) && strings.ContainsRune(quotes, first)
	m.Sure = quoted || missingNext().MatchString(after)
	if word == "" || strings.ContainsFunc(word, unicode.IsControl) || !m.Sure && !strings.ContainsAny(word, "./") {
		return m, false
	}
	m.Program = !strings.Contains(word, "/") && missingHere().MatchString(after)
	if m.Whole = path.IsAbs(word); m.Whole {
		word = below(path.Clean(word), roots)
	}
	for rest, up := strings.CutPrefix(path.Clean(word), "../"); up; rest, up = strings.CutPrefix(rest, "../") {
		word, m.Sure = rest, false
	}
	m.Path = path.Clean(word)
	return m, word != "" && m.Path != "." && m.Path != ".." && fs.ValidPath(m.Path)
}

// below is an absolute path of a working directory, or of the project, as a relative one; "" for any other.
func below(name string, roots []string) string {
	if at := workFolder().FindStringIndex(name); at != nil {
		return name[at[1]:]
	}
	for _, root := range roots {
		if rel, ok := strings.CutPrefix(name, root+"/"); ok {
			return rel
		}
	}
	return ""
}

// Lacks reports whether lines name a path as missing.
func Lacks(lines []string) func(rel string) bool {
	misses := Misses(lines, nil)
	return func(rel string) bool { return slices.ContainsFunc(misses, func(m Miss) bool { return m.Path == rel }) }
}

// modules are the files of the project of which one is a module that lines name as missing: for each module its
// likeliest places.
func modules(lines []string) (list [][]string) {
	for _, line := range lines {
		m := missesModule().FindStringSubmatch(line)
		if m == nil {
			continue
		}
		var files []string
		for _, dir := range []string{"", "src/", "lib/", "scripts/", "python/"} {
			for _, name := range []string{m[1] + ".py", m[1], m[2], m[2] + ".js"} {
				if name != "" && name != ".py" && name != ".js" {
					files = append(files, path.Clean(dir+name))
				}
			}
		}
		list = append(list, files)
	}
	return list
}

// Hints says what to do about files and values that a failed command misses, by the lines of its message. roots are the absolute
// names of the project.
func Hints(pkg *Package, project *Project, run *Run, lines, roots []string) []string {
	base, _, _ := strings.Cut(run.Task, "[")
	i := slices.IndexFunc(pkg.Tasks, func(t Producer) bool { return t.Name == base })
	if i < 0 {
		return nil
	}
	h := hinter{pkg: pkg, project: project, run: run, task: &pkg.Tasks[i]}
	folder := ""
	if m := goesTo().FindStringSubmatch(run.Script); m != nil {
		folder = path.Clean(m[1])
	}
	for _, m := range Misses(lines, roots) {
		if rel := path.Join(folder, m.Path); folder != "" && !m.Whole && !m.Program && (project.has(rel) || h.made(rel)) {
			m.Path = rel
		}
		h.miss(m)
	}
	for _, files := range modules(lines) {
		if slices.ContainsFunc(files, run.has) { // where the interpreter looks for modules is not known
			continue
		}
		if i := slices.IndexFunc(files, project.has); i >= 0 {
			h.miss(Miss{Path: files[i]})
		}
	}
	if h.hints = append(h.hints, h.undeclared()...); len(h.hints) == 0 {
		h.lacksPackage(lines)
		h.lacksValue(lines)
	}
	return h.hints
}

// hinter finds hints for one task.
type hinter struct {
	pkg      *Package
	project  *Project
	run      *Run
	task     *Producer
	hints    []string
	findings []trace.Finding
}

// say tells of a file that is among the inputs.
func (h *hinter) say(file, more string) {
	h.hint(file + " is among the inputs of " + h.task.Name + more)
}

func (h *hinter) hint(text string) {
	if !slices.Contains(h.hints, text) {
		h.hints = append(h.hints, text)
	}
}

// miss says why a staged file was not found, or notes a finding.
func (h *hinter) miss(m Miss) {
	if slices.ContainsFunc(h.task.Outputs, func(out Output) bool { return within(m.Path, out.Path) }) {
		return
	}
	switch staged := h.run.has(m.Path); {
	case staged && m.Program && h.run.executable(m.Path):
		h.say(m.Path, "; a shell looks for a name without / in the PATH: write ./"+m.Path)
		return
	case staged && m.Program:
		h.say(m.Path, ", but not executable: write ./"+m.Path+", and executable: true at the input")
		return
	case staged && m.Sure:
		h.say(m.Path, ", in the folder where the command begins: has it gone elsewhere (cd), or moved the file?")
		return
	case staged:
		return
	}
	if folder := environmentAround(h.project.Files, m.Path); folder != "" {
		h.hint("tasks do not see " + folder + " of the project: " + h.useEnvironment())
		return
	}
	info, err := fs.Stat(h.project.Files, m.Path)
	if err != nil {
		if program := h.named(m.Path); m.Program && program != "" {
			h.say(program, "; a shell looks for a name without / in the PATH: write ./"+program)
			return
		}
		h.findings = append(h.findings, trace.Finding{Kind: trace.Missing, Path: m.Path})
		return
	}
	if !info.IsDir() && !info.Mode().IsRegular() {
		return
	}
	if other := h.alias(m.Path); other != "" {
		h.say(m.Path, " as "+other+": read it there, or declare it by this path too")
		return
	}
	if h.run.Content != nil && h.run.Content(m.Path) {
		return
	}
	kind := trace.File
	if info.IsDir() {
		kind = trace.Folder
	}
	h.findings = append(h.findings, trace.Finding{Kind: kind, Path: m.Path})
}

// made reports whether another task makes a path.
func (h *hinter) made(rel string) bool {
	return slices.ContainsFunc(h.pkg.Tasks, func(t Producer) bool {
		return t.Name != h.task.Name && slices.ContainsFunc(t.Outputs, func(out Output) bool { return within(rel, out.Path) })
	})
}

// named is the only staged file of a name, in any folder; "" for none.
func (h *hinter) named(base string) (found string) {
	for _, in := range h.run.Inputs {
		if in.Path == "" || path.Base(in.Path) != base {
			continue
		}
		if found != "" {
			return ""
		}
		found = in.Path
	}
	return found
}

// alias is the staged path of a file of the project that is reached by another path, through links; "" for none.
func (h *hinter) alias(rel string) string {
	for at := rel; at != "."; at = path.Dir(at) {
		info, err := fs.Stat(h.project.Files, at)
		if err != nil {
			return ""
		}
		for _, in := range h.run.Inputs {
			staged, err := fs.Stat(h.project.Files, path.Clean(in.Path))
			other := path.Clean(path.Join(in.Path, strings.TrimPrefix(rel, at)))
			if in.Path != "" && err == nil && os.SameFile(info, staged) && h.run.has(other) {
				return other
			}
		}
	}
	return ""
}

// undeclared says what to declare. A task or a file that the task reads already is not told: it is there by another
// path. Of an input with several files the task may read others.
func (h *hinter) undeclared() (hints []string) {
	run := Run{Task: h.run.Task, Traced: true, Findings: h.findings}
	p := Of(&Package{Inputs: h.pkg.Inputs, Tasks: h.pkg.Tasks}, h.project, []Run{run})
	for _, task := range p.Tasks {
		for _, r := range task.Reads {
			if hint := h.declaration(p, r); hint != "" {
				hints = append(hints, hint)
			}
		}
	}
	return hints
}

// declaration says how to declare what a task misses; "" if it reads the source already.
func (h *hinter) declaration(p *Proposal, r Read) string {
	source, _, _ := strings.Cut(r.Source, "[")
	source, _, _ = strings.Cut(source, ".")
	kind := manifest.FileInput
	in := slices.IndexFunc(h.pkg.Inputs, func(in manifest.Input) bool { return in.Name == source })
	if in >= 0 {
		kind = h.pkg.Inputs[in].Kind
	}
	fresh := slices.IndexFunc(p.New, func(in NewInput) bool { return in.Name == r.Source })
	missing := "not among the inputs of " + h.task.Name
	switch {
	case kind == manifest.FileInput && slices.Contains(h.run.Sources, source):
		return ""
	case r.Note != "":
		return r.Path + ": " + r.Note
	case fresh >= 0:
		return fmt.Sprintf("%s is in the project but %s: write %s: {%s: %s} under inputs, and %[3]s in its in",
			r.Path, missing, r.Source, p.New[fresh].Key, p.New[fresh].Path)
	case in >= 0:
		return fmt.Sprintf("%s is in the project, by the input %s, but %s: add %s to its in", r.Path, source, missing, r.Source)
	}
	return fmt.Sprintf("%s is an output of %s, and %s: add %s to its in", r.Path, source, missing, r.Source)
}

// within reports whether a path is a file or folder, or lies in it.
func within(rel, other string) bool {
	other = path.Clean(other)
	return rel == other || strings.HasPrefix(rel, other+"/")
}

// has reports whether a path is in the command's folder when it begins.
func (r *Run) has(rel string) bool {
	return slices.ContainsFunc(r.Inputs, func(in Staged) bool {
		switch {
		case in.Path == "":
			return false
		case within(in.Path, rel): // the file or the folder itself, or a folder around it
			return true
		}
		return in.Has != nil && within(rel, in.Path) && in.Has(strings.TrimPrefix(rel, path.Clean(in.Path)+"/"))
	})
}

// executable reports whether an input is staged there as an executable.
func (r *Run) executable(rel string) bool {
	return slices.ContainsFunc(r.Inputs, func(in Staged) bool { return path.Clean(in.Path) == rel && in.Executable })
}

// has reports whether the project has a path.
func (p *Project) has(rel string) bool {
	_, err := fs.Stat(p.Files, rel)
	return err == nil
}

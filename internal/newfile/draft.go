// Package newfile writes first package files: for the files of a folder, with guesses that are marked in the file, and
// for pipelines of DVC. The result is a correct package file; it names the parts of a pipeline that were not carried
// over, with their lines.
package newfile

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"e3/internal/format/manifest"
	"e3/internal/format/notation"
)

// A Draft is a package file in the making.
type Draft struct {
	Name    string
	Head    []string // lines of comment at the top
	Results string   // folder of the results; "": none
	Inputs  []*Input
	Tasks   []*Task

	Environments []Environment

	named map[string]bool
}

// An Input is an input of a draft.
type Input struct {
	Name    string
	Kind    string   // file, dir, glob, files, url or value
	Path    string   // the location, or the value as YAML
	Columns []string // of a table: the columns that name files
	At, Sum string   // of a URL: where commands find the file, and its only content
	Comment string
}

// A Task is a task of a draft.
type Task struct {
	Name        string
	Description string
	Environment string // "": none
	Comments    []string
	Matrix      string   // the source of its items; "": none
	Vars        []string // variables of an item
	In          []Ref
	Out         []Out
	PassEnv     []string
	Run         string // the command is a script
}

// A Ref is a source that a task reads: Task, as task or task.output, or an input. As is its name in the task; "": the
// usual name. Only, joined by commas, are values of a file of parameters, and At is where a fan-in is.
type Ref struct{ Task, Input, As, Only, At string }

// Out is an output of a task.
type Out struct {
	Name string // "" if it is the only output
	Path string
	Dir  bool
	Kind string // metrics, plot or report; or ""
	Plot string // keys that say how it is drawn; or ""
	// files in a folder, as YAML
	Metrics, Plots []string
}

// name makes a name that is new in the draft.
func (d *Draft) name(text string) string {
	if d.named == nil {
		d.named = map[string]bool{}
	}
	base := identifier(text)
	name := base
	for i := 2; d.named[name] || manifest.BashSets(name); i++ {
		name = base + "_" + strconv.Itoa(i)
	}
	d.named[name] = true
	return name
}

// identifier turns a text into a name that can also be a variable.
func identifier(text string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(text) {
		switch {
		case r < 0x80 && notation.IsWord(byte(r)):
			b.WriteRune(r)
		case b.Len() > 0 && !strings.HasSuffix(b.String(), "_"):
			b.WriteByte('_')
		}
	}
	name := strings.TrimRight(b.String(), "_")
	switch {
	case name == "" || notation.IsDigit(name[0]):
		name = "x" + name
	case name == "e3" || name == "out":
		name += "_"
	}
	return name[:min(len(name), 48)]
}

// input returns the name of the input for a path. It adds a missing input.
func (d *Draft) input(kind, p, comment string) string {
	for _, in := range d.Inputs {
		if in.Kind == kind && in.Path == p {
			return in.Name
		}
	}
	name := path.Base(p)
	if kind == "glob" {
		name = strings.ReplaceAll(path.Dir(p)+"_"+strings.TrimLeft(path.Ext(p), "."), "*", "")
	}
	in := &Input{Name: d.name(name), Kind: kind, Path: p, Comment: comment}
	d.Inputs = append(d.Inputs, in)
	return in.Name
}

// Text is the package file.
func (d *Draft) Text() string {
	var b strings.Builder
	for _, line := range d.Head {
		b.WriteString(strings.TrimRight("# "+line, " ") + "\n")
	}
	fmt.Fprintf(&b, "e3: 1\nname: %s\n", scalar(d.Name))
	switch d.Results {
	case "":
	case ".":
		b.WriteString("results: .   # each start leaves every output at its place in the project\n")
	default:
		fmt.Fprintf(&b, "results: %s   # each start leaves here what no task reads\n", scalar(d.Results))
	}
	d.writeEnvironments(&b)
	if len(d.Inputs) > 0 {
		b.WriteString("\ninputs:\n")
		width := 0
		for _, in := range d.Inputs {
			width = max(width, len(in.Name))
		}
		read := map[string]bool{}
		for _, t := range d.Tasks {
			for _, r := range t.In {
				name := r.Input[:max(strings.IndexAny(r.Input+"[", "[."), 0)]
				read[name] = true
			}
			for _, in := range d.Inputs {
				read[in.Name] = read[in.Name] || t.Matrix == in.Name || strings.Contains(t.Matrix, ": "+in.Name)
			}
		}
		unread := false
		for _, in := range d.Inputs {
			mark := "  "
			if !read[in.Name] {
				mark, unread = "  # ", true
			}
			line := fmt.Sprintf("%s%-*s {%s: %s}", mark, width+1, in.Name+":", in.Kind, flow(in))
			if in.Comment != "" {
				line += "   # " + in.Comment
			}
			b.WriteString(line + "\n")
		}
		if unread {
			b.WriteString("  # Inputs behind a # are here, and no task reads them yet.\n")
		}
	}
	b.WriteString("\ntasks:\n")
	for i, t := range d.Tasks {
		if i > 0 {
			b.WriteString("\n")
		}
		t.write(&b)
	}
	return b.String()
}

func flow(in *Input) string {
	if in.Kind == "value" {
		return in.Path
	}
	if in.Kind == "url" {
		text := scalar(in.Path)
		if in.At != path.Base(in.Path) && in.At != "" {
			text += ", at: " + scalar(in.At)
		}
		if in.Sum != "" {
			text += `, sha256: "` + in.Sum + `"`
		}
		return text
	}
	if in.Columns != nil {
		columns := make([]string, len(in.Columns))
		for i, name := range in.Columns {
			columns[i] = scalar(name)
		}
		return scalar(in.Path) + ", paths: [" + strings.Join(columns, ", ") + "]"
	}
	return scalar(in.Path)
}

func (t *Task) write(b *strings.Builder) {
	for _, c := range t.Comments {
		b.WriteString("  # " + c + "\n")
	}
	fmt.Fprintf(b, "  %s:\n", t.Name)
	if t.Description != "" {
		fmt.Fprintf(b, "    description: %s\n", scalar(t.Description))
	}
	if t.Environment != "" {
		fmt.Fprintf(b, "    environment: %s\n", t.Environment)
	}
	if t.Matrix != "" {
		fmt.Fprintf(b, "    matrix: %s\n", t.Matrix)
	}
	if len(t.In) > 0 {
		fmt.Fprintf(b, "    in: %s\n", t.in())
	}
	fmt.Fprintf(b, "    out:%s\n", t.out())
	if len(t.PassEnv) > 0 {
		fmt.Fprintf(b, "    pass_env: [%s]\n", strings.Join(t.PassEnv, ", "))
	}
	if !strings.Contains(t.Run, "\n") && len(t.Run) < 100 {
		fmt.Fprintf(b, "    run: %s\n", scalar(t.Run))
		return
	}
	b.WriteString("    run: |\n")
	for line := range strings.SplitSeq(strings.TrimRight(t.Run, "\n"), "\n") {
		b.WriteString(strings.TrimRight("      "+line, " ") + "\n")
	}
}

// in is the list of the task's sources. It is a mapping if two sources would have the same local name, or a source the
// name of an output.
func (t *Task) in() string {
	taken := map[string]bool{"out": true}
	for _, o := range t.Out {
		taken[o.Name] = true
	}
	for _, v := range t.Vars {
		taken[v] = true
	}
	var list, pairs []string
	plain := true
	for _, r := range t.In {
		source := r.Input
		if r.Task != "" {
			source = r.Task
		}
		long := scalar(source)
		switch {
		case r.Only != "":
			long = "{from: " + source + ", only: [" + r.Only + "]}"
		case r.At != "":
			long = "{from: " + scalar(source) + ", at: " + scalar(r.At) + "}"
		}
		if r.As != "" {
			plain = false
			local := r.As
			for i := 2; taken[local]; i++ {
				local = r.As + "_" + strconv.Itoa(i)
			}
			taken[local] = true
			pairs = append(pairs, local+": "+long)
			continue
		}
		local := source[strings.LastIndexByte(source, '.')+1:]
		if end := strings.IndexByte(local, '['); end > 0 {
			local = local[:end]
		}
		if taken[local] || !manifest.ValidInputName(local) {
			plain = false
			local = identifier(source)
			for i := 2; taken[local]; i++ {
				local = identifier(source) + "_" + strconv.Itoa(i)
			}
		}
		taken[local] = true
		list = append(list, long)
		pairs = append(pairs, local+": "+long)
	}
	if plain {
		return "[" + strings.Join(list, ", ") + "]"
	}
	return "{" + strings.Join(pairs, ", ") + "}"
}

func (t *Task) out() string {
	if len(t.Out) == 1 && t.Out[0].Name == "" {
		return " " + t.Out[0].text()
	}
	var b strings.Builder
	for i := range t.Out {
		fmt.Fprintf(&b, "\n      %s: %s", t.Out[i].Name, t.Out[i].text())
	}
	return b.String()
}

func (o *Out) text() string {
	p := o.Path
	if o.Dir {
		p += "/"
	}
	if o.Kind == "" && o.Metrics == nil && o.Plots == nil {
		return scalar(p)
	}
	keys := []string{"file: " + scalar(p)}
	if o.Dir {
		keys[0] = "dir: " + scalar(p)
	}
	if o.Kind != "" {
		keys = append(keys, "kind: "+o.Kind)
	}
	if o.Plot != "" {
		keys = append(keys, o.Plot)
	}
	if o.Metrics != nil {
		keys = append(keys, "metrics: ["+strings.Join(o.Metrics, ", ")+"]")
	}
	if o.Plots != nil {
		keys = append(keys, "plots: ["+strings.Join(o.Plots, ", ")+"]")
	}
	return "{" + strings.Join(keys, ", ") + "}"
}

// scalar writes a string in YAML: plain if that is certainly read as a string, else in quotes.
func scalar(s string) string {
	plain := s != "" && !strings.ContainsAny(s[:1], " -?:,[]{}#&*!|>'\"%@`~.0123456789=<+") && !strings.ContainsAny(s, "\n\t\\\"{}[]#,&*") &&
		!strings.Contains(s, ": ") && !strings.HasSuffix(s, ":") && strings.TrimSpace(s) == s &&
		!slices.Contains([]string{"true", "false", "null", "yes", "no", "on", "off", "y", "n"}, strings.ToLower(s)) && isPrintable(s)
	switch {
	case plain:
		return s
	case !strings.ContainsAny(s, "'\n") && isPrintable(s):
		return "'" + s + "'"
	}
	return strconv.Quote(s)
}

func isPrintable(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return !strconv.IsPrint(r) })
}

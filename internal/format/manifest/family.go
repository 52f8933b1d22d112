package manifest

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// A Family is a task of the file that depends on lists of items. Its tasks are known once these lists are known.
type Family struct {
	Base string
	Pos  Pos // place of the task's name
	Spec *Spec
	// sources whose lists it needs, in the order of use; a source that another family's items make is here only if
	// these are known
	Sources []ItemSource
	ReadBy  []string // tasks of the file that read it, by their Base
	Reads   []string // tasks of the file that the task or its matrix reads, by their Base
	Waits   []string // pending families that keep it from having tasks: it, or its matrix, reads them
	Pending bool     // its tasks are not in the Definition
	Count   int      // its tasks
	// Fault says why known lists make no tasks, for example because two items have the same name. The family is pending
	// then.
	Fault error
}

// An ItemSource is a dataset whose content is a list of items.
type ItemSource struct {
	Key   string // the text that names it in Lists: "samples", "split", "split[s1].parts"
	Input string // the input; "" if a task makes it
	Task  string // the task, with its label
	Entry string // for a Task: the entry of its output; "" for the whole output
	Kind  Kind   // File, Dir, or JSON for a value
	// path of a file, whose ending tells its format, or of a directory among the files of the task or project
	Path  string
	Glob  string // for an input that is a glob: its pattern
	Files string // for an input that is files: its pattern with names, beside Glob
	Sheet bool   // for an input that is a sheet: the list is the file at Path in its directory
	URL   string // for an input from a server
	Known bool   // the list was given to Expand
}

// Lists holds the known lists of items by the Key of their source.
type Lists map[string]*List

// Grows reports whether tasks depend on lists of items. All other definitions are complete after Parse.
func (d *Definition) Grows() bool { return len(d.Families) > 0 }

// Expand returns the definition with the tasks that follow from lists of items. A family has tasks if all its lists are
// known and it reads no pending family. The result depends on the file and the lists alone. Lists that nothing needs
// are ignored. A reference to an item that does not exist is an error, of type Errors as in Parse.
func (d *Definition) Expand(lists Lists) (*Definition, error) {
	if !d.Grows() {
		return d, nil
	}
	if lists == nil {
		lists = Lists{}
	}
	x, err := parse(d.File, section(d.text), usualSplitting(), lists)
	if x != nil {
		x.Room, x.Images = d.Room, d.Images // the file may name another room
	}
	return x, err
}

// Pending reports whether a family has unknown lists of items.
func (d *Definition) Pending() bool {
	return slices.ContainsFunc(d.Families, func(f Family) bool { return f.Pending })
}

// Encode returns the definition object of a file whose tasks depend on lists of items: the file as JSON, without comments.
func (d *Definition) Encode() ([]byte, error) {
	file := newDecoder(d.File, nil)
	n, fault := file.document(d.text)
	if err := file.result(fault); err != nil {
		return nil, err
	}
	n.quoteTexts()
	n.setRoom(d.Room)
	n.nameImages(d.Images)
	file.written = true
	return append(appendJSON(nil, file.value("", &n), true), '\n'), nil
}

// setRoom gives the tree of a file the room of the definition.
func (n *node) setRoom(r Room) {
	if r == NoRoom {
		return
	}
	if value := n.member("room"); value.kind == stringNode {
		value.text = r.String()
		return
	}
	n.list = append(n.list, node{kind: stringNode, text: "room"}, node{kind: stringNode, text: r.String()})
}

// DecodeDefinition reads a definition object. Its messages have no positions, because people do not know this form of
// the file.
func DecodeDefinition(data []byte) (*Definition, error) {
	d, err := Parse("", data)
	switch {
	case err != nil:
		return nil, fmt.Errorf("definition: %w", err)
	case !d.Grows():
		return nil, errors.New("definition: no task depends on a list of items")
	}
	return d, nil
}

// quoteTexts makes strings of scalars that are used as texts and are no numbers of JSON: an item 007, or the variable
// .5.
func (n *node) quoteTexts() {
	tasks := n.member("tasks")
	for i := 1; i < len(tasks.list); i += 2 {
		for _, key := range []string{"matrix", "env", "version"} {
			tasks.list[i].member(key).quoteText(key == "env")
		}
	}
}

// quoteText does the same for a node and all nodes in it. Booleans are texts in lists and in variables.
func (n *node) quoteText(bools bool) {
	if (n.kind == intNode || n.kind == floatNode || n.kind == boolNode && bools) && !json.Valid([]byte(n.text)) {
		n.kind = stringNode
	}
	for i := range n.list {
		n.list[i].quoteText(bools || n.kind == listNode)
	}
}

// member is the value of a key of a mapping; an empty node if there is none.
func (n *node) member(key string) *node {
	for i := 0; n.kind == mapNode && i+1 < len(n.list); i += 2 {
		if n.list[i].text == key {
			return &n.list[i+1]
		}
	}
	return &node{}
}

// fail notes a fault that lies in the lists of items, and is therefore none of the file's Errors.
func (b *base) fail(d expander, pos Pos, format string, args ...any) {
	if b.fault == nil {
		e := faultAt(d.report.file, pos, "", "task %s: %s", b.spec.Base, fmt.Sprintf(format, args...))
		b.fault = &e
	}
	b.pending = true
}

// An expander makes the tasks of families from lists of items. It resolves references to these tasks and to files of
// directories.
type expander struct{ *decoder }

// families makes the tasks of families, connects all waiting tasks, and leaves in the Definition only tasks whose lists
// are all known.
func (d expander) families() {
	d.listParams()
	for i := range d.bases {
		if b := &d.bases[i]; b.items != nil {
			d.evaluate(b)
		}
	}
	for _, w := range d.waiting {
		d.connect(w.base, w.refs)
	}
	if len(d.report.errs) > 0 {
		return
	}
	d.spread()
	readBy := make([][]string, len(d.bases))
	for i := range d.bases {
		b := &d.bases[i]
		for _, t := range d.targets[b.waits:b.waitsEnd] {
			if name := b.spec.Base; !slices.Contains(readBy[t.base], name) {
				readBy[t.base] = append(readBy[t.base], name)
			}
		}
	}
	for i := range d.bases {
		b := &d.bases[i]
		if b.items == nil && !b.pending && len(b.sources) == 0 {
			continue
		}
		f := Family{Base: b.spec.Base, Pos: b.spec.Pos, Spec: b.spec, Sources: b.sources, ReadBy: readBy[i], Pending: b.pending, Count: b.count, Fault: b.fault}
		if b.pending {
			f.Count = 0
		}
		for _, t := range d.targets[b.waits:b.waitsEnd] {
			to := &d.bases[t.base]
			if slices.Contains(f.Reads, to.spec.Base) {
				continue
			}
			f.Reads = append(f.Reads, to.spec.Base)
			if b.pending && to.pending {
				f.Waits = append(f.Waits, to.spec.Base)
			}
		}
		d.def.Families = append(d.def.Families, f)
	}
	d.compact()
}

// spread makes tasks pending that read pending families, directly or not.
func (d expander) spread() {
	readers := make([][]int32, len(d.bases))
	var stack []int32
	for i := range d.bases {
		b := &d.bases[i]
		for _, t := range d.targets[b.waits:b.waitsEnd] {
			readers[t.base] = append(readers[t.base], int32(i))
		}
		if b.pending {
			stack = append(stack, int32(i))
		}
	}
	for len(stack) > 0 {
		i := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		for _, r := range readers[i] {
			if !d.bases[r].pending {
				d.bases[r].pending = true
				stack = append(stack, r)
			}
		}
	}
}

// compact puts the tasks in the order of the file and leaves out tasks of pending families.
func (d expander) compact() {
	def := d.def
	place := make([]int32, len(def.Tasks))
	tasks := make([]Task, 0, len(def.Tasks))
	for i := range d.bases {
		b := &d.bases[i]
		if b.pending {
			continue
		}
		for k := range b.count {
			place[b.first+k] = int32(len(tasks))
			tasks = append(tasks, def.Tasks[b.first+k])
		}
	}
	fans := make([]bool, len(def.FanIns)) // fan-ins that were moved already
	for i := range tasks {
		if i > 0 && len(tasks[i].Inputs) > 0 && len(tasks[i-1].Inputs) > 0 && &tasks[i].Inputs[0] == &tasks[i-1].Inputs[0] {
			continue // items of one task may share their inputs
		}
		for k := range tasks[i].Inputs {
			switch s := &tasks[i].Inputs[k].Source; s.Kind {
			case FromTask:
				s.Index = place[s.Index]
			case FromFanIn:
				if items := def.FanIns[s.Index]; !fans[s.Index] {
					fans[s.Index] = true
					for j := range items {
						if items[j].Task >= 0 {
							items[j].Task = place[items[j].Task]
						}
					}
				}
			}
		}
	}
	def.Tasks = tasks
}

// listParams makes inputs of the parameters that are lists of items, before any list is read: so a definition has the same inputs
// whatever its lists are.
func (d expander) listParams() {
	for i := range d.bases {
		if d.bases[i].items == nil {
			continue
		}
		for k := range d.bases[i].items.factors {
			f := d.bases[i].items.factors[k].from
			if f == nil || f.ref.entry == "" || f.ref.selected {
				continue
			}
			if in, ok := d.names[f.ref.name]; ok && !in.task && in.index >= 0 && d.def.Inputs[in.index].Kind == ParamsInput {
				f.param = d.param(in.index, f.ref.entry, f.pos)
			}
		}
	}
}

// source notes that a family needs the list of a source, and returns it if it is known.
func (d expander) source(b *base, s ItemSource) (*List, bool) {
	l, known := d.lists[s.Key]
	s.Known = known
	if b.sourced == nil {
		b.sourced = map[string]bool{}
	}
	if !b.sourced[s.Key] {
		b.sourced[s.Key] = true
		b.sources = append(b.sources, s)
	}
	if !known {
		b.pending = true
	}
	return l, known
}

// inputSource returns an input as a source of items. If the reference is faulty, it reports the fault and returns
// false.
func (d expander) inputSource(b *base, pos Pos, in *Input) (ItemSource, bool) {
	s := ItemSource{Key: in.Name, Input: in.Name, Path: in.Path}
	switch in.Kind {
	case FileInput, URLInput:
		s.Kind, s.URL = File, in.URL
		return s, d.readable("task "+b.spec.Base, pos, in.Name, in.Path)
	case DirInput:
		s.Kind = Dir
	case SheetInput:
		s.Kind, s.Sheet = Dir, true
	case GlobInput:
		s.Kind, s.Path, s.Glob = Dir, GlobPrefix(in.Path), in.Path
		if s.Files = in.Pattern; s.Files == "" && !OneWildcard(in.Path) {
			d.report.add(pos, "give each a name: files: "+withNames(in.Path)+" in place of glob:", "task %s: the files of %s match several wildcards, so that their items have no names", b.spec.Base, in.Name)
			return s, false
		}
	case ParamInput:
		s.Kind, s.Path = JSON, ""
	case ParamsInput:
		d.report.add(pos, "name the list in it, as "+in.Name+".folds", "task %s: %s is a file of parameters, which has no items itself", b.spec.Base, in.Name)
		return s, false
	case ValueInput:
		s.Kind, s.Path = JSON, ""
		if _, scalar := ScalarText(in.Value); scalar {
			d.report.add(pos, "a source of items is a list, a mapping, a file of these, or a folder", "task %s: the value %s is not a list", b.spec.Base, in.Name)
			return s, false
		}
	}
	return s, true
}

// withNames suggests a pattern: the glob with a name for each wildcard.
func withNames(glob string) string {
	n := 0
	var b strings.Builder
	for i := 0; i < len(glob); i++ {
		if glob[i] == '*' && (i+1 == len(glob) || glob[i+1] != '*') && (i == 0 || glob[i-1] != '*') {
			n++
			fmt.Fprintf(&b, "{%c}", 'a'+(n-1)%26)
			continue
		}
		b.WriteByte(glob[i])
	}
	return b.String()
}

// ListFormats are the endings of files that hold lists of items.
var ListFormats = []string{".json", ".yaml", ".yml", ".csv", ".tsv", ".txt"}

func (d expander) readable(where string, pos Pos, name, path string) bool {
	for _, ending := range ListFormats {
		if strings.HasSuffix(strings.ToLower(path), ending) {
			return true
		}
	}
	d.report.add(pos, "a list of items is a file whose name ends in "+strings.Join(ListFormats, ", "),
		"%s: %s is the file %s, whose ending names no format of a list", where, name, truncate(path))
	return false
}

// taskSource returns an output of a task, whose declaration is to, as a source of items.
func (d expander) taskSource(b, to *base, pos Pos, name, entry string, t *Task) (ItemSource, bool) {
	s := ItemSource{Task: t.Name}
	out := &to.spec.Outputs[0]
	switch {
	case to.spec.Several && entry == "":
		d.report.add(pos, "write "+name+"."+to.spec.Outputs[0].Name, "task %s: %s has several outputs, and one of them is the source of items", b.spec.Base, to.spec.Base)
		return s, false
	case to.spec.Several:
		i := to.spec.output(entry)
		if i < 0 {
			d.report.add(pos, "the outputs are "+listed(to.spec.outputNames()), "task %s: the task %s has no output %q", b.spec.Base, to.spec.Base, truncate(entry))
			return s, false
		}
		out, s.Entry = &to.spec.Outputs[i], entry
	}
	s.Key, s.Kind, s.Path = s.Task+dotted(s.Entry), out.Kind, t.PathOf(out)
	if out.Kind == File {
		return s, d.readable("task "+b.spec.Base, pos, s.Key, out.Path)
	}
	return s, true
}

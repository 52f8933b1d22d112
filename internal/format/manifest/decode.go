package manifest

import (
	"cmp"
	"iter"
	"maps"
	"slices"

	"e3/internal/format/notation"
)

// A decoder builds a Definition. The reader of a format calls it in file order: field and section for the top-level
// keys, entry for the entries of the open section, finish at the end. The mappings of inputs and tasks are sections,
// so that a large file is never a whole tree in memory.
type decoder struct {
	report   *collector
	def      *Definition
	seen     map[string]Pos // top-level keys
	current  string         // the open section
	names    map[string]named
	bases    []base
	targets  []target  // targets of all bases
	waiting  []waiting // bases with references to later names
	overflow bool      // there were too many tasks
	matched  []matched

	lists   Lists                         // the known lists of items; nil in Parse
	grows   bool                          // a task depends on lists of items
	indices map[string]map[string][]int32 // tables of the items of families

	fanIns   map[string]int32 // index in Definition.FanIns by target and selection, so that tasks share fan-ins
	fanItems int              // number of members in all fan-ins

	shared *sharer

	results resultsDecoder
	limits  bool             // resources are limits for tasks that do not say whether they are
	params  map[string]int32 // values of parameters that tasks read: index in Definition.Inputs, by name
	written bool             // values are Written
	values  bool             // the file holds values alone: see ParseValue
}

// A named is the meaning of a name in the common namespace of inputs and tasks.
type named struct {
	task  bool
	index int32 // index in Definition.Inputs or decoder.bases; -1 if the entry is faulty
	pos   Pos
}

func newDecoder(file string, lists Lists) *decoder {
	return &decoder{
		report: &collector{file: file},
		def:    &Definition{File: file, Version: DefaultVersion},
		seen:   map[string]Pos{},
		names:  map[string]named{},
		fanIns: map[string]int32{},
		shared: newSharer(),
		lists:  lists,
	}
}

// The known keys of a package file, which are also the suggestions for misspelt ones.
var (
	topKeys      = []string{"e3", "name", "version", "description", "results", "room", "image", "limits", "environments", "inputs", "tasks"}
	inputKeys    = []string{"file", "dir", "glob", "files", "value", "params", "url", "sha256", "at", "paths", "except", "executable", "export", "description"}
	taskKeys     = slices.Concat([]string{"in", "out", "run", "matrix", "env", "pass_env", "key_env", "secrets", "tools", "environment", "room", "network", "devices", "image", "version"}, slices.Sorted(maps.Keys(policyKeys)))
	outputKeys   = slices.Concat([]string{"file", "dir", "kind", "executable"}, plotKeys, slices.Sorted(maps.Keys(listKeys)))
	wireKeys     = []string{"from", "only", "at", "column", "suffix", "need", "manifest"}
	retryKeys    = []string{"max", "backoff", "on", "lost"}
	retryWords   = []string{"timeout", "oom", "exit", "signal", "output", "start", "lost"}
	growthKeys   = []string{"memory", "max"}
	inputSources = inputKeys[:7]
)

// streams reports whether a mapping under the top-level key is read as a section.
func (d *decoder) streams(key *node) bool { return key.text == "inputs" || key.text == "tasks" }

// topKey enters a top-level key, with its value if that is read whole, and reports whether its value should be read.
func (d *decoder) topKey(key, value *node) bool {
	if key.kind == badNode {
		return false
	}
	if !slices.Contains(topKeys, key.text) {
		hint := ""
		if value != nil {
			hint = marginHint(value)
		}
		d.report.add(key.pos, cmp.Or(hint, d.suggest(key.text, topKeys)), "unknown key %q", truncate(key.text))
		return false
	}
	if first, again := d.seen[key.text]; again {
		d.duplicate(key, "key", first)
		return false
	}
	d.seen[key.text] = key.pos
	return true
}

func (d *decoder) section(key *node) {
	d.current = ""
	if d.topKey(key, nil) {
		d.current = key.text
	}
}

func (d *decoder) entry(key, value *node) {
	switch d.current {
	case "inputs":
		d.input(key, value)
	case "tasks":
		d.task(key, value)
	}
}

func (d *decoder) field(key, value *node) {
	if !d.topKey(key, value) {
		return
	}
	def := d.def
	switch key.text {
	case "e3":
		switch {
		case value.kind != intNode:
			d.wrongType("e3", value, "the number of the file format, 1")
		case value.int() != 1:
			d.report.add(value.pos, "this e3 knows format 1; a later one may need a newer e3", "unknown file format %d", value.int())
		}
	case "name":
		def.Name = d.text("name", value)
		if value.kind == stringNode && !notation.ValidName(def.Name) {
			d.report.add(value.pos, nameHint(nameRule, def.Name), "%q is not a package name", truncate(def.Name))
		}
	case "version":
		if v, ok := d.version("version", value); ok {
			def.Version = v
			if !notation.ValidVersion(v) {
				d.report.add(value.pos, "letters, digits, '_', '-', '.' and '+', at most 64", "%q is not a version", truncate(v))
			}
		}
	case "description":
		def.Description = d.text("description", value)
	case "results":
		d.results.decoder = d
		d.results.read(value)
	case "room":
		def.Room = d.room("room", value)
	case "image":
		def.Image = readImage(d, "image", value)
	case "limits":
		d.limits, _ = d.boolean("limits", value)
	case "environments":
		environmentReader{d}.read(value)
	case "inputs", "tasks":
		// A mapping with a tag or under an alias is one value; every other mapping is a section.
		if value.kind != mapNode {
			d.wrongType(key.text, value, "a mapping")
			return
		}
		d.current = key.text
		for i := 0; i < len(value.list); i += 2 {
			d.entry(&value.list[i], &value.list[i+1])
		}
	}
}

func (d *decoder) notMapping(n *node) {
	d.wrongType("the file", n, "a mapping that begins with \"e3: 1\"")
	d.seen["e3"], d.seen["name"] = n.pos, n.pos // they were there, so do not report them as missing
}

const nameRule = "a letter, digit or '_', then letters, digits, '_' and '-', at most 64"
const inputNameRule = "a lower-case letter or '_', then letters, digits and '_'"

// finish makes the checks that need the whole file and resolves references.
func (d *decoder) finish() {
	top := Pos{1, 1}
	if _, ok := d.seen["e3"]; !ok {
		d.report.add(top, "add \"e3: 1\"", "the key e3, the number of the file format, is missing")
	}
	if _, ok := d.seen["name"]; !ok {
		d.report.add(top, "add name:, as name: forecast", "the package has no name")
	}
	d.limitResources()
	d.shared = nil
	checkImages(d)
	environmentReader{d}.check()
	d.wire()
	d.results.decoder = d
	d.results.check()
	for _, m := range d.matched {
		if !d.results.leavesOut(m.path) {
			d.report.note(m.fault)
		}
	}
}

// declare enters a name of the common namespace of inputs and tasks.
func (d *decoder) declare(key *node, n named) {
	n.pos = key.pos
	if first, again := d.names[key.text]; again {
		what := "input"
		if first.task {
			what = "task"
		}
		if first.task == n.task {
			d.duplicate(key, what, first.pos)
		} else {
			d.report.add(key.pos, "inputs and tasks share one namespace",
				"%q is already the name of the %s at line %d", key.text, what, first.pos.Line)
		}
		return
	}
	d.names[key.text] = n
}

func (d *decoder) input(key, value *node) {
	if key.kind == badNode {
		return
	}
	before := len(d.report.errs)
	where := "input " + truncate(key.text)
	if !ValidInputName(key.text) {
		d.report.add(key.pos, nameHint(inputNameRule, key.text), "%q is not an input name", truncate(key.text))
	}
	in := Input{Name: key.text, Pos: key.pos}
	sources := 0
	var executable, except, paths *node
	var url urlKeys
	if value.kind != mapNode {
		d.wrongType(where, value, "a mapping such as {file: data.csv}")
	} else {
		d.fields(where, value, inputKeys, func(key, v *node) {
			if slices.Contains(inputSources, key.text) {
				if sources++; sources > 1 {
					d.report.add(key.pos, "each is an input of its own", "%s: more than one of file, dir, glob, files, value, params and url", where)
					return
				}
			}
			switch key.text {
			case "file":
				in.Kind, in.Path = FileInput, d.projectPath(where+": file", v, FileInput)
			case "dir":
				in.Kind, in.Path = DirInput, d.projectPath(where+": dir", v, DirInput)
			case "glob":
				in.Kind, in.Path = GlobInput, d.projectPath(where+": glob", v, GlobInput)
			case "files":
				in.Kind, in.Path, in.Pattern = GlobInput, "", ""
				if p, text := (matrixReader{d}).pattern(where+": files", v); p != nil {
					in.Path, in.Pattern = p.Glob, text
				}
			case "value":
				in.Kind, in.Value = ValueInput, d.value(where+": value", v)
				if v.kind == nullNode && v.text == "" {
					d.def.doubts = append(d.def.doubts, Warning(faultAt(d.report.file, key.pos, "", `%s: nothing is written after value, so it is null; write value: "" for an empty text, or value: null`, where)))
				}
			case "params":
				in.Kind, in.Path = ParamsInput, d.paramFiles(where+": params", v)
			case "url":
				in.Kind, url.url = URLInput, v
			case "sha256":
				url.sum = v
			case "at":
				url.at = v
			case "paths":
				paths, in.Columns = v, d.columns(where+": paths", v)
			case "except":
				except, in.LeftOut = v, d.except(where+": except", v)
			case "executable":
				executable = v
				if b, ok := d.boolean(where+": executable", v); ok {
					in.Executable = &b
				}
			case "export":
				if b, ok := d.boolean(where+": export", v); ok {
					in.NoExport = !b
				}
			case "description":
				in.Description = d.text(where+": description", v)
			}
		})
		if sources == 0 && len(d.report.errs) == before { // a mistyped one is reported already
			d.report.add(value.pos, "", "%s: one of file, dir, glob, files, value, params and url is needed", where)
		}
	}
	d.readURL(where, &in, &url)
	if executable != nil && in.Kind != FileInput && in.Kind != URLInput {
		d.report.add(executable.pos, "", "%s: only a file can be executable", where)
	}
	if paths != nil && len(d.report.errs) == before {
		switch {
		case in.Kind != FileInput:
			d.report.add(paths.pos, "", "%s: paths: only a file has columns with paths", where)
		case executable != nil:
			d.report.add(executable.pos, "", "%s: a list is no program", where)
		case (expander{d}).readable(where, in.Pos, in.Name, in.Path):
			in.Kind = SheetInput
		}
	}
	if except != nil && len(d.report.errs) == before {
		d.checkExcept(where+": except", except, &in)
	}
	index := int32(-1)
	if len(d.report.errs) == before {
		index = int32(len(d.def.Inputs))
		d.def.Inputs = append(d.def.Inputs, in)
	}
	d.declare(key, named{index: index})
}

// value turns a node into one of the dynamic types of Input.Value.
func (d *decoder) value(where string, n *node) any {
	var number any
	switch n.kind {
	case boolNode:
		number = n.bool()
	case intNode:
		number = n.int()
	case floatNode:
		number = n.float()
	case stringNode:
		return n.text
	case listNode:
		list := make([]any, len(n.list))
		for i := range n.list {
			list[i] = d.value(where, &n.list[i])
		}
		return list
	case mapNode:
		object := make(Object, 0, len(n.list)/2)
		d.members(where, n, "key", func(key, v *node) {
			object = append(object, Member{key.text, d.value(where, v)})
		})
		return object
	}
	if d.written && number != nil {
		return Written{number, n.text}
	}
	return number
}

// missing reports that a mapping lacks a key, unless a fault in it is reported already, which may be the key misspelt.
func (d *decoder) missing(n *node, hint, format string, args ...any) {
	for i := 0; i < len(n.list); i += 2 {
		key := n.list[i].pos
		for _, e := range d.report.errs {
			if e.Line == int(key.Line) && e.Column == int(key.Column) {
				return
			}
		}
	}
	d.report.add(n.pos, hint, format, args...)
}

// fields goes through a mapping whose keys are known beforehand; an unknown or repeated key is reported, not passed
// on.
func (d *decoder) fields(where string, n *node, known []string, each func(key, value *node)) {
	d.members(where, n, "key", func(key, value *node) {
		if slices.Contains(known, key.text) {
			each(key, value)
			return
		}
		d.report.add(key.pos, d.suggest(key.text, known), "%s: unknown key %q", where, truncate(key.text))
	})
}

// members goes through a mapping whose names the user chooses; a repeated name is reported, not passed on.
func (d *decoder) members(where string, n *node, what string, each func(key, value *node)) {
	const few = 16 // up to this number comparing all names is cheaper than a map
	var seen map[string]Pos
	if len(n.list) > 2*few {
		seen = make(map[string]Pos, len(n.list)/2)
	}
next:
	for i := 0; i < len(n.list); i += 2 {
		key := &n.list[i]
		if key.kind == badNode {
			continue
		}
		if seen != nil {
			if first, again := seen[key.text]; again {
				d.duplicate(key, where+": "+what, first)
				continue
			}
			seen[key.text] = key.pos
		} else {
			for j := 0; j < i; j += 2 {
				if n.list[j].kind != badNode && n.list[j].text == key.text {
					d.duplicate(key, where+": "+what, n.list[j].pos)
					continue next
				}
			}
		}
		each(key, &n.list[i+1])
	}
}

func (d *decoder) duplicate(key *node, what string, first Pos) {
	d.report.add(key.pos, "", "%s %q is here for the second time, first at line %d", what, truncate(key.text), first.Line)
}

// wrongType reports a value of the wrong type, unless reading it failed already.
func (d *decoder) wrongType(where string, n *node, want string) {
	if n.kind == badNode {
		return
	}
	if d.report.full() {
		return
	}
	d.report.add(n.pos, typeHint(n, want), "%s: want %s, not %s", where, want, n.kind)
}

func (d *decoder) text(where string, n *node) string {
	if n.kind != stringNode {
		d.wrongType(where, n, "a string")
		return ""
	}
	return d.intern(n.text)
}

// room reads the name of a room.
func (d *decoder) room(where string, n *node) Room {
	text := d.text(where, n)
	room, ok := ParseRoom(text)
	if !ok && n.kind == stringNode {
		d.report.add(n.pos, didYouMean(text, slices.Values([]string{"open", "closed"})), "%s: %q is neither open nor closed", where, truncate(text))
	}
	return room
}

func (d *decoder) boolean(where string, n *node) (value, ok bool) {
	if n.kind != boolNode {
		d.wrongType(where, n, "true or false")
		return false, false
	}
	return n.bool(), true
}

// version reads a string or a number, as written in the file.
func (d *decoder) version(where string, n *node) (string, bool) {
	if n.kind == boolNode || !n.isScalar() {
		d.wrongType(where, n, "a string")
		return "", false
	}
	return d.intern(n.text), true
}

func (d *decoder) suggest(word string, known []string) string {
	if d.report.full() {
		return ""
	}
	if hint := cmp.Or(elsewhere(word, known), gluedHint(word, known)); hint != "" {
		return hint
	}
	return didYouMean(word, slices.Values(known))
}

// declared yields the names of inputs and tasks in file order, without faulty ones.
func (d *decoder) declared() iter.Seq[string] {
	return func(yield func(string) bool) {
		for i := range d.def.Inputs {
			if !yield(d.def.Inputs[i].Name) {
				return
			}
		}
		for i := range d.bases {
			if !yield(d.bases[i].spec.Base) {
				return
			}
		}
	}
}

func (d *decoder) intern(s string) string { return d.shared.text(s) }

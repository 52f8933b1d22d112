package manifest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"e3/internal/format/notation"
	"e3/internal/format/record"
)

// A base is a task as the file declares it, before its matrix is expanded.
type base struct {
	spec   *Spec
	limits *bool       // whether its resources are limits; nil: the file's setting for all tasks counts
	dims   []dimension // dimensions of a literal matrix
	items  *itemMatrix // any other matrix
	derived
	// first and count are the range of its items in Definition.Tasks; a task without a matrix has one.
	first, count int
	// waits and waitsEnd are the range of its dependencies in decoder.targets.
	waits, waitsEnd int32
}

// derived is the part of a base that follows from lists of items.
type derived struct {
	vars    []string          // names of an item's values: see base.variables
	naming  int               // number of these that name an item
	meaning map[string]string // other names of the task, for messages
	sources []ItemSource      // sources that it needs
	sourced map[string]bool   // keys of the sources
	pending bool              // the task has no items yet
	fault   error             // fault of the lists

	evaluated, evaluating bool
}

// A wire is one source under "in" with its local name.
type wire struct {
	name   string
	source string
	pos    Pos
	bare   bool // the entries of a fan-in have no suffix (suffix: false)
	gather gathering
	part   part
	column string // of a sheet, in place of .column in the source
}

// A target is a base that a task waits for.
type target struct {
	base int32
	pos  Pos
}

func (d *decoder) task(key, value *node) {
	if key.kind == badNode {
		return
	}
	before := len(d.report.errs)
	where := "task " + truncate(key.text)
	if !notation.ValidName(key.text) {
		d.report.add(key.pos, nameHint(nameRule, key.text), "%q is not a task name", truncate(key.text))
	}
	b := base{spec: &Spec{Base: key.text, Pos: key.pos}}
	var refs []wire
	var env Environment
	policy := policyReader{decoder: d}
	var toolsPos Pos
	var environment *node
	var run, out bool
	if value.kind != mapNode && value.kind != nullNode && slices.Contains(taskKeys, key.text) {
		d.report.add(key.pos, "indent it deeper than the name of its task", "%q is at the place of a task's name, and a key of tasks", key.text)
	} else if value.kind != mapNode {
		d.wrongType(where, value, "a mapping with at least out and run")
	} else {
		d.fields(where, value, taskKeys, func(key, v *node) {
			switch key.text {
			case "in":
				refs = d.inputs(where, v)
			case "out":
				out = true
				policy.outputs(where, v, b.spec)
			case "run":
				run = true
				b.spec.RunPos = v.pos
				b.spec.Command = d.command(where, v)
			case "matrix":
				if isLiteral(v) {
					b.dims = matrixReader{d}.matrix(where, v)
				} else {
					b.items = matrixReader{d}.itemMatrix(where, v)
				}
			case "env":
				env.Set = d.env(where, v)
			case "pass_env":
				env.Pass = d.envNames(where+": pass_env", v)
			case "key_env":
				env.Keyed = d.envNames(where+": key_env", v, ownEnv...)
			case "tools":
				env.Tools, toolsPos = d.tools(where+": tools", v), v.pos
			case "environment":
				environment = v
			case "secrets":
				env.Secrets = d.envNames(where+": secrets", v)
			case "version":
				b.spec.Version, _ = d.version(where+": version", v)
			case "room":
				b.spec.Room = d.room(where+": room", v)
			case "network":
				b.spec.Network, _ = d.boolean(where+": network", v)
			case "devices":
				b.spec.Devices = devices(d, where+": devices", v)
			case "image":
				b.spec.Image = readImage(d, where+": image", v)
				d.def.images = append(d.def.images, b.spec.Image)
			default:
				policyKeys[key.text](&policy, where+": "+key.text, v)
			}
		})
		if !out {
			d.report.add(key.pos, "add out: with the path that the command writes", "%s: no output is declared", where)
		}
		if !run {
			d.report.add(key.pos, "add run: with a command", "%s: there is no command", where)
		}
		d.distinctNames(where, &b, refs, &env)
		refs = environmentReader{d}.use(where, environment, b.spec, refs)
		refs = toolFiles(d, b.spec, &env, toolsPos, refs)
		if len(d.report.errs) == before {
			policy.consistent(where)
			policy.checkBatch(where, &b)
		}
	}
	b.spec.Env, b.spec.Policy = d.shared.environment(env), d.shared.policy(policy.Policy)
	b.limits = policy.limits
	if d.declare(key, named{task: true, index: -1}); len(d.report.errs) == before && !d.report.full() {
		d.place(b, refs)
	}
}

// inputs reads "in". The sources are resolved once all names are known.
func (d *decoder) inputs(where string, n *node) []wire {
	where += ": in"
	switch n.kind {
	case listNode:
		wires := make([]wire, 0, len(n.list))
		seen := make(map[string]Pos, len(n.list))
		for i := range n.list {
			item := &n.list[i]
			if item.kind != stringNode {
				d.wrongType(where, item, "the name of an input or task")
				continue
			}
			name := lastPart(item.text)
			if first, again := seen[name]; again {
				d.report.add(item.pos, "use a mapping, in: {name: source}, to tell them apart",
					"%s: %q is here for the second time, first at line %d", where, truncate(name), first.Line)
				continue
			}
			seen[name] = item.pos
			if !ValidInputName(name) {
				d.report.add(item.pos, sourceHint(item.text), "%s: %q cannot be the name of a variable", where, truncate(name))
				continue
			}
			wires = append(wires, wire{name: d.intern(name), source: item.text, pos: item.pos})
		}
		return wires
	case mapNode:
		wires := make([]wire, 0, len(n.list)/2)
		d.members(where, n, "name", func(key, v *node) {
			switch {
			case !ValidInputName(key.text):
				d.report.add(key.pos, inputNameRule, "%s: %q is not an input name", where, truncate(key.text))
			case v.kind == mapNode:
				if w, ok := (matrixReader{d}).longWire(where+": "+key.text, v); ok {
					w.name = d.intern(key.text)
					wires = append(wires, w)
					wires = append(wires, w.roster(d)...)
				}
			case v.kind != stringNode:
				d.wrongType(where+": "+key.text, v, "the name of an input or task")
			default:
				wires = append(wires, wire{name: d.intern(key.text), source: v.text, pos: v.pos})
			}
		})
		return wires
	}
	if n.kind == stringNode {
		d.report.add(n.pos, fmt.Sprintf("write in: [%s]", truncate(n.text)), "%s: want a list of sources or a mapping of names to sources, not a string", where)
		return nil
	}
	d.wrongType(where, n, "a list of sources or a mapping of names to sources")
	return nil
}

// longWire reads a source with further settings.
func (d matrixReader) longWire(where string, n *node) (w wire, ok bool) {
	w.pos = n.pos
	var needed, listed *node
	d.fields(where, n, wireKeys, func(key, v *node) {
		switch key.text {
		case "from":
			if w.source, w.pos = d.text(where+": from", v), v.pos; w.source != "" {
				ok = true
			}
		case "only":
			w.part.pos = key.pos
			w.part.only = d.readOnly(where+": only", v)
		case "at":
			w.part.pos = key.pos
			w.part.at, w.part.kind = d.outputPath(where+": at", v)
		case "column":
			w.column = d.text(where+": column", v)
		case "suffix":
			if yes, valid := d.boolean(where+": suffix", v); valid {
				w.bare = !yes
			}
		case "need":
			w.gather.need = d.need(where+": need", v)
			needed = v
		case "manifest":
			if yes, valid := d.boolean(where+": manifest", v); valid {
				w.gather.manifest, listed = yes, v
			}
		}
	})
	if !ok {
		d.missing(n, "write {from: source}", "%s: the source is missing", where)
	}
	if needed != nil && listed != nil && !w.gather.manifest {
		d.report.add(listed.pos, "remove it", "%s: a fan-in with need has a manifest, which lists what is missing", where)
	}
	w.gather.manifest = w.gather.manifest || needed != nil
	return w, ok
}

// lastPart returns the local name of a source in the list form: the entry, or without an entry the task or input.
func lastPart(source string) string {
	s := source
	if i := strings.IndexByte(s, '['); i >= 0 {
		close := strings.LastIndexByte(s, ']')
		if close < i || close+1 == len(s) {
			return s[:i]
		}
		s = s[close+1:]
	}
	return s[strings.LastIndexByte(s, '.')+1:]
}

// outputs reads "out": a path, the long form of a single path, or several under names.
func (d *policyReader) outputs(where string, n *node, spec *Spec) {
	where += ": out"
	if n.kind != mapNode {
		spec.Outputs = []Output{d.output(where, n, "out", false)}
		return
	}
	for i := 0; i < len(n.list); i += 2 {
		if key := &n.list[i]; key.kind == stringNode && (key.text == "file" || key.text == "dir") {
			spec.Outputs = []Output{d.output(where, n, "out", false)}
			return
		}
	}
	if len(n.list) == 0 {
		d.report.add(n.pos, "a task without an output has no result to keep", "%s: no output is declared", where)
	}
	spec.Several = true
	d.members(where, n, "output", func(key, v *node) {
		if !ValidInputName(key.text) {
			d.report.add(key.pos, cmp.Or(gluedHint(key.text, outputKeys), nameHint(inputNameRule, key.text)), "%s: %q is not an output name", where, truncate(key.text))
			return
		}
		spec.Outputs = append(spec.Outputs, d.output(where+": "+key.text, v, d.intern(key.text), true))
	})
}

// output reads one output; several says that the task has more under names.
func (d *policyReader) output(where string, n *node, name string, several bool) Output {
	out := Output{Name: name}
	switch n.kind {
	case stringNode:
		out.Path, out.Kind = d.outputPath(where, n)
		out.Pos = n.pos
	case mapNode:
		var paths int
		var executable *node
		seen := views{policyReader: d, where: where}
		d.fields(where, n, outputKeys, func(key, v *node) {
			if seen.field(key, v) {
				return
			}
			switch key.text {
			case "file", "dir":
				if paths++; paths > 1 {
					d.report.add(key.pos, "", "%s: both file and dir are given", where)
					return
				}
				var kind Kind
				out.Path, kind = d.outputPath(where, v)
				out.Pos = v.pos
				if key.text == "file" && kind == Dir {
					d.report.add(v.pos, "use dir:", "%s: a path that ends in / is a directory", where)
				}
				if key.text == "dir" {
					out.Kind = Dir
				}
			case "executable":
				executable = v
				out.Executable, _ = d.boolean(where+": executable", v)
			}
		})
		if paths == 0 {
			d.report.add(n.pos, "", "%s: one of file and dir is needed", where)
		}
		if executable != nil && out.Kind == Dir {
			d.report.add(executable.pos, "", "%s: only a file can be executable", where)
		}
		if !several {
			name = ""
		}
		seen.done(&out, name)
	default:
		d.wrongType(where, n, "a path or a mapping")
	}
	_, _, _, out.ByItem = cutBraces(out.Path)
	return out
}

func (d *decoder) command(where string, n *node) Command {
	where += ": run"
	switch n.kind {
	case stringNode:
		if strings.TrimSpace(n.text) == "" {
			d.report.add(n.pos, "", "%s: the command is empty", where)
		}
		return Command{Shell: n.text}
	case listNode:
		argv := make([]string, len(n.list))
		for i := range n.list {
			argv[i] = d.text(where, &n.list[i])
		}
		if len(n.list) == 0 || argv[0] == "" && n.list[0].kind == stringNode {
			d.report.add(n.pos, "", "%s: the command is empty", where)
		}
		return Command{Argv: d.shared.strings(argv)}
	}
	d.wrongType(where, n, "a list of arguments or a shell script")
	return Command{}
}

const envRule = "letters, digits and '_', not a digit first; E3_ is e3's own"

func (d *decoder) env(where string, n *node) []record.EnvVar {
	where += ": env"
	if n.kind != mapNode {
		d.wrongType(where, n, "a mapping of variables to strings")
		return nil
	}
	env := make([]record.EnvVar, 0, len(n.list)/2)
	d.members(where, n, "variable", func(key, v *node) {
		if !ValidEnvName(key.text) {
			d.report.add(key.pos, envRule, "%s: %q cannot be set", where, truncate(key.text))
			return
		}
		if !v.isScalar() {
			d.wrongType(where+": "+key.text, v, "a string")
			return
		}
		env = append(env, record.EnvVar{Name: d.intern(key.text), Value: d.intern(v.text)})
	})
	return env
}

// envNames reads names of variables. It refuses variables that e3 itself sets.
func (d *decoder) envNames(where string, n *node, own ...string) []string {
	return distinct(d, where, n, "a list of variables", "the name of a variable", func(item *node) bool {
		switch {
		case !ValidEnvName(item.text):
			d.report.add(item.pos, envRule, "%s: %q is not the name of a variable that can be passed", where, truncate(item.text))
		case slices.Contains(own, item.text):
			d.report.add(item.pos, "give it a value with env", "%s: e3 sets %q itself, so its value would never reach the task", where, item.text)
		default:
			return true
		}
		return false
	})
}

// distinct reads a list of distinct names; list and name say what is wanted. valid reports the fault of a name, and then
// returns false.
func distinct(d *decoder, where string, n *node, list, name string, valid func(*node) bool) []string {
	if n.kind != listNode {
		d.wrongType(where, n, list)
		return nil
	}
	names := make([]string, 0, len(n.list))
	seen := make(map[string]bool, len(n.list))
	for i := range n.list {
		item := &n.list[i]
		switch {
		case item.kind != stringNode:
			d.wrongType(where, item, name)
		case !valid(item):
		case seen[item.text]:
			d.report.add(item.pos, "", "%s: %q is here for the second time", where, truncate(item.text))
		default:
			seen[item.text] = true
			names = append(names, d.intern(item.text))
		}
	}
	return names
}

// ownEnv are the variables that e3 itself sets for every command.
var ownEnv = []string{"PATH", "HOME", "TMPDIR", "GIT_CEILING_DIRECTORIES", "LANG", "TZ"}

// The possible meanings of a name in the check of distinctNames.
const (
	aSecret       = "a secret"
	keyedVariable = "a variable of key_env"
	aDimension    = "a dimension of the matrix"
)

// distinctNames checks that every variable of the task's environment has one meaning, and that bash does not overwrite
// a variable of a script.
func (d *decoder) distinctNames(where string, b *base, refs []wire, env *Environment) {
	total := len(refs) + len(b.spec.Outputs) + len(b.dims) + len(env.Set) + len(env.Pass) + len(env.Secrets) + len(env.Keyed)
	meaning := make(map[string]string, total)
	script := b.spec.Command.Argv == nil
	claim := func(name, what string, pos Pos) {
		if script && BashSets(name) {
			d.report.add(pos, "give it another name, or make run: a list of arguments",
				"%s: bash sets %q itself, so the script would not find the value of %s", where, name, what)
		}
		if first, taken := meaning[name]; taken {
			hint := "give one of them another name"
			switch {
			case what == keyedVariable && first == aSecret:
				hint = "leave it out of key_env: the value of a secret is kept nowhere"
			case what == keyedVariable:
				hint = "leave it out of one of them"
			}
			d.report.add(pos, hint, "%s: %q names both %s and %s", where, name, first, what)
			return
		}
		meaning[name] = what
	}
	for i := range refs {
		claim(refs[i].name, refs[i].what(), refs[i].pos)
	}
	for i := range b.spec.Outputs {
		claim(b.spec.Outputs[i].Name, "an output", b.spec.Pos)
	}
	for i := range b.dims {
		claim(b.dims[i].name, aDimension, b.dims[i].pos)
	}
	if b.items != nil {
		for _, name := range b.staticNames() {
			claim(name, aDimension, b.items.pos)
		}
		defer func() { b.meaning = meaning }()
	}
	for i := range env.Set {
		claim(env.Set[i].Name, "a variable of env", b.spec.Pos)
	}
	for _, name := range env.Pass {
		claim(name, "a variable of pass_env", b.spec.Pos)
	}
	for _, name := range env.Secrets {
		claim(name, aSecret, b.spec.Pos)
	}
	for _, name := range env.Keyed {
		claim(name, keyedVariable, b.spec.Pos)
	}
}

package manifest

import (
	"maps"
	"slices"
	"strings"

	"e3/internal/format/notation"
	"e3/internal/format/record"
)

// A Prepared is an environment of programs that each machine makes once, from files of the project. The files are an
// input of the package, of the kind EnvironmentInput.
type Prepared struct {
	Command Command
	Path    []string // clean folders in it, which come first on the PATH
	Env     []record.EnvVar
	Tools   []string // programs on the PATH by which it is made
}

var environmentKeys = []string{"from", "run", "path", "env", "tools", "description"}

// FilesOf are the paths and patterns that the Path of an environment holds, or the paths in that of files of parameters.
func FilesOf(path string) []string { return strings.Split(path, "\n") }

// Sources are the files and patterns of an environment, or the files of parameters, each as an input; of any other
// input, it is itself.
func (in *Input) Sources() []Input {
	if in.Kind != EnvironmentInput && in.Kind != ParamsInput && in.Kind != ParamInput {
		return []Input{*in}
	}
	var list []Input
	for _, source := range FilesOf(in.Path) {
		one := *in
		one.Path = source
		switch {
		case in.Kind != EnvironmentInput:
		case strings.ContainsAny(source, "*?"):
			one.Kind = GlobInput
		default:
			one.Kind = FileInput
		}
		list = append(list, one)
	}
	return list
}

// EnvironmentOf returns the environment that a task names; nil if it names none.
func (d *Definition) EnvironmentOf(s *Spec) *Prepared { return d.environments[s.Environment] }

// environmentReader reads the environments of a package.
type environmentReader struct{ *decoder }

func (d environmentReader) read(n *node) {
	if n.kind != mapNode {
		d.wrongType("environments", n, "a mapping of names to environments")
		return
	}
	d.def.environments = map[string]*Prepared{}
	d.members("environments", n, "environment", d.one)
}

func (d environmentReader) one(key, value *node) {
	where := "environment " + truncate(key.text)
	if !notation.ValidName(key.text) {
		d.report.add(key.pos, nameRule, "%q is not the name of an environment", truncate(key.text))
	}
	before := len(d.report.errs)
	p := &Prepared{}
	var from []string
	if value.kind != mapNode {
		d.wrongType(where, value, "a mapping with from and run")
	} else {
		seen := map[string]bool{}
		d.fields(where, value, environmentKeys, func(key, v *node) {
			seen[key.text] = true
			switch key.text {
			case "from":
				from = d.paths(where+": from", v, d.source)
			case "run":
				p.Command = d.command(where, v)
			case "path":
				p.Path = d.paths(where+": path", v, d.folder)
			case "env":
				p.Env = d.env(where, v)
				d.checkEnv(where, v)
			case "tools":
				p.Tools = d.tools(where+": tools", v)
				slash := func(name string) bool { return strings.Contains(name, "/") }
				if i := slices.IndexFunc(p.Tools, slash); i >= 0 {
					d.report.add(v.pos, "name it under from", "%s: tools: %q is a file of the project", where, truncate(p.Tools[i]))
				}
			case "description":
				d.text(where+": description", v)
			}
		})
		if !seen["from"] {
			d.report.add(key.pos, "add from: with the files that define it, such as uv.lock",
				"%s: it is made from no files", where)
		}
		if !seen["run"] {
			d.report.add(key.pos, "add run: with the command that makes it", "%s: there is no command", where)
		}
	}
	name := record.EnvironmentInput(key.text)
	if len(d.report.errs) > before {
		d.names[name] = named{index: -1, pos: key.pos}
		return
	}
	d.names[name] = named{index: int32(len(d.def.Inputs)), pos: key.pos}
	in := Input{Name: name, Kind: EnvironmentInput, Path: strings.Join(from, "\n"), Pos: key.pos}
	d.def.Inputs = append(d.def.Inputs, in)
	d.def.environments[key.text] = p
}

// paths reads a path, or a list of several. clean returns the form of one, or its fault.
func (d environmentReader) paths(where string, n *node, clean func(string) (path, fault, hint string)) []string {
	items := []node{*n}
	if n.kind == listNode {
		items = n.list
	}
	var list []string
	for i := range items {
		item := &items[i]
		if item.kind != stringNode {
			d.wrongType(where, item, "a path")
			continue
		}
		path, fault, hint := clean(item.text)
		switch {
		case fault == "" && strings.ContainsFunc(path, func(r rune) bool { return r < ' ' }):
			fault = "the path holds a control character"
		case fault == "" && slices.Contains(list, path):
			fault = "it is here for the second time"
		}
		if fault != "" {
			d.report.add(item.pos, hint, "%s %q: %s", where, truncate(item.text), fault)
			continue
		}
		list = append(list, d.intern(path))
	}
	if len(items) == 0 {
		d.report.add(n.pos, "name at least one path", "%s: the list is empty", where)
	}
	return list
}

// source is the path or pattern of files from which an environment is made. A folder stands for all files in it.
func (environmentReader) source(text string) (path, fault, hint string) {
	if path, fault, hint = cleanPath(text); fault != "" {
		return path, fault, hint
	}
	if strings.HasSuffix(text, "/") && path != "." {
		path += "/**"
	}
	switch {
	case path == ".":
		fault, hint = "the path is the folder of the package file itself", "name the files that define the environment"
	case strings.ContainsAny(path, "*?"):
		if err := CheckGlob(path); err != nil {
			fault = err.Error()
		}
	}
	return path, fault, hint
}

// folder is the path of a folder in an environment.
func (environmentReader) folder(text string) (path, fault, hint string) {
	path, fault, _ = cleanPath(text)
	switch {
	case fault != "":
		hint = "the path is relative to the folder of the environment"
	case strings.Contains(path, ":"):
		fault = "the PATH cannot hold a folder whose name has a colon"
	}
	return path, fault, hint
}

// checkEnv refuses variables whose values the tasks would not see.
func (d environmentReader) checkEnv(where string, n *node) {
	for i := 0; n.kind == mapNode && i < len(n.list); i += 2 {
		key := &n.list[i]
		switch {
		case key.text == "PATH":
			d.report.add(key.pos, "write path: with folders of the environment", "%s: env: PATH cannot be set", where)
		case slices.Contains(ownEnv, key.text):
			d.report.add(key.pos, "", "%s: env: e3 sets %q itself for each task", where, key.text)
		}
	}
}

// use reads the name of a task's environment, and adds its files to the inputs of the task.
func (d environmentReader) use(where string, n *node, spec *Spec, refs []wire) []wire {
	if n == nil {
		return refs
	}
	if n.kind == mapNode {
		d.report.add(n.pos, "write env: with variables",
			"%s: environment: want the name of an entry of environments, not a mapping", where)
		return refs
	}
	if spec.Environment = d.text(where+": environment", n); n.kind != stringNode {
		return refs
	}
	input := d.intern(record.EnvironmentInput(spec.Environment))
	return append(refs, wire{name: input, source: input, pos: n.pos})
}

// resolve finds the files of a task's environment. It returns false if the environment is faulty or unknown.
func (d environmentReader) resolve(where string, ref *wire) (plan, bool) {
	found, ok := d.names[ref.source]
	if !ok {
		name, _ := record.EnvironmentOf(ref.source)
		hint := "write it under environments:, with from and run"
		if !d.report.full() && len(d.def.environments) > 0 {
			hint = didYouMean(name, slices.Values(slices.Sorted(maps.Keys(d.def.environments))))
		}
		d.report.add(ref.pos, hint, "%s: there is no environment %q", where, truncate(name))
	}
	if !ok || found.index < 0 {
		return plan{}, false
	}
	source := Source{Kind: FromInput, Index: found.index, Entry: -1}
	input := TaskInput{Name: ref.name, Kind: Dir, Source: source}
	return plan{pos: ref.pos, text: ref.source, project: true, input: input}, true
}

// check refuses environments in images, once the whole file is known.
func (d environmentReader) check() {
	for i := range d.bases {
		if s := d.bases[i].spec; s.Environment != "" && d.def.imageOf(s) != "" {
			hint := "leave out environment: if the image has the programs, else image:"
			if s.Image == "" {
				hint = "leave out environment: if the image has the programs; else write room: open at the task, or image: at the others instead of at the top"
			}
			d.report.add(s.Pos, hint,
				"task %s: it has an environment, made of this machine's programs, and an image, which has others", s.Base)
		}
	}
}

package newfile

import (
	"cmp"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"e3/internal/format/manifest"
	"e3/internal/format/pattern"
)

// A stage becomes one task: a family of tasks, if it has a foreach or matrix that e3 can say.
type stage struct {
	*converter
	context
	name string
	of   string // the stage in dvc.yaml of which this one is an item, written out; or ""
	body *yaml.Node
	task *Task
	wdir string // relative to the package file
	outs []stageOut
	deps []stageDep
	urls []*yaml.Node    // deps that e3 fetches
	copy func() []*stage // of a family: its items, written out

	looked map[string]bool // files of parameters of which it names values
}

type stageOut struct {
	path    string // with names in braces
	written string // in dvc.yaml
	figures []figure
	node    *yaml.Node
}

type stageDep struct {
	path string
	node *yaml.Node
}

type made struct {
	stage *stage
	out   int
	dir   bool
}

// stage adds a stage.
func (c *converter) stage(key, body *yaml.Node) {
	s := &stage{converter: c, context: c.common, name: key.Value, body: body}
	foreach, matrix, do := field(body, "foreach"), field(body, "matrix"), field(body, "do")
	switch {
	case foreach != nil && do != nil:
		s.body = do
		c.foreach(s, foreach)
	case matrix != nil:
		c.matrix(s, matrix)
	case foreach != nil:
		c.note(key, true, "stage %s: foreach without do; write its tasks by hand", key.Value)
	default:
		c.stages = append(c.stages, s)
	}
}

// note notes something of a stage: once for all of its items.
func (s *stage) note(n *yaml.Node, lost bool, format string, args ...any) {
	s.converter.note(n, lost, "stage %s: "+format, append([]any{cmp.Or(s.of, s.name)}, args...)...)
}

// again is the command that runs the tasks of a stage again.
func (s *stage) again() string {
	if s.of != "" {
		return "e3 start --force --filter '" + packageName(s.of) + "-*'"
	}
	return "e3 start --force --filter " + packageName(s.name)
}

// text is a text without live values: that of a path, a description or a name. Variables of a matrix are in braces.
func (s *stage) text(n *yaml.Node) string {
	list, err := s.pieces(n.Value)
	if err != nil {
		s.note(n, true, "%v; write the value by hand", err)
		return ""
	}
	var b strings.Builder
	var frozen []string
	for _, p := range list {
		if p.variable != "" {
			b.WriteString("{" + p.variable + "}")
			continue
		}
		if b.WriteString(p.text); p.source != "" {
			frozen = append(frozen, p.path)
		}
	}
	if frozen != nil {
		s.note(n, false, "%s stays as it is now, %s: after an edit of %s, edit the path as well", n.Value, b.String(), strings.Join(frozen, " or "))
	}
	return b.String()
}

// declare reads the outputs, the dependencies and the command of a stage. It returns false if the stage cannot be a task.
func (s *stage) declare() bool {
	s.task, s.outs, s.deps, s.urls, s.wdir = &Task{}, nil, nil, nil, s.dir()
	if v := field(s.body, "wdir"); v != nil {
		s.wdir = path.Join(s.dir(), s.text(v))
	}
	if v := field(s.body, "vars"); v != nil { // paths in them begin at wdir
		s.context.files = slices.Clone(s.common.files)
		s.vars(v, &s.context, s.wdir)
	}
	if v := field(s.body, "frozen"); v != nil && v.Value == "true" {
		s.note(v, false, "frozen: its outputs are inputs; to run it, make it a task by hand")
		return false
	}
	pairs(s.body, func(k, v *yaml.Node) {
		switch k.Value {
		case "desc":
			s.task.Description = s.text(v)
		case "outs":
			s.outputs(v, "")
		case "metrics":
			s.outputs(v, "metrics")
		case "plots":
			s.outputs(v, "plot")
		case "deps":
			for _, n := range paths(v) {
				if text := s.text(n); isServed(text) {
					s.urls = append(s.urls, n)
				} else {
					s.depend(n, s.path(n, text))
				}
			}
		case "always_changed":
			if v.Value == "true" {
				s.note(k, true, "always_changed: a task runs once for its inputs; to run it again: %s", s.again())
			}
		case "cmd", "meta", "wdir", "frozen", "vars", "params", "matrix", "do", "foreach":
		case "live":
			s.note(k, true, "live: name the files that dvclive writes under out")
		default:
			s.note(k, true, "%s: e3 new does not know this key; look up what it does, and do it by hand", k.Value)
		}
	})
	if field(s.body, "cmd") == nil {
		s.note(s.body, true, "it has no cmd; it is left out")
		return false
	}
	for i := range s.outs {
		s.declareOut(i)
	}
	if len(s.task.Out) == 0 {
		s.task.Out = []Out{{Path: path.Join("logs", packageName(s.name)+".txt")}}
		if len(s.outs) == 0 {
			s.note(s.body, false, "it has no outs, and a task must have an output: what it prints is kept in %s, and files that it writes are not: those that another stage reads belong under out", s.task.Out[0].Path)
		}
	}
	return true
}

// outputs reads a list of outputs.
func (s *stage) outputs(v *yaml.Node, kind string) {
	for _, item := range resolved(v).Content {
		name := resolved(item)
		var flags *yaml.Node
		if name.Kind == yaml.MappingNode && len(name.Content) > 1 {
			name, flags = name.Content[0], resolved(name.Content[1])
		}
		p := s.path(name, s.text(name))
		if p == "" {
			continue
		}
		o := stageOut{path: p, written: name.Value, node: name}
		if kind != "" {
			o.figures = []figure{{kind: kind, node: name}}
		}
		if flags != nil {
			if kind == "plot" {
				o.figures[0].read(s.converter, flags)
			}
			for _, key := range []string{"persist", "checkpoint"} {
				if f := field(flags, key); f != nil && f.Value == "true" {
					s.note(f, true, "%s: its command finds no earlier %s, because a task begins in an empty folder; if it continues its own output, make that a task of its own", key, p)
				}
			}
		}
		s.outs = append(s.outs, o)
	}
}

// declareOut makes an output of the task, unless another stage has the path.
func (s *stage) declareOut(i int) {
	o := &s.outs[i]
	if other := s.made[o.path]; other != nil {
		s.note(o.node, true, "%s writes %s too; one of them has to write another file", other.stage.name, o.path)
		return
	}
	m := &made{stage: s, out: len(s.task.Out), dir: s.isDir(o)}
	s.made[o.path] = m
	out := Out{Path: o.path, Dir: m.dir}
	if len(s.outs) > 1 {
		base := identifier(strings.NewReplacer("{", "", "}", "").Replace(path.Base(o.path)))
		out.Name = base
		for k := 2; slices.ContainsFunc(s.task.Out, func(other Out) bool { return other.Name == out.Name }); k++ {
			out.Name = fmt.Sprintf("%s_%d", base, k)
		}
	}
	for _, p := range slices.Sorted(maps.Keys(s.figures)) {
		if p == o.path || m.dir && strings.HasPrefix(p, o.path+"/") {
			for _, f := range s.figures[p] {
				f.file = strings.TrimPrefix(strings.TrimPrefix(p, o.path), "/")
				o.figures = append(o.figures, f)
			}
		}
	}
	s.draw(&out, o.figures)
	s.task.Out = append(s.task.Out, out)
}

// isDir decides whether an output is a folder: by dvc.lock, by what is on disk, by paths in it, or else by its name.
func (s *stage) isDir(o *stageOut) bool {
	p := s.present(o.path)
	if is, known := s.locked[path.Join(s.dir(), p)]; known {
		return is
	}
	if strings.HasSuffix(o.written, "/") {
		return true
	}
	if info, err := fs.Stat(s.fsys, p); err == nil {
		return info.IsDir()
	}
	inside := func(q string) bool { return strings.HasPrefix(q, o.path+"/") }
	for _, other := range s.stages {
		if slices.ContainsFunc(other.depTexts(), inside) {
			return true
		}
	}
	if slices.ContainsFunc(slices.Collect(maps.Keys(s.figures)), inside) {
		return true
	}
	if path.Ext(p) != "" {
		return false
	}
	if cmd := field(s.body, "cmd"); cmd != nil && redirected(strings.Join(lines(cmd), "\n"), o.written) {
		return false
	}
	s.note(o.node, false, "%s may be a file or a folder, and is neither in dvc.lock nor here: it is taken for a folder; for a file, remove the slash at its end", o.path)
	return true
}

// redirected reports whether a command writes its output into a path.
func redirected(cmd, p string) bool {
	return slices.ContainsFunc([]string{"> " + p, ">" + p, "tee " + p, "tee -a " + p}, func(s string) bool {
		at := strings.Index(cmd, s)
		return at >= 0 && (at+len(s) == len(cmd) || strings.ContainsRune(" \n;|&)", rune(cmd[at+len(s)])))
	})
}

// depTexts are the dependencies of a stage without expressions, relative to the package file.
func (s *stage) depTexts() (list []string) {
	dir := s.converter.dir()
	if v := field(s.body, "wdir"); v != nil {
		dir = path.Join(dir, v.Value)
	}
	if v := field(s.body, "deps"); v != nil {
		for _, n := range paths(v) {
			list = append(list, path.Join(dir, n.Value))
		}
	}
	return list
}

// lines are the commands of a stage, which DVC runs one after the other.
func lines(cmd *yaml.Node) (list []string) {
	if cmd.Kind != yaml.SequenceNode {
		return []string{cmd.Value}
	}
	for _, line := range cmd.Content {
		list = append(list, resolved(line).Value)
	}
	return list
}

// present is a path with the values of the first item in place of names in braces.
func (s *stage) present(p string) string {
	if s.family == nil || len(s.family.items) == 0 {
		return p
	}
	return s.family.items[0].expand(p)
}

var remote = pattern.Of(`^[a-z][a-z0-9+.-]*://`)

// path is a path of a stage, relative to the package file; "" if it cannot be one.
func (s *stage) path(n *yaml.Node, text string) string {
	switch {
	case text == "":
		return ""
	case remote().MatchString(text), path.IsAbs(text):
		s.note(n, true, "%s lies outside of the project: let a task fetch it, or copy it into the project", text)
		return ""
	}
	p := path.Join(s.wdir, text)
	if p == ".." || strings.HasPrefix(p, "../") || p == "." {
		const above = "is not below the folder of the package file"
		if !slices.ContainsFunc(s.notes, func(n Note) bool { return strings.Contains(n.Text, above) }) {
			s.note(n, true, "%s %s, and other paths may not be: convert it again with -o and a package file further up, or move the data", text, above)
		}
		return ""
	}
	return p
}

func (s *stage) depend(n *yaml.Node, p string) {
	if p != "" && !slices.ContainsFunc(s.deps, func(d stageDep) bool { return d.path == p }) {
		s.deps = append(s.deps, stageDep{p, n})
	}
}

// nameable reports whether the inputs and outputs of a family can be named for all items together.
func (s *stage) nameable() bool {
	for _, o := range s.outs {
		if inBraces().ReplaceAllString(o.path, "") == "" {
			return false // any path of the project
		}
	}
	for _, d := range s.deps {
		if strings.Contains(d.path, "{") && s.matching(d.path) == "" {
			if _, ok := s.itemInput(d.path); !ok {
				return false
			}
		}
	}
	return true
}

// reads completes a task: what it reads, and its command.
func (s *stage) reads() {
	var parts []Ref
	if v := field(s.body, "params"); v != nil {
		parts = s.params(v)
	}
	cmd := field(s.body, "cmd")
	s.command(cmd)
	if s.family != nil {
		s.task.Matrix = s.sources(s.family.text())
		s.task.Vars = append(slices.Clone(s.family.dims), slices.Sorted(maps.Keys(s.family.used))...)
	}
	s.environment(cmd)
	if field(s.body, "deps") == nil && field(s.body, "params") == nil {
		s.note(s.body, false, "it has no deps: DVC runs it each time, e3 once; to run it again: %s", s.again())
	}
	declared := len(s.deps)
	s.undeclared(cmd)
	for i, d := range s.deps {
		if slices.ContainsFunc(s.deps, func(o stageDep) bool { return o.path != d.path && strings.HasPrefix(d.path, o.path+"/") }) {
			continue // the file comes with the folder
		}
		s.read(d, i >= declared)
	}
	for _, n := range s.urls {
		s.server(n, s.text(n))
	}
	for _, r := range parts {
		if in := s.inputOf(r.Input); !slices.ContainsFunc(s.deps, func(d stageDep) bool { return d.path == in.Path }) {
			s.task.In = append(s.task.In, r)
		}
	}
	slices.SortStableFunc(s.task.In, func(a, b Ref) int { return strings.Compare(a.Task+a.Input, b.Task+b.Input) })
}

// inputOf is the input of a name.
func (c *converter) inputOf(name string) *Input {
	return c.Inputs[slices.IndexFunc(c.Inputs, func(in *Input) bool { return in.Name == name })]
}

// read adds the source of a dependency. found says that e3 new has found it, and not dvc.yaml.
func (s *stage) read(d stageDep, found bool) {
	if s.family != nil && strings.Contains(d.path, "{") {
		if ref := s.matching(d.path); ref != "" {
			s.add(Ref{Task: ref})
			return
		}
		in, _ := s.itemInput(d.path)
		name := s.input(in.kind, in.path, "")
		s.add(Ref{Input: name + in.label, As: name + "_item"})
		if in.whole {
			s.note(d.node, false, "each task reads all of %s, so a new file in it runs all of them again", in.path)
		}
		return
	}
	if ref, own := s.producer(d.path); ref != "" {
		if own {
			s.note(d.node, true, "it reads its own output; a task cannot: make the first version an input of another name")
			return
		}
		s.add(Ref{Task: ref})
		return
	}
	inside := s.inside(d)
	for _, r := range inside {
		s.add(r)
	}
	s.source(d, found, len(inside) > 0)
}

func (s *stage) add(r Ref) {
	if !slices.Contains(s.task.In, r) {
		s.task.In = append(s.task.In, r)
	}
}

// output is the name of an output of a task, as a source.
func (m *made) output(label string) string {
	name := m.stage.task.Name + label
	if o := m.stage.task.Out[m.out]; o.Name != "" && len(m.stage.task.Out) > 1 {
		name += "." + o.Name
	}
	return name
}

// matching is the source of a path with names in braces: the output of the same item of another family.
func (s *stage) matching(p string) string {
	for _, q := range slices.Sorted(maps.Keys(s.made)) {
		m := s.made[q]
		if m.stage != s && m.stage.family != nil && m.stage.family.has(s.family) && (p == q || m.dir && strings.HasPrefix(p, q+"/")) {
			return m.output("[" + strings.Join(s.family.dims, ",") + "]")
		}
	}
	return ""
}

var inBraces = pattern.Of(`\{([a-z_][a-z0-9_]*)\}`)

// An itemInput is an input of the project of which each item reads its own part.
type itemInput struct {
	kind, path, label string
	whole             bool // each item reads all of it
}

// itemInput finds the input for a path with names in braces: files of which the names are parts of the path, the
// entries of a folder, or a folder as a whole.
func (s *stage) itemInput(p string) (in itemInput, ok bool) {
	var names []string
	for _, m := range inBraces().FindAllStringSubmatch(p, -1) {
		names = append(names, m[1])
	}
	dir := true
	for _, it := range s.family.items {
		at := it.expand(p)
		info, err := fs.Stat(s.fsys, at)
		if ref, _ := s.producer(at); err != nil || ref != "" || strings.Contains(at, "{") {
			return in, false
		}
		dir = dir && info.IsDir()
		if !dir && !info.Mode().IsRegular() {
			return in, false
		}
	}
	label := "[" + strings.Join(names, ",") + "]"
	dims := !slices.ContainsFunc(names, func(n string) bool { return !slices.Contains(s.family.dims, n) })
	folder, last := path.Split(p)
	folder = path.Clean(folder)
	switch {
	case dims && !dir && len(s.family.items) > 0:
		return itemInput{kind: "files", path: p, label: label}, true
	case dims && dir && len(names) == 1 && last == "{"+names[0]+"}" && folder != "." && !strings.Contains(folder, "{"):
		return itemInput{kind: "dir", path: folder, label: label}, true
	}
	top := path.Dir(p[:strings.IndexByte(p, '{')] + "x")
	if !s.family.live() || top == "." || s.writesIn(top) {
		return in, false
	}
	return itemInput{kind: "dir", path: top, whole: true}, true
}

// producer is the source of a path that a stage writes, or in a folder that a stage writes; "" if there is none.
func (s *stage) producer(p string) (ref string, own bool) {
	for _, q := range slices.Sorted(maps.Keys(s.made)) {
		m := s.made[q]
		covers := func(q string) bool { return p == q || m.dir && strings.HasPrefix(p, q+"/") }
		if m.stage.family == nil {
			if covers(q) {
				return m.output(""), m.stage == s
			}
			continue
		}
		for _, it := range m.stage.family.items {
			if covers(it.expand(q)) {
				return m.output("[" + it.label + "]"), m.stage == s
			}
		}
	}
	return "", false
}

// inside are the sources of the outputs that lie in a folder. A family alone in it is one source, at the folder.
func (s *stage) inside(d stageDep) (list []Ref) {
	var found []*made
	for _, q := range slices.Sorted(maps.Keys(s.made)) {
		if m := s.made[q]; m.stage != s && strings.HasPrefix(q, d.path+"/") {
			found = append(found, m)
		}
	}
	files, _ := s.files(d.path)
	for _, m := range found {
		switch {
		case m.stage.family == nil:
			list = append(list, Ref{Task: m.output("")})
		case len(found) == 1 && len(files) == 0:
			list = append(list, Ref{Task: m.output("[*]"), At: d.path, As: identifier(m.output(""))})
		default:
			if m.stage.family.live() {
				s.note(d.node, true, "%s also holds other files, so the items of %s in it are named one by one: add those that come", d.path, m.stage.name)
			}
			for _, it := range m.stage.family.items {
				list = append(list, Ref{Task: m.output("[" + it.label + "]"), As: identifier(m.stage.task.Name + "_" + it.label)})
			}
		}
	}
	return list
}

// source adds an input that no stage writes. If stages write in a folder, its other files are inputs one by one.
func (s *stage) source(d stageDep, found, shared bool) {
	if !shared && s.imported(d) {
		return
	}
	info, err := fs.Stat(s.fsys, d.path)
	comment := ""
	if found {
		comment = "not among DVC's deps"
	}
	switch {
	case shared && err != nil:
		return // the folder is made by stages alone
	case shared || err == nil && info.IsDir() && s.writesIn(d.path):
		files, whole := s.files(d.path)
		if !whole {
			s.note(d.node, true, "%s is a folder of the project in which stages write, with too many other files to name: name the ones that it needs under inputs", d.path)
		}
		for _, p := range files {
			s.add(Ref{Input: s.input("file", p, comment)})
		}
		return
	case err != nil:
		s.note(d.node, true, "%s is not here; if DVC tracks it, first: dvc pull", d.path)
	}
	kind := "file"
	if err == nil && info.IsDir() || err != nil && path.Ext(d.path) == "" {
		kind = "dir"
	}
	s.add(Ref{Input: s.input(kind, d.path, comment)})
}

// writesIn reports whether a stage writes in a folder.
func (c *converter) writesIn(dir string) bool {
	for q := range c.made {
		if strings.HasPrefix(q, dir+"/") {
			return true
		}
	}
	return false
}

// mostNamed bounds the files of a folder that become inputs one by one.
const mostNamed = 100

// files are the files of a folder that no stage writes; whole is false if there are too many.
func (s *stage) files(dir string) (list []string, whole bool) {
	whole = true
	fs.WalkDir(s.fsys, dir, func(p string, e fs.DirEntry, err error) error {
		if err != nil {
			return fs.SkipDir
		}
		if ref, _ := s.producer(p); ref != "" {
			if e.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if !e.Type().IsRegular() || strings.HasSuffix(p, ".dvc") || path.Base(p) == ".gitignore" {
			return nil
		}
		if list = append(list, p); len(list) > mostNamed {
			list, whole = nil, false
			return fs.SkipAll
		}
		return nil
	})
	return list, whole
}

// params are the parameters of a stage: for each file, the values that DVC looks at.
func (s *stage) params(v *yaml.Node) (refs []Ref) {
	chosen := map[string][]string{}
	s.looked = map[string]bool{}
	nodes := map[string]*yaml.Node{}
	whole := map[string]bool{}
	choose := func(n *yaml.Node, file, name string) {
		if file = s.path(n, file); file != "" {
			if nodes[file] == nil {
				nodes[file] = n
			}
			chosen[file] = append(chosen[file], name)
			s.looked[file] = true
		}
	}
	for _, item := range resolved(v).Content {
		switch item = resolved(item); item.Kind {
		case yaml.ScalarNode:
			choose(item, "params.yaml", s.text(item))
		case yaml.MappingNode:
			pairs(item, func(k, names *yaml.Node) {
				file := s.text(k)
				list := paths(names)
				if list == nil || names.Tag == "!!null" {
					if p := s.path(k, file); p != "" {
						whole[p] = true
						s.depend(k, p)
					}
					return
				}
				for _, n := range list {
					choose(n, file, s.text(n))
				}
			})
		}
	}
	for _, file := range slices.Sorted(maps.Keys(chosen)) {
		if whole[file] {
			continue
		}
		only, fault := s.only(file, chosen[file])
		if fault != "" {
			s.note(nodes[file], fault == notHere, "%s %s: an edit of any value in it runs the task again", file, fault)
			s.depend(nodes[file], file)
			continue
		}
		refs = append(refs, Ref{Input: s.input("params", file, ""), As: identifier(path.Base(file)), Only: strings.Join(only, ", ")})
	}
	return refs
}

const notHere = "is not here, or holds no values"

// only are the values of a file of parameters that a stage names, and those of other names that its program has. fault
// says why the file can only be an input as a whole.
func (s *stage) only(file string, names []string) (only []string, fault string) {
	whole := s.values(file)
	switch {
	case whole == nil:
		return nil, notHere
	case path.Ext(file) == ".py":
		return nil, "is a program, which can only be read as a whole"
	}
	for _, name := range names {
		name, _, _ = strings.Cut(name, "[")
		for name != "" {
			if _, ok := manifest.ValueAt(whole, name); ok {
				break
			}
			name = name[:max(strings.LastIndexByte(name, '.'), 0)]
		}
		if name == "" {
			return nil, "lacks a value that the stage names"
		}
		if !manifest.ValidOnly(name) {
			return nil, "has names that cannot be chosen"
		}
		only = append(only, name)
	}
	for _, m := range whole {
		has := func(p string) bool { return p == m.Name || strings.HasPrefix(p, m.Name+".") }
		if !slices.ContainsFunc(only, has) && manifest.ValidOnly(m.Name) && s.programUses(path.Base(file), m.Name) {
			only = append(only, m.Name)
		}
	}
	return manifest.Outermost(only), ""
}

var capital = pattern.Of(`\$\{?([A-Z][A-Z0-9_]{2,})\b`)

// environment passes on the variables that a command uses, since DVC passes all variables.
func (s *stage) environment(n *yaml.Node) {
	var text strings.Builder
	for _, line := range lines(n) {
		list, _ := s.pieces(line)
		for _, p := range list {
			if p.literal {
				text.WriteString(p.text + " ")
			}
		}
	}
	for _, m := range capital().FindAllStringSubmatch(text.String(), -1) {
		if !slices.Contains(s.task.PassEnv, m[1]) && !slices.Contains([]string{"PATH", "HOME", "TMPDIR", "LANG", "PWD"}, m[1]) {
			s.task.PassEnv = append(s.task.PassEnv, m[1])
			s.note(n, false, "its command uses $%s: it is passed on, and not in the key; if it decides the result, name it under key_env", m[1])
		}
	}
}

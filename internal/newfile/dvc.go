package newfile

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

// A Note is something of a dvc.yaml that the package file does not have in the same way.
type Note struct {
	File string
	Line int
	Text string // the part of dvc.yaml, and what to do by hand
	Lost bool   // the part could not be carried over
}

func (n Note) String() string { return fmt.Sprintf("%s:%d: %s", n.File, n.Line, n.Text) }

// FromDVC drafts a package file for a pipeline of DVC. fsys is the folder of the file: it is searched for parameters,
// and tells which paths are folders. Stages of foreach and matrix are written out. Commands stay as they are: a task
// finds its inputs at the paths that they have in the project.
func FromDVC(fsys fs.FS, file, name string) (*Draft, []Note, error) {
	data, err := fs.ReadFile(fsys, file)
	if err != nil {
		return nil, nil, err
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", file, err)
	}
	c := &converter{Draft: &Draft{Name: packageName(name), Results: "results/"}, fsys: fsys, file: file, values: map[string]any{}, made: map[string]*made{}, dirs: map[string]bool{}}
	staged := false
	if len(doc.Content) > 0 {
		pairs(doc.Content[0], func(k, _ *yaml.Node) { staged = staged || k.Value == "stages" })
	}
	if !staged {
		return nil, nil, fmt.Errorf("%s is no pipeline of DVC: it has no stages", file)
	}
	c.lock()
	c.top(doc.Content[0])
	c.convert()
	c.head()
	return c.Draft, c.notes, nil
}

type converter struct {
	*Draft
	fsys   fs.FS
	file   string
	values map[string]any // values of params.yaml and vars
	stages []*stage
	made   map[string]*made // outputs by path
	dirs   map[string]bool  // outputs that dvc.lock knows as folders or files
	roles  map[string]string
	notes  []Note
}

// stage is one stage; for a foreach or matrix, one item.
type stage struct {
	name string
	body *yaml.Node
	vars map[string]any // item, key
	task *Task
	wdir string
	outs []stageOut
	run  string
}

type stageOut struct {
	path string
	kind string
	node *yaml.Node
}

type made struct {
	stage *stage
	out   int
	dir   bool
}

func (c *converter) note(n *yaml.Node, lost bool, format string, args ...any) {
	note := Note{c.file, n.Line, fmt.Sprintf(format, args...), lost}
	if !slices.Contains(c.notes, note) {
		c.notes = append(c.notes, note)
	}
}

// pairs calls a function for each pair of a mapping.
func pairs(n *yaml.Node, each func(key, value *yaml.Node)) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n.Kind != yaml.MappingNode {
		return
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		each(n.Content[i], resolved(n.Content[i+1]))
	}
}

func resolved(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

// lock reads from dvc.lock which outputs are folders.
func (c *converter) lock() {
	data, err := fs.ReadFile(c.fsys, path.Join(path.Dir(c.file), "dvc.lock"))
	if err != nil {
		return
	}
	var lock struct {
		Stages map[string]struct {
			Outs []struct {
				Path string `yaml:"path"`
				MD5  string `yaml:"md5"`
			} `yaml:"outs"`
		} `yaml:"stages"`
	}
	if yaml.Unmarshal(data, &lock) != nil {
		return
	}
	for _, s := range lock.Stages {
		for _, o := range s.Outs {
			c.dirs[path.Clean(o.Path)] = strings.HasSuffix(o.MD5, ".dir")
		}
	}
}

// top reads the top-level keys: values first, because stages use them.
func (c *converter) top(root *yaml.Node) {
	c.roles = map[string]string{}
	c.load("params.yaml", nil)
	pairs(root, func(key, v *yaml.Node) {
		if key.Value == "vars" {
			c.vars(v, c.values)
		}
	})
	pairs(root, func(key, v *yaml.Node) {
		switch key.Value {
		case "vars":
		case "stages":
			pairs(v, c.stage)
		case "metrics", "plots":
			kind := strings.TrimSuffix(key.Value, "s")
			if kind == "metric" {
				kind = "metrics"
			}
			for _, n := range paths(v) {
				c.roles[path.Clean(n.Value)] = kind
			}
		case "params":
		case "artifacts", "datasets":
			c.note(key, false, "%s: it describes files for DVC's registry and has no counterpart; nothing of the pipeline is lost", key.Value)
		default:
			c.note(key, true, "%s: e3 new does not know this key; look up what it does, and do it by hand", key.Value)
		}
	})
}

// paths are the names in a list of strings and mappings.
func paths(n *yaml.Node) (list []*yaml.Node) {
	switch n = resolved(n); n.Kind {
	case yaml.ScalarNode:
		list = append(list, n)
	case yaml.SequenceNode:
		for _, item := range n.Content {
			list = append(list, paths(item)...)
		}
	case yaml.MappingNode:
		pairs(n, func(key, _ *yaml.Node) { list = append(list, key) })
	}
	return list
}

// load adds the values of a file of parameters.
func (c *converter) load(file string, at *yaml.Node) {
	data, err := fs.ReadFile(c.fsys, file)
	if err != nil {
		if at != nil {
			c.note(at, true, "vars: %s cannot be read: write its values into the commands by hand", file)
		}
		return
	}
	var v map[string]any
	if err := yaml.Unmarshal(data, &v); err != nil {
		if at != nil || errors.Is(err, fs.ErrNotExist) {
			c.note(at, true, "vars: %s is not YAML or JSON: write its values into the commands by hand", file)
		}
		return
	}
	merge(c.values, v)
}

func merge(into, from map[string]any) {
	for k, v := range from {
		old, was := into[k].(map[string]any)
		if fresh, is := v.(map[string]any); was && is {
			merge(old, fresh)
			continue
		}
		into[k] = v
	}
}

// vars reads a list of files and values.
func (c *converter) vars(n *yaml.Node, into map[string]any) {
	for _, item := range resolved(n).Content {
		switch item = resolved(item); item.Kind {
		case yaml.ScalarNode:
			file, _, _ := strings.Cut(item.Value, ":")
			c.load(file, item)
		case yaml.MappingNode:
			var v map[string]any
			if item.Decode(&v) == nil {
				merge(into, v)
			}
		}
	}
}

// stage adds a stage, with foreach and matrix each of its items.
func (c *converter) stage(key, body *yaml.Node) {
	base := &stage{name: key.Value, body: body}
	var foreach, matrix, do *yaml.Node
	pairs(body, func(k, v *yaml.Node) {
		switch k.Value {
		case "foreach":
			foreach = v
		case "matrix":
			matrix = v
		case "do":
			do = v
		}
	})
	switch {
	case foreach != nil && do != nil:
		c.items(base, foreach, do)
	case matrix != nil:
		c.product(base, matrix)
	case foreach != nil:
		c.note(key, true, "stage %s: foreach without do; write its tasks by hand", key.Value)
	default:
		c.stages = append(c.stages, base)
	}
}

// items adds the stages of a foreach.
func (c *converter) items(base *stage, foreach, do *yaml.Node) {
	var over any
	if foreach.Kind == yaml.ScalarNode {
		v, err := c.evaluate(foreach.Value, nil)
		if err != nil {
			c.note(foreach, true, "foreach: %v; write the tasks of %s by hand", err, base.name)
			return
		}
		over = v
	} else if err := foreach.Decode(&over); err != nil {
		c.note(foreach, true, "foreach: %v", err)
		return
	}
	add := func(name string, vars map[string]any) {
		c.stages = append(c.stages, &stage{name: base.name + "-" + name, body: do, vars: vars})
	}
	switch list := over.(type) {
	case []any:
		for i, item := range list {
			name := fmt.Sprint(i)
			if !isCollection(item) {
				name = fmt.Sprint(item)
			}
			add(name, map[string]any{"item": item})
		}
	case map[string]any:
		for _, k := range sortedKeys(list) {
			add(k, map[string]any{"item": list[k], "key": k})
		}
	default:
		c.note(foreach, true, "foreach: it is no list or mapping; write the tasks of %s by hand", base.name)
	}
}

// product adds the stages of a matrix.
func (c *converter) product(base *stage, matrix *yaml.Node) {
	type dimension struct {
		name  string
		items []any
	}
	var dims []dimension
	ok := true
	pairs(matrix, func(k, v *yaml.Node) {
		var items []any
		if v.Kind == yaml.ScalarNode {
			got, err := c.evaluate(v.Value, nil)
			items, _ = got.([]any)
			if err != nil {
				items = nil
			}
		} else if v.Decode(&items) != nil {
			items = nil
		}
		if len(items) == 0 {
			c.note(v, true, "matrix: the items of %s are not known; write the tasks of %s by hand", k.Value, base.name)
			ok = false
		}
		dims = append(dims, dimension{k.Value, items})
	})
	if !ok {
		return
	}
	var expand func(i int, name string, item map[string]any)
	expand = func(i int, name string, item map[string]any) {
		if i == len(dims) {
			c.stages = append(c.stages, &stage{name: name, body: base.body, vars: map[string]any{"item": item, "key": name}})
			return
		}
		for k, v := range dims[i].items {
			more := map[string]any{dims[i].name: v}
			for name, v := range item {
				more[name] = v
			}
			word := fmt.Sprint(v)
			if isCollection(v) {
				word = dims[i].name + fmt.Sprint(k)
			}
			expand(i+1, name+"-"+word, more)
		}
	}
	expand(0, base.name, nil)
}

// convert makes tasks of the stages: first their outputs, then their inputs.
func (c *converter) convert() {
	var live []*stage
	for _, s := range c.stages {
		if c.declare(s) {
			live = append(live, s)
		}
	}
	for _, s := range live {
		c.reads(s)
		c.Tasks = append(c.Tasks, s.task)
	}
}

// declare reads the outputs and the command of a stage. It returns false if the stage cannot be a task.
func (c *converter) declare(s *stage) bool {
	local := &converter{Draft: c.Draft, fsys: c.fsys, file: c.file, values: c.values, roles: c.roles}
	s.task = &Task{}
	text := func(n *yaml.Node) string {
		t, err := local.text(n.Value, s.vars)
		if err != nil {
			c.note(n, true, "stage %s: %v; write the value by hand", s.name, err)
		}
		return t
	}
	var frozen *yaml.Node
	pairs(s.body, func(k, v *yaml.Node) {
		if k.Value == "vars" {
			own := map[string]any{}
			merge(own, c.values)
			local.values = own
			c.vars(v, own)
		}
	})
	pairs(s.body, func(k, v *yaml.Node) {
		switch k.Value {
		case "wdir":
			s.wdir = path.Clean(text(v))
		case "frozen":
			if v.Value == "true" {
				frozen = k
			}
		}
	})
	outs := func(v *yaml.Node, kind string) {
		for _, item := range resolved(v).Content {
			name := resolved(item)
			var flags *yaml.Node
			if name.Kind == yaml.MappingNode && len(name.Content) > 1 {
				name, flags = name.Content[0], resolved(name.Content[1])
			}
			p := c.path(name, s, text(name))
			if p == "" {
				continue
			}
			s.outs = append(s.outs, stageOut{p, kind, name})
			if flags != nil {
				pairs(flags, func(k, v *yaml.Node) {
					switch {
					case k.Value == "persist" && v.Value == "true", k.Value == "checkpoint" && v.Value == "true":
						c.note(k, true, "stage %s: %s: its command finds no earlier %s, because a task begins in an empty folder; if it continues its own output, make that a task of its own", s.name, k.Value, p)
					}
				})
			}
		}
	}
	pairs(s.body, func(k, v *yaml.Node) {
		switch k.Value {
		case "cmd":
			if v.Kind == yaml.SequenceNode {
				var lines []string
				for _, line := range v.Content {
					lines = append(lines, text(resolved(line)))
				}
				s.run = strings.Join(lines, "\n")
			} else {
				s.run = text(v)
			}
			c.environment(s, v)
		case "desc":
			s.task.Description = text(v)
		case "outs":
			outs(v, "")
		case "metrics":
			outs(v, "metrics")
		case "plots":
			outs(v, "plot")
		case "always_changed":
			if v.Value == "true" {
				c.note(k, true, "stage %s: always_changed: a task runs once for its inputs; to run it again: e3 start --force --filter %s", s.name, taskName(s.name))
			}
		case "meta", "wdir", "frozen", "vars", "deps", "params", "matrix", "do", "foreach":
		case "live":
			c.note(k, true, "stage %s: live: name the files that dvclive writes under out", s.name)
		default:
			c.note(k, true, "stage %s: %s: e3 new does not know this key; look up what it does, and do it by hand", s.name, k.Value)
		}
	})
	if frozen != nil {
		c.note(frozen, false, "stage %s: frozen: its outputs are inputs; to run it, make it a task by hand", s.name)
		return false
	}
	switch {
	case s.run == "":
		c.note(s.body, true, "stage %s: it has no cmd; it is left out", s.name)
		return false
	case len(s.outs) == 0:
		s.task.Out = []Out{{Path: "log.txt"}}
		s.run = "{\n" + s.run + "\n} > \"$out\""
		c.note(s.body, false, "stage %s: it has no outs, and a task must have an output: what it prints is kept in log.txt", s.name)
	}
	s.task.Name = c.name2(s.name)
	if s.wdir != "" && s.wdir != "." {
		s.run = "mkdir -p " + quoteShell(s.wdir) + " && cd " + quoteShell(s.wdir) + "\n" + s.run
	}
	s.task.Run = s.run
	for i, o := range s.outs {
		if other := c.made[o.path]; other != nil {
			c.note(o.node, true, "stage %s: %s writes %s too; one of them has to write another file", s.name, other.stage.name, o.path)
			continue
		}
		m := &made{stage: s, out: i, dir: c.isDir(o.path)}
		if kind := c.roles[o.path]; kind != "" && s.outs[i].kind == "" {
			s.outs[i].kind = kind
		}
		c.made[o.path] = m
		out := Out{Path: o.path, Dir: m.dir, Kind: s.outs[i].kind}
		if len(s.outs) > 1 {
			out.Name = c.outName(s.task, path.Base(o.path))
		}
		s.task.Out = append(s.task.Out, out)
	}
	if len(s.task.Out) == 0 { // all of them belong to other stages
		s.task.Out = []Out{{Path: "log.txt"}}
		s.task.Run = "{\n" + s.run + "\n} > \"$out\""
	}
	return true
}

func (c *converter) outName(t *Task, text string) string {
	base := identifier(text)
	name := base
	for i := 2; slices.ContainsFunc(t.Out, func(o Out) bool { return o.Name == name }); i++ {
		name = fmt.Sprintf("%s_%d", base, i)
	}
	return name
}

// name2 is the name of a task: the name of the stage, changed as far as necessary.
func (c *converter) name2(stage string) string {
	name := taskName(stage)
	if c.named == nil {
		c.named = map[string]bool{}
	}
	base := name
	for i := 2; c.named[name]; i++ {
		name = fmt.Sprintf("%s-%d", base, i)
	}
	c.named[name] = true
	return name
}

func taskName(stage string) string {
	name := packageName(strings.ReplaceAll(stage, "@", "-"))
	return name[:min(len(name), 60)]
}

// isDir decides whether an output is a folder: by dvc.lock, by the file on disk, or by its name.
func (c *converter) isDir(p string) bool {
	if is, known := c.dirs[p]; known {
		return is
	}
	if info, err := fs.Stat(c.fsys, p); err == nil {
		return info.IsDir()
	}
	return path.Ext(p) == ""
}

var remote = pattern(`^[a-z][a-z0-9+.-]*://`)

// path is a path of a stage, relative to the package file; "" if it cannot be one.
func (c *converter) path(n *yaml.Node, s *stage, text string) string {
	switch {
	case text == "":
		return ""
	case remote().MatchString(text), path.IsAbs(text):
		c.note(n, true, "stage %s: %s lies outside of the project: let a task fetch it, or copy it into the project", s.name, text)
		return ""
	}
	p := path.Join(s.wdir, text)
	if p == ".." || strings.HasPrefix(p, "../") || p == "." {
		c.note(n, true, "stage %s: %s is not below the folder of the package file: move the package file up, or the data into its folder", s.name, text)
		return ""
	}
	return p
}

// reads adds the inputs of a stage to its task.
func (c *converter) reads(s *stage) {
	type dep struct {
		path string
		node *yaml.Node
	}
	var deps []dep
	add := func(n *yaml.Node, p string) {
		if p != "" && !slices.ContainsFunc(deps, func(d dep) bool { return d.path == p }) {
			deps = append(deps, dep{p, n})
		}
	}
	any := false
	pairs(s.body, func(k, v *yaml.Node) {
		switch k.Value {
		case "deps":
			for _, n := range paths(v) {
				any = true
				text, err := c.text(n.Value, s.vars)
				if err != nil {
					c.note(n, true, "stage %s: %v; write the value by hand", s.name, err)
					continue
				}
				add(n, c.path(n, s, text))
			}
		case "params":
			any = true
			c.params(s, v, func(n *yaml.Node, file string) { add(n, c.path(n, s, file)) })
		}
	})
	if !any {
		c.note(s.body, false, "stage %s: it has no deps: DVC runs it each time, e3 once; to run it again: e3 start --force --filter %s", s.name, s.task.Name)
	}
	for _, d := range deps {
		if slices.ContainsFunc(deps, func(o dep) bool { return o.path != d.path && strings.HasPrefix(d.path, o.path+"/") }) {
			continue // the file comes with the folder
		}
		if m := c.made[d.path]; m != nil {
			c.refer(s, m)
			continue
		}
		inner := false
		for p, m := range c.made {
			if strings.HasPrefix(d.path, p+"/") && m.stage != s { // a file in a folder that a stage writes
				c.refer(s, m)
				inner = true
			}
		}
		if inner {
			continue
		}
		c.source(s, d.path, d.node)
	}
	slices.SortFunc(s.task.In, func(a, b Ref) int {
		return strings.Compare(a.Task+a.Input, b.Task+b.Input)
	})
}

func (c *converter) refer(s *stage, m *made) {
	name := m.stage.task.Name
	if m.stage == s {
		c.note(s.body, true, "stage %s: it reads its own output; a task cannot: make the first version an input of another name", s.name)
		return
	}
	if len(m.stage.outs) > 1 {
		for _, o := range m.stage.task.Out {
			if o.Path == m.stage.outs[m.out].path {
				name += "." + o.Name
			}
		}
	}
	if r := (Ref{Task: name}); !slices.Contains(s.task.In, r) {
		s.task.In = append(s.task.In, r)
	}
}

// source adds an input that no stage writes. If stages write in a folder, their files are no part of the input.
func (c *converter) source(s *stage, p string, n *yaml.Node) {
	kind := "file"
	info, err := fs.Stat(c.fsys, p)
	switch {
	case err == nil && info.IsDir():
		kind = "dir"
	case err != nil && path.Ext(p) == "":
		kind = "dir"
	}
	if err != nil {
		c.note(n, true, "stage %s: %s is not here; if DVC tracks it, first: dvc pull", s.name, p)
	}
	if kind == "dir" {
		for q, m := range c.made {
			if strings.HasPrefix(q, p+"/") {
				c.note(n, true, "stage %s: %s is a folder of the project in which stage %s writes %s: a task can read only one of them; name the files that it needs under inputs", s.name, p, m.stage.name, q)
				return
			}
		}
	}
	r := Ref{Input: c.input(kind, p, "")}
	if !slices.Contains(s.task.In, r) {
		s.task.In = append(s.task.In, r)
	}
}

// params reads the parameters of a stage: names of values, and files with names.
func (c *converter) params(s *stage, v *yaml.Node, file func(n *yaml.Node, path string)) {
	var names []string
	for _, item := range resolved(v).Content {
		switch item = resolved(item); item.Kind {
		case yaml.ScalarNode:
			names = append(names, item.Value)
			file(item, "params.yaml")
		case yaml.MappingNode:
			pairs(item, func(k, v *yaml.Node) {
				for _, n := range paths(v) {
					names = append(names, n.Value)
				}
				file(k, k.Value)
			})
		}
	}
	if len(names) > 0 {
		s.task.Comments = append(s.task.Comments, "DVC: params "+strings.Join(names, ", ")+". Here any edit of the file runs it again")
	}
}

var variable = pattern(`\$\{?([A-Z][A-Z0-9_]{2,})\b`)

// environment passes on the variables that a command uses, since DVC passes all variables.
func (c *converter) environment(s *stage, n *yaml.Node) {
	for _, m := range variable().FindAllStringSubmatch(s.run, -1) {
		if !slices.Contains(s.task.PassEnv, m[1]) && !slices.Contains([]string{"PATH", "HOME", "TMPDIR", "LANG", "PWD"}, m[1]) {
			s.task.PassEnv = append(s.task.PassEnv, m[1])
			c.note(n, false, "stage %s: its command uses $%s: it is passed on, and not in the key; if it decides the result, name it under key_env", s.name, m[1])
		}
	}
}

// head is the comment at the top: the origin of the file, and the parts to check.
func (c *converter) head() {
	c.Head = []string{
		"Made by e3 new from " + c.file + ". Commands are as they were: a task finds its inputs at the paths that they have here.",
		"It sees only what it declares: modules that a program imports have to be among its inputs.",
	}
	slices.SortStableFunc(c.notes, func(a, b Note) int { return a.Line - b.Line })
	if len(c.notes) > 0 {
		c.Head = append(c.Head, "", "To look at:")
		for _, n := range c.notes {
			c.Head = append(c.Head, "  "+n.String())
		}
	}
}

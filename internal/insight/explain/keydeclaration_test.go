package explain_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"e3/internal/host/runner"
)

// A declaration is a random project: a package file, the files beside it, and the environment of starts. Each part can
// be changed separately.
type declaration struct {
	version, description string
	inputs               []declaredInput
	tasks                []declaredTask
	environment          []declaredWire // keys of the environment py
	files                map[string]declaredFile
	links                map[string]string // symbolic links and their targets
	folders              []string          // empty ones
	env                  map[string]string
	comments             bool
	order                uint64 // seed for parts that may come in any order; 0: as generated
}

type declaredFile struct {
	text       string
	executable bool
	written    int // number of rewrites without a change
}

type declaredInput struct {
	name, source, location, value string
	executable                    string
	private                       bool
	description                   string
}

type declaredTask struct {
	name                 string
	in                   []declaredWire
	out                  []declaredOutput
	several              bool
	argv                 []string
	script               string
	env                  []declaredWire // names and values
	pass, secrets, keyed []string
	inEnvironment        bool
	version              string
	dimension            string
	items                []string
	policy               map[string]string
}

type declaredWire struct{ name, source string }

type declaredOutput struct {
	name, path, role string
	dir, executable  bool
}

func (d *declaration) clone() *declaration {
	c := *d
	c.inputs, c.folders = slices.Clone(d.inputs), slices.Clone(d.folders)
	c.files, c.links, c.env = maps.Clone(d.files), maps.Clone(d.links), maps.Clone(d.env)
	c.environment = slices.Clone(d.environment)
	c.tasks = slices.Clone(d.tasks)
	for i := range c.tasks {
		t := &c.tasks[i]
		t.in, t.out, t.argv, t.env = slices.Clone(t.in), slices.Clone(t.out), slices.Clone(t.argv), slices.Clone(t.env)
		t.pass, t.secrets, t.keyed, t.items = slices.Clone(t.pass), slices.Clone(t.secrets), slices.Clone(t.keyed), slices.Clone(t.items)
		t.policy = maps.Clone(t.policy)
	}
	return &c
}

// drawDeclaration generates some inputs of every kind, and tasks that read some of these and of each other's outputs.
func drawDeclaration(r *rand.Rand) *declaration {
	d := &declaration{
		files: map[string]declaredFile{
			"data.txt": {text: word(r)}, "other.txt": {text: word(r) + "!"}, "tree/a": {text: word(r)}, "tree/deep/b": {text: word(r), executable: r.IntN(2) == 0},
			"logs/one.log": {text: word(r)}, "logs/two.log": {text: word(r)}, "logs/none.txt": {text: word(r)},
			"lock.txt": {text: word(r)}, "wheels/a.whl": {text: word(r)},
		},
		environment: []declaredWire{
			{"from", `[lock.txt, wheels/]`}, {"run", quotedText("make " + word(r))}, {"path", "bin"}, {"env", "{A: b}"}, {"description", "d"},
		},
		links: map[string]string{"tree/link": "a"},
		env:   map[string]string{"PASSED": word(r), "TOKEN": "hidden " + word(r), "MODE": word(r), "EMPTY": "", "STRAY": word(r)},
	}
	d.inputs = []declaredInput{
		{name: "data", source: "file", location: "data.txt"}, {name: "other", source: "file", location: "other.txt"},
		{name: "tree", source: "dir", location: "tree"}, {name: "logs", source: "glob", location: "logs/*.log"},
		{name: "number", source: "value", value: fmt.Sprint(r.IntN(100))}, {name: "text", source: "value", value: quotedText(word(r))},
		{name: "list", source: "value", value: fmt.Sprintf("[%d, %q]", r.IntN(100), word(r))},
	}
	for i := range 2 + r.IntN(3) {
		d.tasks = append(d.tasks, d.drawTask(r, i))
	}
	return d
}

func (d *declaration) drawTask(r *rand.Rand, i int) declaredTask {
	t := declaredTask{name: fmt.Sprintf("t%d", i), policy: map[string]string{}, inEnvironment: r.IntN(3) == 0}
	for _, k := range r.Perm(len(d.inputs))[:r.IntN(5)] {
		t.in = append(t.in, declaredWire{"r_" + d.inputs[k].name, d.inputs[k].name})
	}
	for k := range d.tasks {
		if p := &d.tasks[k]; p.dimension == "" && r.IntN(3) == 0 {
			source := p.name
			if p.several {
				source += "." + p.out[r.IntN(len(p.out))].name
			}
			t.in = append(t.in, declaredWire{fmt.Sprintf("r_%d", k), source})
		}
	}
	output := func(name string) declaredOutput {
		return declaredOutput{name: name, path: fmt.Sprintf("made/%d/%s", i, name), dir: r.IntN(3) == 0}
	}
	if t.several = r.IntN(3) == 0; t.several {
		t.out = []declaredOutput{output("out_a"), output("out_b")}
	} else {
		t.out = []declaredOutput{output("out")}
	}
	if r.IntN(2) == 0 {
		t.script = fmt.Sprintf("work %d\nmore %s", i, word(r))
	} else {
		t.argv = []string{"work", fmt.Sprint(i), word(r)}
	}
	for k := range r.IntN(3) {
		t.env = append(t.env, declaredWire{fmt.Sprintf("SET%d", k), word(r)})
	}
	for _, v := range []struct {
		list  *[]string
		names []string
	}{{&t.pass, []string{"PASSED", "ABSENT"}}, {&t.secrets, []string{"TOKEN"}}, {&t.keyed, []string{"MODE", "EMPTY", "UNSET"}}} {
		if r.IntN(2) == 0 {
			*v.list = slices.Clone(v.names[:1+r.IntN(len(v.names))])
		}
	}
	if r.IntN(2) == 0 {
		t.version = word(r)
	}
	if r.IntN(4) == 0 {
		t.dimension, t.items = "k", []string{"one", "two"}
	}
	return t
}

func word(r *rand.Rand) string {
	b := make([]byte, 6)
	for i := range b {
		b[i] = "abcdefghijklmnopqrstuvwxyz"[r.IntN(26)]
	}
	return string(b)
}

func quotedText(s string) string {
	text, _ := json.Marshal(s) // of a string it has no error
	return string(text)
}

func quotedList(list []string) string {
	quoted := make([]string, len(list))
	for i, s := range list {
		quoted[i] = quotedText(s)
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}

// yaml is the package file. In another order, inputs, tasks, the keys of a task and the names of variables change places.
func (d *declaration) yaml() string {
	shuffle := func(list []string) []string { return list }
	if d.order != 0 {
		r := rand.New(rand.NewPCG(d.order, 0))
		shuffle = func(list []string) []string {
			list = slices.Clone(list)
			r.Shuffle(len(list), func(i, k int) { list[i], list[k] = list[k], list[i] })
			return list
		}
	}
	var inputs, tasks []string
	for i := range d.inputs {
		inputs = append(inputs, d.inputs[i].yaml(shuffle))
	}
	for i := range d.tasks {
		tasks = append(tasks, d.tasks[i].yaml(shuffle))
	}
	top := []string{
		"e3: 1\n", "name: p\n", "inputs:\n" + strings.Join(shuffle(inputs), ""), "tasks:\n" + strings.Join(shuffle(tasks), ""),
	}
	var environment []string
	for _, key := range d.environment {
		environment = append(environment, key.name+": "+key.source)
	}
	top = append(top, "environments:\n  py: {"+strings.Join(shuffle(environment), ", ")+"}\n")
	if d.version != "" {
		top = append(top, "version: "+quotedText(d.version)+"\n")
	}
	if d.description != "" {
		top = append(top, "description: "+quotedText(d.description)+"\n")
	}
	text := strings.Join(shuffle(top), "")
	if d.comments {
		text = "# what it is about\n" + strings.ReplaceAll(text, "\n", " # a remark\n\n")
	}
	return text
}

func (in *declaredInput) yaml(shuffle func([]string) []string) string {
	keys := []string{in.source + ": " + quotedText(in.location)}
	if in.source == "value" {
		keys[0] = "value: " + in.value
	}
	if in.executable != "" {
		keys = append(keys, "executable: "+in.executable)
	}
	if in.private {
		keys = append(keys, "export: false")
	}
	if in.description != "" {
		keys = append(keys, "description: "+quotedText(in.description))
	}
	return fmt.Sprintf("  %s: {%s}\n", in.name, strings.Join(shuffle(keys), ", "))
}

func (t *declaredTask) yaml(shuffle func([]string) []string) string {
	mapping := func(list []declaredWire) string {
		var members []string
		for _, w := range list {
			members = append(members, w.name+": "+quotedText(w.source))
		}
		return "{" + strings.Join(members, ", ") + "}"
	}
	keys := []string{"in: " + mapping(t.in), "out: " + t.outputs(), "run: " + quotedText(t.script)}
	if t.argv != nil {
		keys[2] = "run: " + quotedList(t.argv)
	}
	if len(t.env) > 0 {
		keys = append(keys, "env: "+mapping(t.env))
	}
	for name, list := range map[string][]string{"pass_env": t.pass, "secrets": t.secrets, "key_env": t.keyed} {
		if len(list) > 0 {
			keys = append(keys, name+": "+quotedList(shuffle(list)))
		}
	}
	if t.inEnvironment {
		keys = append(keys, "environment: py")
	}
	if t.version != "" {
		keys = append(keys, "version: "+quotedText(t.version))
	}
	if t.dimension != "" {
		keys = append(keys, fmt.Sprintf("matrix: {%s: %s}", t.dimension, quotedList(t.items)))
	}
	for name, value := range t.policy {
		keys = append(keys, name+": "+value)
	}
	slices.Sort(keys)
	return fmt.Sprintf("  %s: {%s}\n", t.name, strings.Join(shuffle(keys), ", "))
}

func (t *declaredTask) outputs() string {
	var list []string
	for _, o := range t.out {
		what := "file"
		if o.dir {
			what = "dir"
		}
		keys := what + ": " + quotedText(o.path)
		if o.executable {
			keys += ", executable: true"
		}
		if o.role != "" {
			keys += ", kind: " + o.role
		}
		if list = append(list, "{"+keys+"}"); t.several {
			list[len(list)-1] = o.name + ": " + list[len(list)-1]
		}
	}
	if !t.several {
		return list[0]
	}
	return "{" + strings.Join(list, ", ") + "}"
}

// names are the names of a task's items, or its own.
func (t *declaredTask) names() []string {
	if t.dimension == "" {
		return []string{t.name}
	}
	var list []string
	for _, item := range t.items {
		list = append(list, t.name+"["+item+"]")
	}
	return list
}

// put writes the project to disk; was, which may be nil, is the declaration that is there already. It does not touch
// unchanged files.
func (d *declaration) put(h *house, was *declaration) {
	h.Helper()
	if was == nil {
		was = &declaration{}
	}
	for path := range was.files {
		if _, ok := d.files[path]; !ok {
			h.must(os.Remove(filepath.Join(h.dir, path)))
		}
	}
	for path := range was.links {
		h.must(os.Remove(filepath.Join(h.dir, path)))
	}
	for _, path := range was.folders {
		h.must(os.Remove(filepath.Join(h.dir, path)))
	}
	for path, f := range d.files {
		if old, ok := was.files[path]; ok && old == f {
			continue
		}
		h.write(path, f.text)
		h.must(os.Chmod(filepath.Join(h.dir, path), map[bool]os.FileMode{false: 0o644, true: 0o755}[f.executable]))
	}
	for path, target := range d.links {
		h.must(os.Symlink(target, filepath.Join(h.dir, path)))
	}
	for _, path := range d.folders {
		h.must(os.Mkdir(filepath.Join(h.dir, path), 0o755))
	}
	h.write("e3.yaml", d.yaml())
}

// A maker replaces every command: it writes the same bytes to each output, so that readers see no change.
type maker struct{}

// Run implements executions.Runner.
func (maker) Run(_ context.Context, spec runner.Spec) (runner.Result, error) {
	for _, entry := range spec.Env {
		name, path, _ := strings.Cut(entry, "=")
		if !strings.HasPrefix(name, "out") {
			continue
		}
		path = filepath.Join(spec.Dir, path)
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			path = filepath.Join(path, "file")
		}
		if err := os.WriteFile(path, []byte("made"), 0o755); err != nil {
			return runner.Result{}, err
		}
	}
	return runner.Result{}, nil
}

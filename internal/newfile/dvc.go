package newfile

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"e3/internal/format/manifest"
)

// A Note is something of a dvc.yaml that the package file does not have in the same way.
type Note struct {
	File string
	Line int
	Text string // the part of dvc.yaml, and what to do by hand
	Lost bool   // the part could not be carried over
}

func (n Note) String() string { return fmt.Sprintf("%s:%d: %s", n.File, n.Line, n.Text) }

// FromDVC drafts a package file for a pipeline of DVC. fsys is the folder of the package file, and file the path of the
// pipeline in it. The files that the pipeline names are read: parameters, dvc.lock, programs. Nothing of it is run.
//
// Commands stay as they are, because a task finds its inputs at the paths that they have in the project. Outputs are
// published where DVC has them.
func FromDVC(fsys fs.FS, file, name string) (*Draft, []Note, error) {
	if peer := peerOf(file); peer != "" {
		return nil, nil, fmt.Errorf("%s is of %s, and to translate it would run it: its rules become tasks by hand; "+
			"doc/coming-from.md has the idioms of other programs beside those of e3", file, peer)
	}
	data, err := fs.ReadFile(fsys, file)
	if err != nil {
		return nil, nil, err
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", file, err)
	}
	c := &converter{
		Draft: &Draft{Name: packageName(name), Results: "."}, fsys: fsys, file: file,
		read: map[string]manifest.Object{}, made: map[string]*made{}, locked: map[string]bool{}, figures: map[string][]figure{},
	}
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
	c.findEnvironments(fsys) // proposed in comments: the programs of today work as they are
	c.head()
	return c.Draft, c.notes, nil
}

// DVCFolder is the folder in which the package file of a pipeline belongs: that of the pipeline, or, if its paths lead
// up, the folder of the project, which has .dvc or .git.
func DVCFolder(file string) string {
	dir := filepath.Dir(file)
	if data, err := os.ReadFile(file); err != nil || !strings.Contains(string(data), "..") {
		return dir
	}
	at, err := filepath.Abs(dir)
	for ; err == nil && at != filepath.Dir(at); at = filepath.Dir(at) {
		for _, mark := range []string{".dvc", ".git"} {
			if _, err := os.Stat(filepath.Join(at, mark)); err == nil {
				return at
			}
		}
	}
	return dir
}

type converter struct {
	*Draft
	fsys    fs.FS
	file    string // dvc.yaml
	common  context
	read    map[string]manifest.Object // files of parameters that were read; nil values: they are none
	stages  []*stage
	made    map[string]*made    // outputs by path; that of a family has names in braces
	locked  map[string]bool     // the outputs of dvc.lock: whether they are folders
	figures map[string][]figure // metrics and plots by path, of the top of dvc.yaml
	notes   []Note
}

func (c *converter) note(n *yaml.Node, lost bool, format string, args ...any) {
	note := Note{c.file, n.Line, fmt.Sprintf(format, args...), lost}
	if !slices.Contains(c.notes, note) {
		c.notes = append(c.notes, note)
	}
}

// dir is the folder of dvc.yaml.
func (c *converter) dir() string { return path.Dir(c.file) }

// pairs calls a function for each pair of a mapping.
func pairs(n *yaml.Node, each func(key, value *yaml.Node)) {
	if n = resolved(n); n.Kind != yaml.MappingNode {
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

// field is the value of a key; nil if there is none.
func field(n *yaml.Node, name string) (found *yaml.Node) {
	pairs(n, func(k, v *yaml.Node) {
		if k.Value == name {
			found = v
		}
	})
	return found
}

// lock reads from dvc.lock which outputs are folders.
func (c *converter) lock() {
	data, err := fs.ReadFile(c.fsys, path.Join(c.dir(), "dvc.lock"))
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
			c.locked[path.Join(c.dir(), o.Path)] = strings.HasSuffix(o.MD5, ".dir")
		}
	}
}

// top reads the top-level keys: values first, because stages use them.
func (c *converter) top(root *yaml.Node) {
	if v := field(root, "vars"); v != nil {
		c.vars(v, &c.common, c.dir())
	}
	c.load(&c.common, path.Join(c.dir(), "params.yaml"), "", nil)
	pairs(root, func(key, v *yaml.Node) {
		switch key.Value {
		case "vars", "params", "stages":
		case "metrics":
			for _, n := range paths(v) {
				p := path.Join(c.dir(), n.Value)
				c.figures[p] = append(c.figures[p], figure{kind: "metrics", node: n})
			}
		case "plots":
			c.plots(v)
		case "artifacts", "datasets":
			c.note(key, false, "%s: it describes files for DVC's registry and has no counterpart; nothing of the pipeline is lost", key.Value)
		default:
			c.note(key, true, "%s: e3 new does not know this key; look up what it does, and do it by hand", key.Value)
		}
	})
	if stages := field(root, "stages"); stages != nil {
		pairs(stages, c.stage)
	}
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

// convert makes tasks of the stages: first their outputs, then what they read. A family whose items read files that one
// task with a matrix cannot name is written out, which may concern the families that read its outputs.
func (c *converter) convert() {
	for again := true; again; {
		c.made, again = map[string]*made{}, false
		before := slices.Clone(c.notes)
		var live []*stage
		for _, s := range c.stages {
			if s.declare() {
				live = append(live, s)
			}
		}
		c.Inputs, c.Tasks, c.named = nil, nil, nil
		lost := slices.DeleteFunc(slices.Clone(live), func(s *stage) bool { return s.family == nil || s.nameable() })
		if again = len(lost) > 0; again {
			var next []*stage
			c.notes = before
			for _, s := range c.stages {
				if slices.Contains(lost, s) {
					next = append(next, s.copy()...)
				} else {
					next = append(next, s)
				}
			}
			c.stages = next
			continue
		}
		c.names(live)
		for _, s := range live {
			s.reads()
			c.Tasks = append(c.Tasks, s.task)
		}
	}
	c.unplaced()
}

// names gives each task its name, which no input may have.
func (c *converter) names(stages []*stage) {
	c.named = map[string]bool{}
	for _, s := range stages {
		name := packageName(strings.ReplaceAll(s.name, "@", "-"))
		base := name[:min(len(name), 60)]
		name = base
		for i := 2; c.named[name]; i++ {
			name = fmt.Sprintf("%s-%d", base, i)
		}
		c.named[name] = true
		s.task.Name = name
	}
}

// head is the comment at the top: the origin of the file, and the parts to check.
func (c *converter) head() {
	c.Head = []string{
		"Made by e3 new from " + c.file + ". Commands are as they were: a task finds its inputs at the paths that they have here,",
		"and nothing else: what a program reads or imports has to be among its inputs.",
	}
	slices.SortStableFunc(c.notes, func(a, b Note) int { return a.Line - b.Line })
	if len(c.notes) > 0 {
		c.Head = append(c.Head, "", "To look at:")
		for _, n := range c.notes {
			c.Head = append(c.Head, "  "+n.String())
		}
	}
}

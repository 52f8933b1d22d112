package workspace

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"unicode/utf8"

	"e3/internal/format/manifest"
	"e3/internal/format/record"
	"e3/internal/format/value"
	"e3/internal/host/tools"
	"e3/objectstore"
)

// The value of a variable of key_env, and the parts of a program of tools, are inputs of the package. Each start
// reads them on its own machine, under the lock, whether the workspace follows a package file or not. So a package
// holds no such value; the tree holds the value of the latest start. Everything else treats these inputs like any
// others.

// keyed returns the names, in key order, of the variables whose values are inputs of a task.
func keyed(s *manifest.Spec) []string {
	if s.Env == nil || len(s.Env.Keyed) == 0 {
		return nil
	}
	return record.Names(s.Env.Keyed)
}

// programs returns the names, in key order, of the programs that are inputs of a task. A program of the project is an
// input itself; its value is what this machine has to interpret or to load it. In an image it is no input: the image
// decides.
func programs(def *manifest.Definition, s *manifest.Spec) []string {
	var names []string
	if s.Env != nil {
		names = append(names, s.Env.Tools...)
	}
	if p := def.EnvironmentOf(s); p != nil {
		names = append(names, p.Tools...)
	}
	if def.ImageOf(s) == "" {
		names = append(names, s.ToolFiles...)
	}
	return record.Names(names)
}

// variableInputs returns the inputs, in key order, for the variables and programs of all tasks, also of those that
// follow from lists of items and are not known yet.
func variableInputs(def *manifest.Definition) []record.PackageInput {
	var names []string
	named := map[string]bool{}
	var last *manifest.Spec // shared by the tasks of a matrix
	add := func(s *manifest.Spec) {
		if s == last {
			return
		}
		last = s
		names = append(names, keyed(s)...)
		for _, name := range programs(def, s) {
			named[name] = true
		}
	}
	for i := range def.Tasks {
		add(def.Tasks[i].Spec)
	}
	for i := range def.Families {
		add(def.Families[i].Spec)
	}
	unassigned := record.Leaf{Kind: record.LeafUnassigned}
	var list []record.PackageInput
	for _, name := range record.Names(names) {
		list = append(list, record.PackageInput{Name: record.VariableInput(name), Source: record.FromVariable, Location: name, Default: unassigned})
	}
	for _, name := range record.Names(slices.Collect(maps.Keys(named))) {
		list = append(list, record.PackageInput{Name: record.ToolInput(name), Source: record.FromTool, Location: name, Default: unassigned})
	}
	return list
}

// variable returns the value of a variable in this process's environment: null if it is unset, unlike the empty text.
func (w *Deployer) variable(name string) ([]byte, error) {
	text, set := w.states.Getenv(name)
	if !set {
		return value.Encode(nil)
	}
	if !utf8.ValidString(text) {
		return nil, fmt.Errorf("the value of environment variable %s is not UTF-8 text: give it another, or unset it", name)
	}
	return value.Encode(text)
}

// tool returns the parts of a program of this machine.
func (w *Deployer) tool(ctx context.Context, name string, from *source) ([]byte, error) {
	if w.states.Tools == nil {
		return nil, fmt.Errorf("programs cannot be read here")
	}
	var parts []tools.Part
	var err error
	if !record.ToolFile(name) {
		parts, err = w.states.Tools.Find(name)
	} else if leaf, _ := from.inputs.Get(name); leaf.Kind == record.LeafFile {
		parts, err = w.states.Tools.Around(name, leaf.Hash, func() (io.ReadCloser, error) { return openTool(ctx, w.states.Objects, name, leaf.Hash, from) })
	} else {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%w: install it, or take it from the task's tools", err)
	}
	return value.Encode(tools.Text(parts))
}

// A source says where to read programs of the project: from inputs, or from files, since a preview stores no input.
type source struct {
	inputs record.Node
	folder string // of the package file; "": unknown
}

// openTool opens a program of the project.
func openTool(ctx context.Context, objects objectstore.Store, name, hash string, from *source) (io.ReadCloser, error) {
	h, err := objectstore.ParseHash(hash)
	if err != nil {
		return nil, err
	}
	r, err := objects.Open(ctx, h)
	if errors.Is(err, objectstore.ErrNotFound) && from.folder != "" {
		return os.Open(filepath.Join(from.folder, filepath.FromSlash(name)))
	}
	return r, err
}

// taken returns the entries of a node that hold variables and programs, with their present values, and the bytes of
// these values.
func (w *Deployer) taken(ctx context.Context, inputs record.Node, from *source) (list []record.NodeEntry, data [][]byte, err error) {
	for i := range inputs {
		var bytes []byte
		if name, ok := record.VariableOf(inputs[i].Name); ok {
			bytes, err = w.variable(name)
		} else if name, ok := record.ToolOf(inputs[i].Name); ok {
			bytes, err = w.tool(ctx, name, from)
		}
		if err != nil {
			return nil, nil, &InputError{Input: inputs[i].Name, Err: err}
		}
		if bytes == nil {
			continue
		}
		leaf := record.Leaf{Kind: record.LeafValue, Hash: objectstore.Sum(bytes).String()}
		list, data = append(list, record.NodeEntry{Name: inputs[i].Name, Leaf: leaf}), append(data, bytes)
	}
	return list, data, nil
}

// retake reads programs again whose file a run overrides (Override).
func retake(ctx context.Context, w *Deployer, inputs record.Node, set []Override) (record.Node, error) {
	if !slices.ContainsFunc(set, func(o Override) bool { return record.ToolFile(o.Name) }) {
		return inputs, nil
	}
	list, data, err := w.taken(ctx, inputs, &source{inputs: inputs})
	for i := 0; i < len(list) && err == nil; i++ {
		inputs = inputs.Set(list[i].Name, list[i].Leaf)
		_, err = objectstore.PutBytes(ctx, w.states.Objects, data[i])
	}
	return inputs, err
}

// outdated tells whether a variable's present value differs from the tree's.
func (w *Deployer) outdated(ctx context.Context, t *tree) (bool, error) {
	list, _, err := w.taken(ctx, t.inputs, &source{inputs: t.inputs})
	return slices.ContainsFunc(list, func(e record.NodeEntry) bool {
		have, _ := t.inputs.Get(e.Name)
		return have != e.Leaf
	}), err
}

// setVariables stores the present values and assigns them to a tree.
func (w *Deployer) setVariables(ctx context.Context, t *tree) error {
	list, data, err := w.taken(ctx, t.inputs, &source{inputs: t.inputs})
	if err != nil {
		return err
	}
	for i, e := range list {
		if _, err := objectstore.PutBytes(ctx, w.states.Objects, data[i]); err != nil {
			return &InputError{Input: e.Name, Err: err}
		}
		t.inputs = t.inputs.Set(e.Name, e.Leaf)
	}
	return nil
}

// takeVariables updates the workspace's inputs that hold variables.
func (r *run) takeVariables(ctx context.Context) error {
	t, err := r.w.states.readTree(ctx, r.state.RootHash, inputsPart)
	if err != nil {
		return fmt.Errorf("workspace %s: %w", r.ws, r.w.states.notRunnable(ctx, r.state, err))
	}
	if old, err := r.w.deployer.outdated(ctx, t); err != nil || !old {
		return err
	}
	_, err = r.w.states.edit(ctx, r.lock, r.ws, r.durable, inputsPart, func(_ *State, t *tree) error { return r.w.deployer.setVariables(ctx, t) })
	if err != nil {
		return err
	}
	return r.hold(ctx)
}

// storeVariables stores the values again, since some may be lost.
func (w *Deployer) storeVariables(ctx context.Context, inputs record.Node) error {
	_, data, err := w.taken(ctx, inputs, &source{inputs: inputs})
	for i := 0; i < len(data) && err == nil; i++ {
		_, err = objectstore.PutBytes(ctx, w.states.Objects, data[i])
	}
	return err
}

// restoreVariables is storeVariables for the state that the run works from.
func (r *run) restoreVariables(ctx context.Context) error {
	inputs, err := r.w.states.readNode(ctx, r.inputs)
	if err != nil {
		return context.Cause(ctx) // an unreadable value stays lost
	}
	return r.w.deployer.storeVariables(ctx, inputs)
}

// previewVariables assigns the present values of variables to a preview, as a start of this process would.
func (w *Deployer) previewVariables(ctx context.Context, p *preview) error {
	named := make(record.Node, 0)
	for i := range p.pkg.Inputs {
		if in := &p.pkg.Inputs[i]; in.Source.OfMachine() {
			named = append(named, record.NodeEntry{Name: in.Name})
		}
	}
	from := &source{inputs: p.inputs}
	if p.file != "" {
		from.folder = filepath.Dir(p.file)
	}
	list, data, err := w.taken(ctx, named, from)
	if err != nil || len(list) == 0 {
		return err
	}
	p.inputs = slices.Clone(p.inputs)
	if p.fresh == nil {
		p.fresh = map[string]bool{}
	}
	for i, e := range list {
		if _, err := objectstore.PutBytes(ctx, w.states.Objects, data[i]); err != nil {
			return &InputError{Input: e.Name, Err: err}
		}
		p.fresh[e.Name] = true // a missing value is stored again
		p.inputs = p.inputs.Set(e.Name, e.Leaf)
	}
	return nil
}

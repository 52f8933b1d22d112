package workspace

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"e3/internal/format/manifest"
	"e3/internal/format/record"
	"e3/internal/human"
	"e3/objectstore"
)

// An Override gives an input a value for one run ("e3 start --set"). The run works on inputs of its own, which its
// record names; the workspace's tree stays as it is, and gets none of the results.
type Override struct {
	Name string // of an input or a parameter; a parameter may be given by its path alone
	// Value is the plain value of an input that is a value. Text is the user's spelling of the value, "" for JSON.
	Value any
	Text  string
	// Path is the path of a file or directory; for an input that is a value, of a YAML or JSON file with the value.
	// "": Value counts.
	Path string
}

// An OverrideError says why an input cannot have a value.
type OverrideError struct {
	Name string
	Err  error
}

func (e *OverrideError) Error() string { return fmt.Sprintf("--set %s: %v", e.Name, e.Err) }

func (e *OverrideError) Unwrap() error { return e.Err }

// overridden returns the inputs of a workspace with the overrides, and for the record each overridden input's value as
// JSON, by name. An input may be named with its workspace, as for Set.
func (w *Datasets) overridden(ctx context.Context, ws string, pkg *record.Package, inputs record.Node, set []Override) (record.Node, map[string]json.RawMessage, error) {
	told := map[string]json.RawMessage{}
	for i := range set {
		o := &set[i]
		in, now, err := w.overridable(ctx, pkg, inputs, o.Name)
		if name, its := strings.CutPrefix(o.Name, ws+"."); its && errors.As(err, new(*UnknownError)) {
			if found, leaf, fault := w.overridable(ctx, pkg, inputs, name); fault == nil {
				o.Name, in, now, err = name, found, leaf, nil
			}
		}
		if err == nil && told[in.Name] != nil {
			err = errors.New("it is given twice")
		}
		if err == nil {
			inputs, told[in.Name], err = w.override(ctx, inputs, in, now, o)
		}
		if err != nil {
			return nil, nil, &OverrideError{o.Name, err}
		}
	}
	return inputs, told, nil
}

// unread warns of overrides that change nothing because no task reads the input.
func unread(pkg *record.Package, told map[string]json.RawMessage) (list []manifest.Warning) {
	for _, name := range slices.Sorted(maps.Keys(told)) {
		if !pkg.Reads(name) {
			list = append(list, manifest.Warning{Msg: fmt.Sprintf("--set %s changes nothing: no task reads it", name)})
		}
	}
	return list
}

// overridable finds the input that a name means, and the dataset that the run would have without the override.
func (w *Datasets) overridable(ctx context.Context, pkg *record.Package, inputs record.Node, name string) (*record.PackageInput, record.Leaf, error) {
	if i := slices.IndexFunc(pkg.Inputs, func(in record.PackageInput) bool { return in.Name == name }); i >= 0 {
		in := &pkg.Inputs[i]
		if err := settable(in); err != nil {
			return nil, record.Leaf{}, err
		}
		now, _ := inputs.Get(name)
		return in, now, nil
	}
	in, err := w.parameter(ctx, pkg, inputs, name)
	if err != nil {
		return nil, record.Leaf{}, err
	}
	now := in.Default
	in.Default = record.Leaf{Kind: record.LeafUnassigned} // so that the present value decides the kind
	if k := slices.IndexFunc(pkg.Inputs, func(p record.PackageInput) bool { return p.Name == in.Name }); k >= 0 {
		in = &pkg.Inputs[k]
	}
	return in, now, nil
}

// parameter finds the value of a file of parameters that a name means: the path of the value, behind the name of the
// file's input or alone. Its default is the present value.
func (w *Datasets) parameter(ctx context.Context, pkg *record.Package, inputs record.Node, name string) (found *record.PackageInput, err error) {
	unknown := &UnknownError{What: "input", Name: name}
	for i := range pkg.Inputs {
		in := &pkg.Inputs[i]
		if settable(in) == nil {
			unknown.Known = append(unknown.Known, in.Name)
		}
		if in.Source != record.FromParams || strings.Contains(in.Name, ".") {
			continue
		}
		leaf, _ := inputs.Get(in.Name)
		all, err := paramsOf(w.states).read(ctx, leaf)
		if err != nil {
			return nil, &InputError{Input: in.Name, Err: err}
		}
		path, _ := strings.CutPrefix(name, in.Name+".")
		v, ok := manifest.ValueAt(all, path)
		if !ok {
			for p := range manifest.ParamPaths(all) {
				unknown.Known = append(unknown.Known, p, in.Name+"."+p)
			}
			continue
		}
		of := *in
		of.Name = in.Name + "." + path
		if found != nil {
			return nil, fmt.Errorf("it may be %s or %s: write it out", found.Name, of.Name)
		}
		if of.Default, err = w.states.putValue(ctx, v); err != nil {
			return nil, err
		}
		found = &of
	}
	if found == nil {
		return nil, unknown
	}
	return found, nil
}

// override gives one input its value.
func (w *Datasets) override(ctx context.Context, inputs record.Node, in *record.PackageInput, now record.Leaf, o *Override) (record.Node, json.RawMessage, error) {
	if in.Source != record.FromValue && in.Source != record.FromParams {
		leaf, err := w.overridePath(ctx, in, o.Path, o.Text)
		if err != nil {
			return nil, nil, err
		}
		return inputs.Set(in.Name, leaf), appendTold(leaf.Hash), nil
	}
	v, text, err := o.Value, o.Text, error(nil)
	if o.Path != "" {
		data, err := os.ReadFile(o.Path)
		if err == nil {
			v, err = manifest.ParseValue(o.Path, data)
		}
		if err != nil {
			return nil, nil, err
		}
		text = ""
	}
	if v, err = w.fitOf(ctx, in.Default, func() (record.Leaf, error) { return now, nil }, v, text); err != nil {
		return nil, nil, err
	}
	told := appendTold(v)
	if in.Source == record.FromParams {
		inputs, err = paramsOf(w.states).with(ctx, inputs, in, v)
		return inputs, told, err
	}
	leaf, err := w.states.putValue(ctx, v)
	return inputs.Set(in.Name, leaf), told, err
}

// overridePath stores the content for an input that is a file or a directory.
func (w *Datasets) overridePath(ctx context.Context, in *record.PackageInput, path, text string) (record.Leaf, error) {
	what := "directory"
	if in.Source.IsOneFile() {
		what = "file"
	}
	if path == "" {
		return record.Leaf{}, fmt.Errorf("it is a %s, so give it as %s", what, human.Quoted("@"+cmp.Or(text, "path")))
	}
	info, err := os.Stat(path)
	if err != nil {
		return record.Leaf{}, err
	}
	if info.IsDir() == in.Source.IsOneFile() || !info.IsDir() && !info.Mode().IsRegular() {
		return record.Leaf{}, fmt.Errorf("it is a %s, and %s is not", what, path)
	}
	return w.PutPath(ctx, in.Source, path)
}

// maxTold bounds the text of a value in an event. The run's record names inputs that have it in full.
const maxTold = 1 << 10

// appendTold is a value as events tell it: its JSON, or null if the JSON is long.
func appendTold(v any) json.RawMessage {
	if text := manifest.AppendJSON(nil, v); len(text) <= maxTold {
		return text
	}
	return json.RawMessage("null")
}

// overrides are a run's own facts about its overrides.
type overrides struct {
	set map[string]json.RawMessage // what its first event tells
}

// override makes the run work on inputs of its own, if overrides are given, and on a package of its own if these
// inputs have other lists of items. It returns the hash of the inputs' node.
func (r *run) override(ctx context.Context, info *RunInfo, inputs string) (string, error) {
	if len(r.o.Set) == 0 {
		return inputs, nil
	}
	r.o.Publish = Never
	pkg := info.Package
	if pkg == nil {
		var err error
		if pkg, err = r.w.states.Packages.Load(ctx, r.state.PackageHash); err != nil {
			return "", fmt.Errorf("workspace %s: %w", r.ws, r.w.states.notRunnable(ctx, r.state, err))
		}
	}
	node, err := r.w.states.readNode(ctx, inputs)
	if err != nil {
		return "", err
	}
	node, r.set, err = r.w.deployer.datasets.overridden(ctx, r.ws, pkg, node, r.o.Set)
	if err == nil {
		node, err = retake(ctx, r.w.deployer, node, r.o.Set)
	}
	if err != nil {
		return "", err
	}
	info.Warnings = append(info.Warnings, unread(pkg, r.set)...)
	x, hash, err := r.w.deployer.regrown(ctx, pkg, node, func(string) bool { return false })
	if err != nil {
		return "", err
	}
	if x != nil {
		release, err := r.w.states.protect(ctx, "package "+hash)
		if err != nil {
			return "", fmt.Errorf("package %s: %w", pkg.Name, err)
		}
		r.held = append(r.held, release)
		info.Package, r.state.PackageHash = x.pkg, hash
	}
	h, err := objectstore.PutBytes(ctx, r.w.states.Objects, node.Encode())
	return h.String(), err
}

// tellSet appends the first event of a run with overrides before a task begins: nothing else tells the values of a run
// that is killed.
func (r *run) tellSet() error {
	if len(r.set) == 0 {
		return nil
	}
	return r.log.Flush()
}

// override gives a preview the inputs of a run with overrides, and the package that they make.
func (p *preview) override(ctx context.Context, dry *Deployer, ws string, set []Override) error {
	if len(set) == 0 {
		return nil
	}
	inputs, told, err := dry.datasets.overridden(ctx, ws, p.pkg, slices.Clone(p.inputs), set)
	if err == nil {
		inputs, err = retake(ctx, dry, inputs, set)
	}
	if err != nil {
		return err
	}
	p.warnings = append(p.warnings, unread(p.pkg, told)...)
	if p.fresh = maps.Clone(p.fresh); p.fresh == nil {
		p.fresh = map[string]bool{}
	}
	for i := range inputs {
		if was, _ := p.inputs.Get(inputs[i].Name); was != inputs[i].Leaf {
			p.fresh[inputs[i].Name] = true
		}
	}
	p.inputs = inputs
	x, hash, err := dry.regrown(ctx, p.pkg, inputs, func(string) bool { return false })
	if x != nil {
		p.pkg, p.pkgHash = x.pkg, hash
	}
	return err
}

// fitOf converts a value to the kind of the input's default or, without a default, of its present value.
func (w *Datasets) fitOf(ctx context.Context, def record.Leaf, present func() (record.Leaf, error), v any, text string) (any, error) {
	of, err := w.valueOf(ctx, def)
	if err != nil {
		return nil, err
	}
	var refused error
	if of != nil {
		if of.IsNull() {
			return v, nil
		}
		var fitted any
		if fitted, refused = of.Fit(v, text); refused == nil {
			return fitted, nil
		}
	}
	leaf, err := present()
	if err != nil {
		return nil, err
	}
	if of, err = w.valueOf(ctx, leaf); err != nil {
		return nil, err
	}
	if of != nil && !of.IsNull() {
		fitted, err := of.Fit(v, text)
		if err == nil {
			return fitted, nil
		}
		if refused == nil {
			refused = err
		}
	}
	if refused == nil {
		return v, nil
	}
	return nil, refused
}

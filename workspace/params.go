package workspace

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"e3/internal/format/manifest"
	"e3/internal/format/record"
	"e3/internal/format/value"
	"e3/objectstore"
)

// A file of parameters is an input that holds the value of the whole file. Each value that tasks read is another input,
// made from it: params.train.rate from params. So the file's input decides: whatever changes it also makes the other
// inputs anew. "e3 set" marks the values that it sets by their paths, whether tasks read them or not; the file
// decides about the rest (doc/workspaces.md, Parameters).

// A third kind of input is a file that holds some of the values: a part. It is scanned like other files, and follows
// the values of the file's input like the second kind.

// params makes the inputs of files of parameters.
type params struct{ states *States }

// A paramFile is a file of parameters: the name of its input, and its path, which says its form.
type paramFile struct{ name, location string }

// paramFileOf is the file that an input is, or is a part of.
func paramFileOf(in *record.PackageInput) paramFile {
	name, _, part := record.ParamOf(in.Name)
	if !part {
		name = in.Name
	}
	return paramFile{name, in.Location}
}

func paramsOf(w *States) params { return params{w} }

// maxParams bounds a file of parameters, which is read into memory by each start that finds it changed.
const maxParams = 16 << 20

// A ParamsError says what is wrong with the values of a file of parameters.
type ParamsError struct{ Where, Msg string }

func (e *ParamsError) Error() string { return e.Where + ": " + e.Msg }

const noMapping = "it must be a mapping of names to values"

// params reads a file of parameters, or several, as a value.
func (s *scan) params(ctx context.Context, in *record.LinkInput) (record.Leaf, error) {
	return s.derived(ctx, in, func(data [][]byte) (record.Leaf, error) {
		v, err := paramsIn(in.Location, data)
		if err != nil {
			return record.Leaf{}, err
		}
		return s.states.putValue(ctx, v)
	})
}

// part reads some values of a file of parameters as a file.
func (s *scan) part(ctx context.Context, in *record.LinkInput) (record.Leaf, error) {
	_, only, _ := record.PartOf(in.Name)
	return s.derived(ctx, in, func(data [][]byte) (record.Leaf, error) {
		text, err := manifest.PartOf(in.Location, data[0], only)
		if err != nil {
			return record.Leaf{}, err
		}
		return s.states.putText(ctx, text)
	})
}

// putText stores a file that e3 itself has written.
func (w *States) putText(ctx context.Context, text []byte) (record.Leaf, error) {
	h, err := objectstore.PutBytes(ctx, w.Objects, text)
	return record.Leaf{Kind: record.LeafFile, Hash: h.String(), Size: int64(len(text))}, err
}

// derived reads the files of parameters from which the input's dataset is made, unless they are unchanged.
func (s *scan) derived(ctx context.Context, in *record.LinkInput, dataset func([][]byte) (record.Leaf, error)) (record.Leaf, error) {
	files := manifest.FilesOf(in.Location)
	same := len(in.Files) == len(files) && in.Leaf.Hash == objectstore.Hash(in.Files[0].Hash).String()
	for i, file := range files {
		path := filepath.Join(s.base, filepath.FromSlash(file))
		info, err := os.Stat(path)
		if err != nil {
			return record.Leaf{}, err
		}
		if !info.Mode().IsRegular() {
			return record.Leaf{}, &objectstore.SpecialFileError{Path: path, Mode: info.Mode().Type()}
		}
		same = same && proves(in.Files[i].Stat, fileStat(info))
	}
	if same && (!s.verify || s.refresh(ctx, in.Files[0].Hash)) {
		return in.Leaf, nil
	}
	data, read := make([][]byte, len(files)), make([]record.LinkFile, len(files))
	for i, file := range files {
		var err error
		if data[i], read[i].Stat, err = s.steady(filepath.Join(s.base, filepath.FromSlash(file))); err != nil {
			return record.Leaf{}, err
		}
		read[i].Path = file
	}
	leaf, err := dataset(data)
	if err != nil {
		return record.Leaf{}, err
	}
	h, err := objectstore.ParseHash(leaf.Hash)
	for i := range read {
		read[i].Hash = h
	}
	in.Files = read
	s.touched.Store(true)
	return leaf, err
}

// steady is readSteady, tried again while the file changes.
func (s *scan) steady(path string) ([]byte, record.FileStat, error) {
	for try := 1; ; try++ {
		seen := s.states.Now().UnixNano()
		data, stat, err := readSteady(path)
		if stat.Seen = seen; !errors.Is(err, errMoving) || try == attempts {
			return data, stat, err
		}
	}
}

var errMoving = errors.New("the file changed while it was read")

// readSteady reads a file in a moment in which the file does not change, and returns its content and stat.
func readSteady(path string) ([]byte, record.FileStat, error) {
	f, err := objectstore.OpenFile(path)
	if err != nil {
		return nil, record.FileStat{}, err
	}
	defer f.Close()
	before, err := f.Stat()
	if err != nil {
		return nil, record.FileStat{}, err
	}
	data, err := io.ReadAll(io.LimitReader(f, maxParams+1))
	if err != nil {
		return nil, record.FileStat{}, err
	}
	if len(data) > maxParams {
		return nil, record.FileStat{}, fmt.Errorf("%s has more than %d MiB, which is too large for parameters: make it a file input", path, maxParams>>20)
	}
	after, err := f.Stat()
	if err == nil && (fileStat(after) != fileStat(before) || int64(len(data)) != after.Size()) {
		err = fmt.Errorf("%s: %w", path, errMoving)
	}
	return data, fileStat(before), err
}

// paramsIn is the value of files of parameters: later ones lie over earlier ones.
func paramsIn(location string, data [][]byte) (any, error) {
	var whole manifest.Object
	for i, name := range manifest.FilesOf(location) {
		v, err := manifest.ParseValue(name, data[i])
		if err != nil {
			return nil, err
		}
		o, ok := v.(manifest.Object)
		if !ok {
			return nil, &ParamsError{name, noMapping}
		}
		if i > 0 {
			o = manifest.Overlaid(whole, o)
		}
		whole = o
	}
	return whole, nil
}

// define gives the definition the values of its files of parameters, taken from the link.
func (p params) define(ctx context.Context, def *manifest.Definition, link *record.Link) error {
	files := map[string]record.Leaf{}
	for i := range link.Inputs {
		if in := &link.Inputs[i]; in.Source == record.FromParams {
			files[in.Name] = in.Leaf
		}
	}
	return p.give(ctx, def, files)
}

// redefine is define for an expanded definition. It takes the values from the package: they have the same forms as
// the workspace's values.
func (p params) redefine(ctx context.Context, def *manifest.Definition, pkg *record.Package) error {
	files := map[string]record.Leaf{}
	for i := range pkg.Inputs {
		in := &pkg.Inputs[i]
		if _, _, part := record.ParamOf(in.Name); !part && in.Source == record.FromParams {
			files[in.Name] = in.Default
		}
	}
	return p.give(ctx, def, files)
}

// give sets the parameters of a definition from the given files of parameters.
func (p params) give(ctx context.Context, def *manifest.Definition, files map[string]record.Leaf) error {
	content := make(map[string]any, len(files))
	for name, leaf := range files {
		v, err := p.read(ctx, leaf)
		if err != nil {
			return &InputError{Input: name, Err: err}
		}
		content[name] = v
	}
	if len(content) == 0 {
		return nil
	}
	return def.SetParams(func(input string) any { return content[input] })
}

// checkParams reports what is wrong with the files of parameters of a definition that is relative to base.
func checkParams(def *manifest.Definition, base string) error {
	content := map[string]any{}
	for i := range def.Inputs {
		in := &def.Inputs[i]
		if in.Kind != manifest.ParamsInput {
			continue
		}
		var data [][]byte
		var err error
		for _, file := range manifest.FilesOf(in.Path) {
			text, _, fault := readSteady(filepath.Join(base, filepath.FromSlash(file)))
			data, err = append(data, text), cmp.Or(err, fault)
		}
		if err == nil {
			content[in.Name], err = paramsIn(in.Path, data)
		}
		if err != nil && !errors.Is(err, errMoving) {
			return &InputError{Input: in.Name, Err: err}
		}
	}
	if len(content) == 0 {
		return nil
	}
	return def.SetParams(func(input string) any { return content[input] })
}

// read reads the value of a leaf.
func (p params) read(ctx context.Context, leaf record.Leaf) (any, error) {
	h, err := objectstore.ParseHash(leaf.Hash)
	if err != nil {
		return nil, err
	}
	data, err := objectstore.ReadAll(ctx, p.states.Objects, h, value.MaxBytes)
	if err != nil {
		return nil, err
	}
	v, err := value.Decode(data)
	if err != nil {
		return nil, err
	}
	return v.Plain()
}

// reshaped tells whether files of parameters differ in more than the values of tasks' parameters. It also matters
// whether a value has a text: that decides how a task gets the value, which is part of the task. before holds the
// former leaves of the files.
func (p params) reshaped(ctx context.Context, link *record.Link, before map[string]record.Leaf) bool {
	for i := range link.Inputs {
		in := &link.Inputs[i]
		if in.Source != record.FromParams || in.Leaf == before[in.Name] {
			continue
		}
		was, errWas := p.read(ctx, before[in.Name])
		is, errIs := p.read(ctx, in.Leaf)
		if errWas != nil || errIs != nil || !sameShape(was, is) {
			return true
		}
	}
	return false
}

// sameShape tells whether two values have the same names, and texts in the same places.
func sameShape(a, b any) bool {
	x, objectA := a.(manifest.Object)
	y, objectB := b.(manifest.Object)
	if !objectA && !objectB {
		_, textA := manifest.ScalarText(a)
		_, textB := manifest.ScalarText(b)
		return textA == textB
	}
	if !objectA || !objectB || len(x) != len(y) {
		return false
	}
	return !slices.ContainsFunc(x, func(m manifest.Member) bool {
		other, ok := manifest.ValueAt(y, m.Name)
		if strings.Contains(m.Name, ".") { // no path can name it
			return false
		}
		return !ok || !sameShape(m.Value, other)
	})
}

// paramLeaves are the leaves of the link's files of parameters, by name.
func paramLeaves(link *record.Link) map[string]record.Leaf {
	leaves := map[string]record.Leaf{}
	for i := range link.Inputs {
		if in := &link.Inputs[i]; in.Source == record.FromParams {
			leaves[in.Name] = in.Leaf
		}
	}
	return leaves
}

// covers tells whether a mark is for a name or a part of it.
func covers(name, mark string) bool {
	return mark == name || len(mark) > len(name) && mark[len(name)] == '.' && mark[:len(name)] == name
}

// marking adds a mark.
func marking(marks []string, name string) []string {
	if slices.Contains(marks, name) {
		return marks
	}
	return append(marks, name)
}

// without removes the mark of an input, and the marks of its parts.
func without(marks []string, name string) []string {
	return slices.DeleteFunc(marks, func(mark string) bool { return covers(name, mark) })
}

// isSet tells whether marks say that an input was set, by itself or as a part of something that was set.
func isSet(marks []string, name string) bool {
	return slices.ContainsFunc(marks, func(mark string) bool { return covers(mark, name) })
}

// marksOf are the marks that concern a file of parameters, wider marks before narrower ones.
func marksOf(file string, marks []string) []string {
	var list []string
	for _, m := range marks {
		if covers(file, m) {
			list = append(list, m)
		}
	}
	slices.Sort(list)
	return list
}

// paramFiles are the files of parameters of a package.
func paramFiles(pkg *record.Package) []paramFile {
	var list []paramFile
	for i := range pkg.Inputs {
		if in := &pkg.Inputs[i]; in.Source == record.FromParams && !strings.Contains(in.Name, ".") {
			list = append(list, paramFileOf(in))
		}
	}
	return list
}

// assign gives the inputs of a file of parameters the values of the dataset base or, where marks say that they were
// set, of the dataset from. A set value stays if base has its path and gives tasks the same form.
func (p params) assign(ctx context.Context, inputs record.Node, file paramFile, base, from record.Leaf, marks []string) (record.Node, error) {
	whole, err := p.read(ctx, base)
	if err != nil {
		return nil, &InputError{Input: file.name, Err: err}
	}
	given := whole
	if marks = marksOf(file.name, marks); len(marks) > 0 && from.Kind == record.LeafValue {
		set, err := p.read(ctx, from)
		if err != nil {
			return nil, &InputError{Input: file.name, Err: err}
		}
		whole = overlaid(whole, set, file.name, marks)
	}
	return p.project(ctx, inputs, file, whole, given)
}

// overlaid returns the value whole, in which the values that marks name are taken from set.
func overlaid(whole, set any, file string, marks []string) any {
	if slices.Contains(marks, file) {
		return set
	}
	for _, m := range marks {
		path := m[len(file)+1:]
		was, there := manifest.ValueAt(whole, path)
		v, ok := manifest.ValueAt(set, path)
		_, textWas := manifest.ScalarText(was)
		_, textIs := manifest.ScalarText(v)
		if there && ok && textWas == textIs {
			whole, _ = manifest.WithValue(whole, path, v)
		}
	}
	return whole
}

// project stores the value of a file of parameters, whole, and the values of its inputs. A value that tasks read and
// that whole lacks is taken from fallback. Of a part, inputs must hold the text as the file has it.
func (p params) project(ctx context.Context, inputs record.Node, file paramFile, whole, fallback any) (record.Node, error) {
	inputs = slices.Clone(inputs)
	var read, parts []string
	for i := range inputs {
		of, path, ok := record.ParamOf(inputs[i].Name)
		if !ok || of != file.name {
			continue
		}
		if _, only, part := record.PartOf(inputs[i].Name); part {
			parts = append(parts, inputs[i].Name)
			read = append(read, only...)
		} else {
			read = append(read, path)
		}
	}
	for _, path := range read {
		if _, ok := manifest.ValueAt(whole, path); ok {
			continue
		}
		v, ok := manifest.ValueAt(fallback, path)
		if ok {
			whole, ok = manifest.WithValue(whole, path, v)
		}
		if !ok {
			return nil, &ParamsError{"input " + file.name, fmt.Sprintf("it has no value %q, which a task reads", path)}
		}
	}
	assign := func(name string, v any) error {
		leaf, err := p.states.putValue(ctx, v)
		if err != nil {
			return &InputError{Input: name, Err: err}
		}
		inputs = inputs.Set(name, leaf)
		return nil
	}
	for _, path := range read {
		name := file.name + "." + path
		if _, ok := inputs.Get(name); !ok {
			continue // only parts have it
		}
		v, _ := manifest.ValueAt(whole, path)
		if err := assign(name, v); err != nil {
			return nil, err
		}
	}
	for _, name := range parts {
		have, _ := inputs.Get(name)
		leaf, err := p.part(ctx, have, name, file.location, whole)
		if err != nil {
			return nil, &InputError{Input: name, Err: err}
		}
		inputs = inputs.Set(name, leaf)
	}
	return inputs, assign(file.name, whole)
}

// part is a part with the values of whole. have is the part with its present text.
func (p params) part(ctx context.Context, have record.Leaf, name, location string, whole any) (record.Leaf, error) {
	h, err := objectstore.ParseHash(have.Hash)
	if err != nil {
		return record.Leaf{}, err
	}
	text, err := objectstore.ReadAll(ctx, p.states.Objects, h, maxParams)
	if err != nil {
		return record.Leaf{}, err
	}
	_, only, _ := record.PartOf(name)
	again, err := manifest.Repart(location, text, only, whole)
	if err != nil || bytes.Equal(again, text) {
		return have, err
	}
	return p.states.putText(ctx, again)
}

// with returns inputs after a parameter, or the whole file, was set to a value.
func (p params) with(ctx context.Context, inputs record.Node, in *record.PackageInput, v any) (record.Node, error) {
	file := paramFileOf(in)
	_, path, part := record.ParamOf(in.Name)
	if !part {
		if _, ok := v.(manifest.Object); !ok {
			return nil, &ParamsError{"input " + in.Name, noMapping}
		}
		return p.project(ctx, inputs, file, v, nil)
	}
	have, _ := inputs.Get(file.name)
	whole, err := p.read(ctx, have)
	if err != nil {
		return nil, &InputError{Input: file.name, Err: err}
	}
	whole, ok := manifest.WithValue(whole, path, v)
	if !ok {
		return nil, &ParamsError{"input " + in.Name, "a part of its path holds no mapping"}
	}
	return p.project(ctx, inputs, file, whole, nil)
}

// differingParams are the paths at which two values differ, without members that only one of them has.
func differingParams(base, have any, at string) []string {
	x, objectA := base.(manifest.Object)
	y, objectB := have.(manifest.Object)
	if !objectA || !objectB {
		if bytes.Equal(manifest.AppendJSON(nil, base), manifest.AppendJSON(nil, have)) {
			return nil
		}
		return []string{at}
	}
	var list []string
	for _, m := range y {
		if was, ok := manifest.ValueAt(x, m.Name); ok && !strings.Contains(m.Name, ".") {
			list = append(list, differingParams(was, m.Value, at+"."+m.Name)...)
		}
	}
	return list
}

// param returns the declaration of a parameter, even if no task reads it: the declaration of its file, with the
// parameter's value in the workspace as default. The error for an unknown parameter suggests others.
func (w *Datasets) param(ctx context.Context, s *State, file *record.PackageInput, name string) (*record.PackageInput, error) {
	t, err := w.states.readTree(ctx, s.RootHash, inputsPart)
	if err != nil {
		return nil, err
	}
	have, _ := t.inputs.Get(file.Name)
	leaf, err := w.paramLeaf(ctx, file.Name, name[len(file.Name)+1:], have)
	if err != nil {
		return nil, err
	}
	in := *file
	in.Name, in.Default = name, leaf
	return &in, nil
}

// paramLeaf is the dataset of a part of a file of parameters.
func (w *Datasets) paramLeaf(ctx context.Context, file, path string, whole record.Leaf) (record.Leaf, error) {
	all, err := paramsOf(w.states).read(ctx, whole)
	if err != nil {
		return record.Leaf{}, &InputError{Input: file, Err: err}
	}
	v, ok := manifest.ValueAt(all, path)
	if !ok {
		unknown := &UnknownError{What: "parameter", Name: file + "." + path}
		for p := range manifest.ParamPaths(all) {
			unknown.Known = append(unknown.Known, file+"."+p)
		}
		return record.Leaf{}, unknown
	}
	return w.states.putValue(ctx, v)
}

// setParam is Set for a parameter in the tree that is about to be swapped.
func (w *Datasets) setParam(ctx context.Context, t *tree, in *record.PackageInput, leaf record.Leaf) error {
	v, err := paramsOf(w.states).read(ctx, leaf)
	if err == nil {
		t.inputs, err = paramsOf(w.states).with(ctx, t.inputs, in, v)
	}
	return err
}

// unsetParam is Unset for a parameter in the tree that is about to be swapped. marks are the marks that stay. It
// tells whether a value changed.
func (w *Datasets) unsetParam(ctx context.Context, ws string, s *State, t *tree, in *record.PackageInput, marks []string) (bool, error) {
	file := paramFileOf(in)
	decl, err := w.input(ctx, s, file.name)
	if err != nil {
		return false, err
	}
	have, _ := t.inputs.Get(file.name)
	base, err := w.unsetLeaf(ctx, ws, s, decl, have)
	if err != nil {
		return false, err
	}
	inputs, err := w.unsetParts(ctx, ws, s, t.inputs, file.name)
	if err != nil {
		return false, err
	}
	inputs, err = paramsOf(w.states).assign(ctx, inputs, file, base, have, marks)
	if err != nil {
		return false, err
	}
	t.inputs = inputs
	now, _ := inputs.Get(file.name)
	return now != have, nil
}

// unsetParts returns inputs in which the parts of a file of parameters are as the file has them.
func (w *Datasets) unsetParts(ctx context.Context, ws string, s *State, inputs record.Node, file string) (record.Node, error) {
	pkg, err := w.states.Packages.Load(ctx, s.PackageHash)
	if err != nil {
		return nil, err
	}
	inputs = slices.Clone(inputs)
	for i := range pkg.Inputs {
		in := &pkg.Inputs[i]
		if of, _, part := record.PartOf(in.Name); !part || of != file {
			continue
		}
		have, _ := inputs.Get(in.Name)
		leaf, err := w.unsetLeaf(ctx, ws, s, in, have)
		if err != nil {
			return nil, err
		}
		inputs = inputs.Set(in.Name, leaf)
	}
	return inputs, nil
}

// paramsBehind tells whether parameters in the tree that are not set differ from their file.
func (w *Deployer) paramsBehind(ctx context.Context, t *tree, in *record.LinkInput, marks []string) (bool, error) {
	have, ok := t.inputs.Get(in.Name)
	if !ok || have == in.Leaf || len(marksOf(in.Name, marks)) == 0 {
		return ok && have != in.Leaf, nil
	}
	due, err := paramsOf(w.states).assign(ctx, t.inputs, paramFile{in.Name, in.Location}, in.Leaf, have, marks)
	if err != nil {
		return true, ignoreLost(err)
	}
	return !slices.Equal(due, t.inputs), nil
}

// keepParams gives the parameters of new inputs the values that were set in the old ones.
func (w *Deployer) keepParams(ctx context.Context, inputs record.Node, pkg *record.Package, old *holdings) (record.Node, error) {
	marks := slices.Sorted(maps.Keys(old.set))
	for _, file := range paramFiles(pkg) {
		from, ok := old.inputs.Get(file.name)
		if !ok || len(marksOf(file.name, marks)) == 0 {
			continue
		}
		base, _ := inputs.Get(file.name)
		var err error
		if inputs, err = paramsOf(w.states).assign(ctx, inputs, file, base, from, marks); err != nil {
			return nil, err
		}
	}
	return inputs, nil
}

// unmarked finds the parameters of a file that differ from the package's.
func (p params) unmarked(ctx context.Context, in *record.PackageInput, have record.Leaf, h *holdings) error {
	if _, _, part := record.ParamOf(in.Name); part {
		return nil // the value of its file contains it
	}
	base, err := p.read(ctx, in.Default)
	if isLost(err) {
		h.set[in.Name] = true
		return nil
	}
	if err != nil {
		return err
	}
	v, err := p.read(ctx, have)
	if err != nil {
		return ignoreLost(err)
	}
	for _, name := range differingParams(base, v, in.Name) {
		h.set[name] = true
	}
	return nil
}

// assignParams gives the parameters of a preview the values that a start would give them.
func (p *preview) assignParams(ctx context.Context, w *States, t *tree) error {
	for _, file := range paramFiles(p.pkg) {
		base, _ := p.inputs.Get(file.name)
		from, _ := t.inputs.Get(file.name)
		if base.Kind != record.LeafValue {
			continue
		}
		inputs, err := paramsOf(w).assign(ctx, p.inputs, file, base, from, p.marks)
		if err != nil {
			return err
		}
		p.inputs = inputs
	}
	return nil
}

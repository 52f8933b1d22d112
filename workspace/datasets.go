package workspace

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"

	"e3/dataflow"
	"e3/internal/format/eastref"
	"e3/internal/format/record"
	"e3/internal/format/value"
	"e3/objectstore"
	dirtree "e3/objectstore/tree"
	"e3/refstore"
)

// Datasets reads and sets the datasets of workspaces.
type Datasets struct{ states *States }

// A DatasetPath names a dataset of a workspace, or a file or directory in one.
type DatasetPath struct {
	Name  string // of an input or a task
	Entry string // path below it with slashes, "" for the dataset itself
}

// ParseDatasetPath reads <name>[.<entry>][/path]. The name of a matrix task extends to its closing bracket, since
// labels may hold dots. In workspaces of the reference the whole text is the path of a dataset, in which names may be
// in backticks.
func ParseDatasetPath(s string) (DatasetPath, error) {
	p, err := parseDatasetPath(s)
	if err == nil && !strings.HasPrefix(s, "`") || !strings.Contains(s, "`") {
		return p, err
	}
	path, bad := eastref.ParsePath(s)
	if bad != nil {
		return p, err
	}
	return DatasetPath{Name: eastName(path[:1]), Entry: eastName(path[1:])}, nil
}

func parseDatasetPath(s string) (DatasetPath, error) {
	if record.ToolFile(strings.TrimPrefix(s, "%")) { // a program of the project, or its interpreter and libraries
		return DatasetPath{Name: s}, nil
	}
	end := strings.IndexAny(s, "./[")
	if end >= 0 && s[end] == '[' {
		closing := strings.IndexByte(s[end:], ']')
		if closing < 0 {
			return DatasetPath{}, fmt.Errorf("dataset %q: the bracket is not closed", s)
		}
		end += closing + 1
	}
	if end < 0 || end == len(s) {
		return DatasetPath{Name: s}, nil
	}
	p := DatasetPath{Name: s[:end], Entry: strings.TrimSuffix(s[end+1:], "/")}
	if s[end] != '.' && s[end] != '/' || p.Name == "" {
		return DatasetPath{}, fmt.Errorf("dataset %q: it is written <name>[.<entry>][/path]", s)
	}
	if p.Entry != "" && !fs.ValidPath(p.Entry) {
		return DatasetPath{}, fmt.Errorf("dataset %q: %q is no path inside a directory", s, p.Entry)
	}
	return p, nil
}

// Task is the name of the task if the path has one part.
func (p DatasetPath) Task() string {
	if strings.HasPrefix(p.Name, "`") {
		if path, err := eastref.ParsePath(p.Name); err == nil && len(path) == 1 {
			return path[0]
		}
	}
	return p.Name
}

// keypath is the path as the reference writes it.
func (p DatasetPath) keypath() string {
	if p.Entry == "" {
		return p.Name
	}
	return p.Name + "." + p.Entry
}

// A Dataset is a leaf of a workspace's tree.
type Dataset struct {
	record.Leaf
	Workspace string
	Path      DatasetPath
	Output    bool // a task makes it
	// East marks a dataset of the reference: a LeafNode holds further datasets; a LeafValue is a value of any type,
	// null if it has no hash, or the output of a task.
	East bool
}

// UnassignedError says that a dataset holds nothing yet.
type UnassignedError struct {
	Workspace, Name string
	Output          bool
	East            bool // in a workspace of the reference, which cannot be started
}

func (e *UnassignedError) Error() string {
	if e.East {
		return fmt.Sprintf("%s of workspace %s has no value", e.Name, e.Workspace)
	}
	if e.Output {
		return fmt.Sprintf("task %s of workspace %s has no output yet; make it with: e3 start <repo> %s", e.Name, e.Workspace, e.Workspace)
	}
	return fmt.Sprintf("input %s of workspace %s has no value%s", e.Name, e.Workspace, dataflow.NoValue(e.Workspace, e.Name))
}

// Dataset finds a dataset, or a file or directory below one.
func (w *Datasets) Dataset(ctx context.Context, ws string, p DatasetPath) (d *Dataset, err error) {
	err = w.states.steady(ctx, ws, func(s *State) (err error) {
		d, err = w.datasetOf(ctx, ws, s, p)
		return err
	})
	if err != nil {
		return nil, err
	}
	return d, nil
}

func (w *Datasets) datasetOf(ctx context.Context, ws string, s *State, p DatasetPath) (*Dataset, error) {
	if !s.Deployed {
		return nil, fmt.Errorf("workspace %s: %w", ws, ErrNotDeployed)
	}
	d := &Dataset{Workspace: ws, Path: p}
	t, err := w.states.readTree(ctx, s.RootHash, bothParts)
	if errors.Is(err, record.ErrType) {
		return w.eastDataset(ctx, s, d)
	}
	if err != nil {
		return nil, fmt.Errorf("workspace %s: %w", ws, err)
	}
	var ok bool
	if d.Leaf, ok = t.inputs.Get(p.Name); !ok {
		d.Output = true
		if d.Leaf, ok = t.tasks.Get(p.Name); !ok {
			return nil, &UnknownError{What: "dataset", Name: p.Name, Known: t.names()}
		}
	}
	if d.Kind == record.LeafUnassigned {
		return nil, &UnassignedError{Workspace: ws, Name: p.Name, Output: d.Output}
	}
	if p.Entry == "" {
		return d, nil
	}
	if d.Kind == record.LeafValue && !d.Output {
		if leaf, ok := t.inputs.Get(p.Name + "." + p.Entry); ok {
			d.Leaf = leaf
			return d, nil
		}
		if in, err := w.input(ctx, s, p.Name); err == nil && in.Source == record.FromParams {
			d.Leaf, err = w.paramLeaf(ctx, p.Name, p.Entry, d.Leaf)
			return d, err
		}
	}
	return d, w.descend(ctx, d)
}

func (t *tree) names() []string {
	names := make([]string, 0, len(t.inputs)+len(t.tasks))
	for _, n := range []record.Node{t.inputs, t.tasks} {
		for i := range n {
			names = append(names, n[i].Name)
		}
	}
	return names
}

// descend replaces the leaf of d by the leaf of its entry.
func (w *Datasets) descend(ctx context.Context, d *Dataset) error {
	p := d.Path
	if d.Kind != record.LeafDir {
		return fmt.Errorf("%s of workspace %s is not a directory: it has no %q", p.Name, d.Workspace, p.Entry)
	}
	h, err := objectstore.ParseHash(d.Hash)
	if err != nil {
		return err
	}
	e, err := dirtree.Lookup(ctx, w.states.Objects, h, p.Entry)
	if errors.Is(err, fs.ErrNotExist) {
		return w.noEntry(ctx, h, p)
	}
	if err != nil {
		return fmt.Errorf("%s of workspace %s: %w", p.Name, d.Workspace, err)
	}
	switch e.Kind {
	case dirtree.KindDir:
		d.Leaf = record.Leaf{Kind: record.LeafDir, Hash: e.Hash.String()}
	case dirtree.KindFile:
		d.Leaf = record.Leaf{Kind: record.LeafFile, Hash: e.Hash.String(), Size: e.Size, Executable: e.Executable}
	default:
		return fmt.Errorf("%s in %s of workspace %s is a symbolic link to %q; ask for that", p.Entry, p.Name, d.Workspace, e.Target)
	}
	return nil
}

// noEntry reports a missing entry and lists the names at the last existing part of its path.
func (w *Datasets) noEntry(ctx context.Context, root objectstore.Hash, p DatasetPath) error {
	unknown := &UnknownError{What: "entry of " + p.Name, Name: p.Entry}
	dir := ""
	for part := range strings.SplitSeq(p.Entry, "/") {
		at := dirtree.Entry{Kind: dirtree.KindDir, Hash: root}
		if dir != "" {
			var err error
			if at, err = dirtree.Lookup(ctx, w.states.Objects, root, dir); err != nil {
				return unknown
			}
		}
		if at.Kind != dirtree.KindDir {
			return unknown
		}
		t, err := dirtree.Read(ctx, w.states.Objects, at.Hash)
		if err != nil {
			return err
		}
		if _, ok := t.Find(part); !ok {
			for _, e := range t {
				unknown.Known = append(unknown.Known, strings.TrimPrefix(dir+"/"+e.Name, "/"))
			}
			return unknown
		}
		dir = strings.TrimPrefix(dir+"/"+part, "/")
	}
	return unknown
}

// deployed reads the state of a workspace that must have a package.
func (w *Datasets) deployed(ctx context.Context, ws string) (*State, error) {
	s, err := w.states.State(ctx, ws)
	if err != nil {
		return nil, err
	}
	if !s.Deployed {
		return nil, fmt.Errorf("workspace %s: %w", ws, ErrNotDeployed)
	}
	return s, nil
}

// Input returns the declaration of a settable input of the deployed package; ErrVariable for a variable.
func (w *Datasets) Input(ctx context.Context, ws, name string) (in *record.PackageInput, err error) {
	err = w.states.steady(ctx, ws, func(s *State) (err error) {
		if !s.Deployed {
			return fmt.Errorf("workspace %s: %w", ws, ErrNotDeployed)
		}
		in, err = w.input(ctx, s, name)
		return err
	})
	return in, err
}

func (w *Datasets) input(ctx context.Context, s *State, name string) (*record.PackageInput, error) {
	pkg, err := w.states.Packages.Load(ctx, s.PackageHash)
	if err != nil {
		return nil, w.states.notRunnable(ctx, s, err)
	}
	file, _, part := record.ParamOf(name)
	var whole *record.PackageInput // the file of parameters of which name may be a part
	for i := range pkg.Inputs {
		switch in := &pkg.Inputs[i]; {
		case in.Name == name && settable(in) != nil:
			return nil, settable(in)
		case settable(in) != nil:
			continue
		case in.Name == name:
			return in, nil
		case part && in.Name == file && in.Source == record.FromParams:
			whole = in
		}
	}
	if whole != nil {
		return w.param(ctx, s, whole, name)
	}
	if slices.ContainsFunc(pkg.Tasks, func(t record.PackageTask) bool { return t.Name == name }) {
		return nil, fmt.Errorf("%w: a task makes it, and only inputs can be set", &UnknownError{What: "input", Name: name})
	}
	t, err := w.states.readTree(ctx, s.RootHash, inputsPart)
	if err != nil {
		return nil, err
	}
	return w.parameter(ctx, pkg, t.inputs, name)
}

// settable refuses an input that does not hold what a user gave it.
func settable(in *record.PackageInput) error {
	switch in.Source {
	case record.FromVariable:
		return fmt.Errorf("%s is an environment variable, of key_env: %w", in.Location, ErrVariable)
	case record.FromTool:
		return fmt.Errorf("%s is a program, of tools: %w", in.Location, ErrTool)
	case record.FromEnvironment:
		return fmt.Errorf("%s is an environment: %w", in.Name, ErrEnvironment)
	case record.FromPart:
		file, only, _ := record.PartOf(in.Name)
		return fmt.Errorf("%s is a part of %s: %w, as %s.%s", in.Name, in.Location, ErrPart, file, only[0])
	}
	return nil
}

// FitValue converts a value to the kind of an input's default or present value. Otherwise, a mistyped number would
// reach the tasks as text. text is the user's original spelling, "" for JSON: if the input is a string, a number or a
// boolean becomes that text. An input whose default is null accepts any kind. A mismatch is a *value.KindError.
func (w *Datasets) FitValue(ctx context.Context, ws string, in *record.PackageInput, v any, text string) (any, error) {
	return w.fitOf(ctx, in.Default, func() (record.Leaf, error) {
		at := DatasetPath{Name: in.Name}
		if file, path, part := record.ParamOf(in.Name); part && in.Source == record.FromParams {
			at = DatasetPath{Name: file, Entry: path}
		}
		now, err := w.Dataset(ctx, ws, at)
		var none *UnassignedError
		if errors.As(err, &none) {
			return record.Leaf{}, nil
		}
		if err != nil {
			return record.Leaf{}, err
		}
		return now.Leaf, nil
	}, v, text)
}

// valueOf reads a value dataset; nil if the leaf is no value, or its object is missing.
func (w *Datasets) valueOf(ctx context.Context, leaf record.Leaf) (*value.Value, error) {
	if leaf.Kind != record.LeafValue {
		return nil, nil
	}
	h, err := objectstore.ParseHash(leaf.Hash)
	if err != nil {
		return nil, err
	}
	data, err := objectstore.ReadAll(ctx, w.states.Objects, h, value.MaxBytes)
	if errors.Is(err, objectstore.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return value.Decode(data)
}

// PutValue stores a plain value as a dataset.
func (w *Datasets) PutValue(ctx context.Context, v any) (record.Leaf, error) {
	return w.states.putValue(ctx, v)
}

// PutPath stores a file or a directory as a dataset for an input of the given source.
func (w *Datasets) PutPath(ctx context.Context, source record.InputSource, path string) (record.Leaf, error) {
	if source.IsOneFile() {
		return w.putFile(ctx, path)
	}
	h, _, err := dirtree.Put(ctx, w.states.Objects, path, dirtree.PutOptions{Filter: usualFiles})
	return record.Leaf{Kind: record.LeafDir, Hash: h.String()}, err
}

func (w *Datasets) putFile(ctx context.Context, path string) (record.Leaf, error) {
	f, err := objectstore.OpenFile(path)
	if err != nil {
		return record.Leaf{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return record.Leaf{}, err
	}
	stored, err := objectstore.PutFile(ctx, w.states.Objects, f, objectstore.FileOptions{})
	return record.Leaf{Kind: record.LeafFile, Hash: stored.Hash.String(), Size: stored.Size, Executable: info.Mode()&0o111 != 0}, err
}

// PutStream stores the contents of r as a file dataset.
func (w *Datasets) PutStream(ctx context.Context, r io.Reader) (record.Leaf, error) {
	stored, err := w.states.Objects.Put(ctx, r)
	return record.Leaf{Kind: record.LeafFile, Hash: stored.Hash.String(), Size: stored.Size}, err
}

// leafKinds is the kind of dataset that each source of inputs needs.
var leafKinds = map[record.InputSource]record.LeafKind{
	record.FromFile: record.LeafFile, record.FromDir: record.LeafDir, record.FromGlob: record.LeafDir, record.FromValue: record.LeafValue,
	record.FromParams: record.LeafValue, record.FromPart: record.LeafFile, record.FromEnvironment: record.LeafDir,
	record.FromSheet: record.LeafDir, record.FromURL: record.LeafFile,
}

// Set gives an input a value that stays until Unset, whatever happens to its linked file. It takes no lock: a run at
// work keeps the inputs that it began with. The value is durable when Set returns.
func (w *Datasets) Set(ctx context.Context, ws, name string, leaf record.Leaf) error {
	// The mark is written first: a run that updates linked inputs reads the marks on each attempt to write the tree, so
	// one of the two writers sees the other. If the state holds the marks, they are swapped together with the tree.
	marked, err := w.markSet(ctx, ws, func(marks []string) []string { return marking(marks, name) })
	badLink := err
	if err != nil && !errors.Is(err, errBadLink) {
		return err
	}
	// No lock is needed: the swap names the value, and a successful swap overwrites no other change. Until then the
	// session protects the value from collection (checkLease, reread).
	_, err = w.states.edit(ctx, nil, ws, true, inputsPart, func(s *State, t *tree) error {
		in, err := w.input(ctx, s, name)
		if err != nil {
			return err
		}
		if want := leafKinds[in.Source]; leaf.Kind != want {
			return fmt.Errorf("input %s of workspace %s is a %s now, not a %s", name, ws, want, leaf.Kind)
		}
		if badLink != nil && in.Source != record.FromValue {
			return badLink // without a mark the value would count as the file's earlier content
		}
		s.mark(name, true)
		if in.Source == record.FromParams {
			return w.setParam(ctx, t, in, leaf)
		}
		t.inputs = t.inputs.Set(name, leaf)
		return nil
	})
	if err != nil && marked {
		_, unmarkErr := w.markSet(context.WithoutCancel(ctx), ws, func(marks []string) []string {
			return slices.DeleteFunc(marks, func(mark string) bool { return mark == name })
		})
		err = errors.Join(err, unmarkErr)
	}
	return err
}

// Unset returns an input to its linked file, or to the package's default. It returns false if the input was not set.
func (w *Datasets) Unset(ctx context.Context, ws, name string) (bool, error) {
	unmarked, err := w.markSet(ctx, ws, func(marks []string) []string { return without(marks, name) })
	if err = ignoreBadLink(err); err != nil {
		return false, err
	}
	var changed bool
	_, err = w.states.edit(ctx, nil, ws, true, inputsPart, func(s *State, t *tree) error {
		in, err := w.input(ctx, s, name)
		if err != nil {
			return err
		}
		if in.Source == record.FromParams {
			unmarkedHere := s.mark(name, false)
			marks, _, err := w.states.links.marked(ctx, ws, s)
			if err = ignoreBadLink(err); err != nil {
				return err
			}
			differs, err := w.unsetParam(ctx, ws, s, t, in, marks)
			changed = differs || unmarked || unmarkedHere
			return err
		}
		have, _ := t.inputs.Get(name)
		leaf, err := w.unsetLeaf(ctx, ws, s, in, have)
		if err != nil {
			return err
		}
		changed = s.mark(name, false) || unmarked || have != leaf
		t.inputs = t.inputs.Set(name, leaf)
		return nil
	})
	return changed, err
}

// unsetLeaf is the leaf of an input that is not set. Unless the leaf equals have, it is refreshed.
func (w *Datasets) unsetLeaf(ctx context.Context, ws string, s *State, in *record.PackageInput, have record.Leaf) (record.Leaf, error) {
	link, err := w.states.links.link(ctx, ws, s)
	if err = ignoreBadLink(err); err != nil {
		return record.Leaf{}, err
	}
	if link != nil {
		if i := slices.IndexFunc(link.Inputs, func(l record.LinkInput) bool { return l.Name == in.Name }); i >= 0 {
			linked := &link.Inputs[i]
			if linked.Leaf != have {
				// The link is not saved: the next start detects the changes, and whether the package must be rebuilt.
				_, err = w.states.renew(ctx, link, linked, record.Leaf{})
			}
			return linked.Leaf, err
		}
	}
	if in.Default != have {
		_, err = w.states.refresh(ctx, in.Default, record.Leaf{}) // an export may have omitted its content
	}
	return in.Default, err
}

// markSet changes the marks of set inputs in the link, if there is one, and tells whether they changed. The link of a
// shared workspace has no marks: State.mark changes those.
func (w *Datasets) markSet(ctx context.Context, ws string, change func([]string) []string) (bool, error) {
	for !w.states.links.shared {
		rec, err := w.states.Local.Get(ctx, linkKey(ws))
		if errors.Is(err, refstore.ErrNotFound) {
			return false, nil
		}
		if errors.Is(err, refstore.ErrDamaged) {
			return false, fmt.Errorf("link of workspace %s: %w; %w", ws, err, errBadLink)
		}
		if err != nil {
			return false, fmt.Errorf("link of workspace %s: %w", ws, err)
		}
		l, err := decodeLink(ws, rec.Value)
		if err != nil {
			return false, err
		}
		before := len(l.Set)
		if l.Set = change(l.Set); len(l.Set) == before {
			return false, nil
		}
		rec.Value = l.Encode()
		if _, err = w.states.Local.PutSync(ctx, rec); !errors.Is(err, refstore.ErrConflict) {
			return err == nil, err
		}
	}
	return false, nil
}

// Names lists the datasets of a workspace without computing their freshness.
func (w *Datasets) Names(ctx context.Context, ws string) (list []DatasetRow, err error) {
	err = w.states.steady(ctx, ws, func(s *State) (err error) {
		if !s.Deployed {
			return fmt.Errorf("workspace %s: %w", ws, ErrNotDeployed)
		}
		list, err = w.names(ctx, ws, s)
		return err
	})
	return list, err
}

func (w *Datasets) names(ctx context.Context, ws string, s *State) ([]DatasetRow, error) {
	t, err := w.states.readTree(ctx, s.RootHash, bothParts)
	if errors.Is(err, record.ErrType) {
		return w.eastRows(ctx, s)
	}
	if err != nil {
		return nil, fmt.Errorf("workspace %s: %w", ws, err)
	}
	list := make([]DatasetRow, 0, len(t.inputs)+len(t.tasks))
	for _, e := range t.inputs {
		list = append(list, DatasetRow{Name: e.Name, Leaf: e.Leaf})
	}
	for _, e := range t.tasks {
		list = append(list, DatasetRow{Name: e.Name, Leaf: e.Leaf, Output: true, Task: e.Name})
	}
	return list, nil
}

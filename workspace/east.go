package workspace

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"e3/dataflow"
	"e3/internal/format/eastref"
	"e3/internal/format/record"
	"e3/objectstore"
)

// A workspace whose package was made by the TypeScript e3 holds that program's tree: structs of references instead of
// nodes, and datasets at any depth, named by their paths. Such a workspace can be read, removed and deployed over. It
// cannot be run, and its datasets cannot be set.

// notRunnable replaces a type error by a NotRunnableError if the package or tree comes from the reference.
func (w *States) notRunnable(ctx context.Context, s *State, err error) error {
	if !errors.Is(err, record.ErrType) {
		return err
	}
	if east, look := w.Packages.IsEast(ctx, s.PackageHash); look != nil || !east {
		return err
	}
	return &NotRunnableError{Package: s.PackageName + "@" + s.PackageVersion}
}

// Settable refuses, as a NotRunnableError, workspaces whose datasets cannot be set.
func (w *Datasets) Settable(ctx context.Context, ws string) error {
	s, err := w.deployed(ctx, ws)
	if err != nil {
		return err
	}
	if east, err := w.states.Packages.IsEast(ctx, s.PackageHash); err != nil || !east {
		return err
	}
	return fmt.Errorf("datasets of workspace %s cannot be set: %w", ws, &NotRunnableError{Package: s.PackageName + "@" + s.PackageVersion})
}

// maxEast bounds a package, task or tree object of the reference that is read into memory.
const maxEast = 64 << 20

func (w *Datasets) readEast(ctx context.Context, hash objectstore.Hash) ([]byte, error) {
	return objectstore.ReadAll(ctx, w.states.Objects, hash, maxEast)
}

// installEast gives the workspace a package of the reference and, unchanged, the package's tree.
func (w *Deployer) installEast(ctx context.Context, lock *hold, ref PackageRef, pkg *eastref.Package, from origin) error {
	_, err := w.states.update(ctx, lock, lock.ws, true, func(s *State) error {
		now := w.states.Now()
		s.PackageName, s.PackageVersion, s.PackageHash = ref.Name, ref.Version, ref.Hash
		s.DeployedAt, s.RootHash, s.RootUpdatedAt, s.Deployed = now, pkg.Root.String(), now, true
		w.states.links.deployedFrom(s, from, nil, nil)
		return w.states.Records.Sync(ctx)
	})
	return err
}

// readEastTree reads one level of a tree of the reference.
func (w *Datasets) readEastTree(ctx context.Context, hash objectstore.Hash) ([]eastref.Entry, error) {
	data, err := w.readEast(ctx, hash)
	if err != nil {
		return nil, fmt.Errorf("tree object: %w", err)
	}
	return eastref.DecodeTree(data)
}

// eastLeaf converts an entry of a reference's tree. A null dataset without an object has no hash.
func eastLeaf(e *eastref.Entry) record.Leaf {
	switch e.Kind {
	case eastref.Tree:
		return record.Leaf{Kind: record.LeafNode, Hash: e.Hash.String()}
	case eastref.Value:
		return record.Leaf{Kind: record.LeafValue, Hash: e.Hash.String()}
	case eastref.Null:
		return record.Leaf{Kind: record.LeafValue}
	}
	return record.Leaf{Kind: record.LeafUnassigned}
}

// eastDataset finds a dataset, or a tree of datasets, by its path.
func (w *Datasets) eastDataset(ctx context.Context, s *State, d *Dataset) (*Dataset, error) {
	path, err := eastref.ParsePath(d.Path.keypath())
	if err != nil {
		return nil, err
	}
	d.East = true
	d.Leaf = record.Leaf{Kind: record.LeafNode, Hash: s.RootHash}
	for i, name := range path {
		here := eastName(path[:i])
		if d.Kind != record.LeafNode {
			return nil, fmt.Errorf("%s of workspace %s is a dataset: there is no %q in it", here, d.Workspace, name)
		}
		entries, err := w.EastEntries(ctx, d)
		if err != nil {
			return nil, fmt.Errorf("workspace %s: %w", d.Workspace, err)
		}
		at := slices.IndexFunc(entries, func(e NamedLeaf) bool { return e.Name == name })
		if at < 0 {
			unknown := &UnknownError{What: "dataset", Name: eastName(path[:i+1])}
			for _, e := range entries {
				unknown.Known = append(unknown.Known, eastName(append(slices.Clone(path[:i]), e.Name)))
			}
			return nil, unknown
		}
		d.Leaf = entries[at].Leaf
	}
	if d.Kind == record.LeafUnassigned {
		return nil, &UnassignedError{Workspace: d.Workspace, Name: eastName(path), East: true}
	}
	return d, nil
}

// eastName is a path as users write it after the workspace's name and a dot.
func eastName(path []string) string { return strings.TrimPrefix(eastref.FormatPath(path), ".") }

// NamedLeaf is an entry of a tree of the reference.
type NamedLeaf struct {
	Name string
	record.Leaf
}

// EastEntries returns the entries of a tree of datasets that Dataset has found in a workspace of the reference.
func (w *Datasets) EastEntries(ctx context.Context, d *Dataset) ([]NamedLeaf, error) {
	h, err := objectstore.ParseHash(d.Hash)
	if err != nil {
		return nil, err
	}
	entries, err := w.readEastTree(ctx, h)
	if err != nil {
		return nil, err
	}
	list := make([]NamedLeaf, len(entries))
	for i := range entries {
		list[i] = NamedLeaf{entries[i].Name, eastLeaf(&entries[i])}
	}
	return list, nil
}

// Limits on the list of one workspace: a few objects that name each other repeatedly could make it endless.
const (
	maxEastDatasets = 1 << 17
	maxEastDepth    = 256
)

// eastRows lists all datasets of a tree of the reference by their paths.
func (w *Datasets) eastRows(ctx context.Context, s *State) ([]DatasetRow, error) {
	root, err := objectstore.ParseHash(s.RootHash)
	if err != nil {
		return nil, err
	}
	tasks, err := w.eastTasks(ctx, s.PackageHash)
	if err != nil {
		return nil, err
	}
	outputs := make(map[string]string, len(tasks))
	for i := range tasks {
		outputs[tasks[i].output] = tasks[i].Name
	}
	var rows []DatasetRow
	objects := 0
	var walk func(h objectstore.Hash, path []string) error
	walk = func(h objectstore.Hash, path []string) error {
		if objects++; len(path) > maxEastDepth || objects > maxEastDatasets || len(rows) > maxEastDatasets {
			return fmt.Errorf("the tree has more than %d datasets, or is more than %d levels deep", maxEastDatasets, maxEastDepth)
		}
		entries, err := w.readEastTree(ctx, h)
		if err != nil {
			return err
		}
		for i := range entries {
			e := &entries[i]
			at := append(path[:len(path):len(path)], e.Name)
			if e.Kind == eastref.Tree {
				if err := walk(e.Hash, at); err != nil {
					return err
				}
				continue
			}
			name := eastName(at)
			row := DatasetRow{Leaf: eastLeaf(e), Name: name, Output: outputs[name] != "", Task: outputs[name], Freshness: dataflow.Current}
			if row.Kind == record.LeafUnassigned {
				row.Freshness = dataflow.Absent
			}
			if !row.Output {
				row.Source = record.FromValue.String()
			}
			rows = append(rows, row)
		}
		return nil
	}
	if err := walk(root, nil); err != nil {
		return nil, err
	}
	slices.SortStableFunc(rows, func(a, b DatasetRow) int { // inputs first, as in other workspaces
		switch {
		case a.Output == b.Output:
			return 0
		case b.Output:
			return -1
		}
		return 1
	})
	return rows, nil
}

// EastTask is a task of a package of the reference, with its output in a workspace.
type EastTask struct {
	Name   string
	Object objectstore.Hash
	Output record.Leaf

	output string // the name of the dataset
}

// EastTasks returns the tasks of a workspace of the reference, in the order of the package.
func (w *Datasets) EastTasks(ctx context.Context, s *record.WorkspaceState) ([]EastTask, error) {
	tasks, err := w.eastTasks(ctx, s.PackageHash)
	if err != nil {
		return nil, err
	}
	rows, err := w.eastRows(ctx, &State{WorkspaceState: *s})
	if err != nil {
		return nil, err
	}
	held := make(map[string]record.Leaf, len(rows))
	for i := range rows {
		held[rows[i].Name] = rows[i].Leaf
	}
	for i := range tasks {
		if leaf, ok := held[tasks[i].output]; ok {
			tasks[i].Output = leaf
		}
	}
	return tasks, nil
}

// eastTasks returns the tasks of a package without their outputs. Tasks whose objects are missing are left out.
func (w *Datasets) eastTasks(ctx context.Context, hash string) ([]EastTask, error) {
	pkg, err := w.states.Packages.LoadEast(ctx, hash)
	if errors.Is(err, objectstore.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	list := make([]EastTask, 0, len(pkg.Tasks))
	for _, t := range pkg.Tasks {
		data, err := w.readEast(ctx, t.Task)
		if errors.Is(err, objectstore.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("task object: %w", err)
		}
		task, err := eastref.DecodeTask(data)
		if err != nil {
			return nil, fmt.Errorf("task %s: %w", t.Name, err)
		}
		list = append(list, EastTask{Name: eastName([]string{t.Name}), Object: t.Task, Output: record.Leaf{Kind: record.LeafUnassigned}, output: eastName(task.Output)})
	}
	return list, nil
}

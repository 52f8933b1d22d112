package workspace

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"e3/dataflow/graph"
	"e3/internal/format/eastref"
	"e3/internal/format/manifest"
	"e3/internal/format/record"
	"e3/objectstore"
)

// Deployer builds packages from package files, deploys packages in workspaces, and follows package files.
type Deployer struct {
	states   *States
	datasets *Datasets
}

// Deploy puts a registered package into a workspace and unlinks it from any file. A package of the reference comes
// with its own tree, which can be read but not run.
func (w *Deployer) Deploy(ctx context.Context, ws string, ref PackageRef) error {
	release, registered, err := w.states.holdPackage(ctx, ref)
	if err != nil {
		return err
	}
	defer release()
	pkg, err := w.states.Packages.Load(ctx, ref.Hash)
	var east *eastref.Package
	if errors.Is(err, record.ErrType) {
		east, err = w.states.Packages.LoadEast(ctx, ref.Hash)
	}
	if err != nil {
		return fmt.Errorf("package %s: %w", ref, err)
	}
	if east == nil {
		if _, err := graph.New(pkg); err != nil {
			return err
		}
	}
	switch {
	case registered:
	case east == nil:
		if err := w.states.refreshPackage(ctx, ref.Hash, pkg); err != nil {
			return fmt.Errorf("package %s: %w", ref, err)
		}
	default:
		return fmt.Errorf("package %s is not in the register any more: %w", ref, ErrNotFound)
	}
	ctx, lock, err := w.states.lockExisting(ctx, ws, record.Deployment)
	if err != nil {
		return err
	}
	defer lock.Unlock()
	return lock.explain(ctx, w.deploy(ctx, lock, ref, pkg, east))
}

// deploy is Deploy under the lock.
func (w *Deployer) deploy(ctx context.Context, lock *hold, ref PackageRef, pkg *record.Package, east *eastref.Package) error {
	ws := lock.ws
	from, err := w.states.links.origin(ctx, ws, nil, "", true)
	if err != nil {
		return err
	}
	// The link is removed first: after a crash the workspace may follow nothing, but never returns to a file. Its list
	// of set inputs is still needed once. If the state records the followed file, both change together.
	if !w.states.links.shared {
		s, err := w.states.State(ctx, ws)
		if err != nil {
			return err
		}
		link, err := w.states.links.anyLink(ctx, ws)
		if err != nil && !errors.Is(err, errBadLink) {
			return err
		}
		if link != nil && (link.File != "" || !s.Deployed) {
			link.File = ""
			if err := w.states.links.saveLink(ctx, ws, link, true, oldMarks(s)); err != nil {
				return err
			}
		}
	}
	var set map[string]bool
	if east != nil {
		err = w.installEast(ctx, lock, ref, east, from)
	} else {
		set, err = w.install(ctx, lock, pkg, ref.Hash, from, true)
	}
	if err != nil {
		return err
	}
	return w.endLink(ctx, ws, pkg, set)
}

// endLink records that a workspace follows no file, and which of its inputs are set. If the state records this, nothing
// needs to be remembered.
func (w *Deployer) endLink(ctx context.Context, ws string, pkg *record.Package, set map[string]bool) error {
	if w.states.links.shared || pkg == nil {
		return w.states.links.forgetLink(ctx, ws)
	}
	return w.states.links.saveLink(ctx, ws, &record.Link{}, true, func(marked []string) []string { return keptMarks(pkg, marked, set) })
}

// DeployFile deploys a package file: from then on the workspace follows the file and its inputs.
func (w *Deployer) DeployFile(ctx context.Context, ws, file string) (*Built, error) {
	ctx, lock, err := w.states.lockExisting(ctx, ws, record.Deployment)
	if err != nil {
		return nil, err
	}
	defer lock.Unlock()
	// No input is skipped because of its file times: a stored input may be damaged, and this command stores it again.
	built, err := w.Build(ctx, file, nil)
	if err == nil {
		err = w.deployBuilt(ctx, lock, built, true)
	}
	return built, lock.explain(ctx, err)
}

// deployFile is DeployFile under the lock. The objects of held, unless it is nil, are protected and need not be put.
func (w *Deployer) deployFile(ctx context.Context, lock *hold, file string, durable bool, held *State) (*Built, error) {
	before, err := w.states.links.remembered(ctx, lock.ws) // what it says about files stays true, followed or not
	if err != nil && !errors.Is(err, errBadLink) {
		return nil, err
	}
	if held != nil && before != nil { // the package may have grown since the link was made
		b := *before
		b.Package, before = held.PackageHash, &b
	}
	read, err := w.states.readFile(file)
	if err != nil {
		return nil, err
	}
	var built *Built
	if held == nil {
		built, err = w.buildRead(ctx, read, before)
	} else {
		built, err = w.buildBeside(ctx, read, before, func(*Built) ([]*State, error) { return []*State{held}, nil })
	}
	if err != nil {
		return nil, err
	}
	return built, w.deployBuilt(ctx, lock, built, durable)
}

// deployBuilt installs a package that was built from a file and remembers the link.
func (w *Deployer) deployBuilt(ctx context.Context, lock *hold, built *Built, durable bool) error {
	ws := lock.ws
	if _, err := graph.New(built.Package); err != nil {
		return err
	}
	s, err := w.states.State(ctx, ws)
	if err != nil {
		return err
	}
	if built.Over, err = w.states.links.heldBy(ctx, ws, s, built.Link.File); err != nil {
		return err
	}
	if built.Over != nil {
		built.Replaced = w.replaced(ctx, ws, s, built.Package)
	}
	if s.Deployed && built.Over == nil && s.PackageName != built.Package.Name {
		built.Renamed = s.PackageName
	}
	from, err := w.states.links.origin(ctx, ws, s, built.Link.File, durable)
	if err != nil {
		return err
	}
	if err := w.states.links.savePlan(ctx, ws, built.Results); err != nil {
		return err
	}
	// A new workspace gets its link first: after a crash in between, the next start deploys the workspace, instead of
	// finding a workspace that follows nothing.
	if !s.Deployed {
		if err := w.states.links.saveLink(ctx, ws, built.Link, durable, oldMarks(s)); err != nil {
			return err
		}
	}
	set, err := w.install(ctx, lock, built.Package, built.Hash, from, durable)
	if err != nil {
		return err
	}
	var keep func([]string) []string
	if !w.states.links.shared { // otherwise the state holds the marks
		keep = func(marked []string) []string { return keptMarks(built.Package, marked, set) }
	}
	if err := w.states.links.saveLink(ctx, ws, built.Link, durable, keep); err != nil {
		return err
	}
	return w.states.links.forgetNotes(ctx, ws, from.id)
}

// oldMarks selects the marks of a link that belong to a state. An empty workspace has no marks, whatever a failed
// deployment or adoption has left.
func oldMarks(s *State) func([]string) []string {
	if s.Deployed {
		return nil // saveLink keeps them
	}
	return func([]string) []string { return nil }
}

// keptMarks returns the marks that stay when a package file is deployed. set tells for each input with a set value
// whether the value was kept.
func keptMarks(pkg *record.Package, marked []string, set map[string]bool) []string {
	for name, kept := range set { // also for a package without a link
		if kept && !slices.Contains(marked, name) {
			marked = append(marked, name)
		}
	}
	slices.Sort(marked)
	return slices.DeleteFunc(marked, func(name string) bool {
		kept, known := set[name]
		return known && !kept || !pkg.Declares(name)
	})
}

// install gives the workspace the package. Set values stay if the input's name and kind remain; set tells for each
// whether it was kept. Outputs stay if their task stays.
func (w *Deployer) install(ctx context.Context, lock *hold, pkg *record.Package, hash string, from origin, durable bool) (set map[string]bool, err error) {
	ws := lock.ws
	_, err = w.states.update(ctx, lock, ws, durable, func(s *State) error {
		set = map[string]bool{}
		old, err := w.states.holdings(ctx, ws, s, pkg)
		if err == nil && old.lossy {
			err = w.states.discardParts(ctx, ws, s)
		}
		if err != nil {
			return err
		}
		t := &tree{tasks: make(record.Node, 0, len(pkg.Tasks))}
		if t.inputs, err = w.keptInputs(ctx, pkg, old, set); err != nil {
			return err
		}
		for i := range pkg.Tasks {
			leaf, ok := old.tasks.Get(pkg.Tasks[i].Name)
			if !ok {
				leaf = record.Leaf{Kind: record.LeafUnassigned}
			}
			t.tasks = append(t.tasks, record.NodeEntry{Name: pkg.Tasks[i].Name, Leaf: leaf})
		}
		t.tasks.Sort()
		root, err := w.states.writeTree(ctx, t, bothParts)
		if err != nil {
			return err
		}
		if durable {
			if err := w.states.Records.Sync(ctx); err != nil {
				return err
			}
		}
		now := w.states.Now()
		s.PackageName, s.PackageVersion, s.PackageHash = pkg.Name, pkg.Version, hash
		s.DeployedAt, s.RootHash, s.RootUpdatedAt, s.Deployed = now, root, now, true
		w.states.links.deployedFrom(s, from, pkg, set)
		return nil
	})
	return set, err
}

// isLost tells whether an object is missing or damaged.
func isLost(err error) bool {
	is, _ := objectstore.IsLost(err)
	return is
}

// setValues tells, for display, which inputs hold a value from "e3 set": the marked inputs or, if no file is
// followed, the inputs that differ from the deployed package's defaults. holdings decides which of them a deployment
// keeps.
func (w *Deployer) setValues(ctx context.Context, ws string, s *State, pkg *record.Package) (func(string, record.Leaf) bool, error) {
	marks, marked, err := w.states.links.marked(ctx, ws, s)
	if err != nil {
		return nil, err
	}
	if marked {
		return func(name string, _ record.Leaf) bool { return isSet(marks, name) }, nil
	}
	defaults := make(map[string]record.Leaf, len(pkg.Inputs))
	for i := range pkg.Inputs {
		if in := &pkg.Inputs[i]; !in.Source.OfMachine() {
			defaults[in.Name] = in.Default
		}
	}
	return func(name string, have record.Leaf) bool {
		d, ok := defaults[name]
		return ok && have != d
	}, nil
}

// follow brings a linked workspace up to date with its package file, its inputs and the environment. The caller holds
// the lock. It calls work before it rebuilds the package, and returns the rebuilt package. taken says that the
// variables of key_env were compared, which follow does when it reads the tree.
func (w *Deployer) follow(ctx context.Context, lock *hold, s *State, link *record.Link, durable bool, work func()) (built *Built, taken bool, err error) {
	rooms, err := w.states.roomsOf(ctx, lock.ws, link)
	if err != nil || link == nil || folderGone(link.File) {
		return nil, false, err
	}
	info, err := statLinked(lock.ws, link.File)
	if err != nil {
		return nil, false, err
	}
	if !proves(link.Stat, fileStat(info)) || link.Package != s.PackageHash || link.Room != rooms.text() ||
		!sameImages(w.states.Images, filepath.Dir(link.File), link) {
		work()
		built, err = w.deployFile(ctx, lock, link.File, durable, s)
		return built, false, err
	}
	look := w
	gathering, g := w.gathering()
	if g != nil {
		look = gathering
	}
	// Gathered objects are refreshed without a request, and are then known to be named.
	scan := &scan{states: look.states, base: filepath.Dir(link.File), verify: g != nil, set: s.marks(link)}
	executable, params := executables(link), paramLeaves(link)
	if err := scan.inputs(ctx, link.Inputs); err != nil {
		return nil, false, locateIn(link.File, err)
	}
	touched := scan.touched.Load() || link.Home != w.states.links.home() // written in another home
	reshaped := paramsOf(look.states).reshaped(ctx, link, params)
	if executable == executables(link) && !reshaped {
		reread, err := look.catchUp(ctx, lock, s, link, scan.changed.Load(), durable, g)
		if err != nil {
			return nil, false, err
		}
		touched = touched || reread
	}
	if executable != executables(link) || reshaped {
		work()
		built, err = w.deployFile(ctx, lock, link.File, durable, s) // how an input is staged is part of the task
		return built, false, err
	}
	if touched {
		err = w.states.links.saveLink(ctx, lock.ws, link, durable, nil)
	}
	return nil, true, err
}

// catchUp assigns the link's inputs to the tree, if the tree holds or may hold others. reread is as for assignLinked.
// g, if not nil, holds the gathered inputs.
func (w *Deployer) catchUp(ctx context.Context, lock *hold, s *State, link *record.Link, changed, durable bool, g Gathering) (reread bool, err error) {
	if !changed {
		if changed, err = w.behind(ctx, s, link); err != nil || !changed {
			return false, err
		}
	}
	if g == nil {
		return w.assignLinked(ctx, lock, link, durable)
	}
	err = w.send(ctx, g, link.Inputs, s)
	again := errors.Is(err, objectstore.ErrUnsent)
	if again { // from here on every put goes to the store
		scan := &scan{states: w.states, base: filepath.Dir(link.File), verify: true}
		err = scan.inputs(ctx, link.Inputs)
	}
	if err != nil {
		return false, err
	}
	reread, err = w.assignLinked(ctx, lock, link, durable)
	return reread || again, err
}

// statLinked returns the file info of the package file that a workspace follows.
func statLinked(ws, file string) (os.FileInfo, error) {
	info, err := os.Stat(file)
	if err != nil {
		return nil, &manifest.OpenError{Err: fmt.Errorf("package file of workspace %s: %w; deploy it again from where it is now", ws, err)}
	}
	return info, nil
}

// behind tells whether the tree and the link disagree about a linked input that is not set, as after an interrupted
// unset. It also reports variables whose value has changed.
func (w *Deployer) behind(ctx context.Context, s *State, link *record.Link) (bool, error) {
	t, err := w.states.readTree(ctx, s.RootHash, inputsPart)
	if err != nil {
		return false, err
	}
	marks := s.marks(link)
	for i := range link.Inputs {
		in := &link.Inputs[i]
		if in.Source == record.FromParams {
			if behind, err := w.paramsBehind(ctx, t, in, marks); err != nil || behind {
				return behind, err
			}
			continue
		}
		if file, _, part := record.PartOf(in.Name); part && len(marksOf(file, marks)) > 0 {
			continue // it follows the values of its file
		}
		if have, ok := t.inputs.Get(in.Name); ok && have != in.Leaf && !slices.Contains(marks, in.Name) {
			return true, nil
		}
	}
	return w.outdated(ctx, t)
}

// restore reads linked inputs again whose content is missing from the store.
func (w *Deployer) restore(ctx context.Context, lock *hold, s *State, durable bool) error {
	ws := lock.ws
	link, err := w.states.links.link(ctx, ws, s)
	if err != nil || link == nil || folderGone(link.File) {
		return err
	}
	scan := &scan{states: w.states, base: filepath.Dir(link.File), verify: true}
	if err := scan.inputs(ctx, link.Inputs); err != nil {
		return err
	}
	if scan.changed.Load() {
		if _, err := w.assignLinked(ctx, lock, link, durable); err != nil {
			return err
		}
	}
	return w.states.links.saveLink(ctx, ws, link, durable, nil)
}

// assignLinked assigns the link's inputs to the tree, except for set ones, and the present variables. An input that
// differs from the tree's may have been collected since it was read. It is refreshed or, if that fails, read again;
// reread says that an input was read again.
func (w *Deployer) assignLinked(ctx context.Context, lock *hold, link *record.Link, durable bool) (reread bool, err error) {
	ws := lock.ws
	_, err = w.states.edit(ctx, lock, ws, durable, inputsPart, func(s *State, t *tree) error {
		set, marked, err := w.states.links.marked(ctx, ws, s) // keeps inputs that were set since the link was read
		if err != nil {
			return err
		}
		if !marked {
			set = link.Set
		}
		for _, in := range partsFirst(link.Inputs) {
			if in.Source != record.FromParams && slices.Contains(set, in.Name) {
				continue
			}
			had, _ := t.inputs.Get(in.Name)
			if have, _ := t.inputs.Get(in.Name); have != in.Leaf {
				if t.inputsHash == "" { // the tree was made anew: the state does not name it
					have = record.Leaf{}
				}
				again, err := w.states.renew(ctx, link, in, have)
				if err != nil {
					return err
				}
				reread = reread || again
			}
			if in.Source == record.FromParams {
				if t.inputs, err = paramsOf(w.states).assign(ctx, t.inputs, paramFile{in.Name, in.Location}, in.Leaf, had, set); err != nil {
					return err
				}
				continue
			}
			t.inputs = t.inputs.Set(in.Name, in.Leaf)
		}
		return w.setVariables(ctx, t)
	})
	return reread, err
}

// partsFirst lists inputs so that parts of a file of parameters have their texts before the file's values go into them.
func partsFirst(inputs []record.LinkInput) []*record.LinkInput {
	var parts, others []*record.LinkInput
	for i := range inputs {
		if in := &inputs[i]; in.Source == record.FromPart {
			parts = append(parts, in)
		} else {
			others = append(others, in)
		}
	}
	return append(parts, others...)
}

// executables encodes which file inputs have the executable bit.
func executables(link *record.Link) string {
	b := make([]byte, len(link.Inputs))
	for i := range link.Inputs {
		if link.Inputs[i].Leaf.Executable {
			b[i] = 1
		}
	}
	return string(b)
}

// Replaced is a value of a workspace that a package file replaces when the workspace begins to follow it. Where the
// workspace was imported, the value may have been set before the export: its package has set values as defaults.
type Replaced struct {
	Name        string
	Before, Now string // in the notation of e3 set; "" for a long one
}

// replaced finds the values that a package file is about to replace in a workspace that follows another file or no
// file. The list is for a message, so unreadable values are left out.
func (w *Deployer) replaced(ctx context.Context, ws string, s *State, pkg *record.Package) []Replaced {
	old, err := w.states.holdings(ctx, ws, s, pkg)
	if err != nil {
		return nil
	}
	var list []Replaced
	for i := range pkg.Inputs {
		in := &pkg.Inputs[i]
		have, ok := old.inputs.Get(in.Name)
		if !ok || old.set[in.Name] || in.Source.OfMachine() || have.Kind != record.LeafValue || in.Default.Kind != record.LeafValue || have == in.Default {
			continue
		}
		list = append(list, Replaced{in.Name, w.shortText(ctx, have), w.shortText(ctx, in.Default)})
	}
	return list
}

// longestShown is the length of the longest value that a message shows.
const longestShown = 60

// shortText is a scalar value as a person would write it; "" if the value is long or no scalar.
func (w *Deployer) shortText(ctx context.Context, leaf record.Leaf) string {
	v, err := w.datasets.valueOf(ctx, leaf)
	if err != nil || v == nil {
		return ""
	}
	text, ok := v.Scalar()
	switch {
	case !ok || len(text) > longestShown:
		return ""
	case text == "":
		return strconv.Quote(text)
	}
	return text
}

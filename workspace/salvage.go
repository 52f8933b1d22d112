package workspace

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"e3/internal/format/record"
	"e3/internal/packages"
	"e3/objectstore"
	"e3/refstore"
)

// A workspace's tree and its package are objects, and a disk or a bucket may lose objects. Everything in them can be
// restored, except values from "e3 set" (doc/design.md, §8, Losses). This file reads the remaining parts, and tells
// which set values are lost.

// A LostValuesError names inputs whose values were set, or may have been, and are lost. The default must not replace
// them silently.
type LostValuesError struct {
	Workspace string
	Inputs    []string
	Err       error  // why the values are lost or unknown; nil if the tree itself marks them as lost
	Package   string // name@version of the package that would tell which inputs are set, if it were registered again
	Linked    bool   // each value may also be an earlier content of its file
}

func (e *LostValuesError) Error() string {
	names := strings.Join(e.Inputs[:min(len(e.Inputs), 5)], ", ")
	if more := len(e.Inputs) - 5; more > 0 {
		names += fmt.Sprintf(" and %d more", more)
	}
	why := ""
	if e.Err != nil {
		why = " (" + e.Err.Error() + ")"
	}
	first := e.Workspace + "." + e.Inputs[0]
	switch {
	case e.Package != "":
		return fmt.Sprintf("workspace %s: it cannot be known whether a value was set for %s%s; register package %s again, which tells: e3 package build <repo> <e3.yaml>",
			e.Workspace, names, why, e.Package)
	case e.Linked:
		return fmt.Sprintf("workspace %s: it cannot be known whether a value was set for %s%s, or its file has changed; if the file is to count: e3 unset <repo> %s",
			e.Workspace, names, why, first)
	}
	return fmt.Sprintf("workspace %s: what was set for %s is lost%s; set it again: e3 set <repo> %s <value>; or go on without: e3 unset <repo> %[4]s",
		e.Workspace, names, why, first)
}

// Unwrap makes errors.Is(err, objectstore.ErrNotFound) true.
func (e *LostValuesError) Unwrap() []error {
	if e.Err == nil {
		return []error{objectstore.ErrNotFound}
	}
	return []error{objectstore.ErrNotFound, e.Err}
}

// holdings are the readable parts of a workspace's tree.
type holdings struct {
	tree
	inputsLost, tasksLost error
	lossy                 bool            // a part of the tree is lost
	set                   map[string]bool // inputs whose value in the tree was set
}

// holdings reads the parts of a workspace that a deployment of a package could keep. With a *LostValuesError the other
// parts are still valid.
func (w *States) holdings(ctx context.Context, ws string, s *State, pkg *record.Package) (*holdings, error) {
	h := &holdings{set: map[string]bool{}}
	if !s.Deployed {
		return h, nil
	}
	err := w.salvage(ctx, ws, s, h)
	if errors.Is(err, record.ErrType) {
		return &holdings{set: h.set}, nil // nothing of the reference's tree is kept
	}
	if err != nil {
		return nil, err
	}
	marks, marked, err := w.links.marked(ctx, ws, s)
	badLink := err
	if err != nil && !errors.Is(err, errBadLink) {
		return nil, err
	}
	switch {
	case marked && h.inputsLost != nil:
		err = lostValues(ws, pkg, h.inputsLost, func(in *record.PackageInput) bool { return slices.Contains(marks, in.Name) })
	case marked:
		for _, name := range marks {
			h.set[name] = true
		}
		err = unreadable(ws, pkg, h)
	default:
		err = w.unmarked(ctx, ws, s, pkg, h, badLink)
	}
	return h, err
}

// salvage reads the tree of a state without its lost parts.
func (w *States) salvage(ctx context.Context, ws string, s *State, h *holdings) (err error) {
	h.inputsHash, h.tasksHash, err = w.readRoot(ctx, s.RootHash)
	if isLost(err) {
		if err := w.staleOr(ctx, ws, s, err); errors.Is(err, errStale) {
			return err
		}
		h.lossy = true
		var known bool
		if h.inputsHash, h.tasksHash, known = w.guessRoot(ctx, ws, s); !known {
			h.inputsHash, h.tasksHash, h.inputsLost, h.tasksLost = "", "", err, err
			return nil
		}
	} else if err != nil {
		return err
	}
	if h.inputs, err = w.readNode(ctx, h.inputsHash); isLost(err) {
		h.lossy, h.inputsLost, err = true, err, w.stale(ctx, ws, s, err)
	}
	if err != nil {
		return err
	}
	if h.tasks, err = w.readNode(ctx, h.tasksHash); isLost(err) {
		h.lossy, h.tasksLost, err = true, err, w.stale(ctx, ws, s, err)
	}
	return err
}

// stale returns errStale if a part of a state is lost because the state was replaced.
func (w *States) stale(ctx context.Context, ws string, s *State, err error) error {
	if err = w.staleOr(ctx, ws, s, err); errors.Is(err, errStale) {
		return err
	}
	return nil
}

// guessRoot finds the nodes below a lost root. It tries the nodes of the latest proof and of a fresh deployment, and
// compares the hash of each root with the hash of the lost root.
func (w *States) guessRoot(ctx context.Context, ws string, s *State) (inputs, tasks string, ok bool) {
	var ins, outs []string
	if rec, err := w.Derived.Get(ctx, proofKey(ws)); err == nil {
		if p, err := record.DecodeProof(rec.Value); err == nil {
			ins, outs = append(ins, p.Inputs), append(outs, p.Tasks)
		}
	}
	if pkg, err := w.Packages.Load(ctx, s.PackageHash); err == nil {
		ins = append(ins, objectstore.Sum(defaults(pkg).Encode()).String())
		outs = append(outs, objectstore.Sum(unassigned(pkg).Encode()).String())
	}
	for _, inputs := range ins {
		for _, tasks := range outs {
			if objectstore.Sum(rootNode(inputs, tasks).Encode()).String() == s.RootHash {
				return inputs, tasks, true
			}
		}
	}
	return "", "", false
}

// unassigned returns the outputs of a workspace in which no task has run.
func unassigned(pkg *record.Package) record.Node {
	tasks := make(record.Node, len(pkg.Tasks))
	for i := range pkg.Tasks {
		tasks[i] = record.NodeEntry{Name: pkg.Tasks[i].Name, Leaf: record.Leaf{Kind: record.LeafUnassigned}}
	}
	tasks.Sort()
	return tasks
}

// unmarked finds the set inputs if there are no marks, because a registered package is deployed or the marks are lost:
// they are the inputs that differ from the deployed package's defaults.
func (w *States) unmarked(ctx context.Context, ws string, s *State, next *record.Package, h *holdings, badLink error) error {
	pkg, err := w.Packages.Load(ctx, s.PackageHash)
	switch {
	case errors.Is(err, record.ErrType):
		return nil // a package of the reference
	case isLost(err):
		if err := w.stale(ctx, ws, s, err); err != nil {
			return err
		}
		return unpackaged(ws, s, next, h, err)
	case err != nil:
		return err
	}
	if h.inputsLost != nil {
		if objectstore.Sum(defaults(pkg).Encode()).String() == h.inputsHash {
			h.inputs, h.inputsLost = defaults(pkg), nil // nothing was set
			return nil
		}
		return lostValues(ws, next, h.inputsLost, func(*record.PackageInput) bool { return true })
	}
	followed := badLink != nil
	if !followed {
		if followed, err = w.links.lostLink(ctx, ws, s); err != nil {
			return err
		}
	}
	var doubtful []string
	for i := range pkg.Inputs {
		in := &pkg.Inputs[i]
		have, ok := h.inputs.Get(in.Name)
		switch {
		case !ok || have == in.Default || in.Source.OfMachine() || in.Source == record.FromPart: // each start makes it again
		case in.Source == record.FromParams && !followed && have.Kind == record.LeafValue:
			if err := paramsOf(w).unmarked(ctx, in, have, h); err != nil {
				return err
			}
		case in.Source == record.FromValue || !followed || have.Kind == record.LeafUnassigned:
			h.set[in.Name] = true
		case have != defaultOf(next, in.Name):
			doubtful = append(doubtful, in.Name)
		}
	}
	if err := unreadable(ws, next, h); err != nil || len(doubtful) == 0 {
		return err
	}
	return &LostValuesError{Workspace: ws, Inputs: doubtful, Err: badLink, Linked: true}
}

// unpackaged reports the inputs that may have been set, if the deployed package and with it the defaults are lost.
func unpackaged(ws string, s *State, next *record.Package, h *holdings, cause error) error {
	err := lostValues(ws, next, cause, func(in *record.PackageInput) bool {
		have, ok := h.inputs.Get(in.Name)
		return h.inputsLost != nil || ok && have != in.Default
	})
	var values *LostValuesError
	if errors.As(err, &values) {
		values.Package = s.PackageName + "@" + s.PackageVersion
	}
	return err
}

// unreadable reports the set inputs whose values the tree itself marks as lost: another "e3 set" or "e3 unset" has
// written it since.
func unreadable(ws string, pkg *record.Package, h *holdings) error {
	return lostValues(ws, pkg, nil, func(in *record.PackageInput) bool {
		return h.set[in.Name] && holdsNothing(h.inputs, in)
	})
}

// missingValues reports inputs that hold nothing although the package has a default: their set values are lost.
func missingValues(ws string, pkg *record.Package, inputs record.Node) error {
	return lostValues(ws, pkg, nil, func(in *record.PackageInput) bool { return holdsNothing(inputs, in) })
}

// holdsNothing tells whether an input holds nothing although the package has a default for it.
func holdsNothing(inputs record.Node, in *record.PackageInput) bool {
	have, ok := inputs.Get(in.Name)
	return ok && have.Kind == record.LeafUnassigned && in.Default.Kind != record.LeafUnassigned
}

// lostValues returns a *LostValuesError of the inputs that meant selects; nil if there are none.
func lostValues(ws string, pkg *record.Package, cause error, meant func(*record.PackageInput) bool) error {
	e := &LostValuesError{Workspace: ws, Err: cause}
	for i := range pkg.Inputs {
		if in := &pkg.Inputs[i]; !in.Source.OfMachine() && meant(in) {
			e.Inputs = append(e.Inputs, in.Name)
		}
	}
	if len(e.Inputs) == 0 {
		return nil
	}
	return e
}

func defaultOf(pkg *record.Package, input string) record.Leaf {
	for i := range pkg.Inputs {
		if pkg.Inputs[i].Name == input {
			return pkg.Inputs[i].Default
		}
	}
	return record.Leaf{}
}

// rebuilt makes the tree of a state that has lost a part, for the deployed package. Readable parts stay, a lost output
// becomes unassigned, and an input comes from its link or the package. With a *LostValuesError the inputs that it names
// are unassigned.
func (w *States) rebuilt(ctx context.Context, ws string, s *State, pkg *record.Package) (*tree, error) {
	h, err := w.holdings(ctx, ws, s, pkg)
	var values *LostValuesError
	if err != nil && !errors.As(err, &values) {
		return nil, err
	}
	t := &h.tree
	t.rebuilt = h.tasksLost != nil
	if h.tasksLost != nil {
		t.tasks = unassigned(pkg)
	}
	if h.inputsLost == nil {
		return t, err
	}
	link, linkErr := w.links.link(ctx, ws, s)
	if linkErr != nil && !errors.Is(linkErr, errBadLink) {
		return nil, linkErr
	}
	t.inputs = defaults(pkg)
	for i := range t.inputs {
		e := &t.inputs[i]
		if values != nil && slices.Contains(values.Inputs, e.Name) {
			e.Leaf = record.Leaf{Kind: record.LeafUnassigned}
			continue
		}
		if link == nil {
			continue
		}
		if k := slices.IndexFunc(link.Inputs, func(in record.LinkInput) bool { return in.Name == e.Name }); k >= 0 && link.Inputs[k].Leaf.Kind == e.Kind {
			e.Leaf = link.Inputs[k].Leaf
		}
	}
	return t, err
}

// lostLink tells whether the link of a workspace is lost. An unregistered deployed package came from a file, and a
// workspace that follows no file has a link that says so. A shared workspace's state says what it follows.
func (w *links) lostLink(ctx context.Context, ws string, s *State) (bool, error) {
	if w.shared || !s.Deployed {
		return false, nil
	}
	if link, err := w.anyLink(ctx, ws); err != nil || link != nil {
		return false, ignoreBadLink(err)
	}
	rec, err := w.Records.Get(ctx, packages.Key(s.PackageName, s.PackageVersion))
	if errors.Is(err, refstore.ErrNotFound) {
		return true, nil
	}
	return err == nil && strings.TrimSuffix(string(rec.Value), "\n") != s.PackageHash, err
}

func ignoreBadLink(err error) error {
	if errors.Is(err, errBadLink) {
		return nil
	}
	return err
}

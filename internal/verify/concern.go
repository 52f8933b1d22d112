package verify

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"e3/executions"
	"e3/internal/pkgref"
	"e3/internal/reach"
	"e3/objectstore"
)

// A need is a thing that needs a broken object.
type need struct {
	kind      needKind
	workspace string
	name      string // of the dataset or task; path leads on from it
	pkg       string // name@version
	path      string // below the object that the owner names
	top       objectstore.Hash
	key       executions.Key // of an execution
	execution string
	label     string // of an execution, for display
	linked    string // the followed package file, if the input is linked
}

type needKind int

const (
	needsOutput       needKind = iota // of a success
	needsDataset                      // an output in a workspace
	needsInput                        // an input in a workspace
	needsTree                         // of a workspace
	needsDeployed                     // a part of a workspace's package
	needsPackage                      // a part of a registered package
	needsExportedPart                 // an input whose content an export may leave out
	needsSnapshot                     // a part of a run's snapshots; name says which
)

// concern maps each broken object to the things that need it.
type concern map[objectstore.Hash][]need

func (c *concern) add(h objectstore.Hash, n need) {
	if *c == nil {
		*c = concern{}
	}
	(*c)[h] = append((*c)[h], n)
}

// String describes the need in words.
func (n *need) String() string {
	path := ""
	if n.path != "" {
		path = " at " + n.path
	}
	switch n.kind {
	case needsOutput:
		return "output of " + n.label + path
	case needsDataset:
		return "output " + n.workspace + "." + n.name + path
	case needsInput, needsExportedPart:
		if n.workspace == "" {
			return "input " + n.name + " of package " + n.pkg + path
		}
		return "input " + n.workspace + "." + n.name + path
	case needsTree:
		return "tree of workspace " + n.workspace + path
	case needsDeployed:
		return inside(n.name, "the package of workspace "+n.workspace) + path
	case needsSnapshot:
		return n.name + " of run " + n.execution + " of workspace " + n.workspace + path
	}
	return inside(n.name, "package "+n.pkg) + path
}

func inside(part, whole string) string {
	if part == "" {
		return whole
	}
	return part + " of " + whole
}

// advice says how the user can repair the need.
func (n *need) advice() string {
	switch n.kind {
	case needsOutput, needsDataset:
		return "with --repair it is made again by the next start"
	case needsInput:
		if n.linked != "" {
			return fmt.Sprintf("take it in again: e3 workspace deploy <repo> %s %s", n.workspace, n.linked)
		}
		return fmt.Sprintf("set it again: e3 set <repo> %s.%s <value>", n.workspace, n.name)
	case needsTree, needsDeployed:
		return fmt.Sprintf("it is made again with --repair, or by: e3 start <repo> %s", n.workspace)
	case needsSnapshot:
		return "with --repair the run's record does not name them any more: that run cannot be compared with others"
	case needsPackage:
		return "register package " + n.pkg + " again, with e3 package build or import"
	}
	return ""
}

// owner finds out which objects below a root are broken, and why the owner needs them.
func (t *tracer) owner(r reach.Root) error {
	switch r.Owner.Kind {
	case reach.APackage:
		return t.pkg(r.Ref, need{kind: needsPackage, pkg: pkgref.OfKey(r.Owner.Name)})
	case reach.AWorkspace:
		if r.Kind == reach.Package {
			return t.pkg(r.Ref, need{kind: needsDeployed, workspace: r.Owner.Name})
		}
		return t.tree(r.Ref, r.Owner.Name)
	case reach.AnExecution:
		return t.execution(r)
	case reach.ATask:
		return t.task(r)
	case reach.ARun:
		return t.snapshot(r)
	}
	return nil
}

// lost adds a need for everything that is broken below a reference.
func (t *tracer) lost(r reach.Ref, n need) error {
	parts, err := t.below(r, 0)
	n.top = r.Hash
	for _, p := range parts {
		n.path = p.path
		t.concern.add(p.hash, n)
	}
	return err
}

// pkg checks a package: its tasks and its default datasets.
func (t *tracer) pkg(r reach.Ref, n need) error {
	if parts, err := t.below(r, 0); err != nil || len(parts) == 0 {
		return err
	}
	if t.isBroken(r) {
		return t.lost(r, n)
	}
	marked, err := t.marked(r.Hash)
	if err != nil {
		return err
	}
	children, err := t.children(r)
	if err != nil {
		return err
	}
	for _, c := range children {
		below := n
		below.name = "task " + c.Name
		if c.Kind != reach.Task {
			below.name = "input " + c.Name
			if marked[c.Name] {
				below.kind, below.name = needsExportedPart, c.Name
			} else if n.kind == needsDeployed {
				continue // the workspace has an input of its own
			}
		}
		if err := t.lost(c.Ref, below); err != nil {
			return err
		}
	}
	return nil
}

func (t *tracer) isBroken(r reach.Ref) bool {
	_, object := t.broken.objects[r.Hash]
	_, malformed := t.broken.malformed[r]
	return object || malformed
}

// marked returns the inputs of a package whose content an export may leave out.
func (t *tracer) marked(h objectstore.Hash) (map[string]bool, error) {
	pkg, err := t.v.Workspaces.Packages.Load(t.ctx, h.String())
	if err != nil {
		return nil, t.ctx.Err() // a package of the reference, or unreadable
	}
	names := map[string]bool{}
	for i := range pkg.Inputs {
		if pkg.Inputs[i].NoExport {
			names[pkg.Inputs[i].Name] = true
		}
	}
	return names, nil
}

// tree checks the datasets of a workspace.
func (t *tracer) tree(r reach.Ref, ws string) error {
	if parts, err := t.below(r, 0); err != nil || len(parts) == 0 {
		return err
	}
	n := need{kind: needsTree, workspace: ws}
	if t.isBroken(r) {
		return t.lost(r, n)
	}
	marked, linked, err := t.workspace(ws)
	if err != nil {
		return err
	}
	nodes, err := t.children(r)
	if err != nil {
		return err
	}
	for _, node := range nodes {
		if node.Kind != reach.Node || t.isBroken(node.Ref) {
			if err := t.lost(node.Ref, n); err != nil {
				return err
			}
			continue
		}
		datasets, err := t.children(node.Ref)
		if err != nil {
			return err
		}
		for _, c := range datasets {
			below := need{kind: needsDataset, workspace: ws, name: c.Name}
			if node.Name == "inputs" {
				below.kind, below.linked = needsInput, linked[c.Name]
				if marked[c.Name] {
					below.kind = needsExportedPart
				}
			}
			if err := t.lost(c.Ref, below); err != nil {
				return err
			}
		}
	}
	return nil
}

// workspace returns which inputs of a workspace may lack their content, and which follow a file.
func (t *tracer) workspace(ws string) (marked map[string]bool, linked map[string]string, err error) {
	s, err := t.v.Workspaces.State(t.ctx, ws)
	if err != nil || !s.Deployed {
		return nil, nil, t.ctx.Err() // it has just been removed
	}
	h, err := objectstore.ParseHash(s.PackageHash)
	if err != nil {
		return nil, nil, nil
	}
	if marked, err = t.marked(h); err != nil {
		return nil, nil, err
	}
	linked, err = t.v.Workspaces.Deployer.LinkedInputs(t.ctx, ws)
	if err != nil {
		return marked, nil, t.ctx.Err() // the link has a fault of its own
	}
	return marked, linked, nil
}

// execution checks the output of a success. A rejected success is never a hit, so its output may be incomplete.
func (t *tracer) execution(r reach.Root) error {
	parts, err := t.below(r.Ref, 0)
	if err != nil || len(parts) == 0 {
		return err
	}
	e, err := t.v.Curator.Get(t.ctx, r.Owner.Key, r.Owner.ID)
	switch {
	case errors.Is(err, executions.ErrNotFound), errors.Is(err, executions.ErrMalformed):
		return nil // pruned meanwhile, or unreadable, which is a fault of its own
	case err != nil:
		return err
	case e.Rejected():
		return nil
	}
	return t.lost(r.Ref, need{kind: needsOutput, key: e.Key, execution: e.ExecutionID, label: describe(e)})
}

// task notes that executions have lost their task object. They still count as hits, and a package that needs the task
// has a fault of its own.
func (t *tracer) task(r reach.Root) error {
	parts, err := t.below(r.Ref, 0)
	if len(parts) > 0 {
		t.v.note("task object %s is broken or gone; its executions still count as results, but cannot be made again", r.Hash)
	}
	return err
}

// explain reports the broken objects as faults.
func (v *verifier) explain(b *broken) {
	for h, d := range b.objects {
		v.object(h, d)
	}
	for r, problem := range b.malformed {
		v.object(r.Hash, damage{kind: MalformedObject, problem: problem})
	}
}

func (v *verifier) object(h objectstore.Hash, d damage) {
	f := Fault{Kind: d.kind, Where: objectPath(h), Problem: d.problem, object: h}
	needs := slices.DeleteFunc(slices.Clone(v.concern[h]), func(n need) bool {
		if n.kind == needsExportedPart && d.kind == MissingObject {
			v.note("%s has no content here: an export may leave it out", n.String())
			return true
		}
		return false
	})
	if v.concern == nil {
		v.concern = concern{}
	}
	v.concern[h] = needs
	for i := range needs {
		if needs[i].kind == needsInput {
			v.report.Inputs = append(v.report.Inputs, needs[i].workspace+"."+needs[i].name)
		}
	}
	if d.kind != CorruptObject && d.kind != UnreadableObject && len(needs) == 0 {
		return // nothing needs it
	}
	slices.SortStableFunc(needs, func(a, b need) int { return cmp.Compare(a.String(), b.String()) })
	var advice []string
	for i := range needs {
		text := needs[i].String()
		if len(f.For) < maxFor && !slices.Contains(f.For, text) {
			f.For = append(f.For, text)
		} else if !slices.Contains(f.For, text) {
			f.More++
		}
		if a := needs[i].advice(); a != "" && !slices.Contains(advice, a) && len(advice) < 3 {
			advice = append(advice, a)
		}
	}
	if len(needs) == 0 {
		advice = []string{"nothing needs it; --repair removes it"}
	}
	if d.kind == UnreadableObject {
		advice = []string{"look at the disk"}
	} else {
		f.mend = func(ctx context.Context) (string, bool, error) { return v.mendObject(ctx, h, d) }
	}
	f.Advice = strings.Join(advice, "; ")
	v.fault(f)
}

package workspace

import (
	"context"
	"fmt"
	"slices"

	"e3/internal/record"
	"e3/objectstore"
)

// checkInputs makes sure that the content of the inputs is there before commands are
// started on it; what a linked workspace has lost is taken in again. What an export may have
// left out is no fault yet: the tasks that must run and read it say so.
func (r *run) checkInputs(ctx context.Context, pkg *record.Package, inputs record.Node) (record.Node, error) {
	missing, err := r.w.missingInputs(ctx, inputs)
	if err != nil || len(missing) == 0 {
		return inputs, err
	}
	if err := r.w.restore(ctx, r.lock, r.state, r.durable); err != nil {
		return nil, err
	}
	if err := r.hold(ctx); err != nil {
		return nil, err
	}
	t, err := r.w.readTree(ctx, r.state.RootHash, inputsPart)
	if err != nil {
		return nil, err
	}
	r.inputs = t.inputsHash
	if r.rec.InputSnapshot, err = r.w.writeRoot(ctx, r.inputs, ""); err != nil {
		return nil, err
	}
	if missing, err = r.w.missingInputs(ctx, t.inputs); err != nil {
		return nil, err
	}
	return t.inputs, missed(r.ws, pkg, missing)
}

// missed is a MissingError unless an export may have left all that is missing out.
func missed(ws string, pkg *record.Package, missing []string) error {
	missing = slices.DeleteFunc(missing, func(name string) bool {
		return slices.ContainsFunc(pkg.Inputs, func(in record.PackageInput) bool { return in.Name == name && in.NoExport })
	})
	if len(missing) == 0 {
		return nil
	}
	return &MissingError{Workspace: ws, Inputs: missing}
}

// MissingError says that datasets name objects that are not in the store.
type MissingError struct {
	Workspace string
	Inputs    []string
}

func (e *MissingError) Error() string {
	return fmt.Sprintf("the content of %d inputs of workspace %s is gone from the store, first %s; set them again, or deploy again",
		len(e.Inputs), e.Workspace, e.Inputs[0])
}

// Unwrap makes errors.Is(err, objectstore.ErrNotFound) true.
func (e *MissingError) Unwrap() error { return objectstore.ErrNotFound }

// missingInputs looks for the content of inputs. Where the object store presumes there is nothing to look for: they are named by
// the state. Of what an export may leave out, tasks that must run make sure themselves.
func (w *Workspaces) missingInputs(ctx context.Context, inputs record.Node) ([]string, error) {
	if w.presumes() {
		return nil, nil
	}
	var hashes []objectstore.Hash
	for i := range inputs {
		if h, err := objectstore.ParseHash(inputs[i].Hash); err == nil {
			hashes = append(hashes, h)
		}
	}
	gone, err := w.Objects.Missing(ctx, hashes)
	if err != nil || len(gone) == 0 {
		return nil, err
	}
	set := make(map[string]bool, len(gone))
	for _, h := range gone {
		set[h.String()] = true
	}
	var names []string
	for i := range inputs {
		if set[inputs[i].Hash] {
			names = append(names, inputs[i].Name)
		}
	}
	return names, nil
}

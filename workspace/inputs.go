package workspace

import (
	"context"
	"errors"

	"e3/internal/format/record"
	"e3/objectstore"
)

// checkInputs looks for the content of the inputs before commands are started on it, and takes in again what a linked workspace has
// lost. What cannot be had again is no fault yet: the tasks that must run and read it fail, and name it.
func (r *run) checkInputs(ctx context.Context, inputs record.Node) (record.Node, error) {
	missing, err := r.w.proofs.missesInputs(ctx, inputs)
	if err != nil || !missing {
		return inputs, err
	}
	if err := r.w.deployer.storeVariables(ctx, inputs); err != nil {
		return nil, err
	}
	if err := r.w.deployer.restore(ctx, r.lock, r.state, r.durable); err != nil {
		return nil, err
	}
	if err := r.hold(ctx); err != nil {
		return nil, err
	}
	t, err := r.w.states.readTree(ctx, r.state.RootHash, inputsPart)
	if err != nil {
		return nil, err
	}
	r.inputs = t.inputsHash
	return t.inputs, r.snapInputs(ctx, r.inputs, "")
}

// restored stores anew what the package file, its linked inputs and the environment hold. The state stays as it is: where a file holds something
// else by now, what was lost stays lost, and the next start follows the file.
func (r *run) restored(ctx context.Context) error {
	r.restoring.Lock()
	defer r.restoring.Unlock()
	if err := r.restoreVariables(ctx); err != nil {
		return err
	}
	link, err := r.w.states.links.link(ctx, r.ws, r.state)
	if errors.Is(err, errBadLink) || err == nil && link == nil {
		return nil
	}
	if err != nil {
		return err
	}
	if _, err := r.w.deployer.Build(ctx, link.File, nil); err != nil {
		return context.Cause(ctx) // what cannot be read is lost
	}
	return nil
}

// missesInputs tells whether content of inputs is gone. Where the object store presumes there is nothing to look for: they are named by
// the state, and tasks that must run make sure themselves.
func (w *proofs) missesInputs(ctx context.Context, inputs record.Node) (bool, error) {
	if w.presumes() {
		return false, nil
	}
	var hashes []objectstore.Hash
	for i := range inputs {
		if h, err := objectstore.ParseHash(inputs[i].Hash); err == nil {
			hashes = append(hashes, h)
		}
	}
	gone, err := w.states.Objects.Missing(ctx, hashes)
	return len(gone) > 0, err
}

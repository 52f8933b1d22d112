package workspace

import (
	"context"
	"errors"

	"e3/internal/format/record"
	"e3/objectstore"
)

// checkInputs checks that the content of the inputs is stored before commands start, and restores lost content of a
// linked workspace. Content that cannot be restored is no error yet: a task that must run and reads it fails, and
// names it.
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
	if r.inputs, err = r.override(ctx, &RunInfo{}, t.inputsHash); err != nil {
		return nil, err
	}
	if inputs, err = r.w.states.readNode(ctx, r.inputs); err != nil {
		return nil, err
	}
	return inputs, r.snapInputs(ctx, r.inputs, "")
}

// restored stores the present package file, linked inputs and variables again. The state stays unchanged. If a file has
// changed, its lost content stays lost, and the next start follows the file.
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
		return context.Cause(ctx) // an input that cannot be read stays lost
	}
	return nil
}

// missesInputs tells whether content of inputs is missing. It does not look if the object store presumes presence:
// the state names the content, and tasks that must run check it themselves.
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

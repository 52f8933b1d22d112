package executions

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"e3/internal/format/record"
	"e3/internal/format/value"
	"e3/internal/host/beneath"
	"e3/objectstore"
	"e3/objectstore/tree"
)

// stage puts the declared inputs, and nothing else, into the sandbox, and returns the environment of the command.
// Declared paths are relative to the sandbox, so that they are the same wherever it lies. For a task that runs in
// batches it stages only what belongs to the item; stageBatch does the rest.
func (b *box) stage(ctx context.Context) ([]string, error) {
	spec := b.spec
	if len(spec.Inputs) != len(b.req.Inputs) {
		return nil, fmt.Errorf("task declares %d inputs, %d are given", len(spec.Inputs), len(b.req.Inputs))
	}
	b.mixed = slices.ContainsFunc(spec.Inputs, func(in record.Input) bool { return in.Kind == record.KindDir && in.Path != "" })
	if b.mixed {
		if err := b.putAside(); err != nil { // a tree must not find a file of an earlier command
			return nil, err
		}
	}
	b.texts = make([]string, len(spec.Inputs))
	env, err := b.eachInput(ctx, b.baseEnv(), spec.Batch != nil, b.stageInput)
	if err != nil {
		return nil, err
	}
	if spec.Batch != nil { // an item with neither inputs nor outputs in subfolders has a folder too
		if err := b.mkdir(filepath.FromSlash(itemFolder(0))); err != nil {
			return nil, err
		}
	}
	for _, out := range spec.Output.Entries {
		dir, err := local(out.Path) // an output directory exists before the command starts
		if err == nil && out.Kind != record.KindDir {
			b.files = append(b.files, dir) // removed afterwards, whether collected or not
			dir = filepath.Dir(dir)
		}
		if err == nil {
			err = b.mkdir(dir)
		}
		if err != nil {
			return nil, fmt.Errorf("output %s: %w", out.Name, err)
		}
	}
	if spec.Batch == nil {
		err = b.stageScript()
	}
	return b.lastEnv(env), errors.Join(err, b.clearSpare())
}

// eachInput calls do for the inputs of the batch's item (own), or for all others, and appends the returned texts to
// the command's environment.
func (b *box) eachInput(ctx context.Context, env []string, own bool, do func(context.Context, record.Input, objectstore.Hash) (string, bool, error)) ([]string, error) {
	for i, in := range b.spec.Inputs {
		if _, ok := record.EnvironmentOf(in.Name); ok || b.ownsInput(in) != own {
			continue // the command finds the programs of its environment on its PATH
		}
		text, set, err := do(ctx, in, b.req.Inputs[i])
		if err != nil {
			return nil, fmt.Errorf("input %s: %w", in.Name, err)
		}
		b.texts[i] = text
		if set && !own && !record.ToolFile(in.Name) {
			env = append(env, in.Name+"="+text)
		}
	}
	return env, nil
}

// stageInput puts one input in its place and returns the command's text for it. set is false for a variable that must
// stay unset.
func (b *box) stageInput(ctx context.Context, in record.Input, h objectstore.Hash) (text string, set bool, err error) {
	switch in.Kind {
	case record.KindVariable:
		return b.variable(ctx, h)
	case record.KindTool:
		return "", false, nil // the command finds it on its PATH
	case record.KindValue:
		text, err = b.stageValue(ctx, in, h)
	default:
		text, err = b.stagePath(ctx, in, h)
	}
	return text, true, err
}

// variable is the text of an environment variable as the run read it, maybe on another machine.
func (b *box) variable(ctx context.Context, h objectstore.Hash) (text string, set bool, err error) {
	v, err := b.readValue(ctx, h)
	if err != nil || v.IsNull() {
		return "", false, err
	}
	text, ok := v.Text()
	if !ok || strings.ContainsRune(text, 0) {
		return "", false, fmt.Errorf("the value is no text that an environment can carry")
	}
	return text, true, nil
}

// stagePath puts a file or a directory in its place.
func (b *box) stagePath(ctx context.Context, in record.Input, h objectstore.Hash) (string, error) {
	rel, err := local(in.Path)
	if err != nil {
		return "", err
	}
	if ok, err := b.stageLayer(ctx, in, h, rel); ok || err != nil {
		return in.Path, err
	}
	if in.Kind == record.KindDir {
		if kept, err := b.stageKept(ctx, in, h, rel); kept || err != nil {
			return in.Path, err
		}
		if err := b.mkdir(rel); err != nil {
			return "", err
		}
		_, err := tree.CheckoutIn(ctx, b.x.objects, h, b.work, rel, tree.CheckoutOptions{Merge: true, Fixed: true, Strips: b.strips})
		b.countCopy(ctx, in, h, rel)
		return in.Path, err
	}
	perm := stagedFile
	if in.Kind == record.KindExecutable {
		perm = stagedExecutable
	}
	reused, err := b.placeInput(rel)
	if err == nil && reused {
		if _, err = objectstore.Rewrite(ctx, b.x.objects, h, b.work, rel, perm); err == nil {
			b.countCopy(ctx, in, h, rel)
			return in.Path, nil
		}
		if errors.Is(err, objectstore.ErrInUse) {
			err = b.work.Discard(rel)
		}
	}
	if err != nil {
		return "", err
	}
	err = b.x.objects.Materialize(ctx, h, b.work, rel, perm)
	if err == nil {
		b.countCopy(ctx, in, h, rel)
		return in.Path, b.fixMode(rel, perm)
	}
	if errors.Is(err, fs.ErrExist) && objectstore.Holds(ctx, b.work, rel, h) {
		// A glob has staged the same file; it is executable if any input says so.
		err = nil
		if in.Kind == record.KindExecutable {
			err = b.work.Chmod(rel, perm)
		}
	}
	return in.Path, err
}

// stageValue returns a scalar as text, and writes any other value to a JSON file.
func (b *box) stageValue(ctx context.Context, in record.Input, h objectstore.Hash) (string, error) {
	v, err := b.readValue(ctx, h)
	if err != nil {
		return "", err
	}
	if text, ok := v.Scalar(); ok {
		if strings.ContainsRune(text, 0) {
			return "", fmt.Errorf("the value has a NUL character, which no environment can carry")
		}
		return text, nil
	}
	rel := valuePath(in)
	if in.Path == "" && b.ownsInput(in) {
		rel = itemFolder(0) + "/" + rel
	}
	path, err := local(rel)
	if err != nil {
		return "", err
	}
	if err := b.placeFile(path); err != nil {
		return "", err
	}
	if err := writeJSON(b.work, path, v); err != nil {
		return "", err
	}
	return rel, b.fixMode(path, stagedFile)
}

// valuePath is where the JSON file of a value is staged.
func valuePath(in record.Input) string {
	if in.Path == "" { // declared as a scalar, set to something else
		return ".e3-values/" + in.Name + ".json"
	}
	return in.Path
}

// local converts a declared path to this system's form, and refuses one that leaves the sandbox: task objects are
// untrusted.
func local(rel string) (string, error) {
	path := filepath.FromSlash(rel)
	if !filepath.IsLocal(path) {
		return "", fmt.Errorf("path %q leaves the task's directory", rel)
	}
	return filepath.Clean(path), nil
}

func writeJSON(in *beneath.Dir, rel string, v *value.Value) error {
	data, err := v.JSON()
	if err != nil {
		return err
	}
	return writeFile(in, rel, append(data, '\n'))
}

// writeFile makes a staged file.
func writeFile(in *beneath.Dir, rel string, data []byte) error {
	f, err := in.OpenFile(rel, newFlags, stagedFile)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}

package executions

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"e3/internal/format/record"
	"e3/internal/format/value"
	"e3/internal/host/bash"
	"e3/internal/host/beneath"
	"e3/internal/host/room"
	"e3/objectstore"
	"e3/objectstore/tree"
)

// stage puts the declared inputs, and nothing else, into the sandbox, and returns the environment of the command.
// Declared paths are relative to the sandbox, so that they are the same wherever it lies. Of a task that runs in batches
// it stages what belongs to the item; takeItems does the rest.
func (a *attempt) stage(ctx context.Context) ([]string, error) {
	spec := a.spec
	if len(spec.Inputs) != len(a.req.Inputs) {
		return nil, fmt.Errorf("task declares %d inputs, %d are given", len(spec.Inputs), len(a.req.Inputs))
	}
	a.box.mixed = slices.ContainsFunc(spec.Inputs, func(in record.Input) bool { return in.Kind == record.KindDir })
	if a.box.mixed {
		if err := a.box.putAside(); err != nil { // a tree must not find a file of an earlier command
			return nil, err
		}
	}
	a.texts = make([]string, len(spec.Inputs))
	env, err := a.stageInputs(ctx, a.baseEnv(), spec.Batch != nil)
	if err != nil {
		return nil, err
	}
	if spec.Batch != nil { // an item with neither inputs nor outputs in subfolders has a folder too
		if err := a.box.mkdir(filepath.FromSlash(itemFolder(0))); err != nil {
			return nil, err
		}
	}
	for _, out := range spec.Output.Entries {
		dir, err := local(out.Path) // an output directory exists before the command starts
		if err == nil && out.Kind != record.KindDir {
			a.box.files = append(a.box.files, dir) // removed afterwards, whether collected or not
			dir = filepath.Dir(dir)
		}
		if err == nil {
			err = a.box.mkdir(dir)
		}
		if err != nil {
			return nil, fmt.Errorf("output %s: %w", out.Name, err)
		}
	}
	return a.lastEnv(env), a.box.ready()
}

// stageCommon puts what all items of a batch have in common into the sandbox, and returns the environment of the
// command.
func (a *attempt) stageCommon(ctx context.Context) ([]string, error) {
	env, err := a.stageInputs(ctx, a.baseEnv(), false)
	return a.lastEnv(env), err
}

// stageInputs puts inputs into the sandbox and appends what the command's environment says of them: those that belong to
// the item of a batch, or all others.
func (a *attempt) stageInputs(ctx context.Context, env []string, own bool) ([]string, error) {
	for i, in := range a.spec.Inputs {
		if a.ownsInput(in) != own {
			continue
		}
		text, set, err := a.stageInput(ctx, in, a.req.Inputs[i])
		if err != nil {
			return nil, fmt.Errorf("input %s: %w", in.Name, err)
		}
		a.texts[i] = text
		if set && !own && !record.ToolFile(in.Name) {
			env = append(env, in.Name+"="+text)
		}
	}
	return env, nil
}

// lastEnv appends what follows the inputs in the environment of the command.
func (a *attempt) lastEnv(env []string) []string {
	if a.spec.Batch != nil {
		env = append(env, batchEnv+"="+batchFile)
	} else {
		for _, out := range a.spec.Output.Entries {
			env = append(env, out.Name+"="+out.Path)
		}
	}
	if a.req.Step != "" {
		env = append(env, "E3_STEP="+a.req.Step)
	}
	return lastOfEach(append(env, marker(a.id)))
}

// lastOfEach keeps the last entry of each name, because programs differ in which duplicate they believe.
func lastOfEach(env []string) []string {
	last := make(map[string]int, len(env))
	for i, e := range env {
		name, _, _ := strings.Cut(e, "=")
		last[name] = i
	}
	if len(last) == len(env) {
		return env
	}
	kept := env[:0]
	for i, e := range env {
		if name, _, _ := strings.Cut(e, "="); last[name] == i {
			kept = append(kept, e)
		}
	}
	return kept
}

// ceiling is the variable that keeps git from looking for a repository in a folder and above it. Without it a command
// would work in the repository of a project around the sandbox, or of the user's home, which is no input of the task.
const ceiling = "GIT_CEILING_DIRECTORIES"

// roomEnv says where a command finds its own folders in a closed room.
var roomEnv = [...]string{"HOME=" + room.Home, "TMPDIR=" + room.Temp, ceiling + "=" + room.Folder}

// env is roomEnv in the open.
func (b *sandbox) env() []string {
	return []string{"HOME=" + b.home(), "TMPDIR=" + b.temp(), ceiling + "=" + b.room.Name()}
}

// baseEnv is the environment of every command before its own declarations. Later entries win.
func (a *attempt) baseEnv() []string {
	env := make([]string, 0, 16+len(a.spec.Env)+len(a.spec.Inputs))
	env = append(env, "PATH="+a.x.opts.Path)
	if a.spec.Room.Closed {
		env = append(env, roomEnv[:]...)
	} else {
		env = append(env, a.box.env()...)
	}
	env = append(env, "LANG=C.UTF-8", "TZ=UTC")
	if a.image != nil {
		env = append(env, a.image.environment()...)
	}
	for _, names := range [][]string{a.spec.Passed.Env, a.spec.Passed.Secrets} {
		for _, name := range names {
			if v, ok := a.x.opts.Getenv(name); ok {
				env = append(env, name+"="+v)
			}
		}
	}
	for _, e := range a.spec.Env {
		if a.spec.Batch == nil || !a.spec.Batch.Owns(e.Name) {
			env = append(env, e.Name+"="+e.Value)
		}
	}
	return env
}

// secrets are the values to mask in the logs.
func (a *attempt) secrets() []string {
	var values []string
	for _, name := range a.spec.Passed.Secrets {
		if v, ok := a.x.opts.Getenv(name); ok && v != "" {
			values = append(values, v)
		}
	}
	return values
}

// unsetError names the secrets of a task that are not set, so that the task does not start.
type unsetError struct {
	names []string
	where string // the process that lacks them
}

func (e *unsetError) Error() string {
	one, verb, them := "secret", "is", "it"
	if len(e.names) > 1 {
		one, verb, them = "secrets", "are", "them"
	}
	return fmt.Sprintf("%s %s %s not set in the environment of %s: set %s, or take %s from the task's secrets",
		one, strings.Join(e.names, ", "), verb, e.where, them, them)
}

// unset returns an *unsetError if this process lacks a secret that the task declares; an empty one counts as set. A
// secret is not part of the key, so a result made without it would also answer processes that have it.
func (a *attempt) unset() error {
	var names []string
	for _, name := range a.spec.Passed.Secrets {
		if _, ok := a.x.opts.Getenv(name); !ok {
			names = append(names, name)
		}
	}
	if names == nil {
		return nil
	}
	where := fmt.Sprintf("e3 (%s)", a.x.opts.Worker)
	if a.req.Job.Ref != "" {
		where = "the worker " + a.x.opts.Worker
	}
	return &unsetError{names, where}
}

// stageInput puts one input in its place and returns the command's text for it. set is false for a variable that must
// stay unset.
func (a *attempt) stageInput(ctx context.Context, in record.Input, h objectstore.Hash) (text string, set bool, err error) {
	switch in.Kind {
	case record.KindVariable:
		return a.variable(ctx, h)
	case record.KindTool:
		return "", false, nil // the command finds it on its PATH
	case record.KindValue:
		text, err = a.stageValue(ctx, in, h)
	default:
		text, err = a.stagePath(ctx, in, h)
	}
	return text, true, err
}

// variable is the text of an environment variable as the run read it, maybe on another machine.
func (a *attempt) variable(ctx context.Context, h objectstore.Hash) (text string, set bool, err error) {
	v, err := a.readValue(ctx, h)
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
func (a *attempt) stagePath(ctx context.Context, in record.Input, h objectstore.Hash) (string, error) {
	rel, err := local(in.Path)
	if err != nil {
		return "", err
	}
	if ok, err := a.stageLayer(ctx, in, h, rel); ok || err != nil {
		return in.Path, err
	}
	if in.Kind == record.KindDir {
		if kept, err := a.stageKept(ctx, in, h, rel); kept || err != nil {
			return in.Path, err
		}
		if err := a.box.mkdir(rel); err != nil {
			return "", err
		}
		_, err := tree.CheckoutIn(ctx, a.x.objects, h, a.box.work, rel, tree.CheckoutOptions{Merge: true, Fixed: true, Strips: a.box.strips})
		return in.Path, err
	}
	perm := stagedFile
	if in.Kind == record.KindExecutable {
		perm = stagedExecutable
	}
	reused, err := a.box.input(rel)
	if err == nil && reused {
		if _, err = objectstore.Rewrite(ctx, a.x.objects, h, a.box.work, rel, perm); err == nil {
			return in.Path, nil
		}
		if errors.Is(err, objectstore.ErrInUse) {
			err = a.box.work.Discard(rel)
		}
	}
	if err != nil {
		return "", err
	}
	err = a.x.objects.Materialize(ctx, h, a.box.work, rel, perm)
	if err == nil {
		return in.Path, a.box.fix(rel, perm)
	}
	if errors.Is(err, fs.ErrExist) && objectstore.Holds(ctx, a.box.work, rel, h) {
		// A glob has staged the same file; it is executable if any input says so.
		err = nil
		if in.Kind == record.KindExecutable {
			err = a.box.work.Chmod(rel, perm)
		}
	}
	return in.Path, err
}

// stageValue returns a scalar as text, and writes any other value to a JSON file.
func (a *attempt) stageValue(ctx context.Context, in record.Input, h objectstore.Hash) (string, error) {
	v, err := a.readValue(ctx, h)
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
	if in.Path == "" && a.ownsInput(in) {
		rel = itemFolder(0) + "/" + rel
	}
	path, err := local(rel)
	if err != nil {
		return "", err
	}
	if err := a.box.file(path); err != nil {
		return "", err
	}
	if err := writeJSON(a.box.work, path, v); err != nil {
		return "", err
	}
	return rel, a.box.fix(path, stagedFile)
}

// valuePath is where the JSON file of a value is staged.
func valuePath(in record.Input) string {
	if in.Path == "" { // declared as a scalar, set to something else
		return ".e3-values/" + in.Name + ".json"
	}
	return in.Path
}

func (a *attempt) readValue(ctx context.Context, h objectstore.Hash) (*value.Value, error) {
	data, err := objectstore.ReadAll(ctx, a.x.objects, h, value.MaxBytes)
	if err != nil {
		return nil, err
	}
	return value.Decode(data)
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

// argv is the command with its names filled in. bash finds the names of a script in its environment.
func (a *attempt) argv() []string {
	spec := a.spec
	if spec.Argv == nil {
		return []string{"bash", "-euo", "pipefail", "-c", a.script()}
	}
	if !slices.ContainsFunc(spec.Argv, func(s string) bool { return strings.Contains(s, "{") }) && len(a.programs()) == 0 {
		return spec.Argv
	}
	var pairs []string
	for _, e := range spec.Env {
		if spec.Batch == nil || !spec.Batch.Owns(e.Name) {
			pairs = append(pairs, "{"+e.Name+"}", e.Value)
		}
	}
	for i, in := range spec.Inputs {
		if in.Kind.OfMachine() || a.ownsInput(in) {
			continue // as for pass_env: an unset variable has no text
		}
		pairs = append(pairs, "{"+in.Name+"}", a.texts[i])
	}
	for _, out := range spec.Output.Entries {
		if spec.Batch == nil {
			pairs = append(pairs, "{"+out.Name+"}", out.Path)
		}
	}
	names := strings.NewReplacer(pairs...)
	argv := make([]string, len(spec.Argv))
	for i, s := range spec.Argv {
		argv[i] = names.Replace(s)
	}
	if slices.Contains(slices.Collect(maps.Values(a.programs())), argv[0]) {
		argv[0] = "./" + argv[0]
	}
	return argv
}

// programs are the executables among the inputs that lie in the working directory itself, by name. Where a command has such a
// file in its first place, that file is meant, and not a program of its name in the PATH, which is in no key.
func (a *attempt) programs() map[string]string {
	var programs map[string]string
	for _, in := range a.spec.Inputs {
		if in.Kind == record.KindExecutable && !strings.Contains(in.Path, "/") && !a.ownsInput(in) {
			if programs == nil {
				programs = map[string]string{}
			}
			programs[in.Name] = in.Path
		}
	}
	return programs
}

// script is the script of a task as bash gets it.
func (a *attempt) script() string { return bash.Staged(a.spec.Shell, a.programs()) }

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

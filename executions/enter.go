package executions

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"e3/internal/format/record"
	"e3/internal/host/beneath"
	"e3/internal/host/remains"
	"e3/internal/host/room"
	"e3/objectstore"
)

// Success reports whether the execution has an output.
func (r *Result) Success() bool { return r.State == record.Success }

// LeavesFolder reports whether the command has failed in a way that its folder can help to explain.
func (r *Result) LeavesFolder() bool {
	return r.State == record.Failed && r.Reason != ReasonSuspended || r.State == record.Error && LeavesFolder(r.Reason)
}

// LeavesFolder reports whether an error with this reason came from a command that had begun.
func LeavesFolder(reason Reason) bool {
	switch reason {
	case ReasonTimeout, ReasonSignal, ReasonOutput, ReasonOOM:
		return true
	}
	return false
}

// ForgetFolders removes the kept folders of a workspace, of which another run begins.
func (x *Executor) ForgetFolders(ws string) {
	if x != nil && x.opts.Kept != nil {
		x.opts.Kept.Clear(ws)
	}
}

// A Visit is a folder in which a person works as the command of a task would.
type Visit struct {
	Root  string // holds the working directory, HOME and TMPDIR; only this user can enter it
	Dir   string // working directory
	Env   []string
	Argv  []string // the command itself, which has not been started
	Unset []string // secrets that this process's environment lacks
	Kept  bool     // it is the folder of a failed command
	// Closed is the closed room in which the command and a visitor run (runner.Visit). Env is then the environment of
	// the room. nil: they run in the open.
	Closed *room.Room

	box   *box
	leave func() error
}

// Open turns a visit in a closed room into a visit in the open, where the visitor sees the whole machine.
func (v *Visit) Open(ctx context.Context) error {
	here := v.box.env()
	for i, e := range v.Env {
		if n := slices.Index(roomEnv[:], e); n >= 0 {
			v.Env[i] = here[n]
		}
	}
	v.Closed = nil
	return v.Copy(ctx)
}

// Copy replaces the mounted inputs of a closed room by copies, for a machine that cannot mount them. Files that a
// command has written into them stay.
func (v *Visit) Copy(ctx context.Context) error {
	if v.Closed != nil {
		v.Closed.Lower, v.Closed.Scratch = nil, ""
	}
	return v.box.copyLayers(ctx)
}

// WriteScript makes ../command, a script that starts the command, replacing whatever a command has left there.
func (v *Visit) WriteScript(text string) error {
	const name = "command"
	in := v.box.room
	if err := in.Discard(name); err != nil {
		return err
	}
	f, err := in.OpenFile(name, newFlags, 0o700)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// Keep moves the folder of the visit to the kept folders of failed commands.
func (v *Visit) Keep(folders *remains.Folders, f remains.Folder) (*remains.Folder, error) {
	return folders.Keep(v.box.in, v.box.name, f)
}

// Leave ends the visit. A folder that was made for it is removed.
func (v *Visit) Leave() error { return v.leave() }

// A GoneInputError says that the content of an input is not in the repository any more.
type GoneInputError struct {
	Input string
	Hash  objectstore.Hash
	err   error
}

func (e *GoneInputError) Error() string {
	return fmt.Sprintf("the content of input %s (%s) is not in the repository any more: a collection or a prune has removed it", e.Input, e.Hash.Short())
}

// Unwrap makes errors.Is(err, objectstore.ErrNotFound) true.
func (e *GoneInputError) Unwrap() error { return e.err }

// Visit stages the inputs of a request as its execution would, in a folder of this process, which the sweep removes
// if the process dies. Nothing is recorded, and no secret need be set.
func (x *Executor) Visit(ctx context.Context, req *Request) (*Visit, error) {
	a, err := x.visitor(ctx, req)
	if err != nil {
		return nil, err
	}
	x.sandboxes.mu.Lock()
	made, err := x.sandboxes.makeSandbox()
	x.sandboxes.mu.Unlock()
	if err != nil {
		return nil, fmt.Errorf("make a folder: %w", err)
	}
	b := &box{assignment: a, sandbox: made}
	// The folder is removed, and never serves a command. Its user may write into the logs, which nothing reads.
	leave := func() error {
		b.drop()
		return b.remove()
	}
	env, err := b.stage(ctx)
	if err == nil && a.spec.Batch != nil {
		env, err = b.stageBatch(ctx, []*box{b})
	}
	if err != nil {
		return nil, errors.Join(a.goneInput(ctx, fmt.Errorf("stage inputs: %w", err)), leave())
	}
	v, err := newVisit(b, env)
	if err != nil {
		return nil, errors.Join(err, leave())
	}
	v.leave = leave
	return v, nil
}

// VisitKept enters the folder that a failed command of the request has left.
func (x *Executor) VisitKept(ctx context.Context, req *Request, f *remains.Folder) (*Visit, error) {
	a, err := x.visitor(ctx, req)
	if err != nil {
		return nil, err
	}
	kept, err := beneath.Open(filepath.Dir(f.Root))
	if err != nil {
		return nil, err
	}
	b := &box{assignment: a, sandbox: &sandbox{}}
	leave := func() error {
		err := b.leaveLayers()
		b.drop()
		return errors.Join(err, kept.Close())
	}
	if b.place, err = openPlace(kept.Confine(), filepath.Base(f.Root)); err != nil {
		return nil, errors.Join(fmt.Errorf("the command has put something else in the place of its working directory, so nothing enters it: %w", err), kept.Close())
	}
	v, err := visitKept(ctx, b)
	if err != nil {
		return nil, errors.Join(err, leave())
	}
	v.Kept, v.leave = true, leave
	return v, nil
}

func visitKept(ctx context.Context, b *box) (*Visit, error) {
	b.texts = make([]string, len(b.spec.Inputs))
	_, fault := b.eachInput(ctx, nil, true, b.inputText)
	env, err := b.eachInput(ctx, b.baseEnv(), false, b.inputText)
	if err := cmp.Or(fault, err); err != nil {
		return nil, b.goneInput(ctx, err)
	}
	env = b.lastEnv(env)
	if err := b.stageScript(); err != nil {
		return nil, err
	}
	if b.spec.Room.Closed {
		if err := b.lendAgain(ctx); err != nil {
			return nil, b.goneInput(ctx, err)
		}
	}
	return newVisit(b, env)
}

// visitor is the assignment of an execution that is never made. Its id is in the environment of no command that e3
// has started.
func (x *Executor) visitor(ctx context.Context, req *Request) (*assignment, error) {
	spec, err := req.Load(ctx)
	if err != nil {
		return nil, err
	}
	if len(spec.Inputs) != len(req.Inputs) {
		return nil, fmt.Errorf("task declares %d inputs, %d are given", len(spec.Inputs), len(req.Inputs))
	}
	id, err := NewID()
	a := &assignment{x: x, key: NewKey(req.Task, req.Inputs), req: req, spec: inFolder(spec), id: id}
	if err := cmp.Or(err, a.openImage(ctx), a.openEnvironment(ctx)); err != nil {
		return nil, err
	}
	if a.noEnvironment != nil {
		return nil, a.noEnvironment
	}
	return a, nil
}

func newVisit(b *box, env []string) (*Visit, error) {
	v := &Visit{Root: b.root.Name(), Dir: b.work.Name(), Env: env, Argv: b.argv(), box: b}
	var unset *unsetError
	if errors.As(b.unset(), &unset) {
		v.Unset = unset.names
	}
	if !b.spec.Room.Closed {
		return v, nil
	}
	var err error
	if v.Closed, err = b.closedRoom(); err != nil {
		return nil, err
	}
	// A kept folder lies outside the folder of this process, which holds the checkouts.
	for _, l := range b.lent {
		for !strings.HasPrefix(l.tree(), v.Closed.Base+"/") {
			v.Closed.Base = filepath.Dir(v.Closed.Base)
		}
	}
	return v, nil
}

// inputText returns the command's text for an input that is already staged.
func (b *box) inputText(ctx context.Context, in record.Input, h objectstore.Hash) (text string, set bool, err error) {
	switch in.Kind {
	case record.KindVariable:
		return b.variable(ctx, h)
	case record.KindTool:
		return "", false, nil
	case record.KindValue:
		v, err := b.readValue(ctx, h)
		if err != nil {
			return "", false, err
		}
		if text, ok := v.Scalar(); ok {
			return text, true, nil
		}
		return valuePath(in), true, nil
	}
	return in.Path, true, nil
}

// goneInput names the input whose object is missing, if that is what err says.
func (a *assignment) goneInput(ctx context.Context, err error) error {
	if !errors.Is(err, objectstore.ErrNotFound) {
		return err
	}
	missing, fault := a.x.objects.Missing(ctx, a.req.Inputs)
	if fault != nil || len(missing) == 0 {
		return err
	}
	for i, h := range a.req.Inputs {
		if h == missing[0] {
			return &GoneInputError{Input: a.spec.Inputs[i].Name, Hash: h, err: err}
		}
	}
	return err
}

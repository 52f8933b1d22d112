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

// keepFolder keeps the folder of a command that failed, so that a person can enter it. One that cannot be kept, or whose
// command has put something in the place of its working directory, is reused or removed as usual: the folder is a
// convenience.
func (a *attempt) keepFolder(end *Result) {
	folders := a.x.opts.Kept
	if folders == nil {
		return
	}
	if end.Success() && a.req.Attempt > 1 {
		folders.Drop(a.req.Workspace, a.req.Name)
	}
	if !end.LeavesFolder() || a.req.against != nil || a.req.Workspace == "" || a.box.replaced {
		return
	}
	_, err := folders.Keep(a.box.in, a.box.name, remains.Folder{
		Execution: a.id, Workspace: a.req.Workspace, Task: a.req.Name, Run: a.req.RunID, At: a.x.opts.Now(),
	})
	a.box.moved = err == nil
}

// Success reports whether the execution has an output.
func (r *Result) Success() bool { return r.State == record.Success }

// LeavesFolder reports whether the command has failed in a way that its folder can help to explain.
func (r *Result) LeavesFolder() bool {
	return r.State == record.Failed && r.Reason != ReasonSuspended || r.State == record.Error && LeavesFolder(r.Reason)
}

// LeavesFolder reports whether an error with this reason is one of the command, which had begun.
func LeavesFolder(reason Reason) bool {
	switch reason {
	case ReasonTimeout, ReasonSignal, ReasonOutput, ReasonOOM:
		return true
	}
	return false
}

// ForgetFolders removes the kept folders of a workspace of which another run begins.
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
	Kept  bool     // it is the folder that the command has left
	// Closed is the closed room in which the command runs, and in it a visitor (runner.Visit); nil: it runs in the open.
	// Env is that of the room then.
	Closed *room.Room

	attempt *attempt
	leave   func() error
}

// Open makes a visit of a closed task one in the open, where the visitor sees the whole machine.
func (v *Visit) Open(ctx context.Context) error {
	here := v.attempt.box.env()
	for i, e := range v.Env {
		if n := slices.Index(roomEnv[:], e); n >= 0 {
			v.Env[i] = here[n]
		}
	}
	v.Closed = nil
	return v.Copy(ctx)
}

// Copy makes copies of the inputs that are mounted in a closed room, where they cannot be mounted. Files that a command has written
// into them stay.
func (v *Visit) Copy(ctx context.Context) error {
	if v.Closed != nil {
		v.Closed.Lower, v.Closed.Scratch = nil, ""
	}
	return v.attempt.copyLayers(ctx)
}

// WriteScript makes ../command, a script that starts the command, in the place of what a command has left there.
func (v *Visit) WriteScript(text string) error {
	const name = "command"
	in := v.attempt.box.room
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

// Keep moves the folder of the visit beside those of failed commands.
func (v *Visit) Keep(folders *remains.Folders, f remains.Folder) (*remains.Folder, error) {
	return folders.Keep(v.attempt.box.in, v.attempt.box.name, f)
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
	return fmt.Sprintf("the content of input %s (%s) is not in the repository any more: a collection or a prune has removed it", e.Input, e.Hash.String()[:12])
}

// Unwrap makes errors.Is(err, objectstore.ErrNotFound) true.
func (e *GoneInputError) Unwrap() error { return e.err }

// Visit stages the inputs of a request as its execution would, in a folder of this process: if that dies, the sweep
// removes it. Nothing is recorded, and no secret need be set.
func (x *Executor) Visit(ctx context.Context, req *Request) (*Visit, error) {
	a, err := x.visitor(ctx, req)
	if err != nil {
		return nil, err
	}
	x.sandboxes.mu.Lock()
	a.box, err = x.sandboxes.make()
	x.sandboxes.mu.Unlock()
	if err != nil {
		return nil, fmt.Errorf("make a folder: %w", err)
	}
	// The folder is removed, and never serves a command. Its user may write into the logs, which nothing reads.
	leave := func() error {
		a.box.drop()
		return a.box.remove()
	}
	env, err := a.stage(ctx)
	if err == nil && a.spec.Batch != nil {
		env, err = a.takeItems(ctx, a.served())
	}
	if err != nil {
		return nil, errors.Join(a.goneInput(ctx, fmt.Errorf("stage inputs: %w", err)), leave())
	}
	v, err := newVisit(a, env)
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
	a.box = &sandbox{}
	leave := func() error {
		err := a.leaveLayers()
		a.box.drop()
		return errors.Join(err, kept.Close())
	}
	if a.box.place, err = openPlace(kept.Confine(), filepath.Base(f.Root)); err != nil {
		return nil, errors.Join(fmt.Errorf("the command has put something else in the place of its working directory, so nothing enters it: %w", err), kept.Close())
	}
	v, err := visitKept(ctx, a)
	if err != nil {
		return nil, errors.Join(err, leave())
	}
	v.Kept, v.leave = true, leave
	return v, nil
}

func visitKept(ctx context.Context, a *attempt) (*Visit, error) {
	env := a.baseEnv()
	for i, in := range a.spec.Inputs {
		text, set, err := a.inputText(ctx, in, a.req.Inputs[i])
		if err != nil {
			return nil, a.goneInput(ctx, fmt.Errorf("input %s: %w", in.Name, err))
		}
		a.texts = append(a.texts, text)
		if set && !record.ToolFile(in.Name) && !a.ownsInput(in) {
			env = append(env, in.Name+"="+text)
		}
	}
	env = a.lastEnv(env)
	if a.spec.Room.Closed {
		if err := a.lendAgain(ctx); err != nil {
			return nil, a.goneInput(ctx, err)
		}
	}
	return newVisit(a, env)
}

// visitor is an attempt that is never made. Its id marks no process of a command that e3 has started.
func (x *Executor) visitor(ctx context.Context, req *Request) (*attempt, error) {
	spec, err := req.Load(ctx)
	if err != nil {
		return nil, err
	}
	if len(spec.Inputs) != len(req.Inputs) {
		return nil, fmt.Errorf("task declares %d inputs, %d are given", len(spec.Inputs), len(req.Inputs))
	}
	id, err := NewID()
	a := &attempt{x: x, key: NewKey(req.Task, req.Inputs), req: req, spec: inFolder(spec), id: id}
	return a, cmp.Or(err, a.openImage(ctx))
}

func newVisit(a *attempt, env []string) (*Visit, error) {
	v := &Visit{Root: a.box.root.Name(), Dir: a.box.work.Name(), Env: env, Argv: a.argv(), attempt: a}
	var unset *unsetError
	if errors.As(a.unset(), &unset) {
		v.Unset = unset.names
	}
	if !a.spec.Room.Closed {
		return v, nil
	}
	var err error
	if v.Closed, err = a.closedRoom(); err != nil {
		return nil, err
	}
	// A kept folder lies beside the folder of this process, in which checkouts are.
	for _, l := range a.box.lent {
		for !strings.HasPrefix(l.tree(), v.Closed.Base+"/") {
			v.Closed.Base = filepath.Dir(v.Closed.Base)
		}
	}
	return v, nil
}

// inputText is the command's text for an input that is staged already.
func (a *attempt) inputText(ctx context.Context, in record.Input, h objectstore.Hash) (text string, set bool, err error) {
	switch in.Kind {
	case record.KindVariable:
		return a.variable(ctx, h)
	case record.KindValue:
		v, err := a.readValue(ctx, h)
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
func (a *attempt) goneInput(ctx context.Context, err error) error {
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

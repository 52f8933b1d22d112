package executions

import (
	"path/filepath"

	"e3/internal/host/remains"
	"e3/internal/host/room"
)

// A box is a sandbox with what one execution has in it: staged inputs (stage.go), among them layers and checkouts, the
// environment and the words of the command (env.go), and the outputs (collect.go).
type box struct {
	*assignment
	*sandbox
	texts  []string // the command's names for its inputs
	away   bool     // the item's folder has moved to the box of the batch's command
	traced bool     // its command is traced; the report is in the sandbox
}

// closedRoom is the closed room of the box's command.
func (b *box) closedRoom() (*room.Room, error) {
	r := &room.Room{Base: b.in.Name(), Folder: b.sandbox.room.Name(), Network: b.spec.Room.Network, ReadOnly: b.environment}
	for _, l := range b.lent {
		r.Lower, r.Scratch = append(r.Lower, l.tree()), filepath.Join(b.root.Name(), b.scratch)
	}
	var err error
	switch {
	case b.noImage != nil:
		return nil, b.noImage
	case b.image != nil:
		r.Root = b.image.root.Path
	case b.x.opts.Hidden != nil:
		if r.Hidden, err = b.x.opts.Hidden(); err != nil {
			return nil, &roomError{err: err, here: true}
		}
	}
	if r.Devices, err = room.Devices("/dev", b.spec.Room.DeviceNames()); err != nil {
		return nil, &roomError{err: err, here: true}
	}
	return r, nil
}

// A roomError says what a task's closed room needs and does not have. The command was not started.
type roomError struct {
	err  error
	here bool // this machine lacks it, and another may have it
}

func (e *roomError) Error() string { return e.err.Error() }
func (e *roomError) Unwrap() error { return e.err }

// keepFolder keeps the folder of a command that failed, so that a person can enter it. If it cannot be kept, or the
// command has replaced its working directory, the sandbox is reused or removed as usual: a kept folder is a
// convenience.
func (b *box) keepFolder(end *Result) {
	folders := b.x.opts.Kept
	if folders == nil {
		return
	}
	if end.Success() && b.req.Attempt > 1 {
		folders.Drop(b.req.Workspace, b.req.Name)
	}
	if !end.LeavesFolder() || b.req.against != nil || b.req.Workspace == "" || b.replaced {
		return
	}
	_, err := folders.Keep(b.in, b.name, remains.Folder{
		Execution: b.id, Workspace: b.req.Workspace, Task: b.req.Name, Run: b.req.RunID, At: b.x.opts.Now(), Mild: b.req.Mild,
	})
	b.moved = err == nil
}

package executions

import (
	"path/filepath"

	"e3/internal/host/room"
)

// A roomError says that this machine has not what a task's closed room is to have. The command was not started.
type roomError struct{ err error }

func (e *roomError) Error() string { return e.err.Error() }
func (e *roomError) Unwrap() error { return e.err }

// closedRoom is the closed room of the attempt's command.
func (a *attempt) closedRoom() (*room.Room, error) {
	r := &room.Room{Base: a.box.in.Name(), Folder: a.box.room.Name(), Network: a.spec.Room.Network}
	for _, l := range a.box.lent {
		r.Lower, r.Scratch = append(r.Lower, l.tree()), filepath.Join(a.box.root.Name(), a.box.scratch)
	}
	var err error
	switch {
	case a.noImage != nil:
		return nil, a.noImage
	case a.image != nil:
		r.Root = a.image.root.Path
	case a.x.opts.Hidden != nil:
		if r.Hidden, err = a.x.opts.Hidden(); err != nil {
			return nil, &roomError{err}
		}
	}
	if r.Devices, err = room.Devices("/dev", a.spec.Room.DeviceNames()); err != nil {
		return nil, &roomError{err}
	}
	return r, nil
}

package repo

import (
	"context"
	"errors"
	"sync"

	"e3/internal/settings"
	"e3/workspace"
)

// presets are the settings by which a process goes: as they were when it first asked.
type presets struct {
	room string // this process's room for tasks that name none; set before the first question

	mu   sync.Mutex
	read bool
	all  *settings.Settings
	err  error // if the settings are damaged
}

// Settings returns the repository's settings as they were at this process's first question. Damaged settings are a
// *[settings.DamagedError].
func (r *Repo) Settings(ctx context.Context) (*settings.Settings, error) {
	p := &r.stores.presets
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.read {
		return p.all, p.err
	}
	s, err := settings.Get(ctx, r.Records)
	var damaged *settings.DamagedError
	if p.read = err == nil || errors.As(err, &damaged); p.read {
		p.all, p.err = s, err
	}
	return s, err
}

// SayRoom gives this process a room for tasks that name none: open, closed, or "" for the repository's setting. It
// must come before anything that builds a package.
func (r *Repo) SayRoom(room string) { r.stores.presets.room = room }

// rooms are the rooms of tasks that name none.
func rooms(r *Repo) func(context.Context) (workspace.Rooms, error) {
	return func(ctx context.Context) (workspace.Rooms, error) {
		if said := r.stores.presets.room; said != "" {
			return workspace.RoomsOf(said, ""), nil
		}
		s, err := r.Settings(ctx)
		var damaged *settings.DamagedError
		switch {
		case errors.As(err, &damaged):
			return workspace.Rooms{Lost: true}, nil
		case err != nil:
			return workspace.Rooms{}, err
		}
		return workspace.RoomsOf("", s.Room), nil
	}
}

package repo

import (
	"context"
	"errors"
	"sync"
	"time"

	"e3/refstore"
	"e3/refstore/lease"
)

// members are the leases by which the queue of a plain folder knows which processes are at work. Nothing else there
// depends on them: locks and claims are the kernel's. So a run that was stopped for longer than a lease renews them
// and goes on, like one without workers. A worker does not renew them: it stops its commands and opens the repository
// anew.
type members struct {
	begin func() *lease.Leases

	mu  sync.Mutex
	now *lease.Leases
}

func newMembers(begin func() *lease.Leases) *members { return &members{begin: begin, now: begin()} }

func (m *members) leases() *lease.Leases {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.now
}

// Session implements queue.Members, like the methods that follow.
func (m *members) Session(ctx context.Context) (string, error) { return m.leases().Session(ctx) }

func (m *members) Ended(ctx context.Context, id string) (bool, time.Duration, error) {
	return m.leases().Ended(ctx, id)
}

func (m *members) Heard(ctx context.Context, id string) (refstore.Heard, error) {
	return m.leases().Heard(ctx, id)
}

func (m *members) Lost() <-chan struct{} { return m.leases().Lost() }

func (m *members) Confirm(ctx context.Context) error { return m.leases().Confirm(ctx) }

// renew makes the next call begin another session, if this one was lost. Everything that the old session held has to
// be taken again.
func (m *members) renew() {
	m.mu.Lock()
	lost := m.now
	if !errors.Is(lost.Held(), refstore.ErrLost) { // another goroutine has renewed it
		m.mu.Unlock()
		return
	}
	m.now = m.begin()
	m.mu.Unlock()
	_ = lost.Close() // this marks the old session dead; if it fails, observers find that out
}

func (m *members) Close() error { return m.leases().Close() }

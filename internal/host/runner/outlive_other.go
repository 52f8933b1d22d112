//go:build !linux

package runner

import (
	"context"
	"time"
)

var processStart = time.Now()

// Elapsed is the time since the start of this process.
func Elapsed() time.Duration { return time.Since(processStart) }

// Commands are children of this process and end with it, so none can be adopted. The caller must stop commands that it
// cannot extend.

func (b *backend) extend(until, most time.Duration) {}

func (b *backend) releaseKept(identity string) {}

func (b *backend) leave() error { return b.close() }

func (b *backend) socketName() string { return "" }

func (b *backend) hasLeft() bool { return false }

type adoption struct{}

func adoptFrom(ctx context.Context, dir string, own map[string]bool, _ *demand, gone func(*adoption)) ([]*adoption, error) {
	return nil, ctx.Err()
}

func (a *adoption) extend(until, most time.Duration) {}
func (a *adoption) cancel(o *Orphan)                 {}
func (a *adoption) release(o *Orphan)                {}
func (a *adoption) all() []*Orphan                   { return nil }
func (a *adoption) ended() bool                      { return true }
func (a *adoption) close()                           {}
func (a *adoption) leave()                           {}
func (a *adoption) socketName() string               { return "" }

const masksInSupervisor = false

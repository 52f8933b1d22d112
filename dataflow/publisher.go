package dataflow

import (
	"context"
	"time"
)

// publishEvery is the least time between two updates of the workspace. publishShare bounds the part of the run's time
// that updates take.
const (
	publishEvery = 500 * time.Millisecond
	publishShare = 20 // one twentieth: 5 %
)

// A publisher makes results visible during the run. It batches them, because each update rewrites the workspace's
// tree.
type publisher struct {
	publish Publish
	pending []Change
	timer   *time.Timer // set while changes wait
	busy    bool
	pause   time.Duration // pause after the last update
	done    chan publication
}

type publication struct {
	duration time.Duration
	err      error
}

func (p *publisher) add(c Change) {
	if p.publish == nil {
		return
	}
	p.pending = append(p.pending, c)
	p.arm()
}

func (p *publisher) arm() {
	if p.timer == nil && !p.busy && len(p.pending) > 0 {
		p.timer = time.NewTimer(max(publishEvery, p.pause))
	}
}

// due fires when an update should start; it is nil if there is nothing to publish.
func (p *publisher) due() <-chan time.Time {
	if p.timer == nil {
		return nil
	}
	return p.timer.C
}

func (p *publisher) start(ctx context.Context) {
	changes := p.pending
	p.pending, p.timer, p.busy = nil, nil, true
	go func() {
		began := time.Now()
		err := p.publish(context.WithoutCancel(ctx), changes)
		p.done <- publication{duration: time.Since(began), err: err}
	}()
}

func (p *publisher) finished(r publication) error {
	p.busy, p.pause = false, publishShare*r.duration
	p.arm()
	return r.err
}

// wait waits for the last update. The caller publishes what is still pending.
func (p *publisher) wait() error {
	if p.timer != nil {
		p.timer.Stop()
		p.timer = nil
	}
	if !p.busy {
		return nil
	}
	r := <-p.done
	p.busy = false
	return r.err
}

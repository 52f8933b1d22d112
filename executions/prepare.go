package executions

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// Prepare begins what the first command would otherwise wait for, if commands run here, and returns at once.
func (x *Executor) Prepare() {
	if x == nil {
		return
	}
	if r, ok := x.runner.(interface{ Prepare() }); ok && x.opts.Remote == nil {
		r.Prepare()
	}
}

// Clear begins to remove the sandboxes that wait for a command: when a run starts no more commands, they are removed beside
// the writing of its results. wait returns when it is done. A sandbox that cannot be removed goes with this process's folder.
func (x *Executor) Clear() (wait func()) {
	if x == nil {
		return func() {}
	}
	p := &x.sandboxes
	p.mu.Lock()
	boxes := append(p.free, p.used...)
	p.free, p.used = nil, nil
	p.mu.Unlock()
	var all sync.WaitGroup
	var next atomic.Int64
	for range min(runtime.NumCPU(), len(boxes), 4) {
		all.Go(func() {
			for i := next.Add(1) - 1; int(i) < len(boxes); i = next.Add(1) - 1 {
				boxes[i].drop()
				_ = boxes[i].remove()
			}
		})
	}
	return all.Wait
}

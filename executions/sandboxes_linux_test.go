package executions

import (
	"sync"
	"sync/atomic"
	"testing"
)

// While one goroutine searches for processes, others get sandboxes, each one for itself.
func TestSandboxesSideBySide(t *testing.T) {
	dir := t.TempDir()
	pool := sandboxes{scratch: func() (string, error) { return dir, nil }, checkouts: &checkouts{}}
	const each = maxUsed
	var taken sync.Map
	var drawn atomic.Int32
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range each {
				box, err := pool.acquire()
				if err != nil {
					t.Error(err)
					return
				}
				drawn.Add(1)
				if _, twice := taken.LoadOrStore(box.name, true); twice {
					t.Errorf("%s was given out twice", box.name)
				}
				taken.Delete(box.name)
				pool.release(box)
			}
		})
	}
	all.Wait()
	if pool.count >= int(drawn.Load()) { // only a search makes one fit for another command
		t.Errorf("%d sandboxes for %d commands", pool.count, drawn.Load())
	}
	for _, box := range append(pool.free, pool.used...) {
		box.drop()
	}
}

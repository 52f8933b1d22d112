package term

import (
	"sync"
	"time"
)

// Every calls do at an interval, until end is called, which waits for the last call.
func Every(interval time.Duration, do func()) (end func()) {
	done := make(chan struct{})
	var ended sync.WaitGroup
	ended.Go(func() {
		tick := time.NewTicker(interval)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				do()
			case <-done:
				return
			}
		}
	})
	return func() {
		close(done)
		ended.Wait()
	}
}

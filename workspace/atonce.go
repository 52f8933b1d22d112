package workspace

import (
	"sync"

	"e3/refstore"
)

// atOnce makes independent calls: at the same time where each waits for requests, one after the other where the
// records are on this machine. There a sync covers earlier writes, and waiting costs nothing. It returns the error of
// the first call that failed.
func atOnce(w *States, calls ...func() error) error {
	if _, far := w.Records.(refstore.Tailer); !far {
		for _, call := range calls {
			if err := call(); err != nil {
				return err
			}
		}
		return nil
	}
	failed := make([]error, len(calls))
	var all sync.WaitGroup
	for i, call := range calls {
		all.Go(func() { failed[i] = call() })
	}
	all.Wait()
	for _, err := range failed {
		if err != nil {
			return err
		}
	}
	return nil
}

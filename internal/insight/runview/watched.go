package runview

import (
	"context"
	"errors"
	"time"

	"e3/executions"
	"e3/internal/format/record"
	"e3/refstore"
)

// lookAgain is the interval of reading a record if the store cannot watch it.
const lookAgain = 100 * time.Millisecond

// Watched is the record of an execution that is waited for. One goroutine may use it at a time.
type Watched struct {
	executions *executions.Store
	key        executions.Key
	id         string
	changed    <-chan struct{} // receives after executions of the key were recorded; nil where the store cannot notify
}

// Watch watches the record of an execution until ctx is done. It need not be there yet.
func (v *Runs) Watch(ctx context.Context, key executions.Key, id string) *Watched {
	w := &Watched{executions: executions.NewStore(v.Records, v.Objects), key: key, id: id}
	if watcher, ok := v.Records.(refstore.Watcher); ok {
		w.changed, _ = watcher.Watch(ctx, "EXECUTION/"+key.String())
	}
	return w
}

// Begun waits for the record.
func (w *Watched) Begun(ctx context.Context) (*executions.Execution, error) {
	return w.await(ctx, func(*executions.Execution) bool { return true })
}

// Ended waits for the end of the execution.
func (w *Watched) Ended(ctx context.Context) (*executions.Execution, error) {
	return w.await(ctx, func(e *executions.Execution) bool { return e.State != record.Running })
}

// await reads the record until wanted accepts it.
func (w *Watched) await(ctx context.Context, wanted func(*executions.Execution) bool) (*executions.Execution, error) {
	tick := time.NewTicker(lookAgain)
	defer tick.Stop()
	for {
		e, err := w.executions.Get(ctx, w.key, w.id)
		if err == nil && wanted(e) {
			return e, nil
		}
		if err != nil && !errors.Is(err, executions.ErrNotFound) {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-w.changed:
		case <-tick.C:
		}
	}
}

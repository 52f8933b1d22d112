package executions

import "context"

// Released returns once the claims of requests that have returned are released.
func (x *Executor) Released() {
	for range cap(x.releasing) {
		x.releasing <- struct{}{}
	}
	for range cap(x.releasing) {
		<-x.releasing
	}
}

// BreakUntold has the next write of an execution that no event tells fail.
func (x *Executor) BreakUntold() error { return x.untold.file.Close() }

// LayerUsers counts the commands that use a checkout below a layer.
func (x *Executor) LayerUsers() (n int) {
	x.checkouts.layers.mu.Lock()
	defer x.checkouts.layers.mu.Unlock()
	for _, l := range x.checkouts.layers.lent {
		n += l.users
	}
	return n
}

// CheckBash makes the installed bash known, so that plain commands go without it.
func (x *Executor) CheckBash(ctx context.Context) error { return x.bash.Check(ctx) }

// ChangeHandover returns what a supervisor keeps of a command, with another key, id or sandbox.
func ChangeHandover(state []byte, change func(k *Key, id, sandbox *string)) []byte {
	n, _ := decodeNote(state)
	change(&n.key, &n.id, &n.sandbox)
	return n.encode(nil)
}

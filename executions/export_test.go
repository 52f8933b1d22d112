package executions

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

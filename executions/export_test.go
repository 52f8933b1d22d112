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

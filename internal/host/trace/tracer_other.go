//go:build !linux || !(amd64 || arm64)

package trace

// A Tracer is never made here.
type Tracer struct{}

// New fails.
func New(*Look) (*Tracer, error) { return nil, ErrUnavailable }

// Await is never called.
func (t *Tracer) Await(int) {}

// Possible reports whether this system can trace commands.
func Possible() bool { return false }

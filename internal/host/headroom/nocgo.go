//go:build !cgo

package headroom

// What the runtime maps for a thread.
const (
	arena = 0
	stack = 64 << 10
)

//go:build !cgo

package headroom

// The runtime maps a small stack for a thread, and no arena.
const (
	arena = 0
	stack = 64 << 10
)

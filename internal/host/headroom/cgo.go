//go:build cgo

package headroom

// What the C library maps for a thread: an arena, and in it or beside it a stack.
const (
	arena = 64 << 20
	stack = 8 << 20
)

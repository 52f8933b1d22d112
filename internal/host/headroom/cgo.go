//go:build cgo

package headroom

// The C library maps an arena for a thread, and in it or beside it a stack.
const (
	arena = 64 << 20
	stack = 8 << 20
)

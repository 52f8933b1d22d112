//go:build !linux

package runner

// Prompt does nothing: this system has no turns of a chosen length.
func Prompt() {}

//go:build !linux

package runner

func canRedirect() bool { return false }

//go:build !linux || !(amd64 || arm64)

package room

func (e *Error) advice() string { return "they exist on Linux, for amd64 and arm64" }

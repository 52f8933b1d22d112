//go:build !linux

package filelock

import (
	"errors"
	"os"
)

func holder(*os.File) string { return unknown }

// Held fails: this system does not list locks.
func Held(os.FileInfo) (bool, error) { return false, errors.ErrUnsupported }

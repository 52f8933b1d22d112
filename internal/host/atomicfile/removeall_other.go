//go:build !linux

package atomicfile

import "os"

func removeAll(path string) error { return os.RemoveAll(path) }

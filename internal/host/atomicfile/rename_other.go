//go:build !linux && !darwin && !windows

package atomicfile

import "os"

func renameExclusive(from, to string) error { return linkExclusive(from, to) }

func syncDir(d *os.File) error { return d.Sync() }

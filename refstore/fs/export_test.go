package fs

import (
	"os"

	"e3/refstore"
)

// Flock locks a file as writers of streams do.
func Flock(f *os.File) error { return flock(f, refstore.Exclusive, false) }

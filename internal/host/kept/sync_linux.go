package kept

import (
	"os"

	"golang.org/x/sys/unix"
)

// syncAll makes the writes durable by a sync of the whole file system.
func syncAll(folder string) error {
	f, err := os.Open(folder)
	if err != nil {
		return err
	}
	defer f.Close() // nothing was written
	return unix.Syncfs(int(f.Fd()))
}

package fs

import (
	"os"

	"golang.org/x/sys/unix"
)

func syncFS(root *os.File) error { return unix.Syncfs(int(root.Fd())) }

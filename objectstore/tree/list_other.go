//go:build !linux

package tree

import (
	"io/fs"
	"os"
)

func readDir(dir *os.File) ([]fs.DirEntry, error) { return dir.ReadDir(-1) }

func lstat(_ *os.File, root *os.Root, name string) (fs.FileInfo, error) { return root.Lstat(name) }

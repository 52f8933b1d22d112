//go:build !linux

package atomicfile

import (
	"errors"
	"io/fs"
	"os"
)

func createUnnamed(string, fs.FileMode) (*os.File, error) { return nil, errors.ErrUnsupported }

func unnamedUnsupported(err error) bool { return errors.Is(err, errors.ErrUnsupported) }

func canLinkOpen() bool { return false }

func linkOpen(*os.File, string) error { return errors.ErrUnsupported }

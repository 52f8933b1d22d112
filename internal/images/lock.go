package images

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"e3/internal/format/image"
	"e3/internal/host/atomicfile"
)

// LockFile lies beside the package file. It pins names of images.
const LockFile = "e3.lock"

// maxLock bounds the size of the file.
const maxLock = 1 << 20

// ReadLock reads the pins of the package files in a folder. A missing file has no pins.
func ReadLock(base string) (*image.Lock, error) {
	at := filepath.Join(base, LockFile)
	data, err := os.ReadFile(at)
	if errors.Is(err, fs.ErrNotExist) {
		return &image.Lock{}, nil
	}
	if err == nil && len(data) > maxLock {
		err = fmt.Errorf("it has more than %d bytes", maxLock)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", at, err)
	}
	lock, err := image.ParseLock(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", at, err)
	}
	return lock, nil
}

// updateLock changes the pins.
func updateLock(base string, change func(*image.Lock)) error {
	lock, err := ReadLock(base)
	if err != nil {
		return err
	}
	change(lock)
	return atomicfile.WriteFile(filepath.Join(base, LockFile), lock.Encode(), atomicfile.Options{})
}

//go:build !linux

package rootfs

import (
	"errors"
	"time"
)

// Kept are the images that are unpacked on this machine: none, because images need rooms, and these need Linux.
type Kept struct{ Folder, Scratch string }

// A Root is an unpacked image in use.
type Root struct{ Path string }

// Close ends the use.
func (r *Root) Close() error { return nil }

// Open returns an error.
func (k Kept) Open(string) (*Root, error) { return nil, errors.ErrUnsupported }

// Add returns an error.
func (k Kept) Add(string, func(string) error) (*Root, error) { return nil, errors.ErrUnsupported }

// Trim does nothing.
func (k Kept) Trim(time.Time) error { return nil }

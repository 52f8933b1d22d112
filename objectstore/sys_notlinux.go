//go:build !linux

package objectstore

import (
	"errors"
	"os"
	"time"
)

// The functions below have no counterpart on this system. Files are written aside under a name, outputs of tasks are
// copied, and clones are copies.

func touchOpen(*os.File, time.Time) error { return errors.ErrUnsupported }

func lease(*os.File) bool { return false }

func leaseHeld(*os.File) bool { return false }

func reflink(_, _ *os.File) error { return errors.ErrUnsupported }

func reflinkNever(err error) bool { return errors.Is(err, errors.ErrUnsupported) }

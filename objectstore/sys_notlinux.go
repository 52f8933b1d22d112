//go:build !linux

package objectstore

import (
	"errors"
	"os"
	"time"
)

// What follows has no counterpart here. Files are written aside under a name, outputs of
// tasks are copied, and clones are made by copying.

func createUnnamed(string) (*os.File, error) { return nil, errors.ErrUnsupported }

func unnamedUnsupported(err error) bool { return errors.Is(err, errors.ErrUnsupported) }

func canLinkOpen() bool { return false }

func linkOpen(*os.File, string) error { return errors.ErrUnsupported }

func touchOpen(*os.File, time.Time) error { return errors.ErrUnsupported }

func lease(*os.File) bool { return false }

func leaseHeld(*os.File) bool { return false }

func reflink(_, _ *os.File) error { return errors.ErrUnsupported }

func reflinkNever(err error) bool { return errors.Is(err, errors.ErrUnsupported) }

package objectstore

import (
	"context"
	"errors"
	"fmt"
	"io"
)

// A Discarder is a store from which damaged objects can be removed. See Discard.
type Discarder interface {
	Store
	Discard(ctx context.Context, h Hash) (gone bool, err error)
}

// Discard checks whether an object can be read, and removes a damaged one. It reports whether the name is free
// afterwards. In a store that cannot remove objects, it only checks.
func Discard(ctx context.Context, s Store, h Hash) (gone bool, err error) {
	if d, ok := s.(Discarder); ok {
		return d.Discard(ctx, h)
	}
	return IsLost(Check(ctx, s, h))
}

// IsLost reports whether an error says that an object is absent or damaged; it returns any other error.
func IsLost(err error) (bool, error) {
	var corrupt *CorruptError
	if errors.Is(err, ErrNotFound) || errors.As(err, &corrupt) {
		return true, nil
	}
	return false, err
}

// Check reads an object and compares it with its name: other bytes are a *CorruptError.
func Check(ctx context.Context, s Store, h Hash) error {
	if v, ok := s.(interface {
		Verify(ctx context.Context, h Hash) error
	}); ok {
		return v.Verify(ctx, h)
	}
	_, err := Copy(ctx, io.Discard, s, h)
	return err
}

// unsteady bounds the repeated reads of an object that is put or refreshed while it is read.
const unsteady = 5

// Discard implements Discarder. It removes exactly the file that it read: if another process replaces or refreshes the
// file meanwhile, Discard reads again.
func (d *Dir) Discard(ctx context.Context, h Hash) (gone bool, err error) {
	for range unsteady {
		before, err := d.damaged(ctx, h)
		if errors.Is(err, ErrNotFound) {
			return true, nil
		}
		if err != nil || before == nil {
			return false, err
		}
		gone, err := d.delete(ctx, h, func(path string) (bool, error) {
			now, err := d.look(path)
			return err == nil && now.sameContent(*before), err
		})
		if gone || err != nil {
			return gone, err
		}
	}
	return false, fmt.Errorf("object %s: it is damaged, and changes while it is looked at", h)
}

// damaged returns the stat of an object's file if its bytes do not match its name; nil if they do.
func (d *Dir) damaged(ctx context.Context, h Hash) (*stat, error) {
	f, err := d.OpenFile(h)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := fstat(f)
	if err != nil {
		return nil, objectError(h, err)
	}
	if damaged, err := IsLost(CheckReader(ctx, h, f)); !damaged || err != nil {
		return nil, err
	}
	return &st, nil
}

// Lost reports whether an object is lost, and changes nothing. It reads and compares the bytes; in a remote store it
// only checks that the object exists.
func Lost(ctx context.Context, s Store, h Hash) (bool, error) {
	if l, ok := s.(interface {
		Lacks(ctx context.Context, h Hash) (bool, error)
	}); ok {
		return l.Lacks(ctx, h)
	}
	return IsLost(Check(ctx, s, h))
}

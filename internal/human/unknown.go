package human

import (
	"errors"
	"fmt"
)

// ErrNotFound is what an UnknownError is, to errors.Is.
var ErrNotFound = errors.New("not found")

// UnknownError says that a name stands for nothing, and what might have been meant.
type UnknownError struct {
	What  string // workspace, task, …
	Name  string
	Known []string
}

func (e *UnknownError) Error() string { return fmt.Sprintf("there is no %s %q", e.What, e.Name) }

// Unwrap makes errors.Is(err, ErrNotFound) true.
func (e *UnknownError) Unwrap() error { return ErrNotFound }

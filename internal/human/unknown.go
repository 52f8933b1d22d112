package human

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
)

// A Fault is an error in an answer, which shows its text.
type Fault struct{ Err error }

func (f Fault) Error() string { return Words(f.Err) }

// Unwrap returns the error.
func (f Fault) Unwrap() error { return f.Err }

// MarshalText writes the text of the error.
func (f Fault) MarshalText() ([]byte, error) { return []byte(Words(f.Err)), nil }

// Words is the text of an error, without the system calls that found files missing.
func Words(err error) string {
	text := err.Error()
	var visit func(error)
	visit = func(err error) {
		if gone, ok := err.(*fs.PathError); ok && errors.Is(gone, fs.ErrNotExist) {
			text = strings.ReplaceAll(text, gone.Error(), strings.TrimPrefix(gone.Error(), gone.Op+" "))
		}
		switch x := err.(type) {
		case interface{ Unwrap() error }:
			if next := x.Unwrap(); next != nil {
				visit(next)
			}
		case interface{ Unwrap() []error }:
			for _, next := range x.Unwrap() {
				visit(next)
			}
		}
	}
	visit(err)
	return text
}

// FaultOf is an error as an answer shows it; nil for none.
func FaultOf(err error) *Fault {
	if err == nil {
		return nil
	}
	return &Fault{err}
}

// Faults are errors as an answer shows them.
func Faults(list []error) []Fault {
	var faults []Fault
	for _, err := range list {
		faults = append(faults, Fault{err})
	}
	return faults
}

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

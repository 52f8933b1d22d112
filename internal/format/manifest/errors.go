package manifest

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"slices"

	"e3/internal/format/notation"
)

// MaxErrors is the greatest number of faults that Parse reports of one file.
const MaxErrors = 20

// Errors are the faults of one file in order of position, at least one and at most MaxErrors.
type Errors []*Error

// An Error is one fault of a package file.
type Error struct {
	File         string
	Line, Column int
	Msg          string
	Hint         string // what to do about it, or ""
}

// faultAt is a fault at a place of a file.
func faultAt(file string, pos Pos, hint, format string, args ...any) Error {
	return Error{file, int(pos.Line), int(pos.Column), fmt.Sprintf(format, args...), hint}
}

// compare orders faults by their place.
func (e *Error) compare(f *Error) int {
	return cmp.Or(cmp.Compare(e.Line, f.Line), cmp.Compare(e.Column, f.Column))
}

// Error gives "file:line:column: message (hint)".
func (e *Error) Error() string {
	s := e.Msg
	if e.File != "" { // a definition object has no file
		s = fmt.Sprintf("%s:%d:%d: %s", e.File, e.Line, e.Column, e.Msg)
	}
	if e.Hint != "" {
		s += " (" + e.Hint + ")"
	}
	return s
}

// Error gives one line per fault.
func (e Errors) Error() string {
	text := errors.Join(e.Unwrap()...).Error()
	if len(e) >= MaxErrors {
		text += fmt.Sprintf("\nonly the first %d faults are shown", MaxErrors)
	}
	return text
}

// Unwrap gives the single faults to errors.As.
func (e Errors) Unwrap() []error {
	errs := make([]error, len(e))
	for i, err := range e {
		errs[i] = err
	}
	return errs
}

// A syntaxError ends the reading of a file, since the rest cannot be parsed.
type syntaxError struct {
	pos  Pos
	msg  string
	hint string
}

// A collector gathers the faults of one file.
type collector struct {
	file string
	errs Errors
}

// full reports that further faults are dropped, so that costly hints need not be computed.
func (c *collector) full() bool { return len(c.errs) >= MaxErrors }

func (c *collector) add(pos Pos, hint, format string, args ...any) {
	if !c.full() {
		c.note(faultAt(c.file, pos, hint, format, args...))
	}
}

// note adds a fault.
func (c *collector) note(e Error) {
	if !c.full() {
		c.errs = append(c.errs, &e)
	}
}

// end adds the fault at which the reading of the file ended, and is the error to return.
func (c *collector) end(fault *syntaxError) error {
	c.add(fault.pos, fault.hint, "%s", fault.msg)
	return c.result()
}

// result is the error to return: nil when there were no faults.
func (c *collector) result() error {
	if len(c.errs) == 0 {
		return nil
	}
	slices.SortStableFunc(c.errs, (*Error).compare)
	c.errs = slices.CompactFunc(c.errs, func(a, b *Error) bool { return *a == *b }) // a matrix is evaluated more than once
	return c.errs
}

// didYouMean is the hint that names the candidate nearest to word, or "" when none is near.
func didYouMean(word string, candidates iter.Seq[string]) string {
	if best := notation.Nearest(word, candidates); best != "" {
		return fmt.Sprintf("did you mean %q?", best)
	}
	return ""
}

package manifest

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strings"

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

// Error gives "file:line:column: message (hint)".
func (e *Error) Error() string {
	s := e.Msg
	if e.File != "" { // a definition object is no file
		s = fmt.Sprintf("%s:%d:%d: %s", e.File, e.Line, e.Column, e.Msg)
	}
	if e.Hint != "" {
		s += " (" + e.Hint + ")"
	}
	return s
}

// Error gives one line per fault.
func (e Errors) Error() string {
	var b strings.Builder
	for i, err := range e {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(err.Error())
	}
	if len(e) >= MaxErrors {
		fmt.Fprintf(&b, "\nonly the first %d faults are shown", MaxErrors)
	}
	return b.String()
}

// Unwrap gives the single faults to errors.As.
func (e Errors) Unwrap() []error {
	errs := make([]error, len(e))
	for i, err := range e {
		errs[i] = err
	}
	return errs
}

// A syntaxError ends the reading of a file: the rest cannot be parsed.
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
	if c.full() {
		return
	}
	c.errs = append(c.errs, &Error{
		File: c.file, Line: int(pos.Line), Column: int(pos.Column),
		Msg: fmt.Sprintf(format, args...), Hint: hint,
	})
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
	slices.SortStableFunc(c.errs, func(a, b *Error) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return c.errs
}

// didYouMean is the hint that names the candidate nearest to word, or "" when none is near.
func didYouMean(word string, candidates iter.Seq[string]) string {
	if best := notation.Nearest(word, candidates); best != "" {
		return fmt.Sprintf("did you mean %q?", best)
	}
	return ""
}

package manifest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
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
	s := fmt.Sprintf("%s:%d:%d: %s", e.File, e.Line, e.Column, e.Msg)
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

// A syntaxError ends the reading of a file: nothing after it can be understood.
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

// full says that further faults will not be kept, so that costly hints need not be computed.
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
func didYouMean(word string, candidates func(yield func(string) bool)) string {
	if best := nearest(word, candidates); best != "" {
		return fmt.Sprintf("did you mean %q?", best)
	}
	return ""
}

// nearest finds the candidate with the smallest edit distance to word, the first of equals, if that is
// no more than a third of the word's length and they share something. The comparison ignores case.
func nearest(word string, candidates func(yield func(string) bool)) string {
	const longest = 128 // beyond it a suggestion does not help, and costs quadratic time
	if word == "" || len(word) > longest {
		return ""
	}
	lower := strings.ToLower(word)
	best, bestDistance := "", max(1, len(word)/3)+1
	for c := range candidates {
		if c == word || abs(len(c)-len(word)) >= bestDistance {
			continue
		}
		if d := distance(lower, strings.ToLower(c)); d < bestDistance && d < max(len(c), len(word)) {
			best, bestDistance = c, d
		}
	}
	return best
}

// distance is the optimal string alignment distance in bytes: insertions, deletions, substitutions and
// swaps of neighbours.
func distance(a, b string) int {
	before, prev, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(prev[j]+1, row[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, prev, row = prev, row, before
	}
	return prev[len(b)]
}

func abs(n int) int {
	if n < 0 {
		return -n
	}
	return n
}

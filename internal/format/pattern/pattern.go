// Package pattern compiles the regular expressions of the program when they are first used: e3 is started often, an
// expression costs some 10 µs, and most commands use none.
package pattern

import (
	"regexp"
	"sync"
)

// Of returns the expression with the given text. Its first call panics if the text is no expression, as
// [regexp.MustCompile] does; TestExpressionsCompile calls them all.
func Of(text string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(text) })
}

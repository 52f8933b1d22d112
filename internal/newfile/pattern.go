package newfile

import (
	"regexp"
	"sync"
)

// pattern is a regular expression that is compiled at its first use, since only the command new needs it.
func pattern(text string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(text) })
}

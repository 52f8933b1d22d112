package beast2

import (
	"strconv"
	"strings"
)

// A path is the position of a walk within a value, or within its JSON.
type path []step

// A step is a name, or an index of 0 and up.
type step struct {
	name  string
	index int
}

func named(name string) step { return step{name, -1} }
func indexed(i int) step     { return step{"", i} }

func (p *path) push(s step) { *p = append(*p, s) }
func (p *path) pop()        { *p = (*p)[:len(*p)-1] }

// String leaves out the middle of long paths.
func (p path) String() string {
	const ends = 16
	var b strings.Builder
	b.WriteByte('$')
	for i, s := range p {
		switch {
		case i >= ends && i < len(p)-ends:
			if i == ends {
				b.WriteString("…")
			}
		case s.index >= 0:
			b.WriteString("[" + strconv.Itoa(s.index) + "]")
		case readableName(s.name) == s.name:
			b.WriteString("." + s.name)
		default:
			b.WriteString("[" + strconv.Quote(s.name) + "]")
		}
	}
	return b.String()
}

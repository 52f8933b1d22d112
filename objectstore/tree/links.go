package tree

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// links has the symbolic links of a whole tree by path, to check their destinations.
type links map[string]string

// maxHops is the number of links that Linux follows for one path; other systems follow fewer.
const maxHops = 40

// check returns an *Error for a link that leads in circles, or out of base, the folder of the tree that has all the
// links. A link may lead through other links, and ".." is relative to their destinations. The final target need not
// exist.
func (l links) check(base string) error {
	var errs []error
	for from, target := range l {
		if err := l.checkOne(base, from, target); err != nil {
			errs = append(errs, err)
		}
	}
	// Report one of several faults, and the same one each time.
	if len(errs) == 0 {
		return nil
	}
	return slices.MinFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
}

func (l links) checkOne(base, from, target string) error {
	at := path.Dir(from) // a directory of the tree, free of links
	rest := target
	hops := 1
	for rest != "" {
		var part string
		part, rest, _ = strings.Cut(rest, "/")
		switch part {
		case "", ".":
			continue
		case "..":
			if at == base {
				return &Error{Path: from, Msg: fmt.Sprintf("the link points to %q, outside the directory", target), Link: true}
			}
			at = path.Dir(at)
			continue
		}
		next := path.Join(at, part)
		via, isLink := l[next]
		if !isLink {
			at = next
			continue
		}
		if hops++; hops > maxHops || len(rest)+len(via) > maxHops*maxTarget {
			return &Error{Path: from, Msg: fmt.Sprintf("the link points to %q, which leads through too many links", target), Link: true}
		}
		rest = via + "/" + rest
	}
	return nil
}

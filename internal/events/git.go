package events

import (
	"cmp"
	"strings"
)

// Git is what git had checked out in the project of a run when the run began.
type Git struct {
	Commit  string `json:"commit,omitempty"`  // hexadecimal; absent before the first commit, or if unknown
	Branch  string `json:"branch,omitempty"`  // absent: none was checked out
	Unknown string `json:"unknown,omitempty"` // why the commit is not known
}

// Sound returns g, or nil if its commit is no name of a commit.
func (g *Git) Sound() *Git {
	if g == nil || strings.Trim(g.Commit, "0123456789abcdef") != "" || len(g.Commit) > 64 {
		return nil
	}
	return g
}

// ShortCommit is the number of digits by which lists name a commit.
const ShortCommit = 10

// Short names the commit and the branch in a list; "" for nil.
func (g *Git) Short() string {
	switch {
	case g == nil:
		return ""
	case g.Unknown != "":
		return "unknown"
	}
	return strings.TrimSpace(g.Commit[:min(len(g.Commit), ShortCommit)] + " " + g.Branch)
}

// String names the whole commit and the branch; "" for nil.
func (g *Git) String() string {
	switch {
	case g == nil:
		return ""
	case g.Unknown != "":
		return "unknown: " + g.Unknown
	case g.Commit == "":
		return g.Branch + ", before its first commit"
	}
	return g.Commit + ", " + cmp.Or(g.Branch, "no branch")
}

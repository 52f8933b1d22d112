package events

import (
	"cmp"
	"strings"

	"e3/internal/human"
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

// ShortCommit is the number of digits by which lists name a commit. Of a branch they show so much: an imported run may
// name any text.
const (
	ShortCommit   = 10
	longestBranch = 100
)

// Short names the commit and the branch in a list; "" for nil.
func (g *Git) Short() string {
	switch {
	case g == nil:
		return ""
	case g.Unknown != "":
		return "unknown"
	}
	return strings.TrimSpace(g.Commit[:min(len(g.Commit), ShortCommit)] + " " + human.Truncate(g.Branch, longestBranch))
}

// String names the whole commit and the branch; "" for nil.
func (g *Git) String() string {
	switch {
	case g == nil:
		return ""
	case g.Unknown != "":
		return "unknown: " + human.Truncate(g.Unknown, 400)
	case g.Commit == "":
		return human.Truncate(g.Branch, longestBranch) + ", before its first commit"
	}
	return g.Commit + ", " + cmp.Or(human.Truncate(g.Branch, longestBranch), "no branch")
}

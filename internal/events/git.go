package events

import (
	"cmp"
	"fmt"
	"strings"

	"e3/internal/human"
)

// Git is what git had checked out in the project of a run when the run began.
type Git struct {
	Commit  string `json:"commit,omitempty"`  // hexadecimal; absent before the first commit, or if unknown
	Branch  string `json:"branch,omitempty"`  // absent: none was checked out
	Unknown string `json:"unknown,omitempty"` // why the commit is not known
	// tracked files of the project that were not as in the commit when the run's first command began; 0 also if no command began
	Modified int  `json:"modified,omitempty"`
	Staged   bool `json:"staged,omitempty"` // changes were staged then
}

// Sound returns g, or nil if its commit is no name of a commit.
func (g *Git) Sound() *Git {
	if g == nil || strings.Trim(g.Commit, "0123456789abcdef") != "" || len(g.Commit) > 64 || g.Modified < 0 {
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
	return strings.TrimSpace(g.Commit[:min(len(g.Commit), ShortCommit)]+" "+human.Truncate(g.Branch, longestBranch)) + g.edits()
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
	return g.Commit + ", " + cmp.Or(human.Truncate(g.Branch, longestBranch), "no branch") + g.edits()
}

// edits says that the project was edited since the commit; "" if it was not, as far as is known.
func (g *Git) edits() string {
	switch {
	case g.Modified > 0:
		return fmt.Sprintf(", %s modified", human.Count(g.Modified, "file"))
	case g.Staged:
		return ", changes staged"
	}
	return ""
}

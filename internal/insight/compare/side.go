package compare

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"e3/internal/events"
	"e3/internal/format/moment"
)

// ErrSyntax is wrapped when a text does not name a side.
var ErrSyntax = errors.New("a side is <workspace>, <workspace>@<run>, <workspace>@, <workspace>@-<n> or <workspace>@next")

// A What is the kind of a side.
type What int

// The kinds of sides.
const (
	Workspace What = iota // its present datasets
	Run                   // a run of the workspace, by the beginning of the run's id
	Earlier               // a run of the workspace, by the number of later runs
	Commit                // the latest completed run of the workspace at a commit or branch of git
	Next                  // the next start: package file and inputs on disk, and their results in the cache
)

// A Side names one of the two sides of a comparison.
type Side struct {
	Workspace string `json:"workspace"`
	What      What   `json:"-"`
	Run       string `json:"-"` // Run: the beginning of an id
	Commit    string `json:"-"` // Commit: a branch, the beginning of a commit, or HEAD
	Back      int    `json:"-"` // Earlier: 0 is the run that the workspace shows
}

// head is what git calls the commit that is checked out.
const head = "HEAD"

// ParseSide reads a side as a command line names it: "ws" is the workspace as it is now, "ws@018f" a run by the
// beginning of its id, "ws@" the latest run, "ws@-1" (or "ws@~1") the one before it, and "ws@next" the next start. If
// the text has no workspace, as in "@-1", the given one is meant, and so it is for a bare id of a run, as histories print it.
func ParseSide(text, workspace string) (Side, error) {
	at := strings.LastIndexByte(text, '@')
	s := Side{Workspace: text}
	if at < 0 && bareRun(text) {
		if workspace == "" {
			return s, fmt.Errorf("%q is a run; write <workspace>@%s: %w", text, text, ErrSyntax)
		}
		return Side{Workspace: workspace, What: Run, Run: text}, nil
	}
	if at >= 0 {
		s.Workspace = text[:at]
		s.What = Earlier
	}
	if s.Workspace == "" {
		s.Workspace = workspace
	}
	if s.Workspace == "" {
		return s, fmt.Errorf("%q names no workspace: %w", text, ErrSyntax)
	}
	if at < 0 {
		return s, nil
	}
	switch ref := text[at+1:]; {
	case ref == "":
	case ref == "next":
		s.What = Next
	case ref[0] == '-' || ref[0] == '~':
		n, err := strconv.ParseUint(ref[1:], 10, 31)
		if err != nil {
			return s, fmt.Errorf("%q: %w", text, ErrSyntax)
		}
		s.Back = int(n)
	case strings.Trim(ref, "0123456789abcdefABCDEF-") != "":
		return s, fmt.Errorf("%q: %w", text, ErrSyntax)
	default:
		s.What, s.Run = Run, ref
	}
	return s, nil
}

// bareRun reports whether a text is the beginning of a run's id as histories print it: 0194fdc1-fa2f-7cc0.
func bareRun(text string) bool {
	return len(text) > 9 && text[8] == '-' && strings.Trim(text, "0123456789abcdef-") == ""
}

// ParseCommit reads a side that is named by a commit or a branch: "ws@main", or "main" in the given workspace.
func ParseCommit(text, workspace string) (Side, error) {
	s := Side{Workspace: workspace, What: Commit, Commit: text}
	if ws, commit, ok := strings.Cut(text, "@"); ok {
		s.Commit = commit
		if ws != "" {
			s.Workspace = ws
		}
	}
	if s.Commit == "" {
		return s, fmt.Errorf("%q names no commit", text)
	}
	return s, nil
}

// String is the side as ParseSide reads it, or as ParseCommit does.
func (s Side) String() string {
	switch s.What {
	case Commit:
		return s.Workspace + "@" + s.Commit
	case Run:
		return s.Workspace + "@" + s.Run
	case Earlier:
		if s.Back == 0 {
			return s.Workspace + "@"
		}
		return fmt.Sprintf("%s@-%d", s.Workspace, s.Back)
	case Next:
		return s.Workspace + "@next"
	}
	return s.Workspace
}

// Seen describes a side that was read.
type Seen struct {
	Name string `json:"side"` // as on a command line
	Side
	Package     string      `json:"package,omitempty"` // name@version
	PackageHash string      `json:"packageHash,omitempty"`
	RunID       string      `json:"run,omitempty"`
	Status      string      `json:"status,omitempty"` // of a run
	StartedAt   moment.Time `json:"startedAt,omitzero"`
	CompletedAt moment.Time `json:"completedAt,omitzero"`
	Git         *events.Git `json:"git,omitempty"` // the commit at which a run began
	Imported    bool        `json:"imported,omitempty"`
	Notes       []string    `json:"notes,omitempty"` // remarks
}

func (s *Seen) notef(format string, args ...any) {
	s.Notes = append(s.Notes, fmt.Sprintf(format, args...))
}

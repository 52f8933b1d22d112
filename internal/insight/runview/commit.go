package runview

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"e3/executions"
	"e3/internal/events"
	"e3/internal/format/record"
	"e3/internal/human"
)

// fewestDigits is how many digits a commit is named by at least, as in git.
const fewestDigits = 4

// CompletedAt is what an [human.UnknownError] of AtCommit says that there is not.
const CompletedAt = "completed run at commit or branch"

// AtCommit finds the latest completed run of a workspace that began at a branch, or at a commit that begins with the
// name. A branch goes first, as in git. The runs on record alone give a name its meaning.
func (v *Runs) AtCommit(ctx context.Context, ws, name string) (string, error) {
	digits := strings.ToLower(name)
	if len(digits) < fewestDigits || strings.Trim(digits, "0123456789abcdef") != "" {
		digits = "-"
	}
	found, at, other := "", "", ""
	var known []string
	for r, err := range v.List(ctx, ws) {
		if err != nil {
			return "", err
		}
		g := r.Git
		if g == nil || g.Unknown != "" || r.State != record.RunCompleted {
			continue
		}
		if g.Branch == name && name != "" {
			return r.RunID, nil
		}
		switch fits := strings.HasPrefix(g.Commit, digits); {
		case fits && found == "":
			found, at = r.RunID, g.Commit
		case fits && at != g.Commit:
			other = g.Commit
		}
		for _, word := range []string{g.Branch, g.Commit[:min(len(g.Commit), events.ShortCommit)]} {
			if word != "" && !slices.Contains(known, word) {
				known = append(known, word)
			}
		}
	}
	switch {
	case other != "":
		return "", fmt.Errorf("commit %s: %w: %s and %s", name, executions.ErrAmbiguous, at, other)
	case found != "":
		return found, nil
	}
	return "", &human.UnknownError{What: CompletedAt, Name: name, Known: known}
}

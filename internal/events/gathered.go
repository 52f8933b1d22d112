package events

import (
	"fmt"
	"strings"
)

// Gathered tells which members the fan-ins with need lack.
type Gathered struct {
	Members int `json:"members"` // of the fan-ins that lack members
	Missing int `json:"missing"`
	// why they are missing: their sum is missing
	Failed   int      `json:"failed,omitempty"`
	Rejected int      `json:"rejected,omitempty"` // by a person
	Skipped  int      `json:"skipped,omitempty"`  // another task has failed
	Needed   int      `json:"needed"`
	Names    []string `json:"names"` // the first missing tasks
}

// LeftOut says what a task does without, and why: "2 of 200 left out (1 failed, 1 skipped): fit[a], fit[b]".
func (g *Gathered) LeftOut() string {
	const most = 3
	names := g.Names[:min(len(g.Names), most)]
	text := fmt.Sprintf("%d of %d left out%s: %s", g.Missing, g.Members, g.reasons(), strings.Join(names, ", "))
	if more := g.Missing - len(names); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// reasons is " (1 failed, 1 skipped)".
func (g *Gathered) reasons() string {
	var parts []string
	for _, r := range []struct {
		n    int
		word string
	}{{g.Failed, "failed"}, {g.Rejected, "not approved"}, {g.Skipped, "skipped"}} {
		if r.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", r.n, r.word))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return " (" + strings.Join(parts, ", ") + ")"
}

// WhySkipped says why a task was skipped: another has failed, and too few are left where g is not nil.
func WhySkipped(because string, g *Gathered) string {
	if g != nil {
		return because + " failed; " + g.TooFew()
	}
	return because + " failed"
}

// TooFew says why a task could not run: "188 of 200 succeeded, 190 are needed".
func (g *Gathered) TooFew() string {
	return fmt.Sprintf("%d of %d succeeded, %d needed", g.Members-g.Missing, g.Members, g.Needed)
}

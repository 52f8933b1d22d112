package events

import (
	"fmt"
	"strings"
)

// Gathered tells which members the fan-ins with need lack.
type Gathered struct {
	Members int      `json:"members"` // of the fan-ins that lack members
	Missing int      `json:"missing"`
	Needed  int      `json:"needed"`
	Names   []string `json:"names"` // the first missing tasks
}

// LeftOut says what a task does without: "2 of 200 left out: fit[a], fit[b]".
func (g *Gathered) LeftOut() string {
	const most = 3
	names := g.Names[:min(len(g.Names), most)]
	text := fmt.Sprintf("%d of %d left out: %s", g.Missing, g.Members, strings.Join(names, ", "))
	if more := g.Missing - len(names); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
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

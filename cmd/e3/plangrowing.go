package main

import (
	"fmt"
	"io"

	"e3/internal/human"
	"e3/workspace"
)

// growingJSON is what a plan cannot know before a task has made its list of items.
type growingJSON struct {
	Name    string   `json:"name"`           // of the family, or of a task that reads one
	Pending bool     `json:"pending"`        // none of its tasks is known yet
	Last    int      `json:"last,omitempty"` // how many tasks the last list decides
	For     []string `json:"for,omitempty"`  // the tasks that make the list
	Error   string   `json:"error,omitempty"`
}

func growingOf(p *workspace.Plan) []growingJSON {
	var list []growingJSON
	for i := range p.Growing {
		g := &p.Growing[i]
		item := growingJSON{Name: g.Name, Pending: g.Pending, Last: g.Tasks, For: taskNames(p.Graph, g.Waits)}
		if g.Err != nil {
			item.Error = g.Err.Error()
		}
		list = append(list, item)
	}
	return list
}

// writeGrowing says of which tasks the plan knows only the last items, or none.
func writeGrowing(w io.Writer, p *workspace.Plan) {
	for i := range p.Growing {
		g := &p.Growing[i]
		name, makers := human.Line(g.Name), human.Line(human.Few(taskNames(p.Graph, g.Waits)))
		switch {
		case g.Err != nil:
			fmt.Fprintf(w, "  %s cannot run: %s\n", name, human.Line(g.Err.Error()))
		case g.Pending && len(g.Waits) > 0:
			fmt.Fprintf(w, "  %s is not known yet: its items follow from %s\n", name, makers)
		case g.Pending:
			fmt.Fprintf(w, "  %s is not known yet\n", name)
		default:
			fmt.Fprintf(w, "  %s follow from the items of %s: this is the number of last time\n", human.Count(g.Tasks, "task"), makers)
		}
	}
}

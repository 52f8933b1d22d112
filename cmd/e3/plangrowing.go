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

func growingOf(p *workspace.Plan) []workspace.Unmade {
	list := make([]workspace.Unmade, len(p.Growing))
	for i := range p.Growing {
		g := &p.Growing[i]
		list[i] = workspace.Unmade{Name: g.Name, Pending: g.Pending, Tasks: g.Tasks, For: taskNames(p.Graph, g.Waits), Err: g.Err}
	}
	return list
}

func unmadeOf(list []workspace.Unmade) []growingJSON {
	var doc []growingJSON
	for i := range list {
		u := &list[i]
		item := growingJSON{Name: u.Name, Pending: u.Pending, Last: u.Tasks, For: u.For}
		if u.Err != nil {
			item.Error = u.Err.Error()
		}
		doc = append(doc, item)
	}
	return doc
}

// unmadeText says of which tasks only the last items are known, or none.
func unmadeText(u *workspace.Unmade) string {
	makers := human.Few(u.For)
	switch {
	case u.Err != nil:
		return fmt.Sprintf("%s cannot run: %v", u.Name, u.Err)
	case u.Pending && len(u.For) > 0:
		return fmt.Sprintf("%s is not known yet: its items follow from %s", u.Name, makers)
	case u.Pending:
		return u.Name + " is not known yet"
	}
	return fmt.Sprintf("%s follow from the items of %s: this is the number of last time", human.Count(u.Tasks, "task"), makers)
}

// writeGrowing says of which tasks the plan knows only the last items, or none.
func writeGrowing(w io.Writer, p *workspace.Plan) {
	list := growingOf(p)
	for i := range list {
		fmt.Fprintf(w, "  %s\n", human.Line(unmadeText(&list[i])))
	}
}

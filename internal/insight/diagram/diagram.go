// Package diagram draws a graph of tasks: as DOT and Mermaid for other programs, and as SVG, laid out here.
//
// The same graph gives the same bytes. Labels are of others: whatever they hold, they stay text.
package diagram

import (
	"cmp"
	"fmt"
	"strings"

	"e3/internal/human"
	"e3/internal/insight/runview"
)

// Status is how a node stands; it decides its colour and is written beside its label. "" is none. In a run it is a runview.TaskState.
type Status string

// The statuses of nodes besides those of a run: three of a plan, and three of a workspace as it is.
const (
	Hit     Status = "hit"
	Run     Status = "run"
	Waits   Status = "waits"
	Current Status = "current"
	Stale   Status = "stale"
	Missing Status = "missing"
)

// statuses are ordered by how much they ask to be looked at: a node that stands for several has the first of theirs.
var statuses = [...]Status{
	Status(runview.TaskFailed), Status(runview.TaskError), Status(runview.TaskInterrupted), Status(runview.TaskDeferred),
	Status(runview.TaskRunning), Status(runview.TaskClaimed), Status(runview.TaskRetrying), Run, Waits, Status(runview.TaskSkipped),
	Status(runview.TaskAbandoned), Stale, Missing, Status(runview.TaskSuccess), Hit, Status(runview.TaskCached), Current,
}

// rank is the place of a status among all; one that is not known comes last.
func (s Status) rank() int {
	for i, known := range statuses {
		if s == known {
			return i
		}
	}
	return len(statuses)
}

// class is the name of a status in a style sheet, "none" for all that are not known.
func (s Status) class() string {
	if s.rank() == len(statuses) {
		return "none"
	}
	return string(s)
}

// Kind is what a node is.
type Kind int

// The kinds of nodes.
const (
	Task Kind = iota
	Input
)

// A Node is a box with a label.
type Node struct {
	Label  string
	Kind   Kind
	Status Status
	Note   string // a few words beside the status, as how long it took
	// Group is what nodes have in common that Fold may gather: the name of a matrix. "" is nothing.
	Group string
	// Anchor is the id of what the node leads to in the page that holds the drawing, "" for nothing. Only SVG has it.
	Anchor string
	// Tallies are the statuses of the nodes that this one stands for; nil where it stands for itself.
	Tallies []Tally
}

// A Tally is how many nodes have a status.
type Tally struct {
	Status Status
	Count  int
}

// An Edge leads from the node that is read to the one that reads it, by their indices.
type Edge struct{ From, To int }

// A Graph is what is drawn. Cycles are drawn too, though tasks have none.
type Graph struct {
	Title string
	Nodes []Node
	Edges []Edge
}

// check refuses edges that lead nowhere.
func (g *Graph) check() error {
	for _, e := range g.Edges {
		if e.From < 0 || e.From >= len(g.Nodes) || e.To < 0 || e.To >= len(g.Nodes) {
			return fmt.Errorf("graph: an edge leads from node %d to %d, and there are %d", e.From, e.To, len(g.Nodes))
		}
	}
	return nil
}

// count is how many nodes a node stands for.
func (n *Node) count() int {
	sum := 0
	for _, t := range n.Tallies {
		sum += t.Count
	}
	return max(sum, 1)
}

// caption is the second line of a node: its status and its note, or those of all it stands for.
func (n *Node) caption() string {
	if n.Tallies == nil {
		status := clean(string(n.Status))
		if n.Note == "" {
			return status
		}
		return strings.TrimPrefix(status+" · "+clean(n.Note), " · ")
	}
	parts := make([]string, 0, len(n.Tallies))
	for _, t := range n.Tallies {
		if t.Status != "" {
			parts = append(parts, fmt.Sprintf("%d %s", t.Count, clean(string(t.Status))))
		}
	}
	return strings.Join(parts, ", ")
}

// label is the first line of a node.
func (n *Node) label() string { return cmp.Or(clean(n.Label), "(no name)") }

// clean makes text a single line of what can be seen.
func clean(s string) string { return human.Line(s) }

// shorten cuts text in its middle, where names differ least, to so many characters.
func shorten(s string, most int) string {
	r := []rune(s)
	if len(r) <= most {
		return s
	}
	tail := (most - 1) / 2
	return string(r[:most-1-tail]) + "…" + string(r[len(r)-tail:])
}

// Package diagram draws a graph of tasks: as DOT and Mermaid for other programs, and as SVG, laid out here.
//
// The same graph gives the same bytes. Labels are untrusted: whatever they hold, they are written as text.
package diagram

import (
	"cmp"
	"fmt"
	"strings"

	"e3/internal/human"
	"e3/internal/insight/runview"
)

// Status is the state of a node; it decides the node's colour and is written beside its label. "" is none. In a run it
// is a runview.TaskState.
type Status string

// The statuses of nodes besides those of a run: three of a plan, and five of a workspace's present state.
const (
	Hit     Status = "hit"
	Run     Status = "run"
	Waits   Status = "waits"
	Current Status = "current"
	Stale   Status = "stale"
	Missing Status = "missing"
	Unknown Status = "not known yet" // its items are not known yet
	Allowed Status = "allowed"       // it has failed, as it may
)

// statuses are ordered by how urgent they are for a reader. A node that stands for several nodes has the first of
// their statuses.
var statuses = [...]Status{
	Status(runview.TaskFailed), Status(runview.TaskError), Status(runview.TaskInterrupted), Allowed, Status(runview.TaskDeferred),
	Status(runview.TaskRunning), Status(runview.TaskClaimed), Status(runview.TaskRetrying), Run, Waits, Status(runview.TaskSkipped),
	Status(runview.TaskAbandoned), Stale, Missing, Status(runview.TaskSuccess), Hit, Status(runview.TaskCached), Current,
}

// rank is the place of a status in this order; unknown statuses come last.
func (s Status) rank() int {
	for i, known := range statuses {
		if s == known {
			return i
		}
	}
	return len(statuses)
}

// class is the name of a status in a style sheet, "none" for an unknown status.
func (s Status) class() string {
	if s.rank() == len(statuses) {
		return "none"
	}
	return string(s)
}

// Kind is the kind of a node.
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
	Note   string // a few words beside the status, such as a duration; of a node that stands for several, the names of the first
	// Group is the same for nodes that Fold may merge, such as the name of a matrix; "" for none.
	Group string
	// Anchor is the id of the element that the node links to in the page around the drawing, "" for no link. Only SVG
	// uses it.
	Anchor string
	// Href is the address of a page that the node links to instead.
	Href string
	// Tallies are the statuses of the nodes that this one stands for; nil if it stands for itself.
	Tallies []Tally
}

// A Tally is the number of nodes with a status.
type Tally struct {
	Status Status
	Count  int
}

// An Edge leads from a node to a node that reads it, by their indices.
type Edge struct{ From, To int }

// A Graph can be drawn. Cycles are drawn too, though graphs of tasks have none.
type Graph struct {
	Title string
	Nodes []Node
	Edges []Edge
}

// check refuses edges whose ends are not nodes.
func (g *Graph) check() error {
	for _, e := range g.Edges {
		if e.From < 0 || e.From >= len(g.Nodes) || e.To < 0 || e.To >= len(g.Nodes) {
			return fmt.Errorf("graph: an edge leads from node %d to %d, and there are %d", e.From, e.To, len(g.Nodes))
		}
	}
	return nil
}

// count is the number of nodes that a node stands for.
func (n *Node) count() int {
	sum := 0
	for _, t := range n.Tallies {
		sum += t.Count
	}
	return max(sum, 1)
}

// caption is the second line of a node: its status and its note, or the tallies of the nodes that it stands for.
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

// clean makes text a single line of visible characters.
func clean(s string) string { return human.Line(s) }

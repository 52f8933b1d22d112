// Package report gathers the contents of a run's file: the tasks with memory and cores, their commands and logs, and
// the outputs that the package file marks as metrics, plots and reports. It also has the parts that several pages
// draw: timelines, graphs, charts and tables. Package ui makes pages of them.
//
// Content is untrusted and bounded: the gathered contents say where something was cut off or left out.
package report

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"e3/executions"
	"e3/internal/format/record"
	"e3/internal/insight/runview"
)

// Stores holds the sources of a report. Nothing is written to them.
type Stores struct {
	Executions *executions.Store
	Runs       *runview.Runs
}

// maxRows is the number of tasks in the table.
const maxRows = 12_000

// Contents are the contents of a run's file, apart from its head, graph and timeline. Texts are ready to be shown.
type Contents struct {
	Rows     []Row
	Left     int // tasks that are not in Rows
	Commands []Command
	Logs     *Logs
	Metrics  []Table
	Figures  []Figure
	Notes    []string // what is missing above
	Versions string   // versions of e3 that executed the tasks
}

// Pictures are the figures that are shown side by side.
func (c *Contents) Pictures() []Figure {
	return slices.DeleteFunc(slices.Clone(c.Figures), Figure.isDocument)
}

// Documents are the figures that need the whole width.
func (c *Contents) Documents() []Figure {
	return slices.DeleteFunc(slices.Clone(c.Figures), func(f Figure) bool { return !f.isDocument() })
}

// HasFrames reports whether a figure is a document with styles of its own.
func (c *Contents) HasFrames() bool {
	return slices.ContainsFunc(c.Figures, func(f Figure) bool { return f.Document != "" })
}

// Fact is a value with its name.
type Fact struct{ Name, Value string }

// Share is the number of tasks in a state, and their place in a bar of 1000.
type Share struct {
	State string
	Count int
	X, W  float64
}

// Row is a task in the table.
type Row struct {
	*runview.TaskReport
	Anchor string // of the task in the page
	Note   string
}

// StateText is the task's state in words.
func (r *Row) StateText() string { return r.Shown() }

// Gather reads the contents of a run's file, given the run's [runview.Runs.Report] and its package; nil: the package
// is gone, or made by another e3.
func Gather(ctx context.Context, s Stores, r *runview.Report, pkg *record.Package) (*Contents, error) {
	b := &builder{ctx: ctx, s: s, run: r, pkg: pkg}
	c := &Contents{}
	b.rows(c)
	if err := b.commands(c); err != nil {
		return nil, err
	}
	var err error
	if c.Logs, err = b.logs(c.Rows); err != nil {
		return nil, err
	}
	if err := b.outputs(c); err != nil {
		return nil, err
	}
	b.versions()
	c.Versions = Few(b.version)
	return c, nil
}

// builder gathers the contents of a file.
type builder struct {
	ctx     context.Context
	s       Stores
	run     *runview.Report
	pkg     *record.Package // nil: gone, or made by another e3
	version map[string]bool
}

// versions reads an execution of the run for the version of e3 that made it, if no execution read so far had one.
func (b *builder) versions() {
	for i := range b.run.Tasks {
		t := &b.run.Tasks[i]
		key, ok := executions.ParseKey(t.Key)
		if len(b.version) > 0 || !ok || t.State == runview.TaskCached {
			continue
		}
		if e, err := b.s.Executions.Get(b.ctx, key, t.ExecutionID); err == nil && e.Detail != nil && e.Detail.Version != "" {
			b.ran(e.Detail)
		}
		return // one look is enough for a detail
	}
}

// rows fills in the table.
func (b *builder) rows(c *Contents) {
	tasks := b.run.Tasks
	listed := tasks
	if len(listed) > maxRows { // drop the uneventful ones
		listed = make([]runview.TaskReport, 0, maxRows)
		for _, quiet := range []bool{false, true} {
			for i := range tasks {
				if (tasks[i].State == runview.TaskCached) == quiet && len(listed) < maxRows {
					listed = append(listed, tasks[i])
				}
			}
		}
		c.Left = len(tasks) - len(listed)
	}
	c.Rows = make([]Row, len(listed))
	for i := range listed {
		t := &listed[i]
		c.Rows[i] = Row{TaskReport: t, Anchor: fmt.Sprintf("t%d", i), Note: Note(t)}
	}
}

// Shares are the states of tasks in the order of the bar, by their numbers.
func Shares(counts map[string]int) []Share {
	total := 0
	for _, n := range counts {
		total += n
	}
	var list []Share
	x := 0.0
	for _, state := range slices.Concat(states[:], unknown(counts)) {
		if n := counts[state]; n > 0 {
			wide := float64(n) / float64(total) * 1000
			list = append(list, Share{State: state, Count: n, X: x, W: wide})
			x += wide
		}
	}
	return list
}

// states are all states of tasks, in the order of the bar.
var states = [...]string{"failed", "error", "interrupted", "allowed", "deferred", "running", "claimed", "retrying", "abandoned", "skipped", "success", "cached", "waits"}

// unknown returns the states that are not in that list.
func unknown(counts map[string]int) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(counts)), func(s string) bool { return slices.Contains(states[:], s) })
}

// Package report writes a run as one page of HTML, which can be read without e3 and without the repository. It shows
// the tasks, their times and logs, and the outputs that the package file marks as metrics, plots and reports.
//
// The page makes no network requests, and a policy in it forbids browsers to make any. Its content is untrusted and
// bounded: the page says where something was cut off or left out.
package report

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"e3/executions"
	"e3/internal/events"
	"e3/internal/format/record"
	"e3/internal/human"
	"e3/internal/insight/diagram"
	"e3/internal/insight/plot"
	"e3/internal/insight/runview"
)

// Stores holds the sources of a page. Nothing is written to them.
type Stores struct {
	Executions *executions.Store
	Runs       *runview.Runs
}

// Options are facts that the stores do not hold.
type Options struct {
	Now        time.Time // creation time of the page; its zone is used for all times
	Version    string    // of e3
	Repository string    // where the run is
}

// Bounds of a page.
const (
	maxNodes = 160    // of the graph, before it is folded
	maxRows  = 12_000 // tasks in the table
)

//go:embed page.html
var pageText string

// LineText defines the template "line", which draws a Line.
//
//go:embed line.html
var LineText string

//go:embed style.css
var styleText string

//go:embed script.js
var scriptText string

// pageTemplate is parsed when the first page is written, so that other commands of the program do not pay for it.
var pageTemplate = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("page").Funcs(template.FuncMap{
		"elapsed": human.Duration, "visible": visible, "bytes": human.Bytes, "ms": time.Duration.Milliseconds,
	}).Parse(pageText + LineText))
})

// page holds the data of the template. Fields: each is a name that the template uses.
type page struct {
	Title    string
	Policy   string
	Style    template.CSS
	Script   template.JS
	Run      *runview.Report
	Status   string
	Class    string // of the status
	Lead     string // the outcome in a sentence
	Facts    []fact
	Shares   []Share
	Graph    template.HTML
	GraphOf  string // a note if the graph is folded or not drawn
	Line     *Line
	Rows     []row
	Left     int // tasks that are not in Rows
	States   []string
	Commands []command
	Logs     *logs
	Metrics  []metrics
	Figures  []figure
	Notes    []string // what is missing among metrics and figures
	Version  string
	Made     string
}

// Pictures are the figures that are shown side by side.
func (p *page) Pictures() []figure {
	return slices.DeleteFunc(slices.Clone(p.Figures), figure.isDocument)
}

// Documents are the figures that need the whole width.
func (p *page) Documents() []figure {
	return slices.DeleteFunc(slices.Clone(p.Figures), func(f figure) bool { return !f.isDocument() })
}

// fact is a line of the header.
type fact struct{ Name, Value string }

// Share is the number of tasks in a state, and where they are in a bar of 1000.
type Share struct {
	State string
	Count int
	X, W  float64
}

// row is a task in the table.
type row struct {
	*runview.TaskReport
	Anchor string
	Note   string
	Took   bool    // its duration is known
	Memory int64   // bytes of its largest process; 0: unknown
	Cores  float64 // that it kept busy on average; 0: unknown

	execution *executions.Execution // nil: not read
}

// Write writes the page of a run, given its [runview.Runs.Report].
func Write(ctx context.Context, w io.Writer, s Stores, r *runview.Report, o Options) error {
	b := &builder{ctx: ctx, s: s, run: r, o: o}
	p, err := b.page()
	if err != nil {
		return fmt.Errorf("report of run %s: %w", r.RunID, err)
	}
	return pageTemplate().Execute(w, p)
}

// builder gathers what a page shows.
type builder struct {
	ctx context.Context
	s   Stores
	run *runview.Report
	o   Options

	pkg     *record.Package // nil: gone, or made by another e3
	bars    []Bar
	last    time.Time // of the events
	version map[string]bool
	workers map[string]bool
}

func (b *builder) page() (*page, error) {
	r := b.run
	if err := b.readEvents(); err != nil {
		return nil, err
	}
	var err error
	if b.pkg, _, err = b.s.Runs.PackageOf(b.ctx, r); err != nil {
		return nil, err
	}
	p := &page{
		Title: fmt.Sprintf("%s: run %s, %s", visible(r.WorkspaceName), short(r.RunID), r.Status()),
		Run:   r, Status: r.Status(), Class: RunClass(r), Version: visible(b.o.Version), Made: b.stamp(b.o.Now),
		Style: template.CSS(diagram.Style() + styleText + plot.Style), Script: template.JS(scriptText),
	}
	b.rows(p)
	if err := b.measure(p); err != nil {
		return nil, err
	}
	if err := b.commands(p); err != nil {
		return nil, err
	}
	if err := b.graph(p); err != nil {
		return nil, err
	}
	p.Line = b.timeline()
	if p.Logs, err = b.logs(p.Rows); err != nil {
		return nil, err
	}
	if err := b.outputs(p); err != nil {
		return nil, err
	}
	b.versions()
	if r.Damage != nil {
		p.Notes = append(p.Notes, "Not all is known of this run: "+visible(r.Damage.Error())+".")
	}
	if r.Unnamed > 0 {
		p.Notes = append(p.Notes, human.Count(r.Unnamed, "more task")+" had results of an earlier run of which nothing is left.")
	}
	p.Facts = b.facts()
	p.Lead = Lead(r)
	p.Policy = policy(p)
	return p, nil
}

// policy forbids all but the page's own style and script, pictures that are in it, and reports, in which no script
// runs. If there is such a report, inline styles are allowed, since the page's policy also applies to a frame without
// an address.
func policy(p *page) string {
	style := digest(string(p.Style))
	for _, f := range p.Figures {
		if f.Frame != "" {
			style = "'unsafe-inline'"
		}
	}
	return "default-src 'none'; style-src " + style + "; script-src " + digest(string(p.Script)) +
		"; img-src data:; base-uri 'none'; form-action 'none'"
}

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// readEvents reads the facts of the run's events that its report lacks.
func (b *builder) readEvents() error {
	open := map[string]Bar{}
	b.workers = map[string]bool{}
	for e, err := range events.Read(b.ctx, b.s.Runs.Records, b.run.WorkspaceName, b.run.RunID) {
		if b.ctx.Err() != nil {
			return context.Cause(b.ctx)
		}
		if err != nil {
			break // events after a damaged line are lost; the report covers them
		}
		d := e.Facts()
		b.last = e.Time
		if e.Type == events.TaskStarted {
			b.workers[e.Worker] = true
			open[e.Task] = Bar{Task: e.Task, Worker: e.Worker, Attempt: d.Attempt, Start: e.Time}
		}
		state := runview.Outcome(&e.Event)
		if at, ok := open[e.Task]; ok && state != "" {
			delete(open, e.Task)
			at.State, at.End = state, e.Time
			b.bars = append(b.bars, at)
		}
	}
	for _, at := range open {
		at.State, at.End = runview.TaskInterrupted, b.last
		if b.run.Live {
			at.State, at.End = runview.TaskRunning, b.o.Now
		}
		b.bars = append(b.bars, at)
	}
	return nil
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

// rows fills in the table, the bar of states, and the filters of the table.
func (b *builder) rows(p *page) {
	counts := map[string]int{}
	tasks := b.run.Tasks
	for i := range tasks {
		counts[StateOf(&tasks[i])]++
	}
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
		p.Left = len(tasks) - len(listed)
	}
	p.Rows = make([]row, len(listed))
	for i := range listed {
		t := &listed[i]
		took := t.Took()
		p.Rows[i] = row{TaskReport: t, Anchor: fmt.Sprintf("t%d", i), Note: Note(t), Took: took}
	}
	if waiting := int(b.run.Total) - len(tasks); waiting > 0 {
		counts["waits"] += waiting
	}
	p.Shares = Shares(counts)
	for _, s := range p.Shares {
		if s.State != "waits" {
			p.States = append(p.States, s.State)
		}
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
var states = [...]string{"failed", "error", "interrupted", "deferred", "running", "claimed", "retrying", "abandoned", "skipped", "success", "cached", "waits"}

// unknown returns the states that are not in that list.
func unknown(counts map[string]int) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(counts)), func(s string) bool { return slices.Contains(states[:], s) })
}

// StateOf is the state of a task for display; a ready task has none yet.
func StateOf(t *runview.TaskReport) string {
	if t.State == "" {
		return "waits"
	}
	return string(t.State)
}

// StateText is the task's state in words.
func (r *row) StateText() string { return StateOf(r.TaskReport) }

// graph draws the package, coloured by the states of the tasks.
func (b *builder) graph(p *page) error {
	if b.pkg == nil {
		p.GraphOf = "The package of this run is not in the repository in a form that can be drawn."
		return nil
	}
	known := make(map[string]*row, len(p.Rows))
	for i := range p.Rows {
		known[p.Rows[i].Task] = &p.Rows[i]
	}
	g := Graph(b.pkg, GraphOptions{
		Inputs: len(b.pkg.Inputs)+len(b.pkg.Tasks) <= 40,
		Look: func(n *diagram.Node, name string, input bool) {
			t := known[name]
			switch {
			case input:
				return
			case t == nil:
				if b.run.Live {
					n.Status = diagram.Waits
				}
				return
			}
			n.Status, n.Anchor = diagram.Status(StateOf(t.TaskReport)), t.Anchor
			if t.Took {
				n.Note = human.Duration(t.Duration)
			}
		},
	})
	g.Title = "Tasks of " + b.run.PackageRef + " and what they read from each other"
	whole := len(g.Nodes)
	g = diagram.Fold(g, maxNodes)
	if len(g.Nodes) < whole {
		p.GraphOf = fmt.Sprintf("%d nodes are drawn as %d: items of a matrix, or tasks of the same depth, are one.", whole, len(g.Nodes))
	}
	var out bytes.Buffer
	if err := g.InlineSVG(&out); err != nil {
		return err
	}
	p.Graph = template.HTML(out.String()) // SVG escapes its text
	return nil
}

// facts are the lines of the header.
func (b *builder) facts() []fact {
	r := b.run
	var list []fact
	add := func(name, value string) {
		if value != "" {
			list = append(list, fact{name, visible(value)})
		}
	}
	add("Package", r.PackageRef)
	add("Run", r.RunID)
	add("Started", b.stamp(r.StartedAt))
	if !r.CompletedAt.IsZero() {
		add("Ended", b.stamp(r.CompletedAt))
	}
	switch {
	case !r.CompletedAt.IsZero():
		add("Duration", human.Duration(r.CompletedAt.Sub(r.StartedAt)))
	case r.Live:
		add("Duration", human.Duration(b.o.Now.Sub(r.StartedAt))+" so far")
	}
	if p := r.Process; p != nil {
		add("By", strings.Trim(p.User+"@"+p.Host, "@"))
	}
	add("Cancelled by", r.By)
	add("Reason", human.Truncate(r.Why, 400))
	add("Only", r.Filter)
	add("Set", human.Truncate(r.Set.String(), 400))
	add("Workers", few(b.workers))
	add("e3", few(b.version))
	add("Repository", b.o.Repository)
	if p := r.Provenance; p != nil {
		add("Imported", Whence(p))
	}
	add("Inputs", short(r.InputSnapshot))
	add("Outputs", short(r.OutputSnapshot))
	return list
}

func (b *builder) stamp(t time.Time) string {
	return t.In(b.o.Now.Location()).Format("2006-01-02 15:04:05 -07:00")
}

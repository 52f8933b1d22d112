package ui

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"strings"
	"sync"

	"e3/internal/human"
	"e3/internal/insight/diagram"
	"e3/internal/insight/report"
	"e3/internal/insight/runview"
)

// fileBody is the content of a run's file: all views of the run's page, and what other pages show of its tasks.
type fileBody struct {
	*runBody
	Contents *report.Contents
	Parts    []tab // of the page
}

// WriteRun writes a run as one file, given its [runview.Runs.Report]: the page of the run with all views, and the ends of logs, commands,
// metrics, plots and reports of its tasks. It opens from disk. The content of inputs with export: false is left out.
func WriteRun(ctx context.Context, w io.Writer, s Stores, r *runview.Report, o Options) error {
	text, err := New(ctx, s, o).runFile(ctx, r)
	if err != nil {
		return fmt.Errorf("report of run %s: %w", r.RunID, err)
	}
	_, err = w.Write(text)
	return err
}

func (s *Server) runFile(ctx context.Context, r *runview.Report) ([]byte, error) {
	m, err := readModel(ctx, s.stores, r)
	if err != nil {
		return nil, err
	}
	pkg, err := m.pkg(ctx, s.stores)
	if err != nil {
		return nil, err
	}
	c, err := report.Gather(ctx, report.Stores{Executions: s.stores.Executions, Runs: s.stores.Runs}, r, pkg)
	if err != nil {
		return nil, err
	}
	anchors := make(map[string]string, len(c.Rows))
	for i := range c.Rows {
		anchors[c.Rows[i].Task] = "#" + c.Rows[i].Anchor
	}
	for _, t := range c.Logs.Failed { // its log is what one looks for
		anchors[t.Task] = "#" + logAnchor(t.Row)
	}
	f := s.frame(at(viewRun, "w", r.WorkspaceName, "r", r.RunID), func(p Place) string {
		switch {
		case p.View == viewTask && p.get("view") == taskData:
			return "#figures"
		case p.View == viewTask:
			return anchors[p.get("t")]
		}
		return ""
	})
	script := ""
	if len(c.Rows) > 0 {
		script = embedded("file.js")
	}
	f.seal(script, c.HasFrames())
	f.Alone, f.hidden = true, report.Hidden(pkg)
	f.Crumbs = []crumb{{"run report", ""}}
	now := s.o.Now()
	b := &fileBody{runBody: s.headOf(f, m, now), Contents: c}
	b.Facts = append(b.Facts, s.moreFacts(f, m, c)...)
	b.Failures = s.failures(ctx, m)
	if b.Results, err = s.results(ctx, m); err != nil {
		return nil, err
	}
	b.timeline(f, m, now)
	if err := s.graph(ctx, f, m, b.runBody); err != nil {
		return nil, err
	}
	b.List = wholeList(c.Rows)
	b.parts()
	f.command("run", human.Quoted(f.Workspace), "--run", short(r.RunID))
	c.Notes, f.Notes = append(c.Notes, f.Notes...), nil
	return f.write(b), nil
}

// readModel is the model of a run whose report is complete.
func readModel(ctx context.Context, s *Stores, r *runview.Report) (*model, error) {
	m := &model{ws: r.WorkspaceName, id: r.RunID, report: r}
	m.begin()
	if err := m.read(ctx, s); err != nil {
		return nil, err
	}
	return m, m.wire(ctx, s)
}

// moreFacts are the facts of a run that only its file shows.
func (s *Server) moreFacts(f *frame, m *model, c *report.Contents) []report.Fact {
	workers := map[string]bool{}
	for _, at := range m.spans.All(m.report, s.o.Now()) {
		workers[at.Worker] = true
	}
	var list []report.Fact
	for _, fact := range []report.Fact{
		{Name: "Workers", Value: report.Few(workers)}, {Name: "e3", Value: c.Versions}, {Name: "Repository", Value: f.Repository},
		{Name: "Inputs", Value: human.Short(m.report.InputSnapshot)}, {Name: "Outputs", Value: human.Short(m.report.OutputSnapshot)},
	} {
		if fact.Value != "" {
			list = append(list, report.Fact{Name: fact.Name, Value: human.Line(fact.Value)})
		}
	}
	return list
}

// wholeList is the list of all tasks in a file.
func wholeList(rows []report.Row) *taskList {
	l := &taskList{Whole: true, All: len(rows), Found: len(rows)}
	seen := map[string]bool{}
	for i := range rows {
		r := &rows[i]
		seen[r.StateText()] = true
		l.Rows = append(l.Rows, row{Row: *r})
	}
	l.statuses(seen)
	return l
}

// parts lists the parts of the file.
func (b *fileBody) parts() {
	for _, p := range []struct {
		name, id string
		is       bool
	}{
		{"What failed", "failures", len(b.Failures.Groups) > 0}, {"Metrics", "metrics", len(b.Contents.Metrics) > 0},
		{"Plots and reports", "figures", len(b.Contents.Figures) > 0}, {"Tasks", "tasks", true}, {"Timeline", "timeline", true}, {"Graph", "graph", true},
		{"Commands", "commands", len(b.Contents.Commands) > 0}, {"Logs", "logs", true},
	} {
		if p.is {
			b.Parts = append(b.Parts, tab{Name: p.name, URL: "#" + p.id})
		}
	}
}

// seal makes the page a file: its style and its script are in it, and a policy forbids everything else. Documents in
// frames may have styles of their own, since the page's policy also applies to frames without an address.
func (f *frame) seal(script string, frames bool) {
	f.Static, f.Token = true, ""
	style, styles := sheet()
	f.Style, f.Script = style, script
	scripts := ""
	if frames {
		styles = "'unsafe-inline'"
	}
	if script != "" {
		scripts = "; script-src " + digest(script)
	}
	f.Policy = "default-src 'none'; style-src " + styles + scripts + "; img-src data:; base-uri 'none'; form-action 'none'"
}

// sheet is the style sheet of a file, and its digest.
var sheet = sync.OnceValues(func() (style, sum string) {
	style = diagram.Style() + report.ChartStyle + embedded("ui.css")
	return style, digest(style)
})

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// embedded is a file of the program.
func embedded(name string) string {
	data, err := static.ReadFile("static/" + name)
	if err != nil {
		panic(err) // it is embedded
	}
	return strings.TrimSuffix(string(data), "\n")
}

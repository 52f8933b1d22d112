package ui

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"e3/internal/format/record"
	"e3/internal/human"
	"e3/internal/insight/compare"
	h "e3/internal/insight/markup"
	"e3/internal/insight/report"
	"e3/internal/insight/runview"
)

// results is in brief what a run has made, and what to know of it.
type results struct {
	*report.Highlights
	Warnings []string
}

// Bounds of the results on the page of a run. Its tasks show the rest.
const (
	maxBriefTables = 4
	maxBriefRows   = 6
	maxWarnings    = 4
)

// results gathers the results of a run: of an ended one once.
func (s *Server) results(ctx context.Context, m *model) (*results, error) {
	ended := m.report.State != record.RunRunning
	if m.results != nil && m.resultsOf == m.report {
		return m.results, nil
	}
	if m.highlights == nil {
		m.highlights = &report.HighlightReader{Stores: report.Stores{Executions: s.stores.Executions, Runs: s.stores.Runs}}
	}
	pkg, err := m.pkg(ctx, s.stores)
	if err != nil {
		return nil, err
	}
	found, err := m.highlights.Read(ctx, m.report, pkg)
	if err != nil {
		return nil, err
	}
	for i := range found.Metrics {
		rank(&found.Metrics[i])
	}
	m.results, m.resultsOf = &results{found, warningsOf(m.report)}, m.report
	if ended {
		m.highlights = nil
	}
	return m.results, nil
}

// warningsOf says what of a run's tasks is not as it should be, although they have not failed.
func warningsOf(r *runview.Report) (list []string) {
	list = append(list, r.Warnings...)
	var again []string
	lacking := 0
	for i := range r.Tasks {
		t := &r.Tasks[i]
		done := t.State == runview.TaskSuccess || t.State == runview.TaskCached
		if done && t.Attempt > 1 {
			again = append(again, t.Task)
		}
		if done && t.Gathered != nil {
			if lacking++; lacking < maxWarnings {
				list = append(list, t.Task+": "+t.Gathered.LeftOut())
			}
		}
	}
	if n := lacking - maxWarnings + 1; n > 0 {
		list = append(list, human.Count(n, "more task")+" did without some of what they gather")
	}
	if len(again) > 0 {
		list = append(list, "took more than one attempt: "+human.Few(again))
	}
	return list
}

// madeBy is the page of a task's outputs in the shown run.
func madeBy(f *frame, task string) string {
	return f.To(viewTask, "w", f.Workspace, "t", task, "r", f.Place.get("r"), "view", taskData)
}

// beside shows what a run made and its warnings, beside its failures; nothing if there are none.
func (b *runBody) beside(f *frame) h.Node {
	warned, made := b.warned(), b.made(f) // warnings are few, and would be below the window behind long tables
	return h.If(made != nil || warned != nil, h.El("div", warned, made))
}

// warned shows the warnings of the run; nothing if there are none.
func (b *runBody) warned() h.Node {
	list := b.Results.Warnings
	if len(list) == 0 {
		return nil
	}
	shown := list[:min(len(list), 2*maxWarnings)]
	return section("warned", "Warnings", warnings(shown), note(textIf(len(list) > len(shown), human.Count(len(list)-len(shown), "more warning")+"; see: e3 run")))
}

// made shows the results of the run; nothing if there are none.
func (b *runBody) made(f *frame) h.Node {
	x := b.Results
	if len(x.Metrics)+len(x.Unread)+len(x.Shown)+len(x.Notes) == 0 {
		return nil
	}
	var parts h.Group
	for i := range x.Metrics[:min(len(x.Metrics), maxBriefTables)] {
		parts = append(parts, x.brief(&x.Metrics[i]))
	}
	more := 0
	for _, n := range x.Unread {
		more += n
	}
	for _, t := range x.Metrics[min(len(x.Metrics), maxBriefTables):] {
		more += t.Tasks()
	}
	if more > 0 {
		label := "the metrics of " + human.Count(more, "more task")
		parts = append(parts, h.El("p.note", link(f.To(viewTable, "sides", b.side(f)), h.Text(label))))
	}
	if len(x.Shown) > 0 {
		parts = append(parts, h.El("ul.inline", h.Attr("aria-label", "Plots and reports"), h.Map(x.Shown, func(p report.Published) h.Node {
			label, url := p.Kind+" of "+p.Name, madeBy(f, p.Task)
			if p.Count > 1 {
				label = fmt.Sprintf("%ss of %s ×%d", p.Kind, p.Name, p.Count)
				if p.Kind == record.ViewPlot.String() {
					url = cmp.Or(f.To(viewTable, "sides", b.side(f), "view", trialsCurves, "family", p.Name), url)
				}
			}
			return h.El("li", link(url, h.Line(label)))
		})))
	}
	return section("made", "What it made", parts, notes(x.Notes))
}

// rank puts the best items of a matrix first, by the first column in which one is better than another, and marks the
// best of each such column.
func rank(t *report.Table) {
	if !t.Items {
		return
	}
	number := func(row []report.Cell, i int) float64 {
		v, err := strconv.ParseFloat(cmp.Or(row[i].Whole, row[i].Text), 64)
		if err != nil {
			return math.NaN()
		}
		return v
	}
	t.Best = make([][]int, len(t.Head))
	sorted := ""
	for i, name := range t.Head {
		better := compare.DirectionOf(name)
		if better == "" || !t.Number[i] {
			continue
		}
		order := func(a, b []report.Cell) int {
			v, w := number(a, i), number(b, i)
			if math.IsNaN(v) || math.IsNaN(w) {
				return cmp.Compare(w, v) // NaN is less than any number, and comes last
			}
			if better == compare.Higher {
				v, w = w, v
			}
			return cmp.Compare(v, w)
		}
		with := slices.DeleteFunc(slices.Clone(t.Rows), func(row []report.Cell) bool { return math.IsNaN(number(row, i)) })
		if len(with) == 0 {
			continue
		}
		top := slices.MinFunc(with, order)
		if order(top, slices.MaxFunc(with, order)) == 0 {
			continue // where all are alike, none is best
		}
		if sorted == "" {
			slices.SortStableFunc(t.Rows, order)
			sorted = fmt.Sprintf("the best %s first, * the best of its column", name)
		}
		for k := range t.Rows {
			if order(t.Rows[k], top) == 0 {
				t.Best[i] = append(t.Best[i], k)
			}
		}
	}
	t.Note = strings.TrimPrefix(t.Note+"; "+cmp.Or(sorted, "in the order of the list of tasks"), "; ")
}

// brief is the first rows of a table of metrics.
func (x *results) brief(t *report.Table) h.Node {
	short := *t
	if n := len(t.Rows) - maxBriefRows; n > 0 {
		short.Rows = t.Rows[:maxBriefRows]
		said := human.Count(n, "more row")
		if t.Items {
			if left := x.Unread[runview.FamilyOf(t.Rows[0][0].Text)]; left > 0 {
				said += fmt.Sprintf(", of the first %d of %d items", len(t.Rows), len(t.Rows)+left)
			}
			said += "; " + t.Note
		}
		short.Note = said
	}
	return h.Group{h.El("h3", h.Line(short.Title)), h.If(len(short.Rows) > 0, values(short.Title, &short)), note(short.Note)}
}

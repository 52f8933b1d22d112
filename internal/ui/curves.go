package ui

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"e3/internal/format/record"
	"e3/internal/human"
	"e3/internal/insight/compare"
	"e3/internal/insight/report"
	"e3/internal/insight/runview"
)

// curvesBody is the charts of workspaces and runs, of which one is shown large and in numbers.
type curvesBody struct {
	*trialsBody
	Charts   []report.Chart
	Chosen   int // -1: no chart has lines
	Curves   *report.Curves
	Plots    []compare.Plot // to which lines refer
	Params   []string       // that differ between the plots
	Axes     axes           // that the address chooses
	Names    []string       // columns from which axes are chosen
	Left     int            // charts that are not shown
	Families []string       // of tasks with plots
}

const maxCharts = 60

// curves gathers the charts of sides.
func (s *Server) curves(ctx context.Context, f *frame, t *trialsBody, sides []compare.Side) (body, error) {
	p := f.Place
	plots, err := s.stores.Compare.Plots(ctx, sides)
	if err != nil {
		return nil, err
	}
	b := &curvesBody{trialsBody: t, Chosen: -1}
	for i := range plots {
		if family := runview.FamilyOf(plots[i].Task); !slices.Contains(b.Families, family) {
			b.Families = append(b.Families, family)
		}
	}
	if family := p.get("family"); family != "" {
		plots = slices.DeleteFunc(plots, func(p compare.Plot) bool { return runview.FamilyOf(p.Task) != family })
	}
	if b.Plots, b.Choices, err = compare.Chosen(plots, t.Where); err != nil {
		return nil, joinAskedIf(err, compare.ErrNoColumn)
	}
	b.Params = differing(b.Plots)
	b.Axes = axes{x: p.get("x"), y: chosenOf(p, "y")}
	charts, notes, err := plotted(b.Plots, p.get("colour"), b.Axes)
	if err != nil {
		return nil, err
	}
	b.Names = charts.Columns()
	b.Notes = append(b.Notes, notes...)
	b.Charts = charts.Draw()
	asked := p.get("chart")
	for i := range b.Charts {
		c := b.Charts[i].Curves(p.get("at"))
		if c != nil && (b.Chosen < 0 || asked == b.Charts[i].Title) {
			b.Chosen, b.Curves = i, c
		}
		if asked == b.Charts[i].Title {
			break
		}
	}
	if n := len(b.Charts); n > maxCharts {
		b.Left, b.Charts = n-maxCharts, b.Charts[:maxCharts]
		b.Chosen = min(b.Chosen, maxCharts-1)
	}
	if c := b.Curves; c != nil {
		c.Sort(p.get("sort"))
	}
	return b, nil
}

// axes are columns of tables that are drawn in place of those that packages name; "" and none: these.
type axes struct {
	x string
	y []string
}

func (a *axes) chosen() bool { return a.x != "" || len(a.y) > 0 }

// of is how a plot is drawn with these axes. A plot without axes of numbers stays as it is.
func (a *axes) of(p record.Plot) record.Plot {
	if strings.HasPrefix(p.Template, "confusion") || strings.HasPrefix(p.Template, "bar") {
		return p
	}
	if a.x != "" && a.x != p.X {
		p.X, p.XLabel = a.x, ""
	}
	if len(a.y) > 0 {
		p.Y, p.YLabel = a.y, ""
	}
	return p
}

// chosenOf are the values of a key of the address, without empty ones.
func chosenOf(p Place, key string) []string {
	return slices.DeleteFunc(slices.Clone(p.Query[key]), func(s string) bool { return s == "" })
}

// look says how the address wants charts to be drawn.
func (b *trialsBody) look(f *frame) report.Look {
	return report.Look{LogX: f.Place.get("logx") != "", LogY: f.Place.get("logy") != "", Large: true, Values: !f.Static}
}

// differing are the parameters that differ between plots.
func differing(plots []compare.Plot) []string {
	_, choices, _ := compare.Chosen(plots, nil)
	names := make([]string, len(choices))
	for i, c := range choices {
		names[i] = c.Name
	}
	return names
}

// plotted gathers the plots of several sides: one chart for each output, with a line for each side and item, named by
// what tells it apart, over the axes that are chosen. Lines with the same value of the parameter colour, if it is given, have one colour. notes say what
// cannot be drawn.
func plotted(plots []compare.Plot, colour string, over axes) (charts report.Charts, notes []string, err error) {
	sides, common := map[string]bool{}, map[string]int{}
	for i := range plots {
		sides[plots[i].Side] = true
		for part := range strings.SplitSeq(plots[i].Item, ",") {
			common[part]++
		}
	}
	for i := range plots {
		p := &plots[i]
		base, label, _ := strings.Cut(p.Task, "[")
		parts := strings.Split(strings.TrimSuffix(label, "]"), ",")
		apart := slices.DeleteFunc(slices.Clone(parts), func(part string) bool { return common[part] == len(plots) })
		if len(apart) == 0 {
			apart = parts
		}
		words := []string{strings.Join(apart, ",")}
		if len(sides) > 1 {
			words = []string{p.Side, words[0]}
		}
		at := report.Plotted{Task: base, Name: p.Name, Plot: over.of(p.Plot), Of: i}
		if line := strings.TrimSpace(strings.Join(words, " ")); line != "" {
			at.Task = base + "[" + line + "]"
		}
		if v, ok := p.Params[colour]; ok && colour != "" {
			at.Kind = colour + "=" + compare.Plain(v)
		}
		if p.Lost == "" {
			p.Lost, err = charts.Take(at, int64(len(p.Data)), func() ([]byte, error) { return p.Data, nil })
			if err != nil {
				return charts, nil, err
			}
			if p.Lost != "" {
				p.Lost += "; if it is a picture, its page has it: e3 run --report"
			}
		}
		if p.Lost == "" {
			continue
		}
		if note := fmt.Sprintf("%s of %s in %s: %s.", cmp.Or(p.Name, "the plot"), p.Task, p.Side, p.Lost); !slices.Contains(notes, note) {
			notes = append(notes, note)
		}
	}
	return charts, notes, nil
}

// WriteCharts writes the plots of several sides as a file of their own.
func WriteCharts(w io.Writer, title string, plots []compare.Plot, o Options) error {
	f := &frame{Title: human.Line(title), Place: at("charts"), Repository: o.Repository, Version: o.Version, Made: o.Now(), Alone: true, to: func(Place) string { return "" }}
	charts, notes, err := plotted(plots, "", axes{})
	if err != nil {
		return err
	}
	for _, n := range notes {
		f.Notes = append(f.Notes, human.Line(n))
	}
	f.Crumbs = []crumb{{title, ""}}
	f.seal("", false)
	list := charts.Draw()
	figures := make([]report.Figure, len(list))
	for i := range list {
		figures[i] = list[i].Figure()
	}
	_, err = w.Write(f.write(chartsBody(figures)))
	return err
}

// scatterBody is one value of the rows against another.
type scatterBody struct {
	*tableBody
	X, Y  string
	Xs    []string // columns to choose from
	Ys    []string
	Chart *report.Chart // nil: no row has both
}

// scatter draws a column of the table against another.
func (b *tableBody) scatter(f *frame) (body, error) {
	t, p := b.Table, f.Place
	s := &scatterBody{tableBody: b, Xs: append(slices.Clone(t.Params), "side", "item"), Ys: []string{}}
	for _, c := range t.Metrics {
		s.Ys = append(s.Ys, c.Name)
	}
	s.Xs, s.Ys = append(s.Xs, s.Ys...), append(s.Ys, "time")
	s.X, s.Y = cmp.Or(p.get("x"), s.Xs[0]), cmp.Or(p.get("y"), s.Ys[0])
	if !slices.Contains(s.Xs, s.X) || !slices.Contains(s.Ys, s.Y) {
		return nil, fmt.Errorf("%w: %s against %s", errAsked, s.Y, s.X)
	}
	sides := map[string]bool{}
	for _, r := range t.Rows {
		sides[r.Side] = true
	}
	var points []report.ScatterPoint
	for _, r := range t.Rows {
		at := report.ScatterPoint{Name: strings.TrimSpace(r.Side + " " + r.Item), X: r.Plain(s.X), Y: r.Plain(s.Y)}
		switch colour := p.get("colour"); {
		case colour != "":
			at.Kind = colour + "=" + r.Plain(colour)
		case len(sides) > 1:
			at.Kind = r.Side
		default:
			at.Kind = "all"
		}
		if at.X != "" && at.Y != "" {
			points = append(points, at)
		}
	}
	s.Chart = report.Scatter(s.X, s.Y, points)
	return s, nil
}

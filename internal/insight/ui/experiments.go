package ui

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"e3/internal/human"
	"e3/internal/insight/compare"
)

// tableBody is a table of workspaces and runs, as e3 compare has it.
type tableBody struct {
	Sides, Best string // as the command line writes them
	All         bool
	Columns     []column
	Rows        []tableRow
	Notes       []string
	Found       int  // rows
	Marked      bool // some value is the best of its column
	Quick       []tab
}

// tableRow is a side, or an item of a matrix in one.
type tableRow struct {
	ID    string
	Side  string
	URL   string // of its run
	Cells []tableCell
	Took  string
}

// tableCell is a value; Whole is set if it is cut off.
type tableCell struct {
	Text, Whole string
	Number      bool
	Best        bool
}

// Bounds of a table.
const (
	maxSides   = 200
	maxRowsOf  = 1_000
	maxOutdate = 24 // workspaces that are asked whether their outputs are current
)

func (s *Server) tablePage(ctx context.Context, f *frame) (body, error) {
	p := f.Place
	f.Title = "Experiments"
	f.Crumbs = []crumb{{"Workspaces", f.To(viewWorkspaces)}, {"Experiments", ""}}
	s.live(f)
	b := &tableBody{Sides: p.get("sides"), Best: p.get("best"), All: p.get("all") != ""}
	if b.Sides == "" {
		b.Sides = "*"
	}
	names, err := s.stores.Facts.Names(ctx)
	if err != nil {
		return nil, err
	}
	b.quick(f, names)
	if len(names) == 0 {
		return b, nil
	}
	words := strings.Fields(b.Sides)
	o := compare.TableOptions{All: b.All, Sort: p.get("sort"), Best: map[string]compare.Better{}}
	command := []string{"compare"}
	for _, w := range words {
		command = append(command, human.Quoted(w))
	}
	for word := range strings.FieldsSeq(b.Best) {
		name, better, named := strings.Cut(word, "=")
		if !named {
			name, better = "", word
		}
		if better != string(compare.Lower) && better != string(compare.Higher) {
			return nil, fmt.Errorf("%w: the best value is lower or higher, or such as loss=lower, not %q", errAsked, word)
		}
		o.Best[name] = compare.Better(better)
		command = append(command, "--best", human.Quoted(word))
	}
	if b.All {
		command = append(command, "--all")
	}
	f.command(append(command, flag("--sort", quotedOr(o.Sort)))...)
	sides, err := compare.Sides(words, func() ([]string, error) { return names, nil })
	if err != nil {
		return nil, joinAskedIf(err, compare.ErrSyntax)
	}
	if n := len(sides); n > maxSides {
		sides = sides[:maxSides]
		f.Notes = append(f.Notes, fmt.Sprintf("Only the first %d of %d sides are compared", maxSides, n))
	}
	t, err := s.stores.Compare.Table(ctx, sides, o)
	if err != nil {
		return nil, joinAskedIf(err, compare.ErrNoColumn)
	}
	b.fill(f, t)
	return b, s.outdated(ctx, b, sides)
}

// quotedOr quotes a word, if there is one.
func quotedOr(word string) string {
	if word == "" {
		return ""
	}
	return human.Quoted(word)
}

// joinAskedIf marks an error as one of what the address asks for, if it is a certain one.
func joinAskedIf(err, of error) error {
	if errors.Is(err, of) {
		return joinAsked(err)
	}
	return err
}

// quick offers all workspaces, and families of them: those whose names differ in digits at their ends.
func (b *tableBody) quick(f *frame, names []string) {
	families := map[string]int{}
	for _, n := range names {
		if base := strings.TrimRight(n, "0123456789"); base != n && base != "" {
			families[base]++
		}
	}
	add := func(pattern string) {
		b.Quick = append(b.Quick, tab{pattern, f.With("sides", pattern, "sort", ""), pattern == b.Sides})
	}
	add("*")
	for _, n := range names {
		if base := strings.TrimRight(n, "0123456789"); families[base] > 1 && len(b.Quick) < 8 {
			add(base + "*")
			delete(families, base)
		}
	}
}

// fill sets the columns and the rows.
func (b *tableBody) fill(f *frame, t *compare.Table) {
	items := t.HasItems()
	b.head(f, "side", false)
	if items {
		b.head(f, "item", false)
	}
	for _, name := range t.Params {
		b.head(f, name, false)
	}
	for _, c := range t.Metrics {
		b.head(f, c.Name, true)
	}
	b.head(f, "time", true)
	b.Found = len(t.Rows)
	for i, r := range t.Rows {
		for _, note := range r.Notes {
			b.Notes = append(b.Notes, human.Line(strings.TrimSpace(r.Side+" "+r.Item)+": "+note))
		}
		if i >= maxRowsOf {
			continue
		}
		ws, _, _ := strings.Cut(r.Side, "@")
		row := tableRow{ID: strings.TrimSpace(r.Side + " " + r.Item), Side: r.Side, URL: f.To(viewRun, "w", ws, "r", r.Run)}
		if items {
			row.Cells = append(row.Cells, cellOf(r.Item))
		}
		for _, name := range t.Params {
			row.Cells = append(row.Cells, valueOf(r.Params[name]))
		}
		for _, c := range t.Metrics {
			at := valueOf(r.Metrics[c.Name])
			at.Number, at.Best = true, slices.Contains(c.Best, i)
			b.Marked = b.Marked || at.Best
			row.Cells = append(row.Cells, at)
		}
		if r.Ms > 0 {
			row.Took = human.Duration(r.Time())
		}
		b.Rows = append(b.Rows, row)
	}
	if b.Found > maxRowsOf {
		f.Notes = append(f.Notes, fmt.Sprintf("Only the first %d of %d rows are shown", maxRowsOf, b.Found))
	}
}

// head adds the head of a column.
func (b *tableBody) head(f *frame, name string, number bool) {
	key, down := strings.CutPrefix(f.Place.get("sort"), "-")
	c := column{Name: name, URL: f.With("sort", name)}
	if number {
		c.Class = "num"
	}
	if key == name {
		c.Sorted = "ascending"
		if down {
			c.Sorted = "descending"
		} else {
			c.URL = f.With("sort", "-"+name)
		}
	}
	b.Columns = append(b.Columns, c)
}

func valueOf(v json.RawMessage) tableCell { return cellOf(compare.Plain(v)) }

func cellOf(text string) tableCell {
	const most = 40 // bytes, as on the command line
	c := tableCell{Text: human.Line(human.Truncate(text, most))}
	if len(text) > most {
		c.Whole = human.Line(human.Truncate(text, 2_000))
	}
	return c
}

// outdated names the workspaces whose inputs have changed since their outputs were made.
func (s *Server) outdated(ctx context.Context, b *tableBody, sides []compare.Side) error {
	asked := 0
	for _, side := range sides {
		if side.What != compare.Workspace {
			continue
		}
		if asked++; asked > maxOutdate {
			break
		}
		w, err := s.stores.Facts.Workspace(ctx, side.Workspace)
		if errors.Is(err, human.ErrNotFound) {
			continue // removed since
		}
		if err != nil {
			return err
		}
		if len(w.Stale)+len(w.Missing) > 0 {
			b.Notes = append(b.Notes, human.Line(side.Workspace)+": not all outputs are of its present inputs")
		}
	}
	return nil
}

package ui

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"e3/internal/human"
	"e3/internal/insight/compare"
)

// trialsBody is what all views of workspaces and runs side by side have.
type trialsBody struct {
	Sides   string   // as the command line writes them
	Names   []string // of all workspaces
	Where   compare.Where
	Choices []compare.Choice
	Notes   []string
}

// tableBody is a table of workspaces and runs, as in e3 compare.
type tableBody struct {
	*trialsBody
	Table *compare.Table // nil: there are no workspaces
}

// Bounds of a table.
const (
	maxSides   = 200
	maxTrials  = 100 // rows of a page
	maxOutdate = 24  // workspaces that are asked whether their outputs are current
)

// Views of workspaces and runs side by side.
const (
	trialsTable   = "table"
	trialsCurves  = "curves"
	trialsScatter = "scatter"
)

func (s *Server) tablePage(ctx context.Context, f *frame) (body, error) {
	p := f.Place
	f.Title = "Experiments"
	f.Crumbs = []crumb{{"Workspaces", f.To(viewWorkspaces)}, {"Experiments", ""}}
	s.live(f)
	names, err := s.stores.Answers.Names(ctx)
	if err != nil {
		return nil, err
	}
	t := &trialsBody{Sides: cmp.Or(p.get("sides"), "*"), Names: names}
	b := &tableBody{trialsBody: t}
	if len(names) == 0 {
		return b, nil
	}
	words := strings.Fields(t.Sides)
	command := []string{"compare"}
	for _, w := range words {
		command = append(command, human.Quoted(w))
	}
	chosen := chosenOf(p, "where")
	if t.Where, err = compare.ParseWhere(chosen); err != nil {
		return nil, joinAsked(err)
	}
	for _, c := range chosen {
		command = append(command, "--where", human.Quoted(c))
	}
	sides, err := compare.Sides(words, func() ([]string, error) { return names, nil })
	if err != nil {
		return nil, joinAskedIf(err, compare.ErrSyntax)
	}
	if n := len(sides); n > maxSides {
		sides = sides[:maxSides]
		f.Notes = append(f.Notes, fmt.Sprintf("Only the first %d of %d sides are compared", maxSides, n))
	}
	switch p.get("view") {
	case "", trialsTable, trialsScatter:
	case trialsCurves:
		f.command(append(command, "--plots", "curves.html")...)
		return s.curves(ctx, f, t, sides)
	default:
		return nil, errAsked
	}
	o := compare.TableOptions{Where: t.Where, Family: p.get("family"), All: p.get("all") != "", Sort: p.get("sort"), Best: map[string]compare.Better{}}
	for word := range strings.FieldsSeq(p.get("best")) {
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
	if o.All {
		command = append(command, "--all")
	}
	f.command(append(command, flag("--family", quotedOr(o.Family)), flag("--sort", quotedOr(o.Sort)))...)
	if b.Table, err = s.stores.Compare.Table(ctx, sides, o); err != nil {
		return nil, joinAskedIf(err, compare.ErrNoColumn)
	}
	t.Choices = b.Table.Choices
	if bare := b.Table.BareNote(); bare != "" {
		t.Notes = append(t.Notes, bare)
	}
	t.Notes = append(t.Notes, b.Table.Remarks()...)
	if n := len(t.Notes); n > maxTrials {
		t.Notes = append(t.Notes[:maxTrials], fmt.Sprintf("and %d more notes", n-maxTrials))
	}
	if err := s.outdated(ctx, t, sides); err != nil {
		return nil, err
	}
	if p.get("view") == trialsScatter && len(b.Table.Rows) > 0 {
		return b.scatter(f)
	}
	return b, nil
}

// quotedOr quotes a word, if there is one.
func quotedOr(word string) string {
	if word == "" {
		return ""
	}
	return human.Quoted(word)
}

// joinAskedIf marks an error as the fault of the address if it is of.
func joinAskedIf(err, of error) error {
	if errors.Is(err, of) {
		return joinAsked(err)
	}
	return err
}

// outdated names the workspaces whose inputs have changed since their outputs were made.
func (s *Server) outdated(ctx context.Context, b *trialsBody, sides []compare.Side) error {
	asked := 0
	for _, side := range sides {
		if side.What != compare.Workspace {
			continue
		}
		if asked++; asked > maxOutdate {
			break
		}
		st, err := s.stores.Answers.Status(ctx, side.Workspace)
		if errors.Is(err, human.ErrNotFound) {
			continue // removed since
		}
		if err != nil {
			return err
		}
		if standing := st.Standing(); len(standing.Stale)+len(standing.Missing) > 0 {
			b.Notes = append(b.Notes, side.Workspace+": not all outputs are of its present inputs")
		}
	}
	return nil
}

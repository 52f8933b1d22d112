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

// tableBody is a table of workspaces and runs, as in e3 compare.
type tableBody struct {
	Sides string         // as the command line writes them
	Names []string       // of all workspaces
	Table *compare.Table // nil: there are no workspaces
	Notes []string
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
	names, err := s.stores.Answers.Names(ctx)
	if err != nil {
		return nil, err
	}
	b := &tableBody{Sides: cmp.Or(p.get("sides"), "*"), Names: names}
	if len(names) == 0 {
		return b, nil
	}
	words := strings.Fields(b.Sides)
	o := compare.TableOptions{All: p.get("all") != "", Sort: p.get("sort"), Best: map[string]compare.Better{}}
	command := []string{"compare"}
	for _, w := range words {
		command = append(command, human.Quoted(w))
	}
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
	f.command(append(command, flag("--sort", quotedOr(o.Sort)))...)
	sides, err := compare.Sides(words, func() ([]string, error) { return names, nil })
	if err != nil {
		return nil, joinAskedIf(err, compare.ErrSyntax)
	}
	if n := len(sides); n > maxSides {
		sides = sides[:maxSides]
		f.Notes = append(f.Notes, fmt.Sprintf("Only the first %d of %d sides are compared", maxSides, n))
	}
	if b.Table, err = s.stores.Compare.Table(ctx, sides, o); err != nil {
		return nil, joinAskedIf(err, compare.ErrNoColumn)
	}
	for _, r := range b.Table.Rows {
		for _, note := range r.Notes {
			b.Notes = append(b.Notes, strings.TrimSpace(r.Side+" "+r.Item)+": "+note)
		}
	}
	if n := len(b.Table.Rows); n > maxRowsOf {
		f.Notes = append(f.Notes, fmt.Sprintf("Only the first %d of %d rows are shown", maxRowsOf, n))
	}
	return b, s.outdated(ctx, b, sides)
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
func (s *Server) outdated(ctx context.Context, b *tableBody, sides []compare.Side) error {
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

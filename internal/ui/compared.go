package ui

import (
	"cmp"
	"context"
	"fmt"
	"strconv"

	"e3/internal/human"
	"e3/internal/insight/compare"
	"e3/internal/insight/runview"
)

// compareBody is the difference of two sides.
type compareBody struct {
	A, B string              // the sides as the command line writes them
	D    *compare.Difference // nil: there is one run only
	Runs []*runview.Report   // runs to choose from
}

func (s *Server) comparePage(ctx context.Context, f *frame) (body, error) {
	f.ofWorkspace(viewCompare)
	f.Title = human.Line(f.Workspace) + ": compare"
	f.Crumbs = append(f.Crumbs, crumb{"compare", ""})
	b := &compareBody{A: cmp.Or(f.Place.get("a"), f.Workspace+"@-1"), B: cmp.Or(f.Place.get("b"), "@")}
	for r, err := range s.stores.Runs.List(ctx, f.Workspace) {
		if err != nil {
			return nil, err
		}
		if len(b.Runs) == mostRuns {
			break
		}
		b.Runs = append(b.Runs, r)
	}
	was, err := compare.ParseSide(b.A, f.Workspace)
	if err != nil {
		return nil, joinAsked(err)
	}
	is, err := compare.ParseSide(b.B, was.Workspace)
	if err != nil {
		return nil, joinAsked(err)
	}
	b.A = was.String()
	f.command("diff", human.Quoted(b.A), human.Quoted(b.B))
	if len(b.Runs) < 2 && f.Place.get("a") == "" {
		return b, nil // there is nothing to compare yet
	}
	b.D, err = compare.Compare(ctx, s.stores.Compare, was, is)
	return b, err
}

// joinAsked marks an error as the fault of the address.
func joinAsked(err error) error { return &askedError{err} }

type askedError struct{ err error }

func (e *askedError) Error() string { return e.err.Error() }

// Unwrap returns the error and errAsked.
func (e *askedError) Unwrap() []error { return []error{e.err, errAsked} }

// sameText says how many values of two sides are alike, apart from the differing ones.
func sameText(differ, same int) string {
	switch {
	case same == 0 && differ == 0:
		return "Neither side has any"
	case same == 0:
		return "No other is the same"
	case same == 1 && differ > 0:
		return "1 other is the same"
	case differ > 0:
		return fmt.Sprintf("%d others are the same", same)
	case same == 1:
		return "It is the same"
	}
	return fmt.Sprintf("All %d are the same", same)
}

func itoa(n int) string { return strconv.Itoa(n) }

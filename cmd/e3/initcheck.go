package main

import (
	"context"

	"e3/cmd/e3/internal/render"
	"e3/internal/human"
	"e3/internal/repo"
)

// checkedPlace is what e3 init --check found at a location.
type checkedPlace struct {
	Location string         `json:"location"`
	Fit      bool           `json:"fit"` // e3 can keep a repository there
	Cases    []checkedCases `json:"cases"`
	Unmet    []unmetCase    `json:"unmet"`
}

// checkedCases counts what was asked of one kind of store.
type checkedCases struct {
	Of  string `json:"of"` // records, locks or objects
	Met int    `json:"met"`
	All int    `json:"all"`
}

type unmetCase struct {
	Of      string `json:"of"`
	Name    string `json:"name"`
	Problem string `json:"problem"`
	Without string `json:"without,omitempty"` // what that means, where e3 can be used all the same
}

// checkPlace asks of the servers of a location what e3 needs.
func checkPlace(ctx context.Context, a *app, location string, o repo.InitOptions) error {
	document := checkedPlace{Location: location, Fit: true, Cases: []checkedCases{{Of: "records"}, {Of: "locks"}, {Of: "objects"}}, Unmet: []unmetCase{}}
	live, began := a.Live(), a.Now()
	defer live.Close()
	err := repo.Check(ctx, location, o, func(c repo.Checked) {
		for i := range document.Cases {
			if of := &document.Cases[i]; of.Of == c.Of {
				live.Phase("checking "+c.Of, began)
				of.All++
				if c.Err == nil {
					of.Met++
				}
			}
		}
		if c.Err != nil {
			document.Unmet = append(document.Unmet, unmetCase{c.Of, c.Name, c.Err.Error(), c.Without})
			document.Fit = document.Fit && c.Without != ""
		}
	})
	live.Close()
	if err != nil {
		return err
	}
	err = a.Reply(document, func(w *render.Sheet) {
		for _, u := range document.Unmet {
			w.Line("%s: not so: %s", u.Of, human.Line(u.Name))
			w.Field("found", "%s", human.Line(u.Problem))
			if u.Without != "" {
				w.Field("means", "%s", u.Without)
			}
		}
		for _, of := range document.Cases {
			if of.All > 0 {
				w.Line("%s: %d of %s", of.Of, of.Met, human.Count(int64(of.All), "case"))
			}
		}
		if document.Fit {
			w.Line("A repository can be there")
		} else {
			w.Line("No repository should be there: results could be lost or mixed up")
		}
	})
	if err == nil && !document.Fit {
		return &exitError{exitFailed}
	}
	return err
}

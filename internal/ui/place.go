package ui

import (
	"net/url"
	"strings"
)

// A Place says what a page shows: its address holds all of the page's state. Names are in the query, never in the path.
type Place struct {
	View  string // workspaces, run, task, compare, history, queue, store or experiments
	Query url.Values
}

// at is a place by keys and values; empty values are left out.
func at(view string, pairs ...string) Place {
	p := Place{View: view, Query: url.Values{}}
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			p.Query.Set(pairs[i], pairs[i+1])
		}
	}
	return p
}

// with is the place with some keys changed; an empty value removes its key.
func (p Place) with(pairs ...string) Place {
	q := url.Values{}
	for k, v := range p.Query {
		q[k] = v
	}
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] == "" {
			q.Del(pairs[i])
		} else {
			q.Set(pairs[i], pairs[i+1])
		}
	}
	return Place{p.View, q}
}

// get is a value of the address.
func (p Place) get(key string) string { return p.Query.Get(key) }

// Address is the place on a server.
func (p Place) Address() string {
	path := "/" + p.View
	if p.View == viewWorkspaces {
		path = "/"
	}
	if q := p.Query.Encode(); q != "" {
		path += "?" + q
	}
	return path
}

// The views.
const (
	viewWorkspaces = "workspaces"
	viewRun        = "run"
	viewTask       = "task"
	viewCompare    = "compare"
	viewHistory    = "history"
	viewQueue      = "queue"
	viewStore      = "store"
	viewTable      = "experiments"
)

// placeOf returns the place of an address, and whether the address is valid.
func placeOf(u *url.URL) (Place, bool) {
	view := strings.TrimPrefix(u.Path, "/")
	switch view {
	case "":
		view = viewWorkspaces
	case viewRun, viewTask, viewCompare, viewHistory, viewQueue, viewStore, viewTable:
	default:
		return Place{}, false
	}
	q, err := url.ParseQuery(u.RawQuery)
	return Place{view, q}, err == nil
}

// A linker turns places into addresses: of a server, or of files. "" means that a place has no page there.
type linker func(Place) string

// Start is the first page: of a workspace, or of all.
func Start(ws string) Place {
	if ws == "" {
		return at(viewWorkspaces)
	}
	return at(viewRun, "w", ws)
}

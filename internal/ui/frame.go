package ui

import (
	"net/url"
	"time"

	"e3/internal/human"
)

// frame is the part of a page around its body.
type frame struct {
	Title      string
	Place      Place
	Workspace  string
	Crumbs     []crumb
	Command    string // that gives the same on a terminal
	Nav        []tab
	Stream     string // address of the stream of events; "": the page does not change
	Pause      string // address of the same page, paused or live again
	Notes      []string
	Repository string
	Root       string // of the repository, in full
	Version    string
	Made       time.Time
	Static     bool   // a file, without a server
	Token      string // secret of its forms; "": the page offers no actions
	Policy     string // of a file
	Style      string // of a file
	Script     string // of a file
	Module     string // a further script of a page
	Alone      bool   // a file that holds all that it shows; else one of many

	to     linker
	hidden map[string]bool // inputs whose content is not shown
}

// crumb is a step from the first page to this one; the last has no address.
type crumb struct{ Name, URL string }

// tab is a link to another view of the same thing.
type tab struct {
	Name, URL string
	Current   bool
}

func (s *Server) frame(p Place, to linker) *frame {
	f := &frame{Place: p, Workspace: p.get("w"), Repository: s.o.Repository, Root: s.o.Root, Version: s.o.Version, Made: s.o.Now(), to: to}
	if s.o.Actions != nil {
		f.Token = s.guard.formToken()
	}
	return f
}

// To is the address of a view, by keys and values.
func (f *frame) To(view string, pairs ...string) string { return f.to(at(view, pairs...)) }

// With is the address of this page with some keys changed.
func (f *frame) With(pairs ...string) string { return f.to(f.Place.with(pairs...)) }

// Repo is the repository as a command line names it.
func (f *frame) Repo() string { return human.Quoted(f.Repository) }

// command sets the command that gives the same on a terminal.
func (f *frame) command(words ...string) {
	f.Command = "e3 " + words[0] + " " + f.Repo()
	for _, w := range words[1:] {
		if w != "" {
			f.Command += " " + w
		}
	}
}

// ofWorkspace adds the crumbs and the tabs of a workspace.
func (f *frame) ofWorkspace(current string) {
	f.Crumbs = append(f.Crumbs, crumb{"Workspaces", f.To(viewWorkspaces)}, crumb{f.Workspace, f.To(viewRun, "w", f.Workspace)})
	for _, v := range []struct{ name, view string }{{"Latest run", viewRun}, {"History", viewHistory}, {"Compare", viewCompare}} {
		f.Nav = append(f.Nav, tab{v.name, f.To(v.view, "w", f.Workspace), v.view == current})
	}
}

// live makes the page follow its workspace, or all workspaces if the page is of none.
func (s *Server) live(f *frame, more ...string) {
	if f.Static {
		return
	}
	if f.Place.get("still") != "" {
		f.Pause = f.With("still", "")
		return
	}
	f.Pause = f.With("still", "1")
	q := url.Values{}
	if f.Workspace != everywhere {
		q.Set("w", f.Workspace)
	}
	if c := s.feeds.cursor(f.Workspace); c != "" {
		q.Set("after", c)
	}
	for i := 0; i+1 < len(more); i += 2 {
		q.Set(more[i], more[i+1])
	}
	f.Stream = "/events?" + q.Encode()
}

func urlEscape(s string) string { return url.QueryEscape(s) }

// Stamp is a time for people. In a file, which may be read anywhere, it has its zone.
func (f *frame) Stamp(t time.Time) string {
	if !f.Static || t.IsZero() {
		return stamp(t)
	}
	return t.In(f.Made.Location()).Format("2006-01-02 15:04:05 -07:00")
}

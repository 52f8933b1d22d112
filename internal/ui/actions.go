package ui

import (
	"context"
	"net/http"
)

// Actions are the changes that pages may make, each by the code of a command. They return a sentence about what was
// done.
type Actions interface {
	Start(ctx context.Context, ws, filter string, force bool) (string, error)
	Cancel(ctx context.Context, ws, note string) (string, error)
	Retry(ctx context.Context, job string) (string, error)
	Decide(ctx context.Context, ws, task string, approve bool, note string) (string, error)
	Pin(ctx context.Context, execution, note string) (string, error)
}

const maxForm = 64 << 10

// do serves a form. The cookie, the origin and the form's own token must all be right.
func (s *Server) do(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if err := r.ParseForm(); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	form := r.PostForm
	if !same(form.Get("token"), s.guard.formToken()) {
		http.Error(w, "this form is not of this server's pages; load the page again", http.StatusForbidden)
		return
	}
	ctx, a := r.Context(), s.o.Actions
	ws, note := form.Get("w"), form.Get("note")
	var said string
	var err error
	switch r.PathValue("action") {
	case "start":
		said, err = a.Start(ctx, ws, form.Get("filter"), form.Get("force") != "")
	case "cancel":
		said, err = a.Cancel(ctx, ws, note)
	case "retry":
		said, err = a.Retry(ctx, form.Get("job"))
	case "approve", "reject":
		said, err = a.Decide(ctx, ws, form.Get("t"), r.PathValue("action") == "approve", note)
	case "pin":
		said, err = a.Pin(ctx, form.Get("x"), note)
	default:
		http.NotFound(w, r)
		return
	}
	f := s.frame(at(viewRun, "w", ws), Place.Address)
	f.Title, f.Crumbs = "Done", []crumb{{"Workspaces", f.To(viewWorkspaces)}}
	status := http.StatusOK
	if ws != "" {
		f.Crumbs = append(f.Crumbs, crumb{ws, f.To(viewRun, "w", ws)})
	}
	if err != nil {
		f.Title, said, status = "Not done", err.Error(), http.StatusConflict
	}
	replyPage(w, r, status, f.write(done(said)))
}

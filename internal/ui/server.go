// Package ui shows a repository in a browser: its workspaces, runs, tasks, their history and logs, the queues and the store. The
// pages are rendered here and complete without a script; a small script keeps them up to date.
//
// It reads, and writes nothing. Its pages come from the functions that also answer the command line. Names, logs and contents
// are untrusted: they are shown as text, or run nothing.
package ui

import (
	"compress/gzip"
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net/http"
	"path"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"e3/executions"
	"e3/internal/human"
	"e3/internal/insight/runview"
)

// Options are the choices of a server.
type Options struct {
	Secret     []byte // of SecretSize bytes; nil: a new one
	Repository string // as a command line names it
	Root       string // its path or address in full; "": Repository is that
	Version    string // of e3
	Now        func() time.Time
	// Used is called after a ticket was used; nil: nothing is.
	Used func()
	// Here is called before each page, and says why the repository cannot be read at all; nil: no check. Without it,
	// a folder that is gone would look like an empty repository.
	Here func() error
	// Actions are the actions that pages offer; nil: none.
	Actions Actions
}

// A Server renders the pages of a repository.
type Server struct {
	stores *Stores
	o      Options
	guard  *guard
	feeds  *feeds
	models *models
	sizes  measured
	lately latestFailures
	// gathered is what an export has read for its next pages; nil: each page reads.
	gathered *gathered
	streams  atomic.Int64 // streams of events that are open
}

// New returns a server; ctx ends its readers.
func New(ctx context.Context, s Stores, o Options) *Server {
	if o.Secret == nil {
		o.Secret = NewSecret()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	s.Compare.Objects = remembering(s.Compare.Objects)
	g := newGuard(o.Secret)
	g.used = o.Used
	return &Server{
		stores: &s, o: o, guard: g,
		feeds:  &feeds{s: &s, ctx: ctx, now: o.Now, all: map[string]*feed{}},
		models: &models{s: &s, now: o.Now, runs: map[[2]string]*model{}},
	}
}

// Login is the path with a new ticket, which lets one browser in and opens a page there.
func (s *Server) Login(to Place) string {
	return "/login?ticket=" + s.guard.ticket() + "&next=" + strings.ReplaceAll(urlEscape(to.Address()), "+", "%20")
}

//go:embed static
var static embed.FS

// Handler answers requests.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	files, err := fs.Sub(static, "static")
	if err != nil {
		panic(err) // the folder is embedded
	}
	mux.HandleFunc("GET /static/{name}", func(w http.ResponseWriter, r *http.Request) { serveStatic(w, r, files) })
	mux.HandleFunc("GET /events", s.stream)
	mux.HandleFunc("GET /content", s.content)
	mux.HandleFunc("GET /log", s.rawLog)
	mux.HandleFunc("GET /", s.page)
	if s.o.Actions != nil {
		mux.HandleFunc("POST /do/{action}", s.do)
	}
	return s.guard.guarded(mux, s.login)
}

// serveStatic serves a file of the program.
func serveStatic(w http.ResponseWriter, r *http.Request, files fs.FS) {
	name := r.PathValue("name")
	data, err := fs.ReadFile(files, path.Clean(name))
	if err != nil {
		http.NotFound(w, r)
		return
	}
	kind := map[string]string{".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}[path.Ext(name)]
	if name == "ui.css" {
		style, _ := sheet()
		data = []byte(style)
	}
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Cache-Control", "private, max-age=60")
	reply(w, r, http.StatusOK, data)
}

// login exchanges a ticket for the cookie. The page that follows is requested by this server's own page: a strict
// cookie is not sent if a link on another site, or in a file, has led there.
func (s *Server) login(w http.ResponseWriter, r *http.Request) {
	next := r.URL.Query().Get("next")
	if !strings.HasPrefix(next, "/") || strings.HasPrefix(next, "//") || strings.ContainsAny(next, "\\\r\n") {
		next = "/"
	}
	if r.Method != http.MethodGet { // a program that looks at an address first must not use its ticket up
		w.Header().Set("Allow", http.MethodGet)
		http.Error(w, "Open this address in a browser.", http.StatusMethodNotAllowed)
		return
	}
	if !s.guard.redeem(r.URL.Query().Get("ticket")) && !s.guard.admitted(r) {
		http.Error(w, "This address was used already, or is of another e3 ui. Open the one that e3 ui has printed last.", http.StatusUnauthorized)
		return
	}
	http.SetCookie(w, s.guard.cookie())
	replyPage(w, r, http.StatusOK, loginPage(next))
}

// page serves a view.
func (s *Server) page(w http.ResponseWriter, r *http.Request) {
	place, ok := placeOf(r.URL)
	if !ok {
		http.NotFound(w, r)
		return
	}
	status := http.StatusOK
	text, err := s.renderHere(r.Context(), place)
	if err != nil {
		if r.Context().Err() != nil {
			return
		}
		status, text = statusOf(err), s.faultPage(s.frame(place, Place.Address), err)
	}
	replyPage(w, r, status, text)
}

// renderHere returns the page of a place, if the repository can be read.
func (s *Server) renderHere(ctx context.Context, p Place) ([]byte, error) {
	if s.o.Here != nil {
		if err := s.o.Here(); err != nil {
			return nil, fmt.Errorf("%w: %w", errAway, err)
		}
	}
	return s.render(ctx, p, Place.Address)
}

// statusOf is the status of an answer that is an error.
func statusOf(err error) int {
	switch {
	case errors.Is(err, errAway):
		return http.StatusServiceUnavailable // the page goes on to show what it has, and tries again
	case errors.Is(err, syscall.ENAMETOOLONG): // nothing can have such a name
		return http.StatusNotFound
	case errors.Is(err, human.ErrNotFound), errors.Is(err, runview.ErrNoRun), errors.Is(err, executions.ErrNotFound):
		return http.StatusNotFound
	case errors.Is(err, errAsked), errors.Is(err, executions.ErrAmbiguous):
		return http.StatusBadRequest
	}
	return http.StatusInternalServerError
}

// errAsked says that an address asks for something that does not exist.
var errAsked = errors.New("this address asks for something that there is not")

// errAway says that the repository cannot be read.
var errAway = errors.New("the repository is not there")

// replyPage writes a page.
func replyPage(w http.ResponseWriter, r *http.Request, status int, page []byte) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	reply(w, r, status, page)
}

// reply writes an answer, compressed if the client takes that.
func reply(w http.ResponseWriter, r *http.Request, status int, data []byte) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTimeout))
	var out io.Writer = w
	if len(data) > 1<<10 && strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		w.Header().Set("Content-Encoding", "gzip")
		w.Header().Set("Vary", "Accept-Encoding")
		z, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
		if err == nil {
			defer z.Close()
			out = z
		}
	}
	w.WriteHeader(status)
	_, _ = out.Write(data) // the client is gone
}

func silent() *log.Logger { return log.New(io.Discard, "", 0) }

// render returns the page of a place.
func (s *Server) render(ctx context.Context, p Place, to linker) ([]byte, error) {
	f := s.frame(p, to)
	body, err := s.views()[p.View](ctx, f)
	if err != nil {
		return nil, err
	}
	return f.write(body), nil
}

// views gather the bodies of pages.
func (s *Server) views() map[string]func(context.Context, *frame) (body, error) {
	return map[string]func(context.Context, *frame) (body, error){
		viewWorkspaces: s.workspacesPage, viewRun: s.runPage, viewTask: s.taskPage, viewCompare: s.comparePage,
		viewHistory: s.historyPage, viewQueue: s.queuePage, viewStore: s.storePage, viewTable: s.tablePage,
	}
}

// faultPage returns the page that says why a page cannot be shown.
func (s *Server) faultPage(f *frame, why error) []byte {
	f.Title = "Not here"
	if f.To(viewWorkspaces) != "" {
		f.Crumbs = append(f.Crumbs, crumb{"Workspaces", f.To(viewWorkspaces)})
	}
	return f.write(fault(why.Error()))
}

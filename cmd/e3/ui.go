package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"e3/cmd/e3/internal/render"
	"e3/internal/human"
	"e3/internal/insight/explain"
	"e3/internal/repo"
	"e3/internal/ui"
)

type uiOptions struct {
	noOpen  bool
	port    int
	export  string
	actions bool
}

func newUI(a *app) *cobra.Command {
	var o uiOptions
	cmd := &cobra.Command{
		Use:   "ui [repo] [workspace]",
		Short: "Show workspaces, runs, tasks and logs in a browser",
		Long: `Show the repository in a browser: workspaces, runs as they happen, why each task ran, where the time went, what it printed, how
two runs differ, what the queues do. Each page says which command shows the same on a terminal.

The pages are served on this machine alone, to one browser: the printed address lets one in, once, and another is then printed. From
another machine: ssh -L 8123:127.0.0.1:8123 <host> e3 ui --no-open --port 8123. Ctrl-C ends it; started again, it goes on with the pages that are
open. Nothing is written, unless --actions lets the pages start, cancel, retry, approve, reject and pin as the commands do.

--export writes the latest run of a workspace as files instead, which open from disk, without what the package file marks with
"export: false".`,
		Example: `  e3 ui
  e3 ui . prod
  e3 ui . prod --actions
  e3 ui . prod --export out`,
		ValidArgsFunction: completeWorkspace(a),
		PreRunE: func(cmd *cobra.Command, args []string) error {
			if o.port < 0 || o.port > 65535 {
				return usagef("--port is 0 to 65535")
			}
			return filled("--%s needs the name of a folder", "export")(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			open := a.openToRead
			if o.actions {
				open = a.open
			}
			return a.on(open, func(ctx context.Context, r *repo.Repo, args []string) error {
				return runUI(ctx, a, r, args[0], &o)
			}, "[workspace]")(cmd, args)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&o.noOpen, "no-open", false, "print the address only")
	f.IntVar(&o.port, "port", 0, "serve on this port of this machine; 0: the last one, or any")
	f.StringVar(&o.export, "export", "", "write the pages of a workspace's latest run to this folder instead")
	f.BoolVar(&o.actions, "actions", false, "let the pages start, cancel, retry, approve, reject and pin")
	return a.answers(cmd, uiAddress{}, exportedPages{})
}

func runUI(ctx context.Context, a *app, r *repo.Repo, ws string, o *uiOptions) error {
	if o.export != "" && ws == "" {
		return usagef("--export needs a workspace: e3 ui <repo> <workspace> --export %s", human.Quoted(o.export))
	}
	if err := knownWorkspace(ctx, r, ws); err != nil {
		return err
	}
	debug.SetGCPercent(50) // this process lives long
	if o.export != "" {
		return exportUI(ctx, a, r, ws, o)
	}
	return serveUI(ctx, a, r, ws, o)
}

// uiStores are what pages read.
func uiStores(a *app, r *repo.Repo) ui.Stores {
	return ui.Stores{
		Records: r.Records, Objects: r.Objects, Executions: r.Executions, Runs: r.Workspaces.Runs, Compare: comparedFrom(r),
		Explain: func() *explain.Explainer { return newExplainer(r, r.Objects) }, Answers: newUIAnswers(a, r), Hints: hintsIn(r),
	}
}

// uiAddress is the address of a server.
type uiAddress struct {
	URL     string `json:"url"`
	Actions bool   `json:"actions"` // pages can change the repository
}

// exportedPages are pages in a folder.
type exportedPages struct {
	Folder string `json:"folder"`
	Run    string `json:"run"`
	Pages  int    `json:"pages"`
	Left   int    `json:"left,omitempty"` // tasks without pages
}

func serveUI(ctx context.Context, a *app, r *repo.Repo, ws string, o *uiOptions) error {
	dir, err := repo.PrivateDir(a.Getenv, "ui")
	if err != nil {
		return err
	}
	kept := keptServer(dir, r)
	l, err := kept.listen(o.port)
	if err != nil {
		return err
	}
	defer l.Close()
	if err := kept.save(l); err != nil {
		return err
	}
	to := ui.Start(ws)
	origin := "http://" + l.Addr().String()
	options := ui.Options{Secret: kept.Secret, Repository: a.here(), Root: r.Root, Version: a.version(), Now: a.Now, Here: hereOf(r.Root)}
	var s *ui.Server
	announce := func() error {
		doc := uiAddress{origin + s.Login(to), o.actions}
		return a.Reply(doc, func(w *render.Sheet) { fmt.Fprintf(w, "Open %s\n", doc.URL) })
	}
	options.Used = func() { a.Notef("For another browser: %s", origin+s.Login(to)) }
	if o.actions {
		options.Actions = &uiActions{a.here()}
	}
	s = ui.New(ctx, uiStores(a, r), options)
	if !o.noOpen {
		remove, err := openBrowser(dir, origin+s.Login(to))
		defer remove()
		if err != nil {
			a.Notef("No browser was opened: %v", err)
		}
	}
	if err := announce(); err != nil {
		return err
	}
	return s.Serve(ctx, l)
}

// keptUI is what a server leaves for the next one of the same repository, so that open pages go on.
type keptUI struct {
	Port   int       `json:"port"`
	Secret []byte    `json:"secret"`
	Since  time.Time `json:"since"`

	path string
}

// keepSecret is how long a secret is used.
const keepSecret = 7 * 24 * time.Hour

// keptServer reads what an earlier server of a repository has left, or begins anew.
func keptServer(dir string, r *repo.Repo) *keptUI {
	sum := sha256.Sum256([]byte(r.Root)) // whatever name was typed: "." means many
	k := &keptUI{path: filepath.Join(dir, hex.EncodeToString(sum[:8])+".json")}
	data, err := os.ReadFile(k.path)
	if err == nil {
		err = json.Unmarshal(data, k)
	}
	if age := time.Since(k.Since); err != nil || len(k.Secret) != ui.SecretSize || age < 0 || age > keepSecret {
		k.Port, k.Secret, k.Since = 0, ui.NewSecret(), time.Now()
	}
	return k
}

// listen takes the port that was asked for, the last one, or any.
func (k *keptUI) listen(port int) (net.Listener, error) {
	if port == 0 && k.Port > 0 {
		if l, err := ui.Listen(k.Port); err == nil {
			return l, nil
		}
		k.Secret = ui.NewSecret() // another server of this repository may be at work: its cookies are not ours
	}
	l, err := ui.Listen(port)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, usagef("port %d is in use by another program: give another --port, or leave it out for any that is free", port)
	}
	return l, err
}

// save writes what the next server needs, into a file that only this user can read.
func (k *keptUI) save(l net.Listener) error {
	if at, ok := l.Addr().(*net.TCPAddr); ok {
		k.Port = at.Port
	}
	data, err := json.Marshal(k)
	if err != nil {
		return err
	}
	return os.WriteFile(k.path, data, 0o600)
}

// openBrowser opens an address through a private file that leads there: other users see the arguments of a process.
func openBrowser(dir, address string) (remove func(), err error) {
	f, err := os.CreateTemp(dir, "open-*.html") // with mode 0600
	if err != nil {
		return func() {}, err
	}
	remove = func() { _ = os.Remove(f.Name()) }
	at := html.EscapeString(address)
	_, err = fmt.Fprintf(f, `<!doctype html><meta charset="utf-8"><title>e3</title><meta http-equiv="refresh" content="0;url=%s"><a href="%s">Go on to e3</a>`, at, at)
	if err := errors.Join(err, f.Close()); err != nil {
		return remove, err
	}
	name := "xdg-open"
	if runtime.GOOS == "darwin" {
		name = "open"
	}
	program, err := exec.LookPath(name)
	if err != nil {
		return remove, fmt.Errorf("%s is not installed", name)
	}
	cmd := exec.Command(program, f.Name())
	if err := cmd.Start(); err != nil {
		return remove, err
	}
	go func() { _ = cmd.Wait() }()
	return remove, nil
}

// exportUI writes the pages of a workspace's latest run as files.
func exportUI(ctx context.Context, a *app, r *repo.Repo, ws string, o *uiOptions) error {
	run, err := r.Workspaces.Runs.Find(ctx, ws, "")
	if err != nil {
		return err
	}
	hidden := map[string]bool{}
	pkg, _, err := r.Workspaces.Runs.PackageOf(ctx, run)
	if err != nil {
		return err
	}
	if pkg != nil {
		for i := range pkg.Inputs {
			if pkg.Inputs[i].NoExport {
				hidden[pkg.Inputs[i].Name] = true
			}
		}
	}
	if err := os.Mkdir(o.export, 0o777); err != nil {
		if errors.Is(err, os.ErrExist) {
			return fmt.Errorf("%s exists already; --export makes a new folder", human.Line(o.export))
		}
		return err
	}
	s := ui.New(ctx, uiStores(a, r), ui.Options{Repository: a.here(), Root: r.Root, Version: a.version(), Now: a.Now})
	out, err := s.Export(ctx, ws, run.RunID, hidden, pageFolder(o.export))
	if err != nil {
		return err
	}
	doc := exportedPages{o.export, run.RunID, out.Pages, out.Left}
	return a.Reply(doc, func(w *render.Sheet) {
		fmt.Fprintf(w, "Wrote %s of run %s: open %s\n", human.Count(out.Pages, "page"), human.Short(run.RunID), human.Line(filepath.Join(o.export, "index.html")))
		if out.Left > 0 {
			fmt.Fprintf(w, "%s have no pages of their own\n", human.Count(out.Left, "task"))
		}
	})
}

// pageFolder is a folder on disk.
type pageFolder string

// Write implements [ui.Files].
func (f pageFolder) Write(name string, data []byte) error {
	return os.WriteFile(filepath.Join(string(f), name), data, 0o666)
}

// hereOf reports whether the folder of a repository is still the one that it was; nil for a shared repository, which answers for itself.
func hereOf(root string) func() error {
	was, err := os.Stat(root)
	if err != nil {
		return nil
	}
	return func() error {
		is, err := os.Stat(root)
		if err == nil && !os.SameFile(was, is) {
			err = fmt.Errorf("%s is another folder now; start e3 ui again", human.Line(root))
		}
		return err
	}
}

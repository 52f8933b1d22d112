package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"e3/cmd/e3/internal/render"
	"e3/executions"
	"e3/internal/format/manifest"
	"e3/internal/format/notation"
	"e3/internal/human"
	"e3/internal/repo"
	"e3/refstore"
	"e3/workspace"
)

// version is set by the linker for a release.
var version = "dev"

// app holds the process state that commands use: streams, environment and clock.
type app struct {
	render.Output
	stdin io.Reader

	parsed bool     // the command line was valid
	typed  []string // the command line

	running *cobra.Command
	shown   map[*cobra.Command][]any // the answers of each command

	warned map[string]bool // warnings that were printed

	repository atomic.Pointer[string] // the name of the repository for advice; nil until it is opened

	takingOver sync.Mutex // one worker that ends commands of lost ones at a time: it gets all commands of each of them

	hurry atomic.Pointer[func()] // what a second signal does; nil: it ends the process

	lose   context.CancelCauseFunc // ends the command
	lessee refstore.Lessee         // its lost lease ends the command; nil without leases
}

func newApp() *app {
	return &app{
		Output: render.Output{Stdout: os.Stdout, Stderr: os.Stderr, Getenv: os.Getenv, Now: time.Now},
		stdin:  os.Stdin, warned: map[string]bool{},
	}
}

// open opens the repository at a location.
func (a *app) open(ctx context.Context, location string) (*repo.Repo, error) {
	return a.openWith(ctx, location, repo.Options{})
}

// openToRead opens a repository for a command that only reads: with what this machine has made of its own, if its
// latest start could not write there. With E3_OFFLINE it sends no request to the repository.
func (a *app) openToRead(ctx context.Context, location string) (*repo.Repo, error) {
	offline, err := strconv.ParseBool(cmp.Or(a.Getenv(offlineVariable), "false"))
	if err != nil {
		return nil, usagef("%s is true or false, not %q", offlineVariable, a.Getenv(offlineVariable))
	}
	if offline {
		return a.openOffline(ctx, location, repo.SeeOverlay)
	}
	return a.openWith(ctx, location, repo.Options{Overlay: repo.SeeOverlay})
}

// offlineVariable is the variable of start's --offline. Commands that read obey it too.
const offlineVariable = "E3_OFFLINE"

// openWith opens a repository and ends the command when its lease is lost.
func (a *app) openWith(ctx context.Context, location string, o repo.Options) (*repo.Repo, error) {
	r, err := a.openFor(ctx, location, o)
	if err == nil {
		a.watchLease(ctx, r)
	}
	return r, err
}

// openOffline opens what this machine knows of a repository, and says so.
func (a *app) openOffline(ctx context.Context, location string, mode repo.OverlayMode) (*repo.Repo, error) {
	r, err := a.openFor(ctx, location, repo.Options{Overlay: mode, Offline: true})
	if err != nil {
		return nil, err
	}
	at, _ := r.Offline()
	a.Notef("Offline: %s as this machine last saw it at %s", human.Line(r.Location), human.Stamp(at))
	return r, nil
}

// openToStart opens a repository for a start. Without the right to write, or if it is not to be used, what the start
// makes is kept in an overlay on this machine, and it says so. The results of earlier offline starts are sent.
func (a *app) openToStart(ctx context.Context, location string, readOnly, offline bool) (*repo.Repo, error) {
	if offline {
		r, err := a.openOffline(ctx, location, repo.KeepOverlay)
		if err == nil {
			a.Notef("What runs is kept on this machine, in %s; the next start that is online sends it", r.Overlay())
		}
		return r, err
	}
	why := "it is not to be written (--read-only)"
	if !readOnly {
		r, err := a.openOutlasting(ctx, location, repo.Options{Remember: true})
		if err != nil {
			return nil, err
		}
		err = r.Writable(ctx)
		if err == nil {
			repo.KeepReserve(r)
			return r, a.leaveOverlay(ctx, location, r)
		}
		why = "you may not write there"
		if d, ok := repo.Denied(err); ok {
			why += fmt.Sprintf(" (%s is missing)", d.Right)
		}
		if err := r.Close(); err != nil {
			return nil, err
		}
	}
	r, err := a.openOutlasting(ctx, location, repo.Options{Overlay: repo.KeepOverlay, Remember: true})
	if err == nil {
		a.Notef("Reading from %s, as %s. What runs is kept on this machine alone, in %s", human.Line(r.Location), why, r.Overlay())
	}
	return r, err
}

// leaveOverlay sends the results of offline starts, and ends the use of this machine's overlay, because the repository
// is writable. Results that cannot be sent stay for the next start.
func (a *app) leaveOverlay(ctx context.Context, location string, r *repo.Repo) error {
	if r.Unsent() {
		if err := a.sendOffline(ctx, location, r); err != nil {
			if ctx.Err() != nil {
				return err
			}
			a.Warnf("the results of offline starts were not sent: %v", err)
			return nil
		}
		r.DropOverlay()
		return nil
	}
	if folder, dropped := r.DropOverlay(); dropped {
		a.Notef("You may write to %s now: what earlier starts have kept in %s is not used any more", human.Line(shown(location, r)), folder)
	}
	return nil
}

// sendOffline sends the executions that this machine has made offline, as an import.
func (a *app) sendOffline(ctx context.Context, location string, r *repo.Repo) error {
	over, err := a.openFor(ctx, location, repo.Options{Overlay: repo.SeeOverlay})
	if err != nil {
		return err
	}
	defer over.Close()
	from := results(a, over)
	from.Location += " (offline)"
	res, err := results(a, r).Receive(ctx, from, over.OverlayExecutions(ctx))
	if err != nil {
		return err
	}
	sent := res.Outcomes[executions.Added] + res.Outcomes[executions.Overwritten]
	text := "Sent " + human.Count(sent, "execution") + " that this machine has made offline"
	if n := len(res.Gone); n > 0 {
		text += fmt.Sprintf("; not sent are %s of which an object is gone: %s", human.Count(n, "execution"), human.Few(res.Gone))
	}
	a.Notef("%s", text)
	return nil
}

// outlast bounds the time for which a command that runs tasks waits for a store that does not answer.
const outlast = 24 * time.Hour

// openOutlasting is openWith for a command that waits for a store that does not answer, because what it runs goes on
// meanwhile.
func (a *app) openOutlasting(ctx context.Context, location string, o repo.Options) (*repo.Repo, error) {
	o.Outlast, o.Retake = outlast, true
	r, err := a.openWith(ctx, location, o)
	if err != nil {
		return nil, err
	}
	if o, ok := r.Records.(refstore.Outlasting); ok {
		context.AfterFunc(ctx, o.OnSuspension(func(s refstore.Suspension) { a.Notef("%s", suspensionText(s)) }))
	}
	return r, nil
}

// suspensionText is the message that the lease is suspended, or continues.
func suspensionText(s refstore.Suspension) string {
	took := human.Duration(s.For.Round(time.Second))
	switch {
	case s.Over:
		return fmt.Sprintf("The store answers again, after %s", took)
	case s.Err != nil:
		return fmt.Sprintf("No answer from the store for %s: %s. Waiting for it; tasks go on", took, human.Line(repo.Because(s.Err)))
	}
	return fmt.Sprintf("The lease was not renewed for %s. Waiting for the store; tasks go on", took)
}

// openFor opens a repository for a command that handles the loss of its lease itself, with the choices of o.
func (a *app) openFor(ctx context.Context, location string, o repo.Options) (*repo.Repo, error) {
	o.From, _ = os.Getwd() // a folder that was removed belongs to no clone
	o.Version, o.Now, o.Getenv = a.version(), a.Now, a.Getenv
	o.Warn = func(err error) { a.Warnf("%v", err) }
	o.Waiting = func(e *workspace.BusyError, most time.Duration) {
		a.Notef("Waiting up to %v to see whether %s is alive", most.Round(time.Second), human.Line(e.Holder))
	}
	o.Fetching, o.Downloading, o.TakeOver = a.fetching, (&downloads{app: a}).begin, a.takeOver
	r, err := repo.Open(ctx, location, o)
	if err == nil {
		a.names(shown(location, r))
	}
	if errors.Is(err, repo.ErrNoRepository) && location == "." {
		if _, stat := os.Stat(manifest.FileName); stat == nil { // the usual way to a repository
			err = fmt.Errorf("%w, or from the package file that is here: e3 start -f %s; to look first: e3 plan -f %[2]s", err, manifest.FileName)
		}
	}
	if other := a.Getenv("E3_REPO"); location == "." && other != "" && other != "." && errors.Is(err, repo.ErrNoRepository) {
		err = fmt.Errorf("%w; the . on the command line overrides E3_REPO, which is %s; to use that, leave the . out", err, other)
	}
	return r, err
}

// watchLease ends the command when its lease is lost. Its later writes would fail or disturb other processes, and
// requests to an unreachable store are repeated for minutes.
func (a *app) watchLease(ctx context.Context, r *repo.Repo) {
	if a.lose == nil {
		return
	}
	if lessee := r.OnLost(ctx, a.lose); lessee != nil {
		a.lessee = lessee
	}
}

// version is the release, or the revision of the source in a development build.
func (a *app) version() string {
	if version != "dev" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" && len(s.Value) >= 12 {
				return "dev-" + s.Value[:12]
			}
		}
	}
	return version
}

// location is the default repository of a command, used if no argument names one.
func (a *app) location() string {
	if r := a.Getenv("E3_REPO"); r != "" {
		return r
	}
	return "."
}

// positional assigns a command's arguments. The repository comes first and may be left out. The arguments in names
// follow, and those in brackets may be missing at the end. If the count fits both readings, the first argument is the
// repository if it looks like one.
func (a *app) positional(cmd *cobra.Command, args []string, names ...string) (location string, rest []string, err error) {
	if err := a.checkArguments(cmd, args, names...); err != nil {
		return "", nil, err
	}
	required := len(names)
	for required > 0 && strings.HasPrefix(names[required-1], "[") {
		required--
	}
	if len(args) == required || len(args) <= len(names) && !isLocation(args[0]) {
		return a.location(), pad(args, len(names)), nil
	}
	return args[0], pad(args[1:], len(names)), nil
}

// runFunc is what cobra calls for a command.
type runFunc = func(*cobra.Command, []string) error

// An opener opens the repository of a command: app.open, or app.openToRead where that only reads.
type opener = func(ctx context.Context, location string) (*repo.Repo, error)

// on makes a command of what is to be done with an open repository and the arguments beside it, as positional assigns them.
func (a *app) on(open opener, do func(ctx context.Context, r *repo.Repo, args []string) error, names ...string) runFunc {
	return func(cmd *cobra.Command, args []string) error {
		location, rest, err := a.positional(cmd, args, names...)
		if err != nil {
			return err
		}
		return a.within(cmd.Context(), open, location, func(r *repo.Repo) error { return do(cmd.Context(), r, rest) })
	}
}

// within calls do with an open repository.
func (a *app) within(ctx context.Context, open opener, location string, do func(*repo.Repo) error) error {
	r, err := open(ctx, location)
	if err != nil {
		return err
	}
	defer r.Close()
	return do(r)
}

// isLocation reports whether an argument means a repository rather than a name in one.
func isLocation(arg string) bool {
	if repo.IsURL(arg) {
		return true
	}
	head, _, isPath := strings.Cut(arg, "/")
	if strings.Contains(arg, `\`) || strings.Trim(head, ".") == "" || isPath && !strings.Contains(head, ".") {
		return true // a path; prod.images/2024 is a dataset
	}
	_, err := repo.Find(arg)
	return err == nil
}

func pad(args []string, n int) []string {
	out := make([]string, n)
	copy(out, args)
	return out
}

// dataset splits <workspace>.<name>[.<entry>][/path].
func dataset(s string) (ws string, path workspace.DatasetPath, err error) {
	ws, rest, ok := strings.Cut(s, ".")
	if label, _, _ := strings.Cut(s, "["); !ok && s != "" || strings.Contains(ws, "[") && label != "" {
		return "", path, unnamed(s, "<workspace>.<name>") // a label may hold a dot
	}
	if ws == "" || rest == "" {
		return "", path, usagef("%q is not <workspace>.<name>", s)
	}
	if path, err = workspace.ParseDatasetPath(rest); err != nil {
		return "", path, usagef("%v", err)
	}
	return ws, path, nil
}

// splitTask splits <workspace>.<task>.
func splitTask(s string) (ws, task string, err error) {
	ws, path, err := dataset(s)
	if err == nil && path.Entry != "" {
		err = usagef("%q is not <workspace>.<task>; an item of a matrix is in brackets, as 'train[4]'", s)
	}
	return ws, path.Task(), err
}

// checkName refuses a text that cannot be the name of a workspace.
func checkName(what, name string) error {
	if !notation.ValidName(name) {
		return usagef("%q cannot be the name of a %s: letters, digits, _ and -, at most 64, not beginning with -", name, what)
	}
	return nil
}

// shown is the repository's location in advice: "." if that means the same one.
func shown(location string, r *repo.Repo) string {
	if root, err := repo.Find("."); err == nil && (root == r.Root || root == location) {
		return "."
	}
	if location == "" {
		return r.Location
	}
	return location
}

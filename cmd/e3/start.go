package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"e3/cmd/e3/internal/term"
	"e3/internal/events"
	"e3/internal/format/manifest"
	"e3/internal/format/notation"
	"e3/internal/format/record"
	"e3/internal/host/runner"
	"e3/internal/human"
	"e3/internal/insight/runview"
	"e3/internal/repo"
	"e3/internal/resultdir"
	"e3/objectstore"
	"e3/workspace"
)

type startOptions struct {
	file       string
	limits     limitOptions
	force      bool
	filter     string
	failFast   bool
	noWait     bool
	wait       string // until the workspace is free: "" not at all, 0 for ever
	strict     bool
	publish    string
	durability string
	progress   string
	verbose    bool
	watch      string // "": one run
	round      *round // of a watch; nil: this is none
	grace      time.Duration
	readOnly   bool
	offline    bool
	runs       runsOptions
	results    resultOptions
	read       *workspace.PackageFile // file, if it was read and not deployed since
	variant
}

// A variant is what a run changes of the package file.
type variant struct {
	set  []string
	as   string
	room string
}

// roomFlag adds the flag --room.
func roomFlag(cmd *cobra.Command, v *string) {
	cmd.Flags().StringVar(v, "room", "", "open or closed: the room of tasks that name none, instead of the package file's and of the setting")
	fromEnvironment(cmd.Flags(), "room")
	fixedValues(cmd, "room", manifest.OpenRoom.String(), manifest.ClosedRoom.String())
}

func newStart(a *app) *cobra.Command {
	var o startOptions
	cmd := &cobra.Command{
		Use:   "start [repo] <workspace>",
		Short: "Run the dataflow of a workspace",
		Long: `Run every task of a workspace whose result is not in the cache yet.

A workspace that was deployed from a package file follows it: each start picks up edits of the file and
of its inputs. With -f, start first makes the workspace, and the repository if there is none; the
workspace has the package's name unless you give another.

If you may not write to the repository, or with --read-only, start takes what is cached there and keeps
what it runs on this machine alone. Later starts find it, and so do commands that read.

With --room closed, tasks see what they declare and the system's programs, and nothing else of this machine. A task's own
"room" wins over the option, which wins over the package's and over the setting room. It is for this start: a later one
without it goes back, and takes what is cached.

A workspace that another process runs, deploys or removes is busy: exit code 11. With --wait, start waits until it is free,
for ever or at most as long as given (--wait=10m), and then begins as any other start: it sees the files as they are by then.

With --offline, start sends no request to a shared repository: it uses what this machine has seen of it. The
next start online sends the new results, as an import. Commands that read are offline if E3_OFFLINE is true.`,
		Example: `  e3 start . prod
  e3 start -f e3.yaml
  e3 start . prod --filter 'train*' --force
  e3 start . dev --set k=4 --set train.rate=0.1
  e3 start . dev --as exp1 --set k=4
  e3 start . prod --room closed
  e3 start . prod --workers    # with "e3 worker ." in another terminal`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.checkWait(args); err != nil {
				return err
			}
			if _, err := overridesOf(o.set); err != nil {
				return err
			}
			location, ws, err := startArgs(a, cmd, args, o.file)
			if err != nil {
				return err
			}
			if err := o.runs.opens.usage(a, &o); err != nil {
				return err
			}
			return a.whileRead(cmd.Context(), func(ctx context.Context) error {
				if o.watch != "" {
					return runWatch(ctx, a, location, ws, &o)
				}
				return startOnce(ctx, a, location, ws, &o)
			})
		},
	}
	cmd.ValidArgsFunction = completeWorkspace(a)
	f := cmd.Flags()
	f.StringVarP(&o.file, "file", "f", "", "package file: create what is missing, deploy it, run")
	o.limits.flags(f)
	o.runs.flags(cmd, a)
	o.results.flags(f)
	o.runs.opens.flags(f)
	f.BoolVar(&o.force, "force", false, "run even what is cached; always new executions")
	setFlag(f, &o.set)
	f.StringVar(&o.as, "as", "", "run a workspace of this name, made from this one as it is now; what --set gives stays there")
	roomFlag(cmd, &o.room)
	f.StringVar(&o.filter, "filter", "", "only tasks that match, with everything upstream of them (* and ?)")
	f.BoolVar(&o.readOnly, "read-only", false, "write nothing to the repository: what runs is kept on this machine, as where you may not write")
	f.BoolVar(&o.offline, "offline", false, "send no request to a shared repository: use what this machine knows of it; the next start online sends the results")
	f.BoolVar(&o.failFast, "fail-fast", false, "start no more tasks after the first failure")
	f.BoolVar(&o.strict, "strict", false, "a task with may_fail fails the run as any other does")
	f.BoolVar(&o.noWait, "no-wait", false, "end, with exit code 3, when all that is left waits for approval; the next start goes on")
	f.StringVar(&o.wait, "wait", "", "wait until a busy workspace is free: --wait=10m at most so long, else for ever")
	f.Lookup("wait").NoOptDefVal = "0"
	f.StringVar(&o.publish, "publish", "always", "when results reach the workspace: always (as they come), final or none")
	f.StringVar(&o.durability, "durability", "batch", "what survives power loss: batch (a finished run), full (every execution) or none")
	f.StringVar(&o.progress, "progress", "auto", "auto, tty, plain, json or none")
	f.StringVar(&o.watch, "watch", "", "run again when the package file or a file of an input changes: finish (the run at work ends first) or stop (it is cancelled)")
	f.Lookup("watch").NoOptDefVal = watchFinish
	f.BoolVarP(&o.verbose, "verbose", "v", false, "a line for each step, also of a run with many tasks")
	f.DurationVar(&o.grace, "grace", 5*time.Second, "between TERM and KILL when a command is stopped")
	fromEnvironment(f, "offline", "fail-fast", "strict", "no-wait", "wait", "publish", "durability", "progress", "grace")
	fixedValues(cmd, "publish", "always", "final", "none")
	fixedValues(cmd, "durability", "batch", "full", "none")
	fixedValues(cmd, "watch", watchFinish, watchStop)
	fixedValues(cmd, "progress", "auto", "tty", "plain", "json", "none")
	return a.answers(cmd, lines{eventLine{}}, lines{resultdir.Left{}})
}

// startArgs are the arguments of a command that takes a package file or a workspace. The repository is "" where it is
// to be found by the file.
func startArgs(a *app, cmd *cobra.Command, args []string, file string) (location, ws string, err error) {
	if file == "" && cmd.Flags().Changed("file") {
		return "", "", usagef("-f names no file: its value is empty")
	}
	if file == "" {
		return a.workspaceArg(cmd, args)
	}
	location, rest, err := a.positional(cmd, args, "[workspace]")
	if err != nil {
		return "", "", err
	}
	if len(args) == 1 && (notation.ValidName(args[0]) || !isLocation(args[0])) {
		location, rest = "", args
	} else if len(args) == 1 {
		location, rest = args[0], []string{""} // no name of a workspace
	} else if len(args) == 0 {
		location = ""
	}
	return location, rest[0], nil
}

// settings turns the flags into options.
func (o *startOptions) settings() (workspace.StartOptions, error) {
	l, err := o.limits.parse()
	s := workspace.StartOptions{
		Force: o.force, Filter: o.filter, FailFast: o.failFast, Strict: o.strict, NoWait: o.noWait, Concurrency: l.concurrency, Memory: l.memory, Capacities: l.capacities,
	}
	if err != nil {
		return s, err
	}
	if s.Set, err = overridesOf(o.set); err != nil {
		return s, err
	}
	if o.grace < 0 {
		return s, usagef("--grace must not be negative")
	}
	s.Publish = map[string]workspace.Publishing{"always": workspace.Always, "final": workspace.Final, "none": workspace.Never}[o.publish]
	s.Durability = map[string]workspace.Durability{"batch": workspace.Batch, "full": workspace.Full, "none": workspace.None}[o.durability]
	return s, nil
}

// limitOptions bound the resources that the commands of a run take together.
type limitOptions struct {
	concurrency int
	given       *pflag.Flag // concurrency; 0 stands for the default only where it is not given
	memory      string
	resources   []string
}

func (o *limitOptions) flags(f *pflag.FlagSet) {
	f.IntVarP(&o.concurrency, "concurrency", "j", 0, "commands at a time here, in cores (default: the cores of this machine)")
	o.given = f.Lookup("concurrency")
	f.StringVar(&o.memory, "memory", "", "what the declared memory of running tasks may add up to, as 8GiB (default: no limit)")
	f.StringArrayVar(&o.resources, "resource", nil, "capacity of a named resource, as name=amount (repeatable)")
	fromEnvironment(f, "concurrency", "memory", "resource")
}

type limits struct {
	concurrency int
	memory      int64
	capacities  map[string]float64
}

func (o *limitOptions) parse() (limits, error) {
	l := limits{concurrency: o.concurrency}
	if l.concurrency == 0 && (o.given == nil || !o.given.Changed) {
		l.concurrency = runtime.NumCPU()
	}
	if l.concurrency < 1 {
		return l, usagef("--concurrency must be at least 1")
	}
	if o.memory != "" {
		n, err := notation.SizeOf(o.memory)
		if err != nil {
			return l, usagef("--memory: %v", err)
		}
		if n < 1<<20 {
			return l, usagef("--memory %s is %s: give it a unit, as 8GiB", o.memory, human.Bytes(n))
		}
		l.memory = n
	}
	for _, r := range o.resources {
		name, amount, _ := strings.Cut(r, "=")
		n, err := strconv.ParseFloat(amount, 64)
		if err != nil || !(n > 0) || math.IsInf(n, 0) || name == "" {
			return l, usagef("--resource is name=amount, not %q", r)
		}
		if l.capacities == nil {
			l.capacities = map[string]float64{}
		}
		l.capacities[name] = n
	}
	return l, nil
}

func runStart(ctx context.Context, a *app, location, ws string, o *startOptions) error {
	settings, err := o.settings()
	if err != nil {
		return err
	}
	if o.file != "" {
		// A faulty command line leaves no repository behind.
		if o.as != "" {
			if err := checkName("workspace", o.as); err != nil {
				return err
			}
		}
		if err := checkResultFlags(&o.results, o.publish); err != nil {
			return err
		}
		if _, err := saidRuns(a, &o.runs); err != nil {
			return err
		}
		if ws != "" {
			if err := checkName("workspace", ws); err != nil {
				return err
			}
		}
		if location, err = repositoryFor(ctx, a, location, ws, o, settings.Set); err != nil {
			return err
		}
	}
	r, err := a.openToStart(ctx, location, o.readOnly, o.offline)
	if err != nil {
		return err
	}
	defer r.Close()
	r.SayRoom(o.room)
	if o.file != "" {
		ws, err = deployShort(ctx, a, r, ws, o, &settings)
	} else {
		ws, err = a.named(ctx, r, ws)
	}
	if err != nil {
		return unknownOffline(r, err)
	}
	if ws, err = branchAs(ctx, a, r, ws, o, &settings); err != nil {
		return err
	}
	if err := checkResults(ctx, r, ws, o); err != nil {
		return err
	}
	if err := o.runs.opens.check(ctx, r, ws); err != nil {
		return err
	}
	done, err := chooseExecutor(ctx, a, r, shown(location, r), ws, o, &settings)
	if err != nil {
		return err
	}
	defer done()
	if settings.Outstanding == 0 {
		killOnSignal(a, r)
	}
	settings.Process, settings.Traffic, settings.OnWork, settings.FileNamed = r.Process(), r.Traffic, collectOften, o.file != ""
	cores := runtime.GOMAXPROCS(0)
	settings.OnRest = func() { runtime.GOMAXPROCS(cores) } // no command needs them any more
	if spans := newSpans(a); spans != nil {
		defer spans.Close()
		settings.OnEvent = spans.Event
	}
	var made atomic.Bool // something, by this process
	if r.SignedExecutions() && settings.Outstanding == 0 {
		settings.OnEvent = both(settings.OnEvent, func(e events.Event) {
			if e.Type == events.TaskStarted {
				made.Store(true)
			}
		})
	}
	if a.JSON || o.progress == "json" {
		a.JSON = true
		err = startJSON(ctx, a, r, shown(location, r), ws, settings, o)
	} else {
		err = startText(ctx, a, r, shown(location, r), ws, settings, o)
	}
	ctx = unread(ctx)
	err = leaveResults(ctx, a, r, ws, o, unfollowed(shown(location, r), unknownOffline(r, err)))
	if made.Load() {
		sayUntrusted(ctx, a, r, "what was made just now answers no later start")
	}
	var ended *exitError
	if (err == nil || errors.As(err, &ended)) && o.runs.opens.proposes() {
		err = cmp.Or(proposeAfter(ctx, a, r, shown(location, r), ws, o), err)
	}
	if (err == nil || errors.As(err, &ended)) && r.Overlay() == "" {
		retireEvents(ctx, a, r)
	}
	return err
}

// unknownOffline says of a missing object that this machine has no copy, while the repository is not asked: nothing is
// lost there.
func unknownOffline(r *repo.Repo, err error) error {
	if _, offline := r.Offline(); !offline || !errors.Is(err, objectstore.ErrNotFound) {
		return err
	}
	what, _, _ := strings.Cut(err.Error(), "; ") // what follows is advice for a loss
	return fmt.Errorf("%w: this machine has no copy of all that this needs, as it never fetched it: %s", repo.ErrNotKnown, what)
}

// repositoryFor finds the repository of a package file: the one named, the one above the
// file, or a new one beside it.
func repositoryFor(ctx context.Context, a *app, location, ws string, o *startOptions, set []workspace.Override) (string, error) {
	location, root, err := findRepository(a, location, o.file)
	if location != "" || err != nil {
		return location, err
	}
	if o.offline {
		return "", usagef("--offline is for a shared repository, and %s would be a new one on this machine", root)
	}
	err = inEmpty(ctx, a, func(r *repo.Repo) error { return checkStart(ctx, r, ws, o, set) })
	if errors.Is(err, errNoFolder) {
		err = workspace.CheckFile(o.file) // the start itself finds what else is wrong
	}
	if err != nil {
		return "", err
	}
	if info, err := os.Stat(root); err == nil && !info.IsDir() {
		return "", usagef("%s is a file, and the folder of a repository has that name: move the file away", root)
	}
	root, err = repo.Create(root)
	if errors.Is(err, repo.ErrExists) {
		return root, nil // another process was faster
	}
	if err == nil {
		a.Notef("Created repository %s", root)
	}
	return root, err
}

// checkStart refuses a start that would fail after it has made its workspace: a mistake leaves nothing behind. It keeps
// the file for the deployment.
func checkStart(ctx context.Context, r *repo.Repo, ws string, o *startOptions, set []workspace.Override) error {
	r.SayRoom(o.room)
	ws, read, err := r.Workspaces.Planner.CheckFile(ctx, ws, o.file, set, o.filter)
	if err != nil {
		return err
	}
	o.read = read
	if o.as != "" && o.as == ws {
		return &workspace.TakenError{Workspace: ws, Why: "is that workspace itself"}
	}
	return nil
}

// errNoFolder is wrapped if no temporary folder can be made.
var errNoFolder = errors.New("no folder for temporary files")

// inEmpty calls do with an empty repository in a temporary folder.
func inEmpty(ctx context.Context, a *app, do func(*repo.Repo) error) error {
	dir, err := os.MkdirTemp("", "e3-plan-")
	if err != nil {
		return fmt.Errorf("%w: %w", errNoFolder, err)
	}
	defer os.RemoveAll(dir)
	if err := repo.CreateTemporary(dir); err != nil {
		return fmt.Errorf("%w: %w", errNoFolder, err)
	}
	defer a.repository.Store(a.repository.Load()) // no advice names the folder
	return a.within(ctx, a.open, dir, do)
}

// findRepository finds the repository of a package file, or else where one would be made.
func findRepository(a *app, location, file string) (found, wanted string, err error) {
	hides := false
	if location == "." { // means none that does not exist yet, any more than no location does
		_, err := repo.Find(location)
		hides = errors.Is(err, repo.ErrNoRepository)
	}
	if location != "" && !hides {
		return location, "", nil
	}
	if _, err := os.Stat(file); err != nil {
		return "", "", noFile(file, err)
	}
	if r := a.Getenv("E3_REPO"); r != "" && !hides {
		return r, "", nil
	}
	dir, err := filepath.Abs(filepath.Dir(file))
	if err != nil {
		return "", "", err
	}
	root, err := repo.FindAbove(dir)
	if errors.Is(err, repo.ErrNoRepository) {
		return "", filepath.Join(dir, repo.DirName), nil
	}
	return root, "", err
}

// deployShort makes the workspace of "start -f" and links it to the file, unless it is.
func deployShort(ctx context.Context, a *app, r *repo.Repo, ws string, o *startOptions, s *workspace.StartOptions) (string, error) {
	linked, err := linkedTo(ctx, a, r, ws, o.file)
	if err != nil || linked != "" {
		return linked, err // start follows the file by itself
	}
	if o.filter != "" || o.as != "" || len(s.Set) > 0 { // a deployment finds all else before it changes anything
		if err := checkStart(ctx, r, ws, o, s.Set); err != nil {
			return "", err
		}
	}
	collectOften()
	read := o.read
	o.read = nil // a later round of a watch reads it again
	ws, built, err := r.Workspaces.Deployer.DeployNew(ctx, ws, o.file, read)
	if err != nil {
		return "", err
	}
	a.warn(built.Warnings)
	s.Warnings = built.Warnings
	if slices.ContainsFunc(built.Package.Tasks, func(t record.PackageTask) bool { base, _, _ := strings.Cut(t.Name, "["); return base == ws }) && built.Package.Name != ws {
		a.Notef("%s is the name of this workspace, and of a task; to run that task alone: e3 start -f %s --filter %[1]s", ws, human.Quoted(o.file))
	}
	sayDeployed(a, shown(r.Location, r), ws, built)
	return ws, nil
}

// linkedTo returns the workspace that follows the file already: the named one, or the one that was made for the file;
// "" if it does not.
func linkedTo(ctx context.Context, a *app, r *repo.Repo, ws, file string) (string, error) {
	if ws == "" {
		return r.Workspaces.Deployer.WorkspaceFor(ctx, file) // which looks at the link
	}
	if err := checkName("workspace", ws); err != nil {
		return "", err
	}
	if follows, err := r.Workspaces.Deployer.Follows(ctx, ws, file); err != nil || !follows {
		return "", err
	}
	return ws, nil
}

// sayBegun is called before the first event of a run. A run that starts commands leaves the cores to them: Go's
// scheduler, with more threads than it needs, spends as much time looking for work as a short command takes.
func sayBegun(a *app, location, ws string, info *workspace.RunInfo) {
	a.warn(info.Warnings)
	sayElsewhere(a, location, ws, info.Elsewhere)
	if info.Package != nil {
		sayRenamed(a, location, ws, info.File, info.Renamed, info.Package.Name)
	}
	if info.Package != nil {
		runtime.GOMAXPROCS(max(1, runtime.NumCPU()/4))
		runner.Prompt()
	}
}

// warn prints the warnings about a package file, each only once, because a start may read the file twice.
func (a *app) warn(warnings []manifest.Warning) {
	for _, w := range warnings {
		if text := w.String(); !a.warned[text] {
			a.warned[text] = true
			a.Warnf("%s", text)
		}
	}
}

// startJSON writes the events of the run, one a line.
func startJSON(ctx context.Context, a *app, r *repo.Repo, location, ws string, s workspace.StartOptions, o *startOptions) error {
	a.Introduced()
	out := bufio.NewWriter(a.Stdout)
	var fault error
	s.OnStart = func(info *workspace.RunInfo) { sayBegun(a, location, ws, info) }
	s.OnEvent = both(s.OnEvent, func(e events.Event) {
		if e.Type == events.TaskDeferred {
			a.Notef("%s", askFor(location, ws, e.Task))
		}
		b, err := events.Append(nil, &e)
		if err == nil {
			if _, err = out.Write(b); err == nil {
				err = out.Flush() // so that the reader can follow the run
			}
		}
		fault = cmp.Or(fault, err)
	})
	res, err := r.Workspaces.Runner.Start(ctx, ws, s)
	if err = errors.Join(err, fault); err != nil {
		return err
	}
	o.results.run = res
	if o.round != nil {
		o.round.res = res
	}
	return runExit(res)
}

func startText(ctx context.Context, a *app, r *repo.Repo, location, ws string, s workspace.StartOptions, o *startOptions) error {
	live := term.Hidden()
	progress := o.progress
	switch f := term.Of(a.Stderr); {
	case progress == "tty" && f == nil:
		return usagef("--progress=tty needs a terminal on standard error")
	case progress == "tty":
		live = term.NewLive(f, a.Now)
	case progress == "auto" && term.Smart(a.Stdout, a.Getenv):
		live = a.Live()
	}
	a.Introduced()
	out := a.Stdout
	if progress == "none" {
		out = io.Discard
	}
	t := newTranscript(a.copyable(out), live, a.Style())
	t.ask = func(task string) { fmt.Fprintln(a.Stderr, askFor(location, ws, task)) }
	t.brief.verbose, t.brief.round = o.verbose, o.round != nil
	if live.Bar = true; live.Shows() {
		defer a.Above(live.Above)()
	}
	s.OnStart = func(info *workspace.RunInfo) {
		sayBegun(a, location, ws, info)
		t.estimate(info, a.Now)
	}
	s.OnEvent = both(s.OnEvent, t.event)
	defer sayStopping(ctx, a, o.grace)()
	defer t.beats(a.Now)()
	res, err := r.Workspaces.Runner.Start(ctx, ws, s)
	if err = errors.Join(err, t.close()); err != nil {
		return err
	}
	o.results.run = res
	if o.round != nil {
		o.round.res = res
	} else if err := summary(out, res, t.failures); err != nil {
		return err
	}
	explainFailures(unread(ctx), a, r, location, ws, t.failures)
	return runExit(res)
}

// summary prints the last line. Of failures, those that are allowed are told apart.
func summary(out io.Writer, res *workspace.RunResult, failures []runview.TaskReport) error {
	of := res.Run.Summary
	allowed := int64(0)
	for i := range failures {
		if res.Run.State != record.RunCompleted && failures[i].Allowance() != "" && of.Failed > 0 {
			allowed++
			of.Failed--
		}
	}
	state, rest := res.Run.State.String(), countsWaiting(res.Run.State, of, int64(res.Waiting))
	if res.Waiting > 0 {
		state = "waits for approval"
	}
	if allowed > 0 {
		rest += fmt.Sprintf(", %d allowed to fail", allowed)
	}
	_, err := fmt.Fprintf(out, "Run %s %s%s (%s)\n", human.Short(res.Run.RunID), state, cancelledRun(res.Cancelled), rest)
	return err
}

// counts is "2 cached, 1 executed", and what went wrong.
func counts(state record.RunState, s record.Summary) string {
	text := fmt.Sprintf("%d cached, %d executed", s.Cached, s.Completed-s.Cached)
	if s.Failed > 0 && state == record.RunCompleted {
		text += fmt.Sprintf(", %d allowed to fail", s.Failed)
	} else if s.Failed > 0 {
		text += fmt.Sprintf(", %d failed", s.Failed)
	}
	if s.Skipped > 0 {
		text += fmt.Sprintf(", %d skipped", s.Skipped)
	}
	return text
}

// countsWaiting is counts of a run that left tasks waiting for approval, which its summary counts as skipped.
func countsWaiting(state record.RunState, s record.Summary, waiting int64) string {
	if waiting == 0 {
		return counts(state, s)
	}
	s.Skipped -= waiting
	return counts(state, s) + fmt.Sprintf(", %d waiting", waiting)
}

// runExit is the exit code of a run that has ended.
func runExit(res *workspace.RunResult) error {
	switch {
	case res.Waiting > 0:
		return &exitError{exitWaits}
	case res.Cancelled != nil:
		return res.Cancelled
	case res.Run.State == record.RunCancelled:
		return &exitError{exitCancelled}
	case res.Run.State == record.RunFailed && res.TimedOut:
		return &exitError{exitTimeout}
	case res.Run.State == record.RunFailed:
		return &exitError{exitFailed}
	}
	return nil
}

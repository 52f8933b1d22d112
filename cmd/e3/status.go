package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"e3/cmd/e3/internal/render"
	"e3/dataflow/remaining"
	"e3/internal/format/manifest"
	"e3/internal/format/record"
	"e3/internal/human"
	"e3/internal/insight/explain"
	"e3/internal/insight/runview"
	"e3/internal/jobs/approval"
	"e3/internal/repo"
	"e3/workspace"
)

func newStatus(a *app, name string) *cobra.Command {
	return a.answers(&cobra.Command{
		Use:   name + " [repo] [workspace]",
		Short: "Show the state of a workspace",
		Long: `Show the state of a workspace, or of all: the deployed package, the latest run, the process that holds the workspace, which
inputs are set, and which outputs are stale; of failures, how they ended. The package file and the inputs on disk are read as well. Read-only; takes no
locks.`,
		ValidArgsFunction: completeWorkspace(a),
		RunE: a.on(a.openToRead, func(ctx context.Context, r *repo.Repo, args []string) error {
			return runStatus(ctx, a, r, args[0])
		}, "[workspace]"),
	}, statuses{})
}

// statuses are the states of workspaces.
type statuses struct {
	Repository string         `json:"repository"`
	Overlay    *repo.Own      `json:"overlay,omitempty"` // what only this machine has
	Workspaces []statusAnswer `json:"workspaces"`
}

// statusAnswer is the status of a workspace with an explanation of the first failures of its latest run.
type statusAnswer struct {
	*workspace.Status
	Failures []explain.FailureGroup `json:"failures,omitempty"`

	more int // failures that are not among them
}

// also separates an addition from a text; "" stays "".
func also(text string) string {
	if text == "" {
		return ""
	}
	return ", " + text
}

func runStatus(ctx context.Context, a *app, r *repo.Repo, ws string) (err error) {
	names := []string{ws}
	if ws == "" {
		if names, err = r.Workspaces.List(ctx); err != nil {
			return err
		}
	}
	doc := statuses{Repository: r.Root, Workspaces: []statusAnswer{}}
	if doc.Overlay, err = r.Own(ctx); err != nil {
		return err
	}
	for _, name := range names {
		st, err := r.Workspaces.Planner.Status(ctx, name)
		if ws == "" && errors.Is(err, workspace.ErrNotFound) {
			continue // removed since
		}
		if err != nil {
			return err
		}
		if ws != "" {
			sayWhereItStands(ctx, a, r, ws)
		}
		if st.Run != nil && st.Run.Live {
			if st.LastRun.Now, err = remaining.AskFor(ctx, r.Workspaces.Runs, name, st.Run.RunID); err != nil {
				return err
			}
		}
		f := &explain.Failures{}
		if st.Run != nil {
			if f, err = failuresOf(ctx, r, st.Run); err != nil {
				return err
			}
		}
		doc.Workspaces = append(doc.Workspaces, statusAnswer{st, f.Groups, f.More})
	}
	return a.Reply(doc, func(w *render.Sheet) {
		if o := doc.Overlay; o != nil {
			why := "Read-only here: %s on this machine alone, in %s\n\n"
			if o.Unsent {
				why = "Not sent yet: %s made offline, in %s\n\n"
			}
			fmt.Fprintf(w, why, human.Count(o.Executions, "execution"), o.Folder)
		}
		if len(doc.Workspaces) == 0 {
			fmt.Fprintln(w, "There are no workspaces yet; make one with: e3 start -f e3.yaml")
		}
		for i := range doc.Workspaces {
			if i > 0 {
				fmt.Fprintln(w)
			}
			st := &doc.Workspaces[i]
			writeStatus(w, a.here(), st, a.Now())
			writeFolders(w, st.Folders, st.Workspace)
		}
	})
}

func writeStatus(w *render.Sheet, location string, st *statusAnswer, now time.Time) {
	w.Line("Workspace %s", st.Workspace)
	if p := st.Package; p == nil {
		w.Field("Package", "none; deploy one with: e3 workspace deploy <repo> %s <package or e3.yaml>", st.Workspace)
	} else {
		w.Field("Package", "%s, deployed %s", p, human.Stamp(st.DeployedAt.Time))
	}
	if st.East {
		w.Field("Runnable", "not here: the package was made by the TypeScript e3 and holds East code")
	}
	edited := ""
	if st.Edited {
		edited = " (edited since)"
	}
	w.Field("File", "%s%s", st.File, edited)
	if st.Room == manifest.ClosedRoom {
		w.Field("Room", "closed where neither a task nor the package file names one: the setting room")
	}
	writeElsewhere(w, st.Elsewhere)
	w.Field("Last run", "%s", lastRun(st.Run))
	if st.Run != nil {
		w.Field("Queued", "%s", queuedText(st.Run.Queued, now))
		writeNow(w, st.LastRun.Now, now, runview.WaitsApproval, saidQueued(st.Run))
	}
	for i := range st.Failures {
		writeFailure(w, location, st.Workspace, &st.Failures[i])
	}
	if st.more > 0 {
		w.Field("Failed", "and %s more; see: e3 run <repo> %s", human.Count(st.more, "task"), st.Workspace)
	}
	writeApprovals(w, st.Status)
	if b := st.Holder; b != nil {
		w.Field("Busy", "%s by %s since %s%s", b.Doing(), cmp.Or(b.Holder, "another process"), human.Stamp(b.Since), also(human.Unheard(b.Heard.At, b.Heard.Lease, now)))
	}
	for _, f := range st.Faults {
		for text := range strings.Lines(f.Error()) {
			w.Field("Fault", "%s", strings.TrimSuffix(text, "\n"))
		}
	}
	if st.Package != nil {
		writeStanding(w, st.Status)
	}
}

// writeElsewhere tells where the deployment comes from, if that is not this machine.
func writeElsewhere(w *render.Sheet, e *workspace.Elsewhere) {
	if e == nil {
		return
	}
	not, by := "", cmp.Or(e.By, "an unknown user")
	if e.Mine != "" {
		not = "; not " + e.Mine
	}
	switch {
	case e.Unknown:
		w.Field("File", "unknown: its record is lost")
	case e.Here:
		w.Field("File", "%s, which is gone", e.File)
	case e.File != "":
		w.Field("File", "%s's %s, since %s%s", by, e.File, human.Stamp(e.Since.Time), not)
	case e.By != "" || not != "":
		w.Field("Deployed", "by %s%s", by, not)
	}
}

// lastRun is the latest run of a workspace in words.
func lastRun(r *runview.Report) string {
	if r == nil {
		return "none"
	}
	if r.State == record.RunRunning {
		return fmt.Sprintf("%s %s, started %s", human.Short(r.RunID), r.Status(), human.Stamp(r.StartedAt))
	}
	state, imported := r.Status(), ""
	if r.Waits > 0 {
		state = "ended waiting for approval"
	}
	if r.Provenance != nil {
		imported = ", imported"
	}
	return fmt.Sprintf("%s %s %s (%s)%s", human.Short(r.RunID), state, human.Stamp(r.CompletedAt), countsWaiting(r.State, r.Summary, r.Waits), imported)
}

// writeApprovals tells what waits for approval, and what was decided.
func writeApprovals(w *render.Sheet, st *workspace.Status) {
	for _, b := range st.Deferred {
		w.Field("Deferred", "%s waits for approval since %s: e3 approve <repo> %s", b.Task, human.Stamp(b.Since.Time), human.Quoted(st.Workspace+"."+b.Task))
	}
	for _, b := range st.Decided {
		by, at := cmp.Or(b.By, "an unknown user"), human.Stamp(b.At.Time)
		if b.Status == approval.Approved {
			w.Field("Approved", "%s by %s, %s: the next start goes on with it", b.Task, by, at)
		} else {
			w.Field("Rejected", "%s by %s, %s: the next start fails it; to take that back: e3 reject <repo> %s --undo", b.Task, by, at,
				human.Quoted(st.Workspace+"."+b.Task))
		}
	}
}

// writeStanding tells which datasets are not as a start would leave them.
func writeStanding(w *render.Sheet, st *workspace.Status) {
	s := st.Standing()
	w.Field("Set", "%s", human.Few(s.Set))
	w.Field("Changed", "%s", human.Few(s.Changed))
	w.Field("No value", "%s", human.Few(s.NoValue))
	standing := "current"
	if st.East {
		standing = "there" // unchanged since deployment
	}
	parts := []string{fmt.Sprintf("%d %s", s.Current, standing)}
	if s.Current == s.Outputs && s.Outputs > 0 && len(st.Unmade) == 0 {
		parts = []string{"all " + standing}
	}
	if len(s.Stale) > 0 {
		parts = append(parts, fmt.Sprintf("%d stale: %s", len(s.Stale), human.Few(s.Stale)))
	}
	if len(s.Missing) > 0 {
		parts = append(parts, fmt.Sprintf("%d missing: %s", len(s.Missing), human.Few(s.Missing)))
	}
	if len(s.LeftOut) > 0 {
		parts = append(parts, fmt.Sprintf("%d left out: %s", len(s.LeftOut), human.Few(s.LeftOut)))
	}
	w.Field("Outputs", "%s", strings.Join(parts, "; "))
	for i := range st.Unmade {
		w.Field("Items", "%s", &st.Unmade[i])
	}
}

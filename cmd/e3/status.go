package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"e3/cmd/e3/internal/render"
	"e3/dataflow"
	"e3/internal/format/manifest"
	"e3/internal/format/record"
	"e3/internal/human"
	"e3/internal/jobs/approval"
	"e3/refstore"
	"e3/workspace"
)

func newStatus(a *app, name string) *cobra.Command {
	return &cobra.Command{
		Use:   name + " [repo] [workspace]",
		Short: "Show the state of a workspace",
		Long: `Show the state of a workspace, or of all: the deployed package, the latest run, the process that holds the workspace, which
inputs are set, and which outputs are stale. The package file and the inputs on disk are read as well. Read-only; takes no
locks.`,
		ValidArgsFunction: completeWorkspace(a),
		RunE: func(cmd *cobra.Command, args []string) error {
			location, rest, err := a.positional(cmd, args, 1, "<workspace>")
			if err != nil {
				return err
			}
			return runStatus(cmd.Context(), a, location, rest[0])
		},
	}
}

// overlayJSON is what this machine keeps of its own over a repository to which it may not write.
type overlayJSON struct {
	Folder     string `json:"folder"`
	Executions int    `json:"executions"` // that are on this machine alone
	// Unsent says that they were made offline, and are sent by the next start online.
	Unsent bool `json:"unsent,omitempty"`
	// Offline is when this machine last saw the repository, if that was not asked.
	Offline *string `json:"offline,omitempty"`
}

// statusJSON is a workspace's status for programs.
type statusJSON struct {
	Workspace  string                `json:"workspace"`
	Package    *workspace.PackageRow `json:"package"`
	DeployedAt *string               `json:"deployedAt"`
	File       string                `json:"file,omitempty"`
	Edited     bool                  `json:"edited,omitempty"`
	Room       string                `json:"room,omitempty"` // closed: the setting, for tasks that name none
	// Elsewhere is the machine that decides the deployment, if it is not this one.
	Elsewhere *elsewhereJSON `json:"elsewhere,omitempty"`
	LastRun   *runJSON       `json:"lastRun"`
	Deferred  []deferredJSON `json:"deferred,omitempty"` // tasks that wait for approval
	Decided   []standingJSON `json:"decided,omitempty"`  // tasks that were approved or rejected, on which no run has acted yet
	Busy      *busyJSON      `json:"busy"`
	Folders   []folderJSON   `json:"folders,omitempty"` // of failed commands, on this machine
	Faults    []string       `json:"faults,omitempty"`
	Datasets  []datasetJSON  `json:"datasets"`
	// Growing is what is not known of the outputs before a task has made a list of items.
	Growing []growingJSON `json:"growing,omitempty"`
}

type busyJSON struct {
	Operation string  `json:"operation"`
	Holder    string  `json:"holder"`
	Since     *string `json:"since"`
	Heard     *string `json:"heard,omitempty"` // last sign of life of a holder on another host, by its own clock
}

// busyOf is nil if no process holds the workspace.
func busyOf(b *workspace.BusyError) *busyJSON {
	if b == nil {
		return nil
	}
	return &busyJSON{Operation: b.Doing(), Holder: b.Holder, Since: render.JSONTime(b.Since), Heard: render.JSONTime(b.Heard.At)}
}

// heardOf says when a process on another host last renewed its session, by that host's clock, which may differ. It is
// "" for a process that is known to live.
func heardOf(h refstore.Heard, now time.Time) string {
	if h.At.IsZero() {
		return ""
	}
	ago := max(now.Sub(h.At), 0)
	text := fmt.Sprintf("heard of %s ago", human.Seconds(ago))
	if ago > h.Lease {
		return fmt.Sprintf("last %s, longer than its lease of %s", text, human.Seconds(h.Lease))
	}
	return text
}

// unheard is heardOf for a process that has missed a heartbeat; there are three in the duration of a lease. It is ""
// for any other.
func unheard(h refstore.Heard, now time.Time) string {
	if now.Sub(h.At) <= h.Lease*2/3 {
		return ""
	}
	return heardOf(h, now)
}

// also separates an addition from a text; "" stays "".
func also(text string) string {
	if text == "" {
		return ""
	}
	return ", " + text
}

func runStatus(ctx context.Context, a *app, location, ws string) error {
	r, err := a.openToRead(ctx, location)
	if err != nil {
		return err
	}
	defer r.Close()
	names := []string{ws}
	if ws == "" {
		if names, err = r.Workspaces.List(ctx); err != nil {
			return err
		}
	}
	doc := struct {
		Repository string       `json:"repository"`
		Overlay    *overlayJSON `json:"overlay,omitempty"`
		Workspaces []statusJSON `json:"workspaces"`
	}{r.Root, nil, []statusJSON{}}
	if folder := r.Overlay(); folder != "" {
		n, err := r.OverlaySize(ctx)
		if err != nil {
			return err
		}
		doc.Overlay = &overlayJSON{Folder: folder, Executions: n, Unsent: r.Unsent()}
		if at, ok := r.Offline(); ok {
			doc.Overlay.Offline = render.JSONTime(at)
		}
	}
	var all []*workspace.Status
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
		all = append(all, st)
		one := statusOf(st)
		one.Folders = foldersOf(r, name)
		doc.Workspaces = append(doc.Workspaces, one)
	}
	return a.Reply(doc, func(w *render.Sheet) {
		if o := doc.Overlay; o != nil {
			why := "Read-only here: %s on this machine alone, in %s\n\n"
			if o.Unsent {
				why = "Not sent yet: %s made offline, in %s\n\n"
			}
			fmt.Fprintf(w, why, human.Count(o.Executions, "execution"), o.Folder)
		}
		if len(all) == 0 {
			fmt.Fprintln(w, "There are no workspaces yet; make one with: e3 start -f e3.yaml")
		}
		for i, st := range all {
			if i > 0 {
				fmt.Fprintln(w)
			}
			writeStatus(w, st, a.Now())
			writeFolders(w, doc.Workspaces[i].Folders, st.Workspace)
		}
	})
}

func statusOf(st *workspace.Status) statusJSON {
	doc := statusJSON{Workspace: st.Workspace, File: st.File, Edited: st.Edited, Elsewhere: elsewhereOf(st.Elsewhere), Datasets: []datasetJSON{}}
	if st.Rooms.Set == manifest.ClosedRoom {
		doc.Room = st.Rooms.Set.String()
	}
	if st.State.Deployed {
		doc.Package = st.PackageRow()
		doc.DeployedAt = render.JSONTime(st.State.DeployedAt)
	}
	if st.LastRun != nil {
		run := runOf(st.LastRun)
		run.Tasks = nil
		doc.LastRun = &run
	}
	doc.Deferred, doc.Decided = deferredOf(st.Deferred), standingOf(st.Decided)
	doc.Busy = busyOf(st.Busy)
	for _, f := range st.Faults {
		doc.Faults = append(doc.Faults, f.Error())
	}
	for i := range st.Datasets {
		doc.Datasets = append(doc.Datasets, datasetOf(&st.Datasets[i]))
	}
	doc.Growing = unmadeOf(st.Unmade)
	return doc
}

func writeStatus(w io.Writer, st *workspace.Status, now time.Time) {
	fmt.Fprintf(w, "Workspace %s\n", human.Line(st.Workspace))
	line := func(label, format string, args ...any) {
		fmt.Fprintf(w, "  %-10s %s\n", label+":", human.Line(fmt.Sprintf(format, args...)))
	}
	if !st.State.Deployed {
		line("Package", "none; deploy one with: e3 workspace deploy <repo> %s <package or e3.yaml>", st.Workspace)
	} else {
		line("Package", "%s@%s, deployed %s", st.State.PackageName, st.State.PackageVersion, human.Stamp(st.State.DeployedAt))
	}
	if st.East {
		line("Runnable", "not here: the package was made by the TypeScript e3 and holds East code")
	}
	if st.File != "" {
		line("File", "%s%s", st.File, map[bool]string{true: " (edited since)"}[st.Edited])
	}
	if st.Rooms.Set == manifest.ClosedRoom {
		line("Room", "closed where neither a task nor the package file names one: the setting room")
	}
	if e := st.Elsewhere; e != nil {
		text := map[bool]string{true: "; not " + e.Mine}[e.Mine != ""]
		if e.Unknown {
			line("File", "%s", "unknown: its record is lost")
		} else if e.Here {
			line("File", "%s, which is gone", e.File)
		} else if e.File != "" {
			line("File", "%s's %s, since %s%s", cmp.Or(e.By, "an unknown user"), e.File, human.Stamp(e.Since), text)
		} else if e.By != "" || text != "" {
			line("Deployed", "by %s%s", cmp.Or(e.By, "an unknown user"), text)
		}
	}
	switch r := st.LastRun; {
	case r == nil:
		line("Last run", "none")
	case r.State == record.RunRunning:
		line("Last run", "%s %s, started %s", human.Short(r.RunID), r.Status(), human.Stamp(r.StartedAt))
	default:
		state := r.Status()
		if r.Waits > 0 {
			state = "ended waiting for approval"
		}
		line("Last run", "%s %s %s (%s)%s", human.Short(r.RunID), state, human.Stamp(r.CompletedAt), countsWaiting(r.State, r.Summary, r.Waits),
			map[bool]string{true: ", imported"}[r.Provenance != nil])
	}
	if r := st.LastRun; r != nil && len(r.Queued) > 0 {
		line("Queued", "%s", queuedText(r.Queued, now))
	}
	for i := range st.Deferred {
		b := &st.Deferred[i]
		line("Waits", "%s for approval since %s: e3 approve <repo> %s", b.Task, human.Stamp(b.Created), human.Quoted(st.Workspace+"."+b.Task))
	}
	for i := range st.Decided {
		b := &st.Decided[i]
		if b.Status == approval.Approved {
			line("Approved", "%s by %s, %s: the next start goes on with it", b.Task, cmp.Or(b.By, "an unknown user"), human.Stamp(b.At))
		} else {
			line("Rejected", "%s by %s, %s: the next start fails it; to take that back: e3 reject <repo> %s --undo", b.Task, cmp.Or(b.By, "an unknown user"), human.Stamp(b.At), human.Quoted(st.Workspace+"."+b.Task))
		}
	}
	if b := st.Busy; b != nil {
		line("Busy", "%s by %s since %s%s", b.Doing(), cmp.Or(b.Holder, "another process"), human.Stamp(b.Since), also(unheard(b.Heard, now)))
	}
	for _, f := range st.Faults {
		for text := range strings.Lines(f.Error()) {
			line("Fault", "%s", strings.TrimSuffix(text, "\n"))
		}
	}
	if !st.State.Deployed {
		return
	}
	var set, changed, unassigned, stale, missing []string
	current, outputs := 0, 0
	for i := range st.Datasets {
		d := &st.Datasets[i]
		if d.Output {
			outputs++
		} else if d.Set {
			set = append(set, d.Name)
		}
		switch {
		case !d.Output && d.Freshness == dataflow.Absent:
			unassigned = append(unassigned, d.Name)
		case !d.Output && d.Freshness == dataflow.Stale:
			changed = append(changed, d.Name)
		case d.Output && d.Freshness == dataflow.Current:
			current++
		case d.Output && d.Freshness == dataflow.Stale:
			stale = append(stale, d.Name)
		case d.Output:
			missing = append(missing, d.Name)
		}
	}
	for _, l := range []struct {
		label string
		names []string
	}{{"Set", set}, {"Changed", changed}, {"No value", unassigned}} {
		if len(l.names) > 0 {
			line(l.label, "%s", human.Few(l.names))
		}
	}
	standing := "current"
	if st.East {
		standing = "there" // unchanged since deployment
	}
	parts := []string{fmt.Sprintf("%d %s", current, standing)}
	if current == outputs && outputs > 0 && len(st.Unmade) == 0 {
		parts = []string{"all " + standing}
	}
	if len(stale) > 0 {
		parts = append(parts, fmt.Sprintf("%d stale: %s", len(stale), human.Few(stale)))
	}
	if len(missing) > 0 {
		parts = append(parts, fmt.Sprintf("%d missing: %s", len(missing), human.Few(missing)))
	}
	line("Outputs", "%s", strings.Join(parts, "; "))
	for i := range st.Unmade {
		line("Items", "%s", unmadeText(&st.Unmade[i]))
	}
}

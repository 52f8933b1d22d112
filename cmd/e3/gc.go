package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"e3/cmd/e3/internal/render"
	"e3/gc"
	"e3/internal/human"
	"e3/internal/jobs/queue"
	"e3/internal/repo"
	"e3/objectstore"
	"e3/refstore"
)

func newGC(a *app) *cobra.Command {
	dryRun, kept := false, keptOnes{}
	cmd := &cobra.Command{
		Use:   "gc [repo]",
		Short: "Remove the objects that nothing needs",
		Long: `Remove the objects that no package, workspace, run or execution refers to. It is safe to run at any time and blocks no other
command. Objects that a running process has stored, or may still refer to, are kept for a later collection. In a shared
repository, so are objects stored in the last minutes, and gc first asks all running processes which objects they use. That
takes some seconds.

Executions are never removed, so their outputs stay; e3 prune removes executions that are not needed.`,
		Example: `  e3 gc
  e3 gc . --dry-run`,
		RunE: a.on(a.open, func(ctx context.Context, r *repo.Repo, _ []string) error {
			return runGC(ctx, a, r, gc.Options{DryRun: dryRun}, kept)
		}),
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only list what would be removed")
	cmd.Flags().BoolVar(&kept.environments, "environments", false, "remove all environments of programs that no command uses")
	cmd.Flags().BoolVar(&kept.checkouts, "checkouts", false, "remove all kept checkouts of large folders that no command uses")
	return a.answers(cmd, gc.Report{})
}

// keptOnes are the kinds of what this machine keeps of which all is to be removed that no command uses.
type keptOnes struct{ environments, checkouts bool }

func runGC(ctx context.Context, a *app, r *repo.Repo, o gc.Options, all keptOnes) error {
	collectOften()
	report, err := freeing(r, o.DryRun, func() (*gc.Report, error) { return collect(ctx, a, r, o, all) })
	if report == nil {
		return err
	}
	for _, w := range report.Warnings {
		a.Warnf("%s", w)
	}
	if report.MoreWarnings > 0 {
		a.Warnf("and %s more", human.Count(report.MoreWarnings, "reference"))
	}
	if report.Missing > 0 || len(report.Warnings) > 0 {
		n := int64(max(report.Missing, len(report.Warnings)+report.MoreWarnings))
		are := "are"
		if n == 1 {
			are = "is"
		}
		why := "left out by an export, or lost"
		if len(report.Warnings) > 0 {
			why = "left out by an export, lost or damaged"
		}
		a.Warnf("%s that something refers to %s missing: %s; to list them: e3 verify <repo>", human.Count(n, "object"), are, why)
	}
	return errors.Join(err, a.Reply(report, func(w *render.Sheet) { writeCollected(w, report, a.Now(), err == nil) }))
}

// freeing calls do, which frees space unless it is a dry run. On a full disk it does so again with the space that the
// repository keeps aside.
func freeing[T any](r *repo.Repo, dry bool, do func() (T, error)) (T, error) {
	done, err := do()
	if dry {
		return done, err
	}
	if refstore.DiskFull(err) && repo.UseReserve(r) {
		done, err = do()
	}
	repo.KeepReserve(r)
	return done, err
}

// collect removes garbage and shows its progress. all: of these, all that no command uses are garbage.
func collect(ctx context.Context, a *app, r *repo.Repo, o gc.Options, all keptOnes) (*gc.Report, error) {
	live, began := a.Live(), a.Now()
	defer live.Close()
	o.Progress = func(p gc.Progress) {
		live.Progress(int64(p.Shards), objectstore.Shards)
		live.Phase(p.Phase.String(), began)
	}
	if err := r.OwnsObjects(ctx); err != nil {
		return nil, err
	}
	now, err := r.Workspaces.AgeNow(ctx)
	if err != nil {
		return nil, err
	}
	if !o.DryRun {
		if _, err := r.Queue().Clean(ctx, now.Add(-queue.Keep)); err != nil {
			return nil, err
		}
	}
	runs, err := retireImported(ctx, r, now, o.DryRun)
	if err != nil {
		return nil, err
	}
	report, err := gc.Collect(ctx, gcStores(a, r), o)
	if report == nil {
		return nil, err
	}
	report.ImportedRuns = runs
	var gone error
	report.Gone.Repositories, report.Gone.Bytes, gone = r.SweepGone(ctx, o.DryRun)
	environments, fault := r.TrimEnvironments(all.environments, o.DryRun)
	checkouts, bad := r.TrimCheckouts(all.checkouts, o.DryRun)
	report.Environments, report.Checkouts = gc.Environments(environments), gc.Checkouts(checkouts)
	var late error
	report.Downloads.Files, report.Downloads.Bytes, late = r.TrimDownloads(o.DryRun)
	return report, errors.Join(err, gone, fault, bad, late)
}

// gcStores are the stores that gc collects in.
func gcStores(a *app, r *repo.Repo) gc.Stores {
	return gc.Stores{
		Records: r.Records, Objects: r.Objects, Executions: r.Executions, Jobs: r.Queue(),
		Now: a.Now, Holder: r.Workspaces.Holder, By: repo.UserAtHost(),
	}
}

// retireImported removes imported runs as old as expired events; objects that only they hold become garbage. It
// returns their number.
func retireImported(ctx context.Context, r *repo.Repo, now time.Time, dryRun bool) (int, error) {
	keep, err := retention(r)(ctx)
	if err != nil || keep == 0 {
		return 0, err
	}
	runs, err := r.Workspaces.Cleaner.RetireImported(ctx, now.Add(-keep), dryRun)
	return len(runs), err
}

// writeCollected prints a report as text. Unless whole, the collection was interrupted, and only what it removed is printed.
func writeCollected(w *render.Sheet, r *gc.Report, now time.Time, whole bool) {
	removed, kept := "Removed", "kept"
	if r.DryRun {
		removed, kept = "Would remove", "keep"
	}
	line := removed + " " + amount(r.Collected, "object")
	if whole {
		line += "; " + kept + " " + amount(r.Live, "")
	}
	if whole && r.Young.Objects > 0 {
		are := "are"
		if r.Young.Objects == 1 {
			are = "is"
		}
		line += fmt.Sprintf("; %s %s too young: %s", amount(r.Young, ""), are, whyYoung(r, now))
	}
	w.Line("%s", line)
	if r.ImportedRuns > 0 {
		w.Line("%s %s, of those beyond the latest 20 of a workspace", removed, human.Count(r.ImportedRuns, "old imported run"))
	}
	writeGone(w, removed, r.Gone)
	writeEnvironments(w, removed, r.Environments)
	writeCheckouts(w, removed, r.Checkouts)
	if r.Downloads.Files > 0 {
		w.Line("%s %s, begun weeks ago and never finished (%s)", removed, human.Count(r.Downloads.Files, "download"), human.Bytes(r.Downloads.Bytes))
	}
	switch {
	case r.Leftovers > 0 && r.Grace > 0:
		w.Line("Removed %s that crashes had left", human.Count(r.Leftovers, "thing"))
	case r.Leftovers > 0:
		w.Line("Removed %s of executions without a record", human.Count(r.Leftovers, "folder"))
	}
}

// whyYoung says why objects that nothing refers to are spared.
func whyYoung(r *gc.Report, now time.Time) string {
	switch {
	case r.Sessions == 1:
		return "a session is open since " + clock(r.OldestSession.Time, now)
	case r.Sessions > 1:
		return fmt.Sprintf("%d sessions are open, the oldest since %s", r.Sessions, clock(r.OldestSession.Time, now))
	case r.Grace >= time.Minute: // open sessions extend it
		return "stored in the last " + human.Count(r.Grace/time.Minute, "minute")
	case r.Grace > 0:
		return "stored in the last " + human.Duration(r.Grace)
	}
	return "stored just now"
}

// writeGone prints what was removed of repositories that are gone.
func writeGone(w *render.Sheet, removed string, g gc.Gone) {
	if g.Repositories > 0 {
		of := "a repository that is"
		if g.Repositories > 1 {
			of = fmt.Sprintf("%d repositories that are", g.Repositories)
		}
		w.Line("%s what commands had left on this machine of %s gone (%s)", removed, of, human.Bytes(g.Bytes))
	}
}

// writeEnvironments prints how many environments of programs this machine has.
func writeEnvironments(w *render.Sheet, removed string, e gc.Environments) {
	if e.Removed > 0 {
		w.Line("%s %s of programs (%s)", removed,
			human.Count(e.Removed, "environment"), human.Bytes(e.RemovedBytes))
	}
	if e.Kept > 0 {
		w.Line("Of programs this machine has %s (%s)", human.Count(e.Kept, "environment"), human.Bytes(e.KeptBytes))
	}
}

// writeCheckouts prints how many checkouts of large folders commands have left on this machine.
func writeCheckouts(w *render.Sheet, removed string, c gc.Checkouts) {
	line := func(format string, n int, bytes, files int64) {
		if n > 0 {
			w.Line(format, human.Count(n, "kept checkout"), human.Bytes(bytes), human.Count(files, "file"))
		}
	}
	line(removed+" %s of large folders (%s, %s)", c.Removed, c.RemovedBytes, c.RemovedFiles)
	line("Of large folders this machine has %s (%s, %s)", c.Kept, c.KeptBytes, c.KeptFiles)
}

// amount is "1,234 objects (2.3 GiB)".
func amount(n gc.Amount, what string) string {
	text := human.Thousands(n.Objects)
	if what != "" {
		text = human.Count(n.Objects, what)
	}
	return text + " (" + human.Bytes(n.Bytes) + ")"
}

// clock prints a time of the last twelve hours by its hour and minute, and any other in full.
func clock(t, now time.Time) string {
	if age := now.Sub(t); age >= 0 && age < 12*time.Hour {
		return t.Local().Format("15:04")
	}
	return human.Stamp(t)
}

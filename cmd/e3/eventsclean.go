package main

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"e3/cmd/e3/internal/render"
	"e3/internal/events"
	"e3/internal/format/moment"
	"e3/internal/format/notation"
	"e3/internal/human"
	"e3/internal/repo"
	"e3/internal/settings"
)

type eventsCleanOptions struct {
	olderThan, workspace string
	keep                 time.Duration // olderThan; 0: not given
	dryRun               bool
}

func newEventsClean(a *app) *cobra.Command {
	var o eventsCleanOptions
	cmd := &cobra.Command{
		Use:   "clean [repo]",
		Short: "Remove the events of old runs",
		Long: `Remove the events of runs that ended long ago; executions and their logs stay. Without --older-than, the setting
events-retention decides. Starts do this by themselves, once a day.

The events of a workspace's current run, and of runs that have not ended, are never removed. It is safe to run at any time.`,
		Example: `  e3 events clean . --older-than 90d
  e3 events clean . --older-than 12h --workspace test --dry-run`,
		ValidArgsFunction: cobra.NoFileCompletions,
		PreRunE: func(cmd *cobra.Command, _ []string) (err error) {
			f := cmd.Flags()
			if f.Changed("older-than") {
				if o.keep, err = notation.DurationOf(o.olderThan); err != nil {
					return usagef("--older-than: %v", err)
				}
				if o.keep == 0 {
					return usagef("--older-than must be more than 0")
				}
			}
			return filled("--%s must not be empty", "workspace")(cmd, nil)
		},
		RunE: a.on(a.open, func(ctx context.Context, r *repo.Repo, _ []string) error {
			return runEventsClean(ctx, a, r, o.keep, &o)
		}),
	}
	f := cmd.Flags()
	f.StringVar(&o.olderThan, "older-than", "", "of runs that ended longer ago than this: 12h, 90d, 8w (default: the setting events-retention)")
	f.StringVar(&o.workspace, "workspace", "", "only of this workspace")
	f.BoolVar(&o.dryRun, "dry-run", false, "only list what would be removed")
	completeFlag(cmd, "workspace", completion(a, func(ctx context.Context, r *repo.Repo, _ []string, _ string) ([]cobra.Completion, error) {
		return eventWorkspaces(ctx, r)
	}))
	return a.answers(cmd, events.Cleaned{})
}

// runEventsClean removes events older than keep; 0 means the setting.
func runEventsClean(ctx context.Context, a *app, r *repo.Repo, keep time.Duration, o *eventsCleanOptions) error {
	if err := knownWorkspace(ctx, r, o.workspace); err != nil {
		return err
	}
	if keep == 0 {
		var err error
		if keep, err = retention(r)(ctx); err != nil {
			return err
		}
	}
	doc := events.Cleaned{DryRun: o.dryRun, Runs: []events.CleanedRun{}}
	if keep == 0 {
		return a.Reply(doc, func(w *render.Sheet) {
			w.Line("Events are kept for ever: the setting events-retention is %q; see --older-than", settings.Never)
		})
	}
	now, err := r.Workspaces.AgeNow(ctx)
	if err != nil {
		return err
	}
	before := now.Add(-keep)
	doc.Before = moment.At(before)
	cleaned, err := r.Workspaces.Cleaner.CleanEvents(ctx, o.workspace, before, o.dryRun)
	doc.Add(cleaned)
	if err != nil && len(cleaned) > 0 && !o.dryRun {
		a.Notef("e3: the events of %s were removed before this:", human.Count(len(cleaned), "run"))
	}
	if err != nil {
		return err
	}
	return a.Reply(doc, func(w *render.Sheet) { writeCleaned(w, &doc) })
}

func writeCleaned(w *render.Sheet, c *events.Cleaned) {
	if len(c.Runs) == 0 {
		w.Line("Nothing to remove: no removable run ended before that")
		return
	}
	verb := "Removed"
	if c.DryRun {
		verb = "Would remove"
	}
	w.Line("%s %s of %s (%s)", verb, human.Count(c.Events, "event"), human.Count(len(c.Runs), "run"), human.Bytes(c.Bytes))
	runs := map[string]int64{}
	for i := range c.Runs {
		runs[c.Runs[i].Workspace]++
	}
	t := &render.Table{Right: map[int]bool{1: true}}
	for _, name := range slices.Sorted(maps.Keys(runs)) {
		t.Row(name, human.Count(runs[name], "run"))
	}
	w.Table(t, "  ")
}

// retention returns a function that reads how long the repository keeps events; 0 means for ever.
func retention(r *repo.Repo) func(context.Context) (time.Duration, error) {
	return func(ctx context.Context) (time.Duration, error) {
		s, err := settings.Get(ctx, r.Records)
		if err != nil {
			return 0, err
		}
		return s.KeepEvents(), nil
	}
}

// retireEvents removes old events after a run, at most once a day. A failure to do so does not fail the run.
func retireEvents(ctx context.Context, a *app, r *repo.Repo) {
	if ctx.Err() != nil {
		return // an interrupted command must not make its user wait
	}
	if _, err := r.Workspaces.Cleaner.Retire(ctx, retention(r)); err != nil && ctx.Err() == nil {
		a.Warnf("old events are still here: %v", err)
	}
}

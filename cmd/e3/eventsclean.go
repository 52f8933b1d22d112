package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"e3/cmd/e3/internal/render"
	"e3/internal/events"
	"e3/internal/format/notation"
	"e3/internal/human"
	"e3/internal/repo"
	"e3/internal/settings"
)

type eventsCleanOptions struct {
	olderThan, workspace string
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
		RunE: func(cmd *cobra.Command, args []string) error {
			location, _, err := a.positional(cmd, args, 0)
			if err != nil {
				return err
			}
			f := cmd.Flags()
			keep := time.Duration(0)
			if f.Changed("older-than") {
				if keep, err = notation.DurationOf(o.olderThan); err != nil {
					return usagef("--older-than: %v", err)
				}
				if keep == 0 {
					return usagef("--older-than must be more than 0")
				}
			}
			if f.Changed("workspace") && o.workspace == "" {
				return usagef("--workspace must not be empty")
			}
			return runEventsClean(cmd.Context(), a, location, keep, &o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.olderThan, "older-than", "", "of runs that ended longer ago than this: 12h, 90d, 8w (default: the setting events-retention)")
	f.StringVar(&o.workspace, "workspace", "", "only of this workspace")
	f.BoolVar(&o.dryRun, "dry-run", false, "only list what would be removed")
	completeFlag(cmd, "workspace", completion(a, func(ctx context.Context, r *repo.Repo, _ []string, _ string) ([]cobra.Completion, error) {
		return eventWorkspaces(ctx, r)
	}))
	return cmd
}

// cleanedJSON reports removed events, for programs.
type cleanedJSON struct {
	DryRun bool             `json:"dryRun"`
	Before *string          `json:"before"` // null: all are kept
	Runs   []cleanedRunJSON `json:"runs"`
	Events int64            `json:"events"`
	Bytes  int64            `json:"bytes"`
}

type cleanedRunJSON struct {
	Workspace string  `json:"workspace"`
	Run       string  `json:"run"`
	EndedAt   *string `json:"endedAt"`
	Events    int64   `json:"events"`
	Bytes     int64   `json:"bytes"`
}

// runEventsClean removes events older than keep; 0 means the setting.
func runEventsClean(ctx context.Context, a *app, location string, keep time.Duration, o *eventsCleanOptions) error {
	r, err := a.open(ctx, location)
	if err != nil {
		return err
	}
	defer r.Close()
	if err := knownWorkspace(ctx, r, o.workspace); err != nil {
		return err
	}
	if keep == 0 {
		if keep, err = retention(r)(ctx); err != nil {
			return err
		}
	}
	doc := cleanedJSON{DryRun: o.dryRun, Runs: []cleanedRunJSON{}}
	if keep == 0 {
		return a.Reply(doc, func(w *render.Sheet) {
			fmt.Fprintf(w, "Events are kept for ever: the setting events-retention is %q; see --older-than\n", settings.Never)
		})
	}
	now, err := r.Workspaces.AgeNow(ctx)
	if err != nil {
		return err
	}
	before := now.Add(-keep)
	doc.Before = render.JSONTime(before)
	cleaned, err := r.Workspaces.Cleaner.CleanEvents(ctx, o.workspace, before, o.dryRun)
	for _, c := range cleaned {
		doc.Runs = append(doc.Runs, cleanedRunJSON{c.Workspace, c.Run, render.JSONTime(c.EndedAt), c.Events, c.Bytes})
		doc.Events += c.Events
		doc.Bytes += c.Bytes
	}
	if err != nil && len(cleaned) > 0 && !o.dryRun {
		a.Notef("e3: the events of %s were removed before this:", human.Count(len(cleaned), "run"))
	}
	if err != nil {
		return err
	}
	return a.Reply(doc, func(w *render.Sheet) { writeCleaned(w, cleaned, &doc) })
}

func writeCleaned(w io.Writer, cleaned []events.CleanedRun, doc *cleanedJSON) {
	if len(cleaned) == 0 {
		fmt.Fprintln(w, "Nothing to remove: no removable run ended before that")
		return
	}
	verb := "Removed"
	if doc.DryRun {
		verb = "Would remove"
	}
	fmt.Fprintf(w, "%s %s of %s (%s)\n", verb, human.Count(doc.Events, "event"), human.Count(len(cleaned), "run"), human.Bytes(doc.Bytes))
	runs := map[string]int64{}
	var names []string
	for _, c := range cleaned {
		if runs[c.Workspace]++; runs[c.Workspace] == 1 {
			names = append(names, c.Workspace)
		}
	}
	slices.SortFunc(names, strings.Compare)
	t := &render.Table{Right: map[int]bool{1: true}}
	for _, name := range names {
		t.Row(name, human.Count(runs[name], "run"))
	}
	t.Write(w, "  ")
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

package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"e3/cmd/e3/internal/render"
	"e3/executions"
	"e3/gc"
	"e3/internal/format/notation"
	"e3/internal/human"
	"e3/internal/repo"
)

type pruneOptions struct {
	olderThan, maxSize string
	keepLast           int64
	dryRun, noGC       bool
	snapshots          bool
}

func newPrune(a *app) *cobra.Command {
	var o pruneOptions
	cmd := &cobra.Command{
		Use:   "prune [repo]",
		Short: "Remove old executions from the cache",
		Long: `Remove executions from the cache by rules, and free the objects that only they used. An execution that any of the rules
selects is removed. Its task runs again when its result is needed; e3 logs then says that it was pruned.

Never removed are executions that are running, that the current run of a workspace names, that a start would find for a
workspace or of a registered package, or that are pinned. Imported runs protect their executions only as the current run of
a workspace. It is safe to run at any time.

--snapshots removes packages that exports have made of workspaces, such as forecast@1.0.0+1a2b3c4d, unless a workspace here
uses them. They come with imports; otherwise only e3 package remove removes them.`,
		Example: `  e3 prune . --older-than 30d
  e3 prune . --keep-last 5 --dry-run
  e3 prune . --max-size 10GB
  e3 prune . --snapshots --dry-run`,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			location, _, err := a.positional(cmd, args)
			if err != nil {
				return err
			}
			rules, err := o.rules(cmd)
			if err != nil {
				return err
			}
			return runPrune(cmd.Context(), a, location, rules, &o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.olderThan, "older-than", "", "remove executions made, or imported, longer ago than this: 12h, 30d, 8w")
	f.Int64Var(&o.keepLast, "keep-last", 0, "keep this many of the latest successes of each task, and what came after them")
	f.StringVar(&o.maxSize, "max-size", "", "remove the oldest until the objects used only by the cache have at most this size: 10GB, 512MiB")
	f.BoolVar(&o.snapshots, "snapshots", false, "remove packages that exports have made of workspaces and that no workspace uses")
	f.BoolVar(&o.dryRun, "dry-run", false, "only list what would be removed")
	f.BoolVar(&o.noGC, "no-gc", false, "leave the objects to a later e3 gc")
	return a.answers(cmd, gc.Pruned{})
}

// rules reads the flags. It refuses 0, which would mean no rule.
func (o *pruneOptions) rules(cmd *cobra.Command) (gc.Rules, error) {
	var r gc.Rules
	var err error
	f := cmd.Flags()
	if f.Changed("older-than") {
		if r.OlderThan, err = notation.DurationOf(o.olderThan); err != nil {
			return r, usagef("--older-than: %v", err)
		}
		if r.OlderThan == 0 {
			return r, usagef("--older-than must be more than 0")
		}
	}
	if f.Changed("max-size") {
		if r.MaxSize, err = notation.SizeOf(o.maxSize); err != nil {
			return r, usagef("--max-size: %v", err)
		}
		if r.MaxSize == 0 {
			return r, usagef("--max-size must be more than 0; 1B leaves nothing but what is needed")
		}
	}
	if r.KeepLast = o.keepLast; f.Changed("keep-last") && r.KeepLast < 1 {
		return r, usagef("--keep-last counts from 1")
	}
	r.Snapshots = o.snapshots
	if r == (gc.Rules{}) {
		return r, usagef("e3 prune needs a rule: --older-than, --keep-last, --max-size or --snapshots; see: e3 prune --help")
	}
	return r, nil
}

func runPrune(ctx context.Context, a *app, location string, rules gc.Rules, o *pruneOptions) error {
	pruned, err := pruneCache(ctx, a, location, rules, o.dryRun)
	if err != nil {
		return err
	}
	if !o.dryRun && !o.noGC && (pruned.Executions > 0 || len(pruned.Snapshots) > 0) {
		collected, err := collectAfter(ctx, a, location)
		if err != nil {
			a.Notef("e3: the rules are applied; the objects are not removed yet: e3 gc does that")
			return err
		}
		pruned.Freed = collected.Freed()
	}
	return a.Reply(pruned, func(w *render.Sheet) { writePruned(w, pruned, rules) })
}

// pruneCache prunes in its own session, which ends before the collection. Otherwise the collection would spare the
// removed executions' objects as possibly in use by this process.
func pruneCache(ctx context.Context, a *app, location string, rules gc.Rules, dryRun bool) (*gc.Pruned, error) {
	r, err := a.open(ctx, location)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	now, err := r.Workspaces.AgeNow(ctx)
	if err != nil {
		return nil, err
	}
	return freeing(r, dryRun, func() (*gc.Pruned, error) {
		return gc.Prune(ctx, gc.PruneStores{
			Records: r.Records, Objects: r.Objects, Workspaces: r.Workspaces, Curator: executions.NewCurator(r.Executions, r.Records, a.Now),
			Jobs: r.Queue(),
		}, gc.PruneOptions{Rules: rules, DryRun: dryRun, By: repo.UserAtHost(), Now: now})
	})
}

// collectAfter removes the objects that a prune has set free.
func collectAfter(ctx context.Context, a *app, location string) (*gc.Report, error) {
	r, err := a.open(ctx, location)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	collectOften()
	return freeing(r, false, func() (*gc.Report, error) { return collect(ctx, a, r, gc.Options{}, keptOnes{}) })
}

func writePruned(w *render.Sheet, p *gc.Pruned, rules gc.Rules) {
	verb := "Pruned"
	if p.DryRun {
		verb = "Would prune"
	}
	switch {
	case len(p.Snapshots) > 0:
		w.Line("%s %s of workspaces that no workspace has", verb, human.Count(len(p.Snapshots), "snapshot"))
		t := &render.Table{}
		for _, s := range p.Snapshots {
			t.Row(s.String())
		}
		w.Table(t, "  ")
	case rules.Snapshots:
		w.Line("No snapshot to prune: each is deployed in a workspace")
	}
	if rules != (gc.Rules{Snapshots: true}) {
		writePrunedExecutions(w, p, verb)
	}
	writeFreed(w, p)
	if n := len(p.Unreadable); n > 0 {
		w.Line("%s cannot be read; see: e3 verify", human.Count(n, "execution"))
	}
}

func writePrunedExecutions(w *render.Sheet, p *gc.Pruned, verb string) {
	if p.Executions == 0 {
		w.Line("Nothing to prune: the rules select none of %s", human.Count(p.Total, "execution"))
	} else {
		w.Line("%s %d of %s", verb, p.Executions, human.Count(p.Total, "execution"))
		t := &render.Table{Right: map[int]bool{1: true}}
		const most = 20
		for _, task := range p.Tasks[:min(most, len(p.Tasks))] {
			t.Row(task.Task, fmt.Sprint(task.N))
		}
		w.Table(t, "  ")
		if n := len(p.Tasks) - most; n > 0 {
			w.Line("  and those of %s, which --json lists", human.Count(n, "other task"))
		}
	}
	if p.Spared > 0 {
		w.Line("Kept: %d that were pinned, changed or pruned meanwhile", p.Spared)
	}
	if protected := p.Protected.Words(); len(protected) > 0 {
		w.Line("Protected: %s", strings.Join(protected, ", "))
	}
	if p.Held != nil {
		w.Line("Used only by the cache: %s", human.Bytes(*p.Held))
	}
}

// writeFreed prints what happens to the objects, or would happen.
func writeFreed(w *render.Sheet, p *gc.Pruned) {
	switch {
	case p.Executions == 0 && len(p.Snapshots) == 0:
	case p.Freed != nil:
		w.Line("Freed %s (%s)", human.Bytes(p.Freed.Bytes), human.Count(p.Freed.Objects, "object"))
		if young := p.Freed.Young; young.Objects > 0 {
			w.Line("Kept %s (%s) that a running process may use; e3 gc removes them later", human.Bytes(young.Bytes), human.Count(young.Objects, "object"))
		}
		writeGone(w, "Removed", p.Freed.Gone)
	case p.DryRun && p.Executions == 0: // objects that only packages hold are not measured
	case p.DryRun:
		w.Line("Would free %s (%s)", human.Bytes(p.Bytes), human.Count(p.Objects, "object"))
	case p.Executions == 0:
		w.Line("e3 gc will free what only they held")
	default:
		w.Line("e3 gc will free %s (%s)", human.Bytes(p.Bytes), human.Count(p.Objects, "object"))
	}
}

package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"e3/cmd/e3/internal/render"
	"e3/executions"
	"e3/gc"
	"e3/internal/format/notation"
	"e3/internal/human"
	"e3/internal/repo"
	"e3/workspace"
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
			location, _, err := a.positional(cmd, args, 0)
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
	return cmd
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

// prunedJSON is a prune for programs.
type prunedJSON struct {
	DryRun     bool                   `json:"dryRun"`
	Total      int64                  `json:"total"`
	Executions int64                  `json:"executions"`
	Spared     int64                  `json:"spared"`
	Tasks      []prunedTaskJSON       `json:"tasks"`
	Objects    int64                  `json:"objects"`
	Bytes      int64                  `json:"bytes"`
	Held       *int64                 `json:"held,omitempty"`
	Protected  map[string]int64       `json:"protected"`
	Unreadable []string               `json:"unreadable"`
	Snapshots  []workspace.PackageRef `json:"snapshots,omitempty"`
	Freed      *freedJSON             `json:"freed,omitempty"`
}

type prunedTaskJSON struct {
	Task       string `json:"task"`
	Executions int64  `json:"executions"`
}

// freedJSON counts what the collection after a prune removed.
type freedJSON struct {
	Objects int64   `json:"objects"`
	Bytes   int64   `json:"bytes"`
	Gone    gc.Gone `json:"gone,omitzero"`
}

func runPrune(ctx context.Context, a *app, location string, rules gc.Rules, o *pruneOptions) error {
	pruned, err := pruneCache(ctx, a, location, rules, o.dryRun)
	if err != nil {
		return err
	}
	var freed *gc.Report
	if !o.dryRun && !o.noGC && (pruned.Executions > 0 || len(pruned.Snapshots) > 0) {
		if freed, err = collectAfter(ctx, a, location); err != nil {
			a.Notef("e3: the rules are applied; the objects are not removed yet: e3 gc does that")
			return err
		}
	}
	doc := prunedJSON{
		DryRun: o.dryRun, Total: pruned.Total, Executions: pruned.Executions, Spared: pruned.Spared, Tasks: []prunedTaskJSON{},
		Objects: pruned.Objects, Bytes: pruned.Bytes, Unreadable: append([]string{}, pruned.Unreadable...), Snapshots: pruned.Snapshots,
		Protected: map[string]int64{
			"running": pruned.Protected[gc.ByRunning], "run": pruned.Protected[gc.ByRun],
			"start": pruned.Protected[gc.ByStart], "pinned": pruned.Protected[gc.ByPin],
		},
	}
	for _, t := range pruned.Tasks {
		doc.Tasks = append(doc.Tasks, prunedTaskJSON{t.Task, t.N})
	}
	if pruned.Held >= 0 {
		doc.Held = &pruned.Held
	}
	if freed != nil {
		doc.Freed = &freedJSON{freed.Collected.Objects, freed.Collected.Bytes, freed.Gone}
	}
	return a.Reply(doc, func(w *render.Sheet) { writePruned(w, pruned, freed, o) })
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
	return freeing(r, false, func() (*gc.Report, error) { return collect(ctx, a, r, gc.Options{}) })
}

func writePruned(w io.Writer, p *gc.Pruned, freed *gc.Report, o *pruneOptions) {
	verb, free := "Pruned", "Freed"
	if o.dryRun {
		verb, free = "Would prune", "Would free"
	}
	switch {
	case len(p.Snapshots) > 0:
		fmt.Fprintf(w, "%s %s of workspaces that no workspace has\n", verb, human.Count(len(p.Snapshots), "snapshot"))
		t := &render.Table{}
		for _, s := range p.Snapshots {
			t.Row(s.String())
		}
		t.Write(w, "  ")
	case o.snapshots:
		fmt.Fprintln(w, "No snapshot to prune: each is deployed in a workspace")
	}
	if o.snapshots && o.olderThan == "" && o.maxSize == "" && o.keepLast == 0 {
		writeFreed(w, p, freed, o, free)
		return
	}
	if p.Executions == 0 {
		fmt.Fprintf(w, "Nothing to prune: the rules select none of %s\n", human.Count(p.Total, "execution"))
	} else {
		fmt.Fprintf(w, "%s %d of %s\n", verb, p.Executions, human.Count(p.Total, "execution"))
		t := &render.Table{Right: map[int]bool{1: true}}
		const most = 20
		for _, task := range p.Tasks[:min(most, len(p.Tasks))] {
			t.Row(task.Task, fmt.Sprint(task.N))
		}
		t.Write(w, "  ")
		if n := len(p.Tasks) - most; n > 0 {
			fmt.Fprintf(w, "  and those of %s, which --json lists\n", human.Count(n, "other task"))
		}
	}
	if p.Spared > 0 {
		fmt.Fprintf(w, "Kept: %d that were pinned, changed or pruned meanwhile\n", p.Spared)
	}
	var protected []string
	for s, n := range p.Protected {
		if n > 0 {
			protected = append(protected, gc.Shield(s).Count(n))
		}
	}
	if len(protected) > 0 {
		fmt.Fprintf(w, "Protected: %s\n", strings.Join(protected, ", "))
	}
	if p.Held >= 0 {
		fmt.Fprintf(w, "Used only by the cache: %s\n", human.Bytes(p.Held))
	}
	writeFreed(w, p, freed, o, free)
	if n := len(p.Unreadable); n > 0 {
		fmt.Fprintf(w, "%s cannot be read; see: e3 verify\n", human.Count(n, "execution"))
	}
}

// writeFreed prints what happens to the objects, or would happen.
func writeFreed(w io.Writer, p *gc.Pruned, freed *gc.Report, o *pruneOptions, free string) {
	switch {
	case p.Executions == 0 && len(p.Snapshots) == 0:
	case freed != nil:
		fmt.Fprintf(w, "%s %s (%s)\n", free, human.Bytes(freed.Collected.Bytes), human.Count(freed.Collected.Objects, "object"))
		if freed.Young.Objects > 0 {
			fmt.Fprintf(w, "Kept %s (%s) that a running process may use; e3 gc removes them later\n", human.Bytes(freed.Young.Bytes), human.Count(freed.Young.Objects, "object"))
		}
		goneText(w, "Removed", freed.Gone)
	case o.dryRun && p.Executions == 0: // objects that only packages hold are not measured
	case o.dryRun:
		fmt.Fprintf(w, "%s %s (%s)\n", free, human.Bytes(p.Bytes), human.Count(p.Objects, "object"))
	case p.Executions == 0:
		fmt.Fprintln(w, "e3 gc will free what only they held")
	default:
		fmt.Fprintf(w, "e3 gc will free %s (%s)\n", human.Bytes(p.Bytes), human.Count(p.Objects, "object"))
	}
}

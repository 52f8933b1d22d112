package main

import (
	"cmp"
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"e3/cmd/e3/internal/render"
	"e3/internal/events"
	"e3/internal/human"
	"e3/internal/insight/stats"
	"e3/internal/repo"
)

func newStats(a *app) *cobra.Command {
	var since, until string
	cmd := &cobra.Command{
		Use:   "stats [repo] [workspace]",
		Short: "Add up hits, time saved, executions and requests",
		Long: `Add up what runs were answered and what they executed, by workspace and by user. All is taken from the events of the runs,
which the setting events-retention keeps for a time.

A hit is a task that an earlier execution answered. Saved is how long these executions took, Executed how long the commands of
the runs took; what ran at the same time counts whole. Bytes are the sizes of outputs as they were stored, of a directory that of
its listing. Requests are those of the processes of e3 start to a shared repository, without those of workers. Their price
is at $0.125 for a million reads and $0.625 for a million writes of DynamoDB, $0.40 for a million GETs and $5 for a million PUTs of S3, at
one unit for each.`,
		Example: `  e3 stats
  e3 stats . prod --since 7d
  e3 stats . --since 2026-11-01 --until 2026-12-01 --json`,
		ValidArgsFunction: completeFirst(a, func(ctx context.Context, r *repo.Repo, _ string) ([]cobra.Completion, error) {
			return eventWorkspaces(ctx, r)
		}),
		RunE: a.on(a.openToRead, func(ctx context.Context, r *repo.Repo, args []string) (err error) {
			o := stats.Options{Workspace: args[0]}
			if o.Since, err = parseMoment(a, "since", since); err != nil {
				return err
			}
			if o.Until, err = parseMoment(a, "until", until); err != nil {
				return err
			}
			return showStats(ctx, a, r, o)
		}, "[workspace]"),
	}
	cmd.Flags().StringVar(&since, "since", "", "only runs that began then or later: 2h, 7d, 2026-11-20, 2026-11-20T15:04")
	cmd.Flags().StringVar(&until, "until", "", "only runs that began before then")
	return a.answers(cmd, stats.Stats{})
}

func showStats(ctx context.Context, a *app, r *repo.Repo, o stats.Options) error {
	s, err := stats.Read(ctx, r.Records, o)
	if err != nil {
		return err
	}
	if len(s.Workspaces) == 0 {
		if err := knownWorkspace(ctx, r, o.Workspace); err != nil {
			return err
		}
	}
	for _, err := range s.Damaged {
		a.Warnf("%v", err)
	}
	return a.Reply(s, func(w *render.Sheet) { writeStats(w, s) })
}

func writeStats(w *render.Sheet, s *stats.Stats) {
	if s.Total.Runs == 0 {
		w.Line("No runs")
		return
	}
	t := &render.Table{Right: map[int]bool{}}
	head := []string{"", "runs", "hits", "hit rate", "saved", "executed", "in", "failed", "stored", "requests", "price"}
	for i := 1; i < len(head); i++ {
		t.Right[i] = true
	}
	t.Row(head...)
	for _, list := range [][]stats.Group{s.Workspaces, s.Users} {
		for i := range list {
			statsRow(t, cmp.Or(list[i].Name, "unknown"), &list[i])
		}
		t.Row()
	}
	statsRow(t, "all", &s.Total)
	w.Table(t, "")
	if n := s.Total.Untimed; n > 0 {
		w.Line("Of %s no event tells any more how long they took; what they saved is not counted", human.Count(n, "hit"))
	}
}

func statsRow(t *render.Table, name string, g *stats.Group) {
	requests, price := "", ""
	if q := g.Requests; q != (events.Traffic{}) {
		requests, price = fmt.Sprint(q.Reads+q.Writes+q.Gets+q.Puts), fmt.Sprintf("$%.6f", g.Price)
	}
	t.Row(name, fmt.Sprint(g.Runs), fmt.Sprint(g.Hits), fmt.Sprintf("%.1f %%", 100*g.HitRate), millis(g.SavedMs), fmt.Sprint(g.Executed),
		millis(g.ExecutedMs), fmt.Sprint(g.Failures), human.Bytes(g.Bytes), requests, price)
}

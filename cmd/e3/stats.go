package main

import (
	"cmp"
	"context"
	"errors"
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
	var files bool
	cmd := &cobra.Command{
		Use:   "stats [repo] [workspace]",
		Short: "Add up hits, time saved, executions and requests",
		Long: `Add up what runs were answered and what they executed, by workspace and by user. All is taken from the events of the runs,
which the setting events-retention keeps for a time.

A hit is a task that an earlier execution answered. Saved is how long these executions took, Executed how long the commands of
the runs took; what ran at the same time counts whole. Bytes are the sizes of outputs as they were stored, of a directory that of
its listing. Requests are those of the processes of e3 start to a shared repository, without those of workers. Their price
is at $0.125 for a million reads and $0.625 for a million writes of DynamoDB, $0.40 for a million GETs and $5 for a million PUTs of S3, at
one unit for each.

--files says instead what the files of a repository in a folder are for, and what they take of the disk, in blocks; quotas of
clusters count files, folders and links. Runs are their records, events and journals. Checkouts are kept directories of inputs
(E3_CHECKOUTS_FILES and E3_CHECKOUTS_SIZE bound them, and e3 gc removes those that no process uses); failed are the kept folders of
failed commands; these and scratch, what commands work in, are those of this machine.`,
		Example: `  e3 stats
  e3 stats . prod --since 7d
  e3 stats . --since 2026-11-01 --until 2026-12-01 --json
  e3 stats . --files`,
		ValidArgsFunction: completeFirst(a, func(ctx context.Context, r *repo.Repo, _ string) ([]cobra.Completion, error) {
			return eventWorkspaces(ctx, r)
		}),
		PreRunE: func(cmd *cobra.Command, _ []string) error {
			return cmp.Or(alternatives(cmd, "files", "since"), alternatives(cmd, "files", "until"))
		},
		RunE: a.on(a.openToRead, func(ctx context.Context, r *repo.Repo, args []string) (err error) {
			if files {
				return showFiles(ctx, a, r, args[0])
			}
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
	cmd.Flags().BoolVar(&files, "files", false, "what the files of the repository are for")
	return a.answers(cmd, stats.Stats{}, filesTaken{})
}

// filesTaken is the answer of e3 stats --files.
type filesTaken struct {
	Kinds []repo.Taken `json:"kinds"`
	Total repo.Taken   `json:"total"`
}

func showFiles(ctx context.Context, a *app, r *repo.Repo, ws string) error {
	if ws != "" {
		return usagef("--files is about the whole repository; leave out %s", human.Quoted(ws))
	}
	list, err := r.Taken(ctx)
	if errors.Is(err, repo.ErrShared) {
		return usagef("--files is for a repository in a folder; of a shared one its store counts what it has")
	}
	if err != nil {
		return err
	}
	s := filesTaken{list, repo.Taken{Kind: "all"}}
	for _, t := range list {
		s.Total.Files, s.Total.Bytes, s.Total.Blocks = s.Total.Files+t.Files, s.Total.Bytes+t.Bytes, s.Total.Blocks+t.Blocks
	}
	return a.Reply(s, func(w *render.Sheet) {
		t := &render.Table{Right: map[int]bool{1: true, 2: true, 3: true}}
		t.Row("", "files", "bytes", "on disk")
		for _, x := range append(list, s.Total) {
			t.Row(x.Kind, fmt.Sprint(x.Files), human.Bytes(x.Bytes), human.Bytes(x.Blocks))
		}
		w.Table(t, "")
	})
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

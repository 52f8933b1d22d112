package ui

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"e3/internal/format/record"
	"e3/internal/human"
	"e3/internal/insight/explain"
	h "e3/internal/insight/markup"
	"e3/internal/insight/report"
	"e3/internal/insight/runview"
	"e3/internal/jobs/queue"
	"e3/workspace"
)

// workspacesBody lists all workspaces.
type workspacesBody struct {
	List     []*workspace.Status
	Failures []*explain.Failures // of the latest run of each
	Stands   []string            // what the latest run of each waits for while no command is at work
	Now      time.Time
}

func (s *Server) workspacesPage(ctx context.Context, f *frame) (body, error) {
	f.Title = "Workspaces"
	f.Crumbs = []crumb{{"Workspaces", ""}}
	f.command("status")
	s.live(f)
	names, err := s.stores.Answers.Names(ctx)
	if err != nil {
		return nil, err
	}
	b := &workspacesBody{Now: s.o.Now()}
	for _, name := range names {
		st, err := s.stores.Answers.Status(ctx, name)
		if errors.Is(err, workspace.ErrNotFound) {
			continue // removed since
		}
		if err != nil {
			return nil, err
		}
		var failures *explain.Failures
		if st.Run != nil {
			if failures, err = s.latestFailures(ctx, st.Run); err != nil {
				return nil, err
			}
		}
		stands, err := s.stands(ctx, st)
		if err != nil {
			return nil, err
		}
		b.List, b.Failures, b.Stands = append(b.List, st), append(b.Failures, failures), append(b.Stands, stands)
	}
	return b, nil
}

// outputsText says which outputs the next start would make.
func outputsText(st *workspace.Status) string {
	standing := st.Standing()
	switch {
	case st.Package == nil || standing.Outputs == 0:
		return ""
	case standing.Current == standing.Outputs:
		return "all current"
	}
	parts := []string{fmt.Sprintf("%d current", standing.Current)}
	if n := len(standing.Stale); n > 0 {
		parts = append(parts, fmt.Sprintf("%d stale: ", n)+human.Few(standing.Stale))
	}
	if n := len(standing.Missing); n > 0 {
		parts = append(parts, fmt.Sprintf("%d missing: ", n)+human.Few(standing.Missing))
	}
	if n := len(standing.LeftOut); n > 0 {
		parts = append(parts, fmt.Sprintf("%d left out: ", n)+human.Few(standing.LeftOut))
	}
	return human.Line(strings.Join(parts, "; "))
}

// summaryText counts the tasks of a run that has ended.
func summaryText(r *runview.Report) string {
	if r.State == record.RunRunning || r.Summary == (record.Summary{}) {
		return ""
	}
	s, failed := r.Summary, "failed"
	if r.State == record.RunCompleted {
		failed = "allowed to fail"
	}
	var parts []string
	for _, c := range []struct {
		n    int64
		word string
	}{
		{s.Cached, "cached"}, {s.Completed - s.Cached, "executed"}, {s.Failed, failed}, {s.Skipped - r.Waits, "skipped"},
		{r.Waits, "waiting"},
	} {
		if c.n > 0 {
			parts = append(parts, human.Count(c.n, "task")+" "+c.word)
		}
	}
	return strings.ReplaceAll(strings.ReplaceAll(strings.Join(parts, ", "), " tasks", ""), " task", "")
}

// historyBody is the runs of a workspace, the latest first.
type historyBody struct {
	Runs []*runview.Report
	More bool // there are earlier ones
	Days []day
	Now  time.Time

	Picked *runview.Report // the run that another one is to be compared with
}

// day is the runs that began on one day.
type day struct {
	Date   string
	Shares []report.Share
	Count  int
}

const mostRuns = 40

func (s *Server) historyPage(ctx context.Context, f *frame) (body, error) {
	f.ofWorkspace(viewHistory)
	f.Title = human.Line(f.Workspace) + ": history"
	f.Crumbs = append(f.Crumbs, crumb{"history", ""})
	s.live(f)
	b := &historyBody{Now: s.o.Now()}
	most, status := mostRuns, f.Place.get("status")
	if f.Place.get("all") != "" {
		most = 2_000
	}
	f.command("history", human.Quoted(f.Workspace), "--last", itoa(most), flag("--status", status))
	for r, err := range s.stores.Runs.List(ctx, f.Workspace) {
		switch {
		case err != nil:
			return nil, err
		case status != "" && r.Status() != status:
			continue
		}
		if b.More = len(b.Runs) == most; b.More {
			break
		}
		b.Runs = append(b.Runs, r)
	}
	if id := f.Place.get("a"); id != "" {
		var err error
		if b.Picked, err = s.stores.Runs.Head(ctx, f.Workspace, id); err != nil {
			return nil, err
		}
	}
	b.days()
	return b, nil
}

// days counts the runs of each day, the earliest first.
func (b *historyBody) days() {
	counts := map[string]map[string]int{}
	for _, r := range slices.Backward(b.Runs) {
		date := r.StartedAt.Local().Format(time.DateOnly)
		if counts[date] == nil {
			counts[date] = map[string]int{}
			b.Days = append(b.Days, day{Date: date})
		}
		counts[date][report.RunClass(r)]++
	}
	most := 1
	for i := range b.Days {
		d := &b.Days[i]
		d.Shares = report.Shares(counts[d.Date])
		for _, sh := range d.Shares {
			d.Count += sh.Count
		}
		most = max(most, d.Count)
	}
	for i := range b.Days { // the day with most runs has the longest bar
		d := &b.Days[i]
		for k := range d.Shares {
			sh := &d.Shares[k]
			sh.X, sh.W = sh.X*float64(d.Count)/float64(most), sh.W*float64(d.Count)/float64(most)
		}
	}
}

// durations are the durations of the runs that have ended.
func (b *historyBody) durations(f *frame) h.Node {
	var points []point
	for _, r := range slices.Backward(b.Runs) {
		if r.State != record.RunRunning {
			took := r.RanFor(b.Now)
			points = append(points, point{
				at: r.StartedAt, value: took.Seconds(), state: report.RunClass(r),
				url: f.runURL(r.RunID), text: human.Duration(took),
			})
		}
	}
	return plotOf(points, seconds)
}

// queueBody is all queues.
type queueBody struct {
	List []queueState
	Now  time.Time
}

// queueState is a queue with the jobs that no worker has, in their turn.
type queueState struct {
	queue.State
	Waiting []queue.Row
}

// mostWaiting is the number of waiting jobs of a queue that a page shows.
const mostWaiting = 500

func (s *Server) queuePage(ctx context.Context, f *frame) (body, error) {
	f.Title = "Queue"
	f.Crumbs = []crumb{{"Workspaces", f.To(viewWorkspaces)}, {"Queue", ""}}
	f.command("queue")
	s.live(f)
	states, err := s.stores.Answers.Queues(ctx)
	if err != nil {
		return nil, err
	}
	b := &queueBody{Now: s.o.Now()}
	for _, state := range states.Queues {
		rows, _, err := s.stores.Answers.InTurn(ctx, state.Queue) // the state names what cannot be read
		if err != nil {
			return nil, err
		}
		waiting := slices.DeleteFunc(rows.Jobs, func(j queue.Row) bool { return j.Status != queue.Queued })
		b.List = append(b.List, queueState{state, waiting[:min(len(waiting), mostWaiting)]})
	}
	return b, nil
}

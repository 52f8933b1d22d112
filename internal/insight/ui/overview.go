package ui

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"e3/internal/events"
	"e3/internal/format/record"
	"e3/internal/human"
	h "e3/internal/insight/markup"
	"e3/internal/insight/report"
	"e3/internal/insight/runview"
)

// workspacesBody is all workspaces.
type workspacesBody struct {
	List []Workspace
	Now  time.Time
}

func (s *Server) workspacesPage(ctx context.Context, f *frame) (body, error) {
	f.Title = "Workspaces"
	f.Crumbs = []crumb{{"Workspaces", ""}}
	f.command("status")
	s.live(f)
	list, err := s.stores.Facts.Workspaces(ctx)
	return &workspacesBody{list, s.o.Now()}, err
}

// outputsText says which outputs the next start would make.
func outputsText(w *Workspace) string {
	if w.Package == "" {
		return ""
	}
	var parts []string
	all := w.Current + len(w.Stale) + len(w.Missing)
	switch {
	case all == 0:
		return ""
	case w.Current == all:
		return "all current"
	}
	parts = append(parts, fmt.Sprintf("%d current", w.Current))
	if n := len(w.Stale); n > 0 {
		parts = append(parts, fmt.Sprintf("%d stale: ", n)+human.Few(w.Stale))
	}
	if n := len(w.Missing); n > 0 {
		parts = append(parts, fmt.Sprintf("%d missing: ", n)+human.Few(w.Missing))
	}
	return human.Line(strings.Join(parts, "; "))
}

// summaryText counts the tasks of a run that has ended.
func summaryText(r *runview.Report) string {
	if r.State == record.RunRunning || r.Summary == (record.Summary{}) {
		return ""
	}
	s := r.Summary
	var parts []string
	for _, c := range []struct {
		n    int64
		word string
	}{
		{s.Cached, "cached"}, {s.Completed - s.Cached, "executed"}, {s.Failed, "failed"}, {s.Skipped - r.Waits, "skipped"},
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
	b.days()
	return b, nil
}

// noteOf is what is to be said of a run beyond its status.
func noteOf(r *runview.Report) string {
	var notes []string
	if r.FailedTask != "" && r.State == record.RunFailed {
		notes = append(notes, r.FailedTask+" failed")
	}
	if r.By != "" {
		notes = append(notes, "cancelled by "+r.By)
	}
	if r.Why != "" {
		notes = append(notes, r.Why)
	}
	if r.Filter != "" {
		notes = append(notes, "filter "+r.Filter)
	}
	if r.Provenance != nil {
		notes = append(notes, "imported "+report.Whence(r.Provenance))
	}
	return strings.Join(notes, ", ")
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
type queueBody []Queue

func (s *Server) queuePage(ctx context.Context, f *frame) (body, error) {
	f.Title = "Queue"
	f.Crumbs = []crumb{{"Workspaces", f.To(viewWorkspaces)}, {"Queue", ""}}
	f.command("queue")
	s.live(f)
	list, err := s.stores.Facts.Queues(ctx)
	return queueBody(list), err
}

// measured keeps what measuring the repository has found, since that reads all of it.
type measured struct {
	mu   sync.Mutex
	at   *Store
	took time.Duration
}

// A measure is shown for so long, unless a person asks for another one; for longer where reading is paid for.
const (
	measureAgain     = 5 * time.Minute
	measureAgainPaid = time.Hour
)

func (s *Server) storePage(ctx context.Context, f *frame) (body, error) {
	f.Title = "Store"
	f.Crumbs = []crumb{{"Workspaces", f.To(viewWorkspaces)}, {"Store", ""}}
	f.Command = "e3 stats " + f.Repo() + "; e3 gc " + f.Repo() + " --dry-run"
	if f.Place.get("again") == "" { // each look would measure
		s.live(f)
	}
	s.sizes.mu.Lock()
	defer s.sizes.mu.Unlock()
	again := max(measureAgain, 60*s.sizes.took)
	if _, paced := s.stores.Records.(events.Paced); paced {
		again = measureAgainPaid
	}
	if s.sizes.at == nil || s.o.Now().Sub(s.sizes.at.At) > again || f.Place.get("again") != "" {
		began := s.o.Now()
		st, err := s.stores.Facts.Store(ctx)
		if err != nil {
			return nil, err
		}
		s.sizes.at, s.sizes.took = st, s.o.Now().Sub(began)
	}
	return s.sizes.at, nil
}

package ui

import (
	"cmp"
	"context"
	"fmt"
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

// workspaceRow is a workspace in a list.
type workspaceRow struct {
	*Workspace
	URL     string
	Status  string // of its latest run; "": none
	Summary string
	Took    time.Duration
	Outputs string
	Waits   []waiting
}

// waiting is a task that waits for approval.
type waiting struct {
	Deferred
	URL string
}

// workspacesBody is all workspaces.
type workspacesBody []workspaceRow

func (s *Server) workspacesPage(ctx context.Context, f *frame) (body, error) {
	f.Title = "Workspaces"
	f.Crumbs = []crumb{{"Workspaces", ""}}
	f.command("status")
	s.live(f)
	list, err := s.stores.Facts.Workspaces(ctx)
	if err != nil {
		return nil, err
	}
	rows := make(workspacesBody, len(list))
	for i := range list {
		w := &list[i]
		rows[i] = workspaceRow{Workspace: w, URL: f.To(viewRun, "w", w.Name), Outputs: outputsText(w)}
		if r := w.Run; r != nil {
			rows[i].Status, rows[i].Summary, rows[i].Took = r.Status(), summaryText(r), r.RanFor(s.o.Now())
		} else {
			rows[i].URL = f.To(viewHistory, "w", w.Name)
		}
		for _, d := range w.Deferred {
			rows[i].Waits = append(rows[i].Waits, waiting{d, f.To(viewTask, "w", w.Name, "t", d.Task)})
		}
	}
	return rows, nil
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
	}{{s.Cached, "cached"}, {s.Completed - s.Cached, "executed"}, {s.Failed, "failed"}, {s.Skipped - r.Waits, "skipped"}, {r.Waits, "waiting"}} {
		if c.n > 0 {
			parts = append(parts, human.Count(c.n, "task")+" "+c.word)
		}
	}
	return strings.ReplaceAll(strings.ReplaceAll(strings.Join(parts, ", "), " tasks", ""), " task", "")
}

// pastRun is a run in a history.
type pastRun struct {
	*runview.Report
	Status  string
	Class   string
	URL     string
	Took    time.Duration
	Timed   bool
	Summary string
	By      string
	Compare string // with the run before
	Notes   string
}

type historyBody struct {
	Runs   []pastRun
	More   string // address with more of them
	Plot   h.Node // durations
	Days   []day
	Status string
	Words  []tab
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
	b := &historyBody{Status: f.Place.get("status")}
	most := mostRuns
	if f.Place.get("all") != "" {
		most = 2_000
	}
	f.command("history", human.Quoted(f.Workspace), "--last", human.Quoted(itoa(most)), flag("--status", b.Status))
	for r, err := range s.stores.Runs.List(ctx, f.Workspace) {
		if err != nil {
			return nil, err
		}
		if b.Status != "" && r.Status() != b.Status {
			continue
		}
		if len(b.Runs) == most {
			b.More = f.With("all", "1")
			break
		}
		b.Runs = append(b.Runs, s.pastRun(f, r))
	}
	for i := range b.Runs {
		if i+1 < len(b.Runs) && b.Status == "" {
			b.Runs[i].Compare = f.To(viewCompare, "w", f.Workspace, "a", f.Workspace+"@"+b.Runs[i+1].RunID, "b", "@"+b.Runs[i].RunID)
		}
	}
	b.draw()
	for _, word := range []string{"", "completed", "failed", "cancelled", "waits", "crashed", "running"} {
		b.Words = append(b.Words, tab{cmp.Or(word, "all"), f.With("status", word), b.Status == word})
	}
	return b, nil
}

func (s *Server) pastRun(f *frame, r *runview.Report) pastRun {
	p := pastRun{
		Report: r, Status: r.Status(), Class: report.RunClass(r), URL: f.To(viewRun, "w", f.Workspace, "r", r.RunID),
		Took: r.RanFor(s.o.Now()), Timed: r.State != record.RunRunning || r.Live, Summary: summaryText(r),
	}
	p.By = human.Line(r.Process.Who())
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
	p.Notes = human.Line(strings.Join(notes, ", "))
	return p
}

// draw makes the bars of durations and of days.
func (b *historyBody) draw() {
	var points []point
	counts := map[string]map[string]int{}
	for i := len(b.Runs) - 1; i >= 0; i-- {
		r := &b.Runs[i]
		if r.State != record.RunRunning {
			points = append(points, point{at: r.StartedAt, value: r.Took.Seconds(), state: r.Class, url: r.URL, text: human.Duration(r.Took)})
		}
		date := r.StartedAt.Local().Format(time.DateOnly)
		if counts[date] == nil {
			counts[date] = map[string]int{}
			b.Days = append(b.Days, day{Date: date})
		}
		counts[date][r.Class]++
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
	b.Plot = plotOf(points, func(v float64) string { return human.Duration(time.Duration(v * float64(time.Second))) })
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

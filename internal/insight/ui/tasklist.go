package ui

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"e3/internal/format/notation"
	"e3/internal/insight/report"
	"e3/internal/insight/runview"
)

// taskList is a part of the tasks of a run: those that pass the filter of the address, in its order.
type taskList struct {
	Q, Status, Reason, Over string // the filter
	Sort                    string // a column, with - in front: descending
	By                      string // family: items of a matrix as one line
	Statuses                []string
	Columns                 []column
	Rows                    []row
	Families                []family
	Found, All              int
	First, Last             int // numbers of the rows shown
	Prev, Next              string
	Clear                   string // address without the filter
	Folded, Unfolded        string // addresses with families as lines, and without
	Whole                   bool   // all tasks, with their executions: a file
}

// column is the head of a column, with the address that sorts by it.
type column struct {
	Name, Class string
	URL, Sorted string // Sorted: ascending, descending or ""
}

// listColumns are the columns of a list of tasks. Those without a key cannot be sorted by: only the executions of the lines shown are read.
var listColumns = []struct{ name, key, class, first string }{ // first: the order of the first click
	{"Task", "task", "", ""}, {"Status", "status", "", ""}, {"Duration", "duration", "num", "-"}, {"Memory", "", "num opt", ""}, {"Cores", "", "num opt", ""},
	{"Started", "started", "when", ""}, {"Attempt", "attempt", "num opt", "-"}, {"Note", "", "", ""},
}

// family is the items of a matrix.
type family struct {
	Name   string
	URL    string
	Count  int
	Shares []report.Share
	Took   time.Duration // together
	Worst  time.Duration
}

func (s *Server) taskList(ctx context.Context, f *frame, m *model) (*taskList, error) {
	p := f.Place
	l := &taskList{Q: p.get("q"), Status: p.get("status"), Reason: p.get("reason"), Over: p.get("over"), Sort: p.get("sort"), By: p.get("by"), All: len(m.report.Tasks)}
	l.Folded, l.Unfolded = f.With("by", "family", "page", ""), f.With("by", "", "page", "")
	l.Clear = f.With("q", "", "status", "", "reason", "", "over", "", "page", "")
	over := time.Duration(0)
	if l.Over != "" {
		d, err := notation.DurationOf(l.Over)
		if err != nil {
			return nil, fmt.Errorf("%w: a duration %q; write it as 90s or 5m", errAsked, l.Over)
		}
		over = d
	}
	word := strings.ToLower(l.Q)
	tasks := m.report.Tasks
	seen := map[string]bool{}
	found := make([]int, 0, len(tasks))
	for i := range tasks {
		t := &tasks[i]
		state := report.StateOf(t)
		seen[state] = true
		if l.Status != "" && state != l.Status || word != "" && !strings.Contains(strings.ToLower(t.Task), word) ||
			over > 0 && (ranFor(t) < over) || l.Reason != "" && !strings.Contains(strings.ToLower(t.Reason+" "+t.Message+" "+t.Because), strings.ToLower(l.Reason)) {
			continue
		}
		found = append(found, i)
	}
	l.statuses(seen)
	l.Found = len(found)
	if l.By == "family" {
		l.families(f, tasks, found)
		return l, nil
	}
	if err := l.order(f, tasks, found); err != nil {
		return nil, err
	}
	page, err := l.page(f)
	if err != nil {
		return nil, err
	}
	shown := found[min(page*maxRows, len(found)):min((page+1)*maxRows, len(found))]
	part := make([]runview.TaskReport, len(shown))
	for k, i := range shown {
		part[k] = tasks[i]
	}
	if err := m.complete(ctx, s.stores, part); err != nil {
		return nil, err
	}
	l.Rows = rowsOf(f, part)
	return l, nil
}

// statuses sets the states to choose from.
func (l *taskList) statuses(seen map[string]bool) {
	for _, sh := range report.Shares(counted(seen)) {
		l.Statuses = append(l.Statuses, sh.State)
	}
}

// ranFor is how long a task ran in this run; a cached one has not.
func ranFor(t *runview.TaskReport) time.Duration {
	if t.State == runview.TaskCached || !t.Took() {
		return 0
	}
	return t.Duration.Duration()
}

func counted(seen map[string]bool) map[string]int {
	counts := map[string]int{}
	for s := range seen {
		counts[s] = 1
	}
	return counts
}

// order sorts the found tasks, and sets the heads of the columns.
func (l *taskList) order(f *frame, tasks []runview.TaskReport, found []int) error {
	key, down := strings.CutPrefix(l.Sort, "-")
	less := map[string]func(a, b *runview.TaskReport) int{
		"":         nil,
		"task":     func(a, b *runview.TaskReport) int { return cmp.Compare(a.Task, b.Task) },
		"status":   func(a, b *runview.TaskReport) int { return cmp.Compare(report.StateOf(a), report.StateOf(b)) },
		"duration": func(a, b *runview.TaskReport) int { return cmp.Compare(ranFor(a), ranFor(b)) },
		"started":  func(a, b *runview.TaskReport) int { return a.StartedAt.Compare(b.StartedAt.Time) },
		"attempt":  func(a, b *runview.TaskReport) int { return cmp.Compare(a.Attempt, b.Attempt) },
	}
	by, ok := less[key]
	if !ok {
		return errAsked
	}
	if by != nil {
		slices.SortStableFunc(found, func(i, j int) int {
			if down {
				i, j = j, i
			}
			return by(&tasks[i], &tasks[j])
		})
	}
	for _, c := range listColumns {
		col := column{Name: c.name, Class: c.class}
		if c.key != "" {
			col.URL = f.With("sort", c.first+c.key, "page", "")
		}
		if c.key != "" && c.key == key {
			col.Sorted = "ascending"
			next := "-" + key
			if down {
				col.Sorted, next = "descending", key
			}
			col.URL = f.With("sort", next, "page", "")
		}
		l.Columns = append(l.Columns, col)
	}
	return nil
}

// page is the number of the page, from 0.
func (l *taskList) page(f *frame) (int, error) {
	page := 0
	if text := f.Place.get("page"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return 0, errAsked
		}
		page = n - 1
	}
	last := max(l.Found-1, 0) / maxRows
	page = min(page, last)
	l.First, l.Last = min(page*maxRows+1, l.Found), min((page+1)*maxRows, l.Found)
	if page > 0 {
		l.Prev = f.With("page", strconv.Itoa(page))
	}
	if page < last {
		l.Next = f.With("page", strconv.Itoa(page+2))
	}
	return page, nil
}

// families folds the items of each matrix into a line.
func (l *taskList) families(f *frame, tasks []runview.TaskReport, found []int) {
	counts := map[string]map[string]int{}
	at := map[string]int{}
	for _, i := range found {
		t := &tasks[i]
		name, _, item := strings.Cut(t.Task, "[")
		if counts[name] == nil {
			counts[name] = map[string]int{}
			at[name] = len(l.Families)
			url := taskURL(f, t.Task)
			if item {
				url = f.With("by", "", "q", name+"[", "page", "")
			}
			l.Families = append(l.Families, family{Name: name, URL: url})
		}
		fam := &l.Families[at[name]]
		fam.Count++
		took := ranFor(t)
		fam.Took, fam.Worst = fam.Took+took, max(fam.Worst, took)
		counts[name][report.StateOf(t)]++
	}
	for i := range l.Families {
		l.Families[i].Shares = report.Shares(counts[l.Families[i].Name])
	}
	if len(l.Families) > maxKeptFamilies {
		l.Families = l.Families[:maxKeptFamilies]
	}
}

const maxKeptFamilies = 2_000

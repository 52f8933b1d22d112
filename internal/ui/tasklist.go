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

// taskList is the tasks of a run that pass the filter of the address, in its order.
type taskList struct {
	Statuses   []string
	Rows       []row
	Families   []family // items of a matrix as one line, if the address asks for that
	Found, All int
	Page       int  // the number of the page, from 1
	Whole      bool // all tasks, with their executions: a file
}

// column is a column of a table. A column without a key cannot be sorted by: in a list of tasks, only the executions of
// the lines shown are read.
type column struct{ name, key, class, first string } // first: of the order of the first click

// listColumns are the columns of a list of tasks.
var listColumns = []column{
	{"Task", "task", "", ""}, {"Status", "status", "", ""}, {"Duration", "duration", "num", "-"},
	{"Memory", "", "num opt", ""}, {"Cores", "", "num opt", ""}, {"Started", "started", "when", ""},
	{"Attempt", "attempt", "num opt", "-"}, {"Note", "", "", ""},
}

// family is the items of a matrix.
type family struct {
	Name   string
	Task   string // the first item
	Count  int
	Shares []report.Share
	Took   time.Duration // together
	Worst  time.Duration
}

func (s *Server) taskList(ctx context.Context, f *frame, m *model) (*taskList, error) {
	p := f.Place
	l := &taskList{All: len(m.report.Tasks)}
	over := time.Duration(0)
	if text := p.get("over"); text != "" {
		d, err := notation.DurationOf(text)
		if err != nil {
			return nil, fmt.Errorf("%w: a duration %q; write it as 90s or 5m", errAsked, text)
		}
		over = d
	}
	word, status, reason := strings.ToLower(p.get("q")), p.get("status"), strings.ToLower(p.get("reason"))
	tasks := m.report.Tasks
	seen := map[string]bool{}
	found := make([]int, 0, len(tasks))
	for i := range tasks {
		t := &tasks[i]
		state := report.StateOf(t)
		seen[state] = true
		if status != "" && state != status || word != "" && !strings.Contains(strings.ToLower(t.Task), word) ||
			over > 0 && (ranFor(t) < over) || !strings.Contains(strings.ToLower(t.Reason+" "+t.Message+" "+t.Because), reason) {
			continue
		}
		found = append(found, i)
	}
	l.statuses(seen)
	l.Found = len(found)
	if p.get("by") == "family" {
		l.families(tasks, found)
		return l, nil
	}
	if err := order(p.get("sort"), tasks, found); err != nil {
		return nil, err
	}
	if err := l.page(p.get("page")); err != nil {
		return nil, err
	}
	shown := found[min((l.Page-1)*maxRows, len(found)):min(l.Page*maxRows, len(found))]
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

// ranFor is how long a task ran in this run; 0 for a cached task.
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

// order sorts the found tasks by a column.
func order(by string, tasks []runview.TaskReport, found []int) error {
	key, down := strings.CutPrefix(by, "-")
	compare, ok := map[string]func(a, b *runview.TaskReport) int{
		"":         func(_, _ *runview.TaskReport) int { return 0 },
		"task":     func(a, b *runview.TaskReport) int { return cmp.Compare(a.Task, b.Task) },
		"status":   func(a, b *runview.TaskReport) int { return cmp.Compare(report.StateOf(a), report.StateOf(b)) },
		"duration": func(a, b *runview.TaskReport) int { return cmp.Compare(ranFor(a), ranFor(b)) },
		"started":  func(a, b *runview.TaskReport) int { return a.StartedAt.Compare(b.StartedAt.Time) },
		"attempt":  func(a, b *runview.TaskReport) int { return cmp.Compare(a.Attempt, b.Attempt) },
	}[key]
	if !ok {
		return errAsked
	}
	slices.SortStableFunc(found, func(i, j int) int {
		if down {
			i, j = j, i
		}
		return compare(&tasks[i], &tasks[j])
	})
	return nil
}

// page sets the number of the page.
func (l *taskList) page(text string) error {
	n, err := strconv.Atoi(cmp.Or(text, "1"))
	if err != nil || n < 1 {
		return errAsked
	}
	l.Page = min(n, l.pages())
	return nil
}

func (l *taskList) pages() int { return max(l.Found-1, 0)/maxRows + 1 }

// families folds the items of each matrix into a line.
func (l *taskList) families(tasks []runview.TaskReport, found []int) {
	counts := map[string]map[string]int{}
	at := map[string]int{}
	for _, i := range found {
		t := &tasks[i]
		name, _, _ := strings.Cut(t.Task, "[")
		if counts[name] == nil {
			counts[name] = map[string]int{}
			at[name] = len(l.Families)
			l.Families = append(l.Families, family{Name: name, Task: t.Task})
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

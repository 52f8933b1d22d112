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
	Families   []runview.Family // items of a matrix as one line, if the address asks for that
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
		state := t.Shown()
		seen[state] = true
		if status != "" && state != status || word != "" && !strings.Contains(strings.ToLower(t.Task), word) ||
			over > 0 && t.Ran() < over || !strings.Contains(strings.ToLower(t.Reason+" "+t.Message+" "+t.Because), reason) {
			continue
		}
		found = append(found, i)
	}
	l.statuses(seen)
	l.Found = len(found)
	if p.get("by") == "family" {
		l.Families = runview.Families(func(yield func(*runview.TaskReport) bool) {
			for _, i := range found {
				if !yield(&tasks[i]) {
					return
				}
			}
		})
		l.Families = l.Families[:min(len(l.Families), maxKeptFamilies)]
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
		"status":   func(a, b *runview.TaskReport) int { return cmp.Compare(a.Shown(), b.Shown()) },
		"duration": func(a, b *runview.TaskReport) int { return cmp.Compare(a.Ran(), b.Ran()) },
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

const maxKeptFamilies = 2_000

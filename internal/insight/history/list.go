package history

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"e3/internal/events"
	"e3/internal/format/moment"
	"e3/internal/format/record"
	"e3/internal/human"
	"e3/internal/insight/runview"
)

// A Filter selects runs, or attempts of tasks. The zero value selects all.
type Filter struct {
	Since, Until time.Time // when it began
	Failed       bool      // only what failed, was cancelled or interrupted
	Status       []string
	Exit         []int64 // attempts with one of these exit codes; 128 plus a signal's number: ended by that signal
	By           string  // the user and the machine, or a pattern
	Run          string  // the beginning of the run's id
	Last         int     // number of latest entries that are shown; 0: all
	Whole        bool    // entries that are not shown are read too, for a plot
}

// matches reports whether an entry passes the filter.
func (f *Filter) matches(status string, bad bool, at time.Time, by string) bool {
	return (f.Since.IsZero() || !at.Before(f.Since)) && (f.Until.IsZero() || at.Before(f.Until)) &&
		(!f.Failed || bad) && (len(f.Status) == 0 || slices.Contains(f.Status, status)) &&
		(f.By == "" || events.MatchWorker(f.By, by))
}

// ofRun reports whether the filter names a run.
func (f *Filter) ofRun(run string) bool { return strings.HasPrefix(run, strings.ToLower(f.Run)) }

// wantsRun reports whether a run passes the filter.
func (f *Filter) wantsRun(r *runview.Report) bool {
	bad := r.State != record.RunCompleted && !r.Live && r.Waits == 0
	return f.ofRun(r.RunID) && f.matches(r.Status(), bad, r.StartedAt, r.Process.Who())
}

// wants reports whether an attempt passes the filter.
func (f *Filter) wants(a *Attempt) bool {
	if !f.ofRun(a.MadeBy) && !slices.ContainsFunc(a.Runs, f.ofRun) {
		return false
	}
	if code, known := a.exitCode(); len(f.Exit) > 0 && (!known || !slices.Contains(f.Exit, code)) {
		return false
	}
	bad := a.Status == runview.TaskFailed || a.Status == runview.TaskError || a.Status == runview.TaskInterrupted
	return f.matches(string(a.Status), bad, a.At(), a.Worker)
}

// exitCode is the exit code of an attempt's command as a shell tells it: 128 and the number of the signal that ended it.
func (a *Attempt) exitCode() (code int64, known bool) {
	switch a.Status {
	case runview.TaskSuccess, runview.TaskFailed:
		return a.ExitCode, true
	case runview.TaskError:
		if e := a.Execution; e != nil && e.Detail != nil {
			number, _, _ := strings.Cut(e.Detail.Signal, " ")
			n, err := strconv.ParseInt(number, 10, 64)
			return 128 + n, err == nil
		}
	}
	return 0, false
}

// few is the number of the latest entries that have to be read; 0 is all.
func (f *Filter) few() int {
	if f.Whole {
		return 0
	}
	return f.Last
}

// latest returns the entries that are shown, and the number of those left out.
func latest[T any](list []T, last int) ([]T, int) {
	if last == 0 || len(list) <= last {
		return list, 0
	}
	return list[:last], len(list) - last
}

// A Point is the duration of a run or of an attempt.
type Point struct {
	At     moment.Time   `json:"at"`
	Took   moment.Millis `json:"ms"`
	Status string        `json:"status"`
	Bad    bool          `json:"-"` // it did not succeed
}

// RunList is the history of a workspace.
type RunList struct {
	Workspace string         `json:"workspace"`
	Total     *int           `json:"total,omitempty"` // matching entries; absent if not all were read
	More      bool           `json:"more,omitempty"`  // earlier ones are not shown
	Runs      []runview.Past `json:"runs"`
	Durations []Point        `json:"durations"` // of all matching entries, oldest first

	Shown   []*runview.Report `json:"-"` // Runs
	Left    int               `json:"-"` // number of runs that are not shown; unknown if Partial
	Partial bool              `json:"-"` // not all were read
}

// Runs lists the runs of a workspace, the latest first.
func Runs(ctx context.Context, runs *runview.Runs, ws string, f *Filter) (*RunList, error) {
	var all []*runview.Report
	l := &RunList{Workspace: ws, Runs: []runview.Past{}, Durations: []Point{}}
	for run, err := range runs.List(ctx, ws) {
		if err != nil {
			return nil, err
		}
		if f.wantsRun(run) {
			all = append(all, run)
		}
		if few := f.few(); few > 0 && len(all) > few {
			l.Partial, all = true, all[:few]
			break
		}
	}
	now := runs.Now()
	for _, run := range slices.Backward(all) {
		if run.State != record.RunRunning {
			l.Durations = append(l.Durations, Point{
				moment.At(run.StartedAt), moment.Millis(run.RanFor(now)), run.Status(), run.State != record.RunCompleted,
			})
		}
	}
	l.Shown, l.Left = latest(all, f.Last)
	if n := len(all); !l.Partial {
		l.Total = &n
	}
	l.More = l.Partial || l.Left > 0
	for _, run := range l.Shown {
		l.Runs = append(l.Runs, run.Past(now))
	}
	return l, nil
}

// TaskLists are the histories of tasks of a workspace.
type TaskLists struct {
	Workspace string        `json:"workspace"`
	Tasks     []TaskList    `json:"tasks"`
	Damaged   []human.Fault `json:"damaged,omitempty"` // logs with damaged lines
}

// TaskList is the history of a task.
type TaskList struct {
	Task      string      `json:"task"`
	Total     *int        `json:"total,omitempty"` // matching entries; absent if not all were read
	More      bool        `json:"more,omitempty"`  // earlier ones are not shown
	Attempts  []Entry     `json:"attempts"`
	Created   *Appearance `json:"created,omitempty"` // absent if not all runs were read
	Durations []Point     `json:"durations"`         // of all matching entries, oldest first

	Shown   []Attempt `json:"-"` // Attempts
	Left    int       `json:"-"` // number of attempts that are not shown
	Partial bool      `json:"-"` // earlier attempts exist and were not read
	Workers int       `json:"-"` // number of different workers of all matching attempts
}

// Tasks lists the attempts of a task, or of the tasks that match a pattern of * and ?. A name that history does not
// know is an error. deep also searches all executions of the repository.
func Tasks(ctx context.Context, s Stores, ws, task string, deep bool, f *Filter) (*TaskLists, error) {
	single := !events.IsPattern(task)
	q := Query{Workspace: ws, Deep: deep, NotStarted: true, Pattern: task}
	if single {
		q.Tasks, q.Pattern = []string{task}, ""
	}
	found, err := s.attempts(ctx, q, f)
	if err != nil {
		return nil, err
	}
	l := &TaskLists{Workspace: ws, Tasks: []TaskList{}, Damaged: human.Faults(found.Damaged)}
	for _, t := range found.Tasks {
		all := slices.DeleteFunc(t.Attempts, func(a Attempt) bool { return !f.wants(&a) })
		if len(all) > 0 || single {
			l.Tasks = append(l.Tasks, taskList(&t, all, found.Partial, f))
		}
	}
	return l, nil
}

// taskList is the history of a task, whose matching attempts are all.
func taskList(t *Task, all []Attempt, partial bool, f *Filter) TaskList {
	l := TaskList{Task: t.Name, Partial: partial, Created: t.Appeared, Attempts: []Entry{}, Durations: []Point{}}
	workers := map[string]bool{}
	for i := range all {
		workers[all[i].Worker] = true
	}
	l.Workers = len(workers)
	l.Shown, l.Left = latest(all, f.Last)
	l.More = l.Left > 0
	drawn := all
	if partial {
		drawn = l.Shown
	} else {
		n := len(all)
		l.Total = &n
	}
	for i := range l.Shown {
		l.Attempts = append(l.Attempts, l.Shown[i].Entry())
	}
	for i := range slices.Backward(drawn) {
		if a := &drawn[i]; a.Timed {
			l.Durations = append(l.Durations, Point{moment.At(a.At()), moment.Millis(a.Duration), string(a.Status), a.Status != runview.TaskSuccess})
		}
	}
	return l
}

// attempts finds the attempts of tasks; an unknown name, or a pattern that matches no task, is an error.
func (s Stores) attempts(ctx context.Context, q Query, f *Filter) (*Found, error) {
	found, err := Latest(ctx, s, q, f.few(), f.wants)
	if err != nil {
		return nil, err
	}
	some := func() bool {
		return slices.ContainsFunc(found.Tasks, func(t Task) bool { return len(t.Attempts) > 0 })
	}
	if some() {
		return found, nil
	}
	// The name is unknown, unless a package has the task and it was never executed.
	packaged, err := s.Runs.AllTaskHashes(ctx, q.Workspace)
	if err != nil {
		return nil, err
	}
	asked := cmp.Or(q.Pattern, strings.Join(q.Tasks, ", "))
	for name := range packaged {
		if slices.Contains(q.Tasks, name) || q.Pattern != "" && events.Match(q.Pattern, name) {
			return found, nil
		}
	}
	if !q.Deep {
		q.Deep = true
		if found, err = Find(ctx, s, q); err != nil || some() {
			return found, err
		}
	}
	every, err := Find(ctx, s, Query{Workspace: q.Workspace, Pattern: "*"})
	if err != nil {
		return nil, err
	}
	unknown := &human.UnknownError{What: "task", Name: asked}
	for _, t := range every.Tasks {
		unknown.Known = append(unknown.Known, t.Name)
	}
	if len(unknown.Known) == 0 {
		if _, err := s.Runs.Workspaces.State(ctx, q.Workspace); err != nil {
			return nil, err
		}
	}
	return nil, unknown
}

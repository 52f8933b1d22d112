package runview

import (
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"e3/internal/format/moment"
	"e3/internal/human"
)

// Now is what a run at work does, and what is expected of it.
type Now struct {
	Left     *moment.Millis `json:"leftMs,omitempty"`   // until it ends; absent: nothing is known
	AtLeast  bool           `json:"atLeast,omitempty"`  // leftMs is a lower bound
	Cores    int            `json:"cores,omitempty"`    // that its commands may use together; absent: they run at workers
	Running  []Working      `json:"running"`            // since longest first, at most 100
	Unlisted int            `json:"unlisted,omitempty"` // further ones
	Waits    []WaitFor      `json:"waits"`              // at most 50 groups
	Next     []Turn         `json:"next"`               // the next commands, in order
	Families []Family       `json:"families"`           // at most 200, those at work first
	Text     string         `json:"-"`                  // Left in words; "" for none
}

// Stands says what the run waits for while no command is at work and none can begin: WaitsApproval or WaitsWorker; "" else.
func (n *Now) Stands() string {
	if n == nil || len(n.Running) > 0 {
		return ""
	}
	why := ""
	for i := range n.Waits {
		switch w := &n.Waits[i]; w.For {
		case WaitsInput:
		case WaitsApproval, WaitsWorker:
			if why == "" || w.For == WaitsWorker { // approvals may be of no use for long, a worker is of use now
				why = w.For
			}
		default:
			return ""
		}
	}
	return why
}

// StandsFor is what waits of a run are for, as the word of its status: "waits for a worker".
func StandsFor(why string) string {
	return "waits for " + strings.TrimPrefix(awaited(why, ""), "a person's ")
}

// Working is a task whose command is at work.
type Working struct {
	Task    string      `json:"task"`
	State   TaskState   `json:"state"` // running, or claimed
	Since   moment.Time `json:"since"`
	Ends    moment.Time `json:"expectedEnd,omitzero"` // absent: unknown
	Memory  int64       `json:"memory,omitempty"`     // bytes that it asks for
	Cores   float64     `json:"cores,omitempty"`      // that it asks for
	Worker  string      `json:"worker,omitempty"`     // user@host; absent: the run's process
	Attempt int64       `json:"attempt,omitempty"`
}

// A WaitFor is a group of tasks that wait for the same.
type WaitFor struct {
	For   string      `json:"for"`          // cores, memory, resource, worker, approval, attempt, or input
	Of    string      `json:"of,omitempty"` // the resource; the task, or family of tasks, that makes the input
	Tasks int         `json:"tasks"`
	First []string    `json:"first"`          // the first of them
	Since moment.Time `json:"since,omitzero"` // of the first approval
}

// Values of WaitFor.For beside the limits of the run's process.
const (
	WaitsResource = "resource"
	WaitsWorker   = "worker"
	WaitsApproval = "approval"
	WaitsAttempt  = "attempt"
	WaitsInput    = "input"
	WaitsTurn     = "turn"  // of a wait that has ended: cores, memory or a resource, which events do not tell apart
	WaitsStore    = "store" // it did not answer
)

// Text is what is waited for, in words.
func (w *WaitFor) Text() string { return "for " + awaited(w.For, w.Of) }

// awaited is what is waited for, in words.
func awaited(why, of string) string {
	switch why {
	case WaitsResource:
		return of
	case WaitsWorker:
		return "a worker"
	case WaitsApproval:
		return "a person's approval"
	case WaitsAttempt:
		return "the next attempt"
	case WaitsInput:
		return "what " + of + " makes"
	case WaitsTurn:
		return "cores, memory or a resource"
	case WaitsStore:
		return "the repository, which did not answer"
	}
	return why
}

// A Turn is a command that is next.
type Turn struct {
	Task string      `json:"task"`
	At   moment.Time `json:"expectedBegin"`
}

// A Family is the items of a matrix, or a task that is none.
type Family struct {
	Name    string            `json:"family"`
	Tasks   int               `json:"tasks"`
	States  map[TaskState]int `json:"states"`    // how many tasks are in each; "waits": had no turn yet, "allowed": failed as they may
	Took    moment.Millis     `json:"ms"`        // of the commands in this run, together
	Longest moment.Millis     `json:"longestMs"` // of them
	Task    string            `json:"-"`         // the first
}

// Text is what the family has done, in words.
func (f *Family) Text() string {
	ended := f.Tasks
	for _, s := range [...]TaskState{TaskWaits, TaskReady, TaskClaimed, TaskRunning, TaskDeferred, TaskRetrying, TaskQueued} {
		ended -= f.States[s]
	}
	text := fmt.Sprintf("%d of %d done", ended, f.Tasks)
	for _, s := range [...]TaskState{TaskFailed, TaskError, TaskAllowed, TaskSkipped, TaskCached, TaskRunning, TaskClaimed, TaskRetrying, TaskDeferred} {
		if n := f.States[s]; n > 0 {
			text += fmt.Sprintf(", %d %s", n, s)
		}
	}
	if f.Took > 0 {
		text += fmt.Sprintf("; %s together", human.Duration(f.Took.Duration()))
	}
	return text
}

// The states by which people see a task, besides those of its run (Shown).
const (
	TaskWaits   TaskState = "waits"   // it had no turn yet
	TaskAllowed TaskState = "allowed" // it has failed, as it may
)

// Families folds tasks into families, in the order of their first tasks.
func Families(tasks iter.Seq[*TaskReport]) []Family {
	var list []Family
	at := map[string]int{}
	for t := range tasks {
		name := FamilyOf(t.Task)
		i, ok := at[name]
		if !ok {
			i = len(list)
			at[name] = i
			list = append(list, Family{Name: name, Task: t.Task, States: map[TaskState]int{}})
		}
		f := &list[i]
		f.Tasks++
		f.States[TaskState(t.Shown())]++
		took := moment.Millis(t.Ran())
		f.Took, f.Longest = f.Took+took, max(f.Longest, took)
	}
	return list
}

// Ran is how long a task ran in this run, until now if it still does; 0 for a cached task.
func (t *TaskReport) Ran() time.Duration {
	if t.State == TaskCached || !t.Took() {
		return 0
	}
	return t.Duration.Duration()
}

// AtWorkFirst orders families: those that have commands at work, those that have not ended, the others.
func AtWorkFirst(list []Family) {
	order := func(f *Family) int {
		switch {
		case f.States[TaskRunning]+f.States[TaskClaimed] > 0:
			return 0
		case f.States[TaskWaits]+f.States[TaskReady]+f.States[TaskRetrying]+f.States[TaskDeferred] > 0:
			return 1
		}
		return 2
	}
	slices.SortStableFunc(list, func(a, b Family) int { return order(&a) - order(&b) })
}

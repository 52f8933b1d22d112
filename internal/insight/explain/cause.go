package explain

import (
	"strings"
	"time"

	"e3/internal/human"
)

// Kind is the sort of a cause. Its values never change.
type Kind string

// Kinds of differences between a key and the key of the nearest earlier success.
const (
	Command      Kind = "command"
	Environment  Kind = "environment" // a variable, or a matrix constant
	Version      Kind = "version"
	Room         Kind = "room"
	Batch        Kind = "batch"    // whether one command serves several items
	Image        Kind = "image"    // the image whose files a closed room shows
	Programs     Kind = "programs" // how the environment of its programs is made
	Input        Kind = "input"    // the content of an input of the package
	Made         Kind = "made"     // the content of an upstream task's output
	InputAdded   Kind = "input added"
	InputRemoved Kind = "input removed"
	InputRenamed Kind = "input renamed"
	InputPath    Kind = "input path"   // where the input is staged
	InputKind    Kind = "input kind"   // file, executable file, directory, value
	InputSource  Kind = "input source" // another task, entry or input feeds it
	ItemAdded    Kind = "item added"   // of a fan-in
	ItemRemoved  Kind = "item removed"
	Output       Kind = "output"     // its declaration
	Definition   Kind = "definition" // of the task object: order of its parts, or a part that is gone
	Unknown      Kind = "unknown"    // the evidence is no longer here
)

// Outcomes of earlier executions of the same key.
const (
	Forced           Kind = "forced"
	Rerun            Kind = "rerun" // verify --rerun
	Nondeterministic Kind = "nondeterministic"
	Rejected         Kind = "rejected"
	Untrusted        Kind = "untrusted" // no trusted key has signed it
	Pruned           Kind = "pruned"
	OutputGone       Kind = "output gone"
	Unreadable       Kind = "unreadable" // its record cannot be read
	RecordGone       Kind = "record gone"
	FailedBefore     Kind = "failed before"
	Retry            Kind = "retry"
	RunsNow          Kind = "running"
)

// Kinds of ends of an execution.
const (
	ExitCode  Kind = "exit code"
	Suspended Kind = "suspended" // it has suspended itself, and was not approved since
	Signal    Kind = "signal"
	TimedOut  Kind = "timeout"
	Cancelled Kind = "cancelled"
	Crashed   Kind = "crashed" // the e3 that ran it died
	BadOutput Kind = "bad output"
	NoStart   Kind = "no start"
	Fault     Kind = "fault" // of e3 or its stores
)

// Other kinds.
const (
	NeverRan Kind = "never ran"
	Renamed  Kind = "renamed" // it ran under another name
	NoValue  Kind = "no value"
	Lacking  Kind = "lacking" // the content of an input is not here
	Twin     Kind = "twin"    // another task of the package has the same key
	Waiting  Kind = "waits"
	NoCause  Kind = ""
)

// A Cause is one thing that changed or happened.
type Cause struct {
	Kind      Kind      `json:"kind"`
	Workspace string    `json:"workspace,omitempty"`
	Task      string    `json:"task,omitempty"`    // this task, or one upstream
	Subject   string    `json:"subject,omitempty"` // the variable, input, item, output
	Path      string    `json:"path,omitempty"`    // the first file in it
	Execution string    `json:"execution,omitempty"`
	Text      string    `json:"text"` // one line, without the name of the task
	At        time.Time `json:"at,omitzero"`
	By        string    `json:"by,omitempty"`
	Reason    string    `json:"why,omitempty"`
}

// String describes the cause in one line. A caller that prints it on a terminal makes the names in it safe.
func (c Cause) String() string { return c.Text }

// about reports whether two causes are about the same thing.
func (c *Cause) about(d *Cause) bool {
	if c.Kind != d.Kind || c.Workspace != d.Workspace || c.Subject != d.Subject || c.Path != d.Path {
		return false
	}
	switch c.Kind {
	case Input:
		return true // of the package
	case Command, Environment, Version, Room, Image, Programs, Batch, Output, InputAdded, InputRemoved, InputRenamed, InputPath, InputKind, InputSource:
		// The items of a matrix have one declaration.
		return c.Task == d.Task || c.Text == d.Text && strings.Contains(c.Task, "[") && base(c.Task) == base(d.Task)
	}
	return c.Task == d.Task
}

// base is the name of a task without the label of its item.
func base(task string) string {
	name, _, _ := strings.Cut(task, "[")
	return name
}

// roots are the causes at the ends of the chains below r, each once.
func (r *Reason) roots() []Cause {
	var list []Cause
	r.collect(&list, map[*Reason]bool{})
	return list
}

func (r *Reason) collect(list *[]Cause, seen map[*Reason]bool) {
	if r == nil || seen[r] {
		return
	}
	seen[r] = true
	if r.see != nil {
		r.see.collect(list, seen)
		return
	}
	add := func(c Cause) {
		for i := range *list {
			if (*list)[i].about(&c) {
				return
			}
		}
		*list = append(*list, c)
	}
	if r.final || len(r.Differences) == 0 && len(r.Upstream) == 0 {
		add(r.Cause)
		return
	}
	for i := range r.Differences {
		if d := &r.Differences[i]; d.Part != Made {
			add(d.cause(r.Workspace, r.Task))
		}
	}
	for _, u := range r.Upstream {
		u.collect(list, seen)
	}
	if len(*list) == 0 {
		add(r.Cause)
	}
}

// chain names the tasks from the root's down to r's, upstream first. It is empty if the root is r's own cause.
func (r *Reason) chain(root *Cause) []string {
	seen := map[*Reason]bool{}
	var walk func(*Reason) []string
	walk = func(r *Reason) []string {
		if r == nil || seen[r] {
			return nil
		}
		seen[r] = true
		if r.see != nil {
			return walk(r.see)
		}
		own := r.final && r.Cause.about(root)
		if !r.final {
			for i := range r.Differences {
				c := r.Differences[i].cause(r.Workspace, r.Task)
				own = own || c.about(root)
			}
			own = own || len(r.Differences) == 0 && len(r.Upstream) == 0 && r.Cause.about(root)
		}
		if own {
			return []string{r.Task}
		}
		for _, u := range r.Upstream {
			if path := walk(u); path != nil {
				return append(path, r.Task)
			}
		}
		return nil
	}
	if path := walk(r); len(path) > 1 {
		return path
	}
	return nil
}

// truncateBoth shortens two differing texts around their first difference.
func truncateBoth(was, is string, most int) (string, string) {
	same := 0
	for same < len(was) && same < len(is) && was[same] == is[same] {
		same++
	}
	from := same - most/4
	for from > 0 && was[from]&0xC0 == 0x80 { // not within a character
		from--
	}
	if same < most*3/4 || max(len(was), len(is)) <= most || from <= 0 {
		return truncate(was, most), truncate(is, most)
	}
	return "…" + truncate(was[from:], most), "…" + truncate(is[from:], most)
}

// truncate shortens text to one line of limited length.
func truncate(s string, most int) string {
	return human.Truncate(strings.ReplaceAll(s, "\n", "⏎"), most)
}

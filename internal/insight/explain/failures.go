package explain

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"e3/executions"
	"e3/internal/events"
	"e3/internal/format/manifest"
	"e3/internal/format/pattern"
	"e3/internal/format/record"
	"e3/internal/human"
	"e3/internal/insight/runview"
)

// Bounds of what is told of the failures of a run. A log costs requests of a shared store, so few are read.
const (
	maxRead   = 10      // failures whose logs are read
	maxHints  = 3       // of one failure
	tailBytes = 8 << 10 // that are read at the end of a log
)

// Failures are the failures of a run: those of a family that ended alike are one group.
type Failures struct {
	Groups []FailureGroup
	More   int // failures that are in no group
}

// A FailureGroup is a failure, with others of its family that ended alike. Its texts are untrusted.
type FailureGroup struct {
	Task      string   `json:"task"` // the first
	Execution string   `json:"execution,omitempty"`
	Key       string   `json:"key,omitempty"`
	Also      []string `json:"also,omitempty"`    // others, with the same lines at the end of their logs
	Unread    int      `json:"unread,omitempty"`  // further ones that ended with the same text; their logs were not read
	Text      string   `json:"text"`              // the exit code, or the message
	Meaning   string   `json:"meaning,omitempty"` // of the text
	Allowed   string   `json:"allowed,omitempty"` // why the run does not fail for it; absent: it does
	Log       string   `json:"log,omitempty"`     // of the tail: stderr or stdout
	Tail      []string `json:"tail,omitempty"`    // the last lines
	Fault     string   `json:"fault,omitempty"`   // why its log cannot be read
	Hints     []string `json:"hints,omitempty"`   // what to do

	Shown string `json:"-"` // the state of the first task in a word for people
	Began bool   `json:"-"` // its command had begun, so that there is a folder to work in
}

// Count is the number of failures in the group.
func (g *FailureGroup) Count() int { return 1 + len(g.Also) + g.Unread }

// Tasks names the tasks of the group in few words.
func (g *FailureGroup) Tasks() string {
	if n := g.Count() - 1; n > 0 {
		return g.Task + " and " + human.Thousands(n) + " more"
	}
	return g.Task
}

// Ended says how the tasks ended, and that they may.
func (g *FailureGroup) Ended() string {
	return strings.Join(slices.DeleteFunc([]string{g.Text, g.Allowed}, func(s string) bool { return s == "" }), ", ")
}

// Said is the last line of the tail; "" without one.
func (g *FailureGroup) Said() string {
	if len(g.Tail) == 0 {
		return ""
	}
	return g.Tail[len(g.Tail)-1]
}

// Others names the other tasks of the group; "" if there are none.
func (g *FailureGroup) Others() string {
	var parts []string
	if len(g.Also) > 0 {
		parts = append(parts, "the same in "+human.Few(g.Also))
	}
	if g.Unread > 0 {
		parts = append(parts, fmt.Sprintf("%s more of %s ended with %s; their logs were not read", human.Thousands(g.Unread), runview.FamilyOf(g.Task), g.Text))
	}
	return strings.Join(parts, "; ")
}

// Onward is a command line that leads on from a failure.
type Onward struct{ To, Line string }

// Where commands lead.
const (
	ToLog   = "all of it"
	ToShell = "a shell where it failed"
)

// Commands lead on from the failure: to its whole log, and into a folder like the one in which it failed. latest says that
// the failure is of the workspace's latest run, so that the name of the task is enough.
func (g *FailureGroup) Commands(repository, ws string, latest bool) (list []Onward) {
	if g.Execution == "" || !g.Began && g.Log == "" { // nothing was to run
		return nil
	}
	name, at := human.Quoted(ws+"."+g.Task), human.Quoted(ws+"."+g.Task)
	if !latest {
		name += " --execution " + human.Short(g.Execution)
		at = "@" + human.Short(g.Execution)
	}
	if g.Log == "stderr" {
		name += " --stderr"
	}
	list = append(list, Onward{ToLog, "e3 logs " + human.Quoted(repository) + " " + name})
	if g.Began {
		list = append(list, Onward{ToShell, "e3 shell " + human.Quoted(repository) + " " + at})
	}
	return list
}

// A FailureReader explains the failures of runs. It remembers what it has read for its last answer, so that it can be
// asked again while a run goes on. It is not safe for concurrent use.
type FailureReader struct {
	Executions *executions.Store
	Objects    Objects
	// Hints says what to do about a failure by the last lines of its log, from what this machine knows beside the
	// stores; nil: nothing.
	Hints func(ctx context.Context, ws string, t *runview.TaskReport, tail []string) []string

	ends map[string]*end // by execution
}

// end is what is known of the end of an execution.
type end struct {
	log   string
	tail  []string
	fault string
	hints []string
	asked bool // for hints
}

// Read explains the failures among tasks in at most a number of groups: first those for which the run fails. Tasks that
// were cancelled need no explanation. It reads the ends of a few logs, those of different families and texts first.
func (r *FailureReader) Read(ctx context.Context, ws string, tasks []runview.TaskReport, most int) *Failures {
	list := failed(tasks)
	ends := map[string]*end{}
	for _, t := range toRead(list) {
		e := r.ends[t.ExecutionID]
		if e == nil {
			e = r.end(ctx, t)
		}
		ends[t.ExecutionID] = e
	}
	f, shown := group(list, ends, most)
	said := map[string]bool{}
	for i := range f.Groups {
		g, e := &f.Groups[i], ends[shown[i].ExecutionID]
		if e == nil {
			continue
		}
		if !e.asked {
			e.asked, e.hints = true, r.hints(ctx, ws, shown[i], e.tail)
		}
		for _, hint := range e.hints[:min(len(e.hints), maxHints)] {
			if !said[hint] {
				g.Hints = append(g.Hints, hint)
			}
			said[hint] = true
		}
	}
	for id, e := range ends {
		if e.fault != "" || ctx.Err() != nil {
			delete(ends, id) // it may be there the next time
		}
	}
	r.ends = ends
	return f
}

// failed are the tasks whose failures need an explanation: those that do not fail the run come last.
func failed(tasks []runview.TaskReport) (list []*runview.TaskReport) {
	for i := range tasks {
		if t := &tasks[i]; t.HasFailed() && t.Reason != string(executions.ReasonCancelled) {
			list = append(list, t)
		}
	}
	slices.SortStableFunc(list, func(a, b *runview.TaskReport) int {
		return cmp.Compare(min(len(a.Allowance()), 1), min(len(b.Allowance()), 1))
	})
	return list
}

// kind is the same for tasks of a family that ended with the same text.
func kind(t *runview.TaskReport) string {
	return strings.Join([]string{runview.FamilyOf(t.Task), t.Failure(), t.Allowance()}, "\x00")
}

// toRead chooses the failures whose logs are read: the first of each kind, then the next ones.
func toRead(list []*runview.TaskReport) []*runview.TaskReport {
	var first, others []*runview.TaskReport
	seen := map[string]bool{}
	for _, t := range list {
		switch k := kind(t); {
		case t.ExecutionID == "": // there is no log
		case seen[k]:
			others = append(others, t)
		default:
			seen[k] = true
			first = append(first, t)
		}
	}
	chosen := append(first, others...)
	return chosen[:min(len(chosen), maxRead)]
}

// group puts together what ended alike. It also returns the first task of each group.
func group(list []*runview.TaskReport, ends map[string]*end, most int) (f *Failures, shown []*runview.TaskReport) {
	f = &Failures{}
	unread := func(t *runview.TaskReport) bool { return t.ExecutionID != "" && ends[t.ExecutionID] == nil }
	alike, first := map[string]int{}, map[string]int{} // groups by kind and tail, and by kind
	for _, t := range list {
		if unread(t) {
			continue
		}
		e, k := cmp.Or(ends[t.ExecutionID], &end{}), kind(t)
		whole := k + "\x00" + strings.Join(e.tail, "\n")
		if i, ok := alike[whole]; ok {
			f.Groups[i].Also = append(f.Groups[i].Also, t.Task)
			continue
		}
		if len(f.Groups) == most {
			f.More++
			continue
		}
		i := len(f.Groups)
		if alike[whole] = i; first[k] == 0 {
			first[k] = i + 1
		}
		shown = append(shown, t)
		f.Groups = append(f.Groups, FailureGroup{
			Task: t.Task, Execution: t.ExecutionID, Key: t.Key, Text: t.Failure(), Meaning: Note(t.Failure()), Allowed: t.Allowance(), Shown: t.Shown(),
			Log: e.log, Tail: e.tail, Fault: e.fault, Began: began(t),
		})
	}
	for _, t := range list {
		if !unread(t) {
			continue
		}
		if i := first[kind(t)]; i > 0 {
			f.Groups[i-1].Unread++
		} else {
			f.More++
		}
	}
	return f, shown
}

// began reports whether the command of a failed task had begun.
func began(t *runview.TaskReport) bool {
	reason := executions.Reason(t.Reason)
	return reason == executions.ReasonNone && t.State == runview.TaskFailed || executions.LeavesFolder(reason)
}

// end reads the end of a failed task's log.
func (r *FailureReader) end(ctx context.Context, t *runview.TaskReport) *end {
	e := &end{}
	key, ok := executions.ParseKey(t.Key)
	if !ok || t.ExecutionID == "" || t.Reason == events.ReasonRejected {
		return e
	}
	var err error
	if e.log, e.tail, err = Ending(ctx, r.Executions, key, t.ExecutionID); err != nil && ctx.Err() == nil {
		e.fault = err.Error()
	}
	return e
}

// Ending reads the last lines of an execution's standard error or, if it has none, of its output: whole tracebacks and paragraphs where they
// are not long. log is the stream's name, "" if there is nothing in either. Empty lines are left out, and what a carriage return has
// overwritten; files in the folder of the command have their paths in it.
func Ending(ctx context.Context, x *executions.Store, key executions.Key, id string) (log string, tail []string, err error) {
	for _, stream := range []executions.Stream{executions.Stderr, executions.Stdout} {
		data, _, err := x.LogTail(ctx, key, id, stream, tailBytes)
		if err != nil {
			return "", nil, err
		}
		from, blank := -1, false // where the last traceback or paragraph begins
		for line := range bytes.Lines(data) {
			line = bytes.TrimRight(line, "\r\n")
			line = line[bytes.LastIndexByte(line, '\r')+1:]
			if len(bytes.TrimSpace(line)) == 0 {
				blank = true
				continue
			}
			if blank || begins(line) {
				from = len(tail)
			}
			blank = false
			tail = append(tail, human.Truncate(inFolder(string(line)), maxLine))
		}
		if len(tail) > 0 {
			if n := len(tail); from < 0 || n-from > maxWhole || n-from < maxTail {
				from = max(0, n-maxTail)
			}
			return strings.TrimSuffix(string(stream), ".txt"), tail[from:], nil
		}
	}
	return "", nil, nil
}

// maxWhole bounds the lines of a traceback or a paragraph that is shown from its beginning.
const maxWhole = 30

// begins reports whether a traceback begins with the line: of Python, Go, Rust, Java or R.
func begins(line []byte) bool {
	for _, head := range []string{"Traceback (most recent call last)", "panic: ", "fatal error: ", "Exception in thread ", "Error in "} {
		if bytes.HasPrefix(line, []byte(head)) {
			return true
		}
	}
	return bytes.HasPrefix(line, []byte("thread '")) && bytes.Contains(line, []byte("panicked at"))
}

var sandbox = pattern.Of(`/[^\s'"]*/tmp/session-[0-9a-f-]+/[^/\s'"]+/room/work\b(/?)`)

// inFolder shortens the paths of files in the folder of a command, which is another one at each attempt.
func inFolder(line string) string {
	if !strings.Contains(line, "/room/work") {
		return line
	}
	return sandbox().ReplaceAllStringFunc(line, func(path string) string {
		if strings.HasSuffix(path, "/") {
			return ""
		}
		return "."
	})
}

// noGit is what git says where it finds no repository (doc/design.md, §7, "Environment").
const noGit = "not a git repository"

var unbound = pattern.Of(`: line [0-9]+: (\w+): unbound variable$`)

// hints say what to do about a failure with these last lines.
func (r *FailureReader) hints(ctx context.Context, ws string, t *runview.TaskReport, tail []string) (list []string) {
	if len(tail) == 0 {
		return nil
	}
	if text := r.unboundHint(ctx, t, tail); text != "" {
		list = append(list, text)
	}
	if slices.ContainsFunc(tail, func(line string) bool { return strings.Contains(line, noGit) }) {
		list = append(list, fmt.Sprintf("the project's git repository is no input of %s, so that git does not find it. What git tells can be one: "+
			"key_env: [COMMIT], and COMMIT=$(git rev-parse HEAD) e3 start", t.Task))
	}
	if r.Hints != nil {
		list = append(list, r.Hints(ctx, ws, t, tail)...)
	}
	return list
}

// unboundHint names the variables of a task whose script has used another one.
func (r *FailureReader) unboundHint(ctx context.Context, t *runview.TaskReport, tail []string) string {
	var name string
	for _, line := range tail {
		if m := unbound().FindStringSubmatch(line); m != nil {
			name = m[1]
		}
	}
	key, ok := executions.ParseKey(t.Key)
	if name == "" || !ok {
		return ""
	}
	task, err := executions.LoadTask(ctx, r.Objects, key.Task)
	if err != nil {
		return "" // the failure itself is told
	}
	var names []string
	for _, in := range task.Inputs {
		if manifest.ValidInputName(in.Name) && in.Kind != record.KindTool {
			names = append(names, "$"+in.Name)
		}
	}
	for _, out := range task.Output.Entries {
		names = append(names, "$"+out.Name)
	}
	for _, v := range task.Env {
		names = append(names, "$"+v.Name)
	}
	return fmt.Sprintf("$%s is no variable of %s, which has %s", name, t.Task, human.Few(names))
}

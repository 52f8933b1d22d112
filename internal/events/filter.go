package events

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// A Filter selects events; all its conditions must hold. The zero value selects all.
type Filter struct {
	Workspace string // "": of all, including removed ones
	Run       string // its id or a prefix of it
	From      string // only this run and runs with greater ids; "" is all. It does not limit events of the journal
	// Task is a name, or a pattern as for [Match]. If HasTask is set, an exact name also selects a bulk task.cached
	// event for many tasks, unless the run has an event of its own for the task. A bulk event is recognized by the
	// form in which e3 writes it.
	Task      string
	Tasks     map[string]bool // besides Task: the selected names; nil: all. They select no bulk events
	Types     []Type
	Worker    string // as for [MatchWorker]; for an event without a worker, the run's process
	Execution string // its id or a prefix of it
	// Since and Until select events at or after Since, and before Until. Runs whose id, or last event, is more than
	// an hour outside are skipped: the clock of a run is assumed not to be set back further.
	Since, Until time.Time
	Failed       bool  // only task.failed and run.failed
	FromSeq      int64 // no events with lower numbers
	Last         int   // only so many events, the last ones; 0: all

	Cursors bool // events get their cursors; events of [ReadRecorded] always do

	// HasTask reports whether a bulk event stands for the task: whether the package of its run has the task. If that
	// package cannot be read, or none is named (""), the run whose results the event names (as) decides. It may be
	// nil.
	HasTask func(ctx context.Context, packageHash string, as RunRef) (bool, error)
}

// Types returns all types that this program writes, in the order in which they may occur.
func Types() []Type {
	return []Type{
		RunRecorded, RunStarted, GraphGrown, TaskCreated, TaskMarkedReady, TaskCached, TaskDeferred, TaskResumed, TaskClaimed, TaskReleased, TaskStarted, TaskOrphaned, TaskAdopted,
		TaskCompleted, TaskFailed, TaskRetryScheduled, TaskReopened, TaskSkipped, TaskLeftOut, TaskAbandoned, RunStalled, RunResumed, RunCompleted, RunFailed,
		RunCancelled, BlockApproved, BlockRejected, BlockWithdrawn, BlockClosed, JobRetried, JobCancelled,
		JobReprioritised, JournalMended,
	}
}

// Ends reports whether an event of this type ends a run.
func (t Type) Ends() bool { return t == RunCompleted || t == RunFailed || t == RunCancelled }

// Match reports whether the name of a task matches a pattern of *, ? and literal characters.
func Match(pattern, name string) bool {
	star, mark := -1, 0
	p, n := 0, 0
	for n < len(name) {
		want, step := utf8.DecodeRuneInString(pattern[p:])
		is, width := utf8.DecodeRuneInString(name[n:])
		switch {
		case step > 0 && want == '*':
			star, mark = p, n
			p++
		case step > 0 && (want == '?' || want == is):
			p, n = p+step, n+width
		case star >= 0:
			_, width := utf8.DecodeRuneInString(name[mark:])
			mark += width
			p, n = star+1, mark
		default:
			return false
		}
	}
	return strings.Trim(pattern[p:], "*") == ""
}

// MatchWorker reports whether user@host matches want: user@host, @host, or a name without @ of a user or of a host;
// each may be a pattern.
func MatchWorker(want, worker string) bool {
	user, host, _ := strings.Cut(worker, "@")
	return Match(want, worker) || Match(want, user) || Match(strings.TrimPrefix(want, "@"), host)
}

// IsPattern reports whether a text may match several tasks.
func IsPattern(task string) bool { return strings.ContainsAny(task, "*?") }

// inBulk reports whether bulk events may stand for the selected task.
func (f *Filter) inBulk() bool { return f.HasTask != nil && f.Task != "" && !IsPattern(f.Task) }

// standsFor reports whether a bulk event stands for the task.
func (f *Filter) standsFor(ctx context.Context, m match) (bool, error) {
	return f.HasTask(ctx, m.pkg, RunRef{m.Workspace, m.Data.As})
}

// [Append] writes bulkForm only for bulk events of proven tasks; bulkMark is a part of it that few other lines have.
const (
	bulkForm = `"type":"task.cached",` + bulkMark
	bulkMark = `"data":{"tasks":`
)

// standsForMany reports whether an event, read from the line, is a bulk event of proven tasks.
func standsForMany(e *Event, line []byte) bool {
	return e.Type == TaskCached && e.Task == "" && e.Data != nil && e.Data.As != "" && e.Data.Tasks > 0 && bytes.Contains(line, []byte(bulkForm))
}

// allOfRun reports whether the filter selects all events of a run, except by number.
func (f *Filter) allOfRun() bool {
	return f.Task == "" && f.Tasks == nil && len(f.Types) == 0 && f.Worker == "" && f.Execution == "" && f.Since.IsZero() && f.Until.IsZero() && !f.Failed
}

// longest returns the longest literal part of a pattern, which every match contains.
func longest(pattern string) string {
	part := ""
	for _, s := range strings.FieldsFunc(pattern, func(r rune) bool { return r == '*' || r == '?' }) {
		if len(s) > len(part) {
			part = s
		}
	}
	return part
}

// plan holds the sieves for the lines of a run: first, and then the others for the lines that pass.
type plan struct {
	scan  *sieve
	check []*sieve
}

// plan returns the sieves for a run that was started by this worker; the most selective is the first.
func (f *Filter) plan(worker string) plan {
	var list []*sieve
	add := func(texts ...string) {
		if s := newSieve(texts...); s != nil {
			list = append(list, s)
		}
	}
	if f.Execution != "" {
		add(`"` + f.Execution)
	}
	switch {
	case f.inBulk():
		add(`"`+f.Task+`"`, bulkMark)
	case f.Task != "":
		add(longest(`"` + f.Task + `"`)) // with the quotes of JSON, in case the literal part is at an end of the name
	}
	if f.Tasks != nil {
		list = append(list, &sieve{tasks: f.Tasks})
	}
	if f.Worker != "" && !MatchWorker(f.Worker, worker) {
		add(longest(strings.TrimPrefix(f.Worker, "@")))
	}
	if f.Failed {
		add(quotedTypes(TaskFailed, RunFailed)...)
	}
	if len(f.Types) > 0 {
		add(quotedTypes(f.Types...)...)
	}
	if len(list) == 0 {
		return plan{}
	}
	return plan{scan: list[0], check: list[1:]}
}

// keeps reports whether a line that has passed the first sieve passes the others.
func (p *plan) keeps(line []byte) bool {
	for _, s := range p.check {
		if !s.keeps(line) {
			return false
		}
	}
	return true
}

func quotedTypes(types ...Type) []string {
	texts := make([]string, len(types))
	for i, t := range types {
		texts[i] = `"` + string(t) + `"`
	}
	return texts
}

// A matcher selects events of one run, in order.
type matcher struct {
	f       *Filter
	worker  string // of the run's process
	pkg     string // hash of the run's package
	begun   bool   // the first event was seen
	named   bool   // an event of the run has named the task
	waiting *Event // a bulk event that stands for the task, unless a later event names it
}

// A match is a selected event. If it is a bulk event, the caller has to check whether it stands for the task; pkg is
// the hash of its run's package, if known.
type match struct {
	Event
	bulk bool
	pkg  string
}

// begin handles the first event of the run.
func (m *matcher) begin(e *Event) {
	m.begun = true
	if e.Type != RunStarted || e.Data == nil {
		return
	}
	m.pkg = e.Data.PackageHash
	if p := e.Data.Process; p != nil && p.User != "" {
		m.worker = p.User + "@" + p.Host
	}
}

// add handles the next event, read from this line, and returns it if selected.
func (m *matcher) add(e *Event, line []byte) (match, bool) {
	f := m.f
	if e.Type == GraphGrown && e.Data != nil {
		m.pkg = e.Data.PackageHash
	}
	many := false
	switch {
	case f.Task == "":
	case !f.inBulk():
		if e.Task == "" || !Match(f.Task, e.Task) {
			return match{}, false
		}
	case e.Task == f.Task:
		m.named, m.waiting = true, nil
	case !m.named && m.waiting == nil && standsForMany(e, line):
		many = true
	default:
		return match{}, false
	}
	if !m.wanted(e) {
		return match{}, false
	}
	if many {
		m.waiting = e
		return match{}, false
	}
	return match{Event: *e}, true
}

// end returns the event that was held back until the end of the run.
func (m *matcher) end() (match, bool) {
	e := m.waiting
	if m.waiting = nil; e == nil {
		return match{}, false
	}
	return match{Event: *e, bulk: true, pkg: m.pkg}, true
}

// wanted reports whether all conditions hold, except for the task.
func (m *matcher) wanted(e *Event) bool {
	f := m.f
	worker := e.Worker
	if worker == "" {
		worker = m.worker
	}
	return e.Seq >= f.FromSeq &&
		(f.Tasks == nil || f.Tasks[e.Task]) &&
		(len(f.Types) == 0 || slices.Contains(f.Types, e.Type)) &&
		(!f.Failed || e.Type == TaskFailed || e.Type == RunFailed) &&
		(f.Worker == "" || MatchWorker(f.Worker, worker)) &&
		strings.HasPrefix(e.Execution, f.Execution) &&
		(f.Since.IsZero() || !e.Time.Before(f.Since)) &&
		(f.Until.IsZero() || e.Time.Before(f.Until))
}

// clockSlack is how far a run's clock may be set back without its events being missed.
const clockSlack = time.Hour

// beganTooLate reports whether a run's id proves that its events come after Until.
func (f *Filter) beganTooLate(run string) bool {
	began, ok := Began(run)
	return ok && !f.Until.IsZero() && began.After(f.Until.Add(clockSlack))
}

// mayBeTooEarly reports whether a run may have ended before Since; its last event decides.
func (f *Filter) mayBeTooEarly(run string) bool {
	began, ok := Began(run)
	return !f.Since.IsZero() && (!ok || began.Before(f.Since))
}

// tooEarly reports whether a run's last event proves that all its events come before Since.
func (f *Filter) tooEarly(last *Event) bool { return last.Time.Before(f.Since.Add(-clockSlack)) }

// Began is the time in a run's id, to the millisecond, if it is a UUIDv7.
func Began(run string) (time.Time, bool) {
	if len(run) != 36 || run[8] != '-' || run[13] != '-' || run[14] != '7' || run[18] != '-' || run[23] != '-' {
		return time.Time{}, false
	}
	ms := int64(0)
	for _, c := range []byte(run[:8] + run[9:13]) {
		i := strings.IndexByte("0123456789abcdef", c)
		if i < 0 {
			return time.Time{}, false
		}
		ms = ms<<4 | int64(i)
	}
	return time.UnixMilli(ms).UTC(), true
}

//go:build linux

package e2e

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"e3/executions"
	"e3/internal/events"
	"e3/internal/format/record"
	"e3/internal/jobs/queue"
	"e3/internal/repo"
)

// A witness keeps what clients of events were shown in a schedule. When all is over, it rebuilds each execution from the events alone,
// and holds what it has rebuilt against the records, and what was shown against the logs.
type witness struct {
	t      testing.TB
	skewed bool // clocks differ

	mu       sync.Mutex
	shown    []string            // lines of "start --json" and of followers
	followed map[string][]string // what the follower of a workspace was shown, in order
	at       map[string]string   // its cursor
}

func newWitness(t testing.TB) *witness {
	return &witness{t: t, followed: map[string][]string{}, at: map[string]string{}}
}

// eventLines are the whole lines of an output that are events.
func eventLines(stdout string) (list []string) {
	for line := range strings.Lines(stdout) {
		if strings.HasSuffix(line, "\n") && strings.HasPrefix(line, `{"seq":`) {
			list = append(list, line)
		}
	}
	return list
}

// saw takes what a start has printed.
func (w *witness) saw(r result) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.shown = append(w.shown, eventLines(r.stdout)...)
}

// follows is a client of a workspace's events. It is killed now and then and goes on from the last cursor that it has.
func (w *witness) follows(m *machine, ws string, rnd *rand.Rand, over <-chan struct{}) {
	for {
		x := m.spawn("events", ws, "-f", "--ndjson", "--after", w.cursor(ws))
		more := true
		select {
		case <-x.ended:
			more = !isClosed(over)
		case <-time.After(time.Duration(500+rnd.IntN(4000)) * time.Millisecond):
		case <-over:
			more = false
		}
		x.kill(false)
		w.takes(ws, x.result())
		if !more {
			return
		}
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func (w *witness) cursor(ws string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return cmp.Or(w.at[ws], events.Cursor{}.String())
}

// takes adds what the client of a workspace's events was shown.
func (w *witness) takes(ws string, r result) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if bad.MatchString(r.stderr) {
		w.t.Errorf("a follower of %s: %s", ws, r.text())
	}
	lines := eventLines(r.stdout)
	w.shown = append(w.shown, lines...)
	w.followed[ws] = append(w.followed[ws], lines...)
	if n := len(lines); n > 0 {
		found := eventCursor.FindStringSubmatch(lines[n-1])
		if found == nil {
			w.t.Errorf("an event without a cursor: %s", lines[n-1])
			return
		}
		w.at[ws] = strings.TrimSuffix(strings.TrimPrefix(found[0], `,"cursor":"`), `"}`)
	}
}

// told is what the events say of an execution.
type told struct {
	starts, ends []events.Event
	where        []string
	shared       int // events of runs that have waited for it
	steps        []step
}

// A step is an event about an execution, of the run that has begun it or of the journal.
type step struct {
	events.Event
	log string
}

// accounts demands, when nothing runs any more, that the events alone rebuild every execution on record, and that each line
// that a client was shown is in a log.
func (w *witness) accounts(r *repo.Repo, m *machine, all []*executions.Execution) {
	w.t.Helper()
	ctx := context.Background()
	lines, by, users := w.logs(ctx, r)
	for _, line := range w.shown {
		if line = eventCursor.ReplaceAllString(line, "}"); !lines[line] {
			w.t.Errorf("a client was shown what is in no log: %s", line)
		}
	}
	for ws := range w.followed {
		w.complete(m, ws)
	}
	for _, e := range all {
		if e.Provenance != nil { // its run was elsewhere
			continue
		}
		w.account(e, by[e.ExecutionID], users)
	}
	w.jobs(ctx, r, by)
	if w.t.Failed() {
		w.t.Logf("all events:\n%s", strings.Join(slices.Sorted(maps.Keys(lines)), ""))
	}
}

// jobs holds what the events tell of the workers of executions against the records of jobs: each claim and adoption once, in
// its order, with the time and the worker that is on record.
func (w *witness) jobs(ctx context.Context, r *repo.Repo, by map[string]*told) {
	names, err := events.Workspaces(ctx, r.Records)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, ws := range names {
		runs, err := events.Runs(ctx, r.Records, ws)
		if err != nil {
			w.t.Fatal(err)
		}
		for _, ref := range runs {
			jobs, err := r.Queue().OfRun(ctx, ws, ref.Run)
			if err != nil {
				w.t.Error(err)
			}
			for i := range jobs {
				for _, a := range jobs[i].History() {
					if t := by[a.Execution]; t != nil {
						w.job(&a, t)
					}
				}
			}
		}
	}
}

// job holds an execution against the record of its job.
func (w *witness) job(a *queue.Attempt, t *told) {
	var trail []string
	for _, s := range t.steps {
		reason := ""
		if s.Data != nil {
			reason = s.Data.Reason
		}
		trail = append(trail, fmt.Sprintf("%.20s %d %s %s by %s (%s)", s.log, s.Seq, s.Time.Format("15:04:05.000"), s.Type, s.Worker, reason))
	}
	fault := func(format string, args ...any) {
		w.t.Errorf("the execution %s, claimed by %s at %s, begun at %s, adopted by %s at %s: %s; the events:\n  %s", a.Execution,
			a.Worker, a.Claimed.Format("15:04:05.000"), a.Started.Format("15:04:05.000"), a.Adopter, a.Adopted.Format("15:04:05.000"),
			fmt.Sprintf(format, args...), strings.Join(trail, "\n  "))
	}
	is := func(s *step, worker string, at time.Time) bool {
		return s.Worker == worker && s.Time.Equal(at.UTC().Truncate(time.Millisecond))
	}
	rank, adopted := -1, (*step)(nil)
	ended := ""      // the log that tells of the end
	var closed *step // the end, if the process tells of it that closed the run
	for i := range t.steps {
		s := &t.steps[i]
		now := slices.Index([]events.Type{events.TaskClaimed, events.TaskStarted, events.TaskOrphaned, events.TaskAdopted, events.TaskCompleted}, s.Type)
		switch s.Type {
		case events.TaskFailed, events.TaskDeferred:
			now = 4
		case events.TaskOrphaned: // again and again
			now = max(rank, 2)
		case events.TaskAdopted:
			adopted = s
		case events.TaskClaimed:
			if !is(s, a.Worker, a.Claimed) {
				fault("another claim is told")
			}
		}
		if now == 4 {
			ended = s.log
			if s.Data != nil && s.Data.Reason == events.ReasonCrashed {
				closed = s
			}
		}
		if now >= 0 && (now < rank || now == rank && now < 2) && !(s.Type == events.TaskStarted && rank == 2) {
			fault("%s is told out of its turn", s.Type)
		}
		rank = max(rank, now)
	}
	late := strings.HasPrefix(ended, "journal") // the journal tells of starts and ends
	// A worker may claim the job of an execution that has ended, only to answer it, when the process that closed the dead run has told
	// the end already. Whether it had ended then, only that process knows: TestCloseDeadAdoptedMeanwhile holds it to that.
	late = late || closed != nil && hostOf(a.Adopter) == hostOf(a.Worker) && closed.Time.Before(a.Adopted)
	if a.Adopter != "" && !a.Started.IsZero() && ended != "" && !late && (adopted == nil || !is(adopted, a.Adopter, a.Adopted)) {
		fault("its last adoption is not told")
	}
}

// hostOf is the host in the name of a worker.
func hostOf(worker string) string {
	_, host, _ := strings.Cut(worker, "@")
	host, _, _ = strings.Cut(host, " ")
	return host
}

// logs reads all runs and journals: their lines as they are printed but for cursors, what they tell of executions, and which user each run was started by.
func (w *witness) logs(ctx context.Context, r *repo.Repo) (lines map[string]bool, by map[string]*told, users map[string]string) {
	lines, by, users = map[string]bool{}, map[string]*told{}, map[string]string{}
	take := func(where string, e events.Event) {
		e.Cursor = ""
		line, err := events.Append(nil, &e)
		if err != nil {
			w.t.Error(err)
		}
		lines[string(line)] = true
		if e.Type == events.RunStarted && e.Data != nil && e.Data.Process != nil {
			users[e.Run] = e.Data.Process.Who()
		}
		if e.Execution == "" {
			return
		}
		t := by[e.Execution]
		if t == nil {
			t = &told{}
			by[e.Execution] = t
		}
		shared := e.Data != nil && e.Data.Shared
		if !shared {
			t.steps = append(t.steps, step{e, where})
		}
		switch e.Type {
		case events.TaskStarted:
			if !shared {
				t.starts = append(t.starts, e)
			}
		case events.TaskCompleted, events.TaskFailed, events.TaskDeferred:
			if e.Type == events.TaskFailed && e.Data != nil && e.Data.Block != "" { // rejected after it had suspended itself
				return
			}
			if !shared {
				t.ends = append(t.ends, e)
			}
		default:
			return
		}
		if shared {
			t.shared++
			return
		}
		t.where = append(t.where, fmt.Sprintf("%s %s %s", where, e.Time.Format("15:04:05.000"), e.Type))
	}
	names, err := events.Workspaces(ctx, r.Records)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, ws := range names {
		runs, err := events.Runs(ctx, r.Records, ws)
		if err != nil {
			w.t.Fatal(err)
		}
		for _, ref := range runs {
			for e, err := range events.Read(ctx, r.Records, ws, ref.Run) {
				if err != nil {
					w.t.Errorf("events of run %s: %v", ref.Run, err)
					continue
				}
				take(ref.Run, e.Event)
			}
		}
		for e, err := range events.ReadJournal(ctx, r.Records, ws, 0) {
			if err != nil {
				w.t.Errorf("journal of %s: %v", ws, err)
				continue
			}
			take("journal of "+ws, e)
		}
	}
	return lines, by, users
}

// complete demands that the client of a workspace's events, with what it is shown now, has had every event once, and those of each run in order.
func (w *witness) complete(m *machine, ws string) {
	w.takes(ws, m.calmly("events", ws, "--ndjson", "--after", w.cursor(ws)))
	seen := map[string]int{}
	last := map[string]int64{}
	for _, line := range w.followed[ws] {
		line = eventCursor.ReplaceAllString(line, "}")
		seen[line]++
		if e, err := printedEvent(line); err == nil {
			if e.Seq <= last[e.Run] {
				w.t.Errorf("a client of %s was shown event %d of run %q after event %d: %s", ws, e.Seq, e.Run, last[e.Run], line)
			}
			last[e.Run] = e.Seq
		}
	}
	for _, line := range eventLines(m.calmly("events", ws, "--ndjson").stdout) {
		if line = eventCursor.ReplaceAllString(line, "}"); seen[line] != 1 {
			w.t.Errorf("a client of %s was shown %d times: %s", ws, seen[line], line)
		}
	}
}

// account holds one execution against what the events tell of it.
func (w *witness) account(e *executions.Execution, t *told, users map[string]string) {
	if t == nil {
		t = &told{}
	}
	fault := func(format string, args ...any) {
		w.t.Errorf("the execution %s of %s, %v from %s to %s %q, run %s: %s; the events:\n  %s", e.ExecutionID, taskOf(e), e.State,
			e.StartedAt.UTC().Format("15:04:05.000"), e.CompletedAt.UTC().Format("15:04:05.000"), e.Message, runOf(e), fmt.Sprintf(format, args...), strings.Join(t.where, "\n  "))
	}
	began := e.Began()
	switch {
	case e.State == record.Running:
		fault("it seems to run")
		return
	case runOf(e) == "" && began.IsZero() && len(t.starts)+len(t.ends) == 0:
		return // the fence of a claim whose process was taken for dead before any command began
	case len(t.ends) != 1:
		fault("%d ends, want 1", len(t.ends))
		return
	case len(t.starts) > 1, len(t.starts) == 0 && !began.IsZero():
		fault("%d starts, want 1", len(t.starts))
		return
	}
	end := &t.ends[0]
	success := end.Type == events.TaskCompleted
	if success != (e.State == record.Success) {
		fault("the events tell of another end")
	}
	if success && end.Data.Output != e.OutputHash {
		fault("its output is %s, by the events %s", e.OutputHash, end.Data.Output)
	}
	w.times(e, t, fault)
	for _, of := range slices.Concat(t.starts, t.ends) {
		of.Worker, _, _ = strings.Cut(of.Worker, " (process ")
		if of.Worker == "" {
			of.Worker = users[cmp.Or(of.Run, of.Data.Run)] // the run's own process
		}
		if e.Detail != nil && e.Detail.Worker != "" && of.Type == events.TaskStarted && of.Worker != e.Detail.Worker {
			fault("%s has run it, by the event %s %q", e.Detail.Worker, of.Type, of.Worker)
		}
		if taskOf(e) != "" && of.Task != taskOf(e) || of.Data.Key != e.Key.String() {
			fault("the event is of task %s, %s", of.Task, of.Data.Key)
		}
	}
}

func runOf(e *executions.Execution) string {
	if e.Detail == nil {
		return ""
	}
	return e.Detail.RunID
}

// times demands that an execution's events have the times of its record.
func (w *witness) times(e *executions.Execution, t *told, fault func(string, ...any)) {
	from, to := e.StartedAt.Truncate(time.Millisecond), e.CompletedAt.Truncate(time.Millisecond)
	end := t.ends[0].Time
	if e.Began().IsZero() && executions.Stale(e.Message) { // a fence knows no times, and its process may have begun the command since
		return
	}
	if len(t.starts) == 1 {
		sameClock := !w.skewed || e.State == record.Success || e.State == record.Failed // else another process may have given it up
		if at := t.starts[0].Time; sameClock && (at.After(end) || !e.Began().IsZero() && (at.Before(from) || at.After(to))) {
			fault("it has started at %s", at.Format("15:04:05.000"))
		}
	}
	// A process whose clock is behind may have given it up: its record knows no beginning, and its end is not told as earlier than that.
	asItBegan := e.Began().IsZero() && len(t.starts) == 1 && t.starts[0].Time.After(to) && end.Equal(t.starts[0].Time)
	if !end.Equal(to) && !asItBegan {
		fault("it has ended at %s", end.Format("15:04:05.000"))
	}
}

// order is what commands have left: "+ <execution> <host>" when they began, "- <execution>" when they were through.
func (f *fleet) order() []string {
	data, err := os.ReadFile(filepath.Join(f.state, "order"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		f.t.Fatal(err)
	}
	return slices.Collect(strings.Lines(string(data)))
}

// ranOnce demands that no command was begun again after it was through, but where its result could not be kept, or a person cancelled it as it ended: excused tells of a host that one of its
// supervisors was killed. It also demands that each command was run by the host that its record names.
func (f *fleet) ranOnce(all []*executions.Execution, excused func(host string) bool) {
	of := map[string]*executions.Execution{}
	for _, e := range all {
		of[e.ExecutionID] = e
	}
	hosts := map[string]string{}
	through := map[executions.Key]string{}
	for _, line := range f.order() {
		words := strings.Fields(line)
		e := of[words[1]]
		if words[0] == "+" {
			hosts[words[1]] = words[2]
		}
		if e == nil { // it has no record, as nothing more was written
			continue
		}
		host := hosts[words[1]]
		if e.Detail != nil && apart() && !strings.HasSuffix(e.Detail.Worker, "@"+host) && e.State == record.Success {
			f.t.Errorf("the execution %s of %s is said to be %s's, and was %s's", e.ExecutionID, taskOf(e), e.Detail.Worker, host)
		}
		switch before, again := through[e.Key]; {
		case words[0] == "-":
			through[e.Key] = e.ExecutionID
		case again && of[before].Detail != nil && of[before].Detail.Reason == string(executions.ReasonCancelled): // by a person, before it had ended
		case again && hosts[before] == host && !excused(host):
			f.t.Errorf("%s was through as %s on %s, and was begun again there as %s", taskOf(e), before, host, e.ExecutionID)
		}
	}
}

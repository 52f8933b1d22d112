package executions_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"e3/executions"
	"e3/internal/format/record"
)

// counted is a script that counts its runs.
func counted(t *testing.T, text string) (task *record.Task, runs func() int) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "runs")
	return script("echo x >> " + file + "; " + text), func() int {
		data, err := os.ReadFile(file)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		return strings.Count(string(data), "\n")
	}
}

// together sends the same request n times at once to one executor.
func together(t *testing.T, l *lab, n int, req func() *executions.Request) []executions.Result {
	t.Helper()
	results := make([]executions.Result, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			var err error
			if results[i], err = l.Do(t.Context(), req()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	return results
}

// Of many concurrent requests, one executes; the others take its success as a hit.
func TestSingleFlight(t *testing.T) {
	l := newLab(t)
	task, runs := counted(t, "sleep 0.1; echo x > out")
	results := together(t, l, 8, func() *executions.Request { return l.request(task) })
	if n := runs(); n != 1 {
		t.Errorf("it ran %d times, want once", n)
	}
	cached := 0
	for _, r := range results {
		if r.State != record.Success || r.ExecutionID != results[0].ExecutionID || r.Output != results[0].Output {
			t.Errorf("got %+v, want what the others got: %+v", r, results[0])
		}
		if r.Cached {
			cached++
		}
	}
	if cached != 7 {
		t.Errorf("%d hits, want 7", cached)
	}
}

// A failure counts as an attempt of every request that waited for it, but not of a later one.
func TestSharedFailure(t *testing.T) {
	l := newLab(t)
	task, runs := counted(t, "sleep 0.3; exit 4")
	for round := 1; round <= 2; round++ {
		results := together(t, l, 6, func() *executions.Request { return l.request(task) })
		shared := 0
		for _, r := range results {
			if r.State != record.Failed || r.ExitCode != 4 || r.ExecutionID != results[0].ExecutionID {
				t.Errorf("got %+v, want exit code 4 of %s", r, results[0].ExecutionID)
			}
			if r.Cached {
				shared++
			}
		}
		if n := runs(); n != round || shared != 5 {
			t.Errorf("round %d: it ran %d times in all and %d shared, want %d and 5", round, n, shared, round)
		}
	}
}

// An error is no answer, so each waiting request executes in turn.
func TestErrorIsNotShared(t *testing.T) {
	l := newLab(t)
	task, runs := counted(t, "sleep 0.05; kill -KILL $$")
	results := together(t, l, 3, func() *executions.Request { return l.request(task) })
	ids := map[string]bool{}
	for _, r := range results {
		ids[r.ExecutionID] = true
		if r.State != record.Error || r.Cached {
			t.Errorf("got %+v, want an error of its own", r)
		}
	}
	if n := runs(); n != 3 || len(ids) != 3 {
		t.Errorf("it ran %d times under %d ids, want 3", n, len(ids))
	}
}

// A request that is cancelled while it waits returns at once and disturbs no other.
func TestWaiterIsCancelled(t *testing.T) {
	l := newLab(t)
	flag := filepath.Join(t.TempDir(), "flag")
	task, runs := counted(t, "until test -e "+flag+"; do sleep 0.01; done; echo x > out")
	done := make(chan executions.Result, 1)
	go func() {
		res, err := l.Do(t.Context(), l.request(task))
		if err != nil {
			t.Error(err)
		}
		done <- res
	}()
	await(t, "the first to run", func() bool { return runs() == 1 })
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	time.AfterFunc(20*time.Millisecond, func() { cancel(enough) })
	if res, err := l.Do(ctx, l.request(task)); !errors.Is(err, enough) {
		t.Errorf("the waiter got %+v, %v, want the cause", res, err)
	}
	touch(t, flag)
	if res := <-done; res.State != record.Success {
		t.Errorf("the first got %+v", res)
	}
	if runs() != 1 {
		t.Errorf("it ran %d times", runs())
	}
}

// A long command is on record as running, with logs that can be followed.
func TestAnnounce(t *testing.T) {
	l := newLab(t, func(o *executions.Options) { o.Announce = 20 * time.Millisecond })
	flag := filepath.Join(t.TempDir(), "flag")
	req := l.request(script("echo begun; until test -e " + flag + "; do sleep 0.01; done; echo ended; echo x > out"))
	done := make(chan executions.Result, 1)
	go func() {
		res, err := l.Do(t.Context(), req)
		if err != nil {
			t.Error(err)
		}
		done <- res
	}()
	var a executions.Answer
	await(t, "a running record", func() bool {
		var err error
		if a, err = l.Lookup(t.Context(), keyOf(req)); err != nil {
			t.Fatal(err)
		}
		return len(a.Running) == 1
	})
	id := a.Running[0]
	if a.Latest.PID <= 0 || a.Latest.PIDStartTime <= 0 || a.Latest.BootID == "" {
		t.Errorf("the running record is %+v, want the process in it", a.Latest)
	}
	await(t, "the log", func() bool { return l.log(t, req, id, executions.Stdout) == "begun\n" })
	if alive, err := l.Alive(t.Context(), keyOf(req), id); !alive || err != nil {
		t.Errorf("alive: %v, %v", alive, err)
	}
	if closed, err := l.CloseIfDead(t.Context(), keyOf(req), id); closed || err != nil {
		t.Errorf("closed while alive: %v, %v", closed, err)
	}
	follow, err := l.FollowLog(t.Context(), keyOf(req), id, executions.Stdout)
	if err != nil {
		t.Fatal(err)
	}
	defer follow.Close()
	touch(t, flag)
	text := make([]byte, len("begun\nended\n"))
	if _, err := io.ReadFull(follow, text); err != nil || string(text) != "begun\nended\n" {
		t.Errorf("a follower read %q, %v", text, err)
	}
	res := <-done
	if res.ExecutionID != id || res.State != record.Success {
		t.Errorf("got %+v, want the success of %s", res, id)
	}
	if got := l.log(t, req, id, executions.Stdout); got != "begun\nended\n" {
		t.Errorf("the log is %q", got)
	}
	if alive, err := l.Alive(t.Context(), keyOf(req), id); alive || err != nil {
		t.Errorf("alive after its end: %v, %v", alive, err)
	}
	if e, err := l.Get(t.Context(), keyOf(req), id); err != nil || e.State != record.Success || e.Detail == nil || e.Detail.BytesOut != 2 {
		t.Errorf("on record: %+v, %v", e, err)
	}
}

// A short command has no record before its end.
func TestShortIsNotAnnounced(t *testing.T) {
	l := newLab(t, func(o *executions.Options) { o.Announce = time.Hour })
	req := l.request(script(fmt.Sprintf("echo said; sleep 0.05; { find %s/executions -type f 2> errors || true; } | wc -l > out", l.dir)))
	res := l.do(t, req)
	if got := l.content(t, res.Output); got != "0\n" {
		t.Errorf("while it ran there were %s files on record", strings.TrimSpace(got))
	}
}

// The next request closes a running record whose e3 is dead. Its logs stay.
func TestStaleIsClosed(t *testing.T) {
	l := newLab(t)
	req := l.request(script("echo x > out"))
	dead := newID(t)
	l.record(t, keyOf(req), &record.Status{State: record.Running, ExecutionID: dead, StartedAt: time.Now(), PID: 4711, BootID: "b"})
	logKey := streamKey(keyOf(req), dead)
	if err := l.records.Append(t.Context(), logKey, 0, []byte("half a li")); err != nil {
		t.Fatal(err)
	}
	res := l.do(t, req)
	if res.State != record.Success || res.Cached || res.ExecutionID == dead {
		t.Errorf("got %+v, want a new success", res)
	}
	e, err := l.Get(t.Context(), keyOf(req), dead)
	if err != nil {
		t.Fatal(err)
	}
	if e.State != record.Error || e.Message != "Process 4711 no longer running (stale execution)" || e.CompletedAt.IsZero() || e.StartedAt.IsZero() {
		t.Errorf("the dead one is %+v", e.Status)
	}
	if got := l.log(t, req, dead, executions.Stdout); got != "half a li" {
		t.Errorf("its log is %q", got)
	}
	if closed, err := l.CloseIfDead(t.Context(), keyOf(req), dead); closed || err != nil {
		t.Errorf("closed twice: %v, %v", closed, err)
	}
	if closed, err := l.CloseIfDead(t.Context(), keyOf(req), newID(t)); closed || err != nil {
		t.Errorf("closed an absent one: %v, %v", closed, err)
	}
}

// No request waits for a forced execution, or closes it while it is alive.
func TestForcedIsNotWaitedForNorClosed(t *testing.T) {
	l := newLab(t, func(o *executions.Options) { o.Announce = 10 * time.Millisecond })
	dir := t.TempDir()
	lock, flag := filepath.Join(dir, "lock"), filepath.Join(dir, "flag")
	// The first command waits for the flag.
	task, runs := counted(t, "if mkdir "+lock+"; then until test -e "+flag+"; do sleep 0.01; done; fi; echo x > out")
	forced := l.request(task)
	forced.Force = true
	done := make(chan executions.Result, 1)
	go func() {
		res, err := l.Do(t.Context(), forced)
		if err != nil {
			t.Error(err)
		}
		done <- res
	}()
	var id string
	await(t, "the forced one on record", func() bool {
		a, err := l.Lookup(t.Context(), keyOf(forced))
		if err != nil {
			t.Fatal(err)
		}
		if len(a.Running) == 1 {
			id = a.Running[0]
		}
		return id != "" && exists(lock) // the command has begun, too
	})
	res := l.do(t, l.request(task))
	if res.State != record.Success || res.Cached || res.ExecutionID == id {
		t.Errorf("got %+v, want an execution of its own", res)
	}
	if e, err := l.Get(t.Context(), keyOf(forced), id); err != nil || e.State != record.Running {
		t.Errorf("the forced one is %+v, %v, want it running", e, err)
	}
	again := l.request(task)
	again.Force = true
	if third := l.do(t, again); third.Cached || third.State != record.Success {
		t.Errorf("forced beside a forced one: %+v", third)
	}
	touch(t, flag)
	if first := <-done; first.State != record.Success || first.ExecutionID != id {
		t.Errorf("the forced one got %+v", first)
	}
	if runs() != 3 {
		t.Errorf("it ran %d times, want 3", runs())
	}
}

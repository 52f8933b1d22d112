package events_test

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"e3/internal/events"
	"e3/refstore"
	"e3/refstore/fs"
	"e3/refstore/mem"
)

// unreadable is a store whose streams cannot be read.
type unreadable struct {
	*mem.Store
	err error
}

func (u *unreadable) Open(context.Context, refstore.Key, int64) (io.ReadCloser, error) {
	return nil, u.err
}

func (u *unreadable) Size(context.Context, refstore.Key) (refstore.StreamInfo, error) {
	return refstore.StreamInfo{}, u.err
}

func (u *unreadable) Follow(context.Context, refstore.Key, int64) (io.ReadCloser, error) {
	return nil, u.err
}

// Followers that come before the first event, in the middle and after the end all see the whole run, each event as soon
// as it is flushed, and stop at its end.
func TestFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := mem.New()
		var wg sync.WaitGroup
		follow := func(name string) {
			wg.Go(func() {
				var next int64 = 1
				var last events.Type
				for e, err := range events.Follow(t.Context(), s, ws, runID) {
					if err != nil {
						t.Errorf("%s: %v", name, err)
						return
					}
					if e.Seq != next {
						t.Errorf("%s: event %d came when %d was due", name, e.Seq, next)
					}
					if late := time.Since(e.Time); name == "early" && late > 50*time.Millisecond {
						t.Errorf("%s: event %d came %v late", name, e.Seq, late)
					}
					next, last = e.Seq+1, e.Type
				}
				if next != 103 || last != events.RunCompleted {
					t.Errorf("%s: it ended with event %d, %s", name, next-1, last)
				}
			})
		}
		follow("early")
		follow("early")
		synctest.Wait()
		log := events.Create(s, ws, runID, time.Now)
		log.Emit(events.Event{Type: events.RunStarted})
		for i := range 100 {
			log.Emit(events.Event{Type: events.TaskCompleted})
			time.Sleep(7 * time.Millisecond)
			if i == 50 {
				follow("middle")
			}
		}
		log.Emit(events.Event{Type: events.RunCompleted})
		if err := log.Close(); err != nil {
			t.Error(err)
		}
		follow("late")
		wg.Wait()
	})
}

func TestFollowEndsWithContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := finished(t, events.RunStarted)
		ctx, cancel := context.WithCancel(t.Context())
		n := 0
		done := make(chan struct{})
		go func() {
			defer close(done)
			for _, err := range events.Follow(ctx, s, ws, runID) {
				if err != nil {
					t.Errorf("a cancelled follower: %v", err)
				}
				n++
			}
		}()
		synctest.Wait()
		if n != 1 {
			t.Errorf("%d events, want 1", n)
		}
		cancel()
		<-done
	})
}

func TestFollowStops(t *testing.T) {
	s := finished(t, events.RunStarted, events.TaskCompleted)
	for e, err := range events.Follow(t.Context(), s, ws, runID) {
		if err != nil || e.Seq != 1 {
			t.Errorf("got %v, %v", e, err)
		}
		break
	}
}

// The process that closes a crashed run cuts the torn tail that a follower has already read. The follower continues
// with the replacement.
func TestFollowOverCrash(t *testing.T) {
	long := `{"seq":2,"time":"2026-11-20T12:00:00.000Z","run":"` + runID + `","workspace":"prod","type":"task.failed","data":{"message":"` + strings.Repeat("x", 300)
	for _, test := range []struct {
		name  string
		lines int    // emitted after the tail was cut, before the follower reads again
		torn  string // the tail
	}{
		{"sees the cut", 0, long},
		{"finds less than it has read", 1, long},
		{"finds more than it has read", 10, long},
		{"finds a continuation of what it has read", 1, strings.Replace(long[:60], "12:00", "11:11", 1)},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := finished(t, events.RunStarted)
				write(t, s, test.torn)
				gate := &gated{Store: s, open: make(chan struct{})}
				var got []events.Event
				done := make(chan struct{})
				go func() {
					defer close(done)
					for e, err := range events.Follow(t.Context(), gate, ws, runID) {
						if err != nil {
							t.Errorf("the follower fails: %v", err)
							return
						}
						got = append(got, e)
					}
				}()
				synctest.Wait()
				log := resume(t, s)
				for range test.lines {
					log.Emit(events.Event{Type: events.TaskCompleted})
				}
				if err := log.Flush(); err != nil {
					t.Fatal(err)
				}
				close(gate.open)
				synctest.Wait()
				log.Emit(events.Event{Type: events.RunFailed})
				if err := log.Close(); err != nil {
					t.Fatal(err)
				}
				<-done
				if want := 2 + test.lines; len(got) != want || got[len(got)-1].Type != events.RunFailed {
					t.Errorf("%d events, want %d up to the run's end: %v", len(got), want, got)
				}
				for _, e := range got {
					if !e.Time.Equal(epoch) {
						t.Errorf("event %d is put together from two lines: its time is %v", e.Seq, e.Time)
					}
				}
			})
		})
	}
}

// gated is a store whose first reader, once it has read everything, does not read again before the gate opens. It then
// continues from there.
type gated struct {
	*mem.Store
	opened int
	open   chan struct{}
}

func (g *gated) Open(ctx context.Context, key refstore.Key, offset int64) (io.ReadCloser, error) {
	r, err := g.Store.Open(ctx, key, offset)
	if g.opened++; g.opened > 1 || err != nil {
		if g.opened == 2 && err == nil {
			r.Close()
			<-g.open
			return g.Store.Open(ctx, key, offset)
		}
		return r, err
	}
	return &gatedReader{ReadCloser: r, at: offset, again: func(at int64) (io.ReadCloser, error) {
		<-g.open
		return g.Store.Open(ctx, key, at)
	}}, nil
}

type gatedReader struct {
	io.ReadCloser
	at    int64
	again func(at int64) (io.ReadCloser, error)
}

func (g *gatedReader) Read(p []byte) (int, error) {
	n, err := g.ReadCloser.Read(p)
	g.at += int64(n)
	if err != io.EOF || g.again == nil {
		return n, err
	}
	if g.ReadCloser, err = g.again(g.at); err != nil {
		return n, err
	}
	g.again = nil
	return n, nil
}

// Lasting damage is reported; the follower does not wait for it.
func TestFollowDamaged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := finished(t, events.RunStarted)
		write(t, s, "oops\n")
		var errs []error
		n := 0
		for _, err := range events.Follow(t.Context(), s, ws, runID) {
			if err != nil {
				errs = append(errs, err)
			} else {
				n++
			}
		}
		if n != 1 || len(errs) != 1 || !strings.Contains(errs[0].Error(), "byte") {
			t.Errorf("%d events and the errors %v, want one of each", n, errs)
		}
	})
}

// collect reads what is recorded in the background, and returns the events so far.
func collect(ctx context.Context, t *testing.T, s refstore.Streams, f events.Filter, latest bool) (got func() []string, done chan struct{}) {
	var mu sync.Mutex
	var list []string
	done = make(chan struct{})
	go func() {
		defer close(done)
		for e, err := range events.ReadRecorded(ctx, s, f, events.RecordedOptions{Latest: latest, Follow: true}) {
			mu.Lock()
			if err != nil {
				list = append(list, "error "+err.Error())
			} else {
				list = append(list, fmt.Sprintf("%s/%s/%d", e.Workspace, e.Run, e.Seq))
			}
			mu.Unlock()
		}
	}()
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(list)
	}, done
}

// begin records a run in the journal of its workspace, and begins its log.
func begin(t *testing.T, s refstore.Streams, ws, run string) *events.Log {
	t.Helper()
	if _, err := events.RecordRun(t.Context(), s, ws, run, time.Now, 0); err != nil {
		t.Fatal(err)
	}
	return events.Create(s, ws, run, time.Now)
}

// A follower of a workspace continues with each run that begins, even if the one before never ended; a follower of all
// workspaces also with new workspaces.
func TestFollowAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := mem.New()
		ctx, cancel := context.WithCancel(t.Context())
		old := begin(t, s, "w", "r0")
		old.Emit(events.Event{Type: events.RunStarted})
		old.Close()
		one := begin(t, s, "w", "r1")
		one.Emit(events.Event{Type: events.RunStarted})
		one.Emit(events.Event{Type: events.TaskStarted, Task: "a"})
		one.Flush()

		w, wDone := collect(ctx, t, s, events.Filter{Workspace: "w"}, true)
		from, fromDone := collect(ctx, t, s, events.Filter{Workspace: "w", FromSeq: 2}, true)
		newest, newestDone := collect(ctx, t, s, events.Filter{Workspace: "w", Last: 1}, true)
		all, allDone := collect(ctx, t, s, events.Filter{}, false)
		last, lastDone := collect(ctx, t, s, events.Filter{Last: 2}, false)
		task, taskDone := collect(ctx, t, s, events.Filter{Task: "a"}, false)
		synctest.Wait()
		one.Emit(events.Event{Type: events.TaskCompleted, Task: "a"})
		one.Flush()
		time.Sleep(time.Second)
		two := begin(t, s, "w", "r2") // the first run has died
		two.Emit(events.Event{Type: events.RunStarted})
		two.Flush()
		synctest.Wait()
		time.Sleep(time.Second)
		other := begin(t, s, "x", "r0") // its clock is late
		other.Emit(events.Event{Type: events.RunStarted})
		other.Emit(events.Event{Type: events.RunCompleted})
		other.Close()
		time.Sleep(1500 * time.Millisecond) // by then a follower of both has read this event
		two.Emit(events.Event{Type: events.RunCompleted})
		two.Close()
		time.Sleep(time.Second)
		three := begin(t, s, "w", "r3")
		three.Emit(events.Event{Type: events.RunStarted})
		three.Close()
		time.Sleep(time.Second)
		cancel()
		for _, done := range []chan struct{}{wDone, fromDone, newestDone, allDone, lastDone, taskDone} {
			<-done
		}
		for _, test := range []struct {
			name string
			got  func() []string
			want string
		}{
			{"workspace", w, "w/r1/1 w/r1/2 w/r1/3 w/r2/1 w/r2/2 w/r3/1"},
			{"from", from, "w/r1/2 w/r1/3 w/r2/1 w/r2/2 w/r3/1"},
			{"newest", newest, "w/r1/2 w/r1/3 w/r2/1 w/r2/2 w/r3/1"},
			{"all", all, "w/r0/1 w/r1/1 w/r1/2 w/r1/3 w/r2/1 x/r0/1 x/r0/2 w/r2/2 w/r3/1"},
			{"last", last, "w/r1/1 w/r1/2 w/r1/3 w/r2/1 x/r0/1 x/r0/2 w/r2/2 w/r3/1"},
			{"task", task, "w/r1/2 w/r1/3"},
		} {
			if got := strings.Join(test.got(), " "); got != test.want {
				t.Errorf("%s:\ngot  %s\nwant %s", test.name, got, test.want)
			}
		}
	})
}

// A task with an event of its own is not repeated from a bulk event; a task without one is reported at the run's end.
func TestFollowBulk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := mem.New()
		put(t, s, "w", "r1", lines(t, "w", "r1", events.Event{Type: events.TaskCompleted, Task: "a"}, events.Event{Type: events.TaskCompleted, Task: "b"}, events.Event{Type: events.RunCompleted}))
		ctx, cancel := context.WithCancel(t.Context())
		has := func(context.Context, string, events.RunRef) (bool, error) { return true, nil }
		a, aDone := collect(ctx, t, s, events.Filter{Task: "a", HasTask: has}, true)
		b, bDone := collect(ctx, t, s, events.Filter{Task: "b", HasTask: has}, true)
		synctest.Wait()
		log := begin(t, s, "w", "r2")
		log.Emit(events.Event{Type: events.RunStarted})
		log.Emit(events.Event{Type: events.TaskCached, Data: &events.Data{Tasks: 200, As: "r1"}})
		log.Emit(events.Event{Type: events.TaskCompleted, Task: "b"})
		log.Emit(events.Event{Type: events.RunCompleted})
		log.Close()
		time.Sleep(time.Second)
		cancel()
		<-aDone
		<-bDone
		if got := strings.Join(a(), " "); got != "w/r1/1 w/r2/2" {
			t.Errorf("a: %s", got)
		}
		if got := strings.Join(b(), " "); got != "w/r1/2 w/r2/3" {
			t.Errorf("b: %s", got)
		}
	})
}

// A damaged line is reported once; after it was cut, the follower continues.
func TestFollowAllDamaged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := finished(t, events.RunStarted)
		write(t, s, "oops\n")
		ctx, cancel := context.WithCancel(t.Context())
		got, done := collect(ctx, t, s, events.Filter{}, false)
		time.Sleep(time.Second)
		write(t, s, "and again\n")
		time.Sleep(time.Second)
		if list := got(); len(list) != 2 || !strings.HasPrefix(list[1], "error events of run "+runID) {
			t.Errorf("got %q, want an event and one error", list)
		}
		log := resume(t, s)
		log.Emit(events.Event{Type: events.RunFailed})
		log.Close()
		time.Sleep(time.Second)
		if list := got(); len(list) != 3 || !strings.HasSuffix(list[2], "/2") {
			t.Errorf("got %q, want the run's end as well", list)
		}
		// The log is removed, and then replaced.
		if err := s.Remove(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		cancel()
		<-done
		if list := got(); len(list) != 3 {
			t.Errorf("got %q after the log was removed", list)
		}
	})
}

// Many followers that start at any time and number see every event once, across crashes of the writer.
func TestFollowManyOverCrashes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := mem.New()
		var wg sync.WaitGroup
		follow := func(from int64) {
			wg.Go(func() {
				next := from
				for e, err := range events.FollowRun(t.Context(), s, events.Filter{Workspace: ws, Run: runID, FromSeq: from}, nil) {
					if err != nil || e.Seq != next {
						t.Errorf("follower from %d: got event %d, %v when %d was due", from, e.Seq, err, next)
						return
					}
					next++
				}
				if next != 202 {
					t.Errorf("follower from %d ended before event %d", from, next)
				}
			})
		}
		for round := range 10 {
			log := resume(t, s)
			for range 20 {
				follow(int64(round*20 + 1))
				log.Emit(events.Event{Type: events.TaskStarted})
				time.Sleep(3 * time.Millisecond)
				follow(1)
			}
			if err := log.Close(); err != nil {
				t.Fatal(err)
			}
			write(t, s, `{"seq":`+strconv.Itoa(round*20+21)+`,"torn`) // the writer has died
			time.Sleep(time.Second)
		}
		log := resume(t, s)
		log.Emit(events.Event{Type: events.RunFailed})
		log.Close()
		wg.Wait()
	})
}

// Across processes, with file notification and without: each run is followed to its end, and then the next.
func TestFollowFiles(t *testing.T) {
	for _, test := range []struct {
		name string
		o    fs.Options
	}{
		{"notified", fs.Options{}},
		{"looking", fs.Options{NoNotify: true, Poll: 5 * time.Millisecond}},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			open := func() *fs.Store {
				s, err := fs.Open(dir, test.o)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { s.Close() })
				return s
			}
			const runs, each = 4, 50
			var followers, ready sync.WaitGroup
			ready.Add(3)
			for range 3 {
				followers.Go(func() {
					s := open()
					ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
					defer cancel()
					var got []string
					ready.Done()
					for e, err := range events.ReadRecorded(ctx, s, events.Filter{}, events.RecordedOptions{Follow: true}) {
						if err != nil {
							t.Error(err)
							return
						}
						got = append(got, fmt.Sprintf("%s/%d", e.Run, e.Seq))
						if len(got) == runs*(each+2) {
							break
						}
					}
					for i, g := range got {
						if want := fmt.Sprintf("r%d/%d", i/(each+2), i%(each+2)+1); g != want {
							t.Errorf("event %d is %s, want %s", i, g, want)
							return
						}
					}
					if len(got) != runs*(each+2) {
						t.Errorf("%d events came, want %d", len(got), runs*(each+2))
					}
				})
			}
			ready.Wait()
			s := open()
			for r := range runs {
				log := begin(t, s, ws, fmt.Sprintf("r%d", r))
				log.Emit(events.Event{Type: events.RunStarted})
				for range each {
					log.Emit(events.Event{Type: events.TaskStarted})
					if err := log.Flush(); err != nil {
						t.Fatal(err)
					}
				}
				log.Emit(events.Event{Type: events.RunCompleted})
				if err := log.Close(); err != nil {
					t.Fatal(err)
				}
			}
			followers.Wait()
		})
	}
}

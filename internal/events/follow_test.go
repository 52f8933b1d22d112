package events_test

import (
	"context"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"e3/internal/events"
	"e3/refstore"
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

// Followers that come before the first event, in the middle and after the end all see the
// whole run, each event when it is flushed, and stop at its end.
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
					t.Errorf("a follower that is called off: %v", err)
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

// Who closes a crashed run cuts the torn tail that a follower has read already. The
// follower goes on with what takes its place.
func TestFollowOverCrash(t *testing.T) {
	for _, test := range []struct {
		name  string
		lines int // emitted when the tail was cut, before the follower looks again
	}{
		{"sees the cut", 0},
		{"finds less than it has read", 1},
		{"finds more than it has read", 10},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := finished(t, events.RunStarted)
				write(t, s, `{"seq":2,"time":"2026-11-20T12:00:00.000Z","run":"`+runID+`","workspace":"prod","type":"task.failed","data":{"message":"`+
					strings.Repeat("x", 300))
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
						got = append(got, e.Event)
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
			})
		})
	}
}

// gated is a store whose followers, once they have read all there was, do not look again
// before the gate opens.
type gated struct {
	*mem.Store
	open chan struct{}
}

func (g *gated) Follow(ctx context.Context, key refstore.Key, offset int64) (io.ReadCloser, error) {
	r, err := g.Store.Follow(ctx, key, offset)
	return &gatedReader{ReadCloser: r, open: g.open}, err
}

type gatedReader struct {
	io.ReadCloser
	reads int
	open  chan struct{}
}

func (g *gatedReader) Read(p []byte) (int, error) {
	if g.reads++; g.reads > 1 {
		<-g.open
	}
	return g.ReadCloser.Read(p)
}

// Damage that stays is reported, not waited for.
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

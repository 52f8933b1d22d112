package events_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"e3/internal/events"
	"e3/refstore"
	"e3/refstore/mem"
)

// lateStore calls late once, when a stream was read to its end.
type lateStore struct {
	*mem.Store
	late func()
}

func (s *lateStore) Open(ctx context.Context, key refstore.Key, offset int64) (io.ReadCloser, error) {
	r, err := s.Store.Open(ctx, key, offset)
	if late := s.late; late != nil && err == nil {
		s.late = nil
		late()
	}
	return r, err
}

// A writer that was presumed dead may append once more while its log is being resumed. Its line is not cut, since a
// reader may have read it, and the resumed log gets a conflict.
func TestResumeWhileAppending(t *testing.T) {
	s := &lateStore{Store: mem.New()}
	dead := events.Create(s, ws, runID, fixed)
	dead.Emit(events.Event{Type: events.RunStarted})
	if err := dead.Flush(); err != nil {
		t.Fatal(err)
	}
	dead.Emit(events.Event{Type: events.TaskMarkedReady, Task: "late"})
	s.late = func() {
		if err := dead.Flush(); err != nil {
			t.Error(err)
		}
	}
	log, err := events.Resume(t.Context(), s, ws, runID, fixed, nil)
	if err != nil {
		t.Fatal(err)
	}
	wantEvents(t, s.Store, events.RunStarted, events.TaskMarkedReady)
	log.Emit(events.Event{Type: events.RunFailed})
	if err := log.Close(); !errors.Is(err, refstore.ErrConflict) {
		t.Errorf("the log that was resumed: %v, want ErrConflict", err)
	}
	log, err = events.Resume(t.Context(), s, ws, runID, fixed, nil)
	if err != nil {
		t.Fatal(err)
	}
	log.Emit(events.Event{Type: events.RunFailed})
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	dead.Emit(events.Event{Type: events.RunCompleted})
	if err := dead.Close(); !errors.Is(err, refstore.ErrConflict) {
		t.Errorf("the writer that was presumed dead: %v, want ErrConflict", err)
	}
	wantEvents(t, s.Store, events.RunStarted, events.TaskMarkedReady, events.RunFailed)
}

// slowStore takes a while to append, and counts the appends.
type slowStore struct {
	*mem.Store
	takes   time.Duration
	appends int
}

func (s *slowStore) StreamPace() time.Duration { return time.Second }

func (s *slowStore) Append(ctx context.Context, key refstore.Key, offset int64, data []byte) error {
	s.appends++
	select {
	case <-time.After(s.takes):
		return s.Store.Append(ctx, key, offset, data)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// If appends cost, events are gathered for a second, and Emit does not wait for the append.
func TestPacedLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slowStore{Store: mem.New(), takes: 3 * time.Second}
		log := events.Create(s, ws, runID, time.Now)
		began := time.Now()
		const n = 1000
		for i := range n {
			log.Emit(events.Event{Type: events.TaskMarkedReady})
			if i%100 == 99 {
				time.Sleep(time.Second)
			}
		}
		if took := time.Since(began); took != 10*time.Second {
			t.Errorf("emitting took %v, want 10 s", took)
		}
		if err := log.Close(); err != nil {
			t.Fatal(err)
		}
		if list, err := readAll(t, s.Store); err != nil || len(list) != n {
			t.Errorf("%d events, %v, want %d", len(list), err, n)
		}
		if s.appends > 5 {
			t.Errorf("%d appends in %v", s.appends, time.Since(began))
		}
	})
}

// A stopped log appends nothing more, cancels an append in progress, and returns the cause.
func TestStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slowStore{Store: mem.New(), takes: time.Hour}
		log := events.Create(s, ws, runID, time.Now)
		log.Emit(events.Event{Type: events.RunStarted})
		time.AfterFunc(time.Minute, func() { log.Stop(refstore.ErrLost) })
		began := time.Now()
		if err := log.Close(); !errors.Is(err, refstore.ErrLost) || time.Since(began) != time.Minute {
			t.Errorf("after %v: %v, want ErrLost after a minute", time.Since(began), err)
		}
		log.Emit(events.Event{Type: events.RunCompleted})
		if err := log.Close(); !errors.Is(err, refstore.ErrLost) || s.appends != 1 {
			t.Errorf("%v after %d appends, want ErrLost after one", err, s.appends)
		}
		if _, err := s.Size(t.Context(), key); !errors.Is(err, refstore.ErrNotFound) {
			t.Errorf("the stream: %v", err)
		}
	})
}

// Emit waits for a store that does not answer only after many events are gathered, and at most until Stop.
func TestEmitIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slowStore{Store: mem.New(), takes: time.Hour}
		log := events.Create(s, ws, runID, time.Now)
		time.AfterFunc(time.Minute, func() { log.Stop(refstore.ErrLost) })
		began, bytes := time.Now(), 0
		for time.Since(began) < time.Minute {
			e := log.Emit(events.Event{Type: events.TaskFailed, Data: &events.Data{Message: string(make([]byte, 1<<10))}})
			bytes += len(e.Data.Message)
			synctest.Wait()
			if bytes > 64<<20 {
				t.Fatalf("%d bytes were gathered", bytes)
			}
		}
	})
}

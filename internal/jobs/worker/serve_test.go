package worker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"e3/internal/jobs/queue"
	"e3/internal/jobs/worker"
	"e3/refstore"
)

// The server's actions after each end of a worker. The worker of a step works for some time, or cannot begin, and ends
// with err.
func TestServer(t *testing.T) {
	type step struct {
		begins bool
		works  time.Duration
		err    error
	}
	lost, down := errors.New("lease lost"), errors.New("store down")
	for _, test := range []struct {
		name  string
		o     worker.Options
		steps []step
		want  error
		log   []string
	}{
		{"ends by itself", worker.Options{}, []step{{true, time.Hour, nil}}, nil, []string{"0s begun", "0s ready"}},
		{"cannot begin", worker.Options{}, []step{{false, 0, down}}, down, []string{"0s begun"}},
		{"a session that is old is no loss", worker.Options{}, []step{{true, time.Hour, worker.ErrRenew}, {true, 0, nil}}, nil,
			[]string{"0s begun", "0s ready", "1h0m0s begun"}},
		{"the pause doubles, and the same reason is reported once a minute", worker.Options{},
			[]step{{true, 0, lost}, {false, 0, down}, {false, 0, down}, {false, 0, down}, {false, 0, down}, {false, 0, down}, {false, 0, down}, {true, 0, nil}}, nil,
			[]string{"0s begun", "0s ready", "0s lost: lease lost", "1s begun", "1s lost: store down", "3s begun", "7s begun", "15s begun", "31s begun",
				"1m1s begun", "1m1s lost: store down", "1m31s begun", "1m31s ready"}},
		{"after the loss of the lease the next begins at once, and after that failed, later", worker.Options{},
			[]step{{true, time.Minute, refstore.ErrLost}, {false, 0, down}, {true, time.Minute, refstore.ErrLost}, {true, 0, nil}}, nil,
			[]string{"0s begun", "0s ready", "1m0s lost: " + refstore.ErrLost.Error(), "1m0s begun", "1m0s lost: store down", "1m2s begun", "1m2s ready",
				"2m2s lost: " + refstore.ErrLost.Error(), "2m2s begun", "2m2s ready"}},
		{"a lease that is lost as soon as it is there", worker.Options{}, []step{{true, 0, refstore.ErrLost}, {true, 0, refstore.ErrLost}, {true, 0, nil}}, nil,
			[]string{"0s begun", "0s ready", "0s lost: " + refstore.ErrLost.Error(), "1s begun", "1s ready", "1s lost: " + refstore.ErrLost.Error(), "2s begun", "2s ready"}},
		{"the time is over", worker.Options{For: time.Hour}, []step{{true, time.Hour - time.Second, lost}}, nil,
			[]string{"0s begun", "0s ready", "59m59s lost: lease lost"}},
		{"a job that cannot be read", worker.Options{Job: "id"}, []step{{true, 0, queue.ErrMalformed}}, queue.ErrMalformed, []string{"0s begun", "0s ready"}},
		{"is stopped", worker.Options{}, []step{{true, 0, worker.ErrStopped}}, worker.ErrStopped, []string{"0s begun", "0s ready"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				var log []string
				say := func(text string) { log = append(log, fmt.Sprint(time.Since(start), " ", text)) }
				steps := test.steps
				s := &worker.Server{
					Once: func(_ context.Context, _ <-chan struct{}, _ worker.Options, begun func()) error {
						say("begun")
						next := steps[0]
						steps = steps[1:]
						if next.begins {
							begun()
						}
						time.Sleep(next.works)
						return next.err
					},
					Ready: func() { say("ready") },
					Lost:  func(err error) { say("lost: " + err.Error()) },
				}
				if err := s.Run(t.Context(), nil, test.o); !errors.Is(err, test.want) || (err == nil) != (test.want == nil) {
					t.Errorf("got %v, want %v", err, test.want)
				}
				if !slices.Equal(log, test.log) || len(steps) > 0 {
					t.Errorf("got %q, want %q; %d steps are left", log, test.log, len(steps))
				}
			})
		})
	}
}

// A draining server begins no worker, and reports that; one that waits for its next try ends at once.
func TestServerDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		drain, told := make(chan struct{}), 0
		s := &worker.Server{
			Once: func(_ context.Context, _ <-chan struct{}, _ worker.Options, begun func()) error {
				begun()
				return errors.New("lost")
			},
			Ready: func() {}, Lost: func(error) { close(drain) },
		}
		o := worker.Options{Report: func(e worker.Event) {
			if e.Type == worker.Draining {
				told++
			}
		}}
		start := time.Now()
		if err := s.Run(t.Context(), drain, o); err != nil || time.Since(start) > 0 {
			t.Errorf("while it waits: %v after %v, want nil at once", err, time.Since(start))
		}
		if err := s.Run(t.Context(), drain, o); err != nil || told != 1 {
			t.Errorf("before it begins: %v, told %d times, want nil, once", err, told)
		}
	})
}

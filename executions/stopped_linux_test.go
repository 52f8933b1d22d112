package executions_test

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"e3/executions"
	"e3/internal/format/record"
)

// A worker is stopped until its supervisor has killed its command, and wakes up. It records the command as lost, unless
// another process has settled the execution.
func TestStoppedWorker(t *testing.T) {
	for _, announced := range []time.Duration{time.Millisecond, time.Hour} {
		for _, settled := range []bool{true, false} {
			t.Run(fmt.Sprintf("announced after %v, settled %v", announced, settled), func(t *testing.T) {
				t.Parallel()
				e := beginWork(t, &order{Announce: announced, For: 3 * time.Second}, untilGo+"echo made > out")
				if announced < time.Hour {
					e.running(t, "begun\n")
				}
				signal := func(s syscall.Signal) {
					t.Helper()
					if err := e.cmd.Process.Signal(s); err != nil {
						t.Fatal(err)
					}
				}
				signal(syscall.SIGSTOP)
				e.gone(t, "pid")
				second := newID(t)
				if settled {
					if res, err := e.Settle(t.Context(), keyOf(e.req), nil, e.order.ID, executions.ReasonLost, "taken over"); err != nil || res.Reason != executions.ReasonLost {
						t.Fatalf("settled: %+v, %v", res, err)
					}
					touch(t, e.file("go"))
					e.req.Job.Identity = "another"
					if res, err := e.Make(t.Context(), e.req, second); err != nil || res.State != record.Success {
						t.Fatalf("made anew: %+v, %v", res, err)
					}
				}
				signal(syscall.SIGCONT)
				_ = e.cmd.Wait() // exit status 1
				want, message := "made error lost", "without word from their owner"
				if settled {
					want, message = "was given up by another process", "taken over"
				}
				if !strings.Contains(e.said.String(), want) {
					t.Errorf("the worker said %q, want %q", e.said.String(), want)
				}
				x, err := e.Get(t.Context(), keyOf(e.req), e.order.ID)
				if err != nil || x.State != record.Error || x.Detail == nil || x.Detail.Reason != "lost" || !strings.Contains(x.Message, message) {
					t.Errorf("on record is %+v, %v, want %q", x, err, message)
				}
				a, err := e.Lookup(t.Context(), keyOf(e.req))
				if err != nil || (a.Hit != nil) != settled || settled && a.Hit.ExecutionID != second {
					t.Errorf("the answer is %+v, %v", a, err)
				}
			})
		}
	}
}

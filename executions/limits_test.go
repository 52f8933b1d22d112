package executions_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"e3/executions"
	"e3/internal/format/record"
	"e3/internal/host/cgroup"
	"e3/internal/host/runner"
)

// limiting is a runner on a machine that can hold limits, or says why it cannot.
type limiting struct {
	end  runner.Result
	lack error
	got  []*cgroup.Limits
}

func (l *limiting) Limits() error { return l.lack }

func (l *limiting) Run(_ context.Context, spec runner.Spec) (runner.Result, error) {
	l.got = append(l.got, spec.Limits)
	return l.end, nil
}

func TestLimits(t *testing.T) {
	demands := record.Policy{CPU: 1.5, Memory: 2 << 30, Limits: true}
	all := &cgroup.Limits{CPU: 1.5, Memory: 2 << 30}
	failed := runner.Result{ExitCode: 1}
	killed := runner.Result{OOM: true, Signal: 9, ExitCode: -1, PeakRSS: 3 << 30}
	limit := killed
	limit.Limit = true
	unavailable := fmt.Errorf("%w: no file system", cgroup.ErrUnavailable)
	for _, test := range []struct {
		name    string
		policy  record.Policy
		lack    error
		end     runner.Result
		want    *cgroup.Limits
		told    string // in what is told once
		message string // in the result
	}{
		{"all", demands, nil, failed, all, "", ""},
		{"none", record.Policy{CPU: 1.5, Memory: 2 << 30}, unavailable, failed, nil, "", ""},
		{"nothing to limit", record.Policy{Limits: true}, nil, failed, &cgroup.Limits{}, "", ""},
		{"unavailable", demands, unavailable, failed, nil, "tasks with limits run without them: limits cannot be held here: no file system", ""},
		{"some", demands, &cgroup.LackError{Lacks: []string{"cpu"}, Why: "x"}, failed, all, "run without some of their limits: some limits cannot be held here (cpu): x", ""},
		{"its memory", demands, nil, limit, all, "", "out of memory: its limit is 2.0 GiB, set by resources.memory in the package file"},
		{"the machine's memory", demands, nil, killed, all, "", "memory was used up (the command had 3.0 GiB)"},
		{"the machine's memory, without limits", demands, unavailable, killed, nil, "tasks with limits run without them", "memory was used up (the largest process had 3.0 GiB)"},
	} {
		t.Run(test.name, func(t *testing.T) {
			run := &limiting{end: test.end, lack: test.lack}
			var told []string
			l := newLab(t)
			opts := executions.Options{Scratch: l.records.SessionDir, Now: time.Now, Getenv: func(string) (string, bool) { return "", false },
				Unlimited: func(err error) {
					if !errors.Is(err, test.lack) {
						t.Errorf("the error is another one: %v", err)
					}
					told = append(told, err.Error())
				}}
			x := executions.NewExecutor(executions.NewStore(l.records, l.objects), l.objects, l.records, run, opts)
			req := l.request(script("exit 1"))
			req.Policy = &test.policy
			for range 2 {
				got, err := x.Do(t.Context(), req)
				if err != nil || !strings.Contains(got.Message, test.message) {
					t.Errorf("got %+v, %v; want %q", got, err, test.message)
				}
			}
			if diff := cmp.Diff([]*cgroup.Limits{test.want, test.want}, run.got); diff != "" {
				t.Errorf("limits (-want +got):\n%s", diff)
			}
			if n := len(told); n > 1 || (n == 1) != (test.told != "") || n == 1 && !strings.Contains(told[0], test.told) {
				t.Errorf("told is %q, want %q once", told, test.told)
			}
		})
	}
}

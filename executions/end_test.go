package executions_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"e3/executions"
	"e3/internal/format/record"
)

// The ways in which a command may fail.
func TestEnds(t *testing.T) {
	l := newLab(t)
	argv := func(argv ...string) *record.Task {
		return &record.Task{Argv: argv, Output: script("").Output}
	}
	for _, test := range []struct {
		name    string
		task    *record.Task
		policy  *record.Policy
		state   record.State
		reason  executions.Reason
		exit    int64
		message string
	}{
		{"exit code", script("echo x > out; exit 7"), nil, record.Failed, "", 7, ""},
		{"command of a pipe fails", script("false | cat; echo x > out"), nil, record.Failed, "", 1, ""},
		{"unset name", script(`echo "$nothing" > out`), nil, record.Failed, "", 1, ""},
		{"signal", script("echo x > out; kill -SEGV $$"), nil, record.Error, executions.ReasonSignal, 0, "signal 11"},
		{"killed", script("kill -KILL $$"), nil, record.Error, executions.ReasonSignal, 0, "signal 9 (killed)"},
		{"timeout", script("echo x > out; sleep 60"), &record.Policy{Timeout: 50 * time.Millisecond}, record.Error, executions.ReasonTimeout, 0, "timed out after 50ms"},
		{"timeout, taken as success", script("trap 'echo x > out; exit 0' TERM; sleep 60 & wait"), &record.Policy{Timeout: 50 * time.Millisecond},
			record.Error, executions.ReasonTimeout, 0, "timed out after 50ms"},
		{"no such command", argv("no-such-command-here"), nil, record.Error, executions.ReasonStart, 0, "no-such-command-here"},
		{"not executable", argv("/etc/hostname"), nil, record.Error, executions.ReasonStart, 0, "/etc/hostname"},
		{"directory", argv("/"), nil, record.Error, executions.ReasonStart, 0, "/"},
		{"no output", script("true"), nil, record.Error, executions.ReasonOutput, 0, "nothing"},
	} {
		t.Run(test.name, func(t *testing.T) {
			req := l.request(test.task)
			req.Policy = test.policy
			res := l.do(t, req)
			if res.State != test.state || res.Reason != test.reason || !strings.Contains(res.Message, test.message) {
				t.Errorf("got %v %q: %q, want %v %q: %q", res.State, res.Reason, res.Message, test.state, test.reason, test.message)
			}
			if test.state == record.Failed && res.ExitCode != test.exit {
				t.Errorf("exit code is %d, want %d", res.ExitCode, test.exit)
			}
			if !res.Output.IsZero() {
				t.Errorf("it has the output %s", res.Output)
			}
			e, err := l.Get(t.Context(), keyOf(req), res.ExecutionID)
			if err != nil {
				t.Fatal(err)
			}
			if e.State != res.State || e.Message != res.Message || e.OutputHash != "" || e.Detail == nil || e.Detail.Reason != string(test.reason) {
				t.Errorf("on record: %+v, %+v", e.Status, e.Detail)
			}
			if test.reason == executions.ReasonSignal && e.Detail.Signal == "" {
				t.Error("the signal is not on record")
			}
		})
	}
}

// The log of a cancelled command is kept; its outputs are not.
func TestCancel(t *testing.T) {
	l := newLab(t)
	ready := filepath.Join(t.TempDir(), "ready")
	req := l.request(script("echo begun; echo x > out; touch " + ready + "; sleep 60"))
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		for !exists(ready) {
			time.Sleep(time.Millisecond)
		}
		cancel(errors.New("enough"))
	}()
	res, err := l.Do(ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	if res.State != record.Error || res.Reason != executions.ReasonCancelled || res.Message != "cancelled" || !res.Output.IsZero() {
		t.Errorf("got %+v, want error: cancelled", res)
	}
	if got := l.log(t, req, res.ExecutionID, executions.Stdout); got != "begun\n" {
		t.Errorf("the log is %q", got)
	}
	if e, err := l.Get(t.Context(), keyOf(req), res.ExecutionID); err != nil || e.State != record.Error || e.Message != "cancelled" {
		t.Errorf("on record: %+v, %v", e, err)
	}
}

func TestCancelledBefore(t *testing.T) {
	l := newLab(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	cancel(enough)
	req := l.request(script("echo x > out"))
	if res, err := l.Do(ctx, req); !errors.Is(err, enough) && !errors.Is(err, context.Canceled) {
		t.Errorf("got %+v, %v, want the cause", res, err)
	}
	if n := len(l.all(t, keyOf(req))); n != 0 {
		t.Errorf("%d executions are on record, want none", n)
	}
}

// A short log is stored in the record, a long one beside it; both read the same.
func TestLogs(t *testing.T) {
	l := newLab(t, func(o *executions.Options) { o.Announce = time.Hour }) // however slow the machine is
	for _, size := range []int{0, 1, 64 << 10, 64<<10 + 1, 300_000} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			req := l.request(script(fmt.Sprintf("head -c %d /dev/zero | tr '\\0' x; printf '\\377\\0e' >&2; echo x > out", size)))
			res := l.do(t, req)
			if res.State != record.Success {
				t.Fatalf("got %+v", res)
			}
			if got := l.log(t, req, res.ExecutionID, executions.Stdout); got != strings.Repeat("x", size) {
				t.Errorf("the log has %d bytes", len(got))
			}
			if got := l.log(t, req, res.ExecutionID, executions.Stderr); got != "\xff\x00e" {
				t.Errorf("bytes came back as %q", got)
			}
			if n, err := l.LogSize(t.Context(), keyOf(req), res.ExecutionID, executions.Stdout); err != nil || n != int64(size) {
				t.Errorf("LogSize is %d, %v, want %d", n, err, size)
			}
			folder := filepath.Join(l.dir, "executions", req.Task.String(), keyOf(req).Inputs.String(), res.ExecutionID)
			if there := exists(filepath.Join(folder, "stdout.txt")); there != (size > 0) {
				t.Errorf("stdout.txt is there: %v", there)
			}
		})
	}
}

// After a fault, the log of one command does not appear in the next one's.
func TestLogsAfterFault(t *testing.T) {
	l := newLab(t)
	broken := &brokenObjects{Dir: l.objects, fault: errors.New("disk full")}
	x := executions.NewExecutor(l.Store, broken, l.records, l.sup, executions.Options{
		Path: "/usr/bin:/bin", Scratch: l.records.SessionDir, Now: time.Now, Getenv: func(string) (string, bool) { return "", false },
	})
	if res, err := x.Do(t.Context(), l.request(script("echo secret plan; echo x > out"))); !errors.Is(err, broken.fault) {
		t.Fatalf("got %+v, %v, want the fault", res, err)
	}
	broken.fault = nil
	for _, text := range []string{"true", "echo mine"} {
		req := l.request(script(text + "; echo y > out"))
		res, err := x.Do(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		if got := l.log(t, req, res.ExecutionID, executions.Stdout); strings.Contains(got, "secret") {
			t.Errorf("%s: the log is %q", text, got)
		}
	}
}

// Values of secrets are masked in both logs, but not in outputs.
func TestSecrets(t *testing.T) {
	l := newLab(t)
	l.env["TOKEN"], l.env["EMPTY"] = "s3cr3t-token", ""
	task := script(`echo "key $TOKEN, $TOKEN"; echo "$TOKEN" >&2; printf "$TOKEN" > out`)
	task.Passed.Secrets = []string{"EMPTY", "TOKEN"}
	req := l.request(task)
	res := l.do(t, req)
	if res.State != record.Success {
		t.Fatalf("got %+v\n%s", res, l.log(t, req, res.ExecutionID, executions.Stderr))
	}
	for _, stream := range []executions.Stream{executions.Stdout, executions.Stderr} {
		if got := l.log(t, req, res.ExecutionID, stream); strings.Contains(got, "s3cr3t") || !strings.Contains(got, "***") {
			t.Errorf("%s is %q", stream, got)
		}
	}
	if got := l.content(t, res.Output); got != "s3cr3t-token" {
		t.Errorf("the command was given %q", got)
	}
	l.env["TOKEN"] = "another"
	if again := l.do(t, req); !again.Cached {
		t.Error("the value of a secret is part of the key")
	}
}

package executions_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"e3/executions"
	"e3/internal/format/record"
)

// readLog reads a checked log.
func readLog(t *testing.T, l *lab, e *executions.Execution, s executions.Stream) (string, error) {
	t.Helper()
	in, err := l.CheckedLog(t.Context(), e, s)
	if err != nil {
		return "", err
	}
	defer in.Close()
	text, err := io.ReadAll(in)
	return string(text), err
}

// After a log was changed, cut or removed, every reader gets an error, and a repair keeps the readable part with a
// notice.
func TestDamagedLogIsReported(t *testing.T) {
	for name, run := range map[string]string{
		"short": "echo one; echo two >&2; echo > out",
		"long":  "echo one; echo two >&2; echo > out; sleep 0.3; echo more",
		"large": "seq 1 30000; echo two >&2; echo > out",
	} {
		for how, harm := range map[string]func(path string, text []byte) error{
			"changed": func(path string, text []byte) error {
				text[1] ^= 1
				return os.WriteFile(path, text, 0o644)
			},
			"cut":     func(path string, text []byte) error { return os.WriteFile(path, text[:len(text)-2], 0o644) },
			"removed": func(path string, _ []byte) error { return os.Remove(path) },
		} {
			t.Run(name+"/"+how, func(t *testing.T) {
				l := newLab(t)
				req := l.request(script(run))
				res := l.do(t, req)
				e, err := l.Get(t.Context(), keyOf(req), res.ExecutionID)
				if err != nil {
					t.Fatal(err)
				}
				if logs := e.Detail.Logs; !logs.Known || logs.Stderr.Size != 4 {
					t.Fatalf("the sums of its logs are %+v, want known, with 4 bytes in stderr", logs)
				}
				whole, err := readLog(t, l, e, executions.Stdout)
				if err != nil {
					t.Fatalf("undamaged: %v", err)
				}
				path := filepath.Join(l.dir, "executions", e.Key.String(), e.ExecutionID, "stdout.txt")
				if err := errors.Join(os.Chmod(path, 0o644), harm(path, []byte(whole))); err != nil {
					t.Fatal(err)
				}
				left, err := readLog(t, l, e, executions.Stdout)
				if !errors.Is(err, executions.ErrLogDamaged) {
					t.Fatalf("read %q, %v, want %v", left[:min(len(left), 20)], err, executions.ErrLogDamaged)
				}
				if text, err := readLog(t, l, e, executions.Stderr); text != "two\n" || err != nil {
					t.Errorf("the other log is %q, %v", text, err)
				}
				mended(t, l, e, left)
			})
		}
	}
}

// mended has the logs repaired and reads them again.
func mended(t *testing.T, l *lab, e *executions.Execution, left string) {
	t.Helper()
	if err := l.Curator.MendLogs(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	e, err := l.Get(t.Context(), e.Key, e.ExecutionID)
	if err != nil {
		t.Fatal(err)
	}
	text, err := readLog(t, l, e, executions.Stdout)
	if text != left+executions.LogNotice || err != nil {
		t.Errorf("after the repair the log ends in %q, %v; want the notice", text[max(0, len(text)-80):], err)
	}
	if text, err := readLog(t, l, e, executions.Stderr); text != "two\n" || err != nil {
		t.Errorf("after the repair the other log is %q, %v", text, err)
	}
}

// Logs without recorded sums are read unchecked.
func TestLogsWithoutSums(t *testing.T) {
	detail := &record.Detail{}
	in := executions.CheckLog(io.NopCloser(strings.NewReader("anything")), detail, "id", executions.Stdout)
	if text, err := io.ReadAll(in); string(text) != "anything" || err != nil {
		t.Errorf("read %q, %v", text, err)
	}
	detail.Logs = record.Logs{Known: true}
	in = executions.CheckLog(io.NopCloser(strings.NewReader("more")), detail, "id", executions.Stdout)
	if text, err := io.ReadAll(in); fmt.Sprint(string(text), err) != "more<nil>" {
		t.Errorf("what follows a log is %q, %v, want it as it is", text, err)
	}
}

package executions_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"e3/executions"
	"e3/internal/format/record"
	"e3/internal/host/runner"
	"e3/refstore"
)

// everySecond sends logs at the default interval.
func everySecond(o *executions.Options) { o.LogEvery = 0 }

// text returns a log of a site's only execution.
func (s *site) text(t *testing.T, req *executions.Request, stream executions.Stream) string {
	t.Helper()
	var text strings.Builder
	for _, e := range s.all(t, req) {
		r, err := executions.NewStore(s.records, s.objects).OpenLog(t.Context(), keyOf(req), e.ExecutionID, stream, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(&text, r); err != nil {
			t.Fatal(err)
		}
	}
	return text.String()
}

func (s *site) stream(t *testing.T, req *executions.Request, stream executions.Stream) (refstore.StreamInfo, error) {
	t.Helper()
	list := s.all(t, req)
	if len(list) != 1 {
		t.Fatalf("%d executions are on record, want 1", len(list))
	}
	return s.records.Size(t.Context(), refstore.Key{Partition: "LOG/" + keyOf(req).String() + "/" + list[0].ExecutionID, Sort: string(stream)})
}

// The output of a running command can be read a second later, and all of it once its end is on record.
func TestLogsOfRunning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		req := s.request(t)
		followed := make(chan string, 1)
		lag := func(when, want string) {
			t.Helper()
			time.Sleep(1001 * time.Millisecond)
			synctest.Wait()
			if got := s.text(t, req, executions.Stdout); got != want {
				t.Errorf("a second after %s its log is %q, want %q", when, got, want)
			}
		}
		m := s.machine(t, "one", announced(func(ctx context.Context, spec runner.Spec) (runner.Result, error) {
			go func() {
				id := s.all(t, req)[0].ExecutionID
				r, err := executions.NewStore(s.records, s.objects).FollowLog(t.Context(), keyOf(req), id, executions.Stdout)
				if err != nil {
					t.Error(err)
				}
				text, err := io.ReadAll(r)
				if err != nil {
					t.Error(err)
				}
				followed <- string(text)
			}()
			lag("the first word", "said\n")
			time.Sleep(10 * time.Second)
			fmt.Fprint(spec.Stdout, "half a ")
			lag("half a line", "said\nhalf a ")
			// The command may remove the file's name; its output is still sent.
			name := spec.Stdout.Name()
			if err := errors.Join(os.Remove(name), os.WriteFile(name, []byte("forged\n"), 0o644)); err != nil {
				t.Error(err)
			}
			fmt.Fprint(spec.Stdout, "line\n")
			lag("the whole line", "said\nhalf a line\n")
			fmt.Fprint(spec.Stdout, "the end\n")
			return writes("x")(ctx, spec)
		}), everySecond)
		if res, err := m.Do(t.Context(), req); err != nil || res.State != record.Success {
			t.Fatalf("got %+v, %v", res, err)
		}
		const want = "said\nhalf a line\nthe end\n"
		if got := s.text(t, req, executions.Stdout); got != want {
			t.Errorf("the log is %q, want %q", got, want)
		}
		if got := <-followed; got != want {
			t.Errorf("a follower read %q, want %q", got, want)
		}
		if info, err := s.stream(t, req, executions.Stdout); err != nil || !info.Sealed {
			t.Errorf("the stream is %+v, %v, want it sealed", info, err)
		}
		if info, err := s.stream(t, req, executions.Stderr); !errors.Is(err, refstore.ErrNotFound) {
			t.Errorf("the log that stayed empty has %+v, %v", info, err)
		}
		calls := m.gate.list()
		if n := count(calls, "append LOG stdout.txt"); n != 4 {
			t.Errorf("%d appends, want one for each second in which it printed, and one at the end: %v", n, calls)
		}
		sealed, ended := slices.Index(calls, "seal LOG stdout.txt"), slices.Index(calls, "put EXECUTION success")
		if sealed < 0 || ended < sealed {
			t.Errorf("calls are %v, want the log to be sealed before the end is on record", calls)
		}
	})
}

func count(calls []string, name string) (n int) {
	for _, c := range calls {
		if c == name {
			n++
		}
	}
	return n
}

// A large log is sent in pieces, whether or not the command was announced.
func TestLargeLogs(t *testing.T) {
	large := bytes.Repeat([]byte("0123456789abcdef"), 9<<16+1) // 9 MiB and a little
	prints := commands(func(ctx context.Context, spec runner.Spec) (runner.Result, error) {
		_, err := spec.Stderr.Write(large)
		fmt.Fprint(spec.Stdout, "small\n")
		res, runErr := writes("x")(ctx, spec)
		return res, errors.Join(err, runErr)
	})
	for _, test := range []struct {
		name    string
		command commands
		stdout  string
		puts    int
	}{
		{"short", prints, "small\n", 1},
		{"announced", announced(prints), "said\nsmall\n", 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newSite(t)
			req := s.request(t)
			m := s.machine(t, "one", test.command)
			if res, err := m.Do(t.Context(), req); err != nil || res.State != record.Success {
				t.Fatalf("got %+v, %v", res, err)
			}
			if got := s.text(t, req, executions.Stderr); got != string(large) {
				t.Errorf("the log has %d bytes, want %d", len(got), len(large))
			}
			if got := s.text(t, req, executions.Stdout); got != test.stdout {
				t.Errorf("the other is %q", got)
			}
			calls := m.gate.list()
			if n := count(calls, "append LOG stderr.txt"); n != 3 {
				t.Errorf("%d appends, want 3: %v", n, calls)
			}
			puts := count(calls, "put EXECUTION running") + count(calls, "put EXECUTION success")
			if puts != test.puts {
				t.Errorf("%d writes of the record, want %d: %v", puts, test.puts, calls)
			}
		})
	}
}

// leaky fails some appends.
type leaky struct {
	gatedRecords
	appends int
	fails   func(n int) (fails, happens bool)
}

func (l *leaky) Append(ctx context.Context, k refstore.Key, offset int64, data []byte) error {
	l.appends++
	fails, happens := l.fails(l.appends)
	if !fails {
		return l.gatedRecords.Append(ctx, k, offset, data)
	}
	if happens {
		if err := l.gatedRecords.Append(ctx, k, offset, data); err != nil {
			return err
		}
	}
	return errDied
}

// Temporary faults of the store, with or without effect, only delay a log. A permanent fault fails the execution; its
// record stays running, and the next process closes it.
func TestLogFaults(t *testing.T) {
	for _, test := range []struct {
		name  string
		fails func(n int) (fails, happens bool)
		ends  bool
	}{
		{"nothing fails", func(int) (bool, bool) { return false, false }, true},
		{"the first does not happen", func(n int) (bool, bool) { return n == 1, false }, true},
		{"the first happens", func(n int) (bool, bool) { return n == 1, true }, true},
		{"the second happens", func(n int) (bool, bool) { return n == 2, true }, true},
		{"one happens after two that do not", func(n int) (bool, bool) { return n <= 3, n == 3 }, true},
		{"two happen", func(n int) (bool, bool) { return n == 1 || n == 3, true }, true},
		{"the last but one happens", func(n int) (bool, bool) { return n == 4, true }, true},
		{"none from the second on", func(n int) (bool, bool) { return n >= 2, false }, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSite(t)
				req := s.request(t)
				want := "said\n"
				command := announced(func(ctx context.Context, spec runner.Spec) (runner.Result, error) {
					time.Sleep(100 * time.Millisecond) // so that it never prints while logs are sent
					for i := range 5 {
						time.Sleep(time.Second)
						line := strings.Repeat("z", i*i) + "\n"
						want += line
						fmt.Fprint(spec.Stdout, line)
					}
					return writes("x")(ctx, spec)
				})
				m := s.machine(t, "one", command)
				records := &leaky{gatedRecords: gatedRecords{s.records, m.gate}, fails: test.fails}
				m.Executor = executions.NewExecutor(executions.NewStore(records, s.objects), s.objects, m.lessee, command,
					executions.Options{Path: "/bin", Now: time.Now, Scratch: scratch(t), Getenv: func(string) (string, bool) { return "", false }})
				res, err := m.Do(t.Context(), req)
				if !test.ends {
					if !errors.Is(err, errDied) {
						t.Errorf("got %+v, %v, want the fault", res, err)
					}
					if list := s.all(t, req); len(list) != 1 || list[0].State != record.Running {
						t.Errorf("on record are %v, want one that runs", list)
					}
					return
				}
				if err != nil || res.State != record.Success {
					t.Fatalf("got %+v, %v", res, err)
				}
				if got := s.text(t, req, executions.Stdout); got != want {
					t.Errorf("the log is %q, want %q", got, want)
				}
			})
		})
	}
}

// narrow accepts a limited number of bytes of a log, and then only short appends.
type narrow struct {
	gatedRecords
	room int64
}

func (n *narrow) Append(ctx context.Context, k refstore.Key, offset int64, data []byte) error {
	if offset+int64(len(data)) > n.room && len(data) > 100 {
		return fmt.Errorf("append: %w", refstore.ErrFull)
	}
	return n.gatedRecords.Append(ctx, k, offset, data)
}

// A log that is too long for its store is cut off with a notice. The command's result counts.
func TestLogIsTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		req := s.request(t)
		line := strings.Repeat("z", 199) + "\n"
		command := announced(func(ctx context.Context, spec runner.Spec) (runner.Result, error) {
			for range 6 {
				time.Sleep(1100 * time.Millisecond)
				fmt.Fprint(spec.Stdout, line)
			}
			return writes("x")(ctx, spec)
		})
		m := s.machine(t, "one", command)
		m.Executor = executions.NewExecutor(executions.NewStore(&narrow{gatedRecords{s.records, m.gate}, 500}, s.objects), s.objects, m.lessee, command,
			executions.Options{Path: "/bin", Now: time.Now, Scratch: scratch(t), Getenv: func(string) (string, bool) { return "", false }})
		if res, err := m.Do(t.Context(), req); err != nil || res.State != record.Success {
			t.Fatalf("got %+v, %v", res, err)
		}
		want := "said\n" + line + line
		got := s.text(t, req, executions.Stdout)
		if rest, ok := strings.CutPrefix(got, want); !ok || strings.Count(rest, "cut off here") != 1 {
			t.Errorf("the log is %q, want %q and that it is cut off", got, want)
		}
		if info, err := s.stream(t, req, executions.Stdout); err != nil || !info.Sealed {
			t.Errorf("the stream is %+v, %v, want it sealed", info, err)
		}
	})
}

// A command that truncates its own log ends like any other. Sent bytes stay.
func TestLogIsCutByCommand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		req := s.request(t)
		m := s.machine(t, "one", announced(func(ctx context.Context, spec runner.Spec) (runner.Result, error) {
			time.Sleep(1500 * time.Millisecond)
			if err := os.Truncate(spec.Stdout.Name(), 0); err != nil {
				t.Error(err)
			}
			time.Sleep(1500 * time.Millisecond)
			fmt.Fprint(spec.Stdout, "SAID\nmore\n")
			return writes("x")(ctx, spec)
		}), everySecond)
		if res, err := m.Do(t.Context(), req); err != nil || res.State != record.Success {
			t.Fatalf("got %+v, %v", res, err)
		}
		if got := s.text(t, req, executions.Stdout); got != "said\nmore\n" {
			t.Errorf("the log is %q", got)
		}
	})
}

// Secrets are masked before they reach a file, so none is sent.
func TestSecretsInSentLogs(t *testing.T) {
	s := newSite(t)
	sup, err := supervisor()
	if err != nil {
		t.Fatal(err)
	}
	flag := t.TempDir() + "/flag"
	task := script("echo key $TOKEN; until test -e " + flag + "; do sleep 0.01; done; echo x > out")
	task.Passed.Secrets = []string{"TOKEN"}
	req := s.request(t)
	req.Load = func(context.Context) (*record.Task, error) { return task, nil }
	m := s.machine(t, "one", sup.Run, func(o *executions.Options) {
		o.Announce, o.LogEvery = time.Millisecond, time.Millisecond
		o.Getenv = func(string) (string, bool) { return "s3cr3t-token", true }
	})
	done := m.begin(t.Context(), req)
	await(t, "the log", func() bool { return strings.Contains(s.text(t, req, executions.Stdout), "***") })
	touch(t, flag)
	if o := <-done; o.err != nil || o.res.State != record.Success {
		t.Fatalf("got %+v, %v", o.res, o.err)
	}
	if got := s.text(t, req, executions.Stdout); got != "key ***\n" {
		t.Errorf("the log is %q", got)
	}
}

// Pruning an execution removes its logs.
func TestPruneTakesLogs(t *testing.T) {
	s := newSite(t)
	req := s.request(t)
	m := s.machine(t, "one", announced(writes("x")))
	res, err := m.Do(t.Context(), req)
	if err != nil || res.State != record.Success {
		t.Fatalf("got %+v, %v", res, err)
	}
	n, err := m.Prune(t.Context(), req.Task, []executions.Victim{s.all(t, req)[0].Victim()}, "ann", "")
	if n != 1 || err != nil {
		t.Fatalf("pruned %d, %v", n, err)
	}
	for partition, err := range s.records.ListPartitions(t.Context(), "LOG") {
		if err != nil {
			t.Fatal(err)
		}
		for key, err := range s.records.ListStreams(t.Context(), refstore.Query{Partition: partition}) {
			t.Errorf("%v is left, %v", key, err)
		}
	}
}

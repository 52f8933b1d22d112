package executions_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"e3/executions"
	"e3/internal/format/record"
	"e3/internal/host/runner"
	"e3/objectstore"
	"e3/refstore"
	reffs "e3/refstore/fs"
)

// An order tells a worker process of these tests what to do.
type order struct {
	ID       string        // of the execution
	Sockets  string        // where supervisors are found
	Announce time.Duration // Options.Announce
	Copied   bool          // logs are copied, as to a remote store
	Policy   *record.Policy
	Secrets  []string      // of the task
	For      time.Duration // runner.Outlive.For; 0: a minute
	Adopt    bool          // the execution of a dead worker, instead of making it
	Ahead    time.Duration // of the worker's clock
}

const orderFile = "order.json"

func (o *order) identity() string { return "job/" + o.ID }

// copied is a store that cannot adopt log files.
type copied struct{ executions.Records }

// openWorker opens the repository in dir for a worker whose commands outlive it.
func openWorker(dir string, o *order) (*lab, error) {
	records, err := reffs.Open(dir, reffs.Options{})
	if err != nil {
		return nil, err
	}
	objects, err := objectstore.OpenDir(filepath.Join(dir, "objects"), objectstore.Options{Session: records.Session})
	if err != nil {
		return nil, err
	}
	lasts := o.For
	if lasts == 0 {
		lasts = time.Minute
	}
	sup, err := runner.New(runner.Options{Grace: time.Second, Outlive: &runner.Outlive{Dir: o.Sockets, For: lasts}})
	if err != nil {
		return nil, err
	}
	l := &lab{dir: dir, records: records, objects: objects, env: map[string]string{"TOKEN": "s3cr3t"}, sup: sup}
	var store executions.Records = records
	if o.Copied {
		store = copied{records}
	}
	l.Executor = executions.NewExecutor(executions.NewStore(store, objects), objects, records, sup, executions.Options{
		Worker: "ann@lab", Version: "test", Path: os.Getenv("PATH"), Scratch: records.SessionDir, Now: func() time.Time { return time.Now().Add(o.Ahead) },
		Announce: o.Announce, LogEvery: 10 * time.Millisecond,
		Getenv: func(name string) (string, bool) { v, ok := l.env[name]; return v, ok },
	})
	return l, nil
}

// order is a request of the lab's task for a job.
func (l *lab) order(o *order, task *record.Task) *executions.Request {
	req := l.request(task)
	req.Job.Ref, req.Job.Identity, req.Policy = aJob, o.identity(), o.Policy
	return req
}

// work executes the order in dir.
func work(dir string) error {
	var o order
	text, err := os.ReadFile(filepath.Join(dir, orderFile))
	if err == nil {
		err = json.Unmarshal(text, &o)
	}
	if err != nil {
		return err
	}
	task, err := leftTask(dir)
	if err != nil {
		return err
	}
	l, err := openWorker(dir, &o)
	if err != nil {
		return err
	}
	if !o.Adopt {
		var res executions.Result
		if res, err = l.Make(context.Background(), l.order(&o, task), o.ID); err == nil {
			err = fmt.Errorf("made %v %s", res.State, res.Reason)
		}
	} else {
		var orphans []*runner.Orphan
		for len(orphans) == 0 && (err == nil || errors.Is(err, runner.ErrAdopted)) {
			orphans, err = l.sup.Adopt(context.Background())
		}
		if err == nil {
			if err = os.WriteFile(filepath.Join(dir, "adopted"), nil, 0o644); err == nil {
				_, err = l.Adopt(context.Background(), l.order(&o, task), o.ID, orphans[0])
			}
		}
	}
	return err // for the parent, unless it has killed this process
}

// An adoption is a worker process that is to be killed, and the lab that adopts its command.
type adoption struct {
	*lab  // a new worker of this host
	order *order
	task  *record.Task
	req   *executions.Request
	dir   string // of the files by which the command and the test communicate
	cmd   *exec.Cmd
	said  strings.Builder // by the worker; read once it has ended
}

// beginWork starts a worker process that executes a script. In the script $F is the folder of the adoption.
func beginWork(t *testing.T, o *order, text string) *adoption {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("commands outlive their worker on Linux only: run this there")
	}
	var err error
	if o.Sockets, err = os.MkdirTemp("", "e3"); err != nil { // names of sockets must be short
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(o.Sockets) })
	o.ID = newID(t)
	e := &adoption{order: o, dir: t.TempDir()}
	task := script(text)
	task.Env, task.Passed.Secrets = []record.EnvVar{{Name: "F", Value: e.dir}}, o.Secrets
	if e.lab, err = openWorker(t.TempDir(), &order{Sockets: o.Sockets, Announce: 20 * time.Millisecond, Copied: o.Copied}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(e.sup.Close(), e.records.Close()); err != nil {
			t.Error(err)
		}
	})
	e.leave(t, task)
	e.task, e.req = task, e.lab.order(o, task)
	e.send(t)
	await(t, "the command to begin", func() bool { return exists(filepath.Join(e.dir, "begun")) })
	return e
}

// send starts a worker that executes the order.
func (e *adoption) send(t *testing.T) {
	t.Helper()
	text, err := json.Marshal(e.order)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(e.lab.dir, orderFile), text, 0o644); err != nil {
		t.Fatal(err)
	}
	e.cmd = e.helper(t, "work")
	e.cmd.Stderr = &e.said
	if err := e.cmd.Start(); err != nil {
		t.Fatal(err)
	}
}

// kill ends the worker with SIGKILL.
func (e *adoption) kill(t *testing.T) {
	t.Helper()
	if err := e.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := e.cmd.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Fatalf("the worker ended with %v: %s", err, e.said.String())
	}
}

// orphan returns the command of the dead worker.
func (e *adoption) orphan(t *testing.T) *runner.Orphan {
	t.Helper()
	var orphans []*runner.Orphan
	await(t, "the orphan", func() bool {
		var err error
		if orphans, err = e.sup.Adopt(t.Context()); err != nil && !errors.Is(err, runner.ErrAdopted) {
			t.Fatal(err)
		}
		return len(orphans) > 0
	})
	if len(orphans) != 1 || orphans[0].Identity != e.order.identity() {
		t.Fatalf("there are %d orphans, the first is %q, want one, %q", len(orphans), orphans[0].Identity, e.order.identity())
	}
	return orphans[0]
}

func (e *adoption) adopt(ctx context.Context, o *runner.Orphan) chan outcome {
	done := make(chan outcome, 1)
	go func() {
		res, err := e.Adopt(ctx, e.req, e.order.ID, o)
		done <- outcome{res, err}
	}()
	return done
}

func (e *adoption) file(name string) string { return filepath.Join(e.dir, name) }

// running waits until the execution is on record as running and its log is printed.
func (e *adoption) running(t *testing.T, printed string) {
	t.Helper()
	await(t, "the running record, with its log", func() bool {
		x, err := e.Get(t.Context(), keyOf(e.req), e.order.ID)
		return err == nil && x.State == record.Running && e.log(t, e.req, e.order.ID, executions.Stdout) == printed
	})
}

// cleaned checks that no sandbox of dead workers is left.
func (e *adoption) cleaned(t *testing.T) {
	t.Helper()
	if left, err := filepath.Glob(filepath.Join(e.lab.dir, "tmp", "session-*", "w*")); err != nil || len(left) > 0 {
		t.Errorf("sandboxes are left: %v, %v", left, err)
	}
}

// gone waits for the end of the process whose id the command wrote to a file.
func (e *adoption) gone(t *testing.T, file string) {
	t.Helper()
	var pid int64
	text, err := os.ReadFile(e.file(file))
	if err == nil {
		_, err = fmt.Sscan(string(text), &pid)
	}
	if err != nil {
		t.Fatal(err)
	}
	await(t, "the end of the command", func() bool { return !exists(fmt.Sprintf("/proc/%d/stat", pid)) || zombie(pid) })
}

const untilGo = `echo begun; echo $$ > $F/pid; touch $F/begun; until test -e $F/go; do sleep 0.01; done; `

// A new worker finishes the execution of a killed one with the same result, whether or not it was on record, and
// however the command ends.
func TestAdopt(t *testing.T) {
	long := strings.Repeat("x", 100_000)
	for _, copies := range []bool{false, true} {
		for _, test := range []struct {
			name    string
			running bool // on record when the worker is killed
			ended   bool // before it is adopted
			rest    string
			policy  *record.Policy
			secrets []string
			want    executions.Result // but for id, output and duration
			out     string            // content of the output
			log     string
		}{
			{name: "announced", running: true, rest: "echo ended; echo made > out", want: executions.Result{State: record.Success, Size: 5}, out: "made\n", log: "begun\nended\n"},
			{name: "short", rest: "echo ended; echo made > out", want: executions.Result{State: record.Success, Size: 5}, out: "made\n", log: "begun\nended\n"},
			{name: "announced, and ended alone", running: true, ended: true, rest: "echo ended; echo made > out; touch $F/ended",
				want: executions.Result{State: record.Success, Size: 5}, out: "made\n", log: "begun\nended\n"},
			{name: "short, and ended alone", ended: true, rest: "echo ended; echo made > out; touch $F/ended",
				want: executions.Result{State: record.Success, Size: 5}, out: "made\n", log: "begun\nended\n"},
			{name: "long log", running: true, rest: "head -c 100000 /dev/zero | tr '\\0' x; echo made > out",
				want: executions.Result{State: record.Success, Size: 5}, out: "made\n", log: "begun\n" + long},
			{name: "long log of one that ended alone", ended: true, rest: "head -c 100000 /dev/zero | tr '\\0' x; echo made > out; touch $F/ended",
				want: executions.Result{State: record.Success, Size: 5}, out: "made\n", log: "begun\n" + long},
			{name: "failure", running: true, rest: "exit 3", want: executions.Result{State: record.Failed, ExitCode: 3}, log: "begun\n"},
			{name: "suspended", rest: "exit 3", policy: &record.Policy{Suspend: 3},
				want: executions.Result{State: record.Failed, ExitCode: 3, Reason: executions.ReasonSuspended}, log: "begun\n"},
			{name: "no output", running: true, rest: "true", log: "begun\n",
				want: executions.Result{State: record.Error, Reason: executions.ReasonOutput, Message: `output out: expected a file at "out", found nothing`}},
			{name: "signal", rest: "kill -KILL $$", log: "begun\n",
				want: executions.Result{State: record.Error, Reason: executions.ReasonSignal, Message: "killed by signal 9 (killed)"}},
			{name: "timeout", running: true, rest: "sleep 60", policy: &record.Policy{Timeout: 2 * time.Second}, log: "begun\n",
				want: executions.Result{State: record.Error, Reason: executions.ReasonTimeout, Message: "timed out after 2s"}},
			{name: "secrets", running: true, rest: `echo "it is $TOKEN"; echo made > out`, secrets: []string{"TOKEN"},
				want: executions.Result{State: record.Success, Size: 5}, out: "made\n", log: "begun\nit is ***\n"},
			{name: "its log removed", rest: "rm ../../stdout; echo ended; echo made > out",
				want: executions.Result{State: record.Success, Size: 5}, out: "made\n", log: ""},
		} {
			t.Run(fmt.Sprintf("%s, logs copied %v", test.name, copies), func(t *testing.T) {
				t.Parallel()
				o := &order{Announce: time.Hour, Copied: copies, Policy: test.policy, Secrets: test.secrets}
				if test.running {
					o.Announce = time.Millisecond
				}
				e := beginWork(t, o, untilGo+test.rest)
				if test.running {
					e.running(t, "begun\n")
				}
				e.kill(t)
				if test.ended {
					touch(t, e.file("go"))
					await(t, "the command to end", func() bool { return exists(e.file("ended")) })
					e.gone(t, "pid")
				}
				if test.name == "its log removed" { // before it is announced
					touch(t, e.file("go"))
					e.gone(t, "pid")
				}
				orphan := e.orphan(t)
				var began string
				e.req.Started = func(id string, _ time.Time) { began = id }
				done := e.adopt(t.Context(), orphan)
				if !test.running && !test.ended && test.name != "its log removed" {
					e.isRunning(t)
				}
				touch(t, e.file("go"))
				got := <-done
				if got.err != nil {
					t.Fatal(got.err)
				}
				output := got.res.Output
				took := got.res.Duration
				if got.res.EndedAt.IsZero() {
					t.Error("it does not say when it ended")
				}
				got.res.Output, got.res.Duration, got.res.EndedAt = objectstore.Hash{}, 0, time.Time{}
				want := test.want
				want.ExecutionID = e.order.ID
				if got.res != want || began != e.order.ID || took <= 0 {
					t.Errorf("got %+v in %v, want %+v", got.res, took, want)
				}
				if want.State == record.Success && e.content(t, output) != test.out {
					t.Errorf("the output is %q", e.content(t, output))
				}
				if log := e.log(t, e.req, e.order.ID, executions.Stdout); log != test.log {
					t.Errorf("the log has %d bytes, %.60q, want %d, %.60q", len(log), log, len(test.log), test.log)
				}
				x, err := e.Get(t.Context(), keyOf(e.req), e.order.ID)
				if err != nil || x.State != want.State || x.Message != want.Message || x.Detail == nil || x.Detail.Reason != string(want.Reason) {
					t.Errorf("on record is %+v, %v", x, err)
				}
				e.cleaned(t)
				if again, err := e.sup.Adopt(t.Context()); len(again) > 0 || err != nil {
					t.Errorf("%d orphans are left, %v", len(again), err)
				}
			})
		}
	}
}

// A command that ended while it had no worker ended then, and not hours later, when a worker adopted it.
func TestAdoptLate(t *testing.T) {
	e := beginWork(t, &order{Announce: time.Hour}, untilGo+"echo made > out; touch $F/ended")
	e.kill(t)
	touch(t, e.file("go"))
	await(t, "the command to end", func() bool { return exists(e.file("ended")) })
	e.gone(t, "pid")
	late, err := openWorker(e.lab.dir, &order{Sockets: e.order.Sockets, Announce: time.Hour, Ahead: 8 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(e.sup.Close(), e.records.Close()); err != nil {
		t.Fatal(err)
	}
	e.lab = late
	got := <-e.adopt(t.Context(), e.orphan(t))
	if got.err != nil || got.res.State != record.Success {
		t.Fatalf("got %+v, %v", got.res, got.err)
	}
	if time.Until(got.res.EndedAt) > time.Hour || got.res.Duration > time.Hour {
		t.Errorf("it ended at %v after %v, want now", got.res.EndedAt, got.res.Duration)
	}
}

// isRunning waits until the execution is on record as running for its job.
func (e *adoption) isRunning(t *testing.T) {
	t.Helper()
	await(t, "the running record", func() bool {
		job, running, err := e.Job(t.Context(), keyOf(e.req), e.order.ID)
		return err == nil && running && job == aJob
	})
}

// If an execution is on record as ended, that record is the answer, and its command is stopped.
func TestAdoptSettled(t *testing.T) {
	e := beginWork(t, &order{Announce: time.Millisecond}, untilGo+"echo made > out")
	e.running(t, "begun\n")
	e.kill(t)
	settled, err := e.Settle(t.Context(), keyOf(e.req), nil, e.order.ID, executions.ReasonLost, "the worker is gone")
	if err != nil {
		t.Fatal(err)
	}
	o := <-e.adopt(t.Context(), e.orphan(t))
	if o.err != nil || o.res != settled || settled.Reason != executions.ReasonLost {
		t.Errorf("got %+v, %v, want %+v", o.res, o.err, settled)
	}
	e.gone(t, "pid")
}

// An execution that another machine has given up gets the log that its own machine has, once that sweeps what is left.
func TestGivenUpElsewhere(t *testing.T) {
	for _, announced := range []time.Duration{time.Millisecond, time.Hour} {
		for _, copied := range []bool{false, true} {
			t.Run(fmt.Sprint("announced after ", announced, ", copied ", copied), func(t *testing.T) {
				e := beginWork(t, &order{Announce: announced, Copied: copied}, "echo more; "+untilGo)
				if announced < time.Hour {
					e.isRunning(t)
				}
				e.kill(t)
				settled, err := e.Settle(t.Context(), keyOf(e.req), nil, e.order.ID, executions.ReasonLost, "the worker is gone")
				if err != nil || settled.Reason != executions.ReasonLost {
					t.Fatal(settled, err)
				}
				e.orphan(t).Release()
				e.gone(t, "pid")
				await(t, "the log", func() bool {
					e.sweep(t)
					return strings.HasPrefix(e.log(t, e.req, e.order.ID, executions.Stdout), "more\nbegun\n")
				})
				e.sweep(t)
				if log := e.log(t, e.req, e.order.ID, executions.Stdout); log != "more\nbegun\n" {
					t.Errorf("its log is %q", log)
				}
				if x, err := e.Get(t.Context(), keyOf(e.req), e.order.ID); err != nil || x.State != record.Error || x.Message != "the worker is gone" {
					t.Errorf("on record is %+v, %v", x, err)
				}
			})
		}
	}
}

// If an execution is settled while another process adopts it, the settled result counts.
func TestAdoptIsSettledMeanwhile(t *testing.T) {
	for _, announced := range []time.Duration{time.Millisecond, time.Hour} {
		t.Run(fmt.Sprint("announced after ", announced), func(t *testing.T) {
			e := beginWork(t, &order{Announce: announced}, untilGo+"echo made > out")
			if announced < time.Hour {
				e.running(t, "begun\n")
			}
			e.kill(t)
			began := make(chan struct{})
			e.req.Started = func(string, time.Time) { close(began) }
			done := e.adopt(t.Context(), e.orphan(t))
			<-began
			e.isRunning(t)
			if _, err := e.Settle(t.Context(), keyOf(e.req), nil, e.order.ID, executions.ReasonCancelled, "scancel"); err != nil {
				t.Fatal(err)
			}
			touch(t, e.file("go"))
			if o := <-done; !errors.Is(o.err, refstore.ErrLost) {
				t.Errorf("got %+v, %v", o.res, o.err)
			}
			if x, err := e.Get(t.Context(), keyOf(e.req), e.order.ID); err != nil || x.State != record.Error || x.Message != "scancel" || x.Detail.Task != "task" {
				t.Errorf("on record is %+v, %v", x, err)
			}
			e.cleaned(t)
		})
	}
}

// A process that has lost its lease records nothing and leaves the sandbox to the next one. A cancelled process records
// the cancellation.
func TestAdoptStopped(t *testing.T) {
	for _, cause := range []error{fmt.Errorf("not renewed: %w", refstore.ErrLost), errors.New("drained")} {
		t.Run(cause.Error(), func(t *testing.T) {
			e := beginWork(t, &order{Announce: time.Millisecond}, untilGo+"echo made > out")
			e.running(t, "begun\n")
			e.kill(t)
			ctx, cancel := context.WithCancelCause(t.Context())
			e.req.Started = func(string, time.Time) { cancel(cause) }
			o := <-e.adopt(ctx, e.orphan(t))
			e.gone(t, "pid")
			x, err := e.Get(t.Context(), keyOf(e.req), e.order.ID)
			if err != nil {
				t.Fatal(err)
			}
			if errors.Is(cause, refstore.ErrLost) {
				if !errors.Is(o.err, refstore.ErrLost) || x.State != record.Running {
					t.Errorf("got %+v, %v; on record is %v", o.res, o.err, x.State)
				}
				return
			} else if o.err != nil || o.res.Reason != executions.ReasonCancelled || x.State != record.Error {
				t.Errorf("got %+v, %v; on record is %v", o.res, o.err, x.State)
			}
			e.cleaned(t)
		})
	}
}

// Cancelled before its adoption, a command that runs is stopped, and recorded with what it had printed; the end of one that
// has ended counts.
func TestAdoptCancelledBefore(t *testing.T) {
	for _, ended := range []bool{false, true} {
		t.Run(fmt.Sprint("ended ", ended), func(t *testing.T) {
			e := beginWork(t, &order{Announce: time.Hour}, untilGo+"echo made > out; touch $F/ended")
			e.kill(t)
			orphan := e.orphan(t)
			if ended {
				touch(t, e.file("go"))
				if res, err := orphan.Wait(t.Context()); err != nil || !exists(e.file("ended")) {
					t.Fatalf("the command ended with %+v, %v", res, err)
				}
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			o := <-e.adopt(ctx, orphan)
			e.gone(t, "pid")
			if o.err != nil || ended != (o.res.State == record.Success) || !ended && o.res.Reason != executions.ReasonCancelled {
				t.Errorf("got %+v, %v", o.res, o.err)
			}
			if log := e.log(t, e.req, e.order.ID, executions.Stdout); !strings.HasPrefix(log, "begun\n") {
				t.Errorf("its log is %q", log)
			}
			e.cleaned(t)
		})
	}
}

// A command whose sandbox is gone is stopped and recorded as lost.
func TestAdoptWithoutSandbox(t *testing.T) {
	for _, announced := range []time.Duration{time.Millisecond, time.Hour} {
		t.Run(fmt.Sprint("announced after ", announced), func(t *testing.T) {
			e := beginWork(t, &order{Announce: announced}, untilGo+"echo made > out")
			want := ""
			if announced < time.Hour {
				e.running(t, "begun\n")
				want = "begun\n"
			}
			e.kill(t)
			if n, err := e.records.Sweep(t.Context()); n != 1 || err != nil {
				t.Fatalf("swept %d sessions, %v", n, err)
			}
			o := <-e.adopt(t.Context(), e.orphan(t))
			if o.err != nil || o.res.State != record.Error || o.res.Reason != executions.ReasonLost || !strings.Contains(o.res.Message, "so is its sandbox") {
				t.Errorf("got %+v, %v", o.res, o.err)
			}
			e.gone(t, "pid")
			if log := e.log(t, e.req, e.order.ID, executions.Stdout); log != want {
				t.Errorf("the log is %q, want %q", log, want)
			}
		})
	}
}

// A worker died while it moved outputs out of the sandbox. The files that its journal names are put back, and the
// execution is finished. Without their objects that is impossible.
func TestAdoptHalfTaken(t *testing.T) {
	for _, there := range []bool{true, false} {
		e := beginWork(t, &order{Announce: time.Millisecond}, untilGo+"echo made > out; touch $F/ended")
		e.running(t, "begun\n")
		e.kill(t)
		touch(t, e.file("go"))
		await(t, "the command to end", func() bool { return exists(e.file("ended")) })
		e.gone(t, "pid")
		boxes, err := filepath.Glob(filepath.Join(e.lab.dir, "tmp", "session-*", "w*"))
		if err != nil || len(boxes) != 1 {
			t.Fatalf("the sandboxes are %v, %v", boxes, err)
		}
		hash := objectstore.Sum([]byte("made\n"))
		if there {
			if _, err := objectstore.PutBytes(t.Context(), e.objects, []byte("made\n")); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Remove(filepath.Join(boxes[0], "room", "work", "out")); err != nil {
			t.Fatal(err)
		}
		journal := fmt.Sprintf(`{"path":"out","hash":"%s","mode":420}`+"\n"+`{"path":"an`, hash)
		if err := os.WriteFile(filepath.Join(boxes[0], "taken"), []byte(journal), 0o600); err != nil {
			t.Fatal(err)
		}
		o := <-e.adopt(t.Context(), e.orphan(t))
		switch {
		case o.err != nil:
			t.Error(o.err)
		case there && (o.res.State != record.Success || o.res.Output != hash):
			t.Errorf("got %+v, want a success", o.res)
		case !there && (o.res.Reason != executions.ReasonLost || !strings.Contains(o.res.Message, "while it stored")):
			t.Errorf("got %+v, want that it is lost", o.res)
		}
	}
}

// The state that a supervisor kept is validated.
func TestAdoptAnother(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(t *testing.T, e *adoption, k *executions.Key, id, sandbox *string) // nil: there is no state
		want   string                                                                  // in the message of an error, or of the execution's
	}{
		{"no state", nil, "its supervisor kept"},
		{"of another execution", func(t *testing.T, _ *adoption, _ *executions.Key, id, _ *string) { *id = newID(t) }, "it is execution"},
		{"of another key", func(_ *testing.T, _ *adoption, k *executions.Key, _, _ *string) { k.Inputs[0]++ }, "it is of key"},
		{"sandbox path with dots", func(_ *testing.T, e *adoption, _ *executions.Key, _, sandbox *string) {
			*sandbox = strings.ReplaceAll(*sandbox, e.lab.dir, e.lab.dir+"/tmp/..")
		}, "its sandbox is"},
		{"sandbox in a foreign folder", func(t *testing.T, _ *adoption, _ *executions.Key, _, sandbox *string) {
			dir := t.TempDir()
			if err := os.MkdirAll(filepath.Join(dir, "tmp/session/w1/work"), 0o755); err != nil {
				t.Fatal(err)
			}
			*sandbox = filepath.Join(dir, "tmp/session/w1")
			t.Cleanup(func() {
				if !exists(filepath.Join(dir, "tmp/session/w1/work")) {
					t.Error("it was removed")
				}
			})
		}, "so is its sandbox"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			e := beginWork(t, &order{Announce: time.Hour}, untilGo+"echo made > out")
			e.kill(t)
			orphan := e.orphan(t)
			if test.change == nil {
				orphan.State = nil
			} else {
				orphan.State = executions.ChangeHandover(orphan.State, func(k *executions.Key, id, sandbox *string) { test.change(t, e, k, id, sandbox) })
			}
			o := <-e.adopt(t.Context(), orphan)
			if text := fmt.Sprint(o.err, o.res.Message); !strings.Contains(text, test.want) {
				t.Errorf("got %+v, %v, want %q", o.res, o.err, test.want)
			}
			e.gone(t, "pid")
		})
	}
}

// If the adopting worker is killed too, the next worker adopts the command.
func TestAdoptedTwice(t *testing.T) {
	for _, copies := range []bool{false, true} {
		t.Run(fmt.Sprint("logs copied ", copies), func(t *testing.T) {
			t.Parallel()
			e := beginWork(t, &order{Announce: time.Hour, Copied: copies}, untilGo+"echo ended; echo made > out")
			e.kill(t)
			e.order.Adopt, e.order.Announce = true, time.Millisecond
			e.send(t)
			e.running(t, "begun\n")
			e.kill(t)
			done := e.adopt(t.Context(), e.orphan(t))
			touch(t, e.file("go"))
			o := <-done
			if o.err != nil || o.res.State != record.Success || o.res.ExecutionID != e.order.ID {
				t.Fatalf("got %+v, %v", o.res, o.err)
			}
			if log := e.log(t, e.req, e.order.ID, executions.Stdout); log != "begun\nended\n" {
				t.Errorf("the log is %q", log)
			}
			e.cleaned(t)
		})
	}
}

// The supervisor releases a recorded execution: its identity and its sandbox can be used again.
func TestMadeIsReleased(t *testing.T) {
	o := &order{Announce: 20 * time.Millisecond}
	var err error
	if o.Sockets, err = os.MkdirTemp("", "e3"); err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(o.Sockets)
	l, err := openWorker(t.TempDir(), o)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		id := newID(t)
		o.ID = "same"
		if res, err := l.Make(t.Context(), l.order(o, script("echo x; echo made > out")), id); err != nil || res.State != record.Success {
			t.Fatalf("got %+v, %v", res, err)
		}
	}
	if err := errors.Join(l.sup.Close(), l.records.Close()); err != nil {
		t.Error(err)
	}
}

// A request for the key of a running job waits for the job through its worker's death and the adoption.
func TestWaitsThroughAnAdoption(t *testing.T) {
	e := beginWork(t, &order{Announce: time.Millisecond}, untilGo+"echo made > out")
	e.running(t, "begun\n")
	var q jobs
	q.set(aJob, e.order.ID)
	asks, err := openLab(e.lab.dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer asks.records.Close()
	q.wire(asks.Executor)
	done := make(chan outcome, 1)
	go func() {
		res, err := asks.Do(t.Context(), asks.request(e.task))
		done <- outcome{res, err}
	}()
	e.kill(t)
	q.wait(t)
	if closed, err := asks.CloseIfDead(t.Context(), keyOf(e.req), e.order.ID); closed || err != nil {
		t.Errorf("closed: %v, %v", closed, err)
	}
	adopted := e.adopt(t.Context(), e.orphan(t))
	touch(t, e.file("go"))
	made, got := <-adopted, <-done
	if made.err != nil || made.res.State != record.Success {
		t.Fatalf("the adopter got %+v, %v", made.res, made.err)
	}
	if got.err != nil || !got.res.Cached || got.res.ExecutionID != e.order.ID || got.res.Output != made.res.Output {
		t.Errorf("the waiting request got %+v, %v, want %+v", got.res, got.err, made.res)
	}
}

package worker_test

import (
	"context"
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
	"e3/internal/jobs/queue"
	"e3/internal/jobs/worker"
	"e3/internal/repo"
	"e3/internal/testing/suite"
	"e3/objectstore"
	"e3/refstore"
)

// victimVariable makes this program a worker of the repository that it names.
const victimVariable = "E3_WORKER_VICTIM"

// victimLease is the lease of that worker.
const victimLease = "E3_WORKER_VICTIM_LEASE"

func victimMain(root string) error {
	ctx := context.Background()
	lease, _ := time.ParseDuration(os.Getenv(victimLease))
	r, err := repo.Open(ctx, root, repo.Options{Version: "test", Lease: lease})
	if err != nil {
		return err
	}
	defer r.Close()
	w, err := r.Worker(repo.WorkerOptions{Options: worker.Options{Queues: []string{queue.DefaultQueue}, Concurrency: 4}, Grace: 100 * time.Millisecond})
	if err != nil {
		return err
	}
	return w.Run(ctx, nil)
}

// A leftover is a job whose worker was killed. Its command runs until a signal file appears.
type leftover struct {
	queue.Job
	dir string
}

// gated makes a job whose command runs until a signal file appears, and records each of its starts.
func (r *rig) gated(name string) *leftover {
	r.Helper()
	return r.gatedBy(name, record.Policy{})
}

// gatedBy is gated with a policy.
func (r *rig) gatedBy(name string, policy record.Policy) *leftover {
	r.Helper()
	l := &leftover{dir: r.TempDir()}
	script := fmt.Sprintf(`echo $$ >> %[1]s/begun; until test -e %[1]s/go; do sleep 0.01; done; touch "$out"`, l.dir)
	l.Job = r.enqueue(script, func(j *queue.Job) { j.Task, j.Policy = name, policy })
	return l
}

func (r *rig) letGo(l *leftover) {
	r.Helper()
	r.must(os.WriteFile(filepath.Join(l.dir, "go"), nil, 0o644))
}

// once demands that a job was executed once, by the command that its first worker began.
func (r *rig) once(l *leftover) {
	r.Helper()
	j := r.ended(l.Job)
	begun, err := os.ReadFile(filepath.Join(l.dir, "begun"))
	r.must(err)
	if j.Status != queue.Succeeded || j.Attempts != 1 || len(j.Lost) > 0 || strings.Count(string(begun), "\n") != 1 {
		r.Errorf("job %s is %s after %d attempts, lost %+v, begun by %q; want it done once", j.Task, j.Status, j.Attempts, j.Lost, begun)
	}
}

// victim starts another process that is a worker, and makes it take a job.
func (r *rig) victim() (l *leftover, kill func()) {
	r.Helper()
	l, _, kill = r.victimProcess()
	return l, kill
}

// victimProcess is victim, and also returns the pid.
func (r *rig) victimProcess() (l *leftover, pid int, kill func()) {
	r.Helper()
	if runtime.GOOS != "linux" {
		r.Skip("commands outlive their worker on Linux only: run this there")
	}
	l = r.gated("left")
	self, err := os.Executable()
	r.must(err)
	cmd := exec.Command(self)
	cmd.Env, cmd.Stderr = append(os.Environ(), victimVariable+"="+r.root), os.Stderr
	r.must(cmd.Start())
	killed := false
	kill = func() {
		if !killed {
			killed = true
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	}
	r.Cleanup(kill)
	r.file(filepath.Join(l.dir, "begun"))
	return l, cmd.Process.Pid, kill
}

// killed waits until the command of a job is dead.
func (r *rig) killed(l *leftover) {
	r.Helper()
	text, err := os.ReadFile(filepath.Join(l.dir, "begun"))
	r.must(err)
	r.waitFor("the command of "+l.Task+" is dead", func() bool {
		_, err := os.Stat("/proc/" + strings.TrimSpace(string(text)))
		return err != nil
	})
}

// A command that ended while its host had no worker, or before its worker could record that, is not run again: its
// supervisor has seen the end, and keeps it after the lease ends. Commands then continue, except those that were killed
// by their policy, which are run again.
func TestEndIsKept(t *testing.T) {
	r := newRig(t)
	t.Setenv(victimLease, (5 * repo.MinLease).String()) // a busy machine renews it in time, and ends what is let go within it
	l, kill := r.victim()
	other, lasts := r.gatedBy("other", record.Policy{OnLost: record.OnLostKill}), r.gated("lasts")
	r.file(filepath.Join(other.dir, "begun"))
	r.file(filepath.Join(lasts.dir, "begun"))
	kill()
	r.letGo(l)
	r.killed(other) // the time is up
	r.letGo(other)
	r.work(0, worker.Options{})
	r.once(l)
	r.letGo(lasts)
	r.once(lasts)
	if j := r.ended(other.Job); j.Status != queue.Succeeded || len(j.Lost) != 1 {
		t.Errorf("what was killed: %s, lost %+v; want it done again", j.Status, j.Lost)
	}
}

// A command whose execution was given up elsewhere, without another start, is not run again: its result is recorded
// under the next execution, which names the first one.
func TestGivenUpMeanwhile(t *testing.T) {
	for _, ends := range []string{"before", "after"} {
		r := newRig(t)
		l, kill := r.victim()
		first := r.until(l.Job, func(j *queue.Job) bool { return !j.Started.IsZero() }).Execution
		kill()
		if ends == "before" {
			r.letGo(l)
		}
		r.givenUpElsewhere(l, first, time.Hour) // the command that is found does not wait for that
		task, err := objectstore.ParseHash(l.TaskHash)
		r.must(err)
		key := executions.NewKey(task, nil)
		w := r.work(0, worker.Options{})
		r.waitFor("the command is adopted", func() bool { return w.count(worker.JobAdopted, "left") > 0 })
		r.letGo(l)
		j := r.ended(l.Job)
		begun, err := os.ReadFile(filepath.Join(l.dir, "begun"))
		r.must(err)
		if j.Status != queue.Succeeded || strings.Count(string(begun), "\n") != 1 || j.Outcome.ExecutionID == first {
			t.Errorf("the job is %s by %s, begun by %q; want a success of one command under another execution than %s", j.Status, j.Outcome.ExecutionID, begun, first)
		}
		e, err := r.Executions.Get(t.Context(), key, j.Outcome.ExecutionID)
		if err != nil || e.State != record.Success || e.Detail == nil || e.Detail.Begun != first {
			t.Errorf("on record is %+v, %v; want a success that names %s", e, err, first)
		}
		if e, err := r.Executions.Get(t.Context(), key, first); err != nil || e.State != record.Error {
			t.Errorf("the first execution is %+v, %v; want that it stays given up", e, err)
		}
	}
}

// A run that follows a dead one withdraws its queued job, and enqueues its own for the same execution. The command of the
// withdrawn one, which a lost worker of this host has begun, answers it; so the command does not run twice.
func TestWithdrawnMeanwhile(t *testing.T) {
	for _, name := range []string{"ended, and asked for again", "asked for again later"} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			l, kill := r.victim()
			first := r.until(l.Job, func(j *queue.Job) bool { return !j.Started.IsZero() }).Execution
			kill()
			if name == "ended, and asked for again" {
				r.letGo(l)
			}
			r.givenUpElsewhere(l, first, time.Hour) // the command that is found does not wait for that
			gone, err := r.Queue().Withdraw(t.Context(), l.Queue, l.ID, "me@elsewhere", queue.ReasonLeft)
			if err != nil || gone.Status != queue.Cancelled {
				t.Fatalf("withdrawn: %s, %v", gone.Status, err)
			}
			ask := func() queue.Job {
				again := queue.Job{Workspace: "prod", Run: "run-2", Task: l.Task, Attempt: 1, TaskHash: l.TaskHash, MaxAttempts: 3}
				again, err := r.Queue().Enqueue(t.Context(), &again)
				r.must(err)
				return again
			}
			var again queue.Job
			if name == "ended, and asked for again" {
				again = ask()
				r.work(0, worker.Options{})
			} else {
				r.work(0, worker.Options{})
				r.ended(r.enqueue(`touch "$out"`, nil)) // the worker looks for commands before it claims
				again = ask()
				r.letGo(l)
			}
			again = r.ended(again)
			begun, err := os.ReadFile(filepath.Join(l.dir, "begun"))
			r.must(err)
			if again.Status != queue.Succeeded || again.Attempts != 1 || strings.Count(string(begun), "\n") != 1 {
				t.Errorf("the job is %s after %d attempts, begun by %q; want a success of one command", again.Status, again.Attempts, begun)
			}
			if e := r.result(again); e.Detail == nil || e.Detail.Begun != first || e.Detail.RunID != "run-2" {
				t.Errorf("on record is %+v; want run-2's, that names %s", e.Detail, first)
			}
		})
	}
}

// givenUpElsewhere has a worker of another host give up the execution of a lost worker here, and ask for another attempt
// after the backoff.
func (r *rig) givenUpElsewhere(l *leftover, execution string, backoff time.Duration) {
	r.Helper()
	r.orphaned(l.Job)
	lease, err := r.Queue().Only(r.Context(), l.Queue, l.ID, queue.Want{Worker: "elsewhere", Host: "elsewhere", NewExecution: executions.NewIDAfter})
	for ; err == nil && lease == nil; <-time.After(5 * time.Millisecond) { // it is briefly reserved for its host
		lease, err = r.Queue().Only(r.Context(), l.Queue, l.ID, queue.Want{Worker: "elsewhere", Host: "elsewhere", NewExecution: executions.NewIDAfter})
	}
	r.must(err)
	task, err := objectstore.ParseHash(l.TaskHash)
	r.must(err)
	curator := executions.NewCurator(r.Executions, r.Records, time.Now)
	_, err = curator.Settle(r.Context(), executions.NewKey(task, nil), nil, execution, executions.ReasonLost, "its worker was lost")
	r.must(err)
	_, err = lease.Again(r.Context(), "its worker was lost", backoff)
	r.must(err)
}

// orphaned waits until a job is not locked.
func (r *rig) orphaned(j queue.Job) {
	r.Helper()
	r.until(j, func(j *queue.Job) bool {
		r.must(r.Queue().Reap(r.Context(), j.Queue))
		return j.Orphaned()
	})
}

// A worker without room continues the command of a dead worker of its host, whatever else waits.
func TestFullWorkerTakesOver(t *testing.T) {
	r := newRig(t)
	l, kill := r.victim()
	w := r.work(0, worker.Options{Concurrency: 1})
	// The other worker may be faster. It has room for these jobs, and then this worker takes the next ones.
	var all []*leftover
	for n := 0; w.count(worker.JobBegun, "") == 0; n++ {
		if n == 4 {
			t.Fatal("the worker takes nothing")
		}
		all = append(all, r.gated(fmt.Sprint("other-", n)))
		r.file(filepath.Join(all[n].dir, "begun"))
	}
	waits := r.gated("waits")
	kill()
	r.until(l.Job, func(*queue.Job) bool { return w.count(worker.JobAdopted, "left") > 0 })
	for _, l := range append(all, waits, l) {
		r.letGo(l)
	}
	r.once(l)
}

// A leftover command continues even if the store fails while its job is claimed.
func TestTakeOverThroughFaults(t *testing.T) {
	r := newRig(t)
	l, kill := r.victim()
	kill()
	// With a file in the place of the folder of locks no record can be changed.
	path := filepath.Join(r.root, "locks", "records")
	r.must(os.Rename(path, path+".away"))
	r.must(os.WriteFile(path, nil, 0o644))
	w := r.work(0, worker.Options{})
	r.waitFor("a fault", func() bool { return w.count(worker.Fault, "") > 0 })
	r.must(os.Remove(path))
	r.must(os.Rename(path+".away", path))
	r.waitFor("the job is adopted", func() bool { return w.count(worker.JobAdopted, "left") > 0 })
	r.letGo(l)
	r.once(l)
}

func (r *rig) waitFor(what string, is func() bool) {
	r.Helper()
	for deadline := time.Now().Add(suite.Stuck); !is(); <-time.After(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			r.Fatalf("not in a minute: %s", what)
		}
	}
}

// A command that another worker of this host has taken over, but not yet claimed, is left to it.
func TestAnotherTakesOver(t *testing.T) {
	r := newRig(t)
	l, kill := r.victim()
	kill()
	r.orphaned(l.Job)
	scratch, err := r.Scratch()
	r.must(err)
	found, err := filepath.Glob(filepath.Join(filepath.Dir(scratch), "workers-*"))
	if err != nil || len(found) != 1 {
		t.Fatalf("folders of supervisors: %q, %v", found, err)
	}
	slow, err := runner.New(runner.Options{Outlive: &runner.Outlive{Dir: found[0], For: time.Minute}})
	r.must(err)
	t.Cleanup(func() { slow.Close() })
	orphans, err := slow.Adopt(t.Context())
	if err != nil || len(orphans) != 1 {
		t.Fatalf("%d orphans, %v", len(orphans), err)
	}
	r.must(slow.Extend())

	r.work(0, worker.Options{})
	r.ended(r.enqueue(`touch "$out"`, nil)) // behind the orphan
	j, err := r.Queue().Job(t.Context(), l.Queue, l.ID)
	if err != nil || !j.Orphaned() || len(j.Lost) > 0 {
		t.Fatalf("the job is %s, locked by %q, lost %+v, %v; want an orphan", j.Status, j.LockedBy, j.Lost, err)
	}
	lease, err := r.Queue().Only(t.Context(), l.Queue, l.ID, queue.Want{Worker: "slow", Host: j.MakerHost, NewExecution: executions.NewIDAfter})
	if err != nil || lease == nil || !lease.Adopted() {
		t.Fatalf("claimed %+v, %v", lease, err)
	}
	r.must(lease.Finish(t.Context(), queue.Outcome{State: queue.Failed, ExecutionID: j.Execution}))
	r.letGo(l)
	if res, err := orphans[0].Wait(t.Context()); err != nil || !res.Success() {
		t.Errorf("the command: %+v, %v", res, err)
	}
}

// dies makes a process that was begun in this one lose its session, as if it were gone.
func (r *rig) dies(session string) {
	r.Helper()
	key := refstore.Key{Partition: "LEASE/sessions", Sort: session}
	for { // a beat may come between
		rec, err := r.Records.Get(r.Context(), key)
		if err == nil {
			err = r.Records.Delete(r.Context(), key, rec.Version)
		}
		if err == nil {
			return
		}
		if !errors.Is(err, refstore.ErrConflict) {
			r.Fatal(err)
		}
	}
}

// A command that was begun elsewhere is left alone until it has certainly ended.
func TestLeftElsewhere(t *testing.T) {
	const ttl, grace = 2 * time.Second, 100 * time.Millisecond // of work's workers
	r := newRig(t)
	j := r.enqueue(`touch "$out"`, nil)
	there := r.open(repo.Options{Lease: ttl})
	lease, err := there.Queue().Only(t.Context(), j.Queue, j.ID, queue.Want{Worker: "there", Host: "elsewhere", NewExecution: executions.NewIDAfter})
	if err != nil || lease == nil {
		t.Fatalf("claimed %+v, %v", lease, err)
	}
	r.dies(lease.Job().LockedBy)
	r.orphaned(j)
	seen := time.Now()
	r.work(ttl, worker.Options{})
	first := lease.Job().Execution
	j = r.until(j, func(j *queue.Job) bool { return len(j.Lost) > 0 })
	if j.Lost[0].Execution != first {
		t.Fatalf("the job is %s, %+v, lost %+v, want %s to be the first", j.Status, j.Outcome, j.Lost, first)
	}
	if after, want := j.Lost[0].At.Time().Sub(seen), ttl/5*4+grace; after < want {
		t.Errorf("it was taken %v after it was orphaned, want at least %v: its command may have run", after, want)
	}
}

// A stopped worker of a scheduler lets the run decide how the job has ended, and counts no attempt.
func TestStopOneJob(t *testing.T) {
	r := newRig(t)
	l := r.gated("stopped")
	w := r.work(0, worker.Options{Job: l.ID})
	r.file(filepath.Join(l.dir, "begun"))
	execution := r.until(l.Job, func(j *queue.Job) bool { return j.Status == queue.Running }).Execution
	w.stop()
	if err := w.end(); !errors.Is(err, worker.ErrStopped) {
		t.Errorf("the end: %v, want ErrStopped", err)
	}
	j := r.until(l.Job, func(j *queue.Job) bool { return j.Status == queue.Queued })
	if j.MaxAttempts-j.Attempts != l.MaxAttempts {
		t.Errorf("after %d of %d attempts; want all that there were", j.Attempts, j.MaxAttempts)
	}
	const why = "was stopped by the cluster's scheduler"
	if len(j.Lost) != 1 || j.Lost[0].Execution != execution || !strings.Contains(j.Lost[0].Message, why) {
		t.Errorf("the job has %+v, want the execution that was stopped", j.Lost)
	}
	task, err := objectstore.ParseHash(j.TaskHash)
	r.must(err)
	e, err := r.Executions.Get(t.Context(), executions.NewKey(task, nil), execution)
	if err != nil || e.State != record.Error || e.Detail.Reason != string(executions.ReasonCancelled) || !strings.Contains(e.Message, why) {
		t.Errorf("on record is %+v, %v; want an error that says why", e, err)
	}
}

// A job whose execution was settled elsewhere while it ran is executed again by the same worker.
func TestSettledMeanwhile(t *testing.T) {
	r := newRig(t)
	l := r.gated("settled")
	w := r.work(0, worker.Options{})
	r.file(filepath.Join(l.dir, "begun"))
	j := r.until(l.Job, func(j *queue.Job) bool { return j.Status == queue.Running })
	task, err := objectstore.ParseHash(j.TaskHash)
	r.must(err)
	curator := executions.NewCurator(r.Executions, r.Records, time.Now)
	_, err = curator.Settle(t.Context(), executions.NewKey(task, nil), nil, j.Execution, executions.ReasonLost, "nobody takes it up")
	r.must(err)
	r.letGo(l)
	if j = r.ended(l.Job); j.Status != queue.Succeeded || j.Attempts != 2 || len(j.Lost) != 1 {
		t.Errorf("the job is %s after %d attempts, lost %+v; want it done again", j.Status, j.Attempts, j.Lost)
	}
	if len(j.Lost) > 0 && j.Lost[0].Message != "nobody takes it up" {
		t.Errorf("it was lost for %q, want what is on record", j.Lost[0].Message)
	}
	if n := w.count(worker.JobLost, ""); n > 0 {
		t.Errorf("%d jobs are said to be others' now", n)
	}
}

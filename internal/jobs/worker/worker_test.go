package worker_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
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

func TestMain(m *testing.M) {
	runner.Main() // in the process that runs the tasks, this never returns
	if root := os.Getenv(victimVariable); root != "" {
		if err := victimMain(root); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// A rig is a repository, with the run's side of its queue.
type rig struct {
	*testing.T
	root string
	*repo.Repo
	tasks int
}

func newRig(t *testing.T) *rig {
	t.Helper()
	root, err := repo.Create(filepath.Join(t.TempDir(), repo.DirName))
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{T: t, root: root}
	r.Repo = r.open(repo.Options{})
	return r
}

func (r *rig) open(o repo.Options) *repo.Repo {
	r.Helper()
	o.Version = "test"
	opened, err := repo.Open(r.Context(), r.root, o)
	r.must(err)
	r.Cleanup(func() { opened.Close() })
	return opened
}

func (r *rig) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

// enqueue makes a job of a script that writes $out.
func (r *rig) enqueue(script string, change func(*queue.Job)) queue.Job {
	r.Helper()
	task := &record.Task{Shell: script, Output: record.Output{Entries: []record.OutputEntry{{Name: "out", Path: "out", Kind: record.KindFile}}}}
	h, err := r.Objects.PutBytes(r.Context(), task.Encode())
	r.must(err)
	r.tasks++
	j := queue.Job{Workspace: "prod", Run: "run-1", Task: fmt.Sprint("t", r.tasks), Attempt: 1, TaskHash: h.String(), MaxAttempts: 3}
	if change != nil {
		change(&j)
		j.Labels, j.Priority = j.Policy.Labels, j.Policy.Priority
	}
	added, err := r.Queue().Enqueue(r.Context(), &j)
	r.must(err)
	return added
}

// ended waits for the end of a job.
func (r *rig) ended(j queue.Job) queue.Job {
	r.Helper()
	return r.until(j, func(j *queue.Job) bool { return j.Status.Terminal() })
}

func (r *rig) until(j queue.Job, is func(*queue.Job) bool) queue.Job {
	r.Helper()
	for deadline := time.Now().Add(suite.Stuck); ; {
		now, err := r.Queue().Job(r.Context(), j.Queue, j.ID)
		r.must(err)
		if is(&now) {
			return now
		}
		if time.Now().After(deadline) {
			r.Fatalf("job %s of task %s is still %s", j.ID, j.Task, now.Status)
		}
		<-time.After(5 * time.Millisecond)
	}
}

// file waits until a file exists.
func (r *rig) file(path string) {
	r.Helper()
	for deadline := time.Now().Add(suite.Stuck); ; <-time.After(5 * time.Millisecond) {
		if _, err := os.Stat(path); err == nil {
			return
		}
		if time.Now().After(deadline) {
			r.Fatalf("%s is not there", path)
		}
	}
}

// A working is a worker at work.
type working struct {
	*rig
	repo  *repo.Repo
	drain chan struct{}
	stop  context.CancelFunc
	done  chan error

	mu     sync.Mutex
	events []worker.Event
}

func (r *rig) work(lease time.Duration, o worker.Options) *working {
	r.Helper()
	w := &working{rig: r, drain: make(chan struct{}), done: make(chan error, 1)}
	w.repo = r.open(repo.Options{Lease: lease})
	if len(o.Queues) == 0 {
		o.Queues = []string{queue.DefaultQueue}
	}
	if o.Concurrency == 0 {
		o.Concurrency = 4
	}
	o.Report = func(e worker.Event) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.events = append(w.events, e)
	}
	made, err := w.repo.Worker(repo.WorkerOptions{Options: o, Grace: 100 * time.Millisecond})
	r.must(err)
	var ctx context.Context
	ctx, w.stop = context.WithCancel(context.Background())
	go func() { w.done <- made.Run(ctx, w.drain) }()
	r.Cleanup(func() {
		w.stop()
		<-w.done
		w.repo.Close()
	})
	return w
}

// end waits for the end of the worker.
func (w *working) end() error {
	w.Helper()
	select {
	case err := <-w.done:
		w.done <- err // for the cleanup
		return err
	case <-time.After(suite.Stuck):
		w.Fatal("the worker has not ended")
		return nil
	}
}

// count returns the number of events of a type about a task, "" for any.
func (w *working) count(typ worker.EventType, task string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for i := range w.events {
		if e := &w.events[i]; e.Type == typ && (task == "" || e.Job.Task == task) {
			n++
		}
	}
	return n
}

func (r *rig) result(j queue.Job) *executions.Execution {
	r.Helper()
	task, err := objectstore.ParseHash(j.TaskHash)
	r.must(err)
	e, err := r.Executions.Get(r.Context(), executions.NewKey(task, nil), j.Outcome.ExecutionID)
	r.must(err)
	return e
}

func TestJobsEndAsTheirCommands(t *testing.T) {
	r := newRig(t)
	w := r.work(0, worker.Options{})
	for _, tt := range []struct {
		name, script string
		policy       record.Policy
		status       queue.Status
		state        record.State
		reason       executions.Reason
		code         int64
	}{
		{"success", `echo hello > "$out"`, record.Policy{}, queue.Succeeded, record.Success, "", 0},
		{"exit code", `exit 3`, record.Policy{}, queue.Failed, record.Failed, "", 3},
		{"timeout", `sleep 60`, record.Policy{Timeout: 100 * time.Millisecond}, queue.TimedOut, record.Error, executions.ReasonTimeout, 0},
		{"no output", `true`, record.Policy{}, queue.Failed, record.Error, executions.ReasonOutput, 0},
		{"suspended", `exit 75`, record.Policy{Suspend: 75}, queue.Failed, record.Failed, executions.ReasonSuspended, 75},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := &rig{T: t, root: r.root, Repo: r.Repo}
			j := r.ended(r.enqueue("# "+tt.name+"\n"+tt.script, func(j *queue.Job) { j.Policy = tt.policy; j.Task = tt.name }))
			o := j.Outcome
			if j.Status != tt.status || o.Reason != string(tt.reason) || o.ExitCode != tt.code || o.ExecutionID != j.Execution {
				t.Errorf("the job is %s, %+v", j.Status, o)
			}
			e := r.result(j)
			if e.State != tt.state || e.Detail.RunID != "run-1" || e.Detail.Task != tt.name || e.OutputHash != o.Output {
				t.Errorf("on record is %+v, %+v", e.Status, e.Detail)
			}
		})
	}
	close(w.drain)
	if err := w.end(); err != nil {
		t.Errorf("the end: %v", err)
	}
}

// An invalid job fails at once; so does an unreadable job, which is left to its run.
func TestJobsThatCannotBeMade(t *testing.T) {
	r := newRig(t)
	w := r.work(0, worker.Options{})
	odd := r.enqueue("true", func(j *queue.Job) { j.TaskHash = "no hash" })
	if j := r.ended(odd); j.Status != queue.Failed || !strings.Contains(j.Outcome.Message, "task:") || j.Attempts != 1 {
		t.Errorf("a job whose task is no hash: %s after %d attempts, %+v", j.Status, j.Attempts, j.Outcome)
	}
	gone := r.enqueue("true", func(j *queue.Job) { j.TaskHash, j.MaxAttempts = objectstore.Sum([]byte("gone")).String(), 2 })
	j := r.ended(gone)
	if j.Status != queue.Failed || j.Outcome.Reason != string(executions.ReasonInput) || j.Attempts != 1 || len(j.Lost) != 0 {
		t.Errorf("a job whose task is gone: %s after %d attempts, %+v", j.Status, j.Attempts, j.Outcome)
	}
	if e := r.result(j); e.State != record.Error || !strings.Contains(e.Message, "object not found") {
		t.Errorf("on record is %+v", e.Status)
	}
	if w.count(worker.Fault, gone.Task) != 0 {
		t.Errorf("%d faults were reported; no other worker could make it", w.count(worker.Fault, gone.Task))
	}
}

// Several jobs run at a time, as many as there is room for, and none whose labels the worker lacks.
func TestRoom(t *testing.T) {
	r := newRig(t)
	dir := t.TempDir()
	w := r.work(0, worker.Options{Concurrency: 2, Labels: []string{"fast"}, Capacities: map[string]float64{"gpu": 1}})
	begin := func(name string, p record.Policy) queue.Job {
		j := r.enqueue(fmt.Sprintf(`touch %[1]s/%[2]s; until test -e %[1]s/go; do sleep 0.01; done; touch "$out"`, dir, name), func(j *queue.Job) { j.Policy = p; j.Task = name })
		return j
	}
	slow := begin("slow", record.Policy{Labels: []string{"slow"}, Priority: 9})
	big := begin("big", record.Policy{Resources: []record.Amount{{Name: "gpu", Value: 2}}, Priority: 8})
	a := begin("a", record.Policy{Labels: []string{"fast"}, Resources: []record.Amount{{Name: "gpu", Value: 1}}, Priority: 7})
	second := begin("second", record.Policy{Resources: []record.Amount{{Name: "gpu", Value: 1}}, Priority: 6})
	b := begin("b", record.Policy{Priority: 5})
	r.file(filepath.Join(dir, "a"))
	r.file(filepath.Join(dir, "b"))
	c := begin("c", record.Policy{CPU: 16, Priority: 4}) // more than there is: it gets all
	r.must(os.WriteFile(filepath.Join(dir, "go"), nil, 0o644))
	for _, j := range []queue.Job{a, b, second, c} {
		if j = r.ended(j); j.Status != queue.Succeeded {
			t.Errorf("%s is %s", j.Task, j.Status)
		}
	}
	if w.count(worker.JobBegun, "slow")+w.count(worker.JobBegun, "big") > 0 {
		t.Error("a job was begun whose demand the worker cannot meet")
	}
	close(w.drain)
	if err := w.end(); err != nil {
		t.Error(err)
	}
	for _, j := range []queue.Job{slow, big} {
		r.until(j, func(j *queue.Job) bool { return j.Status == queue.Queued })
	}
}

func TestDrain(t *testing.T) {
	r := newRig(t)
	dir := t.TempDir()
	w := r.work(0, worker.Options{Concurrency: 1})
	first := r.enqueue(fmt.Sprintf(`touch %[1]s/begun; until test -e %[1]s/go; do sleep 0.01; done; touch "$out"`, dir), nil)
	r.file(filepath.Join(dir, "begun"))
	second := r.enqueue(`touch "$out"`, nil)
	close(w.drain)
	r.must(os.WriteFile(filepath.Join(dir, "go"), nil, 0o644))
	if err := w.end(); err != nil {
		t.Errorf("the end: %v", err)
	}
	if j := r.ended(first); j.Status != queue.Succeeded {
		t.Errorf("what ran is %s", j.Status)
	}
	if j, err := r.Queue().Job(t.Context(), second.Queue, second.ID); err != nil || j.Status != queue.Queued {
		t.Errorf("what waited is %s, %v", j.Status, err)
	}
	// Another worker takes it.
	r.work(0, worker.Options{})
	r.ended(second)
}

// A worker that is told to stop gives its jobs back, and the next worker executes them again.
func TestStop(t *testing.T) {
	r := newRig(t)
	dir := t.TempDir()
	w := r.work(0, worker.Options{})
	j := r.enqueue(fmt.Sprintf(`touch %[1]s/begun-$$; until test -e %[1]s/go; do sleep 0.01; done; touch "$out"`, dir), nil)
	r.until(j, func(*queue.Job) bool { found, _ := filepath.Glob(dir + "/begun-*"); return len(found) > 0 })
	w.stop()
	if err := w.end(); !errors.Is(err, worker.ErrStopped) {
		t.Errorf("the end: %v, want ErrStopped", err)
	}
	now := r.until(j, func(j *queue.Job) bool { return j.Status == queue.Queued })
	if now.Attempts != 1 || len(now.Lost) != 1 || !strings.Contains(now.Lost[0].Message, "stopped") {
		t.Errorf("the job: %d attempts, lost %+v", now.Attempts, now.Lost)
	}
	r.must(os.WriteFile(filepath.Join(dir, "go"), nil, 0o644))
	r.work(0, worker.Options{})
	if now = r.ended(j); now.Status != queue.Succeeded || now.Attempts != 2 {
		t.Errorf("the job is %s after %d attempts", now.Status, now.Attempts)
	}
}

func TestCancel(t *testing.T) {
	r := newRig(t)
	dir := t.TempDir()
	r.work(0, worker.Options{})
	j := r.enqueue(fmt.Sprintf(`touch %s/begun; sleep 60`, dir), nil)
	r.file(filepath.Join(dir, "begun"))
	_, err := r.Queue().Cancel(t.Context(), j.Queue, j.ID, "ann@lab", "too dear")
	r.must(err)
	j = r.ended(j)
	if j.Status != queue.Cancelled || !strings.Contains(j.Outcome.Message, "ann@lab: too dear") {
		t.Errorf("the job is %s, %+v", j.Status, j.Outcome)
	}
	if e := r.result(j); e.State != record.Error || e.Detail.Reason != string(executions.ReasonCancelled) {
		t.Errorf("on record is %+v, %+v", e.Status, e.Detail)
	}
}

// A worker whose lease was lost leaves its commands, and the next worker of the host continues them.
func TestLostLease(t *testing.T) {
	const lease = 3 * time.Second // the second worker must be there in time, also on a busy machine
	r := newRig(t)
	dir := t.TempDir()
	w := r.work(lease, worker.Options{})
	j := r.enqueue(fmt.Sprintf(`echo $$ >> %[1]s/begun; until test -e %[1]s/go; do sleep 0.01; done; touch "$out"`, dir), nil)
	r.file(filepath.Join(dir, "begun"))
	held := r.until(j, func(j *queue.Job) bool { return j.Status == queue.Running })
	r.dies(held.LockedBy)
	if err := w.end(); !errors.Is(err, refstore.ErrLost) {
		t.Fatalf("the end: %v, want ErrLost", err)
	}
	if w.count(worker.JobLost, j.Task) != 1 || w.count(worker.JobEnded, j.Task) != 0 {
		t.Errorf("events: %+v", w.events)
	}
	w.repo.Close()
	r.must(os.WriteFile(filepath.Join(dir, "go"), nil, 0o644))
	r.work(lease, worker.Options{})
	begun, err := os.ReadFile(filepath.Join(dir, "begun"))
	r.must(err)
	if now := r.ended(j); now.Status != queue.Succeeded || now.Attempts != 1 || len(now.Lost) != 0 || strings.Count(string(begun), "\n") != 1 {
		t.Errorf("the job is %s after %d attempts, lost %+v, begun by %q; want it done once", now.Status, now.Attempts, now.Lost, begun)
	}
}

func TestForAndIdle(t *testing.T) {
	r := newRig(t)
	j := r.enqueue(`touch "$out"`, nil)
	idle := r.work(0, worker.Options{Idle: 50 * time.Millisecond})
	if err := idle.end(); err != nil {
		t.Error(err)
	}
	if now := r.ended(j); now.Status != queue.Succeeded {
		t.Errorf("the job is %s", now.Status)
	}
	brief := r.work(0, worker.Options{For: 50 * time.Millisecond})
	if err := brief.end(); err != nil {
		t.Error(err)
	}
}

// A worker for one job ends when that is settled, by any process.
func TestOneJob(t *testing.T) {
	r := newRig(t)
	other := r.enqueue(`touch "$out"`, nil)
	j := r.enqueue(`touch "$out"`, func(j *queue.Job) {
		j.Policy = record.Policy{CPU: 99, Labels: []string{"rare"}, Resources: []record.Amount{{Name: "gpu", Value: 9}}}
	})
	for range 2 { // the second finds that it is done
		w := r.work(0, worker.Options{Job: j.ID, Capacities: map[string]float64{"gpu": 1}})
		if err := w.end(); err != nil {
			t.Error(err)
		}
	}
	if now := r.ended(j); now.Status != queue.Succeeded || now.Attempts != 1 {
		t.Errorf("the job is %s after %d attempts", now.Status, now.Attempts)
	}
	if now, err := r.Queue().Job(t.Context(), other.Queue, other.ID); err != nil || now.Status != queue.Queued {
		t.Errorf("the other is %s, %v", now.Status, err)
	}
	if err := r.work(0, worker.Options{Job: strings.Replace(j.ID, "run-1", "run-2", 1)}).end(); err != nil {
		t.Errorf("a job that there is not: %v", err)
	}
}

// A worker that is drained before it begins takes no job.
func TestDrainedBeforeItBegins(t *testing.T) {
	r := newRig(t)
	j := r.enqueue("echo > $out", nil)
	w := &working{rig: r, drain: make(chan struct{})}
	close(w.drain)
	made, err := r.open(repo.Options{}).Worker(repo.WorkerOptions{Options: worker.Options{
		Queues: []string{queue.DefaultQueue}, Concurrency: 4, Report: func(e worker.Event) { w.events = append(w.events, e) },
	}})
	r.must(err)
	r.must(made.Run(t.Context(), w.drain))
	if now, err := r.Queue().Job(t.Context(), j.Queue, j.ID); err != nil || now.Status != queue.Queued || now.Attempts > 0 {
		t.Errorf("the job is %s after %d attempts, %v; want it left alone", now.Status, now.Attempts, err)
	}
	if w.count(worker.Draining, "") != 1 || len(w.events) != 1 {
		t.Errorf("events: %+v, want that it ends", w.events)
	}
}

// An idle worker gives up an old session, which protects everything that was stored since it began.
func TestRenew(t *testing.T) {
	r := newRig(t)
	j := r.enqueue(`sleep 0.3; touch "$out"`, nil)
	w := r.work(0, worker.Options{Renew: 100 * time.Millisecond})
	if err := w.end(); !errors.Is(err, worker.ErrRenew) {
		t.Errorf("the end: %v, want ErrRenew", err)
	}
	if now := r.ended(j); now.Status != queue.Succeeded {
		t.Errorf("the job is %s", now.Status)
	}
}

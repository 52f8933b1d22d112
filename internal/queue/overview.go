package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"e3/refstore"
)

// jobs yields the jobs of a queue that are not finished, those whose id begins so. A record that cannot be read is an error, after which it goes on.
func (q *Queue) jobs(ctx context.Context, queue, prefix string) iter.Seq2[stored, error] {
	return q.listed(ctx, refstore.Query{Partition: partition(queue, "jobs"), Prefix: prefix}, true)
}

// finished yields the finished jobs of a run.
func (q *Queue) finished(ctx context.Context, queue, run string) iter.Seq2[stored, error] {
	return q.listed(ctx, refstore.Query{Partition: finishedPartition(queue, run)}, false)
}

func (q *Queue) listed(ctx context.Context, query refstore.Query, unmoved bool) iter.Seq2[stored, error] {
	return func(yield func(stored, error) bool) {
		for r, err := range q.store.List(ctx, query) {
			var j Job
			if err == nil {
				j, err = decodeJob(r)
			}
			if !yield(stored{j, r.Version, r.Value, unmoved}, err) {
				return
			}
		}
	}
}

// only hands out the jobs of what was stored.
func only(seq iter.Seq2[stored, error]) iter.Seq2[Job, error] {
	return func(yield func(Job, error) bool) {
		for s, err := range seq {
			if !yield(s.Job, err) {
				return
			}
		}
	}
}

// Jobs yields the jobs of a queue that are not finished. A record that cannot be read is an error, after which it goes on.
func (q *Queue) Jobs(ctx context.Context, queue string) iter.Seq2[Job, error] {
	return only(q.jobs(ctx, queue, ""))
}

// Finished yields the finished jobs of a run, in no order. A record that cannot be read is an error, after which it goes on.
func (q *Queue) Finished(ctx context.Context, queue, run string) iter.Seq2[Job, error] {
	return only(q.finished(ctx, queue, run))
}

// Queues returns the names of the queues that have been used.
func (q *Queue) Queues(ctx context.Context) ([]string, error) {
	var names []string
	for r, err := range q.store.List(ctx, refstore.Query{Partition: namesPartition, KeysOnly: true}) {
		if err != nil {
			return nil, fmt.Errorf("list the queues: %w", err)
		}
		if ValidName(r.Key.Sort) == nil {
			names = append(names, r.Key.Sort)
		}
	}
	return names, nil
}

// Unfinished yields the jobs of all queues that are not finished. A record that cannot be read is an error, after which it goes on.
func (q *Queue) Unfinished(ctx context.Context) iter.Seq2[Job, error] {
	return func(yield func(Job, error) bool) {
		queues, err := q.Queues(ctx)
		if err != nil {
			yield(Job{}, err)
			return
		}
		for _, queue := range queues {
			for j, err := range q.Jobs(ctx, queue) {
				if !yield(j, err) {
					return
				}
			}
		}
	}
}

// Working tells whether an execution is that of a job, named by [Job.Ref], that is not finished. What is no such name, as others may
// have written it beside an execution, keeps nothing alive. Nor does, once this process has seen it so for Options.Patience, a job whose worker was lost and
// that nobody takes up: whoever does so later finds that the execution has ended. It writes nothing into the queue.
func (q *Queue) Working(ctx context.Context, ref, execution string) (bool, error) {
	queue, id, err := ParseRef(ref)
	if err != nil {
		return false, nil
	}
	s, err := q.load(ctx, queue, id)
	if isNotFound(err) {
		return false, nil
	}
	if err != nil || s.Status.Terminal() || execution == "" || s.Execution != execution {
		return false, err
	}
	if s.LockedBy != "" {
		over, _, err := q.members.Over(ctx, s.LockedBy)
		if err != nil || !over {
			return err == nil, err
		}
	}
	now := q.o.Now()
	q.mu.Lock()
	defer q.mu.Unlock()
	// By its token, not its version: who makes an orphan of it changes that.
	return now.Sub(q.firstSeen(fmt.Sprintf("%s#%d", ref, s.Token), now)) < q.o.Patience, nil
}

// Overview is how a queue stands.
type Overview struct {
	Queue   string
	Ready   int       // jobs that may be claimed, without the orphans, which are among those that run
	Delayed int       // jobs that may be claimed later
	Waiting time.Time // since when the one of the ready jobs has waited that was put there, or could be claimed, first; zero if there is none
	Running []Work    // the longest first
	Runs    []RunJobs // that have asked for jobs which nobody has begun, in the order of their ids
	Dead    []Job     // that have failed or timed out, had no other attempt in their run and do not wait for a person, the latest first
	Faults  []error   // records that cannot be read: ErrMalformed
}

// RunJobs counts the jobs of a run that nobody has begun, without those that a person has asked for again.
type RunJobs struct {
	Workspace, Run string
	Jobs           int
}

// Work is a job that runs, or is an orphan.
type Work struct {
	Job     Job
	Over    bool           // its worker was lost
	Pending time.Duration  // its worker was not heard of lately: within this time it is known whether it lives; 0 if it does
	Heard   refstore.Heard // when its worker was last heard of, if that is on another host and not known to be lost
}

// Overview tells how a queue stands. It reads the jobs that are not finished, and those that failed.
func (q *Queue) Overview(ctx context.Context, queue string) (Overview, error) {
	o := Overview{Queue: queue}
	err := ValidName(queue)
	if err == nil {
		_, err = q.depths(ctx, &o)
	}
	if err == nil {
		err = q.work(ctx, &o)
	}
	if err == nil {
		err = q.dead(ctx, &o)
	}
	if err != nil {
		return Overview{}, fmt.Errorf("queue %.100s: %w", queue, err)
	}
	return o, nil
}

// AtWork lists the jobs of a queue that run, the longest first. It reads the jobs that are not finished.
func (q *Queue) AtWork(ctx context.Context, queue string) ([]Work, error) {
	o := Overview{Queue: queue}
	err := ValidName(queue)
	if err == nil {
		err = q.work(ctx, &o)
	}
	if err != nil {
		return nil, fmt.Errorf("queue %.100s: %w", queue, err)
	}
	return o.Running, nil
}

// Depth counts the jobs that may be claimed, now or later, orphans too. It reads their keys only.
func (q *Queue) Depth(ctx context.Context, queue string) (int, error) {
	o := Overview{Queue: queue}
	err := ValidName(queue)
	orphans := 0
	if err == nil {
		orphans, err = q.depths(ctx, &o)
	}
	if err != nil {
		return 0, fmt.Errorf("queue %.100s: %w", queue, err)
	}
	return orphans + o.Ready + o.Delayed, nil
}

// depths counts the index, by its keys.
func (q *Queue) depths(ctx context.Context, o *Overview) (orphans int, err error) {
	now := q.now()
	for _, index := range []string{"ready", "delayed"} {
		for r, err := range q.store.List(ctx, refstore.Query{Partition: partition(o.Queue, index), KeysOnly: true}) {
			if err != nil {
				return 0, err
			}
			if _, ok := indexed(r.Key); !ok {
				continue
			}
			since := readySince(r.Key)
			switch {
			case index == "ready" && strings.HasPrefix(r.Key.Sort, orphanOrder):
				orphans++
				continue
			case index == "delayed" && since.After(now):
				o.Delayed++
				continue
			}
			if o.Ready++; o.Waiting.IsZero() || since.Before(o.Waiting) {
				o.Waiting = since
			}
		}
	}
	return orphans, nil
}

// readySince is the time in the key of an entry: from when on a delayed job may be claimed, when any other was enqueued.
func readySince(key refstore.Key) time.Time {
	field := 2
	if strings.HasSuffix(key.Partition, "/delayed") {
		field = 0
	}
	n, _ := strconv.ParseInt(strings.Split(key.Sort, ".")[field], 16, 64)
	return moment(n)
}

// work lists what runs.
func (q *Queue) work(ctx context.Context, o *Overview) error {
	sessions, waits := make(map[string]Work), make(map[RunJobs]int)
	for j, err := range q.Jobs(ctx, o.Queue) {
		if errors.Is(err, ErrMalformed) {
			o.Faults = append(o.Faults, err)
			continue
		}
		if err != nil {
			return err
		}
		if j.Status == Queued && j.Retried == 0 {
			waits[RunJobs{Workspace: j.Workspace, Run: j.Run}]++
		}
		if j.Status != Running {
			continue
		}
		w, known := sessions[j.LockedBy]
		if j.Orphaned() {
			w = Work{Over: true}
		} else if !known {
			if w.Over, w.Pending, err = q.members.Over(ctx, j.LockedBy); err != nil {
				return err
			}
			if w.Heard, err = q.members.Heard(ctx, j.LockedBy); err != nil {
				return err
			}
			sessions[j.LockedBy] = w
		}
		w.Job = j
		o.Running = append(o.Running, w)
	}
	for r, n := range waits {
		r.Jobs = n
		o.Runs = append(o.Runs, r)
	}
	slices.SortFunc(o.Runs, func(a, b RunJobs) int {
		return cmp.Or(cmp.Compare(a.Run, b.Run), cmp.Compare(a.Workspace, b.Workspace))
	})
	slices.SortStableFunc(o.Running, func(a, b Work) int { return a.Job.Claimed.Compare(b.Job.Claimed) })
	return nil
}

// dead lists what a person may want to try again.
func (q *Queue) dead(ctx context.Context, o *Overview) error {
	for r, err := range q.store.List(ctx, refstore.Query{Partition: partition(o.Queue, "dead"), KeysOnly: true}) {
		if err != nil {
			return err
		}
		if validID(r.Key.Sort) != nil {
			continue
		}
		s, err := q.loadFinished(ctx, o.Queue, r.Key.Sort)
		switch {
		case isNotFound(err):
		case errors.Is(err, ErrMalformed):
			o.Faults = append(o.Faults, err)
		case err != nil:
			return err
		case s.isDead():
			o.Dead = append(o.Dead, s.Job)
		}
	}
	if err := q.dropAttempts(ctx, o); err != nil {
		return err
	}
	slices.SortStableFunc(o.Dead, func(a, b Job) int { return b.Finished.Compare(a.Finished) })
	return nil
}

// dropAttempts leaves of the attempts of a task in a run the last one, if it has failed: the others were tried again already.
func (q *Queue) dropAttempts(ctx context.Context, o *Overview) error {
	dead := make(map[string]bool, len(o.Dead))
	for i := range o.Dead {
		dead[o.Dead[i].ID] = true
	}
	var fault error
	o.Dead = slices.DeleteFunc(o.Dead, func(j Job) bool {
		// Whoever counts the attempts has counted those that the job has lost: each of its executions, at most.
		executions := min(max(j.Attempts, int64(len(j.Lost))+1), maxLost)
		for range executions {
			j.Attempt++
			id := Identity(&j)
			if dead[id] || fault != nil {
				return true
			}
			_, err := q.find(ctx, o.Queue, id)
			if err != nil && !isNotFound(err) && !errors.Is(err, ErrMalformed) {
				fault = err
			}
			if !isNotFound(err) {
				return true
			}
		}
		return false
	})
	return fault
}

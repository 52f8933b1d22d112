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

// A Reader finds and counts jobs and their workers. It changes no job.
type Reader struct {
	*records
	held  *held
	index *index
}

// only yields the jobs of stored records.
func only(seq iter.Seq2[stored, error]) iter.Seq2[Job, error] {
	return func(yield func(Job, error) bool) {
		for s, err := range seq {
			if !yield(s.Job, err) {
				return
			}
		}
	}
}

// Jobs yields the unfinished jobs of a queue. An unreadable record is an error that does not end the iteration.
func (rd *Reader) Jobs(ctx context.Context, queue string) iter.Seq2[Job, error] {
	return only(rd.jobs(ctx, queue, ""))
}

// Finished yields the finished jobs of a run, in no order. An unreadable record is an error that does not end the
// iteration.
func (rd *Reader) Finished(ctx context.Context, queue, run string) iter.Seq2[Job, error] {
	return only(rd.finished(ctx, queue, run))
}

// Queues returns the names of all queues that were used, sorted.
func (rd *Reader) Queues(ctx context.Context) ([]string, error) { return rd.names(ctx) }

// Unfinished yields the unfinished jobs of all queues. An unreadable record is an error that does not end the
// iteration.
func (rd *Reader) Unfinished(ctx context.Context) iter.Seq2[Job, error] {
	return func(yield func(Job, error) bool) {
		queues, err := rd.names(ctx)
		if err != nil {
			yield(Job{}, err)
			return
		}
		for _, queue := range queues {
			for j, err := range rd.Jobs(ctx, queue) {
				if !yield(j, err) {
					return
				}
			}
		}
	}
}

// Working tells whether an execution belongs to an unfinished job, named by [Job.Ref]. The job must exist. Its worker
// must not have been lost, as seen by this process, for Options.Patience or longer: a worker that takes the job up
// later finds that the execution has ended. Working writes nothing into the queue.
func (rd *Reader) Working(ctx context.Context, ref, execution string) (bool, error) {
	queue, id, err := ParseRef(ref)
	if err != nil {
		return false, nil
	}
	s, err := rd.load(ctx, queue, id)
	if isNotFound(err) {
		return false, nil
	}
	if err != nil || s.Status.Terminal() || execution == "" || s.Execution != execution {
		return false, err
	}
	if s.LockedBy != "" {
		ended, _, err := rd.held.members.Ended(ctx, s.LockedBy)
		if err != nil || !ended {
			return err == nil, err
		}
	}
	now := rd.o.Now()
	// By the token, not the version: making the job an orphan changes the version.
	return now.Sub(rd.index.orphanSince(fmt.Sprintf("%s#%d", ref, s.Token), now)) < rd.o.Patience, nil
}

// Overview is the state of a queue.
type Overview struct {
	Queue   string
	Ready   int       // jobs that may be claimed, without orphans, which are in Running
	Delayed int       // jobs that may be claimed later
	Waiting time.Time // when the ready job that has waited longest became claimable; zero if there is none
	Running []Work    // longest running first
	Runs    []RunJobs // with jobs that no worker has begun, in the order of their ids
	Dead    []Job     // failed or timed out without a further attempt in their run, neither suspended nor answered; latest first
	Faults  []error   // of unreadable records: ErrMalformed

	answered []Job // failed jobs that need no other attempt (Options.Answered)
}

// RunJobs counts a run's jobs that no worker has begun, without retried ones.
type RunJobs struct {
	Workspace string `json:"workspace"`
	Run       string `json:"run"`
	Jobs      int    `json:"waiting"`
}

// Work is a running job, or an orphan.
type Work struct {
	Job     Job
	Over    bool           // its worker was lost
	Pending time.Duration  // if its worker was not heard of lately: an upper bound of the time until its state is known; 0 if it is alive
	Heard   refstore.Heard // when its worker's session was last renewed, if it is on another host and not known to be lost
}

// Overview returns the state of a queue. It reads the unfinished jobs and the failed ones.
func (rd *Reader) Overview(ctx context.Context, queue string) (Overview, error) {
	o := Overview{Queue: queue}
	err := ValidName(queue)
	if err == nil {
		_, err = rd.depths(ctx, &o)
	}
	if err == nil {
		err = rd.work(ctx, &o)
	}
	if err == nil {
		err = rd.dead(ctx, &o)
	}
	if err != nil {
		return Overview{}, fmt.Errorf("queue %.100s: %w", queue, err)
	}
	return o, nil
}

// AtWork lists the running jobs of a queue, longest running first. It reads the unfinished jobs.
func (rd *Reader) AtWork(ctx context.Context, queue string) ([]Work, error) {
	o := Overview{Queue: queue}
	err := ValidName(queue)
	if err == nil {
		err = rd.work(ctx, &o)
	}
	if err != nil {
		return nil, fmt.Errorf("queue %.100s: %w", queue, err)
	}
	return o.Running, nil
}

// AtJob returns a job with the known state of its worker. The job's status tells whether it still runs.
func (rd *Reader) AtJob(ctx context.Context, queue, id string) (Work, error) {
	s, err := rd.load(ctx, queue, id)
	if err != nil {
		return Work{}, err
	}
	w, err := rd.session(ctx, &s.Job)
	w.Job = s.Job
	return w, err
}

// session tells the known state of a running job's worker.
func (rd *Reader) session(ctx context.Context, j *Job) (w Work, err error) {
	if j.LockedBy == "" {
		return Work{Over: j.Orphaned()}, nil
	}
	if w.Over, w.Pending, err = rd.held.members.Ended(ctx, j.LockedBy); err != nil {
		return w, err
	}
	w.Heard, err = rd.held.members.Heard(ctx, j.LockedBy)
	return w, err
}

// Depth counts the claimable and delayed jobs, including orphans. It reads only their keys.
func (rd *Reader) Depth(ctx context.Context, queue string) (int, error) {
	o := Overview{Queue: queue}
	err := ValidName(queue)
	orphans := 0
	if err == nil {
		orphans, err = rd.depths(ctx, &o)
	}
	if err != nil {
		return 0, fmt.Errorf("queue %.100s: %w", queue, err)
	}
	return orphans + o.Ready + o.Delayed, nil
}

// depths counts the entries of the indexes by their keys.
func (rd *Reader) depths(ctx context.Context, o *Overview) (orphans int, err error) {
	now := rd.now()
	delayed := partition(o.Queue, "delayed")
	for _, index := range append(rd.readyPartitions(o.Queue), delayed) {
		for r, err := range rd.store.List(ctx, refstore.Query{Partition: index, KeysOnly: true}) {
			if err != nil {
				return 0, err
			}
			if _, ok := indexed(r.Key); !ok {
				continue
			}
			since := readySince(r.Key)
			switch {
			case index != delayed && strings.HasPrefix(r.Key.Sort, orphanOrder):
				orphans++
				continue
			case index == delayed && since.After(now):
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

// readySince is the time in an entry's key: when a delayed job becomes claimable, or when any other job was enqueued.
func readySince(key refstore.Key) time.Time {
	field := 2
	if strings.HasSuffix(key.Partition, "/delayed") {
		field = 0
	}
	n, _ := strconv.ParseInt(strings.Split(key.Sort, ".")[field], 16, 64)
	return Time(n).Time()
}

// work lists the running jobs.
func (rd *Reader) work(ctx context.Context, o *Overview) error {
	sessions, waits := make(map[string]Work), make(map[RunJobs]int)
	for j, err := range rd.Jobs(ctx, o.Queue) {
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
		if !known {
			if w, err = rd.session(ctx, &j); err != nil {
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
	slices.SortStableFunc(o.Running, func(a, b Work) int { return cmp.Compare(a.Job.Claimed, b.Job.Claimed) })
	return nil
}

// dead lists the jobs that are candidates for a retry.
func (rd *Reader) dead(ctx context.Context, o *Overview) error {
	for r, err := range rd.store.List(ctx, refstore.Query{Partition: partition(o.Queue, "dead"), KeysOnly: true}) {
		if err != nil {
			return err
		}
		if validID(r.Key.Sort) != nil {
			continue
		}
		s, err := rd.loadFinished(ctx, o.Queue, r.Key.Sort)
		switch {
		case isNotFound(err):
		case errors.Is(err, ErrMalformed):
			o.Faults = append(o.Faults, err)
		case err != nil:
			return err
		case s.isDead():
			answered, err := rd.answered(ctx, &s.Job)
			if err != nil {
				return err
			}
			if answered {
				o.answered = append(o.answered, s.Job)
			} else {
				o.Dead = append(o.Dead, s.Job)
			}
		}
	}
	if err := rd.dropAttempts(ctx, o); err != nil {
		return err
	}
	slices.SortStableFunc(o.Dead, func(a, b Job) int { return cmp.Compare(b.Finished, a.Finished) })
	return nil
}

// answered is Options.Answered.
func (rs *records) answered(ctx context.Context, j *Job) (bool, error) {
	if rs.o.Answered == nil {
		return false, nil
	}
	is, err := rs.o.Answered(ctx, j)
	if err != nil {
		return false, fmt.Errorf("whether failed job %s has an answer since: %w", j.Ref(), err)
	}
	return is, nil
}

// dropAttempts removes the attempts that were followed by another attempt in their run.
func (rd *Reader) dropAttempts(ctx context.Context, o *Overview) error {
	dead := make(map[string]bool, len(o.Dead))
	for i := range o.Dead {
		dead[o.Dead[i].ID] = true
	}
	var fault error
	o.Dead = slices.DeleteFunc(o.Dead, func(j Job) bool {
		// The run's attempts include the attempts that the job lost: at most one per execution.
		executions := min(max(j.Attempts, int64(len(j.Lost))+1), maxLost)
		for range executions {
			j.Attempt++
			id := Identity(&j)
			if dead[id] || fault != nil {
				return true
			}
			_, err := rd.find(ctx, o.Queue, id)
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

// Orphans returns jobs whose workers were lost, at most the first 64 of each queue, for a worker without room to claim.
func (rd *Reader) Orphans(ctx context.Context, queues ...string) ([]Job, error) {
	const most = 64
	var found []Job
	for _, queue := range queues {
		if err := ValidName(queue); err != nil {
			return nil, fmt.Errorf("%w: %w", refstore.ErrInvalid, err)
		}
		for r, err := range rd.store.List(ctx, refstore.Query{Partition: partition(queue, "ready"), Prefix: orphanOrder, Limit: most}) {
			if err != nil {
				return nil, fmt.Errorf("look for orphans in queue %s: %w", queue, err)
			}
			if e, err := decodeEntry(r); err == nil { // Repair reports the unreadable ones
				found = append(found, e.job)
			}
		}
	}
	return found, nil
}

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

// A Reader finds and counts jobs, and what works on them. It changes no job.
type Reader struct {
	*records
	held  *held
	index *index
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
func (rd *Reader) Jobs(ctx context.Context, queue string) iter.Seq2[Job, error] {
	return only(rd.jobs(ctx, queue, ""))
}

// Finished yields the finished jobs of a run, in no order. A record that cannot be read is an error, after which it goes on.
func (rd *Reader) Finished(ctx context.Context, queue, run string) iter.Seq2[Job, error] {
	return only(rd.finished(ctx, queue, run))
}

// Queues returns the names of the queues that were used, in their order.
func (rd *Reader) Queues(ctx context.Context) ([]string, error) { return rd.names(ctx) }

// Unfinished yields the jobs of all queues that are not finished. A record that cannot be read is an error, after which it goes on.
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

// Working tells whether an execution is that of a job, named by [Job.Ref], that is not finished. What is no such name, as others may
// have written it beside an execution, keeps nothing alive. Nor does, once this process has seen it so for Options.Patience, a job whose worker was lost and
// that nobody takes up: whoever does so later finds that the execution has ended. It writes nothing into the queue.
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
		over, _, err := rd.held.members.Over(ctx, s.LockedBy)
		if err != nil || !over {
			return err == nil, err
		}
	}
	now := rd.o.Now()
	// By its token, not its version: making it an orphan changes the version.
	return now.Sub(rd.index.orphanSince(fmt.Sprintf("%s#%d", ref, s.Token), now)) < rd.o.Patience, nil
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

// AtWork lists the jobs of a queue that run, the longest first. It reads the jobs that are not finished.
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

// Depth counts the jobs that may be claimed, now or later, orphans too. It reads their keys only.
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

// depths counts the index, by its keys.
func (rd *Reader) depths(ctx context.Context, o *Overview) (orphans int, err error) {
	now := rd.now()
	for _, index := range []string{"ready", "delayed"} {
		for r, err := range rd.store.List(ctx, refstore.Query{Partition: partition(o.Queue, index), KeysOnly: true}) {
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
		if j.Orphaned() {
			w = Work{Over: true}
		} else if !known {
			if w.Over, w.Pending, err = rd.held.members.Over(ctx, j.LockedBy); err != nil {
				return err
			}
			if w.Heard, err = rd.held.members.Heard(ctx, j.LockedBy); err != nil {
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
			o.Dead = append(o.Dead, s.Job)
		}
	}
	if err := rd.dropAttempts(ctx, o); err != nil {
		return err
	}
	slices.SortStableFunc(o.Dead, func(a, b Job) int { return b.Finished.Compare(a.Finished) })
	return nil
}

// dropAttempts leaves of the attempts of a task in a run the last one, if it has failed: the others were tried again already.
func (rd *Reader) dropAttempts(ctx context.Context, o *Overview) error {
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

// Orphans returns jobs whose workers were lost, some of the first if there are many: what who cannot claim just now may want to know.
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
			if e, err := decodeEntry(r); err == nil { // Repair tells of what cannot be read
				found = append(found, e.job)
			}
		}
	}
	return found, nil
}

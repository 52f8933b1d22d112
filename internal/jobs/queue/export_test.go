package queue

import (
	"context"
	"strings"
	"time"

	"e3/refstore"
)

// Flush returns when all follow-up records are written.
func (q *Queue) Flush(ctx context.Context) { q.batch.flush(ctx) }

// Hurry makes the process enqueue from now on as if it had enqueued many jobs in the last second, and would go on so.
func (q *Queue) Hurry(queue string) {
	q.index.mu.Lock()
	defer q.index.mu.Unlock()
	q.index.flows[queue] = flow{at: q.o.Now().Add(24 * time.Hour), rate: 1e6}
}

// Reencode decodes a record of this package and encodes it again; ok is false for keys without such records.
func Reencode(r refstore.Record) (value []byte, ok bool, err error) {
	r.Key = logical(r.Key)
	parts := strings.Split(r.Key.Partition, "/")
	what := ""
	if len(parts) > 2 {
		what = parts[2]
	}
	switch {
	case what == "jobs", what == "finished" && len(parts) == 4:
		j, err := decodeJob(r)
		return j.encode(), true, err
	case what == "ready", what == "delayed":
		e, err := decodeEntry(r)
		return e.encode(e.job.encode()), true, err
	case what == "cancel":
		return reencode(r.Value, new(cancelRecord))
	case what == "holders":
		return reencode(r.Value, new(holderRecord))
	case what == "turns", what == "finished":
		return reencode(r.Value, new(turnRecord))
	}
	return nil, false, nil
}

func reencode(value []byte, into any) ([]byte, bool, error) {
	err := decode(value, into)
	return encode(into), true, err
}

// Knows tells whether this process knows the entry of a job of the default queue, or else will list all at the next claim.
func (q *Queue) Knows(j *Job) bool {
	q.index.hear(DefaultQueue)
	q.index.mu.Lock()
	defer q.index.mu.Unlock()
	p := q.index.page(DefaultQueue)
	_, there := p.find(&candidate{order: j.order()})
	return there || p.woken
}

// News is what a process remembers of signs that more may come.
type News struct{ news }

func NewNews() *News { return new(News) }

func (n *News) Came(now time.Time) { n.came(now) }

func (n *News) Quiet(now time.Time) time.Duration { return n.quiet(now) }

package history

import (
	"context"
	"slices"

	"e3/internal/events"
)

// firstRuns is the number of runs that are read at first for each wanted attempt; growth is the factor by which the
// number grows while the runs have too few attempts.
const (
	firstRuns = 2
	growth    = 4
)

// Latest is Find for the latest attempts of tasks, at least n of each that want accepts. It reads runs, the latest
// first, until it has n attempts and one more; so Found.Partial says for certain that there are earlier attempts.
// Between the earliest returned attempt and now, none is missing. With a pattern, or in a deep query, it reads all
// runs.
func Latest(ctx context.Context, s Stores, q Query, n int, want func(*Attempt) bool) (*Found, error) {
	if n <= 0 || q.Pattern != "" || q.Deep {
		return Find(ctx, s, q)
	}
	s.Runs = s.Runs.Remembering()
	runs, err := events.Runs(ctx, s.Records, q.Workspace)
	if err != nil {
		return nil, err
	}
	for count := firstRuns * (n + 1); count < len(runs); count *= growth {
		q.From = runs[len(runs)-count].Run
		found, err := Find(ctx, s, q)
		if err != nil {
			return nil, err
		}
		if found.whole(q.From, n, want) {
			found.Partial = true
			return found, nil
		}
	}
	q.From = ""
	return Find(ctx, s, q)
}

// whole removes the attempts that are earlier than a run, since other attempts of that time were not read. It reports
// whether each task has more than n remaining attempts that want accepts.
func (f *Found) whole(from string, n int, want func(*Attempt) bool) bool {
	for i := range f.Tasks {
		t := &f.Tasks[i]
		t.Attempts = slices.DeleteFunc(t.Attempts, func(x Attempt) bool { return x.ExecutionID != "" && x.ExecutionID < from })
		wanted := 0
		for j := range t.Attempts {
			if want(&t.Attempts[j]) {
				wanted++
			}
		}
		if wanted <= n {
			return false
		}
	}
	return true
}

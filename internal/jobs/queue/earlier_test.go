package queue_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"e3/internal/jobs/queue"
)

// TestEarlierExecutions: a job keeps each execution that another one follows, since whatever process closes its run has
// to tell of all of them. A later one has a greater id, by whatever clock the earlier one was made.
func TestEarlierExecutions(t *testing.T) {
	w := newWorld(t)
	p := w.on("front")
	id := p.enqueue(t, job(1)).ID
	var made, after []string
	claim := func() *queue.Lease {
		t.Helper()
		want := p.want()
		want.NewExecution = func(least string) (string, error) {
			after = append(after, least)
			return w.newExecution(least)
		}
		l := p.claimAs(t, want)
		made = append(made, l.Job().Execution)
		return l
	}
	l := claim()
	if err := l.Revoke(t.Context(), "ann@node was stopped"); err != nil {
		t.Fatal(err)
	}
	revoked := p.job(t, id)
	want(t, "attempts that are left after the worker was stopped", revoked.MaxAttempts-revoked.Attempts, 3)
	want(t, "the last error", revoked.LastError, "ann@node was stopped")
	l = claim()
	if _, err := l.Again(t.Context(), "it was lost", 0); err != nil {
		t.Fatal(err)
	}
	p.end(t, claim(), 4, "")
	if _, err := p.Retry(t.Context(), queue.DefaultQueue, id); err != nil {
		t.Fatal(err)
	}
	p.finish(t, claim())
	w.flush()
	history := p.job(t, id)
	var told []string
	for i, a := range history.History() {
		told = append(told, a.Execution)
		want(t, "number of the attempt", a.Number, int64(i+1))
		want(t, "given up", a.Lost, i < len(made)-1)
	}
	if !slices.Equal(told, made) {
		t.Errorf("the job tells of %q, want %q", told, made)
	}
	for i := 1; i < len(after); i++ {
		if after[i] != made[i-1] {
			t.Errorf("execution %d is to be greater than %q, want %q", i, after[i], made[i-1])
		}
	}
}

// TestAdoptedHistory: a job keeps who claimed its execution and who adopted it, with the time of each and of the command's
// start, also of executions that others follow. Whatever a reader has missed, it finds the transitions in their order.
func TestAdoptedHistory(t *testing.T) {
	w := newWorld(t)
	p := w.on("front")
	id := p.enqueue(t, job(1)).ID
	lost := func(name string, began time.Time) (claimed queue.Job) {
		t.Helper()
		worker := w.on("back")
		as := worker.want()
		as.Worker, as.Began = name, began
		claimed = worker.claimAs(t, as).Job()
		w.kill(worker)
		if err := p.Reap(t.Context(), queue.DefaultQueue); err != nil {
			t.Fatal(err)
		}
		return claimed
	}
	first := lost("ann@back", time.Time{})
	began := first.Claimed.Time().Add(time.Millisecond)
	w.pass(time.Hour)
	second := lost("bob@back", began)
	expected := queue.Attempt{
		Number: 1, Execution: first.Execution, Worker: "ann@back", Claimed: first.Claimed.Time(), Started: began, Adopter: "bob@back", Adopted: second.Claimed.Time(),
	}
	if !second.Claimed.Time().After(began) {
		t.Fatalf("adopted %v, begun %v", second.Claimed, began)
	}
	orphan := p.job(t, id)
	want(t, "an adopted execution", orphan.History(), []queue.Attempt{expected})
	l := p.claimAs(t, p.want())
	if _, err := l.Again(t.Context(), "it was unplugged", 0); err != nil {
		t.Fatal(err)
	}
	again := p.job(t, id)
	expected.Adopter, expected.Adopted, expected.Lost, expected.Message, expected.At = p.want().Worker, l.Job().Claimed.Time(), true, "it was unplugged", again.Lost[0].At.Time()
	want(t, "one that was given up", again.History(), []queue.Attempt{expected})
}

// TestCancelOfTheLost: a process that cannot have the command of a lost worker taken over ends the job, and says that it
// may run on. One that can is asked first, and the claim of a worker learns of the request at once.
func TestCancelOfTheLost(t *testing.T) {
	w := newWorld(t)
	p := w.on("front")
	lose := func(n int) string {
		t.Helper()
		id := p.enqueue(t, job(n)).ID
		worker := w.on("back")
		as := worker.want()
		as.Worker = "ann@back"
		worker.claimAs(t, as)
		w.kill(worker)
		return id
	}
	elsewhere, err := p.Cancel(t.Context(), queue.DefaultQueue, lose(1), "eve@far", "too dear")
	if err != nil || elsewhere.Status != queue.Cancelled || elsewhere.Outcome.Left != "ann@back" {
		t.Errorf("elsewhere: %v %+v", err, elsewhere.Outcome)
	}
	id := lose(2)
	asked := 0
	p.takeOver = func(j *queue.Job) {
		asked++
		l := p.claimAs(t, p.want())
		select {
		case <-l.CancelRequested():
		default:
			t.Error("the claim does not tell that the job is cancelled")
		}
		if err := l.Finish(t.Context(), success(l)); err != nil {
			t.Error(err)
		}
	}
	var ended *queue.TransitionError
	_, err = p.Cancel(t.Context(), queue.DefaultQueue, id, "eve@far", "")
	if !errors.As(err, &ended) || ended.Job.Status != queue.Succeeded || asked != 1 {
		t.Errorf("here, asked %d times: %v", asked, err)
	}
	id = lose(3)
	p.takeOver = func(*queue.Job) { asked++ } // in vain
	if j, err := p.Cancel(t.Context(), queue.DefaultQueue, id, "eve@far", ""); err != nil || j.Outcome.Left != "ann@back" || asked != 2 {
		t.Errorf("in vain, asked %d times: %v %+v", asked, err, j.Outcome)
	}
}

//go:build linux

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"e3/internal/events"
	"e3/internal/format/record"
	"e3/internal/jobs/approval"
	"e3/internal/repo"
)

// approvalGraph has a task that needs approval, one that suspends itself, and one that does both. Each command leaves a mark.
const approvalGraph = `
e3: 1
name: w
inputs:
  a: {value: 1}
tasks:
  ask: {in: [a], out: ask.txt, approve: true, pass_env: [E2E_STATE], run: 'echo "ask $a ${E3_STEP:-first} $E3_EXECUTION" >> "$E2E_STATE/ran"; echo "$a" > "$out"'}
  hold: {in: [a], out: hold.txt, suspend: 75, pass_env: [E2E_STATE], run: 'echo "hold $a ${E3_STEP:-first} $E3_EXECUTION" >> "$E2E_STATE/ran"; echo "$a" > "$out"; test -n "${E3_STEP-}" || exit 75'}
  both:
    in: [a]
    out: both.txt
    approve: true
    suspend: 75
    pass_env: [E2E_STATE]
    run: |
      echo "both $a ${E3_STEP:-first} $E3_EXECUTION" >> "$E2E_STATE/ran"
      echo "$a" > "$out"
      mkdir "$E2E_STATE/both-$a" 2>/dev/null && exit 75
      true
  after: {in: {x: ask, y: hold, z: both}, out: after.txt, run: 'cat "$x" "$y" "$z" > "$out"'}
`

// TestApprovalSchedules kills starts at random while people approve, reject and think better of it, also while nothing runs, and inputs
// change and come back: no person is asked twice about a task and its inputs, no decision is lost, none counts for other inputs, no
// command that has suspended itself runs again, and the journal has each decision that was printed. E3_TEST_SCHEDULES is how many
// schedules are played; E3_TEST_SEED repeats the first, and the others in their order. They are by turns on a folder and on DynamoDB.
func TestApprovalSchedules(t *testing.T) {
	t.Parallel()
	n, seed := schedules(t, 2, 4)
	var list []scenario
	for i := range n {
		seed := seed + uint64(i)
		kind := fleetKinds[seed%uint64(len(fleetKinds))]
		list = append(list, scenario{fmt.Sprintf("%s_seed_%d", kind, seed), func(t *testing.T) { playApprovals(t, kind, seed) }})
	}
	playAll(t, 4, list)
}

// approvals is a schedule while it is played.
type approvals struct {
	t     *testing.T
	f     *fleet
	m     *machine
	began time.Time

	witness *witness

	mu      sync.Mutex
	trail   []string
	decided []decided
}

// decided is a decision as it was printed.
type decided struct {
	Task, Block, Status, At string
	Changed                 bool
}

func playApprovals(t *testing.T, kind string, seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, 1))
	s := &approvals{t: t, began: time.Now(), witness: newWitness(t)}
	s.f = newFleet(t, kind, 1500*time.Millisecond, 1, map[string]string{"e3.yaml": approvalGraph})
	s.m = s.f.machines[0]
	defer func() {
		if t.Failed() {
			t.Logf("E3_TEST_SEED=%d E3_TEST_SCHEDULES=1; what was done:\n  %s\nmarks:\n%s", seed, strings.Join(s.trail, "\n  "), strings.Join(s.f.ran(), "\n"))
		}
	}()
	s.m.calmly("workspace", "create", "w")
	s.m.calmly("workspace", "deploy", "w", "e3.yaml")
	start := []string{"start", "w", "--json", "--grace", "200ms"}
	var worker *process
	if rnd.IntN(3) == 0 {
		worker = s.m.worker()
		start = append(start, "--workers")
	}
	through := make(chan struct{})
	var client sync.WaitGroup
	client.Go(func() { s.witness.follows(s.m, "w", rand.New(rand.NewPCG(seed, 4)), through) })
	for range 4 + rnd.IntN(3) {
		over := make(chan struct{})
		var people sync.WaitGroup
		people.Go(func() { s.decides(rand.New(rand.NewPCG(seed, rnd.Uint64())), over) })
		args := start
		if rnd.IntN(2) == 0 {
			args = append(slices.Clone(start), "--no-wait")
		}
		x := s.m.spawn(args...)
		s.note("%s begins", strings.Join(args, " "))
		select {
		case <-x.ended:
		case <-time.After(time.Duration(rnd.IntN(2000)) * time.Millisecond):
			syscall.Kill(x.pid(), syscall.SIGKILL)
			s.note("it is killed")
		}
		if !x.endsIn(10 * time.Second) {
			t.Errorf("a start hangs\n%s", x.result().text())
		}
		s.startEnded(x.result())
		if rnd.IntN(3) > 0 {
			s.decideOnce(rnd)
		}
		close(over)
		people.Wait()
		if rnd.IntN(3) == 0 {
			value := strconv.Itoa(1 + rnd.IntN(2))
			s.note("set w.a %s: exit code %d", value, s.m.e3("set", "w.a", value).code)
		}
	}
	s.settle(start)
	close(through)
	client.Wait()
	if worker != nil {
		s.m.drain(worker)
	}
	s.f.gone()
	s.check()
	s.witness.accounts(s.f.looker().open(), s.m, s.f.looker().all())
	s.f.whole(tolerated{killed: true, fenced: true})
}

func (s *approvals) note(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trail = append(s.trail, fmt.Sprintf("%6.3f %s", time.Since(s.began).Seconds(), fmt.Sprintf(format, args...)))
}

// startEnded looks at how a start has ended.
func (s *approvals) startEnded(r result) {
	s.t.Helper()
	s.witness.saw(r)
	s.note("it has ended with exit code %d", r.code)
	if !slices.Contains([]int{-1, 0, 1, 3, 11, 137}, r.code) || bad.MatchString(r.stderr) {
		s.t.Errorf("a start has ended with exit code %d\n%s", r.code, r.text())
	}
}

// decides is a person who decides now and then.
func (s *approvals) decides(rnd *rand.Rand, over <-chan struct{}) {
	for {
		select {
		case <-over:
			return
		case <-time.After(time.Duration(rnd.IntN(300)) * time.Millisecond):
			s.decideOnce(rnd)
		}
	}
}

func (s *approvals) decideOnce(rnd *rand.Rand) {
	task := "w." + []string{"ask", "hold", "both"}[rnd.IntN(3)]
	switch rnd.IntN(8) {
	case 0:
		s.decide("reject", task)
	case 1:
		s.decide("approve", task, "--undo")
	case 2:
		s.decide("reject", task, "--undo")
	default:
		s.decide("approve", task)
	}
}

// decide decides about a task. The process may be killed, too.
func (s *approvals) decide(args ...string) {
	x := s.m.spawn(append(slices.Clone(args), "--json", "--note", "noted")...)
	if !x.endsIn(20 * time.Second) {
		s.t.Errorf("e3 %v hangs", args)
	}
	r := x.result()
	var d decided
	if r.code == 0 && json.Unmarshal([]byte(r.stdout), &d) != nil {
		s.t.Errorf("e3 %v says %s", args, r.text())
	}
	if r.code != 0 && r.code != 1 && r.code != 2 || bad.MatchString(r.stderr) {
		s.t.Errorf("e3 %v has ended with exit code %d\n%s", args, r.code, r.text())
	}
	s.note("e3 %v: exit code %d, %+v", args, r.code, d)
	s.mu.Lock()
	defer s.mu.Unlock()
	if d.Changed {
		s.decided = append(s.decided, d)
	}
}

// settle approves all that is asked, and takes back what was rejected, until a start has nothing left to ask.
func (s *approvals) settle(start []string) {
	s.t.Helper()
	for range 10 {
		r := s.m.e3(append(slices.Clone(start), "--no-wait")...)
		for deadline := time.Now().Add(patience); r.code == 11 && time.Now().Before(deadline); {
			r = s.m.e3(append(slices.Clone(start), "--no-wait")...)
		}
		s.startEnded(r)
		switch r.code {
		case 0:
			a := strings.TrimSpace(s.m.calmly("get", "w.a").stdout)
			s.m.hasText("w.after", a+"\n"+a+"\n"+a+"\n")
			return
		case 1, 3:
			for _, e := range r.events(s.t) {
				switch {
				case e.Type == events.TaskDeferred:
					s.decide("approve", "w."+e.Task)
				case e.Type == events.TaskFailed && e.Data.Reason != events.ReasonRejected:
					s.t.Fatalf("a start in peace: exit code %d\n%s", r.code, r.text())
				case e.Type == events.TaskFailed:
					s.decide("reject", "w."+e.Task, "--undo")
				}
			}
		default:
			s.t.Fatalf("a start in peace: exit code %d\n%s", r.code, r.text())
		}
	}
	s.t.Fatal("starts go on to ask")
}

// asking is what a block asks about. Of a command that had suspended itself before its block was closed, as the inputs changed meanwhile,
// no step is known any more.
type asking struct{ task, key, kind, step string }

// check compares the events of all runs, the journal, and the executions.
func (s *approvals) check() {
	r := s.f.looker().open()
	ctx := context.Background()
	var runs []events.Event
	refs, err := events.Runs(ctx, r.Records, "w")
	if err != nil {
		s.t.Fatal(err)
	}
	for _, ref := range refs {
		for e, err := range events.Read(ctx, r.Records, "w", ref.Run) {
			if err != nil {
				s.t.Fatal(err)
			}
			runs = append(runs, e.Event)
		}
	}
	closed, told := s.journal(ctx, r)
	asked, of := map[asking]map[string]bool{}, map[string]asking{}
	for _, e := range runs {
		switch e.Type {
		case events.TaskDeferred:
			q := asking{e.Task, e.Data.Key, e.Data.BlockType, e.Data.Step}
			if was, ok := of[e.Data.Block]; ok && was != q {
				s.t.Errorf("block %s is about %+v, and about %+v", e.Data.Block, was, q)
			}
			if asked[q] == nil {
				asked[q] = map[string]bool{}
			}
			of[e.Data.Block], asked[q][e.Data.Block] = q, true
		case events.TaskResumed:
			if !slices.Contains(told[e.Data.Block], events.BlockApproved) {
				s.t.Errorf("%s goes on with block %s, which the journal does not say is approved: %v", e.Task, e.Data.Block, told[e.Data.Block])
			}
		}
	}
	for q, ids := range asked {
		open := 0
		for id := range ids {
			if !closed[id] {
				open++
			}
		}
		if open > 1 {
			s.t.Errorf("a person was asked %d times about %+v: %v", open, q, ids)
		}
	}
	s.suspendedOnce()
}

// journal reads which blocks are closed and what the journal tells of each, and demands that it has what was printed, once.
func (s *approvals) journal(ctx context.Context, r *repo.Repo) (closed map[string]bool, told map[string][]events.Type) {
	closed, told = map[string]bool{}, map[string][]events.Type{}
	said := map[string]int{}
	for e, err := range events.ReadJournal(ctx, r.Records, "w", 0) {
		if damaged := (*events.JournalError)(nil); errors.As(err, &damaged) || err != nil {
			s.t.Fatal(err)
		}
		if kind, ok := strings.CutPrefix(string(e.Type), "block."); ok {
			told[e.Data.Block] = append(told[e.Data.Block], e.Type)
			at, err := time.Parse(time.RFC3339Nano, e.Data.At)
			if err != nil {
				s.t.Error(err)
			}
			said[e.Data.Block+" "+kind+" "+at.UTC().Format("15:04:05.000")]++
			closed[e.Data.Block] = closed[e.Data.Block] || e.Type == events.BlockClosed
		}
	}
	for what, n := range said {
		if n > 1 {
			s.t.Errorf("the journal says %d times %s", n, what)
		}
	}
	for _, d := range s.decided {
		at, err := time.Parse(time.RFC3339Nano, d.At)
		if err != nil {
			s.t.Error(err)
		}
		status := map[string]string{string(approval.Pending): "withdrawn"}[d.Status]
		if status == "" {
			status = d.Status
		}
		if what := d.Block + " " + status + " " + at.UTC().Format("15:04:05.000"); said[what] != 1 {
			s.t.Errorf("it was printed that %s, and the journal says it %d times", what, said[what])
		}
	}
	return closed, told
}

// suspendedOnce demands that no step that has suspended itself was run again: of the executions of a step of a task on the same
// inputs, at most the last has ended so that it counts.
func (s *approvals) suspendedOnce() {
	states := map[string]record.State{}
	for _, e := range s.f.executions() {
		states[e.ExecutionID] = e.State
	}
	counts := map[string]int{}
	for _, mark := range s.f.ran() {
		words := strings.Fields(mark)
		if len(words) == 4 && (states[words[3]] == record.Failed || states[words[3]] == record.Success) {
			counts[strings.Join(words[:3], " ")]++
		}
	}
	for step, n := range counts {
		if n > 1 {
			s.t.Errorf("%s has run %d times to its end", step, n)
		}
	}
}

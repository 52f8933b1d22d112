package executions

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"e3/internal/format/record"
	"e3/internal/host/process"
	"e3/internal/host/runner"
)

// A Batch is one command for the items of several requests. Each request has its own key, claim, folder, output and
// record; they share the command and what it prints.
//
// The command starts when every request has joined, with its own inputs staged, or left. A request leaves because its
// answer was known, because it failed before, or because it has to wait for another process. A request that has
// joined waits for no other process, so two runs with the same items never wait for each other.
type Batch struct {
	turn    sync.Mutex // held while a command of one of the requests waits to be admitted or runs
	mu      sync.Mutex
	missing int // requests that have neither joined nor left
	joined  []*attempt
	groups  map[*attempt]*group // once formed is closed
	formed  chan struct{}
}

// NewBatch returns a batch of n requests, which name it as Request.Batch, each with a Place of its own.
func NewBatch(n int) *Batch {
	return &Batch{missing: n, groups: map[*attempt]*group{}, formed: make(chan struct{})}
}

// A Place is the place of a request in its batch. Its methods do nothing if it is nil.
type Place struct {
	Batch *Batch
	Index int // in the order of the items
	away  bool
}

// Leave says that the request does not join any more. It may be called several times, and after join.
func (p *Place) Leave() {
	if p == nil || p.away {
		return
	}
	p.away = true
	p.Batch.arrive(nil)
}

// join waits until the batch is complete, and returns the group of the attempt. An attempt whose request has left is
// alone.
func (p *Place) join(a *attempt) *group {
	if p == nil || p.away {
		return alone(a)
	}
	p.away = true
	p.Batch.arrive(a)
	<-p.Batch.formed
	return p.Batch.groups[a]
}

// arrive counts a request. After the last one it divides the joined attempts into groups.
func (b *Batch) arrive(a *attempt) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if a != nil {
		b.joined = append(b.joined, a)
	}
	if b.missing--; b.missing > 0 {
		return
	}
	slices.SortFunc(b.joined, func(a, c *attempt) int { return cmp.Compare(a.req.Place.Index, c.req.Place.Index) })
	same := map[string]*group{}
	for _, a := range b.joined {
		common := a.common()
		if same[common] == nil {
			same[common] = &group{done: make(chan struct{})}
		}
		same[common].members = append(same[common].members, a)
		b.groups[a] = same[common]
	}
	for _, g := range same {
		g.number()
	}
	close(b.formed)
}

// A group is the attempts that one command serves: mostly one, else attempts of a batch that differ only in what
// belongs to the item. The first of them runs the command.
type group struct {
	members []*attempt
	end     commandEnd
	done    chan struct{} // closed once end is known
}

// A commandEnd is how a command has ended.
type commandEnd struct {
	res   runner.Result // in a batch, divideTime gives each member its own
	err   error         // of the command
	fault error         // nothing ran
}

// alone is the group of an attempt that shares its command with no other.
func alone(a *attempt) *group { return &group{members: []*attempt{a}, done: make(chan struct{})} }

// number tells the members of a batch which items they are.
func (g *group) number() {
	if len(g.members) == 1 {
		return
	}
	batch := record.Batched{ID: g.members[0].id, Items: len(g.members)}
	for i, m := range g.members {
		m.item = item{batch: batch, number: i}
	}
}

// perform runs the command that serves an attempt, once the attempt's own inputs are staged: its own command, or its
// batch's command, for which it may have to wait.
func perform(ctx, lasting context.Context, a *attempt, env []string) commandEnd {
	if a.spec.Batch == nil {
		a.req.Place.Leave()
		return alone(a).run(ctx, lasting, env)
	}
	g := a.req.Place.join(a)
	if g.members[0] != a {
		<-g.done
		return g.end
	}
	defer close(g.done)
	if p := a.req.Place; p != nil {
		p.Batch.turn.Lock()
		defer p.Batch.turn.Unlock()
	}
	g.end = g.runItems(ctx, lasting)
	return g.end
}

// runItems runs the command of a batch in the sandbox of the first item, with the folders of all items.
func (g *group) runItems(ctx, lasting context.Context) (end commandEnd) {
	first, boxes := g.members[0], make([]*box, len(g.members))
	for i, m := range g.members {
		boxes[i] = m.box
	}
	defer func() {
		if err := first.box.giveBack(boxes); err != nil && end.fault == nil && end.err == nil {
			end.err = err
		}
	}()
	env, err := first.box.stageBatch(ctx, boxes)
	if err != nil {
		return commandEnd{fault: fmt.Errorf("stage inputs: %w", err)}
	}
	end = g.run(ctx, lasting, env)
	if n := len(g.members); n > 1 && end.fault == nil {
		g.divideTime(first.x.opts.Now().Truncate(time.Millisecond))
		end.res.UserCPU, end.res.SystemCPU = end.res.UserCPU/time.Duration(n), end.res.SystemCPU/time.Duration(n)
		if end.err == nil {
			end.err = g.copyLogs()
		}
	}
	return end
}

// run runs the command once it may start.
func (g *group) run(ctx, lasting context.Context, env []string) commandEnd {
	first := g.members[0]
	release := func(bool) {}
	if first.req.Admit != nil {
		var fault error
		if release, fault = first.req.Admit(ctx); fault != nil {
			return commandEnd{fault: fault}
		}
	}
	now := first.x.opts.Now().Truncate(time.Millisecond) // in the record's precision, so that durations agree everywhere
	c := command{assignment: first.assignment, box: first.box, begin: g.begin, announce: g.announce}
	for _, m := range g.members {
		m.startedAt = now
		c.items = append(c.items, m.assignment)
	}
	res, err := c.run(lasting, env)
	first.box.replaced = !first.box.work.InPlace()
	for _, m := range g.members[1:] {
		m.box.replaced, m.box.inhabited = first.box.replaced, first.box.inhabited
	}
	release(len(g.members) == 1 && (err != nil || !res.Success())) // a batch that fails is tried item by item
	runtime.Gosched()                                              // the next command starts before this one's end is recorded
	return commandEnd{res: res, err: err}
}

// begin notes that the executions begin, and then tells of it: from here on each gets a record, whichever process is
// killed.
func (g *group) begin() error {
	for _, m := range g.members {
		if err := m.noteBegin(); err != nil {
			return err
		}
	}
	for _, m := range g.members {
		m.tellStart()
	}
	return nil
}

func (g *group) announce(ctx context.Context, p process.ID) error {
	for _, m := range g.members {
		if err := m.announce(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// copyLogs copies the logs of the command to every item.
func (g *group) copyLogs() error {
	others := make([]*commandLogs, len(g.members)-1)
	for i, m := range g.members[1:] {
		others[i] = &m.logs
	}
	return g.members[0].logs.copyTo(others)
}

// divideTime divides the time of the command, which has ended now, into equal parts, one for each member in the order
// of the items. e3 does not see which item the command was at.
func (g *group) divideTime(end time.Time) {
	began, n := g.members[0].startedAt, time.Duration(len(g.members))
	took := end.Sub(began)
	for i, m := range g.members {
		number := time.Duration(i)
		m.startedAt = began.Add(took * number / n).Truncate(time.Millisecond)
		m.end.part = began.Add(took * (number + 1) / n).Truncate(time.Millisecond)
	}
}

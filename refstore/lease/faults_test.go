package lease_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"e3/internal/host/process"
	"e3/internal/testing/linear"
	"e3/internal/testing/testserver"
	"e3/refstore"
	"e3/refstore/dynamo"
	"e3/refstore/lease"
)

// noBlobs is for stores whose records are small.
type noBlobs struct{}

func (noBlobs) PutBlob(context.Context, string, []byte) error { return errors.ErrUnsupported }

func (noBlobs) OpenBlob(context.Context, string, int64) (io.ReadCloser, error) {
	return nil, refstore.ErrNotFound
}

func (noBlobs) DeleteBlob(context.Context, string) error { return nil }

func (noBlobs) ListBlobs(context.Context, string) iter.Seq2[dynamo.Blob, error] {
	return func(func(dynamo.Blob, error) bool) {}
}

// faultyTTL is short: schedules take real time.
const faultyTTL = 300 * time.Millisecond

// faults is a schedule of several processes that share a table over unreliable connections.
type faults struct {
	t       *testing.T
	h       *linear.History
	table   string
	server  string
	direct  *dynamo.Store
	mu      sync.Mutex
	written map[string]written // by the text of each write
	// sessions are the sessions of holds, by the holds' texts, as far as records were seen.
	sessions map[string]string
}

var claimed = [32]byte{1}

// written is the known outcome of a write.
type written string

const (
	surely  written = "it was done"
	perhaps written = "nothing"
	never   written = "it conflicted"
)

func (f *faults) open(endpoint string, attempt time.Duration) *dynamo.Store {
	s, err := dynamo.Open(dynamo.Options{
		Config: testserver.Config(), Endpoint: endpoint, Table: f.table, Repository: "repository", Blobs: noBlobs{},
		Attempt: attempt, Patience: 4 * attempt, Backoff: time.Millisecond,
	})
	if err != nil {
		f.t.Error(err)
	}
	return s
}

// client is a place where one process runs after another.
type client struct {
	*faults
	id     int
	random *rand.Rand
	proxy  *testserver.Proxy
	rules  []testserver.Rule // of the proxy
	store  *dynamo.Store
	life   int
	leases *lease.Leases
	last   error // of the last attempt to take a hold
}

func newClient(f *faults, id int, random *rand.Rand) *client {
	c := &client{faults: f, id: id, random: rand.New(rand.NewPCG(random.Uint64(), 0))}
	c.connect()
	return c
}

// connect gives the client a connection of its own, with random faults.
func (c *client) connect() {
	c.proxy = testserver.NewProxy(c.t, c.server)
	rules := testserver.Weather(c.random, c.random.Float64()*0.4, 30*time.Millisecond)
	for _, op := range []string{"UpdateItem", "DeleteItem"} {
		rules = append(rules, testserver.Rule{Op: op, Fault: testserver.Hang, Probability: c.random.Float64() * 0.02})
	}
	c.rules = rules
	c.proxy.Faults(c.random.Uint64(), c.rules...)
	c.store = c.open(c.proxy.URL(), 60*time.Millisecond)
}

func (c *client) in(n int) bool { return c.random.IntN(n) == 0 }

func (c *client) upTo(d time.Duration) time.Duration { return time.Duration(c.random.Int64N(int64(d))) }

func rest(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// process is this process's name, the prefix of its holds' texts.
func (c *client) process() string { return fmt.Sprintf("p%d.%d.", c.id, c.life) }

// newLeases returns leases of a process that others can only observe through its renewals.
func newLeases(store refstore.Store, words string, ttl time.Duration) *lease.Leases {
	return lease.New(store, lease.Options{
		TTL: ttl, Owner: lease.Owner{Process: process.ID{Host: "host", PID: 1}, Words: words},
		Alive: func(process.ID) (alive, known bool) { return false, false },
	})
}

// work takes locks and claims, and writes the records that they guard, until stop.
func (c *client) work(ctx context.Context, stop <-chan struct{}) {
	for n := 0; ; n++ {
		select {
		case <-stop:
			c.end()
			return
		default:
		}
		if c.leases != nil && (c.in(12) || c.leases.Held() != nil) {
			c.end()
		}
		if c.leases == nil && !c.begin(ctx) {
			continue
		}
		if c.in(4) {
			c.proxy.Release()
		}
		name := []string{"lock", "claim"}[c.random.IntN(2)]
		hold := fmt.Sprintf("<%s%d>", c.process(), n)
		lock := c.take(ctx, name, hold)
		if lock == nil {
			rest(ctx, c.upTo(faultyTTL/10))
			continue
		}
		if c.use(ctx, name, hold, lock) {
			c.h.Do(c.id, release{name, hold}, func() (any, bool) {
				if err := lock.Unlock(); err != nil {
					c.t.Error(err)
				}
				return nil, true // if the store does not answer, it comes later
			})
		} else {
			c.kill()
		}
	}
}

// begin begins a session. Its record must not arrive late: after the session has ended, it would seem to live for
// another lease. The creation of any other record may arrive late.
func (c *client) begin(ctx context.Context) bool {
	c.life++
	c.proxy.Faults(c.random.Uint64(), c.rules...)
	c.leases = newLeases(c.store, c.process(), faultyTTL)
	if _, err := c.leases.SessionBegan(ctx); err != nil {
		c.end()
		return false
	}
	late := testserver.Rule{Op: "PutItem", Fault: testserver.Hang, Probability: c.random.Float64() * 0.1}
	c.proxy.Faults(c.random.Uint64(), append([]testserver.Rule{late}, c.rules...)...)
	return true
}

// end closes the session, as far as the connection allows.
func (c *client) end() {
	if c.leases != nil {
		_ = c.leases.Close()
	}
	c.leases = nil
}

// kill ends a process without closing its session: none of its later requests arrive.
func (c *client) kill() {
	c.proxy.Cut()
	c.end()
	c.connect()
}

// Operations on a lock or claim. The text of each hold is unique.
type (
	acquire struct{ Name, Hold string }
	release struct{ Name, Hold string }
	// arrive is a late attempt to take a hold, which may take effect after another. Its output is how many there are.
	arrive struct{ Name, Hold string }
)

// taken is the result of taking a lock or claim; Previous are the holders that it was taken over from.
type taken struct{ Previous string }

type answer string

const (
	refused answer = "refused"
	unknown answer = "unknown"
)

func (c *client) take(ctx context.Context, name, hold string) (lock refstore.Lock) {
	c.learn(ctx, name)
	if c.proxy == nil {
		lock = c.tryTake(ctx, name, hold)
	} else {
		c.h.Do(c.id, arrive{name, hold}, func() (any, bool) {
			before := c.proxy.Struck()[testserver.Hang]
			lock = c.tryTake(ctx, name, hold)
			return c.proxy.Struck()[testserver.Hang] - before, true
		})
	}
	if lock == nil {
		return nil
	}
	c.learn(ctx, name)
	c.mustBeDead(ctx, texts.FindAllString(string(lock.Previous()), -1), hold)
	return lock
}

func (c *client) tryTake(ctx context.Context, name, hold string) (lock refstore.Lock) {
	c.h.Do(c.id, acquire{name, hold}, func() (any, bool) {
		ctx, cancel := context.WithTimeout(ctx, 2*faultyTTL)
		defer cancel()
		var err error
		if name == "lock" {
			lock, err = c.leases.TryLock(ctx, name, refstore.Exclusive, []byte(hold))
		} else {
			lock, err = c.leases.TryClaim(ctx, claimed, []byte(hold))
		}
		c.last = err
		var locked *refstore.LockedError
		switch {
		case err == nil:
			return taken{string(lock.Previous())}, false
		case errors.Is(err, refstore.ErrInDoubt):
			return unknown, true
		case errors.Is(err, refstore.ErrClaimed) || errors.As(err, &locked):
			return refused, false
		}
		return unknown, true
	})
	return lock
}

// arrivals adds each late attempt to the operations, once.
func arrivals(ops []porcupine.Operation) (all []porcupine.Operation) {
	for _, op := range ops {
		n := 1
		if _, is := op.Input.(arrive); is {
			n = op.Output.(int)
		}
		for range n {
			all = append(all, op)
		}
	}
	return all
}

var texts = regexp.MustCompile(`<p\d+\.\d+\.\d+>`)

// learn records the sessions of the holds in the record of a lock or claim.
func (f *faults) learn(ctx context.Context, name string) {
	key := refstore.Key{Partition: "LEASE/locks", Sort: name}
	if name == "claim" {
		key = refstore.Key{Partition: "LEASE/claims/01", Sort: fmt.Sprintf("%x", claimed)}
	}
	r, err := f.direct.Get(ctx, key)
	if err != nil {
		return // it is free, or time is up
	}
	type hold struct {
		Session string
		Text    []byte
	}
	var rec struct {
		hold
		Holders []hold
	}
	if err := json.Unmarshal(r.Value, &rec); err != nil {
		f.t.Errorf("%s: %v", key, err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, h := range append(rec.Holders, rec.hold) {
		f.sessions[string(h.Text)] = h.Session
	}
}

// mustBeDead checks in the store's records that at least one of the previous holders that a taker was told of is dead.
// A process that took over and gave up leaves its own hold beside the dead one's, and is alive; but not all of them may
// be alive.
func (c *client) mustBeDead(ctx context.Context, holds []string, taker string) {
	alive := ""
	for _, hold := range holds {
		c.mu.Lock()
		session, known := c.sessions[hold]
		c.mu.Unlock()
		if !known || strings.HasPrefix(hold, "<"+c.process()) {
			return
		}
		r, err := c.direct.Get(ctx, refstore.Key{Partition: "LEASE/sessions", Sort: session})
		if err != nil {
			return // it is gone, or time is up
		}
		var rec struct{ State string }
		if err := json.Unmarshal(r.Value, &rec); err != nil {
			c.t.Errorf("session of %s: %s: %v", hold, r.Value, err)
			return
		}
		if rec.State != "alive" {
			return
		}
		alive += fmt.Sprintf(" %s (%s)", hold, r.Value)
	}
	if alive != "" {
		c.t.Errorf("%s took over from live sessions:%s", taker, alive)
	}
}

func guarded(name string) refstore.Key { return refstore.Key{Partition: "GUARDED", Sort: name} }

// use writes the guarded record a few times, with pauses, and returns whether no write is still in transit, so that the
// lock can be released. A new holder writes first, so that a late write of its predecessor fails.
func (c *client) use(ctx context.Context, name, hold string, lock refstore.Lock) (settled bool) {
	writes := c.random.IntN(3)
	if lock.Previous() != nil {
		writes++
	}
	for n := 0; n < writes; n++ {
		r, err := c.read(ctx, name)
		if err != nil || c.leases.Held() != nil { // in this order, so that the text that was read is not a successor's
			return false
		}
		if n > 0 {
			c.stop(ctx)
		}
		text := fmt.Sprintf("%s%d;", hold, n)
		r.Value = append(bytes.Clone(r.Value), text...)
		_, err = c.store.Put(ctx, r)
		switch {
		case err == nil:
			c.note(text, surely)
		case errors.Is(err, refstore.ErrConflict):
			c.note(text, never)
			if c.leases.Confirm(ctx) != nil {
				return false
			}
			if n > 0 || lock.Previous() == nil {
				c.t.Errorf("%s: %s conflicts, and its session is valid", name, text)
			}
			writes++ // a predecessor's late write arrived first
		default:
			c.note(text, perhaps)
			return false
		}
	}
	if c.in(3) {
		c.stop(ctx)
	}
	return true
}

func (c *client) read(ctx context.Context, name string) (refstore.Record, error) {
	r, err := c.store.Get(ctx, guarded(name))
	if errors.Is(err, refstore.ErrNotFound) {
		return refstore.Record{Key: guarded(name)}, nil
	}
	return r, err
}

func (c *client) note(text string, w written) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.written[text] = w
}

// stop lets time pass, sometimes so much without a successful renewal that the lease runs out.
func (c *client) stop(ctx context.Context) {
	if !c.in(3) {
		rest(ctx, c.upTo(faultyTTL/10))
		return
	}
	if c.in(2) {
		c.proxy.Cut()
	} else {
		c.proxy.Refuse()
	}
	rest(ctx, c.upTo(2*faultyTTL))
	c.proxy.Restore()
	c.proxy.Release()
}

// holds is the state of a lock or claim: its holder, if any, and all holders since the last release by a process that
// had handled its predecessors.
type holds struct{ holder, all string }

// exclusive is the model of a lock or claim. The effect of an unknown answer is open, and so is the time of a release.
var exclusive = porcupine.NondeterministicModel{
	Init: func() []any { return []any{holds{}} },
	Step: func(state, input, output any) []any {
		s := state.(holds)
		switch in := input.(type) {
		case arrive: // an attempt that is not observed and was released again need not be reported
			if s == (holds{}) {
				return []any{s, holds{in.Hold, in.Hold}}
			}
			return []any{s}
		case release:
			if s.holder != in.Hold {
				return []any{s}
			}
			if s.all == in.Hold {
				return []any{holds{}}
			}
			return []any{holds{}, holds{all: strings.TrimSuffix(s.all, in.Hold)}}
		case acquire:
			own := s.holder != "" && s.holder[:strings.LastIndexByte(s.holder, '.')] == in.Hold[:strings.LastIndexByte(in.Hold, '.')]
			fresh, takenOver := holds{in.Hold, in.Hold}, holds{in.Hold, s.all + in.Hold}
			switch out := output.(type) {
			case taken:
				switch {
				case out.Previous == "" && (s.all == "" || own && s.all == s.holder):
					return []any{fresh}
				case out.Previous != "" && (s.holder == "" || own || strings.Contains(out.Previous, s.holder)) && s.all != "":
					return []any{takenOver}
				}
			case answer:
				switch {
				case out == refused && s.holder != "":
					return []any{s}
				case out == unknown && s.all == "":
					return []any{s, fresh}
				case out == unknown && own && s.all == s.holder:
					return []any{s, fresh, takenOver}
				case out == unknown:
					return []any{s, takenOver}
				}
			}
		}
		return nil
	},
}

func TestHoldsUnderFaults(t *testing.T) {
	server := testserver.Minidyn(t)
	model := exclusive.ToModel()
	linear.Schedules(t, 1, time.Minute, func(t *testing.T, ctx context.Context, random *rand.Rand, h *linear.History) {
		f := &faults{t: t, h: h, table: testserver.Name(), server: server, written: map[string]written{}, sessions: map[string]string{}}
		if _, err := dynamo.CreateTable(ctx, dynamo.Options{Config: testserver.Config(), Endpoint: server, Table: f.table}); err != nil {
			t.Error(err)
			return
		}
		f.direct = f.open(server, 10*time.Second)
		stop := make(chan struct{})
		var all sync.WaitGroup
		for id := range 4 {
			c := newClient(f, id, random)
			all.Go(func() { c.work(ctx, stop) })
		}
		rest(ctx, time.Second+time.Duration(random.Int64N(int64(time.Second))))
		close(stop)
		all.Wait()
		f.takeAll(ctx)
		f.checkWrites(ctx)
		if t.Failed() {
			return
		}
		linear.Check(t, arrivals(h.Operations()), model, func(input any) string {
			switch in := input.(type) {
			case acquire:
				return in.Name
			case arrive:
				return in.Name
			}
			return input.(release).Name
		})
	})
}

// takeAll takes everything as a process with a reliable connection, after all others have gone.
func (f *faults) takeAll(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 40*time.Second)
	defer cancel()
	c := &client{faults: f, id: 9, life: 1, store: f.direct, leases: newLeases(f.direct, "p9.1.", faultyTTL)}
	defer c.end()
	for n, name := range []string{"lock", "claim"} {
		for try := 0; ; try++ {
			if c.leases.Held() != nil { // this machine is too slow for such leases
				c.end()
				c.leases = newLeases(c.store, fmt.Sprintf("p9.%d.", c.life+1), faultyTTL<<min(c.life, 5))
				c.life++
			}
			if lock := c.take(ctx, name, fmt.Sprintf("<%s%d%03d>", c.process(), n, try)); lock != nil {
				break
			}
			if rest(ctx, faultyTTL/10); ctx.Err() != nil {
				f.t.Errorf("%s cannot be had, though all have gone: %v; the store holds:\n%s", name, c.last, f.leases())
				return
			}
		}
	}
}

// leases returns the records of locks, claims and sessions.
func (f *faults) leases() string {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	var text strings.Builder
	for _, partition := range []string{"LEASE/locks", "LEASE/claims/01", "LEASE/sessions"} {
		for r, err := range f.direct.List(ctx, refstore.Query{Partition: partition}) {
			fmt.Fprintln(&text, r.Key, string(r.Value), err)
		}
	}
	return text.String()
}

// checkWrites checks that no write was lost or repeated, and that no write of a holder follows one of its successor.
func (f *faults) checkWrites(ctx context.Context) {
	count := map[string]int{}
	for _, name := range []string{"lock", "claim"} {
		r, err := f.direct.Get(ctx, guarded(name))
		if err != nil && !errors.Is(err, refstore.ErrNotFound) {
			f.t.Errorf("%s: %v", name, err)
			return
		}
		replaced, last := map[string]bool{}, ""
		for text := range strings.SplitAfterSeq(string(r.Value), ";") {
			hold, _, is := strings.Cut(text, ">")
			if !is {
				continue // the writes after the last one
			}
			if hold != last && replaced[hold] {
				f.t.Errorf("%s: %s was written after others had taken over: %s", name, text, r.Value)
			}
			replaced[last], last = true, hold
			count[text]++
		}
	}
	for text, w := range f.written {
		switch n := count[text]; {
		case n > 1, n == 0 && w == surely, n > 0 && w == never:
			f.t.Errorf("write %s is there %d times, of which is known: %s", text, n, w)
		}
	}
}

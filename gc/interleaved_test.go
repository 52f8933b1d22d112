package gc_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"e3/gc"
	"e3/internal/events"
	"e3/internal/format/record"
	"e3/internal/jobs/queue"
	"e3/objectstore"
	"e3/refstore"
	"e3/workspace"
)

// A turn lets only one of two sides run at a time. Each store call of a side is a step; before the steps with given
// numbers the turn passes to the other side.
type turn struct {
	mu   sync.Mutex
	idle *sync.Cond
	now  int     // the side whose turn it is
	over [2]bool // the side has ended
}

func newTurn() *turn {
	t := &turn{}
	t.idle = sync.NewCond(&t.mu)
	return t
}

// pass gives the turn to the other side and waits until it comes back.
func (t *turn) pass(side int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.over[1-side] {
		t.now = 1 - side
		t.idle.Broadcast()
	}
	for t.now != side {
		t.idle.Wait()
	}
}

// end gives the turn to the other side for good.
func (t *turn) end(side int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over[side] = true
	t.now = 1 - side
	t.idle.Broadcast()
}

// errKilled is the error of every call after a side was killed.
var errKilled = errors.New("killed")

// A side counts the steps of a process, or of several one after the other.
type side struct {
	*turn
	number   int
	switches map[int]bool // before these steps the turn passes
	kill     int          // from this step on no call has an effect; 0: never

	mu    sync.Mutex // held during pass, so that concurrent calls of the side wait
	steps int
}

// step is called before each call of a store.
func (s *side) step() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.steps++
	if s.switches[s.steps] {
		s.pass(s.number)
	}
	if s.kill > 0 && s.steps >= s.kill {
		return errKilled
	}
	return nil
}

// stepped is a record store whose calls are steps of a side.
type stepped struct {
	gc.Records
	workspace.Local
	*side
}

func (s *stepped) Get(ctx context.Context, key refstore.Key, fields ...string) (refstore.Record, error) {
	if err := s.step(); err != nil {
		return refstore.Record{}, err
	}
	return s.Records.Get(ctx, key, fields...)
}

func (s *stepped) Put(ctx context.Context, r refstore.Record) (refstore.Version, error) {
	if err := s.step(); err != nil {
		return "", err
	}
	return s.Records.Put(ctx, r)
}

func (s *stepped) PutSync(ctx context.Context, r refstore.Record) (refstore.Version, error) {
	if err := s.step(); err != nil {
		return "", err
	}
	return s.Local.PutSync(ctx, r)
}

func (s *stepped) Sync(context.Context) error { return nil }

func (s *stepped) Delete(ctx context.Context, key refstore.Key, v refstore.Version) error {
	if err := s.step(); err != nil {
		return err
	}
	return s.Records.Delete(ctx, key, v)
}

// List has a step before the list and before each of its records is used: a listed record may be gone then.
func (s *stepped) List(ctx context.Context, q refstore.Query) iter.Seq2[refstore.Record, error] {
	return func(yield func(refstore.Record, error) bool) {
		if err := s.step(); err != nil {
			yield(refstore.Record{}, err)
			return
		}
		for rec, err := range s.Records.List(ctx, q) {
			if stop := s.step(); stop != nil {
				yield(refstore.Record{}, stop)
				return
			}
			if !yield(rec, err) {
				return
			}
		}
	}
}

func (s *stepped) ListStreams(ctx context.Context, q refstore.Query) iter.Seq2[refstore.Key, error] {
	return func(yield func(refstore.Key, error) bool) {
		if err := s.step(); err != nil {
			yield(refstore.Key{}, err)
			return
		}
		for key, err := range s.Records.ListStreams(ctx, q) {
			if stop := s.step(); stop != nil {
				yield(refstore.Key{}, stop)
				return
			}
			if !yield(key, err) {
				return
			}
		}
	}
}

func (s *stepped) Append(ctx context.Context, key refstore.Key, offset int64, data []byte) error {
	if err := s.step(); err != nil {
		return err
	}
	return s.Records.Append(ctx, key, offset, data)
}

func (s *stepped) SessionBegan(ctx context.Context) (time.Time, error) {
	if err := s.step(); err != nil {
		return time.Time{}, err
	}
	return s.Records.SessionBegan(ctx)
}

func (s *stepped) LiveSessions(ctx context.Context) ([]refstore.SessionInfo, error) {
	if err := s.step(); err != nil {
		return nil, err
	}
	return s.Records.LiveSessions(ctx)
}

func (s *stepped) Protect(ctx context.Context, names []string) (func(), error) {
	if err := s.step(); err != nil {
		return nil, err
	}
	release, err := s.Records.Protect(ctx, names)
	return func() { _ = s.step(); release() }, err
}

// steppedObjects is an object store whose writing calls are steps of a side.
type steppedObjects struct {
	workspace.Objects
	*side
}

func (s *steppedObjects) PutBytes(ctx context.Context, b []byte) (objectstore.Hash, error) {
	if err := s.step(); err != nil {
		return objectstore.Hash{}, err
	}
	return objectstore.PutBytes(ctx, s.Objects, b)
}

func (s *steppedObjects) Refresh(ctx context.Context, h objectstore.Hash) (bool, error) {
	if err := s.step(); err != nil {
		return false, err
	}
	return s.Objects.Refresh(ctx, h)
}

// sweptObjects is an object store where the first sweep is a step.
type sweptObjects struct {
	gc.Objects
	first sync.Once
	*side
}

func (s *sweptObjects) SweepShard(ctx context.Context, first byte, cutoff time.Time, keep func(objectstore.Hash) bool, removed func(objectstore.Entry)) error {
	s.first.Do(func() { _ = s.step() })
	return s.Objects.SweepShard(ctx, first, cutoff, keep, removed)
}

// guest is a visitor whose steps are counted. leave ends its process.
func (h *house) guest(s *side) (g *house, leave func()) {
	h.Helper()
	g = h.visitor()
	records := &stepped{Records: g.Records, Local: g.Records, side: s}
	leave = func() { h.must(g.Close()) }
	g.Repo.Workspaces = workspace.New(workspace.Stores{
		Records: records, Locks: g.Records, Objects: &steppedObjects{Objects: g.Objects, side: s}, Local: records,
		Sessions: records, Now: time.Now, Holder: g.Workspaces.Holder, Sweep: g.Workspaces.Sweep,
	})
	return g, leave
}

// An act is the work of a process; its error may be errKilled.
type act struct {
	name string
	do   func(g *house) error
}

var acts = []act{
	{"start", func(g *house) error { return g.tryStart("w") }},
	{"set", func(g *house) error { return g.trySet("w", "set") }},
	{"set another", func(g *house) error { return g.trySet("w", "other") }},
	{"unset", func(g *house) error {
		_, err := g.Workspaces.Datasets.Unset(g.Context(), "w", "n")
		return err
	}},
	{"clean events", func(g *house) error {
		_, err := g.Workspaces.Cleaner.CleanEvents(g.Context(), "w", time.Now().Add(time.Hour), false)
		return err
	}},
}

func (h *house) trySet(ws, value string) error {
	leaf, err := h.Workspaces.Datasets.PutValue(h.Context(), []any{value})
	if err == nil {
		err = h.Workspaces.Datasets.Set(h.Context(), ws, "n", leaf)
	}
	return err
}

func (h *house) tryStart(ws string) error {
	_, err := h.Workspaces.Runner.Start(h.Context(), ws, h.options())
	return err
}

// promised fails if a node is missing that a record or an event of a run names.
func (h *house) promised() {
	h.Helper()
	var nodes func(who, hash string)
	nodes = func(who, hash string) {
		if hash == "" {
			return
		}
		parsed, err := objectstore.ParseHash(hash)
		h.must(err)
		if !h.has(parsed) {
			h.Fatal(fmt.Sprintf("%s: node %s is gone", who, hash))
		}
		for _, e := range h.readNode(hash) {
			if e.Kind == record.LeafNode {
				nodes(who+"/"+e.Name, e.Hash)
			}
		}
	}
	for ws, err := range h.Records.List(h.Context(), refstore.Query{Partition: "RUNS", KeysOnly: true}) {
		h.must(err)
		for rec, err := range h.Records.List(h.Context(), refstore.Query{Partition: "DATAFLOW/" + ws.Key.Sort}) {
			h.must(err)
			run, err := record.DecodeRun(rec.Value)
			h.must(err)
			nodes("run "+run.RunID+": inputs", run.InputSnapshot)
			nodes("run "+run.RunID+": outputs", run.OutputSnapshot)
		}
		for key, err := range h.Records.ListStreams(h.Context(), refstore.Query{Partition: "EVENTS/" + ws.Key.Sort}) {
			h.must(err)
			for e, err := range events.Read(h.Context(), h.Records, ws.Key.Sort, key.Sort) {
				h.must(err)
				if e.Data != nil {
					nodes("event of run "+key.Sort+": inputs", e.Data.Inputs)
					nodes("event of run "+key.Sort+": outputs", e.Data.Outputs)
				}
			}
		}
	}
}

// interleave executes a script by processes beside a collection, and returns the number of steps of each side.
func interleave(h *house, collector, others *side, script []int, together bool) {
	h.Helper()
	t := newTurn()
	collector.turn, others.turn, others.number = t, t, 1
	keeper, err := h.visitor(), error(nil)
	done := make(chan struct{})
	go func() {
		defer close(done)
		t.mu.Lock()
		for t.now != 1 {
			t.idle.Wait()
		}
		t.mu.Unlock()
		defer t.end(1)
		var g *house
		leave := func() {}
		for _, k := range script {
			if g == nil || !together {
				leave()
				g, leave = h.guest(others)
			}
			if e := acts[k].do(g); e != nil {
				if !errors.Is(e, errKilled) {
					err = fmt.Errorf("%s: %w", acts[k].name, e)
				}
				break
			}
		}
		leave()
	}()
	records := &stepped{Records: keeper.Records, Local: keeper.Records, side: collector}
	_, collectErr := gc.Collect(h.Context(), gc.Stores{
		Records:    records,
		Objects:    &sweptObjects{Objects: keeper.Objects, side: collector},
		Executions: keeper.Executions, Jobs: queue.New(queue.Store{Store: records}, nil, queue.Options{Now: time.Now}), Now: time.Now, Holder: keeper.Workspaces.Holder, By: "me@here",
	}, gc.Options{})
	t.end(0)
	<-done
	h.must(keeper.Close())
	h.must(collectErr)
	h.must(err)
}

// furnished makes a repository in which ended processes have run a workspace and changed it since.
func furnished(t tester, dir string) *house {
	h := newHouse(t, dir)
	h.project("x")
	h.deploy("w", inputs, "tasks:", "  one: {in: [n], out: o, run: make o one}")
	h.start("w")
	h.must(h.trySet("w", "since"))
	h.again()
	return h
}

// A run ends during a collection, and then its workspace is changed. The nodes that the run's record and events name
// must stay, although the collection may have read the runs before the end and the workspace after the change. This is
// tried at each step of the collection.
func TestCollectKeepsWhatARunTakesOver(t *testing.T) {
	for _, script := range [][]int{{0, 1}, {1, 0, 2}} {
		for at := 1; ; at++ {
			h := furnished(t, t.TempDir())
			collector, others := &side{switches: map[int]bool{at: true}}, &side{}
			interleave(h, collector, others, script, false)
			h.promised()
			h.check()
			h.must(h.Close())
			if t.Failed() {
				t.Fatalf("script %v before step %d of the collection", script, at)
			}
			if collector.steps < at {
				break
			}
		}
	}
}

// interleavings is the number of cases of TestCollectInterleaved; E3_GC_INTERLEAVINGS overrides it.
func interleavings(t *testing.T) int {
	n := 40
	if s := os.Getenv("E3_GC_INTERLEAVINGS"); s != "" {
		var err error
		if n, err = strconv.Atoi(s); err != nil {
			t.Fatal(err)
		}
	}
	return n
}

// Processes that start, set, unset and clean up, and may be killed at any call, alternate with a collection at random
// store calls. Afterwards every object exists that a workspace, a run's record or an event names.
func TestCollectInterleaved(t *testing.T) {
	left := interleavings(t)
	dir := t.TempDir()
	rapid.Check(t, func(rt *rapid.T) {
		if left--; left < 0 {
			return
		}
		dir, err := os.MkdirTemp(dir, "house")
		if err != nil {
			rt.Fatal(err)
		}
		defer os.RemoveAll(dir)
		h := furnished(rt, dir)
		defer func() { h.Close() }()
		some := func(label string, most int) map[int]bool {
			at := map[int]bool{}
			for _, n := range rapid.SliceOfN(rapid.IntRange(1, most), 1, 4).Draw(rt, label) {
				at[n] = true
			}
			return at
		}
		script := rapid.SliceOfN(rapid.IntRange(0, len(acts)-1), 1, 4).Draw(rt, "script")
		collector := &side{switches: some("collector's switches", 60)}
		others := &side{switches: some("others' switches", 120)}
		if rapid.Bool().Draw(rt, "kill") {
			others.kill = rapid.IntRange(1, 120).Draw(rt, "killed at")
		}
		interleave(h, collector, others, script, rapid.Bool().Draw(rt, "one process"))
		h.promised()
		h.check()
	})
}

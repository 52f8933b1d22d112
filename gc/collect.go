package gc

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"e3/executions"
	"e3/internal/format/moment"
	"e3/internal/format/record"
	"e3/internal/reach"
	"e3/objectstore"
	"e3/refstore"
	"e3/workspace"
)

// Records are the repository's records, with its sessions and locks.
type Records interface {
	executions.Records
	refstore.Sessions
	refstore.Locker
	// Sweep removes the sessions of dead processes and returns their number.
	Sweep(ctx context.Context) (int, error)
	// RemoveLeftovers removes folders of executions that hold no record and are older than before.
	RemoveLeftovers(ctx context.Context, before time.Time) (int, error)
}

// Objects are the repository's objects. Walks and sweeps of several shards run concurrently.
type Objects interface {
	objectstore.Store
	// Stat returns the size of an object in bytes, or objectstore.ErrNotFound.
	Stat(ctx context.Context, h objectstore.Hash) (int64, error)
	WalkShard(ctx context.Context, first byte) iter.Seq2[objectstore.Entry, error]
	SweepShard(ctx context.Context, first byte, cutoff time.Time, keep func(objectstore.Hash) bool, removed func(objectstore.Entry)) error
}

// far is a remote object store, where each call is a request.
type far interface {
	// Grace is the margin by which an object must be older than a cut-off for SweepShard to remove it. While
	// SweepShard calls keep for an object, Stat of that object costs nothing.
	Grace() time.Duration
}

// Stores are the stores of the collected repository.
type Stores struct {
	Records    Records
	Objects    Objects
	Executions reach.Executions
	Jobs       reach.Jobs
	Now        func() time.Time
	Holder     func() string // describes this process, as LockState.Holder
	By         string        // user@host, in the form of tombstones; "" if unknown
}

// Options adjust a collection.
type Options struct {
	DryRun bool // report only; nothing is written
	// Progress, if not nil, is called from time to time, never concurrently.
	Progress func(Progress)
}

// Progress is the progress of a collection.
type Progress struct {
	Phase  Phase
	Shards int // swept shards, of objectstore.Shards
}

// Phase is a part of a collection.
type Phase int

// The phases of a collection.
const (
	Waiting  Phase = iota // other processes announce what they rely on, in a repository that several machines share
	Marking               // the needed objects are marked
	Sweeping              // the rest is removed
)

func (p Phase) String() string {
	switch p {
	case Waiting:
		return "waiting for others"
	case Marking:
		return "marking"
	}
	return "sweeping"
}

// lockName is the collector's lock.
const lockName = "gc"

// Collect removes the objects that nothing reaches, while other processes may work in the repository. It can be
// interrupted at any point, and repeated. Only one runs at a time: a second one gets a BusyError. If a required
// reference cannot be followed, so that the objects behind it are unknown, it returns an UnsafeError before anything
// is removed.
func Collect(ctx context.Context, s Stores, o Options) (*Report, error) {
	report, err := collect(ctx, s, o)
	// A dry run takes no lock: another collection may have removed an object together with the record that named it.
	for again := 1; o.DryRun && again < dryTries && odd(report, err); again++ {
		report, err = collect(ctx, s, o)
	}
	return report, err
}

// dryTries is the number of dry runs after which a missing object is reported.
const dryTries = 3

// odd reports whether a collection has found a missing object.
func odd(r *Report, err error) bool {
	var unsafe *UnsafeError
	return errors.As(err, &unsafe) || err == nil && (r.Missing > 0 || len(r.Warnings) > 0)
}

func collect(ctx context.Context, s Stores, o Options) (*Report, error) {
	c := &collection{Stores: s, Options: o, report: &Report{DryRun: o.DryRun, Warnings: []string{}}, workers: reach.Workers(s.Objects)}
	if c.far, _ = s.Objects.(far); c.far != nil {
		c.report.Grace = c.far.Grace()
	}
	if !o.DryRun {
		unlock, err := c.lock(ctx)
		if err != nil {
			return nil, err
		}
		defer unlock()
		if c.report.DeadSessions, err = s.Records.Sweep(ctx); err != nil {
			return nil, fmt.Errorf("clean up after dead processes: %w", err)
		}
		if b, ok := s.Records.(refstore.Barrier); ok {
			c.progress(Progress{Phase: Waiting})
			end, err := b.Quiesce(ctx)
			var locked *refstore.LockedError
			if errors.As(err, &locked) { // a verify holds its barrier
				return nil, &BusyError{Holder: string(locked.Holder)}
			}
			var unsettled *refstore.UnsettledError
			if errors.As(err, &unsettled) {
				return nil, fmt.Errorf("nothing was removed: %w", unsettled)
			}
			if err != nil {
				return nil, fmt.Errorf("ask all running processes which objects they use: %w", err)
			}
			defer end()
		}
	}
	if err := c.mark(ctx); err != nil {
		return nil, err
	}
	if err := c.sweep(ctx); err != nil {
		return c.report, err
	}
	if !o.DryRun {
		var err error
		if c.report.Leftovers, err = s.Records.RemoveLeftovers(ctx, c.cutoff); err != nil {
			return c.report, fmt.Errorf("remove leftovers: %w", err)
		}
	}
	return c.report, c.missing(ctx)
}

type collection struct {
	Stores
	Options
	report  *Report
	far     far // the objects, if they are remote; else nil
	workers int // shards that are swept at a time

	cutoff time.Time     // an object is spared unless it is older by the grace; zero, only in a dry run: none is
	oldest time.Time     // begin of the oldest other session, which may use executions pruned since; or now
	behind time.Duration // bound on the lag of this machine's clock behind the file system's
	shared bool          // one clock dates sessions and tombstones on all machines
	marked *reach.Set
	gone   int // objects that were missing when they were read

	present int64 // number of marked files that exist
}

func (c *collection) lock(ctx context.Context) (unlock func(), err error) {
	state := record.LockState{Operation: record.Removal, Holder: c.Holder(), AcquiredAt: c.Now()}
	lock, err := c.Records.TryLock(ctx, lockName, refstore.Exclusive, state.Encode())
	var locked *refstore.LockedError
	if errors.As(err, &locked) {
		busy := &BusyError{}
		if s, err := record.DecodeLockState(locked.Holder); err == nil {
			busy.Holder, busy.Since = workspace.HolderWords(s.Holder), s.AcquiredAt
		}
		return nil, busy
	}
	if err != nil {
		return nil, err
	}
	return func() { lock.Unlock() }, nil
}

func (c *collection) progress(p Progress) {
	if c.Progress != nil {
		c.Progress(p)
	}
}

// mark finds the needed objects. Its order makes it safe beside other processes. It reads (1) when their sessions
// began; (2) the references; (3) tombstones since (1), whose executions a session may have found before; (4) the
// names that sessions protect; (5) the records that they wrote before they ended a protection.
func (c *collection) mark(ctx context.Context) error {
	c.progress(Progress{Phase: Marking})
	if err := c.began(ctx); err != nil {
		return err
	}
	stores := reach.Stores{Records: c.Records, Objects: c.Objects, Executions: c.Executions, Jobs: c.Jobs}
	w := reach.NewWalker(ctx, c.Objects, reach.Options{Fault: c.fault})
	c.marked = w.Met()
	// Each phase ends before the next begins: a later phase must see the changes made during an earlier one.
	for _, enumerate := range []func() error{
		func() error { return stores.References(ctx, w) },
		func() error { return stores.Tombstones(ctx, c.prunedSince, w) },
		func() error {
			sessions, err := c.Records.LiveSessions(ctx)
			if err != nil {
				return fmt.Errorf("ask for running processes: %w", err)
			}
			return reach.Protected(sessions, w)
		},
		// A process ends a protection only after it has written a record that names the object. A package may have left
		// the register after its deployment in a workspace, so workspaces are read again.
		func() error { return stores.WorkspaceRoots(ctx, w) },
	} {
		err := enumerate()
		if walkErr := w.Wait(); walkErr != nil {
			return walkErr // the sink's error is the same
		}
		if err != nil {
			return fmt.Errorf("read references: %w", err)
		}
	}
	return nil
}

// Tombstones are dated by the pruning machine's clock, sessions by the file system's. clockSlack bounds the lag of
// another machine's clock behind the file system's. This machine's clock is compared with the file system's;
// clockGrain allows for the rounding of the file system's times.
//
// Where one clock that all machines read dates both, it has a resolution of a second, and may have several instances.
// Two readings may be in the wrong order by sharedSlack, or by sharedGrain if no other session is live.
const (
	clockSlack  = time.Hour
	clockGrain  = 20 * time.Millisecond
	sharedSlack = time.Minute
	sharedGrain = 2 * time.Second
)

// prunedSince is the earliest time of a tombstone whose execution another session may have found before.
func (c *collection) prunedSince(by string) time.Time {
	switch {
	case c.shared && c.report.Sessions == 0:
		return c.oldest.Add(-sharedGrain)
	case c.shared:
		return c.oldest.Add(-sharedSlack)
	case c.report.Sessions == 0:
		return c.oldest
	}
	if _, host, ok := strings.Cut(c.By, "@"); ok && strings.HasSuffix(by, "@"+host) {
		return c.oldest.Add(-c.behind)
	}
	return c.oldest.Add(-clockSlack)
}

// began begins the collector's session, and finds the oldest session. Every process whose session is not listed here
// began later.
func (c *collection) began(ctx context.Context) error {
	var own time.Time
	c.behind = clockGrain
	if !c.DryRun {
		var err error
		if own, err = c.Records.SessionBegan(ctx); err != nil {
			return err
		}
	}
	var err error
	if c.oldest, err = c.now(ctx); err != nil {
		return err
	}
	if !own.IsZero() {
		c.behind += max(0, own.Sub(c.oldest))
	}
	sessions, err := c.Records.LiveSessions(ctx)
	if err != nil {
		return fmt.Errorf("ask for running processes: %w", err)
	}
	c.cutoff = own
	if own.IsZero() && c.report.Grace > 0 {
		c.cutoff = c.oldest // as if another session began now
	}
	ours := c.DryRun // a dry run has no session
	for _, s := range sessions {
		if c.cutoff.IsZero() || s.Began.Before(c.cutoff) {
			c.cutoff = s.Began
		}
		if !ours && s.Began.Equal(own) {
			ours = true
			continue
		}
		if s.Began.Before(c.oldest) {
			c.oldest = s.Began
		}
		c.report.Sessions++
		if old := c.report.OldestSession; old.IsZero() || s.Began.Before(old.Time) {
			c.report.OldestSession = moment.At(s.Began)
		}
	}
	return nil
}

// now is the time by the clock that dates sessions, as far as this machine knows it.
func (c *collection) now(ctx context.Context) (time.Time, error) {
	clock, ok := c.Records.(refstore.SessionClock)
	if !ok {
		return c.Now(), nil
	}
	c.shared = true
	now, err := clock.SessionNow(ctx)
	if err != nil {
		return now, fmt.Errorf("ask for the time: %w", err)
	}
	return now, nil
}

// young reports whether an object that nothing reaches is spared.
func (c *collection) young(e objectstore.Entry) bool {
	return !c.cutoff.IsZero() && !e.Time.Before(c.cutoff.Add(-c.report.Grace))
}

// fault decides the consequence of a reference that could not be followed: a warning, or the end.
func (c *collection) fault(f *reach.Fault) error {
	var malformed *reach.MalformedError
	var unreadable *reach.RecordError
	switch {
	case errors.As(f.Err, &unreadable):
		switch f.Owner.Kind {
		case reach.AnExecution, reach.ARun, reach.APin:
			// Such an owner is never a hit, its snapshots may be missing, and no required object is behind it alone.
		default:
			return &UnsafeError{f}
		}
	case f.Weak && (errors.Is(f.Err, objectstore.ErrNotFound) || errors.As(f.Err, &malformed)):
		return nil // it may be missing
	case errors.Is(f.Err, objectstore.ErrNotFound):
		if hides(f.Ref.Kind) {
			return &UnsafeError{f}
		}
		c.gone++
	case errors.As(f.Err, &malformed):
		if f.Ref.Kind != reach.Task { // a task leads only to code of the reference
			return &UnsafeError{f}
		}
	default:
		return fmt.Errorf("read references: %w", f)
	}
	if len(c.report.Warnings) < MaxWarnings {
		c.report.Warnings = append(c.report.Warnings, f.Error())
	} else {
		c.report.MoreWarnings++
	}
	return nil
}

// hides reports whether an object of a kind may be the only one that names required objects. Input datasets cannot be
// made again, whereas a task makes an incomplete directory again as a whole.
func hides(k reach.Kind) bool { return k == reach.Package || k == reach.Node }

// sweep removes unmarked objects, shard by shard.
func (c *collection) sweep(ctx context.Context) error {
	c.progress(Progress{Phase: Sweeping})
	var mu sync.Mutex
	var first error // an object that cannot be removed does not stop the sweep, unless the right to do it is missing
	swept := 0
	var g errgroup.Group
	g.SetLimit(c.workers)
	for shard := range objectstore.Shards {
		g.Go(func() error {
			mu.Lock()
			denied := c.far != nil && errors.Is(first, fs.ErrPermission)
			mu.Unlock()
			if denied { // each further request would be denied too
				return nil
			}
			if err := ctx.Err(); err != nil {
				return err
			}
			r, err := c.sweepShard(ctx, byte(shard))
			mu.Lock()
			defer mu.Unlock()
			c.report.Live.plus(r.live)
			c.report.Collected.plus(r.collected)
			c.report.Young.plus(r.young)
			c.present += r.files
			if first == nil {
				first = err
			}
			swept++
			c.progress(Progress{Phase: Sweeping, Shards: swept})
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return first
}

type sweptShard struct {
	live, collected, young Amount
	files                  int64 // number of existing objects that were marked as files
}

func (c *collection) sweepShard(ctx context.Context, shard byte) (r sweptShard, err error) {
	if c.DryRun {
		return r, c.walkShard(ctx, shard, &r, true)
	}
	var unmarked Amount // without sizes where each size would be a request
	keep := func(h objectstore.Hash) bool {
		marked := c.marked.Has(h)
		if !marked && c.far == nil {
			unmarked.add(0)
			return false
		}
		size, statErr := c.Objects.Stat(ctx, h)
		switch {
		case !marked:
			unmarked.add(size)
		case statErr == nil:
			c.live(&r, objectstore.Info{Hash: h, Size: size})
		}
		if statErr != nil && !errors.Is(statErr, objectstore.ErrNotFound) {
			err = statErr
		}
		return marked
	}
	sweepErr := c.Objects.SweepShard(ctx, shard, c.cutoff, keep, func(e objectstore.Entry) { r.collected.add(e.Size) })
	switch err = errors.Join(err, sweepErr); {
	case err != nil, unmarked.Objects == r.collected.Objects:
		return r, err
	case c.far != nil:
		r.young = Amount{unmarked.Objects - r.collected.Objects, unmarked.Bytes - r.collected.Bytes}
		return r, nil
	}
	return r, c.walkShard(ctx, shard, &r, false) // some were spared: count them
}

// walkShard counts the unmarked objects of a shard: all of them for a dry run, else only objects that the sweep has
// spared.
func (c *collection) walkShard(ctx context.Context, shard byte, r *sweptShard, all bool) error {
	for e, err := range c.Objects.WalkShard(ctx, shard) {
		switch {
		case err != nil:
			return err
		case c.marked.Has(e.Hash):
			if all {
				c.live(r, e.Info)
			}
		case !all, c.young(e): // unmarked objects after the sweep were spared
			r.young.add(e.Size)
		default:
			r.collected.add(e.Size)
		}
	}
	return nil
}

func (c *collection) live(r *sweptShard, o objectstore.Info) {
	r.live.add(o.Size)
	if c.marked.Of(reach.File).Has(o.Hash) {
		r.files++
	}
}

package gc

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"e3/executions"
	"e3/internal/reach"
	"e3/internal/record"
	"e3/objectstore"
	"e3/refstore"
	"e3/workspace"
)

// Records are the repository's records, with who is at work on them.
type Records interface {
	executions.Records
	refstore.Sessions
	refstore.Locker
	// Sweep removes the sessions of dead processes and returns how many there were.
	Sweep(ctx context.Context) (int, error)
	// RemoveLeftovers removes folders of executions that hold no record and are older than a moment.
	RemoveLeftovers(ctx context.Context, before time.Time) (int, error)
}

// Objects are the repository's objects. Walks and sweeps of several shards run at the same time.
type Objects interface {
	objectstore.Store
	// Stat returns the size of an object in bytes, or objectstore.ErrNotFound.
	Stat(ctx context.Context, h objectstore.Hash) (int64, error)
	WalkShard(ctx context.Context, first byte) iter.Seq2[objectstore.Entry, error]
	SweepShard(ctx context.Context, first byte, cutoff time.Time, keep func(objectstore.Hash) bool, removed func(objectstore.Entry)) error
}

// Stores are what is collected.
type Stores struct {
	Records    Records
	Objects    Objects
	Executions reach.Executions
	Now        func() time.Time
	Holder     func() string // describes this process, as LockState.Holder
	By         string        // user@host, as in the tombstones that this process would write; "" if it is not known
}

// Options adjust a collection.
type Options struct {
	DryRun bool // only say what would go; nothing is written
	// Progress, if it is not nil, is called from time to time, by one goroutine at a time.
	Progress func(Progress)
}

// Progress is how far a collection has come.
type Progress struct {
	Phase  Phase
	Shards int // of objectstore.Shards, that were swept
}

// Phase is a part of a collection.
type Phase int

// The phases of a collection.
const (
	Marking  Phase = iota // what is needed is found
	Sweeping              // the rest is removed
)

func (p Phase) String() string {
	if p == Marking {
		return "marking"
	}
	return "sweeping"
}

// Amount is a number of objects and their size.
type Amount struct{ Objects, Bytes int64 }

func (a *Amount) add(size int64) {
	a.Objects++
	a.Bytes += size
}

func (a *Amount) plus(b Amount) {
	a.Objects += b.Objects
	a.Bytes += b.Bytes
}

// Report is what a collection did, or would do.
type Report struct {
	DryRun    bool
	Live      Amount // reached
	Collected Amount
	Young     Amount // not reached, and spared because a session may be about to name them
	// OldestSession is when the oldest session of another process began: what was put since then is young. Zero if
	// there is none.
	OldestSession time.Time
	Sessions      int // live ones of other processes
	DeadSessions  int // that were removed with what they left
	Leftovers     int // folders without a record that were removed

	Missing int // objects that something refers to and that are gone
	// Warnings are references that could not be followed but keep nobody from collecting, at most MaxWarnings;
	// MoreWarnings counts the others.
	Warnings     []error
	MoreWarnings int
}

// MaxWarnings bounds Report.Warnings.
const MaxWarnings = 20

// BusyError says that somebody else is collecting in the repository.
type BusyError struct {
	Holder string    // the process, in words; "" if it is not known
	Since  time.Time // zero if it is not known
}

func (e *BusyError) Error() string {
	if e.Holder == "" {
		return "garbage is being collected by another process"
	}
	return fmt.Sprintf("garbage is being collected by %s since %s", e.Holder, e.Since.Local().Format("2006-01-02 15:04:05"))
}

// UnsafeError says that nothing was removed, because it is not known what all references lead to.
type UnsafeError struct{ Fault *reach.Fault }

func (e *UnsafeError) Error() string { return "nothing was removed: " + e.Fault.Error() }

// Unwrap returns the fault.
func (e *UnsafeError) Unwrap() error { return e.Fault }

// lockName is the lock of whoever collects.
const lockName = "gc"

// Collect removes the objects that nothing reaches, while anybody may work in the repository. It can be cut off at any
// point, and done again. There is one at a time: a second one gets a BusyError. A reference that cannot be followed,
// where what lies behind it is needed, is an UnsafeError, before anything is removed.
func Collect(ctx context.Context, s Stores, o Options) (*Report, error) {
	report, err := collect(ctx, s, o)
	// A dry run takes no lock: another collection may have removed an object together with what named it.
	for again := 1; o.DryRun && again < dryTries && odd(report, err); again++ {
		report, err = collect(ctx, s, o)
	}
	return report, err
}

// dryTries is how often a dry run looks before it says that something is missing.
const dryTries = 3

// odd tells whether a collection has found that something is missing.
func odd(r *Report, err error) bool {
	var unsafe *UnsafeError
	return errors.As(err, &unsafe) || err == nil && (r.Missing > 0 || len(r.Warnings) > 0)
}

func collect(ctx context.Context, s Stores, o Options) (*Report, error) {
	c := &collection{Stores: s, Options: o, report: &Report{DryRun: o.DryRun}}
	if !o.DryRun {
		unlock, err := c.lock(ctx)
		if err != nil {
			return nil, err
		}
		defer unlock()
		if c.report.DeadSessions, err = s.Records.Sweep(ctx); err != nil {
			return nil, fmt.Errorf("clean up after dead processes: %w", err)
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
	report *Report
	cutoff time.Time     // what is not older is spared; zero spares nothing, for a dry run without anybody at work
	oldest time.Time     // when the oldest session of somebody else began, or now: what was pruned since, somebody may have found
	behind time.Duration // how far the clock of this machine may be behind the file system's
	marked *reach.Set
	gone   int // objects that were missing when they were to be read

	present int64 // of those that were met as files
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

// mark finds what is needed. The order is what makes it safe beside others at work: the beginnings of their sessions;
// then the references; then what was pruned since, which they may have found before; then what they protect; then what
// those have written who protect nothing any more.
func (c *collection) mark(ctx context.Context) error {
	c.progress(Progress{Phase: Marking})
	if err := c.began(ctx); err != nil {
		return err
	}
	stores := reach.Stores{Records: c.Records, Objects: c.Objects, Executions: c.Executions}
	w := reach.NewWalker(ctx, c.Objects, reach.Options{Fault: c.fault})
	c.marked = w.Met()
	// A phase must end before the next begins: what it reads decides what may still be replaced.
	for _, enumerate := range []func() error{
		func() error { return stores.References(ctx, w) },
		func() error { return stores.Tombstones(ctx, c.prunedSince, w) },
		func() error {
			sessions, err := c.Records.LiveSessions(ctx)
			if err != nil {
				return fmt.Errorf("ask who is at work: %w", err)
			}
			return reach.Protected(sessions, w)
		},
		// Whoever has let go of what he protected has written what names it. Packages move to workspaces, and may have
		// left the register in between.
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

// Tombstones are dated by the clock of whoever pruned, sessions by the file system's. clockSlack is how far the clock of another
// machine may be behind it. That of this machine is compared; clockGrain is what the file system's may round.
const (
	clockSlack = time.Hour
	clockGrain = 20 * time.Millisecond
)

// prunedSince is from when on somebody at work may have found what was pruned.
func (c *collection) prunedSince(by string) time.Time {
	if c.report.Sessions == 0 {
		return c.oldest
	}
	if _, host, ok := strings.Cut(c.By, "@"); ok && strings.HasSuffix(by, "@"+host) {
		return c.oldest.Add(-c.behind)
	}
	return c.oldest.Add(-clockSlack)
}

// began begins a session of our own, so that there is a moment before which everybody began whom we did not see, and
// finds the oldest.
func (c *collection) began(ctx context.Context) error {
	var own time.Time
	c.behind = clockGrain
	if !c.DryRun {
		var err error
		if own, err = c.Records.SessionBegan(ctx); err != nil {
			return err
		}
	}
	c.oldest = c.Now()
	if !own.IsZero() {
		c.behind += max(0, own.Sub(c.oldest))
	}
	sessions, err := c.Records.LiveSessions(ctx)
	if err != nil {
		return fmt.Errorf("ask who is at work: %w", err)
	}
	c.cutoff = own
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
		if c.report.OldestSession.IsZero() || s.Began.Before(c.report.OldestSession) {
			c.report.OldestSession = s.Began
		}
	}
	return nil
}

// fault decides about a reference that could not be followed: a warning, or the end.
func (c *collection) fault(f *reach.Fault) error {
	var malformed *reach.MalformedError
	var unreadable *reach.RecordError
	switch {
	case errors.As(f.Err, &unreadable):
		switch f.Owner.Kind {
		case reach.AnExecution, reach.ARun, reach.APin:
			// It cannot answer a lookup, its snapshots may be missing, it names nothing of its own.
		default:
			return &UnsafeError{f}
		}
	case f.Weak && (errors.Is(f.Err, objectstore.ErrNotFound) || errors.As(f.Err, &malformed)):
		return nil // as it may be
	case errors.Is(f.Err, objectstore.ErrNotFound):
		if hides(f.Ref.Kind) {
			return &UnsafeError{f}
		}
		c.gone++
	case errors.As(f.Err, &malformed):
		if f.Ref.Kind != reach.Task { // nothing but code of the reference is behind one
			return &UnsafeError{f}
		}
	default:
		return fmt.Errorf("read references: %w", f)
	}
	if len(c.report.Warnings) < MaxWarnings {
		c.report.Warnings = append(c.report.Warnings, f)
	} else {
		c.report.MoreWarnings++
	}
	return nil
}

// hides tells whether an object of a kind is the only one to know what is needed: datasets that were set can not be made
// again, while a directory that has lost a part is made again as a whole.
func hides(k reach.Kind) bool { return k == reach.Package || k == reach.Node }

// sweep removes what was not marked, shard by shard.
func (c *collection) sweep(ctx context.Context) error {
	c.progress(Progress{Phase: Sweeping})
	var mu sync.Mutex
	var first error // an object that cannot be removed does not keep the others
	swept := 0
	var g errgroup.Group
	g.SetLimit(runtime.GOMAXPROCS(0))
	for shard := range objectstore.Shards {
		g.Go(func() error {
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
	files                  int64 // of the live ones, those that were met as files
}

func (c *collection) sweepShard(ctx context.Context, shard byte) (r sweptShard, err error) {
	if c.DryRun {
		return r, c.walkShard(ctx, shard, &r, true)
	}
	unmarked := int64(0)
	keep := func(h objectstore.Hash) bool {
		if !c.marked.Has(h) {
			unmarked++
			return false
		}
		size, statErr := c.Objects.Stat(ctx, h)
		switch {
		case statErr == nil:
			c.live(&r, objectstore.Info{Hash: h, Size: size})
		case !errors.Is(statErr, objectstore.ErrNotFound):
			err = statErr
		}
		return true
	}
	sweepErr := c.Objects.SweepShard(ctx, shard, c.cutoff, keep, func(e objectstore.Entry) { r.collected.add(e.Size) })
	if err = errors.Join(err, sweepErr); err != nil || unmarked == r.collected.Objects {
		return r, err
	}
	return r, c.walkShard(ctx, shard, &r, false) // some were spared: these
}

// walkShard counts the objects of a shard: those that are young, and the others too if it is asked for all.
func (c *collection) walkShard(ctx context.Context, shard byte, r *sweptShard, all bool) error {
	for e, err := range c.Objects.WalkShard(ctx, shard) {
		switch {
		case err != nil:
			return err
		case c.marked.Has(e.Hash):
			if all {
				c.live(r, e.Info)
			}
		case !c.cutoff.IsZero() && !e.Time.Before(c.cutoff):
			r.young.add(e.Size)
		case all:
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

// missing counts the objects that something refers to and that are gone. Directories and records were found to be when
// they were read; files are only looked at here, and only where the sweep has seen fewer than there should be.
func (c *collection) missing(ctx context.Context) error {
	c.report.Missing = c.gone
	files := c.marked.Of(reach.File)
	if int64(files.Len()) == c.present {
		return nil
	}
	const chunk = 4096
	var some []objectstore.Hash
	count := func() error {
		gone, err := c.Objects.Missing(ctx, some)
		c.report.Missing += len(gone)
		some = some[:0]
		return err
	}
	for h := range files.All() {
		if some = append(some, h); len(some) == chunk {
			if err := count(); err != nil {
				return err
			}
		}
	}
	return count()
}

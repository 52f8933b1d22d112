// Package lease makes locks, claims, sessions and the barrier of a collection out of compare-and-swap alone: leases
// on any [refstore.Store], for processes whose death no kernel here can see.
//
// # Sessions
//
// A process that writes has one session: a record that it renews every third of the lease. Each lock or claim names
// the session of its holder. An observer that saw the record unchanged for one lease, by its own clock, or knows that
// the process is gone, marks the session dead, by compare-and-swap. From then on all its holds are free. A session
// ends by deleting its record: a hold whose session has no record is free. This is safe for three reasons: ids never
// recur; a session's record exists before the first hold that names it; and no other process removes the record
// before the session's requests have settled.
//
// The session stops by itself once it could not renew for four fifths of a lease. It counts from before the last
// successful renewal was sent; an observer counts from after it has read that renewal. So the clocks of two machines
// must run equally fast within a fifth. Their readings are never compared.
//
// # Settling
//
// Requests of a dead session may still arrive. They have settled once Options.Settle has passed since the session was
// marked dead, by the objects' clock, which all machines ask. If the process was seen to be gone, half a minute is
// enough: the kernel and the server carry out what they accepted. Only requests that name or remove objects have to
// be waited for. Locks and claims are free at once, since a new holder fences off late writes.
//
// A process of this host that lost its session and still exists is stopped, or hangs, and may continue at any time.
// Its session blocks collections here, and is not swept here, until the process has closed it or is gone.
//
// Requests of a live session may be late as well. If the creation of a hold was retried, and the hold has been
// released since, the first try may bring the hold back unnoticed. A store that retries reports this. The session
// then looks for the hold until the request has settled, at least every two leases, and removes it.
//
// # Collections
//
// [Leases.Quiesce] raises an epoch. A session creates its record before it looks for an epoch, and a collector raises
// the epoch before it lists sessions: so one sees the other. From its answer on, a session writes down each name
// before it relies on it, and then reads the list of the condemned. The collector writes that list, and then reads
// what sessions wrote down. A session that ends during an epoch leaves its record, since the collector may already
// have passed the references that it wrote. If the collector died, or does not know whether all its deletions were
// carried out, the epoch stays in force until these have settled.
//
// # Calls
//
// Taking a claim is one write, and its release another. The same holds for a free lock; a held or shared lock costs
// a read and a write. The first refused attempt costs a write and a read of the holder's record. Each later attempt
// costs a read, and a read of the holder's session each [Options.TTL]/15. A renewal is a write and a read of the
// epoch. [Leases.Rely] is free outside of a collection. During one it costs a write, which concurrent callers share,
// and a read for each new name.
package lease

import (
	"context"
	"errors"
	"fmt"
	iofs "io/fs"
	"log/slog"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"e3/internal/host/process"
	"e3/refstore"
)

// Options tune leases. The zero value is right for one machine.
type Options struct {
	// TTL is the time for which a session counts as alive without renewal. 0 is 15 s. Observers use their own TTL or
	// the session's, whichever is longer.
	TTL time.Duration
	// Settle is the time for which requests of a lost session may still arrive. 0 is 5 min. It is the time for which
	// servers accept a signature, plus a minute: Sending checks requests that delete objects, or write references to
	// them, after they are signed.
	Settle time.Duration
	// Fenced says that the store refuses writes of a session that is marked dead, and that the mark waits for those that
	// are under way ([Leases.Fence]). Then only deletions of a lost collector have to settle.
	Fenced bool
	// Owner describes the process. Without an id, it is this process.
	Owner Owner
	// Clock is the clock that dates the objects. All machines ask the same clock. nil is this machine's clock.
	Clock func(ctx context.Context) (time.Time, error)
	// Relied converts a name that a session relies on to the form of a protected name. nil converts it to its hex
	// digits.
	Relied func(name [32]byte) string

	// Retake lets a session that was found dead go on under another id, if no process has taken over its locks and no
	// collection has passed it over. It is for a process whose session is named only by the process's own locks and
	// claims.
	Retake bool

	// Renewed, if set, is called after each successful renewal of the session, including the first, with the time at
	// which it was sent, by Elapsed. It must not block.
	Renewed func(sent time.Duration)

	// Elapsed is a clock that continues while the machine sleeps, with any origin. nil is the system's clock.
	Elapsed func() time.Duration
	// Alive reports whether a process runs, and whether that is known. With nil, processes of this boot and pid
	// namespace are known.
	Alive func(process.ID) (alive, known bool)
}

// Owner describes a process.
type Owner struct {
	Process process.ID
	Words   string // for display: "me@host: e3 start . prod"
}

// Leases are the locks, claims and session of one process in one store. They are safe for concurrent use. Create them
// with [New].
type Leases struct {
	watcher
	lost    chan struct{}
	opening chan struct{} // holds a token while the session begins
	joining chan struct{} // holds a token while a collection is joined or left by Condemn
	session atomic.Pointer[session]
	nonces  atomic.Uint64
	freeing releases
	suspension

	mu      sync.Mutex
	lostErr error
	closed  bool
	claims  map[[32]byte]uint64 // nonces of claims that are held, or being taken
	holds   map[uint64]*held    // locks and claims that are held; nil while being taken
	refused map[refstore.Key]struct{}
	collect *collection // the collection run by this process, or nil

	unanswered map[byte]uint64 // nonces of condemned lists with unanswered deletions
	settledAt  time.Duration   // when those deletions have settled, by Options.Elapsed
}

var (
	_ refstore.Leased   = (*Leases)(nil)
	_ refstore.Hearing  = (*Leases)(nil)
	_ refstore.Sessions = (*Leases)(nil)
	_ refstore.Barrier  = (*Leases)(nil)

	_ refstore.SessionClock = (*Leases)(nil)
	_ refstore.Outlasting   = (*Leases)(nil)
)

// New returns leases in a store. It does nothing yet: the session begins with the first call that needs one.
func New(store refstore.Store, o Options) *Leases {
	if o.TTL <= 0 {
		o.TTL = 15 * time.Second
	}
	o.TTL = min(max(o.TTL, time.Millisecond), maxTTL)
	if o.Settle <= 0 {
		o.Settle = 5 * time.Minute
	}
	if o.Owner.Process == (process.ID{}) {
		o.Owner.Process, _ = process.Self() // an unknown process only means that others cannot check it
	}
	if o.Clock == nil {
		o.Clock = func(context.Context) (time.Time, error) { return time.Now(), nil }
	}
	if o.Relied == nil {
		o.Relied = func(name [32]byte) string { return fmt.Sprintf("%x", name) }
	}
	if o.Renewed == nil {
		o.Renewed = func(time.Duration) {}
	}
	if o.Elapsed == nil {
		o.Elapsed = elapsed()
	}
	p := o.Owner.Process
	if o.Alive == nil {
		o.Alive = func(other process.ID) (alive, known bool) {
			// Hosts may share a name, but not a boot id: only the boot id proves that this kernel knows the process.
			if other.BootID == "" || other.BootID != p.BootID || other.PIDNamespace != p.PIDNamespace {
				return false, false
			}
			return process.Alive(other)
		}
	}
	own := ownerRecord{Host: p.Host, Boot: p.BootID, PIDNamespace: p.PIDNamespace, PID: p.PID, Start: p.StartTime, Words: o.Owner.Words}
	return &Leases{
		watcher:    watcher{table: table{store: store, o: o}, own: own, seen: make(map[string]*sighting)},
		lost:       make(chan struct{}),
		opening:    make(chan struct{}, 1),
		joining:    make(chan struct{}, 1),
		suspension: suspension{elapsed: o.Elapsed},
		claims:     make(map[[32]byte]uint64),
		holds:      make(map[uint64]*held),
		refused:    make(map[refstore.Key]struct{}),
	}
}

// Limit is the time for which this process may rely on a renewal after sending it.
func (l *Leases) Limit() time.Duration { return l.o.limit() }

func (o *Options) limit() time.Duration { return o.TTL / 5 * 4 }

// patience bounds calls in the background, and other calls that must not hang.
func (o *Options) patience() time.Duration { return min(o.TTL/3, 5*time.Second) }

// Pace implements [refstore.Leased].
func (l *Leases) Pace() (first, most time.Duration) {
	return min(200*time.Millisecond, l.o.TTL/10), min(2*time.Second, l.o.TTL/5)
}

// Lost implements [refstore.Leased].
func (l *Leases) Lost() <-chan struct{} { return l.lost }

// Held returns [refstore.ErrLost] once this process can no longer be sure that it still has its holds, or
// [refstore.ErrSuspended] if the session may outlast a missed renewal. It reads only the clock. A deletion
// should call it as late as possible.
func (l *Leases) Held() error {
	if err := l.final(); err != nil {
		return err
	}
	if s := l.session.Load(); s != nil {
		if late := l.o.Elapsed() - s.renewed(); late > l.o.limit() {
			if l.suspend(s.renewed(), late, l.o.limit(), false) {
				return fmt.Errorf("session of %s: %w: it was last renewed %v ago", l.own.words(), refstore.ErrSuspended, late.Round(time.Millisecond))
			}
			l.lose(fmt.Sprintf("it was last renewed %v ago", late.Round(time.Millisecond)))
		} else if l.suspended() {
			return fmt.Errorf("session of %s: %w: %w", l.own.words(), refstore.ErrSuspended, errBuried)
		}
	}
	return l.final()
}

// usable is called under mu.
func (l *Leases) usable() error {
	if l.lostErr != nil {
		return l.lostErr
	}
	if l.closed {
		return fmt.Errorf("leases of %s: %w", l.own.words(), iofs.ErrClosed)
	}
	return nil
}

// lose notes that other processes may own this process's holds.
func (l *Leases) lose(why string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lostErr != nil {
		return
	}
	err := fmt.Errorf("%w: session of %s, a lease of %v: %s; another process may take over its unfinished work; start it again",
		refstore.ErrLost, l.own.words(), l.o.TTL, why)
	if failure := l.failure.Load(); failure != nil {
		err = &unrenewedError{err, *failure}
	}
	slog.Debug("lost", "topic", "leases", "error", err)
	l.lostErr = err
	close(l.lost)
}

// unrenewedError is a lost lease whose last renewal failed.
type unrenewedError struct{ err, last error }

func (e *unrenewedError) Error() string { return e.err.Error() }

// Unwrap returns an error that wraps refstore.ErrLost.
func (e *unrenewedError) Unwrap() error { return e.err }

// Unrenewed is the error of the last renewal.
func (e *unrenewedError) Unrenewed() error { return e.last }

// Confirm implements [refstore.Leased].
func (l *Leases) Confirm(ctx context.Context) error {
	if err := errors.Join(l.stands(ctx), ctx.Err()); err != nil {
		return err
	}
	s := l.session.Load()
	if s == nil {
		return nil
	}
	for {
		name := s.name()
		r, err := l.store.Get(ctx, sessionKey(name))
		if err != nil && !errors.Is(err, refstore.ErrNotFound) {
			return fmt.Errorf("confirm the session: %w", err)
		}
		if name != s.name() { // it has begun anew
			continue
		}
		if _, err = l.checkOwn(r, err); err != nil || !l.buried() {
			return err
		}
		if err := l.stands(ctx); err != nil {
			return err
		}
	}
}

// checkOwn finds out, from a read of the session's own record, whether the session is still marked alive. A session
// that is marked dead but may begin anew is buried, and the error is nil.
func (l *Leases) checkOwn(r refstore.Record, err error) (rec sessionRecord, _ error) {
	switch {
	case errors.Is(err, refstore.ErrNotFound):
		if !bury(l, l.session.Load(), nil) {
			l.lose("its record is gone")
		}
	case err != nil:
		return rec, err
	default:
		if err := decode(r, &rec); err != nil {
			l.lose(err.Error())
			break
		}
		switch rec.State {
		case dead:
			if !bury(l, l.session.Load(), rec.Death) {
				l.lose("it was declared dead by " + shorten(rec.Death.By))
			}
		case ended:
			l.lose("it has ended")
		}
	}
	return rec, l.final()
}

// use returns the session, and begins it if necessary.
func (l *Leases) use(ctx context.Context) (*session, error) {
	if err := errors.Join(l.stands(ctx), ctx.Err()); err != nil {
		return nil, err
	}
	if s := l.session.Load(); s != nil {
		return s, nil
	}
	select {
	case l.opening <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-l.opening }()
	if err := l.stands(ctx); err != nil {
		return nil, err
	}
	if s := l.session.Load(); s != nil {
		return s, nil
	}
	s, err := l.begin(ctx)
	if err != nil {
		return nil, fmt.Errorf("begin a session: %w", readOnly(err))
	}
	return s, nil
}

// readOnly wraps a permission error with the sentinel for a process that may not write.
func readOnly(err error) error {
	if !errors.Is(err, refstore.ErrReadOnly) && (errors.Is(err, iofs.ErrPermission) || errors.Is(err, syscall.EROFS)) {
		return fmt.Errorf("%w: %w", refstore.ErrReadOnly, err)
	}
	return err
}

// detached is a bounded context for work that must be completed even if the caller's context has ended.
func (o *Options) detached(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), o.patience())
}

// SessionNow implements [refstore.SessionClock].
func (l *Leases) SessionNow(ctx context.Context) (time.Time, error) { return l.now(ctx) }

// pause waits between two tries, within [Leases.Pace].
func (l *Leases) pause(ctx context.Context, try int) error {
	first, most := l.Pace()
	return l.sleep(ctx, min(most, first<<min(try, 10)))
}

// sleep also ends, with its error, when the lease is lost.
func (l *Leases) sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-l.lost:
		return l.final()
	case <-t.C:
		return nil
	}
}

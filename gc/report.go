package gc

import (
	"fmt"
	"time"

	"e3/internal/reach"
)

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
	Young     Amount // not reached, and spared because a session may be about to name them, or they are too new
	// OldestSession is when the oldest session of another process began: what was put since then is young. Zero if
	// there is none.
	OldestSession time.Time
	// Grace is how much older than that, or than now, something must be to be removed; 0 where the store needs none.
	Grace        time.Duration
	Sessions     int // live ones of other processes
	DeadSessions int // that were removed with what they left
	Leftovers    int // folders without a record, and other things that crashes left, that were removed
	ImportedRuns int // that whoever collects has retired before

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

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

// Gone is a number of repositories that are gone, and the size of what was left of them on this machine.
type Gone struct {
	Repositories int   `json:"repositories"`
	Bytes        int64 `json:"bytes"`
}

// Report is the outcome of a collection, or of a dry run.
type Report struct {
	DryRun    bool
	Live      Amount // reached
	Collected Amount
	Young     Amount // not reached, but spared: a session may be about to name them, or they are too new
	// OldestSession is the begin of the oldest session of another process; objects put since then are young. Zero if
	// there is none.
	OldestSession time.Time
	// Grace is the minimum age of a removable object, counted back from OldestSession, or from now; 0 if the store
	// needs none.
	Grace        time.Duration
	Sessions     int // live ones of other processes
	DeadSessions int // removed, with their remains
	Leftovers    int // removed folders without a record, and other remains of crashes
	ImportedRuns int // removed before by the caller of the collection
	// Gone are the folders in which commands of this user ran for repositories that are gone; removed after the collection by
	// its caller.
	Gone Gone

	Missing int // missing objects that something refers to
	// Warnings are references that could not be followed but do not prevent a collection, at most MaxWarnings;
	// MoreWarnings counts the others.
	Warnings     []error
	MoreWarnings int
}

// MaxWarnings bounds Report.Warnings.
const MaxWarnings = 20

// BusyError says that another process is collecting in the repository.
type BusyError struct {
	Holder string    // the process, for people; "" if unknown
	Since  time.Time // zero if unknown
}

func (e *BusyError) Error() string {
	if e.Holder == "" {
		return "garbage is being collected by another process"
	}
	return fmt.Sprintf("garbage is being collected by %s since %s", e.Holder, e.Since.Local().Format("2006-01-02 15:04:05"))
}

// UnsafeError says that nothing was removed, because not all references could be followed.
type UnsafeError struct{ Fault *reach.Fault }

func (e *UnsafeError) Error() string { return "nothing was removed: " + e.Fault.Error() }

// Unwrap returns the fault.
func (e *UnsafeError) Unwrap() error { return e.Fault }

package gc

import (
	"fmt"
	"time"

	"e3/internal/format/moment"
	"e3/internal/reach"
)

// Amount is a number of objects and their size.
type Amount struct {
	Objects int64 `json:"objects"`
	Bytes   int64 `json:"bytes"`
}

func (a *Amount) add(size int64) {
	a.Objects++
	a.Bytes += size
}

func (a *Amount) plus(b Amount) {
	a.Objects += b.Objects
	a.Bytes += b.Bytes
}

// Downloads counts files that were fetched from servers in part.
type Downloads struct {
	Files int   `json:"files"`
	Bytes int64 `json:"bytes"`
}

// Environments counts the environments of programs that this user has on this machine, for all repositories.
type Environments struct {
	Removed      int   `json:"removed"`
	RemovedBytes int64 `json:"removedBytes"`
	Kept         int   `json:"kept"`
	KeptBytes    int64 `json:"keptBytes"`
}

// Checkouts counts the kept checkouts of large folders that this user's commands have left on this machine. Bytes are
// of blocks, as many small files take more than their bytes; files are also folders and links.
type Checkouts struct {
	Removed      int   `json:"removed"`
	RemovedBytes int64 `json:"removedBytes"`
	RemovedFiles int64 `json:"removedFiles"`
	Kept         int   `json:"kept"`
	KeptBytes    int64 `json:"keptBytes"`
	KeptFiles    int64 `json:"keptFiles"`
}

// Gone counts repositories that are gone, and the bytes of their remains on this machine.
type Gone struct {
	Repositories int   `json:"repositories"`
	Bytes        int64 `json:"bytes"`
}

// Report is the outcome of a collection, or of a dry run.
type Report struct {
	DryRun        bool         `json:"dryRun"`
	Collected     Amount       `json:"removed"`
	Live          Amount       `json:"kept"`
	Young         Amount       `json:"young"`                  // unreached, but new or perhaps in use
	Sessions      int          `json:"sessions"`               // of other processes
	OldestSession moment.Time  `json:"oldestSession"`          // its begin; objects put since then are young
	Leftovers     int          `json:"leftovers"`              // remains of crashes
	ImportedRuns  int          `json:"importedRuns,omitempty"` // old imported runs
	Gone          Gone         `json:"gone,omitzero"`          // remains of repositories that are gone
	Environments  Environments `json:"environments,omitzero"`  // of programs, on this machine
	Downloads     Downloads    `json:"downloads,omitzero"`     // removed: files of servers that never came to their end
	Checkouts     Checkouts    `json:"checkouts,omitzero"`     // of large folders, on this machine
	Missing       int          `json:"missing"`                // objects that something refers to
	Warnings      []string     `json:"warnings"`               // references that could not be followed, at most 20

	MoreWarnings int `json:"-"` // beyond Warnings
	DeadSessions int `json:"-"` // removed, with their remains
	// Grace is the minimum age of a removable object, counted back from OldestSession, or from now; 0 if the store
	// needs none.
	Grace time.Duration `json:"-"`
}

// Freed is the part of the report that belongs into the report of a prune before the collection.
func (r *Report) Freed() *Freed { return &Freed{r.Collected, r.Gone, r.Young} }

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

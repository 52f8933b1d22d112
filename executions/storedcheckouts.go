package executions

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"e3/internal/host/beneath"
	"e3/internal/host/runner"
	"e3/objectstore/tree"
)

// StoredCheckouts is the path of the folder of checkouts that belong to no process: they are kept for the next one,
// which takes a checkout by a rename.
type StoredCheckouts string

// Bounds of the checkouts that a machine keeps.
const (
	maxStored         = 16 // checkouts
	maxUnusedCheckout = 7 * 24 * time.Hour
)

// DefaultCheckouts is what all of them may take of the disk. One of them may take half: a folder of 100,000 files is kept.
var DefaultCheckouts = tree.Usage{Files: 1 << 18, Bytes: 2 << 30}

// A storedCheckout is one of them. Its name is "<label>-<hash>-<bytes>-<files>-<random>".
type storedCheckout struct {
	path, label, hash string
	usage             tree.Usage
	used              time.Time
}

func storedName(c *checkout) string {
	u := c.kept.Usage()
	return fmt.Sprintf("%s-%s-%d-%d-%08x", c.label, c.hash, u.Bytes, u.Files, rand.Uint32())
}

// goneName begins the name of a checkout that is being removed.
const goneName = "gone-"

// list lists the checkouts, the latest first.
func (s StoredCheckouts) list() []storedCheckout {
	entries, err := os.ReadDir(string(s))
	if err != nil {
		return nil
	}
	var list []storedCheckout
	for _, e := range entries {
		parts := strings.Split(e.Name(), "-")
		info, err := e.Info()
		if err != nil || len(parts) != 5 {
			continue
		}
		bytes, err := strconv.ParseInt(parts[2], 10, 64)
		files, fault := strconv.ParseInt(parts[3], 10, 64)
		if err != nil || fault != nil {
			continue
		}
		list = append(list, storedCheckout{filepath.Join(string(s), e.Name()), parts[0], parts[1], tree.Usage{Files: files, Bytes: bytes}, info.ModTime()})
	}
	slices.SortFunc(list, func(a, b storedCheckout) int { return b.used.Compare(a.used) })
	return list
}

// TrimmedCheckouts says what a Trim has done. Bytes are of blocks; files are also folders and links.
type TrimmedCheckouts struct {
	Removed      int
	RemovedBytes int64
	RemovedFiles int64
	Kept         int
	KeptBytes    int64
	KeptFiles    int64
}

// Trim removes the checkouts that were not used for long, and those beyond the latest that together are
// within the bound, or all of them. One in which a process works or has something open stays. A dry run only counts.
func (s StoredCheckouts) Trim(now time.Time, bound tree.Usage, all, dry bool) (TrimmedCheckouts, error) {
	var done TrimmedCheckouts
	var total tree.Usage
	var occupied map[string]bool // nil: not asked for yet
	errs := []error{}
	for i, c := range s.list() {
		with := total.Plus(c.usage)
		removed := all || i >= maxStored || !with.Within(bound) || now.Sub(c.used) > maxUnusedCheckout
		if removed && occupied == nil {
			if occupied, _ = runner.Occupied(string(s)); occupied == nil { // the system does not say, so no one is known
				occupied = map[string]bool{}
			}
		}
		if removed = removed && !occupied[filepath.Base(c.path)]; removed && !dry {
			var err error
			removed, err = s.remove(c.path)
			errs = append(errs, err)
		}
		if removed {
			done.Removed, done.RemovedBytes, done.RemovedFiles = done.Removed+1, done.RemovedBytes+c.usage.Bytes, done.RemovedFiles+c.usage.Files
			continue
		}
		total = with
		done.Kept, done.KeptBytes, done.KeptFiles = done.Kept+1, done.KeptBytes+c.usage.Bytes, done.KeptFiles+c.usage.Files
	}
	if !dry {
		errs = append(errs, s.finish())
	}
	return done, errors.Join(errs...)
}

// remove removes a checkout. A rename takes it away from other processes first.
func (s StoredCheckouts) remove(path string) (bool, error) {
	gone := filepath.Join(string(s), fmt.Sprintf("%s%08x", goneName, rand.Uint32()))
	if os.Rename(path, gone) != nil { // another process has taken it
		return false, nil
	}
	return true, discardGone(gone)
}

// finish removes the rest of what dead processes have begun to remove.
func (s StoredCheckouts) finish() error {
	rest, err := filepath.Glob(filepath.Join(string(s), goneName+"*"))
	for _, path := range rest {
		err = errors.Join(err, discardGone(path))
	}
	return err
}

// discardGone removes a checkout that another process may be removing as well.
func discardGone(path string) error {
	err := beneath.Discard(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

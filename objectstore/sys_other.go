//go:build !linux

package objectstore

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// The functions below, except look and readWhole, have no counterpart on this system. Files are written aside under a
// name, outputs of tasks are copied, and clones are copies.

func touchOpen(*os.File, time.Time) error { return errors.ErrUnsupported }

func lease(*os.File) bool { return false }

func TouchNow(*os.File) error { return errors.ErrUnsupported }

func plain(*os.File, fs.FileInfo) bool { return false }

func leaseAlone(*os.File) bool { return false }

func leaseHeld(*os.File) bool { return false }

func reflink(_, _ *os.File) error { return errors.ErrUnsupported }

func reflinkNever(err error) bool { return errors.Is(err, errors.ErrUnsupported) }

var errNoData = errors.New("no data follows")

func nextData(*os.File, int64) (int64, error) { return 0, errors.ErrUnsupported }

func nextHole(*os.File, int64) (int64, error) { return 0, errors.ErrUnsupported }

func copyRange(_, _ *os.File, _, _ int64) (int64, error) { return 0, errors.ErrUnsupported }

func copyRangeNever(err error) bool { return errors.Is(err, errors.ErrUnsupported) }

func reopenForReading(*os.File) (*os.File, error) { return nil, errors.ErrUnsupported }

func beginWriteBack(*os.File, int64, int64) {}

// readWhole reads the file of a name in root into what room returns for it.
func (d *Dir) readWhole(name string, room func(stat) ([]byte, error)) ([]byte, error) {
	f, err := d.root.OpenFile(name, openFlags, 0)
	if err != nil {
		return nil, d.foreign(name, err)
	}
	defer f.Close()
	st, err := fstat(f)
	if err != nil {
		return nil, err
	}
	b, err := room(st)
	if err != nil {
		return nil, err
	}
	n, err := io.ReadFull(f, b)
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		err = nil
	}
	return b[:n], err
}

// tryLock fails, so that lock is called.
func (d *Dir) tryLock(string, bool) (unlock func(), err error) { return nil, errors.ErrUnsupported }

// look describes the file of a name in root, by its path.
func (d *Dir) look(name string) (stat, error) {
	var st unix.Stat_t
	err := retryEINTR(func() error { return unix.Lstat(d.root.Path(name), &st) })
	if err != nil {
		return stat{}, &fs.PathError{Op: "lstat", Path: d.root.Path(name), Err: err}
	}
	return statOf(&st), nil
}

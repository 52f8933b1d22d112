package executions

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"e3/objectstore"
)

// Outputs of a job are moved out of the sandbox, and the process may die meanwhile. So a journal in the sandbox records
// each file before it is moved or its mode changes. The process that finishes the execution puts the files back and
// stores the outputs again. Meanwhile it holds the journal's lock: a process that stood still, and whose command
// another process has adopted, must not move files at the same time.

// journalEntry is a line of the journal.
type journalEntry struct {
	Path string      `json:"path"` // below the work folder
	Hash string      `json:"hash"`
	Mode fs.FileMode `json:"mode"`
}

// journalFile is the name of the journal.
const journalFile = "taken"

// errStoring says that another process has the journal locked.
var errStoring = errors.New("another process stores what the command has made")

// openJournal opens the journal and locks it. The error is errStoring if another process has it locked.
func (b *sandbox) openJournal() error {
	if b.journal != nil {
		return nil
	}
	f, err := b.root.OpenFile(journalFile, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	if lockFile(f) {
		f.Close()
		return errStoring
	}
	b.journal = f
	return nil
}

// keepJournal returns a context that has moves of files out of the sandbox recorded.
func (b *sandbox) keepJournal(ctx context.Context) (context.Context, error) {
	if err := b.openJournal(); err != nil {
		return ctx, err
	}
	journal := b.journal
	return objectstore.OnTaking(ctx, func(path string, info objectstore.Info, mode fs.FileMode) error {
		rel, err := filepath.Rel(b.work.Name(), path)
		if err != nil {
			return err
		}
		line, err := json.Marshal(journalEntry{Path: rel, Hash: info.Hash.String(), Mode: mode.Perm()})
		if err != nil {
			return err
		}
		_, err = journal.Write(append(line, '\n')) // in one piece: it is opened for appending
		return err
	}), nil
}

func (b *sandbox) closeJournal() {
	if b.journal != nil {
		b.journal.Close()
		b.journal = nil
	}
}

// errNotRestorable says that outputs were moved out of a sandbox and cannot be put back. Its text is recorded.
var errNotRestorable = errors.New("the process that began it has died while it stored what the command had made")

// putBack restores the files that the journal names. The error wraps errNotRestorable if that is impossible.
func (b *box) putBack(ctx context.Context) error {
	f, err := b.root.OpenFile(journalFile, os.O_RDONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	text, err := io.ReadAll(f)
	if err != nil {
		return err
	}
	for line := range bytes.Lines(text) {
		var t journalEntry
		if !bytes.HasSuffix(line, []byte("\n")) || json.Unmarshal(line, &t) != nil {
			break // the write was cut off, so no file was moved after it
		}
		hash, err := objectstore.ParseHash(t.Hash)
		if err != nil || !filepath.IsLocal(t.Path) {
			return fmt.Errorf("%w, and its journal names %q", errNotRestorable, t.Path)
		}
		if err := b.putBackOne(ctx, t.Path, hash, t.Mode.Perm()); err != nil {
			return err
		}
	}
	return nil
}

func (b *box) putBackOne(ctx context.Context, rel string, hash objectstore.Hash, mode fs.FileMode) error {
	info, err := b.work.Lstat(rel)
	switch {
	case err == nil && info.Mode().IsRegular():
		return b.work.Chmod(rel, mode)
	case err == nil:
		return fmt.Errorf("%w, and %q is %s now", errNotRestorable, rel, describe(info.Mode()))
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	err = b.x.objects.Materialize(ctx, hash, b.work, rel, mode)
	if lost, _ := objectstore.IsLost(err); lost {
		return fmt.Errorf("%w, and object %s is gone: %w", errNotRestorable, hash, err)
	}
	return err
}

// lockFile locks a file for as long as it is open, and reports whether another process has it locked. A file system
// without locks has none.
func lockFile(f *os.File) (elsewhere bool) {
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err != unix.EINTR {
			return errors.Is(err, unix.EWOULDBLOCK)
		}
	}
}

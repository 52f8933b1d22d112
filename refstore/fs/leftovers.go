package fs

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	iofs "io/fs"
	"strings"
	"time"

	"github.com/google/uuid"

	"e3/refstore"
)

// RemoveLeftovers removes remains of crashes that are no records: folders of executions with logs and no value, folders
// of side fields without a record, and empty folders of tasks and inputs. It returns the number of removed folders.
// Folders that changed at before or later stay. before must not be later than the beginning of any live session, so
// that a folder stays while a session fills it. If the file system's clock was set back behind the beginning of this
// process's session, ages are unknown, and all stays. Folders that this user may not remove stay as well. It may run at
// any time.
func (s *Store) RemoveLeftovers(ctx context.Context, before time.Time) (folders int, err error) {
	_, began, err := s.Session()
	if err != nil {
		return 0, fmt.Errorf("remove leftovers: %w", err)
	}
	now, err := s.present()
	if err != nil {
		return 0, fmt.Errorf("remove leftovers: %w", err)
	}
	if now.Before(began) {
		return 0, nil
	}
	l := &leftovers{store: s, ctx: ctx, before: before}
	err = errors.Join(l.executions(), l.sideFields())
	if err != nil {
		err = fmt.Errorf("remove leftovers: %w", err)
	}
	return l.removed, err
}

// present is the time of the file system's clock.
func (s *Store) present() (now time.Time, err error) {
	err = s.aside(func(path string) error {
		if _, err := s.files.createFile(path, []byte{0}, false); err != nil {
			return err
		}
		defer s.files.remove(path) // after a failure the end of the session removes the file
		info, err := s.files.lstat(path)
		if err == nil {
			now = info.ModTime()
		}
		return err
	})
	return now, err
}

type leftovers struct {
	store   *Store
	ctx     context.Context
	before  time.Time
	removed int
}

// old reports whether path is older than the cutoff; false if it is missing.
func (l *leftovers) old(path string) (bool, error) {
	info, err := l.store.files.lstat(path)
	if errors.Is(err, iofs.ErrNotExist) {
		return false, nil
	}
	return err == nil && info.ModTime().Before(l.before), err
}

// each calls f for the segments of keys that have a folder in dir, with the folders' paths.
func (l *leftovers) each(dir string, f func(segment, path string) error) error {
	return l.store.files.walk(dir, "", func(rel string, e entry) error {
		if err := l.ctx.Err(); err != nil {
			return err
		}
		path := join(dir, rel)
		segment, ok := unescape(rel)
		if !ok || !l.store.files.is(e, isDir, path) {
			return nil
		}
		return f(segment, path)
	})
}

func (l *leftovers) executions() error {
	return l.each("executions", func(task, taskDir string) error {
		if !isSum(task) {
			return nil
		}
		return l.emptied(taskDir, func() error {
			return l.each(taskDir, func(inputs, inputsDir string) error {
				if !isSum(inputs) {
					return nil
				}
				return l.emptied(inputsDir, func() error {
					return l.each(inputsDir, func(id, path string) error {
						if uuid.Validate(id) != nil {
							return nil
						}
						if err := l.store.files.tree.exists(join(path, executionValue)); !errors.Is(err, iofs.ErrNotExist) {
							return err
						}
						key := refstore.Key{Partition: "EXECUTION/" + task + "/" + inputs, Sort: id}
						return mayStay(l.execution(key, path))
					})
				})
			})
		})
	})
}

// isSum reports whether a segment has the form of a hash. Only what e3 may have named is removed.
func isSum(segment string) bool {
	b, err := hex.DecodeString(segment)
	return err == nil && len(b) == 32
}

// mayStay ignores the error of a file that this user may not remove.
func mayStay(err error) error {
	if errors.Is(err, iofs.ErrPermission) {
		return nil
	}
	return err
}

// emptied calls f on a folder, and then removes the folder if it is empty and was old before the call. f may change the
// folder's time. A writer that finds the folder gone makes it again.
func (l *leftovers) emptied(dir string, f func() error) error {
	old, err := l.old(dir)
	if err == nil {
		err = f()
	}
	if err != nil || !old {
		return err
	}
	return mayStay(l.rmdir(dir))
}

// rmdir removes a folder if it is empty.
func (l *leftovers) rmdir(dir string) error {
	err := l.store.files.remove(dir)
	if err == nil {
		l.removed++
		return nil
	}
	if errors.Is(err, iofs.ErrNotExist) || errors.Is(err, iofs.ErrExist) { // ErrExist: it is not empty
		return nil
	}
	return err
}

// execution removes the folder of an execution that has no value, if this package made all that is in it and all is
// old.
//
// While the shard's lock is held, the folder cannot become a record: a writer finds either all of it or a free name. Logs are
// made and changed under that lock too.
func (l *leftovers) execution(key refstore.Key, path string) error {
	sh, err := l.store.lockShard(l.ctx, key)
	if err != nil {
		return err
	}
	defer sh.Close() // nothing was written
	if err := l.store.files.tree.exists(join(path, executionValue)); !errors.Is(err, iofs.ErrNotExist) {
		return err
	}
	if goes, err := l.mayGo(path, otherLogs); !goes || err != nil {
		return err
	}
	return l.removeDir(path)
}

// mayGo reports whether a folder holds only files of keys, and folders of such files, and all of this is old.
func (l *leftovers) mayGo(path, sub string) (bool, error) {
	if old, err := l.old(path); !old || err != nil {
		return false, err
	}
	entries, err := l.store.files.readDir(path)
	if err != nil {
		return false, err
	}
	for _, e := range entries {
		name := join(path, e.name)
		if (e.name == sub || continues(e.name)) && l.store.files.is(e, isDir, name) {
			if goes, err := l.mayGo(name, ""); !goes || err != nil {
				return false, err
			}
			continue
		}
		if _, ok := unescape(e.name); !ok || !l.store.files.is(e, isFile, name) {
			return false, nil
		}
		if old, err := l.old(name); !old || err != nil {
			return false, err
		}
	}
	return true, nil
}

// removeDir removes and counts a folder.
func (l *leftovers) removeDir(path string) error {
	err := l.store.removeDir(path)
	if errors.Is(err, iofs.ErrNotExist) {
		return nil
	}
	if err == nil {
		l.removed++
	}
	return err
}

// sideFields checks all records that are files.
func (l *leftovers) sideFields() error {
	for _, kind := range []string{"WORKSPACE", "PACKAGE", "TOMBSTONE", "PIN", "CANCEL", "SETTINGS"} {
		if err := l.partition(kind); err != nil {
			return err
		}
	}
	for _, of := range []struct{ folder, kind string }{{"dataflows", "DATAFLOW"}, {"approvals", "APPROVAL"}} {
		if err := l.each(of.folder, func(ws, _ string) error { return l.partition(of.kind + "/" + ws) }); err != nil {
			return err
		}
	}
	for _, kind := range []string{"INDEX", "QUEUE", "LEASE"} {
		p, err := l.store.files.place(kind)
		if err != nil {
			return err
		}
		if err := l.tree(kind, p.dir); err != nil {
			return err
		}
	}
	return nil
}

// tree checks a partition and the partitions below it.
func (l *leftovers) tree(partition, dir string) error {
	if err := l.partition(partition); err != nil {
		return err
	}
	return l.each(dir, func(segment, path string) error {
		sub := partition + "/" + segment
		if err := (refstore.Query{Partition: sub}).Validate(); err != nil {
			return nil // the folder of something else than a partition
		}
		return l.tree(sub, path)
	})
}

// partition removes folders of side fields without a record.
func (l *leftovers) partition(partition string) error {
	p, err := l.store.files.place(partition)
	if err != nil {
		return err
	}
	if !p.paired {
		return l.fieldFolders(p, partition, p.dir, "")
	}
	return l.each(p.dir, func(segment, path string) error { return l.fieldFolders(p, partition, path, segment+"/") })
}

// fieldFolders does the work of partition for one folder of files.
func (l *leftovers) fieldFolders(p place, partition, dir, before string) error {
	return l.store.files.walk(dir, "", func(rel string, e entry) error {
		if err := l.ctx.Err(); err != nil {
			return err
		}
		name, ok := strings.CutSuffix(rel, p.suffix+"~")
		if !ok || !l.store.files.is(e, isDir, join(dir, rel)) {
			return nil
		}
		segment, ok := unescape(name)
		key := refstore.Key{Partition: partition, Sort: before + segment}
		if !ok || key.Validate() != nil {
			return nil
		}
		sl, err := l.store.files.slot(key)
		if err != nil {
			return err
		}
		return mayStay(l.fields(sl))
	})
}

// fields removes the side fields of a missing record. The shard's lock keeps a creator from putting new ones in
// place.
func (l *leftovers) fields(sl slot) error {
	if err := l.store.files.tree.exists(sl.path); !errors.Is(err, iofs.ErrNotExist) {
		return err
	}
	sh, err := l.store.lockShard(l.ctx, sl.key)
	if err != nil {
		return err
	}
	defer sh.Close() // nothing was written
	if err := l.store.files.tree.exists(sl.path); !errors.Is(err, iofs.ErrNotExist) {
		return err
	}
	if goes, err := l.mayGo(sl.fields(), ""); !goes || err != nil {
		return err
	}
	return l.removeDir(sl.fields())
}

package repo

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"sync"
	"time"

	"e3/executions"
	"e3/internal/host/beneath"
	"e3/internal/host/modes"
	"e3/internal/human"
	"e3/internal/jobs/queue"
	"e3/objectstore"
	"e3/objectstore/s3"
	"e3/refstore"
	"e3/refstore/checked"
	reffs "e3/refstore/fs"
	"e3/refstore/lease"
)

// DirName is the folder of a repository in a project.
const DirName = ".e3"

// Create makes an empty private repository in dir, which is made if need be, and returns its path.
func Create(dir string) (string, error) { return createFolder(dir, &format{Access: modes.Private}) }

// CreateTemporary makes an empty repository in the folder root, for a process that removes it: nothing waits for the
// disk.
func CreateTemporary(root string) error {
	f := &format{Access: modes.Private}
	text, err := f.encode()
	if err != nil {
		return err
	}
	in, err := beneath.Open(root)
	if err != nil {
		return err
	}
	defer in.Close()
	m := modes.Of(f.Access, root)
	if err := makeFolders(in, m, f); err != nil {
		return err
	}
	return writeNew(in, formatFile, text, m, (*os.File).Close)
}

func makeFolders(in *beneath.Dir, m modes.Modes, f *format) error {
	folders := []string{"objects", "packages", "executions", "workspaces", "dataflows", "events", "locks", "tmp"}
	if f.Location != "" {
		folders = []string{"tmp"}
	}
	for _, sub := range folders {
		if err := m.MkdirAll(in, sub); err != nil {
			return err
		}
	}
	return nil
}

func createFolder(dir string, f *format) (string, error) {
	root, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	if isRepository(root) {
		return root, fmt.Errorf("%w in %s", ErrExists, root)
	}
	if err := makeRoot(root, f.Access); err != nil {
		return "", fmt.Errorf("create repository: %w", err)
	}
	in, err := beneath.Open(root)
	if err != nil {
		return "", fmt.Errorf("create repository: %w", err)
	}
	defer in.Close()
	m := modes.Of(f.Access, root)
	if err := makeFolders(in, m, f); err != nil {
		return "", fmt.Errorf("create repository: %w", err)
	}
	if f.Location == "" && filepath.Base(root) == DirName {
		if err := ignore(in, m); err != nil {
			return "", fmt.Errorf("create repository: %w", err)
		}
	}
	text, err := f.encode()
	if err != nil {
		return "", err
	}
	aside := asideName()
	defer in.Unlink(aside)
	if err := writeSynced(in, aside, text, m); err != nil {
		return "", fmt.Errorf("create repository: %w", err)
	}
	// The link is exclusive: a folder with this file is a whole repository. After a crash at most the copy is
	// missing, which verify makes.
	err = in.Link(aside, in, formatFile)
	if errors.Is(err, fs.ErrExist) || errors.Is(err, fs.ErrNotExist) && isRepository(root) { // a sweep of another process removed it
		return root, fmt.Errorf("%w in %s", ErrExists, root)
	}
	if err != nil {
		return root, err
	}
	return root, folderFormat(root).write(context.Background(), 1, text)
}

// asideName is a temporary name for a file. It looks like a dead session's, so that a sweep removes the file after a
// crash.
func asideName() string { return filepath.Join("tmp", "session-format-"+rand.Text()) }

// writeSynced makes a file whose bytes are on disk before it gets its final name: a loss of power must not leave a
// repository that cannot be opened.
func writeSynced(in *beneath.Dir, name string, data []byte, m modes.Modes) error {
	return writeNew(in, name, data, m, func(f *os.File) error { return errors.Join(f.Sync(), f.Close()) })
}

// writeNew makes a file, and leaves its end to end.
func writeNew(in *beneath.Dir, name string, data []byte, m modes.Modes, end func(*os.File) error) error {
	f, err := in.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, m.File())
	if err != nil {
		return err
	}
	if err = m.Fix(f, m.File()); err == nil {
		_, err = f.Write(data)
	}
	return errors.Join(err, end(f))
}

// placed are records in a folder. They refuse to write a lease once the folder is no longer where it was opened.
// Everything else works through the open folder, so without that a worker would serve a folder that was moved away,
// or replaced, for ever.
type placed struct {
	*reffs.Store
	root   string
	opened fs.FileInfo
}

func stillThere(root string, records *reffs.Store) refstore.Store {
	opened, err := os.Stat(root)
	if err != nil {
		return records
	}
	return placed{records, root, opened}
}

// Put implements refstore.Store.
func (p placed) Put(ctx context.Context, r refstore.Record) (refstore.Version, error) {
	if now, err := os.Stat(p.root); err != nil || !os.SameFile(now, p.opened) {
		return refstore.Absent, fmt.Errorf("%w at %s any more", ErrNoRepository, p.root)
	}
	return p.Store.Put(ctx, r)
}

// Find returns the root of the repository for a folder location: "." is the .e3 folder here or in a folder above,
// which must be this user's or trusted; any other location is a repository, or a folder with a repository in it.
func Find(location string) (string, error) {
	if err := CheckFolder(location); err != nil {
		return "", err
	}
	dir, err := filepath.Abs(location)
	if err != nil {
		return "", err
	}
	if location != "." {
		for _, root := range []string{dir, filepath.Join(dir, DirName)} {
			if isRepository(root) {
				return root, nil
			}
			if err := closedTo(root); err != nil {
				return "", err
			}
		}
		return "", fmt.Errorf("%w at %s; make one with: e3 init %s", ErrNoRepository, human.Line(location), human.Quoted(location))
	}
	root, err := FindAbove(dir)
	if errors.Is(err, ErrNoRepository) {
		err = fmt.Errorf("%w here or in a folder above; make one with: e3 init", err)
	}
	if err != nil {
		return "", err
	}
	return root, nil
}

func isRepository(dir string) bool {
	_, ok := formatPath(dir)
	return ok
}

// openFolder opens a repository in a folder, whose objects may be elsewhere.
func (r *Repo) openFolder(ctx context.Context, root string, f *format) (*stores, error) {
	r.signing.required = f.SignedExecutions
	m := modes.Of(f.Access, root)
	var scratch *scratch
	records, err := reffs.Open(root, reffs.Options{
		BareJobs: true,
		Narrow:   true,
		Modes:    m,
		Now:      r.opts.Now,
		Mend:     func(ctx context.Context, since time.Time) error { return r.mend(ctx, f.Objects != nil, since) },
		Boot:     sync.OnceValue(func() string { return boot(root) }),
		Waiting:  r.waiting,
		Also:     func(ctx context.Context) (int, error) { return scratch.Sweep(ctx) },
	})
	if err != nil {
		return nil, err
	}
	r.onClose(records.Close)
	objects, err := objectstore.OpenDir(filepath.Join(root, "objects"), objectstore.Options{
		Session: records.Session, Modes: m, Wrote: reffs.Wrote(records), Root: records.Root(), Waiting: r.waiting,
	})
	if err != nil {
		return nil, err
	}
	scratch = newScratch(r, realPath(root), records)
	r.onClose(scratch.Close)
	sums := checked.New(records, false)
	s := &stores{
		records: &summedFolder{sums, folderBelow{records}}, objects: objects, local: sums, here: scratch, files: records,
		folder: realPath(root), modes: m,
	}
	if f.Objects == nil {
		s.queue = queue.Store{Store: s.records, Files: checked.NewFiles(records)}
		s.plain = newMembers(func() *lease.Leases { return r.leases(stillThere(root, records), nil, 0, 0, false) })
		s.leases = s.plain.leases()
		r.onClose(s.plain.Close)
		return s, nil
	}
	var sendsDeletions sending
	bucket, err := r.bucket(ctx, f.Objects, &sendsDeletions)
	if err != nil {
		return nil, err
	}
	r.place = &place{objects: bucket, at: f.Objects.String(), id: f.ID, command: r.takeCommand(), root: root, folder: folderNumber(root), warn: r.warn}
	sessions := r.leases(records, bucket, 0, 0, false)
	sendsDeletions = sessions.Sending()
	r.onClose(sessions.Close)
	s.leases = sessions
	both := &folderRecords{folderBelow{records}, sessions, sessions.Sending(), r.opts.Now, bucket, r.warn}
	s.records = &summedBeside{checked.New(both, false), besideBelow{both}}
	s.queue = queue.Store{Store: s.records, Files: checked.NewFiles(both)}
	s.objects, err = r.cached(objects, bucket, guard{sessions, r.place}, 0)
	return s, err
}

// folderRecords are records in a folder beside objects in S3. The kernel knows the holders of locks, but a collection
// needs the sessions' answers (doc/design.md, "A repository that a team shares").
type folderRecords struct {
	folderBelow // the sessions below, which all machines know, hide its own
	sessions
	sending sending
	now     func() time.Time
	bucket  *s3.Bucket
	warn    func(error)
}

// sessions are the sessions that collections of the objects in S3 ask. Without a session this process's objects may
// be collected, even while it holds the locks.
type sessions interface {
	refstore.Sessions
	refstore.SessionClock
	refstore.Outlasting
	refstore.Barrier
	// Suspended is the time that this process has spent without a valid lease ([lease.Leases]).
	Suspended() time.Duration
	// Sweep removes the sessions of dead processes.
	Sweep(ctx context.Context) (int, error)
}

// Put implements [refstore.Store]. A lost session names no objects: its stored objects may have been collected.
func (f *folderRecords) Put(ctx context.Context, r refstore.Record) (refstore.Version, error) {
	if err := f.mayWrite(ctx, r.Key.Partition); err != nil {
		return refstore.Absent, err
	}
	return f.Store.Put(ctx, r)
}

// Move implements [queue.Files].
func (f *folderRecords) Move(ctx context.Context, from refstore.Key, v refstore.Version, r refstore.Record) (refstore.Version, error) {
	if err := errors.Join(f.mayWrite(ctx, from.Partition), f.mayWrite(ctx, r.Key.Partition)); err != nil {
		return refstore.Absent, err
	}
	return f.Store.Move(ctx, from, v, r)
}

// Alias implements [queue.Files].
func (f *folderRecords) Alias(ctx context.Context, key, alias refstore.Key) error {
	if err := f.mayWrite(ctx, alias.Partition); err != nil {
		return err
	}
	return f.Store.Alias(ctx, key, alias)
}

// PutUnaliased implements [queue.Files].
func (f *folderRecords) PutUnaliased(ctx context.Context, r refstore.Record, alias refstore.Key) (refstore.Version, bool, error) {
	if err := errors.Join(f.mayWrite(ctx, r.Key.Partition), f.mayWrite(ctx, alias.Partition)); err != nil {
		return refstore.Absent, false, err
	}
	return f.Store.PutUnaliased(ctx, r, alias)
}

// PutSync is Put, durable when it returns.
func (f *folderRecords) PutSync(ctx context.Context, r refstore.Record) (refstore.Version, error) {
	if err := f.mayWrite(ctx, r.Key.Partition); err != nil {
		return refstore.Absent, err
	}
	return f.Store.PutSync(ctx, r)
}

// Delete implements [refstore.Store]: a process that lost its session deletes nothing either, here or in streams.
func (f *folderRecords) Delete(ctx context.Context, key refstore.Key, v refstore.Version) error {
	if err := f.mayWrite(ctx, key.Partition); err != nil {
		return err
	}
	return f.Store.Delete(ctx, key, v)
}

// Append implements [refstore.Streams].
func (f *folderRecords) Append(ctx context.Context, key refstore.Key, offset int64, data []byte) error {
	if err := f.mayWrite(ctx, key.Partition); err != nil {
		return err
	}
	return f.Store.Append(ctx, key, offset, data)
}

// Cut implements [refstore.Streams].
func (f *folderRecords) Cut(ctx context.Context, key refstore.Key, size int64) error {
	if err := f.mayWrite(ctx, key.Partition); err != nil {
		return err
	}
	return f.Store.Cut(ctx, key, size)
}

// Seal implements [refstore.Streams].
func (f *folderRecords) Seal(ctx context.Context, key refstore.Key) error {
	if err := f.mayWrite(ctx, key.Partition); err != nil {
		return err
	}
	return f.Store.Seal(ctx, key)
}

// Remove implements [refstore.Streams].
func (f *folderRecords) Remove(ctx context.Context, key refstore.Key) error {
	if err := f.mayWrite(ctx, key.Partition); err != nil {
		return err
	}
	return f.Store.Remove(ctx, key)
}

// mayWrite returns why this process may not write any more. After a sleep or a suspension the lease's clock may not
// show the loss; the wall clock does, once it is set right.
func (f *folderRecords) mayWrite(ctx context.Context, partition string) error {
	if err := f.sending(ctx, f.now()); err != nil && !errors.Is(err, fs.ErrClosed) {
		return fmt.Errorf("write to %s: %w", partition, err)
	}
	return nil
}

// RemoveLeftovers removes what crashes have left in the folder and in S3. before is by S3's clock; for the folder,
// the file system's clock counts.
func (f *folderRecords) RemoveLeftovers(ctx context.Context, before time.Time) (int, error) {
	here, err := f.Store.SessionBegan(ctx) // not later than now
	if err != nil {
		return 0, err
	}
	there, err := f.SessionNow(ctx)
	if err != nil {
		return 0, err
	}
	return removeEach(
		func() (int, error) { return f.Store.RemoveLeftovers(ctx, here.Add(before.Sub(there))) },
		func() (int, error) { return removeUploads(ctx, f.bucket, before, f.warn) },
	)
}

// Sweep removes the sessions of dead processes, of both kinds.
func (f *folderRecords) Sweep(ctx context.Context) (int, error) {
	n, err := f.Store.Sweep(ctx)
	if err != nil {
		return n, err
	}
	m, err := f.sessions.Sweep(ctx)
	return n + m, err
}

// boot identifies this machine, this start of it and this mount of the repository's file system, as far as known.
func boot(root string) string {
	id := self().BootID
	if id == "" {
		return ""
	}
	return self().Host + " " + id + " " + mountID(root)
}

// mend is called by the sweep of the first start after a loss of power.
func (r *Repo) mend(ctx context.Context, elsewhere bool, since time.Time) error {
	var objects executions.StoredObjects = r.Objects
	if elsewhere {
		objects = intact{}
	}
	return r.Executions.Mend(ctx, objects, executions.NewGeneration(r.Records, r.Records), since)
}

// intact is an object store that a loss of power here does not damage.
type intact struct{}

func (intact) Walk(context.Context) iter.Seq2[objectstore.Entry, error] {
	return func(func(objectstore.Entry, error) bool) {}
}

func (intact) Verify(context.Context, objectstore.Hash) error { return nil }

func (intact) Delete(context.Context, objectstore.Hash) error { return nil }

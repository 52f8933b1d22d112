package repo

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"e3/internal/format/moment"
	"e3/internal/host/modes"
	"e3/internal/jobs/queue"
	"e3/objectstore"
	objoverlay "e3/objectstore/overlay"
	"e3/refstore"
	"e3/refstore/checked"
	reffs "e3/refstore/fs"
	"e3/refstore/lease"
	"e3/refstore/overlay"
)

// An OverlayMode says whether a repository is opened with this machine's overlay: the records that it has made
// without the right to write in the repository (doc/design.md, §15, "Overlays").
type OverlayMode int

// The modes.
const (
	WithoutOverlay OverlayMode = iota
	SeeOverlay                 // with the overlay, if this machine has one in use
	KeepOverlay                // with the overlay, which is made if need be: everything written stays in it
)

// overlayInUse is a file in an overlay's folder: while it exists, commands that read see the overlay.
const overlayInUse = "in-use"

// Overlay is the folder in which this machine keeps what is written here; "" if it is written to the repository.
func (r *Repo) Overlay() string {
	if r.stores.overlaid {
		return r.overlay
	}
	return ""
}

// Writable begins this process's session, and returns a refstore.ErrReadOnly if this process may not write. It makes
// only requests that a start makes too.
func (r *Repo) Writable(ctx context.Context) error {
	var beside sync.WaitGroup
	if r.stores.far { // the settings are needed next; meanwhile the session begins
		beside.Go(func() { _, _ = r.Settings(ctx) })
	}
	_, err := r.Records.SessionBegan(ctx)
	beside.Wait()
	if errors.Is(err, refstore.ErrReadOnly) {
		return err
	}
	return nil // the first write reports any other failure
}

// DropOverlay ends the use of this machine's overlay by commands that read, and reports whether there was one in use.
// Its files stay: executions that were made in it may be wanted.
func (r *Repo) DropOverlay() (folder string, dropped bool) {
	err := os.Remove(filepath.Join(r.overlay, overlayInUse))
	return r.overlay, err == nil
}

// overlayFolder is the folder of this machine's overlay of a repository, which need not exist.
func (r *Repo) overlayFolder(s *stores) (string, error) {
	if l, ok := s.here.(*localStore); ok {
		return filepath.Join(l.path, "overlay"), nil
	}
	dir, err := r.cacheDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, machineFolder(realPath(r.Root)), "overlay"), nil
}

// overlaid puts this machine's overlay over the stores of a repository, if the mode says so.
func (r *Repo) overlaid(s *stores) (*stores, error) {
	var err error
	if r.overlay, err = r.overlayFolder(s); err != nil {
		if r.opts.Overlay == KeepOverlay {
			return nil, err
		}
		return s, nil
	}
	mark := filepath.Join(r.overlay, overlayInUse)
	switch r.opts.Overlay {
	case WithoutOverlay:
		return s, nil
	case SeeOverlay:
		if r.offline != nil { // there is nothing else to open
			if err := os.MkdirAll(r.overlay, 0o700); err != nil {
				return nil, err
			}
			break
		}
		if _, err := os.Lstat(mark); err != nil {
			return s, nil
		}
	case KeepOverlay:
		err := os.MkdirAll(r.overlay, 0o700)
		if err == nil {
			err = r.markOverlay(mark)
		}
		if err != nil {
			return nil, fmt.Errorf("keep on this machine what is made: %w; %s names another folder", err, CacheDirVariable)
		}
	}
	if err := checkOwned(r.overlay); err != nil {
		return nil, err
	}
	return r.openOverlay(s)
}

// openOverlay opens the overlay's stores.
func (r *Repo) openOverlay(s *stores) (*stores, error) {
	m := modes.Of(modes.Private, r.overlay)
	files, err := reffs.Open(r.overlay, reffs.Options{
		Now: r.opts.Now, Modes: m, Boot: sync.OnceValue(func() string { return boot(r.overlay) }), DeadSession: r.closeLeft, Narrow: true, Waiting: r.waiting,
	})
	if err != nil {
		return nil, err
	}
	r.onClose(files.Close)
	dir, err := objectstore.OpenDir(filepath.Join(r.overlay, "objects"), objectstore.Options{Session: files.Session, Modes: m, Wrote: reffs.Wrote(files), Waiting: r.waiting})
	if err != nil {
		return nil, err
	}
	local := &summedFolder{checked.New(files, false), folderBelow{files}}
	var base overlay.Base = s.records
	var objects objoverlay.Base = s.objects
	if r.offline != nil {
		base, objects = r.offline.records, r.offline.objects
	}
	records := &overlaidRecords{overlay.New(base, local), local, local}
	over := &stores{
		records: records, objects: objoverlay.New(objects, dir), local: s.local, here: files, files: files, folder: s.folder,
		modes: m, lookups: s.lookups, far: s.far, overlaid: true,
	}
	if far, ok := objects.(interface{ Parallel() int }); ok {
		over.objects = objoverlay.NewFar(objects, dir, far.Parallel())
	}
	if f, ok := base.(finder); ok {
		over.records = &overlaidShared{records, f}
	}
	// Records are under the keys that they have in the base.
	over.queue = queue.Store{Store: over.records, Spread: s.queue.Spread}
	if s.derived == nil { // the links are in the repository too
		over.local = over.records
	} else {
		over.derived = over.records
	}
	over.plain = newMembers(func() *lease.Leases { return r.leases(local, nil, 0, 0, false) })
	over.leases = over.plain.leases()
	r.onClose(over.plain.Close)
	return over, nil
}

// overlaidRecords are records that are read from a repository and written to this machine.
type overlaidRecords struct {
	*overlay.Store
	machine
	local *summedFolder
}

// machine is the store of what was written here. All its files and processes belong to this machine.
type machine interface {
	// Sync makes what was written here durable.
	Sync(ctx context.Context) error
	// Sweep removes the remains of dead processes of this machine.
	Sweep(ctx context.Context) (int, error)
	// RemoveLeftovers removes data of this machine that no record names.
	RemoveLeftovers(ctx context.Context, before time.Time) (int, error)
	// AdoptStream makes a file a stream here.
	AdoptStream(ctx context.Context, key refstore.Key, path string) error
}

var _ Records = (*overlaidRecords)(nil)

func (o *overlaidRecords) own() *summedFolder { return o.local }

// finder finds executions by their ids.
type finder interface {
	FindExecutions(ctx context.Context, prefix string) iter.Seq2[refstore.Key, error]
}

// overlaidShared are overlaidRecords over a store that finds executions.
type overlaidShared struct {
	*overlaidRecords
	shared finder
}

// FindExecutions yields the keys of executions of this machine and of the repository.
func (o *overlaidShared) FindExecutions(ctx context.Context, prefix string) iter.Seq2[refstore.Key, error] {
	return func(yield func(refstore.Key, error) bool) {
		for key, err := range o.local.executions(ctx) {
			if (err != nil || strings.HasPrefix(key.Sort, prefix)) && !yield(key, err) {
				return
			}
		}
		for key, err := range o.shared.FindExecutions(ctx, prefix) {
			if !yield(key, err) {
				return
			}
		}
	}
}

// executions yields the keys of all executions in a folder.
func (s *summedFolder) executions(ctx context.Context) iter.Seq2[refstore.Key, error] {
	return func(yield func(refstore.Key, error) bool) {
		list := func(partition string, each func(sort string) bool) bool {
			for rec, err := range s.List(ctx, refstore.Query{Partition: partition, KeysOnly: true}) {
				switch {
				case err != nil:
					yield(refstore.Key{}, err)
					return false
				case !each(rec.Key.Sort):
					return false
				}
			}
			return true
		}
		list("TASKS", func(task string) bool {
			return list("INPUTS/"+task, func(inputs string) bool {
				partition := "EXECUTION/" + task + "/" + inputs
				return list(partition, func(id string) bool {
					return yield(refstore.Key{Partition: partition, Sort: id}, nil)
				})
			})
		})
	}
}

// OverlayExecutions yields the keys of the executions that are on this machine, also of those that were sent since.
func (r *Repo) OverlayExecutions(ctx context.Context) iter.Seq2[refstore.Key, error] {
	if o, ok := r.Records.(interface{ own() *summedFolder }); ok {
		return o.own().executions(ctx)
	}
	return func(func(refstore.Key, error) bool) {}
}

// Own describes this machine's overlay over a repository to which it may not write.
type Own struct {
	Folder     string      `json:"folder"`
	Executions int         `json:"executions"`
	Unsent     bool        `json:"unsent,omitempty"` // made offline; the next start sends them
	Offline    moment.Time `json:"offline,omitzero"` // when the repository was last seen
}

// Own describes the overlay; nil without one.
func (r *Repo) Own(ctx context.Context) (*Own, error) {
	folder := r.Overlay()
	if folder == "" {
		return nil, nil
	}
	n, err := r.OverlaySize(ctx)
	own := &Own{Folder: folder, Executions: n, Unsent: r.Unsent()}
	if at, ok := r.Offline(); ok {
		own.Offline = moment.At(at)
	}
	return own, err
}

// OverlaySize counts the executions that are on this machine alone; 0 without an overlay.
func (r *Repo) OverlaySize(ctx context.Context) (n int, err error) {
	for key, err := range r.OverlayExecutions(ctx) {
		if err != nil {
			return 0, err
		}
		sent, err := r.Records.(interface {
			InBase(ctx context.Context, key refstore.Key) (bool, error)
		}).InBase(ctx, key)
		if err != nil {
			return 0, err
		}
		if !sent {
			n++
		}
	}
	return n, nil
}

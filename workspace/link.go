package workspace

import (
	"context"
	"errors"
	"fmt"

	"e3/internal/format/record"
	"e3/refstore"
)

func linkKey(ws string) refstore.Key { return refstore.Key{Partition: "INDEX/links", Sort: ws} }

// remembered reads this machine's record of the workspace's package file, whether or not the workspace still follows
// the file. It returns nil if there is none.
func (w *links) remembered(ctx context.Context, ws string) (*record.Link, error) {
	l, err := w.anyLink(ctx, ws)
	if err != nil || l == nil || l.File == "" {
		return nil, err
	}
	return l, nil
}

// anyLink is like remembered, but also returns a link that has ended. Such a link names no file; it holds the set
// inputs.
func (w *links) anyLink(ctx context.Context, ws string) (*record.Link, error) {
	rec, err := w.Local.Get(ctx, linkKey(ws))
	if errors.Is(err, refstore.ErrNotFound) {
		return nil, nil
	}
	if errors.Is(err, refstore.ErrDamaged) {
		return nil, fmt.Errorf("link of workspace %s: %w; %w", ws, err, errBadLink)
	}
	if err != nil {
		return nil, fmt.Errorf("link of workspace %s: %w", ws, err)
	}
	return w.readLink(ws, rec.Value)
}

// errBadLink is wrapped when a link exists but cannot be read. The causes are damage, or a power loss after a run
// that did not sync. Deploying the file again repairs it.
var errBadLink = errors.New("deploy the package file again")

func decodeLink(ws string, data []byte) (*record.Link, error) {
	l, err := record.DecodeLink(data)
	if err != nil {
		return nil, fmt.Errorf("link of workspace %s: %w; %w", ws, err, errBadLink)
	}
	return l, nil
}

// saveLink replaces a workspace's link, but not the marks of set inputs: "e3 set" takes no lock, so marks that it
// made meanwhile are kept. marks, which may be nil, maps the present marks to the marks to keep. A durable link
// survives power loss; without its link a workspace does not know which file it follows.
func (w *links) saveLink(ctx context.Context, ws string, l *record.Link, durable bool, marks func([]string) []string) error {
	put := w.Local.Put
	if durable {
		put = w.Local.PutSync
	}
	for {
		rec, err := w.Local.Get(ctx, linkKey(ws))
		l.Set = nil
		switch {
		case errors.Is(err, refstore.ErrNotFound), errors.Is(err, refstore.ErrDamaged):
		case err != nil:
			return fmt.Errorf("link of workspace %s: %w", ws, err)
		default:
			if now, err := record.DecodeLink(rec.Value); err == nil {
				l.Set = now.Set
			}
		}
		if marks != nil {
			l.Set = marks(l.Set)
		}
		_, err = put(ctx, refstore.Record{Key: linkKey(ws), Value: w.writeLink(l), Version: rec.Version})
		if err == nil {
			return nil
		}
		if !errors.Is(err, refstore.ErrConflict) {
			return fmt.Errorf("link of workspace %s: %w", ws, err)
		}
		// Another process of this machine may hold the workspace by now. What a process without the lock writes about
		// files is still true, and the next start repairs a link that does not fit the state.
		if err := w.confirm(ctx, ws); err != nil {
			return err
		}
	}
}

// LinkedTo returns the package file that a workspace follows. It returns "" if the workspace follows none, has
// nothing deployed or does not exist.
func (w *Deployer) LinkedTo(ctx context.Context, ws string) (string, error) {
	rec, err := w.states.readState(ctx, ws)
	if errors.Is(err, refstore.ErrNotFound) || err == nil && len(rec.Value) == 0 {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("workspace %s: %w", ws, err)
	}
	s, err := decodeState(ws, rec)
	if err != nil {
		return "", err
	}
	l, err := w.states.links.link(ctx, ws, s)
	if errors.Is(err, errBadLink) {
		return "", nil
	}
	if err != nil || l == nil {
		return "", err
	}
	return l.File, nil
}

// DeployNew builds a package file and deploys it in the named workspace, which is created if necessary. Without a
// name, it uses the package's name, or the first of that name and a number that no other clone follows. So a clone
// only replaces another's deployment if its user names the workspace. read is the file if CheckFile has read it, else nil.
func (w *Deployer) DeployNew(ctx context.Context, ws, file string, read *PackageFile) (string, *Built, error) {
	release := func() {}
	defer func() { release() }()
	if read == nil {
		var err error
		if read, err = w.states.readFile(file); err != nil {
			return "", nil, err
		}
	}
	built, err := w.buildBeside(ctx, read, nil, func(built *Built) (roots []*State, err error) {
		roots, release, err = w.states.similar(ctx, ws, built)
		return roots, err
	})
	if err != nil {
		return "", nil, err
	}
	if ws != "" {
		return ws, built, w.deployNamed(ctx, ws, built, func(context.Context) error { return nil })
	}
	for {
		if ws, built.Instead, err = w.states.ownName(ctx, built.Package.Name, built.Link.File); err != nil {
			return "", nil, err
		}
		if err := w.states.overwrite(ctx, w.states.Local, fileKey(w.states.links.noted(built.Link.File)), []byte(ws), nil); err != nil {
			return "", nil, err
		}
		err := w.deployNamed(ctx, ws, built, func(ctx context.Context) error {
			taken, err := w.states.takenBy(ctx, ws, built.Link.File)
			if err == nil && taken != nil {
				err = errTaken
			}
			return err
		})
		if !errors.Is(err, errTaken) {
			return ws, built, err
		}
	}
}

// errTaken says that another clone deployed in the workspace first.
var errTaken = errors.New("another clone has the workspace")

// deployNamed deploys in a workspace, which is created if necessary. free runs under the lock and fails if the
// workspace is not free any more.
func (w *Deployer) deployNamed(ctx context.Context, ws string, built *Built, free func(context.Context) error) error {
	if err := w.states.Create(ctx, ws); err != nil && !errors.Is(err, ErrExists) {
		return err
	}
	ctx, lock, err := w.states.lockExisting(ctx, ws, record.Deployment)
	if err != nil {
		return err
	}
	defer lock.Unlock()
	if err := free(ctx); err != nil {
		return lock.explain(ctx, err)
	}
	return lock.explain(ctx, w.deployBuilt(ctx, lock, built, true))
}

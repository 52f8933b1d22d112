package executions

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"e3/internal/format/image"
	"e3/internal/host/kept"
	"e3/internal/host/room"
	"e3/internal/host/rootfs"
	"e3/internal/host/runner"
	"e3/objectstore"
)

// images unpacks the images of tasks, each once on this machine for this user, and lends their files to closed rooms.
// Rooms see the files read-only.
type images struct {
	objects objectstore.Store
	folder  func() (string, error) // of this user; nil: none is kept

	mu   sync.Mutex // also held while an image is unpacked, so that several commands wait for it once
	open map[string]*unpacked
}

// An unpacked is an image that this process uses.
type unpacked struct {
	root *kept.Folder
	env  []string // what the image sets for its programs
}

// lend returns the files of an image. An error of the image, or of this machine, is a *roomError.
func (p *images) lend(ctx context.Context, hash string) (*unpacked, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if u := p.open[hash]; u != nil {
		return u, nil
	}
	u, err := p.openOrUnpack(ctx, hash)
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case errors.Is(err, objectstore.ErrNotFound):
		return nil, &roomError{err: fmt.Errorf("image sha256:%.12s is not whole in the repository (%w): e3 image pull fetches it", hash, err)}
	case errors.Is(err, rootfs.ErrLayer), errors.Is(err, image.ErrNoManifest), errors.Is(err, errors.ErrUnsupported):
		return nil, &roomError{err: fmt.Errorf("image sha256:%.12s cannot be used: %w", hash, err)}
	case err != nil:
		return nil, fmt.Errorf("image sha256:%.12s: %w", hash, err)
	}
	if p.open == nil {
		p.open = map[string]*unpacked{}
	}
	p.open[hash] = u
	return u, nil
}

// openOrUnpack opens an image that is unpacked, or unpacks it.
func (p *images) openOrUnpack(ctx context.Context, hash string) (*unpacked, error) {
	if p.folder == nil || !room.Possible() {
		return nil, &roomError{err: errors.New("no image can be unpacked here"), here: true}
	}
	h, err := objectstore.ParseHash(hash)
	if err != nil {
		return nil, err
	}
	m, c, err := readImage(ctx, p.objects, h)
	if err != nil {
		return nil, err
	}
	here := image.Platform{OS: runtime.GOOS, Architecture: runtime.GOARCH}
	if c.OS != here.OS || c.Architecture != here.Architecture {
		return nil, &roomError{err: fmt.Errorf("image sha256:%.12s is for %s, and this machine is %s", hash, c.Platform, here), here: true}
	}
	folder, err := p.folder()
	if err != nil {
		return nil, err
	}
	root, err := kept.Folders(folder).Open(ctx, hash, &kept.Maker{
		Make: func(to, _ string) (string, error) {
			if err := unpack(ctx, p.objects, m, c, to); err != nil {
				return "", err
			}
			return rootfs.Fingerprint(to)
		},
		Fits: func(folder, mark string) (bool, error) {
			now, err := rootfs.Fingerprint(folder)
			return now == mark, err
		},
	})
	return &unpacked{root: root, env: c.Env}, err
}

// readImage reads what describes an image.
func readImage(ctx context.Context, objects objectstore.Store, h objectstore.Hash) (*image.Manifest, *image.Config, error) {
	data, err := objectstore.ReadAll(ctx, objects, h, image.MaxManifest)
	if err != nil {
		return nil, nil, err
	}
	m, err := image.DecodeManifest(data)
	if err != nil {
		return nil, nil, err
	}
	parts := m.Hashes()
	if data, err = objectstore.ReadAll(ctx, objects, parts[0], image.MaxManifest); err != nil {
		return nil, nil, err
	}
	c, err := image.DecodeConfig(data, len(m.Layers))
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", image.ErrNoManifest, err)
	}
	return m, c, nil
}

// unpack makes the root file system of a room from an image.
func unpack(ctx context.Context, objects objectstore.Store, m *image.Manifest, c *image.Config, to string) (err error) {
	u, err := rootfs.New(to, rootfs.Limits{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, u.Close()) }()
	for i, h := range m.Hashes()[1:] {
		if err := unpackLayer(ctx, u, objects, h, c.DiffIDs[i]); err != nil {
			return fmt.Errorf("layer %d of %d: %w", i+1, len(m.Layers), err)
		}
	}
	if err := u.Prepare(&rootfs.Base{Folders: room.RootFolders, Files: room.RootFiles(), Accounts: room.Accounts()}); err != nil {
		return err
	}
	return u.Finish()
}

// unpackLayer checks that the layer is the one that the configuration names.
func unpackLayer(ctx context.Context, u *rootfs.Unpacker, objects objectstore.Store, h, diffID objectstore.Hash) error {
	r, err := objects.Open(ctx, h)
	if err != nil {
		return err
	}
	defer r.Close() // nothing was written
	layer, err := rootfs.Decompress(r)
	if err != nil {
		return err
	}
	defer layer.Close()
	sum := sha256.New()
	if err := u.Layer(io.TeeReader(cancellable{ctx, layer}, sum)); err != nil {
		return err
	}
	if got := objectstore.Hash(sum.Sum(nil)); got != diffID {
		return fmt.Errorf("%w: its content has the digest sha256:%s, and the configuration names sha256:%s", rootfs.ErrLayer, got, diffID)
	}
	return nil
}

// cancellable ends a long read with its context.
type cancellable struct {
	ctx context.Context
	r   io.Reader
}

func (c cancellable) Read(b []byte) (int, error) {
	if c.ctx.Err() != nil {
		return 0, context.Cause(c.ctx)
	}
	return c.r.Read(b)
}

// maxUnusedImage is the time for which an unused image is kept.
const maxUnusedImage = 7 * 24 * time.Hour

// closeAll ends the use of all images, and removes old ones.
func (p *images) closeAll(now time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for _, u := range p.open {
		errs = append(errs, u.root.Close())
	}
	if len(p.open) > 0 { // only a process that used an image looks after the others
		folder, err := p.folder()
		if err == nil {
			_, err = kept.Folders(folder).Trim(now, kept.Bound{Age: maxUnusedImage}, false)
		}
		errs = append(errs, err)
	}
	p.open = nil
	return errors.Join(errs...)
}

// defaultPath is the PATH of an image that sets none.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// environment is what an image sets for its programs. Variables of the room, and names that begin with E3_, are left
// out.
func (u *unpacked) environment() []string {
	env := []string{"PATH=" + defaultPath}
	for _, e := range u.env {
		name, _, ok := strings.Cut(e, "=")
		if ok && name != "" && !strings.ContainsRune(e, 0) && !strings.HasPrefix(name, "E3_") && !slices.Contains([]string{"HOME", "TMPDIR", "PWD", ceiling}, name) {
			env = append(env, e)
		}
	}
	return env
}

// adviceInImage says what to do if the image lacks the command.
func (a *assignment) adviceInImage(e *runner.StartError) string {
	if a.image != nil && a.spec.Argv == nil && e.Path == "bash" && errors.Is(e, fs.ErrNotExist) {
		return "; a script needs bash: without it, write the command as a list, such as [sh, -euc, ...]"
	}
	return ""
}

// openImage makes the files of the task's image ready. A fault of the image is reported only when the command is
// about to start.
func (a *assignment) openImage(ctx context.Context) error {
	if a.spec.Image == "" {
		return nil
	}
	u, err := a.x.images.lend(ctx, a.spec.Image)
	var lacking *roomError
	if errors.As(err, &lacking) {
		a.image, a.noImage = &unpacked{}, lacking
		return nil
	}
	a.image = u
	return err
}

package repo

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"e3/internal/host/atomicfile"
	"e3/internal/host/modes"
	"e3/objectstore"
	"e3/refstore/checked"
	reffs "e3/refstore/fs"
	"e3/refstore/known"
)

// ErrNotKnown says that a repository cannot be used offline.
var ErrNotKnown = errors.New("it cannot be used offline")

// knowledge is what this machine knows of a shared repository without asking it.
type knowledge struct {
	Location string    `json:"location"`
	Here     string    `json:"here"` // the name of this machine's folders for the repository
	At       time.Time `json:"at"`   // when a start last reached it
}

// offlineBase stands in for the stores of a repository that is not asked.
type offlineBase struct {
	records *known.Offline
	objects *objectstore.Dir // copies, some of which may have gone
	at      time.Time
}

// Offline returns when this machine last reached the repository, if the repository is not asked.
func (r *Repo) Offline() (since time.Time, offline bool) {
	if r.offline == nil {
		return time.Time{}, false
	}
	return r.offline.at, true
}

// knowledgeFile is where this machine keeps what it knows of a location. Parameters that say how to reach it are part
// of the name, since two servers may have tables of one name.
func (r *Repo) knowledgeFile(l *sharedLocation) (string, error) {
	dir := r.opts.Getenv(CacheDirVariable)
	if dir == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return "", err
		}
		dir = filepath.Join(user, "e3")
	}
	name := objectstore.Sum([]byte("e3 known\x00" + l.String() + "\x00" + l.address())).String()[:32]
	return filepath.Abs(filepath.Join(dir, "known-"+name+".json"))
}

// openKnown opens the remembered records of a repository, in this machine's folder for it.
func (r *Repo) openKnown(copies *localStore) (*known.Memory, error) {
	path := filepath.Join(copies.path, "known")
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, err
	}
	files, err := reffs.Open(path, reffs.Options{Now: r.opts.Now, Modes: modes.Of(modes.Private, path), Waiting: r.waiting})
	if err != nil {
		return nil, err
	}
	r.onClose(files.Close)
	m := known.NewMemory(checked.New(files, false))
	r.onClose(m.Close)
	return m, nil
}

// rememberedShared are records of a shared repository that this machine remembers.
type rememberedShared struct {
	*known.Records
	summedBelow
}

type summedBelow struct{ *summedShared }

var _ Records = (*rememberedShared)(nil)

// remember makes this machine remember the records that it reads from a shared repository, for offline starts. It
// returns nil if there is no place for it.
func (r *Repo) remember(
	summed *summedShared, l *sharedLocation, here string, copies *localStore,
) (*rememberedShared, error) {
	path, err := r.knowledgeFile(l)
	if err != nil {
		return nil, nil
	}
	m, err := r.openKnown(copies)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(knowledge{l.String(), here, r.opts.Now().UTC()})
	if err == nil {
		err = atomicfile.WriteFile(path, append(text, '\n'), atomicfile.Options{Perm: 0o600})
	}
	if err != nil {
		return nil, err
	}
	return &rememberedShared{known.Remember(summed, m), summedBelow{summed}}, nil
}

// openOffline opens what this machine knows of a shared repository, without a request to another machine.
func (r *Repo) openOffline(l *sharedLocation) (*stores, error) {
	path, err := r.knowledgeFile(l)
	if err != nil {
		return nil, err
	}
	var k knowledge
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: this machine has never reached %s by this location; start once while it can", ErrNotKnown, l)
	}
	if err == nil {
		err = json.Unmarshal(data, &k)
	}
	if err != nil || k.Here == "" {
		return nil, fmt.Errorf("%w: what this machine knows of %s is unreadable: %w", ErrNotKnown, l, err)
	}
	copies, err := r.localStore(CacheDirVariable, os.UserCacheDir, k.Here)
	if err != nil {
		return nil, err
	}
	links, err := r.localStore(StateDirVariable, stateDir, k.Here)
	if err != nil {
		return nil, err
	}
	m, err := r.openKnown(copies)
	if err != nil {
		return nil, err
	}
	dir, err := objectstore.OpenDir(filepath.Join(copies.path, "objects"), objectstore.Options{Session: copies.Session, Modes: modes.Of(modes.Private, copies.path), Waiting: r.waiting})
	if err != nil {
		return nil, err
	}
	r.offline = &offlineBase{m.Offline(), dir, k.At}
	local := checked.New(links, false)
	return &stores{local: local, derived: local, here: copies, far: true}, nil
}

// offlineOnly refuses a repository that is always within reach.
func offlineOnly(root string) error {
	return fmt.Errorf("%w: its records are in the folder %s of this machine, so leave --offline out", ErrNotKnown, root)
}

// markOffline is the content of the mark of an overlay that was used offline, and is to be sent.
const markOffline = "offline\n"

// Unsent reports whether this machine has made executions offline that were not sent.
func (r *Repo) Unsent() bool {
	text, err := os.ReadFile(filepath.Join(r.overlay, overlayInUse))
	return err == nil && string(text) == markOffline
}

// markOverlay marks the overlay as used.
func (r *Repo) markOverlay(mark string) error {
	text := ""
	if r.offline != nil || r.Unsent() {
		text = markOffline
	}
	return os.WriteFile(mark, []byte(text), 0o600)
}

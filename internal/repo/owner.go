package repo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"unicode"

	"github.com/google/uuid"

	"e3/objectstore"
)

// ownerBlob names the repository of the objects beside it. Two repositories must never share a place: a collection of
// the first would remove objects that the second names.
const ownerBlob = "repository.json"

// owner is the content of ownerBlob. A copied repository has the same description as the original. Only the table or
// the folder, which cannot be copied, tells them apart. Empty fields are not compared.
type owner struct {
	E3     string `json:"e3"`
	ID     string `json:"id"`
	Of     string `json:"of"`               // the repository's location; for a folder, where it was made or moved, for people
	Table  string `json:"table,omitempty"`  // identifies the table of a shared repository
	Folder string `json:"folder,omitempty"` // identifies the folder of a repository in a folder
}

// ownerOfFolder is the owner for a repository in a folder.
func ownerOfFolder(root string) owner {
	return owner{Of: UserAtHost() + ":" + root, Folder: folderNumber(root)}
}

func (o owner) encode() ([]byte, error) {
	o.E3 = "objects"
	text, err := json.Marshal(o)
	return append(text, '\n'), err
}

// claimPlace claims a place for the objects of one repository, and returns the repository's id. A place claimed by an
// interrupted init of the same shared repository keeps its id.
func claimPlace(ctx context.Context, objects remote, l *bucketLocation, of owner) (string, error) {
	id, err := uuid.NewRandom()
	if err != nil {
		return "", err
	}
	of.ID = id.String()
	text, err := of.encode()
	if err != nil {
		return "", err
	}
	created, err := objects.CreateBlob(ctx, ownerBlob, text)
	switch {
	case err != nil:
		return "", fmt.Errorf("create %s: %w", l, err)
	case created:
		return of.ID, nil
	}
	there, err := readOwner(ctx, objects)
	if err != nil {
		return "", fmt.Errorf("create %s: %w", l, err)
	}
	if validID(there.ID) {
		again := of.Table != "" && there.Of == of.Of && there.Table == of.Table
		if again || there.ID == of.ID { // the answer to our own request was lost
			return there.ID, nil
		}
	}
	return "", fmt.Errorf("%w at %s: the objects there are those of %s; choose another prefix", ErrExists, l, there.name())
}

// readOwner reads the owner of a place; an empty blob has none.
func readOwner(ctx context.Context, objects remote) (owner, error) {
	r, err := objects.OpenBlob(ctx, ownerBlob, 0)
	if err != nil {
		return owner{}, err
	}
	defer r.Close()
	data, err := io.ReadAll(io.LimitReader(r, 64<<10))
	if err != nil {
		return owner{}, err
	}
	var o owner
	_ = json.Unmarshal(data, &o)
	return o, nil
}

// place is the place of a repository's objects outside its folder. The methods of a nil place allow everything.
type place struct {
	objects remote
	at      string // its location
	id      string // of the repository
	command string // takes the objects over

	shared string                                    // the repository, as its location names it; "" if it is in a folder
	table  func(ctx context.Context) (string, error) // its tableName
	root   string                                    // the folder of a repository in one
	folder string                                    // its folderNumber

	warn func(error)
	once sync.Once // for warn

	asking sync.Mutex
	asked  atomic.Bool // it belongs to this repository
}

// errNotOurs says that the objects in S3 may be another repository's.
var errNotOurs = errors.New("its objects may be another's")

// errNothingElsewhere says that there is no place.
var errNothingElsewhere = errors.New("the objects are in the repository's folder, and so its own")

// OwnsObjects returns why no objects may be removed here, nil if they may: objects in S3 must belong to this
// repository alone. A restored table, or a copied folder, has the same description as the original, and its
// collection would remove objects that only the original names.
func (r *Repo) OwnsObjects(ctx context.Context) error {
	if r.place == nil {
		return nil
	}
	return refusal("removed", r.place.ask(ctx))
}

// TakeObjects makes this repository the owner of the objects in S3. It returns their place, and the location of the
// former owner, "" if none is known. It is for a repository that has moved, or was restored in place of a lost one:
// two repositories that take objects in turn lose them to each other. anyName leaves out the table or folder that
// distinguishes the repository from its copies: for a table with several names, and for a folder whose number changes
// with each mount.
func (r *Repo) TakeObjects(ctx context.Context, anyName bool) (objects, from string, err error) {
	p := r.place
	if p == nil {
		return "", "", errNothingElsewhere
	}
	was, err := readOwner(ctx, p.objects)
	if err != nil && !errors.Is(err, objectstore.ErrNotFound) {
		return "", "", err
	}
	now := ownerOfFolder(p.root)
	if p.shared != "" {
		now = owner{Of: p.shared}
		if now.Table, err = p.table(ctx); err != nil {
			return "", "", err
		}
	}
	if anyName {
		now.Table, now.Folder = "", ""
	}
	now.ID = p.id
	text, err := now.encode()
	if err == nil {
		err = p.objects.PutBlob(ctx, ownerBlob, text)
	}
	if err != nil {
		return "", "", err
	}
	p.asked.Store(true)
	return p.at, was.Of, nil
}

// takeCommand is the command for TakeObjects.
func (r *Repo) takeCommand() string {
	location := r.Location
	if strings.ContainsFunc(location, func(c rune) bool { return unicode.IsSpace(c) || strings.ContainsRune(`?&;'"$*()\|<>`, c) }) {
		location = "'" + strings.ReplaceAll(location, "'", `'\''`) + "'"
	}
	return "e3 init --take-over " + location
}

// name describes the owner.
func (o *owner) name() string {
	switch {
	case o.Of == "":
		return "another repository"
	case o.Table == "":
		return strconv.Quote(o.Of)
	}
	return fmt.Sprintf("%q in the table %q", o.Of, o.Table)
}

// writes returns why nothing may be written here. Another owner of the objects would remove objects that only this
// repository names, and nothing would notice, since recorded objects are presumed to exist.
func (p *place) writes(ctx context.Context) error { return refusal("written", p.ours(ctx)) }

// storable returns why no output of a command could be kept: the objects may be another repository's. If S3 cannot be
// asked, the first write will report that.
func storable(ctx context.Context, r *Repo) error {
	if r.stores.overlaid {
		return nil
	}
	if err := r.place.writes(ctx); errors.Is(err, errNotOurs) {
		return err
	}
	return nil
}

// removes returns why nothing may be removed here.
func (p *place) removes(ctx context.Context) error { return refusal("removed", p.ours(ctx)) }

// replaces is removes for a caller to whom a refusal is harmless: replaced objects stay.
func (p *place) replaces(ctx context.Context) error {
	err := p.ours(ctx)
	if errors.Is(err, errNotOurs) {
		p.once.Do(func() { p.warn(fmt.Errorf("what is replaced stays in S3: %w", err)) })
	}
	return err
}

func refusal(done string, err error) error {
	if errors.Is(err, errNotOurs) {
		return fmt.Errorf("nothing is %s: %w", done, err)
	}
	return err
}

// ours is ask, but remembers a positive answer for the life of the process: a refusal may be remedied meanwhile.
func (p *place) ours(ctx context.Context) error {
	if p == nil {
		return nil
	}
	if p.asked.Load() {
		return nil
	}
	p.asking.Lock()
	defer p.asking.Unlock()
	if p.asked.Load() {
		return nil
	}
	return p.ask(ctx)
}

// ask asks S3, and keeps a positive answer for ours.
func (p *place) ask(ctx context.Context) error {
	err := p.look(ctx)
	if err == nil {
		p.asked.Store(true)
	}
	return err
}

func (p *place) look(ctx context.Context) error {
	o, err := readOwner(ctx, p.objects)
	switch {
	case errors.Is(err, objectstore.ErrNotFound):
		return fmt.Errorf("%w: %s at %s is gone, which says whose they are; if they are this one's alone, say so: %s", errNotOurs, ownerBlob, p.at, p.command)
	case err != nil:
		return fmt.Errorf("whose are the objects at %s: %w", p.at, err)
	case o.ID != p.id:
		return p.notOurs(&o, p.root+p.shared)
	case p.shared == "" && o.Folder != "" && p.folder != "" && o.Folder != p.folder:
		return p.notOurs(&o, "a copy of it, the folder "+p.root+" (or the same, whose number is another on each host, as on some network file systems: then add --any-name to the last of these)")
	case p.shared == "":
		return nil
	case o.Of != p.shared:
		return p.notOurs(&o, "a copy of it, "+p.shared)
	case o.Table == "":
		return nil
	}
	table, err := p.table(ctx)
	if err != nil {
		return fmt.Errorf("whose are the objects at %s: %w", p.at, err)
	}
	if table != o.Table {
		return p.notOurs(&o, "a copy of it, in the table "+table+" (or the same by another name: then add --any-name to the last of these)")
	}
	return nil
}

// notOurs names the objects' owner if it is not this repository, and what a person can do.
func (p *place) notOurs(o *owner, this string) error {
	return fmt.Errorf("%w: those at %s are the objects of %s, whose gc removes what it does not know, and this is %s; for a repository of its own, "+
		"make one with e3 init, and take in there what e3 workspace export and e3 package export write here; if that one is given up for good, or was moved here: %s",
		errNotOurs, p.at, o.name(), this, p.command)
}

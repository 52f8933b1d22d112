package repo

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws/arn"
	"github.com/google/uuid"

	"e3/objectstore"
	"e3/objectstore/s3"
	"e3/refstore/dynamo"
)

// ownerBlob says whose the objects beside it are. Two repositories must never share a place: one's collection would
// remove what the other's records name.
const ownerBlob = "repository.json"

// owner is what ownerBlob holds. A copy of a repository says of itself what the first says; which of the two this is about only
// what is not copied can tell: the table, or the folder. What is empty is not compared.
type owner struct {
	E3     string `json:"e3"`
	ID     string `json:"id"`
	Of     string `json:"of"`               // the repository's location; of a folder, where it was made, for people
	Table  string `json:"table,omitempty"`  // which of all tables of that name; of a shared repository
	Folder string `json:"folder,omitempty"` // which of all folders; of a repository in one
}

// tableName tells a table from all others of its name: by what AWS calls it, through whichever endpoint; or, as servers of one's own
// call all alike, by the server.
func tableName(endpoint, name, region string) string {
	if a, err := arn.Parse(name); err == nil && strings.Trim(a.AccountID, "0") != "" {
		return name
	}
	u, err := url.Parse(endpoint)
	if err == nil {
		u.Host = strings.ToLower(u.Host)
		endpoint = strings.TrimRight(u.String(), "/")
	}
	return cmp.Or(endpoint, name, region)
}

// claimPlace makes a place for objects that of one repository, and returns the id by which it is known. A place that was
// claimed for the same shared repository, by an init that was cut off, is the same again.
func claimPlace(ctx context.Context, bucket *s3.Bucket, l *bucketLocation, of owner) (string, error) {
	id, err := uuid.NewRandom()
	if err != nil {
		return "", err
	}
	of.E3, of.ID = "objects", id.String()
	text, err := json.Marshal(of)
	if err != nil {
		return "", err
	}
	created, err := bucket.CreateBlob(ctx, ownerBlob, append(text, '\n'))
	switch {
	case err != nil:
		return "", fmt.Errorf("create %s: %w", l, err)
	case created:
		return of.ID, nil
	}
	there, err := readOwner(ctx, bucket)
	if err != nil {
		return "", fmt.Errorf("create %s: %w", l, err)
	}
	if dynamo.ValidRepository(there.ID) {
		again := of.Table != "" && there.Of == of.Of && there.Table == of.Table
		if again || there.ID == of.ID { // the answer to our own request got lost
			return there.ID, nil
		}
	}
	whose := fmt.Sprintf("%q", there.Of)
	if there.Table != "" {
		whose += fmt.Sprintf(" (%q)", there.Table)
	}
	return "", fmt.Errorf("%w at %s: the objects there are those of %s; choose another prefix", ErrExists, l, whose)
}

// readOwner reads whose a place is; what says nothing is nobody's.
func readOwner(ctx context.Context, bucket *s3.Bucket) (owner, error) {
	r, err := bucket.OpenBlob(ctx, ownerBlob, 0)
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

// place is where the objects of a repository are, if not in its folder.
type place struct {
	bucket *s3.Bucket
	at     string // its location
	id     string // of the repository

	shared string                                    // the location of the repository; "" if it is in a folder
	table  func(ctx context.Context) (string, error) // its tableName
	folder string                                    // its folderNumber

	warn func(error)
	once sync.Once // for warn

	mu    sync.Mutex
	asked bool  // the answer is known
	err   error // the answer
}

// errNotOurs says that what is in S3 may be another's.
var errNotOurs = errors.New("nothing is removed")

// OwnsObjects returns why no objects may be removed here, nil if they may: those in S3 must be this repository's alone. A table that was
// restored, or a folder that was copied, says the same of itself as the first, and its collection would take what only the first one names.
func (r *Repo) OwnsObjects(ctx context.Context) error {
	if r.place == nil {
		return nil
	}
	return r.place.ask(ctx)
}

// ours is ask, once for a process.
func (p *place) ours(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.asked {
		err := p.ask(ctx)
		if err != nil && !errors.Is(err, errNotOurs) {
			return err
		}
		p.asked, p.err = true, err
	}
	if p.err != nil {
		p.once.Do(func() { p.warn(fmt.Errorf("what is replaced stays in S3: %w", p.err)) })
	}
	return p.err
}

func (p *place) ask(ctx context.Context) error {
	o, err := readOwner(ctx, p.bucket)
	switch {
	case errors.Is(err, objectstore.ErrNotFound):
		return fmt.Errorf("%w: %s at %s is gone, which says whose the objects are", errNotOurs, ownerBlob, p.at)
	case err != nil:
		return err
	case p.shared == "" && o.ID != p.id:
		return fmt.Errorf("%w: the objects at %s are those of %q, by %s there; if that is given up for good, put the id %q in its place", errNotOurs, p.at, o.Of, ownerBlob, p.id)
	case p.shared == "" && o.Folder != "" && p.folder != "" && o.Folder != p.folder:
		return fmt.Errorf(`%w: the objects at %s are those of the repository that was made as %q, and this seems to be a copy of it; `+
			`if that one is given up for good, or was moved here, put "folder":%q into %s there, or no "folder" where folders get another number with each mount`,
			errNotOurs, p.at, o.Of, p.folder, ownerBlob)
	case p.shared == "":
		return nil
	case o.ID != p.id || o.Of != p.shared:
		return fmt.Errorf("%w: the objects at %s are those of %q, by %s there; if that is given up for good, put %q in its place", errNotOurs, p.at, o.Of, ownerBlob, p.shared)
	case o.Table == "":
		return nil
	}
	table, err := p.table(ctx)
	if err != nil {
		return fmt.Errorf("whose are the objects at %s: %w", p.at, err)
	}
	if table != tableName(o.Table, "", "") {
		return fmt.Errorf(`%w: the objects at %s are those of %s in the table %q, by %s there, and this one is in %q; `+
			`if that one is given up for good, put this in its place, or no "table" where one table goes by several names`,
			errNotOurs, p.at, o.Of, o.Table, ownerBlob, table)
	}
	return nil
}

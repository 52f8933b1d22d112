package repo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"e3/internal/host/modes"
	"e3/objectstore/mounted"
	"e3/objectstore/s3"
	"e3/refstore"
)

// readSharedFormat reads a shared repository's description, and reports a damaged text to warn.
func readSharedFormat(ctx context.Context, c connection, l *sharedLocation, warn func(error)) (*format, error) {
	records, err := c.describe(l.repository)
	if err != nil {
		return nil, err
	}
	f, err := sharedFormat(records, l.String()).load(ctx, warn)
	if err == nil {
		if f.Objects == nil || f.Objects.Bucket+f.Objects.Folder == "" {
			return nil, fmt.Errorf("open repository: %s does not say where its objects are", l)
		}
		return f, nil
	}
	missing, other := c.explain(ctx, l.repository, err)
	if missing != "" {
		missing = ", where " + missing + " does not exist"
	}
	switch {
	case missing != "", errors.Is(err, refstore.ErrNotFound):
		return nil, fmt.Errorf("%w at %s %s%s; if that is the place, make one with: %s", ErrNoRepository, l, c.where(), missing, l.initCommand())
	case other != nil:
		return nil, badLocation(l.String(), "%v", other)
	}
	return nil, fmt.Errorf("open %s: %w", l, err)
}

// Created is a new repository, and what its owner should know.
type Created struct {
	Repository string       // its folder or location
	Objects    string       // where its objects are; "" if in the folder
	Table      string       // the table that was made; "" if it existed
	Schema     string       // the schema that was made, with its database; "" if it existed
	Bucket     string       // the bucket that was made; "" if it existed
	Access     modes.Access // to a folder; "" where there is none
	Group      string       // of a shared folder
	Advice     []string
}

// Extras lists what was made beside the repository; "" if nothing was.
func (c *Created) Extras() string {
	var made []string
	if c.Table != "" {
		made = append(made, "table "+c.Table)
	}
	if c.Schema != "" {
		made = append(made, "schema "+c.Schema)
	}
	if c.Bucket != "" {
		made = append(made, "bucket "+c.Bucket)
	}
	return strings.Join(made, ", ")
}

// failed adds to an init's error what the init has made by then: another init finds it.
func (c *Created) failed(err error) error {
	if made := c.Extras(); err != nil && made != "" {
		return fmt.Errorf("%w; made by then, and left there: %s", err, made)
	}
	return err
}

// InitOptions are settings of a new repository that are not part of its location.
type InitOptions struct {
	Objects string       // place of the objects of a repository in a folder, if they are outside the folder
	Access  modes.Access // to a folder; none: its user's
}

// Init makes an empty repository at a location: in a folder, in a folder with objects at an s3:// location, or in
// a database and S3, where it makes the table or schema and the bucket if they are missing.
func Init(ctx context.Context, location string, o InitOptions) (_ *Created, err error) {
	objects := o.Objects
	if err := CheckFolder(location); err != nil {
		return nil, err
	}
	if IsURL(location) {
		if objects != "" {
			return nil, fmt.Errorf("%q: %w: the bucket of a shared repository is a parameter: bucket=<bucket>", objects, ErrLocation)
		}
		l, err := parseShared(location)
		if err != nil {
			return nil, err
		}
		return initShared(ctx, l)
	}
	f := &format{Access: cmp.Or(o.Access, modes.Private)}
	c := &Created{}
	defer func() { err = c.failed(err) }()
	if objects != "" {
		l, err := parseBucket(objects)
		if err != nil {
			return nil, err
		}
		root, err := filepath.Abs(location)
		if err != nil {
			return nil, fmt.Errorf("create repository: %w", err)
		}
		if isRepository(root) { // before anything is made that only the repository would name
			return nil, fmt.Errorf("%w in %s", ErrExists, root)
		}
		bucket, err := c.makeBucket(ctx, l)
		if err != nil {
			return nil, err
		}
		if err := makeRoot(root, f.Access); err != nil { // the claim names the folder
			return nil, fmt.Errorf("create repository: %w", err)
		}
		if f.ID, err = claimPlace(ctx, bucket, l, ownerOfFolder(root)); err != nil {
			_ = os.Remove(root) // if it is empty
			return nil, err
		}
		f.Objects, c.Objects, c.Advice = l, l.String(), bucketAdvice
	}
	root, err := createFolder(location, f)
	if err == nil {
		c.recordFolder(root, f.Access)
	}
	return c, err
}

// InitLink makes a folder that links to a shared repository.
func InitLink(dir, location string, access modes.Access) (*Created, error) {
	if _, err := parseShared(location); err != nil {
		return nil, err
	}
	f := &format{Location: location, Access: cmp.Or(access, modes.Private)}
	root, err := createFolder(dir, f)
	c := &Created{}
	if err == nil {
		c.recordFolder(root, f.Access)
	}
	return c, err
}

var bucketAdvice = []string{
	"let the bucket's lifecycle abort incomplete multipart uploads after some days: what a crash leaves of them costs money, and only a gc finds it",
}

// initShared makes the table, the bucket and the repository, as far as they are missing. It can be repeated after an
// interruption.
func initShared(ctx context.Context, l *sharedLocation) (_ *Created, err error) {
	if l.objects.Bucket+l.objects.Folder == "" {
		return nil, badLocation(l.String(), "a new repository needs a bucket: %s", l.initCommand())
	}
	r := &Repo{opts: Options{Getenv: os.Getenv}}
	conn, err := l.connect(ctx, r)
	if err != nil {
		return nil, fmt.Errorf("create %s: %w", l, err)
	}
	defer conn.close() // all writes were answered
	// This comes first, because a wrong name or region should not make a bucket.
	f, err := readSharedFormat(ctx, conn, l, func(error) {})
	switch {
	case err == nil:
		return nil, fmt.Errorf("%w at %s, with its objects at %s", ErrExists, l, f.Objects)
	case !errors.Is(err, ErrNoRepository):
		return nil, err
	}
	place := l.newObjects()
	c := &Created{Repository: l.String(), Objects: place.String()}
	defer func() { err = c.failed(err) }()
	objects, err := c.makePlace(ctx, &place)
	if err != nil {
		return nil, err
	}
	if err := conn.create(ctx, c, &place); err != nil {
		return nil, fmt.Errorf("create %s: %w", l, err)
	}
	of := owner{Of: l.owner()}
	if of.Table, err = conn.identity(ctx); err != nil {
		return nil, fmt.Errorf("create %s: %w", l, err)
	}
	id, err := claimPlace(ctx, objects, &place, of)
	if err != nil {
		return nil, err
	}
	f = &format{ID: id, Objects: &place, Partitions: conn.traits().spread}
	text, err := f.encode()
	if err != nil {
		return nil, err
	}
	records, err := conn.describe(l.repository)
	if err != nil {
		return nil, err
	}
	_, err = records.Put(ctx, refstore.Record{Key: formatKeys[0], Value: text})
	if err == nil { // after a crash the copy may be missing, which verify makes
		_, err = records.Put(ctx, refstore.Record{Key: formatKeys[1], Value: text})
	}
	if errors.Is(err, refstore.ErrConflict) {
		return nil, fmt.Errorf("%w at %s", ErrExists, l)
	}
	if err != nil {
		return nil, fmt.Errorf("create %s: %w", l, err)
	}
	if place.Folder == "" {
		c.Advice = append(c.Advice, bucketAdvice...)
	}
	return c, nil
}

// makePlace makes the place of the objects if need be.
func (c *Created) makePlace(ctx context.Context, l *bucketLocation) (remote, error) {
	if l.Folder == "" {
		return c.makeBucket(ctx, l)
	}
	f := mounted.Open(mounted.Options{Base: l.Folder, Below: l.Prefix})
	if err := f.Create(ctx); err != nil {
		return nil, fmt.Errorf("create %s: %w", l, err)
	}
	return f, nil
}

// makeBucket makes the bucket if need be. It fills in a region that was found elsewhere, so that other users need not
// set it.
func (c *Created) makeBucket(ctx context.Context, l *bucketLocation) (*s3.Bucket, error) {
	if l.Region == "" && l.Endpoint == "" {
		cfg, err := awsConfig(ctx, "", "")
		if err != nil {
			return nil, fmt.Errorf("create %s: %w", l, err)
		}
		l.Region = cfg.Region
	}
	bucket, err := (&Repo{}).bucket(ctx, l, nil)
	created := false
	if err == nil {
		created, err = bucket.Create(ctx)
	}
	if created {
		c.Bucket = l.Bucket
	}
	if err != nil {
		return nil, fmt.Errorf("create %s: %w", l, err)
	}
	return bucket, nil
}

package repo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"

	"e3/internal/host/modes"
	"e3/objectstore"
	"e3/objectstore/s3"
	"e3/refstore"
	"e3/refstore/dynamo"
)

// readSharedFormat reads a shared repository's description, and reports a damaged text to warn.
func readSharedFormat(ctx context.Context, cfg aws.Config, l *sharedLocation, trying, warn func(error)) (*format, error) {
	o := dynamo.Options{Config: cfg, Endpoint: l.endpoint, Table: l.table, Repository: l.repository, Blobs: blobs{}, Trying: trying}
	records, err := dynamo.Open(o)
	if err != nil {
		return nil, err
	}
	f, err := sharedFormat(records, l.String()).load(ctx, warn)
	if none := errors.Is(err, dynamo.ErrNoTable); none || errors.Is(err, refstore.ErrNotFound) {
		where := "in the region " + cfg.Region
		if l.endpoint != "" {
			where = "on " + l.endpoint
		}
		if none {
			where += ", where the table does not exist"
		}
		return nil, fmt.Errorf("%w at %s %s; if that is the place, make one with: %s", ErrNoRepository, l, where, l.initCommand())
	}
	if err != nil {
		if other := dynamo.OtherTable(ctx, o, err); other != nil {
			return nil, badLocation(l.String(), "%v", other)
		}
		return nil, fmt.Errorf("open %s: %w", l, err)
	}
	if f.Objects == nil || f.Objects.Bucket == "" {
		return nil, fmt.Errorf("open repository: %s does not say where its objects are", l)
	}
	return f, nil
}

// Created is a new repository, and what its owner should know.
type Created struct {
	Repository string       // its folder or location
	Objects    string       // where its objects are; "" if in the folder
	Table      string       // the table that was made; "" if it existed
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
// DynamoDB and S3, where it makes the table and the bucket if they are missing.
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
	if l.objects.Bucket == "" {
		return nil, badLocation(l.String(), "a new repository needs a bucket: %s", l.initCommand())
	}
	cfg, err := awsConfig(ctx, l.region, l.endpoint)
	if err != nil {
		return nil, fmt.Errorf("create %s: %w", l, err)
	}
	// This comes first, because a wrong name or region should not make a bucket.
	f, err := readSharedFormat(ctx, cfg, l, nil, func(error) {})
	switch {
	case err == nil:
		return nil, fmt.Errorf("%w at %s, with its objects at %s", ErrExists, l, f.Objects)
	case !errors.Is(err, ErrNoRepository):
		return nil, err
	}
	place := l.objects
	if place.Endpoint == "" {
		place.Endpoint = l.endpoint // one server for both
	}
	c := &Created{Repository: l.String(), Objects: place.String()}
	defer func() { err = c.failed(err) }()
	bucket, err := c.makeBucket(ctx, &place)
	if err != nil {
		return nil, err
	}
	opts := dynamo.Options{Config: cfg, Endpoint: l.endpoint, Table: l.table, Repository: l.repository, Blobs: blobs{bucket: bucket}}
	table, err := dynamo.CreateTable(ctx, opts)
	if table.Created {
		c.Table = l.table
	}
	if err != nil {
		return nil, fmt.Errorf("create %s: %w", l, err)
	}
	records, err := dynamo.Open(opts)
	if err != nil {
		return nil, err
	}
	id, err := claimPlace(ctx, bucket, &place, owner{Of: l.String(), Table: tableName(l.endpoint, table.Identity, cfg.Region)})
	if err != nil {
		return nil, err
	}
	text, err := (&format{ID: id, Objects: &place, Partitions: true}).encode()
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
	c.Advice = append(backupAdvice(l, place.Bucket, table.Recoverable), bucketAdvice...)
	return c, nil
}

// backupAdvice says how to make restoring a repository to a point in time possible, if the server can. Objects that
// an older table names may have been deleted from the bucket since.
func backupAdvice(l *sharedLocation, bucket string, recoverable *bool) []string {
	if recoverable == nil {
		return nil
	}
	advice := []string{"beside point-in-time recovery of the table, turn on versioning of the bucket, since what a record replaces is deleted there: " +
		"aws s3api put-bucket-versioning --bucket " + bucket + " --versioning-configuration Status=Enabled; and a lifecycle that expires noncurrent versions after as many days"}
	if !*recoverable {
		advice = append([]string{"turn on point-in-time recovery of the table: aws dynamodb update-continuous-backups --table-name " + l.table +
			" --point-in-time-recovery-specification PointInTimeRecoveryEnabled=true"}, advice...)
	}
	return advice
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

// blobs keep data too large for DynamoDB in a bucket. Without a bucket they only serve to read the bucket's location.
type blobs struct {
	bucket *s3.Bucket
	place  *place // asked before the first put or delete; nil while a repository is made
}

func (b blobs) PutBlob(ctx context.Context, name string, data []byte) error {
	if err := b.place.writes(ctx); err != nil {
		return err
	}
	return b.bucket.PutBlob(ctx, name, data)
}

func (b blobs) OpenBlob(ctx context.Context, name string, offset int64) (io.ReadCloser, error) {
	if b.bucket == nil {
		return nil, fmt.Errorf("%s: %w: what a repository says of itself is not that large", name, refstore.ErrInvalid)
	}
	r, err := b.bucket.OpenBlob(ctx, name, offset)
	return r, blobError(err)
}

// DeleteBlob refuses to delete a blob that may be another repository's: a table that was restored under another name
// names the same blobs as the original.
func (b blobs) DeleteBlob(ctx context.Context, name string) error {
	if err := b.place.replaces(ctx); err != nil {
		return err
	}
	return blobError(b.bucket.DeleteBlob(ctx, name))
}

func (b blobs) ListBlobs(ctx context.Context, prefix string) iter.Seq2[dynamo.Blob, error] {
	return func(yield func(dynamo.Blob, error) bool) {
		for blob, err := range b.bucket.ListBlobs(ctx, prefix) {
			if !yield(dynamo.Blob{Name: blob.Name, Size: blob.Size, Modified: blob.Time}, err) {
				return
			}
		}
	}
}

// blobError turns the error of a missing blob into the error of a missing record.
func blobError(err error) error {
	if errors.Is(err, objectstore.ErrNotFound) {
		return fmt.Errorf("%w: %w", refstore.ErrNotFound, err)
	}
	return err
}

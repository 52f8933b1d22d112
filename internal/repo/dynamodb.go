package repo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws/arn"

	"e3/executions"
	"e3/objectstore"
	"e3/objectstore/s3"
	"e3/refstore"
	"e3/refstore/dynamo"
	"e3/refstore/lease"
	"e3/refstore/refstoretest"
)

// dynamoDatabase is a table of DynamoDB.
type dynamoDatabase struct {
	table            string
	region, endpoint string // "": from the SDK's usual chain
}

// parseDynamo reads dynamodb://<table>/<repository>.
func parseDynamo(location string, u *url.URL, query map[string]string) (_ database, repository string, objects bucketLocation, err error) {
	d := &dynamoDatabase{u.Host, query["region"], query["endpoint"]}
	repository = strings.Trim(u.Path, "/")
	switch {
	case !dynamo.ValidTable(d.table):
		err = badLocation(location, "%q cannot be the name of a table", d.table)
	case !dynamo.ValidRepository(repository):
		err = badLocation(location, "after the table comes the name of the repository: dynamodb://%s/<repository>", d.table)
	default:
		err = checkEndpoint(location, d.endpoint)
	}
	return d, repository, bucketLocation{Prefix: d.table + "/" + repository, Region: d.region, Endpoint: d.endpoint}, err
}

// validID reports whether a text can be the id of a repository.
func validID(id string) bool { return dynamo.ValidRepository(id) }

func (d *dynamoDatabase) String() string  { return dynamoScheme + "://" + d.table }
func (d *dynamoDatabase) owner() string   { return d.String() }
func (d *dynamoDatabase) address() string { return d.endpoint + "\x00" + d.region }

func (d *dynamoDatabase) params() [][3]string {
	return [][3]string{{"region", d.region, ""}, {"endpoint", d.endpoint, ""}}
}

func (d *dynamoDatabase) connect(ctx context.Context, r *Repo) (connection, error) {
	cfg, err := awsConfig(ctx, d.region, d.endpoint)
	if err != nil {
		return nil, err
	}
	cfg.APIOptions = append(cfg.APIOptions, r.traffic.count)
	o := dynamo.Options{Config: cfg, Endpoint: d.endpoint, Table: d.table, Blobs: blobs{}, Trying: trying("DynamoDB", cmp.Or(host(d.endpoint), cfg.Region), r.warn), Expired: r.expired(cfg)}
	return &dynamoConnection{d, o}, nil
}

type dynamoConnection struct {
	*dynamoDatabase
	o dynamo.Options
}

func (c *dynamoConnection) where() string {
	if c.endpoint != "" {
		return "on " + c.endpoint
	}
	return "in the region " + c.o.Config.Region
}

func (c *dynamoConnection) server() string {
	return cmp.Or(c.endpoint, c.o.Config.Region) + "\x00" + c.table
}

func (c *dynamoConnection) traits() traits { return traits{lookups: 64, spread: true} }

func (c *dynamoConnection) close() error { return nil }

func (c *dynamoConnection) identity(ctx context.Context) (string, error) {
	o := c.o
	o.Repository = "any"
	records, err := dynamo.Open(o)
	if err != nil {
		return "", err
	}
	is, err := records.Identity(ctx)
	return tableName(c.endpoint, is, o.Config.Region), err
}

func (c *dynamoConnection) explain(ctx context.Context, _ string, failure error) (missing string, other error) {
	if errors.Is(failure, dynamo.ErrNoTable) {
		return "the table", nil
	}
	return "", dynamo.OtherTable(ctx, c.o, failure)
}

func (c *dynamoConnection) create(ctx context.Context, made *Created, objects *bucketLocation) error {
	table, err := dynamo.CreateTable(ctx, c.o)
	if table.Created {
		made.Table = c.table
	}
	if err == nil {
		made.Advice = c.backupAdvice(objects.Bucket, table.Recoverable)
	}
	return err
}

// backupAdvice says how to make restoring a repository to a point in time possible, if the server can. Objects that
// an older table names may have been deleted from the bucket since.
func (c *dynamoConnection) backupAdvice(bucket string, recoverable *bool) []string {
	if recoverable == nil {
		return nil
	}
	advice := []string{"beside point-in-time recovery of the table, turn on versioning of the bucket, since what a record replaces is deleted there: " +
		"aws s3api put-bucket-versioning --bucket " + bucket + " --versioning-configuration Status=Enabled; and a lifecycle that expires noncurrent versions after as many days"}
	if !*recoverable {
		advice = append([]string{"turn on point-in-time recovery of the table: aws dynamodb update-continuous-backups --table-name " + c.table +
			" --point-in-time-recovery-specification PointInTimeRecoveryEnabled=true"}, advice...)
	}
	return advice
}

func (c *dynamoConnection) describe(repository string) (refstore.Store, error) {
	o := c.o
	o.Repository = repository
	return dynamo.Open(o)
}

func (c *dynamoConnection) use(repository string, f *format, w writer) (sharedStore, error) {
	o := c.o
	o.Repository, o.Blobs, o.Patience, o.Spread = repository, blobs{w.objects.(*s3.Bucket), w.place}, w.patience, f.Partitions
	o.Permit = func(ctx context.Context, partition string, signed time.Time) error {
		if unfenced(partition) {
			return nil
		}
		return w.sends(ctx, signed)
	}
	return dynamo.Open(o)
}

// aside makes a table, since there is no cheap way to empty a part of one.
func (c *dynamoConnection) aside(ctx context.Context, name string, objects remote) (refstoretest.Opener, func(context.Context) error, error) {
	o := c.o
	o.Table, o.Blobs, o.Watch = "e3-"+name, blobs{bucket: objects.(*s3.Bucket)}, 100*time.Millisecond // the cases wait for watches
	if _, err := dynamo.CreateTable(ctx, o); err != nil {
		return nil, nil, err
	}
	var n atomic.Int32
	open := func(context.Context) (refstore.Store, error) {
		o := o
		o.Repository = fmt.Sprint("case-", n.Add(1))
		return dynamo.Open(o)
	}
	return open, func(ctx context.Context) error { return dynamo.DeleteTable(ctx, o) }, nil
}

// unfenced reports whether a partition's records are guarded by their versions alone.
func unfenced(partition string) bool {
	return strings.HasPrefix(partition, lease.Kind+"/") || partition == executions.GenerationPartition
}

// tableName identifies a table, through whichever endpoint: by its ARN or, as private servers may give all tables the
// same ARN, by its random id, or else by the server.
func tableName(endpoint string, is dynamo.Identity, region string) string {
	if a, err := arn.Parse(is.ARN); err == nil && strings.Trim(a.AccountID, "0") != "" {
		return is.ARN
	}
	u, err := url.Parse(endpoint)
	if err == nil {
		u.Host = strings.ToLower(u.Host)
		endpoint = strings.TrimRight(u.String(), "/")
	}
	return cmp.Or(is.ID, endpoint, is.ARN, region)
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

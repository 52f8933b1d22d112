package s3

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"e3/objectstore"
)

// ErrUnconditional says that a server ignores If-None-Match, so that objects could be overwritten.
var ErrUnconditional = errors.New("the server overwrites what it was asked not to overwrite (If-None-Match: *)")

// Create makes the bucket, if it does not exist and the credentials allow it. With a blob under "probes" it proves that
// the server keeps data, honours conditions, and distinguishes absence from refusal; then it removes the blob. created
// reports whether this call made the bucket, as far as is known, even if the proof fails.
func (b *Bucket) Create(ctx context.Context) (created bool, err error) {
	if err := b.o.Check(); err != nil {
		return false, err
	}
	if err := b.credentials(ctx); err != nil {
		return false, err
	}
	_, err = head(ctx, b, func() (*s3.HeadBucketOutput, error) {
		return b.client.HeadBucket(ctx, &s3.HeadBucketInput{Bucket: &b.o.Bucket})
	})
	switch {
	case err == nil:
	case absent(err):
		if created, err = b.createBucket(ctx); err != nil {
			return false, err
		}
	default:
		return false, b.failed("look for", "", err)
	}
	return created, b.probe(ctx)
}

// credentials proves that requests can be signed.
func (b *Bucket) credentials(ctx context.Context) error {
	if b.o.Config.Region == "" {
		return fmt.Errorf("s3://%s: no region; set AWS_REGION, for example to us-east-1 if the server is not AWS", b.o.Bucket)
	}
	if b.o.Config.Credentials == nil {
		return fmt.Errorf("s3://%s: no credentials; %s", b.o.Bucket, credentialsAdvice)
	}
	if _, err := b.o.Config.Credentials.Retrieve(ctx); err != nil {
		return fmt.Errorf("s3://%s: no credentials: %w; %s", b.o.Bucket, err, credentialsAdvice)
	}
	return nil
}

func (b *Bucket) createBucket(ctx context.Context) (created bool, err error) {
	in := &s3.CreateBucketInput{Bucket: &b.o.Bucket}
	// The oldest region, us-east-1, must not be named. Servers other than AWS may have no regions.
	if region := b.o.Config.Region; region != "" && region != "us-east-1" && b.o.Endpoint == "" {
		in.CreateBucketConfiguration = &types.CreateBucketConfiguration{LocationConstraint: types.BucketLocationConstraint(region)}
	}
	_, err = b.client.CreateBucket(ctx, in)
	if owned := (*types.BucketAlreadyOwnedByYou)(nil); err == nil || errors.As(err, &owned) {
		return err == nil, nil // another call may have made it meanwhile
	}
	if taken := (*types.BucketAlreadyExists)(nil); errors.As(err, &taken) {
		// Servers other than AWS return this error also for the caller's own bucket.
		if _, headErr := b.client.HeadBucket(ctx, &s3.HeadBucketInput{Bucket: &b.o.Bucket}); headErr == nil {
			return false, nil
		}
	}
	return false, b.failed("create", "", err)
}

func (b *Bucket) probe(ctx context.Context) (err error) {
	name := "probes/" + rand.Text()
	key := b.prefix + name
	data := []byte("e3 was here: " + name)
	sum := objectstore.Sum(data)
	// Without the right to list, S3 reports an absent key as forbidden.
	if _, err := b.stat(ctx, key); err == nil || !errors.Is(err, objectstore.ErrNotFound) {
		if err == nil {
			return b.failed("look for", key, errors.New("the server says that it is there, though nothing was put there"))
		}
		return err
	}
	put := func() error {
		return b.putSum(ctx, key, sum, bytes.NewReader(data), int64(len(data)), aws.String("*"))
	}
	if err := put(); err != nil && !precondition(err) { // after a lost answer the retry is refused
		return b.failed("put", key, err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), aborting)
		defer cancel()
		if removal := b.deleteKey(ctx, key); err == nil {
			err = removal
		}
	}()
	switch err := put(); {
	case err == nil:
		return fmt.Errorf("s3://%s: %w; use one that has conditional writes", b.o.Bucket, ErrUnconditional)
	case !precondition(err):
		return b.failed("put again", key, err)
	}
	return b.readBack(ctx, name, data)
}

// readBack compares a blob, and a part of it, with the data put.
func (b *Bucket) readBack(ctx context.Context, name string, want []byte) error {
	for _, offset := range []int64{0, 3} {
		r, err := b.OpenBlob(ctx, name, offset)
		if err != nil {
			return err
		}
		got, err := io.ReadAll(io.LimitReader(r, int64(len(want))+1))
		r.Close()
		if err != nil {
			return err
		}
		if !bytes.Equal(got, want[offset:]) {
			return b.failed("get", b.prefix+name, fmt.Errorf("the bytes from %d on are not those that were put", offset))
		}
	}
	return nil
}

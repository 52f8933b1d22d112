package s3

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"iter"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"golang.org/x/sync/errgroup"

	"e3/objectstore"
)

// Stat looks h up. An absent object is objectstore.ErrNotFound. Entry.Hash is the server's own hash of the bytes, if it
// has one, and else h. Objects that were put in parts have no such hash, and some servers other than AWS keep none.
func (b *Bucket) Stat(ctx context.Context, h objectstore.Hash) (objectstore.Entry, error) {
	s, err := b.stat(ctx, b.key(h))
	if err != nil {
		return objectstore.Entry{}, err
	}
	if s.sum != nil {
		h = *s.sum
	}
	return objectstore.Entry{Info: objectstore.Info{Hash: h, Size: s.size}, Time: s.time}, nil
}

type keyInfo struct {
	key  string
	size int64
	time time.Time
	sum  *objectstore.Hash // hash of the bytes, if the answer has it; lists have none
}

func (b *Bucket) stat(ctx context.Context, key string) (keyInfo, error) {
	out, err := head(ctx, b, func() (*s3.HeadObjectOutput, error) {
		return b.client.HeadObject(ctx, &s3.HeadObjectInput{Bucket: &b.o.Bucket, Key: &key, ChecksumMode: types.ChecksumModeEnabled})
	})
	if err != nil {
		return keyInfo{}, b.unread(ctx, "look for", key, err)
	}
	if out.ContentLength == nil || *out.ContentLength < 0 {
		return keyInfo{}, b.failed("look for", key, errors.New("the server does not say how many bytes there are"))
	}
	return keyInfo{key, *out.ContentLength, aws.ToTime(out.LastModified), wholeSum(out)}, nil
}

// wholeSum is the SHA-256 of the whole object, if an answer has it. For an object put in parts, the server's sum is a
// sum over the parts' sums, with their number.
func wholeSum(out *s3.HeadObjectOutput) *objectstore.Hash {
	b, err := base64.StdEncoding.DecodeString(aws.ToString(out.ChecksumSHA256))
	if err != nil || len(b) != len(objectstore.Hash{}) || out.ChecksumType == types.ChecksumTypeComposite {
		return nil
	}
	sum := objectstore.Hash(b)
	return &sum
}

// List yields the objects whose names begin with a byte, in the server's order: by name, except in directory
// buckets. It skips keys that are no objects. It ends at the first error. Several shards may be listed at the same
// time.
//
// Entry.Time is the time at which an object was put, by the server's clock; for a large object it may be the time at
// which the put began.
func (b *Bucket) List(ctx context.Context, shard byte) iter.Seq2[objectstore.Entry, error] {
	return func(yield func(objectstore.Entry, error) bool) {
		prefix := b.shardPrefix(shard)
		for k, err := range b.list(ctx, prefix) {
			if err != nil {
				yield(objectstore.Entry{}, err)
				return
			}
			h, ok := parseKey(shard, strings.TrimPrefix(k.key, prefix))
			if ok && !yield(objectstore.Entry{Info: objectstore.Info{Hash: h, Size: k.size}, Time: k.time}, nil) {
				return
			}
		}
	}
}

// errNoProgress says that a list would never end.
var errNoProgress = errors.New("the server says that there is more, but not where to go on")

// list yields the keys that begin with prefix. It ends at the first error.
func (b *Bucket) list(ctx context.Context, prefix string) iter.Seq2[keyInfo, error] {
	return func(yield func(keyInfo, error) bool) {
		in := &s3.ListObjectsV2Input{
			Bucket:  &b.o.Bucket,
			Prefix:  &prefix,
			MaxKeys: aws.Int32(int32(b.o.PageSize)),
			// A key may have characters that XML has not.
			EncodingType: types.EncodingTypeUrl,
		}
		for {
			out, err := b.client.ListObjectsV2(ctx, in)
			if err != nil {
				yield(keyInfo{}, b.failed("list", prefix, err))
				return
			}
			for _, o := range out.Contents {
				k, ok := listed(o, out.EncodingType)
				if ok && strings.HasPrefix(k.key, prefix) && !yield(k, nil) {
					return
				}
			}
			if !aws.ToBool(out.IsTruncated) {
				return
			}
			next := aws.ToString(out.NextContinuationToken)
			if next == "" || next == aws.ToString(in.ContinuationToken) {
				yield(keyInfo{}, b.failed("list", prefix, errNoProgress))
				return
			}
			in.ContinuationToken = &next
		}
	}
}

func listed(o types.Object, encoding types.EncodingType) (keyInfo, bool) {
	if o.Key == nil || o.Size == nil || *o.Size < 0 {
		return keyInfo{}, false
	}
	key := *o.Key
	if encoding == types.EncodingTypeUrl {
		var err error
		if key, err = url.QueryUnescape(key); err != nil {
			return keyInfo{}, false
		}
	}
	return keyInfo{key: key, size: *o.Size, time: aws.ToTime(o.LastModified)}, true
}

// Delete removes objects, up to 1000 with a request. Removing an absent object succeeds. It continues after an error;
// the result has the first few errors. It wraps objectstore.ErrUnanswered if all objects were removed, but an attempt
// got no answer. It wraps objectstore.ErrRefused if some were not removed, and all attempts got an answer.
func (b *Bucket) Delete(ctx context.Context, hs []objectstore.Hash) error {
	var failures []error
	anyLate := false
	for len(hs) > 0 && ctx.Err() == nil {
		n := min(len(hs), b.o.PageSize)
		keys := make([]string, n)
		for i, h := range hs[:n] {
			keys[i] = b.key(h)
		}
		hs = hs[n:]
		late, failed := b.deleteKeys(ctx, keys)
		failures = append(failures, failed...)
		anyLate = anyLate || late
	}
	if err := ctx.Err(); err != nil {
		return b.failed("delete from", "", context.Cause(ctx))
	}
	const shown = 5
	if len(failures) > shown {
		failures = append(failures[:shown:shown], fmt.Errorf("and %d more", len(failures)-shown))
	}
	switch {
	case len(failures) == 0 && anyLate:
		return b.failed("delete from", "", objectstore.ErrUnanswered)
	case len(failures) > 0 && !anyLate:
		return fmt.Errorf("%w: %w", objectstore.ErrRefused, errors.Join(failures...))
	}
	return errors.Join(failures...)
}

// deleteKeys removes keys of objects with one request, and repeats this for keys that the server was too busy to
// delete. late reports that an attempt got no answer.
func (b *Bucket) deleteKeys(ctx context.Context, keys []string) (late bool, failures []error) {
	for attempt := 1; len(keys) > 0; attempt++ {
		in := &s3.DeleteObjectsInput{Bucket: &b.o.Bucket, Delete: &types.Delete{Quiet: aws.Bool(true)}}
		for _, k := range keys {
			in.Delete.Objects = append(in.Delete.Objects, types.ObjectIdentifier{Key: aws.String(k)})
		}
		var out *s3.DeleteObjectsOutput
		again, err := b.answered(ctx, func(options ...func(*s3.Options)) (err error) {
			out, err = b.deletes.DeleteObjects(ctx, in, options...)
			return err
		})
		late = late || again
		switch {
		case err != nil && unsupported(err):
			again, failed := b.deleteEach(ctx, keys)
			return late || again, append(failures, failed...)
		case err != nil:
			return late || unanswered(err), append(failures, b.failed("delete", keys[0], err))
		}
		keys = nil
		for _, e := range out.Errors {
			key, what := aws.ToString(e.Key), aws.ToString(e.Code)
			switch what {
			case codeNoSuchKey:
				continue
			case "SlowDown", "InternalError", "ServiceUnavailable", "RequestTimeout", codeAborted, codeConflict:
				if attempt < b.o.Attempts && strings.HasPrefix(key, b.prefix+objectsFolder) {
					keys = append(keys, key)
					continue
				}
			}
			failures = append(failures, &Error{Op: "delete", Bucket: b.o.Bucket, Key: printable(key), Code: what, Err: errors.New(aws.ToString(e.Message))})
		}
		if len(keys) > 0 {
			if err := b.pause(ctx, attempt); err != nil {
				return late, append(failures, b.failed("delete", keys[0], err))
			}
		}
	}
	return late, failures
}

// deleteEach is deleteKeys for servers that take one key at a time.
func (b *Bucket) deleteEach(ctx context.Context, keys []string) (late bool, failures []error) {
	errs := make([]error, len(keys))
	var anyLate atomic.Bool
	var g errgroup.Group
	g.SetLimit(b.o.Concurrency)
	for i, key := range keys {
		g.Go(func() error {
			again, err := b.answered(ctx, func(options ...func(*s3.Options)) error { return b.deleteKey(ctx, key, options...) })
			if again || unanswered(err) {
				anyLate.Store(true)
			}
			errs[i] = err
			return nil
		})
	}
	_ = g.Wait() // the errors are in errs
	for _, err := range errs {
		if err != nil {
			failures = append(failures, err)
		}
	}
	return anyLate.Load(), failures
}

// deleteKey removes one key, absent or not.
func (b *Bucket) deleteKey(ctx context.Context, key string, options ...func(*s3.Options)) error {
	_, err := b.deletes.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &b.o.Bucket, Key: &key}, options...)
	if err != nil && !absent(err) {
		return b.failed("delete", key, err)
	}
	return nil
}

// Package s3 keeps objects, and blobs of other kinds, in a bucket of S3 or of a server with its API.
//
// An object lies at <prefix>/objects/<2 hex>/<62 hex> and is put on the condition that the key is free, so it appears
// completely or not at all. Only Replace overwrites an object, with right bytes. This package does not check the bytes
// it reads against the name: the caller does so while it stores them, see objectstore/cached. Blobs lie at
// <prefix>/<name>, under names that the caller gives.
//
// Every request is bound to its context and retried, with exponential backoff and full jitter, after throttling,
// server faults and broken connections. A request that makes no progress for a while counts as broken, so nothing
// waits for ever.
package s3

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"e3/objectstore"
)

// Options say where a Bucket is and how to reach it. Zero values have defaults.
type Options struct {
	Config    aws.Config // credentials, region, HTTP client
	Endpoint  string     // URL of a server other than AWS
	Bucket    string
	Prefix    string // beginning of all keys, without slashes at its ends; may be empty
	PathStyle bool   // the bucket is in the path of URLs, not in the host

	// PartSize is the number of bytes in one request; larger objects are put and fetched in parts. Most servers require
	// at least 5 MiB. Default 16 MiB.
	PartSize int64

	// Concurrency is the number of parts that are transferred at a time, in all calls together. Default 8.
	Concurrency int

	// Attempts is the number of attempts of a request before it fails. Default 10.
	Attempts int

	// Backoff bounds the wait before the second attempt; the bound doubles with each, up to
	// 10 s, and the wait is a random part of it. After throttling it is five times as long.
	// Default 100 ms.
	Backoff time.Duration

	// Patience is the longest time without progress of a request, in which no byte is sent or received. Default 1 min.
	Patience time.Duration

	// Permit, if it is not nil, decides whether a signed attempt to delete may be sent, given the date of its
	// signature. A refused attempt fails with Permit's error. A process may be suspended at any point between
	// permission and sending. If a request is sent late for this reason, the server refuses it, because its
	// signature is too old.
	Permit func(ctx context.Context, signed time.Time) error

	// Trying, if it is not nil, is called after an attempt without an answer, or after a fault of the server, once all
	// attempts of the last 2 s have ended in one of these ways. Several goroutines may call it at once. It must not
	// block.
	Trying func(error)

	// Expired, if it is not nil, reports whether a request failed because its credentials have expired. Once other
	// requests have succeeded, such a request is repeated, as often as one without an answer: Expired may have found
	// new credentials meanwhile.
	Expired func(error) bool

	// Dated is the name of a blob whose answers tell the time, for credentials that allow requests under the prefix but
	// none for the bucket itself. The blob need not exist. By default a request for the bucket tells the time.
	Dated string

	// PageSize is the number of keys that are listed, or deleted, in one request. Default and maximum 1000.
	PageSize int
}

const (
	defaultPartSize    = 16 << 20
	defaultConcurrency = 8
	defaultAttempts    = 10
	defaultBackoff     = 100 * time.Millisecond
	defaultPatience    = time.Minute
	maxPageSize        = 1000
	maxKey             = 1024 // bytes; a limit of S3
)

// A Bucket is the objects and blobs under one prefix of a bucket. All methods may be called concurrently.
type Bucket struct {
	client *s3.Client
	// deletes is the client for deletions and requests for the time. A client dates its signatures by the server's
	// clock, which it estimates from answers. The error of the estimate is up to half the duration of a request,
	// which may be minutes for an upload.
	deletes *s3.Client
	o       Options
	prefix  string        // beginning of all keys: empty, or with a slash at its end
	served  *atomic.Bool  // a request has succeeded
	parts   chan struct{} // holds a token for each part that is being transferred
	bufs    sync.Pool     // holds *[]byte of copyBuffer bytes
}

// copyBuffer is the number of bytes that are copied or hashed at a time.
const copyBuffer = 256 << 10

// Open returns the bucket. It makes no request and checks nothing: see Create and Options.Check.
func Open(o Options) *Bucket {
	o = o.withDefaults()
	b := &Bucket{o: o, parts: make(chan struct{}, o.Concurrency)}
	if o.Prefix != "" {
		b.prefix = o.Prefix + "/"
	}
	b.bufs.New = func() any {
		buf := make([]byte, copyBuffer)
		return &buf
	}
	heard := new(atomic.Bool)
	httpClient, retryer := newHTTPClient(o, heard), newRetryer(o, heard)
	b.served = new(atomic.Bool)
	options := func(c *s3.Options) {
		if o.Endpoint != "" {
			c.BaseEndpoint = aws.String(o.Endpoint)
		}
		c.UsePathStyle = o.PathStyle
		c.HTTPClient = httpClient
		c.Retryer = retryer
		// Each request that needs a checksum gets it as a header: many servers do not support the trailers that the SDK
		// would use. Bytes read are checked by name.
		c.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired
		c.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired
		c.DisableLogOutputChecksumValidationSkipped = true
		if o.Permit != nil {
			c.APIOptions = append(c.APIOptions, guardDeletes(o.Permit))
		}
		if o.Expired != nil {
			c.APIOptions = append(c.APIOptions, b.outlastExpiry)
		}
	}
	b.client, b.deletes = s3.NewFromConfig(o.Config, options), s3.NewFromConfig(o.Config, options)
	return b
}

func (o Options) withDefaults() Options {
	o.Prefix = strings.Trim(o.Prefix, "/")
	o.PartSize = cmp.Or(max(o.PartSize, 0), defaultPartSize)
	o.Concurrency = cmp.Or(max(o.Concurrency, 0), defaultConcurrency)
	o.Attempts = cmp.Or(max(o.Attempts, 0), defaultAttempts)
	o.Backoff = cmp.Or(max(o.Backoff, 0), defaultBackoff)
	o.Patience = cmp.Or(max(o.Patience, 0), defaultPatience)
	if o.PageSize <= 0 || o.PageSize > maxPageSize {
		o.PageSize = maxPageSize
	}
	return o
}

// Check reports what is wrong with the names in o. It makes no request.
func (o Options) Check() error {
	prefix := strings.Trim(o.Prefix, "/")
	switch {
	case o.Bucket == "":
		return errors.New("no bucket is named")
	case strings.ContainsFunc(o.Bucket, func(r rune) bool { return r == '/' || unicode.IsControl(r) || unicode.IsSpace(r) }):
		return fmt.Errorf("%q is no name of a bucket", o.Bucket)
	case prefix == "":
		return nil
	}
	if err := checkPath(prefix); err != nil {
		return fmt.Errorf("prefix %.200q: %w", prefix, err)
	}
	// Blobs have the longest keys.
	if len(prefix)+1+maxBlobName > maxKey {
		return fmt.Errorf("prefix %.80q… has %d bytes; at most %d are possible", prefix, len(prefix), maxKey-1-maxBlobName)
	}
	return nil
}

// checkPath refuses paths that are not plain. Servers that keep objects in files would normalize such a path, and then
// list a different key.
func checkPath(path string) error {
	switch {
	case !utf8.ValidString(path) || strings.ContainsFunc(path, unicode.IsControl):
		return errors.New("it has bytes that are no printable text")
	case !fs.ValidPath(path) || path == ".":
		return errors.New("it must be names with single slashes between them, none of them being dots")
	}
	return nil
}

const objectsFolder = "objects/"

// key is the key of an object.
func (b *Bucket) key(h objectstore.Hash) string {
	text := h.String()
	return b.prefix + objectsFolder + text[:2] + "/" + text[2:]
}

// shardPrefix begins the keys of a shard's objects.
func (b *Bucket) shardPrefix(shard byte) string {
	return b.prefix + objectsFolder + hex.EncodeToString([]byte{shard}) + "/"
}

// parseKey is the inverse of key, for the rest after the shard's prefix.
func parseKey(shard byte, rest string) (h objectstore.Hash, ok bool) {
	if len(rest) != 2*(sha256.Size-1) {
		return h, false
	}
	h, err := objectstore.ParseHash(hex.EncodeToString([]byte{shard}) + rest)
	return h, err == nil
}

// Now returns the time, in whole seconds, by the server's clock, which also sets Entry.Time.
func (b *Bucket) Now(ctx context.Context) (time.Time, error) {
	key := ""
	meta, err := head(ctx, b, func() (middleware.Metadata, error) {
		if b.o.Dated == "" {
			out, err := b.deletes.HeadBucket(ctx, &s3.HeadBucketInput{Bucket: &b.o.Bucket})
			if err != nil {
				return middleware.Metadata{}, err
			}
			return out.ResultMetadata, nil
		}
		key = b.prefix + b.o.Dated
		out, err := b.deletes.HeadObject(ctx, &s3.HeadObjectInput{Bucket: &b.o.Bucket, Key: &key})
		if err != nil {
			return middleware.Metadata{}, err
		}
		return out.ResultMetadata, nil
	})
	now, ok := awsmiddleware.GetServerTime(meta)
	if err != nil {
		if failed := b.unread(ctx, "ask for the time of", key, err); !errors.Is(failed, objectstore.ErrNotFound) {
			return time.Time{}, failed
		}
		now, ok = dateOf(err), true
	}
	if !ok || now.IsZero() {
		return time.Time{}, b.failed("ask for the time of", key, errors.New("the server's answer has no Date"))
	}
	return now, nil
}

// dateOf returns the server's time from the answer to a failed request; zero if the answer has none.
func dateOf(err error) (date time.Time) {
	if resp := (*smithyhttp.ResponseError)(nil); errors.As(err, &resp) && resp.Response != nil {
		date, _ = http.ParseTime(resp.Response.Header.Get("Date"))
	}
	return date
}

// acquire waits for a token for a part.
func (b *Bucket) acquire(ctx context.Context) error {
	select {
	case b.parts <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (b *Bucket) release() { <-b.parts }

func (b *Bucket) getBuffer() *[]byte { return b.bufs.Get().(*[]byte) }

func (b *Bucket) putBuffer(buf *[]byte) { b.bufs.Put(buf) }

package s3

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go/middleware"

	"e3/objectstore"
)

// Put stores the size bytes of r under h, unless the object exists already, and reports whether it has stored them. (If
// the first answer was lost, it reports false although it has.)
//
// The bytes must match h. The server checks an object of one part: other bytes are a *objectstore.CorruptError. Of a
// larger object the server can check only each part, so the caller must have checked the whole, and nothing may
// write to r meanwhile.
func (b *Bucket) Put(ctx context.Context, h objectstore.Hash, r io.ReaderAt, size int64) (created bool, err error) {
	if size < 0 {
		return false, fmt.Errorf("put object %s: its size cannot be %d", h, size)
	}
	err = reading(ctx, h, r, size, func(ctx context.Context, src *source) (err error) {
		if size <= b.o.PartSize {
			created, err = b.putWhole(ctx, h, src)
		} else {
			created, err = b.putLarge(ctx, h, src)
		}
		return err
	})
	return created && err == nil, err
}

// Replace is like Put, but replaces an existing object, which the caller has found to have wrong bytes. It is harmless
// if another process has replaced the object already, since the new bytes are checked.
func (b *Bucket) Replace(ctx context.Context, h objectstore.Hash, r io.ReaderAt, size int64) error {
	if size < 0 {
		return fmt.Errorf("replace object %s: its size cannot be %d", h, size)
	}
	key := b.key(h)
	return reading(ctx, h, r, size, func(ctx context.Context, src *source) error {
		if size <= b.o.PartSize {
			if err := b.putSum(ctx, key, h, src.section(0, size), size, nil); err != nil {
				return b.failed("replace", key, err)
			}
			return nil
		}
		for attempt := 1; ; attempt++ {
			_, err := b.upload(ctx, key, src, nil)
			if !errors.Is(err, errConflict) || attempt == uploads {
				return err
			}
			if err := b.pause(ctx, attempt); err != nil {
				return b.failed("replace", key, err)
			}
		}
	})
}

// reading calls f with a source, and ends f's context if the source cannot be read: otherwise the SDK would retry.
func reading(ctx context.Context, h objectstore.Hash, r io.ReaderAt, size int64, f func(context.Context, *source) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	err := f(ctx, &source{r, size, cancel})
	if read := (*sourceError)(nil); err != nil && errors.As(context.Cause(ctx), &read) {
		return fmt.Errorf("put object %s: %w", h, read)
	}
	return err
}

// PutBytes stores data, unless it exists already, and returns its name.
func (b *Bucket) PutBytes(ctx context.Context, data []byte) (objectstore.Hash, error) {
	h := objectstore.Sum(data)
	_, err := b.Put(ctx, h, bytes.NewReader(data), int64(len(data)))
	return h, err
}

// mismatches bounds the repeated sending of an object that arrived with other bytes.
const mismatches = 3

// putWhole puts an object with one request. After a broken connection it looks for the object before it sends the
// object again. The request may have taken effect; or the server refused the request early and closed the connection
// during the upload, so that the answer was lost.
func (b *Bucket) putWhole(ctx context.Context, h objectstore.Hash, src *source) (bool, error) {
	key := b.key(h)
	for attempt := 1; ; attempt++ {
		err := b.putSum(ctx, key, h, src.section(0, src.size), src.size, aws.String("*"), sendOnce)
		switch {
		case err == nil:
			return true, nil
		case precondition(err):
			return false, nil
		case ctx.Err() != nil:
			return false, b.failed("put", key, err)
		case unanswered(err) && attempt < b.o.Attempts:
			switch _, err := b.Stat(ctx, h); {
			case err == nil:
				return false, nil
			case !errors.Is(err, objectstore.ErrNotFound):
				return false, err
			}
		case mismatch(err) && attempt < mismatches:
			sum, err := b.sum(src.section(0, src.size))
			if err != nil {
				return false, b.failed("put", key, err)
			}
			if sum != h {
				return false, &objectstore.CorruptError{Want: h, Got: sum, Size: src.size}
			}
		default:
			return false, b.failed("put", key, err)
		}
		if err := b.pause(ctx, attempt); err != nil {
			return false, b.failed("put", key, err)
		}
	}
}

// putSum puts bytes whose SHA-256 is known.
func (b *Bucket) putSum(ctx context.Context, key string, sum objectstore.Hash, body io.ReadSeeker, size int64, ifNoneMatch *string, options ...func(*s3.Options)) error {
	_, err := b.client.PutObject(ctx, &s3.PutObjectInput{
		Bucket:            &b.o.Bucket,
		Key:               &key,
		Body:              body,
		ContentLength:     &size,
		IfNoneMatch:       ifNoneMatch,
		ChecksumAlgorithm: types.ChecksumAlgorithmSha256,
		ChecksumSHA256:    aws.String(base64.StdEncoding.EncodeToString(sum[:])),
	}, append(options, signedSum(sum))...)
	return err
}

// signedSum signs a request for a body of this SHA-256, so that every server that checks signatures checks the body.
// The SDK would compute the sum again, or, over TLS, leave the body unsigned.
func signedSum(sum objectstore.Hash) func(*s3.Options) {
	return func(o *s3.Options) {
		o.APIOptions = append(o.APIOptions, func(stack *middleware.Stack) error {
			return stack.Finalize.Add(middleware.FinalizeMiddlewareFunc("KnownPayloadHash",
				func(ctx context.Context, in middleware.FinalizeInput, next middleware.FinalizeHandler) (middleware.FinalizeOutput, middleware.Metadata, error) {
					return next.HandleFinalize(v4.SetPayloadHash(ctx, hex.EncodeToString(sum[:])), in)
				}), middleware.Before)
		})
	}
}

// mismatch reports whether the server received bytes that do not match the announced sum.
func mismatch(err error) bool {
	switch code(err) {
	case "BadDigest", "XAmzContentSHA256Mismatch", "XAmzContentChecksumMismatch", "InvalidDigest":
		return true
	}
	return false
}

// sum hashes r in constant memory.
func (b *Bucket) sum(r io.Reader) (sum objectstore.Hash, err error) {
	buf := b.getBuffer()
	defer b.putBuffer(buf)
	hasher := sha256.New()
	if _, err := io.CopyBuffer(hasher, r, *buf); err != nil {
		return sum, err
	}
	hasher.Sum(sum[:0])
	return sum, nil
}

// A source holds the bytes to put. A failure to read them is passed to fail.
type source struct {
	r    io.ReaderAt
	size int64
	fail context.CancelCauseFunc
}

// A sourceError says that the bytes to put could not be read.
type sourceError struct{ err error }

func (e *sourceError) Error() string { return fmt.Sprintf("read what is to be put: %v", e.err) }
func (e *sourceError) Unwrap() error { return e.err }

// ReadAt implements io.ReaderAt for offsets within size; a short read is a failure.
func (s *source) ReadAt(p []byte, off int64) (int, error) {
	n, err := s.r.ReadAt(p, off)
	if n == len(p) {
		return n, nil
	}
	if err == nil || err == io.EOF {
		err = fmt.Errorf("it ends after %d of %d bytes: %w", off+int64(n), s.size, io.ErrUnexpectedEOF)
	}
	err = &sourceError{err}
	s.fail(err)
	return n, err
}

func (s *source) section(off, n int64) *io.SectionReader { return io.NewSectionReader(s, off, n) }

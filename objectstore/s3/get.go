package s3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"golang.org/x/sync/errgroup"

	"e3/objectstore"
)

// Open returns the bytes of h; the caller closes them. The bytes are not checked against the name. A broken connection
// is resumed where it broke. An absent object is objectstore.ErrNotFound.
func (b *Bucket) Open(ctx context.Context, h objectstore.Hash) (io.ReadCloser, error) {
	return b.open(ctx, b.key(h), 0, toEnd)
}

// Fetch writes the bytes of h to w, at their offsets, and returns their number. A large object is fetched in parts,
// several at the same time. The bytes are not checked against the name, and after a failure some may be written. An
// absent object is objectstore.ErrNotFound.
func (b *Bucket) Fetch(ctx context.Context, h objectstore.Hash, w io.WriterAt) (size int64, err error) {
	key := b.key(h)
	if err := b.acquire(ctx); err != nil {
		return 0, b.failed("get", key, err)
	}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(b.o.Concurrency)
	first, err := b.open(gctx, key, 0, b.o.PartSize)
	if err != nil {
		b.release()
		if errors.Is(err, errPastEnd) { // an empty object has no range to ask for
			return 0, nil
		}
		return 0, err
	}
	g.Go(func() error {
		defer b.release()
		return b.copyTo(w, first)
	})
	// If the server does not support ranges, the first answer is the whole object.
	for off := first.end; off < first.size && gctx.Err() == nil; off += b.o.PartSize {
		g.Go(func() error {
			if err := b.acquire(gctx); err != nil {
				return b.failed("get", key, err)
			}
			defer b.release()
			return b.copyTo(w, &reader{ctx: gctx, b: b, key: key, etag: first.etag, off: off, end: min(off+b.o.PartSize, first.size), size: first.size})
		})
	}
	if err := g.Wait(); err != nil {
		return 0, err
	}
	return first.size, nil
}

// copyTo writes the bytes of r at their offset and closes r.
func (b *Bucket) copyTo(w io.WriterAt, r *reader) error {
	defer r.Close()
	buf := b.getBuffer()
	defer b.putBuffer(buf)
	_, err := io.CopyBuffer(io.NewOffsetWriter(w, r.off), struct{ io.Reader }{r}, *buf)
	return err
}

// toEnd is the end of an object of unknown size.
const toEnd = -1

// errPastEnd says that an object is shorter than the requested range.
var errPastEnd = errors.New("it has no bytes there")

// open asks for the bytes from off to before end.
func (b *Bucket) open(ctx context.Context, key string, off, end int64) (*reader, error) {
	r := &reader{ctx: ctx, b: b, key: key, off: off, end: end, size: toEnd}
	if err := r.connect(); err != nil {
		return nil, err
	}
	return r, nil
}

// A reader yields a part of an object, over several connections if they break.
type reader struct {
	ctx  context.Context
	b    *Bucket
	key  string
	etag string // tag of the first answer: all answers must have the same bytes
	off  int64  // offset of the next byte
	end  int64  // end of the part; toEnd before the first answer
	size int64  // size of the object; toEnd before the first answer
	body io.ReadCloser

	breaks int   // breaks of the connection since off was at mark
	mark   int64 // see progress
}

// progress is the number of bytes between two breaks that resets the count of breaks.
const progress = 64 << 10

// connect asks for the bytes that are still missing.
func (r *reader) connect() error {
	in := &s3.GetObjectInput{Bucket: &r.b.o.Bucket, Key: &r.key}
	if r.off > 0 || r.end != toEnd {
		span := fmt.Sprintf("bytes=%d-", r.off)
		if r.end != toEnd {
			span += strconv.FormatInt(r.end-1, 10)
		}
		in.Range = &span
	}
	if r.etag != "" {
		in.IfMatch = &r.etag
	}
	out, err := r.b.client.GetObject(r.ctx, in)
	if err != nil {
		if code(err) == codeInvalidRange || status(err) == http.StatusRequestedRangeNotSatisfiable {
			err = errPastEnd
		}
		return r.b.unread(r.ctx, "get", r.key, err)
	}
	if err := r.answered(out, in.Range != nil); err != nil {
		out.Body.Close()
		return r.b.failed("get", r.key, err)
	}
	r.body = out.Body
	return nil
}

// answered compares an answer with the request, and stores size and tag of the first answer.
func (r *reader) answered(out *s3.GetObjectOutput, ranged bool) error {
	if out.ContentLength == nil || *out.ContentLength < 0 {
		return errors.New("the server does not say how many bytes there are")
	}
	length := *out.ContentLength
	from, size := int64(0), length
	if ranged && out.ContentRange != nil {
		var to int64
		var ok bool
		if from, to, size, ok = parseContentRange(*out.ContentRange); !ok || to-from != length {
			return fmt.Errorf("the server sends %d bytes as %.100q", length, *out.ContentRange)
		}
	}
	end := r.end
	switch {
	case ranged && out.ContentRange == nil && r.off == 0 && r.size == toEnd:
		end = size // the server ignores ranges and sends all
	case end == toEnd || r.size == toEnd && end > size:
		end = size
	}
	switch {
	case from != r.off || from+length != end:
		return fmt.Errorf("the server sends bytes %d to %d instead of %d to %d; does it know ranges?", from, from+length, r.off, end)
	case r.size != toEnd && r.size != size:
		return fmt.Errorf("it has %d bytes and had %d when it was opened", size, r.size)
	}
	if r.size == toEnd { // other goroutines may read r, so later answers change nothing
		r.end, r.size = end, size
		if out.ETag != nil {
			r.etag = *out.ETag
		}
	}
	return nil
}

// parseContentRange reads "bytes 0-9/100" as 0, 10, 100.
func parseContentRange(s string) (from, to, size int64, ok bool) {
	span, isBytes := strings.CutPrefix(s, "bytes ")
	span, total, hasTotal := strings.Cut(span, "/")
	first, last, hasLast := strings.Cut(span, "-")
	if !isBytes || !hasTotal || !hasLast {
		return 0, 0, 0, false
	}
	var numbers [3]int64
	for i, text := range []string{first, last, total} {
		n, err := strconv.ParseUint(text, 10, 62)
		if err != nil {
			return 0, 0, 0, false
		}
		numbers[i] = int64(n)
	}
	from, to, size = numbers[0], numbers[1]+1, numbers[2]
	return from, to, size, from < to && to <= size
}

func (r *reader) Read(p []byte) (int, error) {
	for {
		if r.off >= r.end {
			return 0, io.EOF
		}
		if len(p) == 0 {
			return 0, nil
		}
		if r.body == nil {
			if err := r.connect(); err != nil {
				return 0, err
			}
		}
		n, err := r.body.Read(p[:min(int64(len(p)), r.end-r.off)])
		r.off += int64(n)
		if n > 0 {
			return n, nil
		}
		if err == nil {
			continue
		}
		if err := r.broke(err); err != nil {
			return 0, err
		}
	}
}

// broke prepares for another connection. After too many breaks without progress it returns err.
func (r *reader) broke(err error) error {
	r.Close()
	r.body = nil
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	if r.ctx.Err() != nil {
		return r.b.failed("get", r.key, context.Cause(r.ctx))
	}
	if r.off-r.mark >= progress {
		r.breaks, r.mark = 0, r.off
	}
	if r.breaks++; r.breaks >= r.b.o.Attempts {
		return r.b.failed("get", r.key, fmt.Errorf("the connection broke %d times at byte %d of %d: %w", r.breaks, r.off, r.size, err))
	}
	if err := r.b.pause(r.ctx, r.breaks); err != nil {
		return r.b.failed("get", r.key, err)
	}
	return nil
}

func (r *reader) Close() error {
	if r.body == nil {
		return nil
	}
	return r.body.Close()
}

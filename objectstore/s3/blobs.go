package s3

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"e3/objectstore"
)

// maxBlobName bounds the length of a blob's name.
const maxBlobName = 512

// A Blob is an entry of a list of blobs.
type Blob struct {
	Name string
	Size int64
	Time time.Time // the time at which it was put, by the server's clock
}

// PutBlob stores data under a name, in place of an existing blob. The server checks the data by its SHA-256. A name
// is a path of at most 512 bytes that is not under "objects".
func (b *Bucket) PutBlob(ctx context.Context, name string, data []byte) error {
	key, err := b.blobKey(name)
	if err != nil {
		return err
	}
	if err := b.putSum(ctx, key, objectstore.Sum(data), bytes.NewReader(data), int64(len(data)), nil); err != nil {
		return b.failed("put", key, err)
	}
	return nil
}

// CreateBlob is PutBlob unless the name is taken, and reports whether it has put the blob. (If the first answer was
// lost, it reports false although it has.)
func (b *Bucket) CreateBlob(ctx context.Context, name string, data []byte) (created bool, err error) {
	key, err := b.blobKey(name)
	if err != nil {
		return false, err
	}
	err = b.putSum(ctx, key, objectstore.Sum(data), bytes.NewReader(data), int64(len(data)), aws.String("*"))
	switch {
	case err == nil:
		return true, nil
	case precondition(err):
		return false, nil
	}
	return false, b.failed("put", key, err)
}

// OpenBlob returns the bytes of a blob from an offset on. Behind the end there are none, which is no error. The caller
// closes them. A broken connection is resumed where it broke. An absent blob is objectstore.ErrNotFound.
func (b *Bucket) OpenBlob(ctx context.Context, name string, offset int64) (io.ReadCloser, error) {
	key, err := b.blobKey(name)
	if err != nil {
		return nil, err
	}
	if offset < 0 {
		return nil, fmt.Errorf("open blob %s: the offset cannot be %d", name, offset)
	}
	r, err := b.open(ctx, key, offset, toEnd)
	if errors.Is(err, errPastEnd) {
		return io.NopCloser(bytes.NewReader(nil)), nil
	}
	if err != nil {
		return nil, err
	}
	return r, nil
}

// DeleteBlob removes a blob. Removing an absent one succeeds. An attempt without an answer may still take effect later,
// so the name should not be used again.
func (b *Bucket) DeleteBlob(ctx context.Context, name string) error {
	key, err := b.blobKey(name)
	if err != nil {
		return err
	}
	return b.deleteKey(ctx, key)
}

// ListBlobs yields the blobs whose names begin with prefix, which may be empty or end within a name. It skips objects
// and other keys. It ends at the first error.
func (b *Bucket) ListBlobs(ctx context.Context, prefix string) iter.Seq2[Blob, error] {
	return func(yield func(Blob, error) bool) {
		if prefix != "" {
			if err := checkBlobName(strings.TrimSuffix(prefix, "/")); err != nil {
				yield(Blob{}, fmt.Errorf("list blobs %.200q: %w", prefix, err))
				return
			}
		}
		for k, err := range b.list(ctx, b.prefix+prefix) {
			if err != nil {
				yield(Blob{}, err)
				return
			}
			name := strings.TrimPrefix(k.key, b.prefix)
			if checkBlobName(name) == nil && !yield(Blob{name, k.size, k.time}, nil) {
				return
			}
		}
	}
}

func (b *Bucket) blobKey(name string) (string, error) {
	if err := checkBlobName(name); err != nil {
		return "", fmt.Errorf("blob %.200q: %w", name, err)
	}
	return b.prefix + name, nil
}

func checkBlobName(name string) error {
	switch {
	case len(name) > maxBlobName:
		return fmt.Errorf("its name has %d bytes; at most %d are possible", len(name), maxBlobName)
	case name+"/" == objectsFolder || strings.HasPrefix(name, objectsFolder):
		return errors.New("its name is one of objects")
	}
	return checkPath(name)
}

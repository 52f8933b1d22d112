package dynamo

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"iter"
	"time"

	"e3/refstore"
)

// Blobs keeps data that is too large for an item, under relative names of the form "records/…" and "streams/…". A name
// is put once and never changes. An absent blob is [refstore.ErrNotFound]; a blob is visible everywhere once it was
// put. Implementations retry failed requests themselves.
type Blobs interface {
	PutBlob(ctx context.Context, name string, data []byte) error
	// OpenBlob reads from offset on. offset is at most the size of the blob.
	OpenBlob(ctx context.Context, name string, offset int64) (io.ReadCloser, error)
	// DeleteBlob succeeds if there is no such blob.
	DeleteBlob(ctx context.Context, name string) error
	// ListBlobs yields the blobs whose names begin with prefix.
	ListBlobs(ctx context.Context, prefix string) iter.Seq2[Blob, error]
}

// Blob describes one blob.
type Blob struct {
	Name     string
	Size     int64     // bytes
	Modified time.Time // by the clock that dates objects
}

// Folders of blobs.
const (
	recordBlobs = "records/"
	streamBlobs = "streams/"
)

// blobFolder is the folder of an item's blobs.
func blobFolder(kind string, k itemKey) string {
	sum := sha256.Sum256([]byte(k.pk + "\x00" + k.sk))
	return kind + hex.EncodeToString(sum[:]) + "/"
}

// blobMagic begins every blob.
const blobMagic = "e3 blob 1\n"

// maxBlobHeader bounds the header of a blob: twice the limits of keys, and their lengths.
const maxBlobHeader = len(blobMagic) + 2*binary.MaxVarintLen64 + 2*(2048+1024)

// blobHeader holds the key of the blob's item, so that RemoveLeftovers can check whether the item still names the blob.
func blobHeader(k itemKey) []byte {
	h := []byte(blobMagic)
	for _, s := range []string{k.pk, k.sk} {
		h = binary.AppendUvarint(h, uint64(len(s)))
		h = append(h, s...)
	}
	return h
}

// parseBlobHeader reads the key at the beginning of a blob.
func parseBlobHeader(data []byte) (itemKey, bool) {
	rest, ok := bytes.CutPrefix(data, []byte(blobMagic))
	var parts [2]string
	for i := range parts {
		n, used := binary.Uvarint(rest)
		if !ok || used <= 0 || n > uint64(len(rest)-used) {
			return itemKey{}, false
		}
		parts[i] = string(rest[used : used+int(n)])
		rest = rest[used+int(n):]
	}
	return itemKey{parts[0], parts[1]}, true
}

// putBlob puts data with the header of its item.
func (s *table) putBlob(ctx context.Context, name string, k itemKey, data []byte) error {
	return s.putWhole(ctx, name, append(blobHeader(k), data...))
}

// putWhole puts a blob that already has its header.
func (s *table) putWhole(ctx context.Context, name string, blob []byte) error {
	if err := s.o.Blobs.PutBlob(ctx, name, blob); err != nil {
		return fmt.Errorf("put %s: %w", name, err)
	}
	return nil
}

// openBlob reads the data of a blob from an offset on, at most size bytes in all.
func (s *table) openBlob(ctx context.Context, name string, k itemKey, offset, size int64) (io.ReadCloser, error) {
	r, err := s.o.Blobs.OpenBlob(ctx, name, int64(len(blobHeader(k)))+offset)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", name, err)
	}
	return struct {
		io.Reader
		io.Closer
	}{io.LimitReader(r, size-offset), r}, nil
}

// errShort says that a blob is shorter than its size; a broken connection has another error.
var errShort = errors.New("the blob is cut")

// readBlob reads size bytes of data from an offset on.
func (s *table) readBlob(ctx context.Context, name string, k itemKey, size int64) ([]byte, error) {
	r, err := s.openBlob(ctx, name, k, 0, size)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	// The size in the item may be wrong, so memory grows with the actual data.
	var data bytes.Buffer
	if n, err := io.Copy(&data, r); err != nil || n < size {
		if err == nil {
			err = fmt.Errorf("%w: it has %d bytes of %d", errShort, n, size)
		}
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return data.Bytes(), nil
}

// readInto fills into with the beginning of a blob's data.
func (s *table) readInto(ctx context.Context, into []byte, name string, k itemKey) error {
	r, err := s.openBlob(ctx, name, k, 0, int64(len(into)))
	if err != nil {
		return err
	}
	defer r.Close()
	if n, err := io.ReadFull(r, into); err != nil {
		return fmt.Errorf("read %s: %w: it has %d bytes of %d", name, err, n, len(into))
	}
	return nil
}

// cleanupTime bounds the deletion of unnamed blobs.
const cleanupTime = 10 * time.Second

// deleteBlobs deletes blobs that no item names any more. If it fails, RemoveLeftovers deletes them later.
func (s *table) deleteBlobs(ctx context.Context, names []string) {
	if len(names) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTime)
	defer cancel()
	for _, name := range names {
		if err := s.o.Blobs.DeleteBlob(ctx, name); err != nil && !errors.Is(err, refstore.ErrNotFound) {
			return
		}
	}
}

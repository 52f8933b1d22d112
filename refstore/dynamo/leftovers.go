package dynamo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"time"

	"e3/refstore"
)

// RemoveLeftovers removes the remains of crashes and lost answers: blobs older than before that no item names, and
// enumeration items whose records were deleted long ago. It returns the number of removed things. before must not be
// later than the beginning of any live session, so that nothing is removed that a process is about to name. It may run
// at any time; it reads each item with blobs once.
func (s *Store) RemoveLeftovers(ctx context.Context, before time.Time) (removed int, err error) {
	for _, kind := range []string{recordBlobs, streamBlobs} {
		n, err := s.removeBlobs(ctx, kind, before)
		removed += n
		if err != nil {
			return removed, fmt.Errorf("remove leftovers: %w", err)
		}
	}
	n, err := s.removeDead(ctx, before)
	return removed + n, err
}

// removeBlobs checks a kind of blobs. It handles the blobs of one item at a time: they share a folder, so they are
// consecutive in a list.
func (s *Store) removeBlobs(ctx context.Context, kind string, before time.Time) (removed int, err error) {
	folder, names := "", []string(nil)
	var bad error // about items that cannot be read: their blobs stay, and other items are checked
	end := func() error {
		n, err := s.removeUnnamed(ctx, kind, folder, names)
		removed += n
		names = names[:0]
		if item := (*badItemError)(nil); errors.As(err, &item) {
			bad, err = errors.Join(bad, err), nil
		}
		return err
	}
	for blob, err := range s.table.o.Blobs.ListBlobs(ctx, kind) {
		if err != nil {
			return removed, err
		}
		if !blob.Modified.Before(before) {
			continue
		}
		// Names may come in any order, and a folder may have many. If a folder is checked twice, that only costs one
		// more read.
		if dir := path.Dir(blob.Name) + "/"; dir != folder || len(names) == 1000 {
			if err := end(); err != nil {
				return removed, err
			}
			folder = dir
		}
		names = append(names, blob.Name)
	}
	err = end()
	return removed, errors.Join(err, bad)
}

// removeUnnamed deletes the blobs of a folder that its item does not name.
func (s *Store) removeUnnamed(ctx context.Context, kind, folder string, names []string) (removed int, err error) {
	if len(names) == 0 {
		return 0, nil
	}
	k, ok, err := s.table.owner(ctx, kind, folder, names[0])
	if err != nil || !ok {
		return 0, err
	}
	named, err := s.table.named(ctx, kind, k)
	if err != nil {
		return 0, err
	}
	for _, name := range names {
		if named[name] {
			continue
		}
		if err := s.table.o.Blobs.DeleteBlob(ctx, name); err != nil && !errors.Is(err, refstore.ErrNotFound) {
			return removed, err
		}
		removed++
	}
	return removed, nil
}

// owner reads the key of a folder's item from one of the folder's blobs; ok is false if the item is not of this
// repository.
func (s *table) owner(ctx context.Context, kind, folder, name string) (k itemKey, ok bool, err error) {
	r, err := s.o.Blobs.OpenBlob(ctx, name, 0)
	if errors.Is(err, refstore.ErrNotFound) {
		return itemKey{}, false, nil
	}
	if err != nil {
		return itemKey{}, false, err
	}
	defer r.Close()
	data, err := io.ReadAll(io.LimitReader(r, int64(maxBlobHeader)))
	if err != nil {
		return itemKey{}, false, fmt.Errorf("read %s: %w", name, err)
	}
	k, ok = parseBlobHeader(data)
	if !ok || blobFolder(kind, k) != folder {
		return itemKey{}, false, nil // not a blob of this program
	}
	prefix, _, ok := s.parsePK(k.pk)
	want := ""
	if kind == streamBlobs {
		want = streamPrefix
	}
	return k, ok && prefix == want && !strings.HasPrefix(k.pk, partitionPrefix), nil
}

// named returns the blobs that an item names.
func (s *table) named(ctx context.Context, kind string, k itemKey) (map[string]bool, error) {
	named := make(map[string]bool)
	if kind == streamBlobs {
		h, err := s.readHead(ctx, k)
		if err != nil || h == nil {
			return nil, err
		}
		if h.damage != nil {
			return nil, h.damage
		}
		for _, name := range blobNames(k, h.parts) {
			named[name] = true
		}
		return named, nil
	}
	item, err := s.getItem(ctx, k, "", nil)
	if err != nil {
		return nil, err
	}
	names, err := s.blobsOf(k, item)
	for _, name := range names {
		named[name] = true
	}
	return named, err
}

package dynamo

import (
	"context"
	"errors"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"e3/refstore"
)

// WriteBatch puts and deletes records for a queue. It is one request, unless the server leaves items unwritten.
// Deleting a record that has blobs would leave them behind, so a caller may give only records that have always been
// small.
func (s *Store) WriteBatch(ctx context.Context, puts []refstore.Record, gone []refstore.Key) error {
	if n := len(puts) + len(gone); n == 0 || n > refstore.MaxBatch {
		if n == 0 {
			return nil
		}
		return fmt.Errorf("write %d records at once: %w", n, refstore.ErrInvalid)
	}
	var requests []types.WriteRequest
	for _, r := range puts {
		k := s.table.recordKey(r.Key)
		item := k.attributes()
		item[attrVersion] = &types.AttributeValueMemberS{Value: newVersion()}
		parts := recordParts(r)
		size := len(k.pk) + len(k.sk)
		for i := range parts {
			item[parts[i].name] = parts[i].attribute()
			size += parts[i].size()
		}
		if size > maxItem {
			return fmt.Errorf("put %q among others: %d bytes: %w", r.Key, size, errors.ErrUnsupported)
		}
		if err := s.batchable(ctx, r.Key, r.Validate()); err != nil {
			return fmt.Errorf("put %q among others: %w", r.Key, err)
		}
		requests = append(requests, types.WriteRequest{PutRequest: &types.PutRequest{Item: item}})
	}
	for _, key := range gone {
		if err := s.batchable(ctx, key, key.Validate()); err != nil {
			return fmt.Errorf("delete %q among others: %w", key, err)
		}
		requests = append(requests, types.WriteRequest{DeleteRequest: &types.DeleteRequest{Key: s.table.recordKey(key).attributes()}})
	}
	return s.table.writeItems(ctx, requests)
}

// ReadBatch returns the values of those of some records that are there: one request, unless the server leaves items
// unread. It leaves out damaged records.
func (s *Store) ReadBatch(ctx context.Context, keys []refstore.Key) (records []refstore.Record, err error) {
	if len(keys) == 0 || len(keys) > refstore.MaxReads {
		return nil, fmt.Errorf("read %d records at once: %w", len(keys), refstore.ErrInvalid)
	}
	asked := make(map[itemKey]refstore.Key)
	var items []attributes
	for _, key := range keys {
		if err := check(ctx, key.Validate()); err != nil {
			return nil, fmt.Errorf("read %q among others: %w", key, err)
		}
		k := s.table.recordKey(key)
		asked[k] = key
		items = append(items, k.attributes())
	}
	expression, _ := projection(nil)
	items, err = s.table.readItems(ctx, items, partitionKey+", "+sortKey+", "+expression)
	if err != nil {
		return nil, fmt.Errorf("read %d records at once: %w", len(keys), err)
	}
	for _, item := range items {
		d := s.table.decode(itemKey{}, item)
		k := itemKey{d.text(partitionKey), d.text(sortKey)}
		r, err := s.get(ctx, asked[k], nil, item)
		if errors.Is(err, refstore.ErrNotFound) || errors.Is(err, refstore.ErrDamaged) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("get %q: %w", asked[k], err)
		}
		records = append(records, r)
	}
	return records, nil
}

// batchable returns an error for a record that needs more than its own item.
func (s *Store) batchable(ctx context.Context, key refstore.Key, invalid error) error {
	if err := check(ctx, invalid); err != nil {
		return err
	}
	above, alone, err := s.table.listingItems(key)
	if err != nil {
		return err
	}
	if _, ok := logsOf(key); ok || enumerates(key.Partition) || len(above)+len(alone) > 0 {
		return errors.ErrUnsupported
	}
	return nil
}

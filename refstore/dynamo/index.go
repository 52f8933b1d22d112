package dynamo

import (
	"context"
	"fmt"
	"iter"
	"slices"

	"e3/refstore"
)

// index gives access to the items that show that records exist.
type index struct{ s *Store }

// Index implements [refstore.Indexed].
func (s *Store) Index() refstore.Index { return index{s} }

// Executions implements [refstore.Index].
func (i index) Executions(ctx context.Context) iter.Seq2[refstore.Key, error] {
	return func(yield func(refstore.Key, error) bool) {
		for _, digit := range idDigits {
			for item, err := range i.s.table.query(ctx, i.s.table.pk(idPrefix, "EXECUTION/"+string(digit)), refstore.Query{}, "", nil) {
				if err != nil {
					yield(refstore.Key{}, fmt.Errorf("list executions by their ids: %w", err))
					return
				}
				if key, ok := executionOf(item.sk); ok && !yield(key, nil) {
					return
				}
			}
		}
	}
}

// Has implements [refstore.Index].
func (i index) Has(ctx context.Context, key refstore.Key) (bool, error) {
	above, alone, err := i.s.table.listingItems(key)
	for _, k := range slices.Concat(above, alone) {
		item, err := i.s.table.getItem(ctx, k, attrVersion, nil)
		if err != nil || item == nil {
			return false, err
		}
	}
	return err == nil, err
}

// Put implements [refstore.Index].
func (i index) Put(ctx context.Context, key refstore.Key) error {
	above, alone, err := i.s.table.listingItems(key)
	if err != nil {
		return err
	}
	return i.s.enter(ctx, nil, slices.Concat(above, alone)...)
}

package dynamo

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"e3/refstore"
)

// Enumeration items only show that other items exist: TASKS, INPUTS and RUNS show that a partition has records,
// PARTITION that it has streams. An enumeration item is put unconditionally before the first of these. A process
// remembers the enumeration items that it has put.
//
// After the deletion of its last record, an enumeration item is not deleted at once, because a process that has put it
// may be about to write a record. It gets a date of dying; another put of the item removes the date. RemoveLeftovers
// deletes the item once all processes that lived at that date are gone, if it still has nothing to enumerate.
// RemoveLeftovers also dates undated items that have nothing to enumerate: a crash came before the date, or before the
// record.
//
// An item may be dated while a process that has put it is about to write the record. Then it keeps the date, which is
// harmless: as long as that process lives, no item dated since its beginning is removed, and a process that begins
// later puts the item again.

// attrDying is the time at which an item was first found to have nothing to enumerate. It is a number (N): Unix
// milliseconds by some machine's clock.
const attrDying = "y"

// minDying is the shortest time for which a dying item is kept. It must exceed the differences between clocks.
const minDying = 24 * time.Hour

// maxEntered bounds the number of items that a process remembers.
const maxEntered = 1 << 16

// enterVersion is the version of an enumeration item.
const enterVersion = "0"

// listingItems are the items that show that a record exists: above lists it among others, alone finds it by its id.
func (s *table) listingItems(key refstore.Key) (above, alone []itemKey, err error) {
	keys, err := standFor(key.Partition)
	for _, key := range keys {
		above = append(above, s.recordKey(key))
	}
	if digit, ok := idDigit(key); ok {
		alone = []itemKey{{s.pk(idPrefix, "EXECUTION/"+digit), key.Sort + strings.TrimPrefix(key.Partition, "EXECUTION")}}
	}
	return above, alone, err
}

// partitionItem is the item that shows that a partition has streams.
func (s *table) partitionItem(partition string) itemKey {
	kind, _, _ := strings.Cut(partition, "/")
	return itemKey{s.pk(partitionPrefix, kind), partition}
}

// enter puts the items of the keys that this process has not put before. In the same requests it puts the items once.
func (s *Store) enter(ctx context.Context, keys []itemKey, once ...itemKey) error {
	var missing []itemKey
	s.mu.Lock()
	for _, k := range keys {
		if _, ok := s.entered[k]; !ok {
			missing = append(missing, k)
		}
	}
	s.mu.Unlock()
	var items []attributes
	for _, k := range slices.Concat(missing, once) {
		item := k.attributes()
		item[attrVersion] = &types.AttributeValueMemberS{Value: enterVersion}
		item[attrValue] = &types.AttributeValueMemberNULL{Value: true}
		items = append(items, item)
	}
	var err error
	switch len(items) {
	case 0:
		return nil
	case 1:
		_, err = s.table.putItem(ctx, items[0], "", nil)
	default:
		err = s.table.putItems(ctx, items)
	}
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.entered) > maxEntered {
		clear(s.entered)
	}
	for _, k := range missing {
		s.entered[k] = struct{}{}
	}
	return nil
}

// forget makes this process put an item again.
func (s *Store) forget(k itemKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.entered, k)
}

// dying gives an existing item a date, unless it has one.
func (s *Store) dying(ctx context.Context, k itemKey) error {
	s.forget(k)
	_, _, err := s.table.updateItem(ctx, &dynamodb.UpdateItemInput{
		Key: k.attributes(), UpdateExpression: aws.String("SET " + attrDying + " = :y"),
		ConditionExpression:       aws.String("attribute_exists(" + partitionKey + ") AND attribute_not_exists(" + attrDying + ")"),
		ExpressionAttributeValues: attributes{":y": &types.AttributeValueMemberN{Value: strconv.FormatInt(s.table.o.Now().UnixMilli(), 10)}},
	})
	if conditionFailed(err) {
		return nil
	}
	return err
}

// deleteDying deletes an item that has been dying since the given date, unless it was put again.
func (s *Store) deleteDying(ctx context.Context, k itemKey, since int64) (gone bool, err error) {
	s.forget(k)
	_, _, err = s.table.deleteItem(ctx, k, attrDying+" = :y", attributes{":y": &types.AttributeValueMemberN{Value: strconv.FormatInt(since, 10)}})
	if conditionFailed(err) {
		return false, nil
	}
	return err == nil, err
}

// empty reports whether no item has the partition key.
func (t *table) empty(ctx context.Context, pk string) (bool, error) {
	for _, err := range t.query(ctx, pk, refstore.Query{Limit: 1}, "", nil) {
		return false, err
	}
	return true, nil
}

// dyingLogs is called before an execution's record is deleted. The returned function removes the logs afterwards.
// After a crash in between, RemoveLeftovers finds a dying partition and continues.
func (s *Store) dyingLogs(ctx context.Context, partition string) (finish func() error, err error) {
	none, err := s.table.empty(ctx, s.table.pk(streamPrefix, partition))
	if err != nil || none {
		return func() error { return nil }, err
	}
	if err := s.dying(ctx, s.table.partitionItem(partition)); err != nil {
		return nil, err
	}
	return func() error { return s.removeStreams(ctx, partition) }, nil
}

// removeStreams removes all streams of a partition, and its enumeration item.
func (s *Store) removeStreams(ctx context.Context, partition string) error {
	for key, err := range s.ListStreams(ctx, refstore.Query{Partition: partition}) {
		if err == nil {
			err = s.Remove(ctx, key)
		}
		if err != nil && !errors.Is(err, refstore.ErrNotFound) {
			return err
		}
	}
	k := s.table.partitionItem(partition)
	s.forget(k)
	_, _, err := s.table.deleteItem(ctx, k, "attribute_exists("+attrDying+")", nil)
	if conditionFailed(err) {
		return nil
	}
	return err
}

// dyingInputs dates the enumeration record of a partition of executions if no execution is left.
func (s *Store) dyingInputs(ctx context.Context, partition string) error {
	none, err := s.table.empty(ctx, s.table.pk("", partition))
	if err != nil || !none {
		return err
	}
	above, err := standFor(partition)
	if err != nil {
		return err
	}
	return s.dying(ctx, s.table.recordKey(above[len(above)-1]))
}

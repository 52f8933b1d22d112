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

// Some items only say that there are others: TASKS, INPUTS and RUNS that there are records in a partition, PARTITION that
// there are streams. They are put, whatever is there, before the first of these. A process remembers what it has put.
//
// One whose last record went is not deleted at once: a process that has put it may be about to write what it stands for. It
// gets a date of dying; putting it again takes the date away. RemoveLeftovers deletes it when all processes that lived at
// that date are gone, and there is still nothing that it stands for. It dates as well what stands for nothing and has no date: a crash
// came before the date, or before what was to follow.
//
// An item may be dated while a process that has put it is about to write what it stands for. It then keeps the date, which does no harm:
// as long as that process lives, nothing is removed that has been dated since it began, and one that begins later puts the item again.

// attrDying is when an item was first seen to stand for nothing, N: Unix milliseconds by some machine's clock.
const attrDying = "y"

// lastRites is how long what is dying stays at least: more than clocks differ.
const lastRites = 24 * time.Hour

// maxEntered bounds what a process remembers.
const maxEntered = 1 << 16

// enterVersion is the version of an item that only says that there are others.
const enterVersion = "0"

// enterRecords puts what stands for a record that is about to be put: above are the records that do, and it may be found by its id.
func (s *Store) enterRecords(ctx context.Context, key refstore.Key, above []refstore.Key) error {
	items := make([]itemKey, len(above))
	for i, key := range above {
		items[i] = s.recordKey(key)
	}
	if id, ok := s.idItem(key); ok {
		return s.enter(ctx, items, id)
	}
	return s.enter(ctx, items)
}

// partitionItem says that there are streams in a partition.
func (s *Store) partitionItem(partition string) itemKey {
	kind, _, _ := strings.Cut(partition, "/")
	return itemKey{s.pk(partitionPrefix, kind), partition}
}

// enter puts those of the items that this process has not put before, and with them others, each of which is put only once.
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
		_, err = s.putItem(ctx, items[0], "", nil)
	default:
		err = s.putItems(ctx, items)
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

// dying dates an item, if it is there and has no date.
func (s *Store) dying(ctx context.Context, k itemKey) error {
	s.forget(k)
	_, _, err := s.updateItem(ctx, &dynamodb.UpdateItemInput{
		Key: k.attributes(), UpdateExpression: aws.String("SET " + attrDying + " = :y"),
		ConditionExpression:       aws.String("attribute_exists(" + partitionKey + ") AND attribute_not_exists(" + attrDying + ")"),
		ExpressionAttributeValues: attributes{":y": &types.AttributeValueMemberN{Value: strconv.FormatInt(s.o.Now().UnixMilli(), 10)}},
	})
	if conditionFailed(err) {
		return nil
	}
	return err
}

// bury deletes an item that is dying since the given date; not one that was put again.
func (s *Store) bury(ctx context.Context, k itemKey, since int64) (gone bool, err error) {
	s.forget(k)
	_, _, err = s.deleteItem(ctx, k, attrDying+" = :y", attributes{":y": &types.AttributeValueMemberN{Value: strconv.FormatInt(since, 10)}})
	if conditionFailed(err) {
		return false, nil
	}
	return err == nil, err
}

// empty tells whether nothing has the partition key.
func (s *Store) empty(ctx context.Context, pk string) (bool, error) {
	for _, err := range s.query(ctx, pk, refstore.Query{Limit: 1}, "", nil) {
		return false, err
	}
	return true, nil
}

// dyingLogs is called before an execution's record is deleted; the function that it returns, afterwards, removes the
// logs. A crash in between leaves a dying partition, with which RemoveLeftovers goes on.
func (s *Store) dyingLogs(ctx context.Context, partition string) (finish func() error, err error) {
	none, err := s.empty(ctx, s.pk(streamPrefix, partition))
	if err != nil || none {
		return func() error { return nil }, err
	}
	if err := s.dying(ctx, s.partitionItem(partition)); err != nil {
		return nil, err
	}
	return func() error { return s.removeStreams(ctx, partition) }, nil
}

// removeStreams removes all streams of a partition, and what says that there are some.
func (s *Store) removeStreams(ctx context.Context, partition string) error {
	for key, err := range s.ListStreams(ctx, refstore.Query{Partition: partition}) {
		if err == nil {
			err = s.Remove(ctx, key)
		}
		if err != nil && !errors.Is(err, refstore.ErrNotFound) {
			return err
		}
	}
	k := s.partitionItem(partition)
	s.forget(k)
	_, _, err := s.deleteItem(ctx, k, "attribute_exists("+attrDying+")", nil)
	if conditionFailed(err) {
		return nil
	}
	return err
}

// dyingInputs dates the record that stands for a partition of executions if there are none left.
func (s *Store) dyingInputs(ctx context.Context, partition string) error {
	none, err := s.empty(ctx, s.pk("", partition))
	if err != nil || !none {
		return err
	}
	above, err := standFor(partition)
	if err != nil {
		return err
	}
	return s.dying(ctx, s.recordKey(above[len(above)-1]))
}

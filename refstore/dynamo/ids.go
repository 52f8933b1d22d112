package dynamo

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"

	"e3/refstore"
)

// Executions are found by their ids, in any partition, through id items: ID.EXECUTION/<repository>/<last digit of the
// id> · <id>/<task>/<inputs>. An id item is put before its record, with the enumeration items, and deleted after it.
// After a crash an id item may have no record; readers of an id item read the record. The last digit of an id is
// random: it spreads the items written at one time.
const idPrefix = "ID."

// idDigits are the possible last digits of ids.
const idDigits = "0123456789abcdef"

// idDigit returns the last digit of the id by which a record is found; ok is false for records that are not found by an
// id.
func idDigit(key refstore.Key) (digit string, ok bool) {
	if !strings.HasPrefix(key.Partition, "EXECUTION/") || len(key.Sort) != wholeID || strings.Contains(key.Sort, "/") {
		return "", false // not an id
	}
	digit = key.Sort[wholeID-1:]
	return digit, strings.Contains(idDigits, digit) && len(key.Sort)+len(key.Partition)-len("EXECUTION") <= maxSortKey
}

// FindExecutions yields the keys of the executions whose ids begin with prefix, which is in lower case. Some of the
// records may be gone, or not exist yet. A complete id takes one request, a prefix one request for each possible last
// digit.
func (s *Store) FindExecutions(ctx context.Context, prefix string) iter.Seq2[refstore.Key, error] {
	return func(yield func(refstore.Key, error) bool) {
		if strings.Contains(prefix, "/") {
			return
		}
		digits := idDigits
		if len(prefix) == wholeID {
			digits = prefix[len(prefix)-1:]
		}
		for _, digit := range digits {
			for item, err := range s.table.query(ctx, s.table.pk(idPrefix, "EXECUTION/"+string(digit)), refstore.Query{Prefix: prefix, Limit: idPage}, "", nil) {
				if err != nil {
					yield(refstore.Key{}, fmt.Errorf("find execution %.40q: %w", prefix, err))
					return
				}
				if key, ok := executionOf(item.sk); ok && !yield(key, nil) {
					return
				}
			}
		}
	}
}

// fewKeys is the number of keys of a task that are listed one by one, each with a request, before the id items of all
// tasks are read instead.
const fewKeys = len(idDigits)

// ExecutionsAfter yields the keys of a task's executions with ids greater than id, in no order. Some of the records may
// be gone, or not exist yet. A task with few keys takes one request for each; for others, the id items since that time
// are read. This takes one request for each possible last digit, and more if the repository has a great many later
// executions.
func (s *Store) ExecutionsAfter(ctx context.Context, task, id string) iter.Seq2[refstore.Key, error] {
	return func(yield func(refstore.Key, error) bool) {
		var partitions []string
		for rec, err := range s.List(ctx, refstore.Query{Partition: kindInputs + "/" + task, KeysOnly: true, Limit: fewKeys + 1}) {
			if err != nil {
				yield(refstore.Key{}, err)
				return
			}
			partitions = append(partitions, "EXECUTION/"+task+"/"+rec.Key.Sort)
		}
		if len(partitions) > fewKeys {
			s.idsAfter(ctx, "EXECUTION/"+task+"/", id, yield)
			return
		}
		for _, partition := range partitions {
			for rec, err := range s.List(ctx, refstore.Query{Partition: partition, After: id, KeysOnly: true}) {
				if err != nil && !errors.Is(err, refstore.ErrDamaged) {
					yield(refstore.Key{}, err)
					return
				}
				if !yield(rec.Key, nil) {
					return
				}
			}
		}
	}
}

// idsAfter yields the keys with greater ids, of the partitions that begin with a prefix.
func (s *Store) idsAfter(ctx context.Context, partitions, id string, yield func(refstore.Key, error) bool) {
	after := id
	if after != "" {
		after += "~" // beyond the items of this id, which go on with a slash
	}
	for _, digit := range idDigits {
		for item, err := range s.table.query(ctx, s.table.pk(idPrefix, "EXECUTION/"+string(digit)), refstore.Query{After: after}, "", nil) {
			if err != nil {
				yield(refstore.Key{}, fmt.Errorf("find executions after %.40q: %w", id, err))
				return
			}
			if key, ok := executionOf(item.sk); ok && strings.HasPrefix(key.Partition, partitions) && !yield(key, nil) {
				return
			}
		}
	}
}

// executionOf returns the key of an execution from the item of its id; ok is false for any other item.
func executionOf(sk string) (key refstore.Key, ok bool) {
	id, rest, _ := strings.Cut(sk, "/")
	key = refstore.Key{Partition: "EXECUTION/" + rest, Sort: id}
	_, err := standFor(key.Partition)
	return key, err == nil && key.Validate() == nil
}

const (
	wholeID = 36 // the length of an id
	idPage  = 16 // keys per request; a lookup of one also checks whether there is a second one
)

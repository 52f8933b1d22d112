package dynamo

import (
	"context"
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

// idDigit returns the last digit of the id by which a record is found; ok is false for records that are not.
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

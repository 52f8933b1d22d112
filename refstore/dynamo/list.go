package dynamo

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"e3/refstore"
)

// pages are the numbers of items that a query without a limit asks for, page after page; 0 means as many as fit in a
// page of 1 MB. The first pages are small, since most readers stop after the newest record, and unread items cost as
// much as read ones.
var pages = [...]int{4, 64, 0}

// maxSortKey is the server's limit of a sort key, in bytes.
const maxSortKey = 1024

// List implements [refstore.Store].
func (s *Store) List(ctx context.Context, q refstore.Query) iter.Seq2[refstore.Record, error] {
	return func(yield func(refstore.Record, error) bool) {
		if err := check(ctx, q.Validate()); err != nil {
			yield(refstore.Record{}, err)
			return
		}
		expression, names := projection(q.Fields)
		if q.KeysOnly {
			expression, names = "", nil
		}
		n := 0
		// A listed record may be gone, so the limit counts only the records that exist.
		for item, err := range s.table.queryAll(ctx, q, expression, names) {
			var r refstore.Record
			if err == nil {
				r.Key = refstore.Key{Partition: q.Partition, Sort: item.sk}
				if !q.KeysOnly {
					r, err = s.get(ctx, r.Key, q.Fields, item.attributes)
					if errors.Is(err, refstore.ErrNotFound) {
						continue
					}
				}
			}
			if err != nil {
				err = fmt.Errorf("list %q: %w", q.Partition, err)
			}
			if !yield(r, err) || err != nil && !errors.Is(err, refstore.ErrDamaged) {
				return
			}
			if n++; n == q.Limit {
				return
			}
		}
	}
}

// queryAll queries all partition keys of a partition, in order.
func (s *table) queryAll(ctx context.Context, q refstore.Query, projection string, names map[string]string) iter.Seq2[found, error] {
	return func(yield func(found, error) bool) {
		pks := s.pks(q.Partition)
		if q.Descending {
			slices.Reverse(pks)
		}
		for _, pk := range pks {
			for item, err := range s.query(ctx, pk, q, projection, names) {
				if !yield(item, err) || err != nil {
					return
				}
			}
		}
	}
}

// found is a result of a query.
type found struct {
	sk         string
	attributes attributes
}

// query yields the items of a partition as q asks, with the attributes of the projection and the sort key. The limit
// is only a hint. An error ends the iteration.
//
// Each page begins after the last sort key seen. A start key would have the same effect, but servers differ when the
// item of a start key is gone.
func (s *table) query(ctx context.Context, pk string, q refstore.Query, projection string, names map[string]string) iter.Seq2[found, error] {
	if projection != "" {
		projection = ", " + projection
	}
	return func(yield func(found, error) bool) {
		beyond := func(sk, other string) bool {
			return other == "" || q.Descending && sk < other || !q.Descending && sk > other
		}
		last, from, seen := "", q.After, 0
		for page := 0; ; page++ {
			condition, values, some := between(q.Prefix, from, q.Descending)
			if !some {
				return
			}
			values[":p"] = &types.AttributeValueMemberS{Value: pk}
			in := &dynamodb.QueryInput{
				TableName: &s.o.Table, ConsistentRead: aws.Bool(true), ScanIndexForward: aws.Bool(!q.Descending),
				KeyConditionExpression: aws.String(partitionKey + " = :p" + condition), ExpressionAttributeValues: values,
				ProjectionExpression: aws.String(sortKey + projection), ExpressionAttributeNames: names,
				ReturnConsumedCapacity: s.ask(),
			}
			size := pages[min(page, len(pages)-1)]
			if q.Limit > 0 {
				size = max(q.Limit-seen, 1)
			}
			if size > 0 {
				in.Limit = aws.Int32(int32(min(size, math.MaxInt32)))
			}
			out, _, err := do(ctx, s, "Query", func(ctx context.Context) (*dynamodb.QueryOutput, float64, error) {
				out, err := s.client.Query(ctx, in)
				if err != nil {
					return nil, 0, err
				}
				return out, units(one(out.ConsumedCapacity)...), nil
			})
			if err != nil {
				yield(found{}, err)
				return
			}
			for _, item := range out.Items {
				d := s.decode(itemKey{pk, ""}, item)
				sk := d.text(sortKey)
				if sk == "" {
					d.fail("it has no sort key")
					yield(found{}, d.err)
					return
				}
				if !strings.HasPrefix(sk, q.Prefix) && beyondPrefix(sk, q) {
					return
				}
				if !strings.HasPrefix(sk, q.Prefix) || !beyond(sk, q.After) || !beyond(sk, last) {
					continue
				}
				last = sk
				seen++
				if !yield(found{sk, item}, nil) {
					return
				}
			}
			if len(out.LastEvaluatedKey) == 0 {
				return
			}
			to, _ := out.LastEvaluatedKey[sortKey].(*types.AttributeValueMemberS)
			if to == nil || page > 0 && !beyond(to.Value, from) {
				yield(found{}, s.failed("Query", errors.New("the server's pages do not follow each other")))
				return
			}
			from = to.Value
		}
	}
}

// beyondPrefix reports whether a sort key without the prefix lies behind all sort keys with it, in the direction of
// travel.
func beyondPrefix(sk string, q refstore.Query) bool {
	return q.Descending == (sk < q.Prefix)
}

// between returns the condition on sort keys that have a prefix and lie behind after, in the direction of travel, or
// false if there can be no such key. The condition may admit more keys, since it omits bytes that are not UTF-8, which
// no key has.
func between(prefix, after string, descending bool) (condition string, values attributes, some bool) {
	values = attributes{}
	if len(prefix) > maxSortKey {
		return "", nil, false
	}
	switch {
	case after == "" || strings.HasPrefix(after, prefix):
	case descending == (after < prefix): // after lies behind all of them
		return "", nil, false
	default: // before all of them
		after = ""
	}
	// The first sort key without the prefix ends the query, so one bound is sufficient.
	bound := validPrefix(after)
	switch {
	case bound != "" && !descending:
		values[":x"] = &types.AttributeValueMemberS{Value: bound}
		return " AND " + sortKey + " > :x", values, true
	case bound != "" && bound == after:
		values[":x"] = &types.AttributeValueMemberS{Value: bound}
		return " AND " + sortKey + " < :x", values, true
	}
	if bound = validPrefix(prefix); bound != "" {
		values[":x"] = &types.AttributeValueMemberS{Value: bound}
		return " AND begins_with(" + sortKey + ", :x)", values, true
	}
	return "", values, true
}

// validPrefix is the longest prefix of name that a sort key may have.
func validPrefix(name string) string {
	if len(name) > maxSortKey {
		name = name[:maxSortKey]
	}
	for i := 0; i < len(name); {
		r, n := utf8.DecodeRuneInString(name[i:])
		if r == utf8.RuneError && n == 1 {
			return name[:i]
		}
		i += n
	}
	return name
}

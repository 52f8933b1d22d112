package dynamo

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"e3/internal/backoff"
	"e3/refstore"
)

// newVersion draws a version, or another unique name: 128 random bits.
func newVersion() string {
	var id [16]byte
	rand.Read(id[:]) // never fails
	return base64.RawURLEncoding.EncodeToString(id[:])
}

// fate tells what a failed attempt of a request means.
type fate int

const (
	final   fate = iota // another attempt would fail too
	refused             // it had no effect; another attempt may succeed
	unknown             // it may have taken effect
	// refused for a wrong clock; the SDK has corrected the clock, and a write calls Options.Permit again
	skewed
)

// judge classifies the error of a request that this process did not cancel. heard says that the server has answered
// before: then an unknown host name is a temporary failure, not a wrong address.
func judge(err error, heard bool) fate {
	var api smithy.APIError
	if errors.As(err, &api) {
		code := api.ErrorCode()
		if _, ok := retry.DefaultThrottleErrorCodes[code]; ok {
			return refused
		}
		switch code {
		case "RequestTimeTooSkewed", "RequestExpired", "RequestInTheFuture", "InvalidSignatureException", "SignatureDoesNotMatch":
			return skewed
		case "TableInUseException":
			return refused
		}
	}
	var answer *smithyhttp.ResponseError
	if errors.As(err, &answer) && answer.HTTPStatusCode() >= 500 {
		return unknown
	}
	if api != nil {
		return final
	}
	var dial *net.OpError
	var dns *net.DNSError
	switch {
	case errors.As(err, &dns) && dns.IsNotFound && !heard:
		return final
	case dns != nil, errors.As(err, &dial) && dial.Op == "dial":
		return refused
	}
	var send *smithyhttp.RequestSendError
	var garbled *smithy.DeserializationError
	if errors.As(err, &send) || errors.As(err, &garbled) || answer != nil {
		return unknown
	}
	return final
}

// quiet is the time for which a request is retried without a call of Options.Trying.
const quiet = 2 * time.Second

// unheard is the patience with a server that has never answered. It is short, so that a wrong address is reported soon.
const unheard = 10 * time.Second

// do makes a request until it succeeds or fails for good. doubt reports that an attempt without an answer may have
// taken effect, whatever the result is. The error names the table.
func do[Out any](ctx context.Context, s *table, operation string, request func(context.Context) (Out, float64, error)) (out Out, doubt bool, err error) {
	begin := time.Now()
	corrected := false
	var before error // error of the last try
	for try := 1; ; try++ {
		if ctx.Err() != nil {
			if before != nil {
				return out, doubt, fmt.Errorf("%w; the last try: %w", context.Cause(ctx), before)
			}
			return out, doubt, context.Cause(ctx)
		}
		one, cancel := context.WithTimeout(ctx, s.o.Attempt)
		var units float64
		out, units, err = request(one)
		late := one.Err() != nil
		cancel()
		if s.o.Observe != nil {
			s.o.Observe(operation, units)
		}
		if err == nil {
			s.heard.Store(true)
			s.served.Store(true)
			return out, doubt, nil
		}
		err = &requestError{err}
		if ctx.Err() != nil {
			if before != nil {
				return out, true, fmt.Errorf("table %s: %s: %w; the try before: %w", s.o.Table, operation, context.Cause(ctx), before)
			}
			return out, true, fmt.Errorf("table %s: %s: %w", s.o.Table, operation, context.Cause(ctx))
		}
		why := judge(err, s.heard.Load())
		if late {
			why = unknown
			err = fmt.Errorf("no answer within %v: %w", s.o.Attempt, err)
		}
		if errors.Is(err, refstore.ErrSuspended) { // the request was not sent
			why = refused
		}
		if why == skewed && corrected {
			why = final
		}
		if why == final && s.o.Expired != nil && s.served.Load() && s.o.Expired(err) {
			why = refused
		}
		var api smithy.APIError
		if errors.As(err, &api) {
			s.heard.Store(true)
		}
		doubt = doubt || why == unknown
		if why == final {
			err = s.failed(operation, err)
			if errors.As(err, &api) && api.ErrorCode() == "AccessDeniedException" {
				partition, _ := ctx.Value(writes{}).(string)
				err = &DeniedError{Right: "dynamodb:" + operation, Table: s.o.Table, Partition: partition, Err: err}
			}
			return out, doubt, err
		}
		pause := backoff.Pause(s.o.Backoff, maxBackoff, try)
		if why == skewed {
			corrected, pause = true, 0
		}
		patience := s.o.Patience
		if !s.heard.Load() {
			patience = min(patience, unheard)
		}
		if spent := time.Since(begin); spent+pause > patience {
			return out, doubt, s.failed(operation, fmt.Errorf("gave up after %v, at try %d: %w", spent.Round(time.Millisecond), try, err))
		}
		if s.o.Trying != nil && why != skewed && time.Since(begin) >= quiet {
			s.o.Trying(s.failed(operation, err))
		}
		before = err
		_ = backoff.Wait(ctx, pause) // the loop begins with a look at ctx
	}
}

// A DeniedError is a request that the credentials do not allow. It is an [fs.ErrPermission].
type DeniedError struct {
	Right     string // the action, as in "dynamodb:PutItem"
	Table     string
	Partition string // the partition to be written; "" for other requests
	Err       error
}

func (e *DeniedError) Error() string { return e.Err.Error() }

// Unwrap returns the failed request.
func (e *DeniedError) Unwrap() error { return e.Err }

// Is makes it an [fs.ErrPermission].
func (e *DeniedError) Is(target error) bool { return target == fs.ErrPermission }

// requestError is a failed request, with the server's message or the cause, but without the SDK's wrapping.
type requestError struct{ err error }

func (e *requestError) Error() string {
	var api smithy.APIError
	if errors.As(e.err, &api) {
		text := api.ErrorCode()
		if m := api.ErrorMessage(); m != "" {
			text += ": " + m
		}
		var answer *awshttp.ResponseError
		if errors.As(e.err, &answer) {
			text += fmt.Sprintf(" (status %d, request %s)", answer.HTTPStatusCode(), answer.ServiceRequestID())
		}
		switch api.ErrorCode() {
		case "UnrecognizedClientException", "InvalidSignatureException", "ExpiredTokenException":
			text += "; renew the credentials (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE, or a login)"
		}
		return text
	}
	err := e.err
	var send *smithyhttp.RequestSendError
	var operation *smithy.OperationError
	switch {
	case errors.As(err, &send):
		err = send.Err
	case errors.As(err, &operation):
		err = operation.Err
	}
	var sent *url.Error
	if errors.As(err, &sent) {
		err = sent.Err // the function failed adds the table
	}
	return err.Error()
}

// Unwrap returns the SDK's error.
func (e *requestError) Unwrap() error { return e.err }

// failed adds the operation and the table to an error.
func (s *table) failed(operation string, err error) error {
	var none *types.ResourceNotFoundException
	if errors.As(err, &none) {
		return fmt.Errorf("table %s: %w (%s)", s.o.Table, ErrNoTable, none.ErrorMessage())
	}
	return fmt.Errorf("table %s: %s: %w", s.o.Table, operation, err)
}

// conditionFailed reports whether a write was refused because its condition did not hold.
func conditionFailed(err error) bool {
	var failed *types.ConditionalCheckFailedException
	return errors.As(err, &failed)
}

// ask requests that the server reports consumed capacity, if there is an observer.
func (s *table) ask() types.ReturnConsumedCapacity {
	if s.o.Observe != nil {
		return types.ReturnConsumedCapacityTotal
	}
	return ""
}

func units(c ...types.ConsumedCapacity) (sum float64) {
	for _, c := range c {
		sum += aws.ToFloat64(c.CapacityUnits)
	}
	return sum
}

// one returns the capacity of an answer as a list; the capacity may be nil.
func one(c *types.ConsumedCapacity) []types.ConsumedCapacity {
	if c == nil {
		return nil
	}
	return []types.ConsumedCapacity{*c}
}

// attributes are the attributes of an item.
type attributes = map[string]types.AttributeValue

// getItem reads an item, nil if there is none. projection "" is the whole item.
func (s *table) getItem(ctx context.Context, key itemKey, projection string, names map[string]string) (attributes, error) {
	in := &dynamodb.GetItemInput{
		TableName: &s.o.Table, Key: key.attributes(), ConsistentRead: aws.Bool(true), ReturnConsumedCapacity: s.ask(),
		ExpressionAttributeNames: names,
	}
	if projection != "" { // the key shows that there is an item
		in.ProjectionExpression = aws.String(sortKey + ", " + projection)
	}
	out, _, err := do(ctx, s, "GetItem", func(ctx context.Context) (attributes, float64, error) {
		out, err := s.client.GetItem(ctx, in)
		if err != nil {
			return nil, 0, err
		}
		return out.Item, units(one(out.ConsumedCapacity)...), nil
	})
	if len(out) == 0 {
		out = nil
	}
	return out, err
}

// putItem writes a whole item on a condition; "" is none.
func (s *table) putItem(ctx context.Context, item attributes, condition string, values attributes) (doubt bool, err error) {
	in := &dynamodb.PutItemInput{TableName: &s.o.Table, Item: item, ReturnConsumedCapacity: s.ask(), ExpressionAttributeValues: values}
	if condition != "" {
		in.ConditionExpression = &condition
	}
	_, doubt, err = do(s.writing(ctx, item), s, "PutItem", func(ctx context.Context) (struct{}, float64, error) {
		out, err := s.client.PutItem(ctx, in)
		if err != nil {
			return struct{}{}, 0, err
		}
		return struct{}{}, units(one(out.ConsumedCapacity)...), nil
	})
	return doubt, err
}

// updateItem changes an existing item, and returns the old values of the changed attributes.
func (s *table) updateItem(ctx context.Context, in *dynamodb.UpdateItemInput) (old attributes, doubt bool, err error) {
	in.TableName, in.ReturnConsumedCapacity, in.ReturnValues = &s.o.Table, s.ask(), types.ReturnValueUpdatedOld
	return do(s.writing(ctx, in.Key), s, "UpdateItem", func(ctx context.Context) (attributes, float64, error) {
		out, err := s.client.UpdateItem(ctx, in)
		if err != nil {
			return nil, 0, err
		}
		return out.Attributes, units(one(out.ConsumedCapacity)...), nil
	})
}

// deleteItem deletes an item on a condition and returns the old item.
func (s *table) deleteItem(ctx context.Context, key itemKey, condition string, values attributes) (old attributes, doubt bool, err error) {
	in := &dynamodb.DeleteItemInput{
		TableName: &s.o.Table, Key: key.attributes(), ConditionExpression: &condition, ExpressionAttributeValues: values,
		ReturnConsumedCapacity: s.ask(), ReturnValues: types.ReturnValueAllOld,
	}
	return do(s.writing(ctx, in.Key), s, "DeleteItem", func(ctx context.Context) (attributes, float64, error) {
		out, err := s.client.DeleteItem(ctx, in)
		if err != nil {
			return nil, 0, err
		}
		return out.Attributes, units(one(out.ConsumedCapacity)...), nil
	})
}

// readItems reads those of up to 100 items that are there, in any order.
func (s *table) readItems(ctx context.Context, keys []attributes, projection string) (items []attributes, err error) {
	left := types.KeysAndAttributes{Keys: keys, ConsistentRead: aws.Bool(true), ProjectionExpression: &projection}
	begin := time.Now()
	for try := 1; ; try++ {
		out, _, err := do(ctx, s, "BatchGetItem", func(ctx context.Context) (*dynamodb.BatchGetItemOutput, float64, error) {
			out, err := s.client.BatchGetItem(ctx, &dynamodb.BatchGetItemInput{
				RequestItems: map[string]types.KeysAndAttributes{s.o.Table: left}, ReturnConsumedCapacity: s.ask(),
			})
			if err != nil {
				return nil, 0, err
			}
			return out, units(out.ConsumedCapacity...), nil
		})
		if err != nil {
			return nil, err
		}
		items = append(items, out.Responses[s.o.Table]...)
		if left = out.UnprocessedKeys[s.o.Table]; len(left.Keys) == 0 {
			return items, nil
		}
		if time.Since(begin) > s.o.Patience {
			return nil, s.failed("BatchGetItem", fmt.Errorf("gave up after %v: the server leaves items unread", s.o.Patience))
		}
		_ = backoff.Wait(ctx, backoff.Pause(s.o.Backoff, maxBackoff, try)) // the next request fails if ctx has ended
	}
}

// putItems writes up to 25 items unconditionally.
func (s *table) putItems(ctx context.Context, items []attributes) error {
	var requests []types.WriteRequest
	for _, item := range items {
		requests = append(requests, types.WriteRequest{PutRequest: &types.PutRequest{Item: item}})
	}
	return s.writeItems(ctx, requests)
}

// writeItems puts and deletes up to 25 items unconditionally.
func (s *table) writeItems(ctx context.Context, left []types.WriteRequest) error {
	var first attributes
	if put := left[0].PutRequest; put != nil {
		first = put.Item
	} else {
		first = left[0].DeleteRequest.Key
	}
	begin := time.Now()
	for try := 1; ; try++ {
		out, _, err := do(s.writing(ctx, first), s, "BatchWriteItem", func(ctx context.Context) (*dynamodb.BatchWriteItemOutput, float64, error) {
			out, err := s.client.BatchWriteItem(ctx, &dynamodb.BatchWriteItemInput{
				RequestItems: map[string][]types.WriteRequest{s.o.Table: left}, ReturnConsumedCapacity: s.ask(),
			})
			if err != nil {
				return nil, 0, err
			}
			return out, units(out.ConsumedCapacity...), nil
		})
		if err != nil {
			return err
		}
		if left = out.UnprocessedItems[s.o.Table]; len(left) == 0 {
			return nil
		}
		if time.Since(begin) > s.o.Patience {
			return s.failed("BatchWriteItem", fmt.Errorf("gave up after %v: the server leaves items unwritten", s.o.Patience))
		}
		_ = backoff.Wait(ctx, backoff.Pause(s.o.Backoff, maxBackoff, try)) // the next request fails if ctx has ended
	}
}

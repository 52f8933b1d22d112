package dynamo

import (
	"context"
	"fmt"
	"time"

	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// A process may be suspended at any point, even between its last check of the clock and the sending of a request. So
// each attempt of a write calls [Options.Permit] after it was signed. If permission held at the date of the
// signature, a late request does no harm: the server refuses it, because the signature is too old. Permit gets the
// date, because a signature by a corrected clock may be dated differently from this machine's clock.

// writes is the context key of the partition of a write.
type writes struct{}

// writing marks the requests of a context as writes to an item.
func (s *table) writing(ctx context.Context, item attributes) context.Context {
	pk, ok := item[partitionKey].(*types.AttributeValueMemberS)
	if !ok {
		return ctx
	}
	_, partition, _ := s.parsePK(pk.Value)
	return context.WithValue(ctx, writes{}, partition)
}

// guarded makes a client call standing before it sends each attempt of a write.
func guarded(standing func(ctx context.Context, partition string, signed time.Time) error) func(*dynamodb.Options) {
	if standing == nil {
		return func(*dynamodb.Options) {}
	}
	ask := middleware.FinalizeMiddlewareFunc("Permit", func(ctx context.Context, in middleware.FinalizeInput, next middleware.FinalizeHandler) (middleware.FinalizeOutput, middleware.Metadata, error) {
		if partition, ok := ctx.Value(writes{}).(string); ok {
			if err := standing(ctx, partition, signed(in.Request)); err != nil {
				return middleware.FinalizeOutput{}, middleware.Metadata{}, fmt.Errorf("not sent: %w", err)
			}
		}
		return next.HandleFinalize(ctx, in)
	})
	return func(o *dynamodb.Options) {
		o.APIOptions = append(o.APIOptions, func(stack *middleware.Stack) error {
			return stack.Finalize.Insert(ask, "Signing", middleware.After)
		})
	}
}

// signed is the date of a request's signature.
func signed(request any) time.Time {
	if r, ok := request.(*smithyhttp.Request); ok {
		if date, err := time.Parse("20060102T150405Z", r.Header.Get("X-Amz-Date")); err == nil {
			return date
		}
	}
	return time.Now() // without credentials there is no signature
}

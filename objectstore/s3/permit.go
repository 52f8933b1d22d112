package s3

import (
	"context"
	"fmt"
	"time"

	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// guardDeletes makes a client call permit before it sends each attempt of a deletion.
func guardDeletes(permit func(ctx context.Context, signed time.Time) error) func(*middleware.Stack) error {
	ask := middleware.FinalizeMiddlewareFunc("Permit", func(ctx context.Context, in middleware.FinalizeInput, next middleware.FinalizeHandler) (middleware.FinalizeOutput, middleware.Metadata, error) {
		switch awsmiddleware.GetOperationName(ctx) {
		case "DeleteObject", "DeleteObjects":
			if err := permit(ctx, signed(in.Request)); err != nil {
				return middleware.FinalizeOutput{}, middleware.Metadata{}, fmt.Errorf("not sent: %w", err)
			}
		}
		return next.HandleFinalize(ctx, in)
	})
	return func(stack *middleware.Stack) error {
		return stack.Finalize.Insert(ask, "Signing", middleware.After)
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

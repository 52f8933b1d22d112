package s3

import (
	"context"
	"fmt"

	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/smithy-go/middleware"
)

// guardDeletes has a client ask before it sends a deletion, each time that it does.
func guardDeletes(standing func() error) func(*middleware.Stack) error {
	ask := middleware.FinalizeMiddlewareFunc("Standing", func(ctx context.Context, in middleware.FinalizeInput, next middleware.FinalizeHandler) (middleware.FinalizeOutput, middleware.Metadata, error) {
		switch awsmiddleware.GetOperationName(ctx) {
		case "DeleteObject", "DeleteObjects":
			if err := standing(); err != nil {
				return middleware.FinalizeOutput{}, middleware.Metadata{}, fmt.Errorf("not sent: %w", err)
			}
		}
		return next.HandleFinalize(ctx, in)
	})
	return func(stack *middleware.Stack) error {
		return stack.Finalize.Insert(ask, "Signing", middleware.After)
	}
}

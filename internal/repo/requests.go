package repo

import (
	"context"
	"log/slog"
	"time"

	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/smithy-go/middleware"
)

// tellRequests logs each operation on DynamoDB or S3 with its duration, retries included, for E3_DEBUG=requests.
func tellRequests(stack *middleware.Stack) error {
	return stack.Initialize.Add(middleware.InitializeMiddlewareFunc("e3TellRequests",
		func(ctx context.Context, in middleware.InitializeInput, next middleware.InitializeHandler) (middleware.InitializeOutput, middleware.Metadata, error) {
			began := time.Now()
			out, meta, err := next.HandleInitialize(ctx, in)
			said := []any{"topic", "requests", "service", awsmiddleware.GetServiceID(ctx), "operation", awsmiddleware.GetOperationName(ctx), "took", time.Since(began)}
			if err != nil {
				said = append(said, "error", err)
			}
			slog.DebugContext(ctx, "request", said...)
			return out, meta, err
		}), middleware.After)
}

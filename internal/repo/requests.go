package repo

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/smithy-go/middleware"

	"e3/internal/events"
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

// traffic counts the requests of this process by what they cost.
type traffic struct{ reads, writes, gets, puts atomic.Int64 }

// count is a middleware that counts each try.
func (t *traffic) count(stack *middleware.Stack) error {
	return stack.Finalize.Insert(middleware.FinalizeMiddlewareFunc("e3CountRequests",
		func(ctx context.Context, in middleware.FinalizeInput, next middleware.FinalizeHandler) (middleware.FinalizeOutput, middleware.Metadata, error) {
			if n := t.of(awsmiddleware.GetServiceID(ctx), awsmiddleware.GetOperationName(ctx)); n != nil {
				n.Add(1)
			}
			return next.HandleFinalize(ctx, in)
		}), "Retry", middleware.After)
}

// of returns the counter of an operation; nil if the operation is free.
func (t *traffic) of(service, operation string) *atomic.Int64 {
	switch operation {
	case "GetItem", "BatchGetItem", "Query", "Scan":
		return &t.reads
	case "PutItem", "UpdateItem", "DeleteItem", "BatchWriteItem":
		return &t.writes
	case "GetObject", "HeadObject", "HeadBucket":
		return &t.gets
	}
	if service == "S3" && !strings.HasPrefix(operation, "Delete") && !strings.HasPrefix(operation, "Abort") {
		return &t.puts
	}
	return nil
}

// statement counts a statement of PostgreSQL, and logs it.
func (t *traffic) statement(operation string, took time.Duration, err error) {
	switch operation {
	case "get", "list", "read a stream":
		t.reads.Add(1)
	default:
		t.writes.Add(1)
	}
	if slog.Default().Enabled(context.Background(), slog.LevelDebug) {
		slog.Debug("request", "topic", "requests", "service", "PostgreSQL", "operation", operation, "took", took, "error", err)
	}
}

// Traffic returns the counts of requests that this process has sent to a database and S3 so far; nil if the repository
// is on this machine.
func (r *Repo) Traffic() *events.Traffic {
	t := &events.Traffic{Reads: r.traffic.reads.Load(), Writes: r.traffic.writes.Load(), Gets: r.traffic.gets.Load(), Puts: r.traffic.puts.Load()}
	if *t == (events.Traffic{}) {
		return nil
	}
	return t
}

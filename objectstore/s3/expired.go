package s3

import (
	"context"
	"time"

	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// outlastExpiry repeats requests whose credentials have expired (Options.Expired). It surrounds the SDK's retries,
// since the SDK chooses the credentials once for all of its own attempts.
func (b *Bucket) outlastExpiry(stack *middleware.Stack) error {
	return stack.Finalize.Add(middleware.FinalizeMiddlewareFunc("OutlastExpiry", func(ctx context.Context, in middleware.FinalizeInput, next middleware.FinalizeHandler) (out middleware.FinalizeOutput, meta middleware.Metadata, err error) {
		whole, ok := in.Request.(*smithyhttp.Request)
		began := time.Now()
		for attempt := 1; ; attempt++ {
			if ok {
				in.Request = whole.Clone()
			}
			out, meta, err = next.HandleFinalize(ctx, in)
			if err == nil {
				b.served.Store(true)
			}
			if err == nil || !ok || !b.served.Load() || attempt >= b.o.Attempts || !b.o.Expired(err) || whole.RewindStream() != nil {
				return out, meta, err
			}
			if b.o.Trying != nil && time.Since(began) >= quiet {
				b.o.Trying(err)
			}
			if b.pause(ctx, attempt) != nil {
				return out, meta, err
			}
		}
	}), middleware.Before)
}

// renewed is called when a request was refused without a reason. It asks for a list, which would be refused if the
// credentials had expired, and reports whether the list is answered.
func (b *Bucket) renewed(ctx context.Context) bool {
	if b.o.Expired == nil || !b.served.Load() {
		return false
	}
	for _, err := range b.list(ctx, b.prefix+b.o.Dated) {
		return err == nil
	}
	return true
}

package s3

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/ratelimit"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"e3/internal/backoff"
)

const (
	maxBackoff = 10 * time.Second
	// throttled is the factor by which pauses are longer when the server is throttling.
	throttled = 5
)

// Codes of S3, for which the SDK has no types.
const (
	codeConflict     = "ConditionalRequestConflict" // another conditional put of the key is under way
	codeAborted      = "OperationAborted"           // the same, for the bucket
	codePrecondition = "PreconditionFailed"
	codeNoSuchKey    = "NoSuchKey"
	codeNoSuchUpload = "NoSuchUpload"
	codeNoSuchBucket = "NoSuchBucket"
	codeNotFound     = "NotFound" // the SDK's code of a 404 without a body
	codeInvalidRange = "InvalidRange"
)

// newRetryer returns the SDK's standard retryer with this package's pauses. It has no token bucket, which would fail a
// call because of failures of other calls; backoff is sufficient. heard says that the server has answered before: then
// an unknown host name is a temporary failure, not a wrong address.
func newRetryer(o Options, heard *atomic.Bool) aws.Retryer {
	throttles := retry.IsErrorThrottles(retry.DefaultThrottles)
	return retry.NewStandard(func(s *retry.StandardOptions) {
		s.MaxAttempts = o.Attempts
		s.RateLimiter = ratelimit.None
		s.Backoff = retry.BackoffDelayerFunc(func(attempt int, err error) (time.Duration, error) {
			base := o.Backoff
			if throttles.IsErrorThrottle(err) == aws.TrueTernary {
				base *= throttled
			}
			return backoff.Pause(base, maxBackoff, attempt), nil
		})
		unknown := retry.IsErrorRetryableFunc(func(err error) aws.Ternary {
			if dns := (*net.DNSError)(nil); errors.As(err, &dns) && dns.IsNotFound && heard.Load() {
				return aws.TrueTernary
			}
			return aws.UnknownTernary
		})
		s.Retryables = append(append([]retry.IsErrorRetryable{unknown}, s.Retryables...),
			retry.RetryableErrorCode{Codes: map[string]struct{}{codeConflict: {}, codeAborted: {}, "InternalError": {}}},
			retry.RetryableHTTPStatusCode{Codes: map[int]struct{}{408: {}, 429: {}}},
			retry.IsErrorRetryableFunc(func(err error) aws.Ternary {
				if broken(err) {
					return aws.TrueTernary
				}
				return aws.UnknownTernary
			}))
	})
}

// broken reports an answer that ended too early, which the SDK does not retry.
func broken(err error) bool {
	stall := (*StallError)(nil)
	return errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) || errors.As(err, &stall)
}

// unanswered reports whether a request was sent and got no answer, so that it may still take effect. A failure or
// throttling is an answer, unless it comes from a gateway that itself got no answer.
func unanswered(err error) bool {
	send, op := (*smithyhttp.RequestSendError)(nil), (*net.OpError)(nil)
	if errors.As(err, &send) {
		return !(errors.As(err, &op) && op.Op == "dial")
	}
	switch s := status(err); {
	case s == http.StatusBadGateway, s == http.StatusGatewayTimeout:
		return true
	case s != 0:
		return s < http.StatusMultipleChoices // the rest of the answer is missing
	}
	return broken(err)
}

// answered repeats a request until it gets an answer. late says that an earlier attempt got no answer.
func (b *Bucket) answered(ctx context.Context, request func(...func(*s3.Options)) error) (late bool, err error) {
	for attempt := 1; ; attempt++ {
		err = request(sendOnce)
		if !unanswered(err) || attempt >= b.o.Attempts || ctx.Err() != nil {
			return late, err
		}
		late = true
		if pauseErr := b.pause(ctx, attempt); pauseErr != nil {
			return late, errors.Join(pauseErr, err)
		}
	}
}

// head makes a HEAD request, and repeats a refused one once. The answer has no body, so the SDK cannot see that the
// server refused the date, or that the credentials have expired. But the SDK has adopted the server's date for the
// next request.
func head[T any](ctx context.Context, b *Bucket, request func() (T, error)) (T, error) {
	out, err := request()
	switch s := status(err); {
	case s == http.StatusForbidden, s == http.StatusBadRequest && b.renewed(ctx):
		return request()
	}
	return out, err
}

// sendOnce makes a request that, without an answer, must not be repeated before a check.
func sendOnce(o *s3.Options) {
	if r, ok := o.Retryer.(aws.RetryerV2); ok {
		o.Retryer = once{r}
	}
}

type once struct{ aws.RetryerV2 }

func (r once) IsErrorRetryable(err error) bool {
	return !unanswered(err) && r.RetryerV2.IsErrorRetryable(err)
}

// pause waits after the given number of attempts.
func (b *Bucket) pause(ctx context.Context, attempts int) error {
	if backoff.Wait(ctx, backoff.Pause(b.o.Backoff, maxBackoff, attempts)) != nil {
		return ctx.Err()
	}
	return nil
}

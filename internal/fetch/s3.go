package fetch

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/logging"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// bucket is how this process reaches S3: by the settings and credentials of the AWS tools, and without credentials
// where there are none, as for public buckets.
type bucket struct {
	mu      sync.Mutex
	config  *aws.Config
	without error             // why there are no credentials; nil: there are some
	regions map[string]string // of buckets that are elsewhere than the settings say
}

// usualRegion is asked where no region is set. S3 tells in which region a bucket is.
const usualRegion = "us-east-1"

// settings reads the settings of the AWS tools, once.
func (c *Client) settings(ctx context.Context) (aws.Config, error) {
	c.s3.mu.Lock()
	defer c.s3.mu.Unlock()
	if c.s3.config != nil {
		return *c.s3.config, nil
	}
	cfg, err := config.LoadDefaultConfig(ctx, config.WithLogger(logging.Nop{}))
	if err != nil {
		return cfg, fmt.Errorf("AWS settings: %w", err)
	}
	if cfg.Region == "" {
		cfg.Region = usualRegion
	}
	if _, err := cfg.Credentials.Retrieve(ctx); err != nil {
		if ctx.Err() != nil {
			return cfg, context.Cause(ctx)
		}
		cfg.Credentials, c.s3.without = aws.AnonymousCredentials{}, innermost(err)
	}
	c.s3.config = &cfg
	return cfg, nil
}

// region is where a bucket was found to be; "": where the settings say.
func (b *bucket) region(name string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.regions[name]
}

// move notes the region of a bucket. It returns false if that is known.
func (b *bucket) move(name, region string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if region == "" || b.regions[name] == region {
		return false
	}
	if b.regions == nil {
		b.regions = map[string]string{}
	}
	b.regions[name] = region
	return true
}

// An object is a file in a bucket.
type object struct {
	c                    *Client
	bucket, key, version string
}

func (o *object) ask(ctx context.Context, q question) (*answer, error) {
	cfg, err := o.c.settings(ctx)
	if err != nil {
		return nil, err
	}
	client := s3.NewFromConfig(cfg, func(s *s3.Options) {
		s.Retryer = aws.NopRetryer{} // attempts are counted above
		s.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired
		if region := o.c.s3.region(o.bucket); region != "" {
			s.Region = region
		}
		s.UsePathStyle = cfg.BaseEndpoint != nil || o.c.Getenv("AWS_ENDPOINT_URL_S3") != "" || strings.Contains(o.bucket, ".")
	})
	in := &s3.GetObjectInput{Bucket: &o.bucket, Key: &o.key}
	if o.version != "" {
		in.VersionId = &o.version
	}
	if q.seen != "" {
		in.IfNoneMatch = &q.seen
	}
	if q.tag != "" {
		in.IfMatch, in.Range = &q.tag, aws.String(fmt.Sprintf("bytes=%d-", q.from))
	}
	out, err := client.GetObject(ctx, in)
	if err != nil {
		return o.failed(ctx, q, err)
	}
	a := &answer{seen: aws.ToString(out.ETag), total: -1, whole: true, body: out.Body}
	if out.ContentLength != nil {
		a.total = *out.ContentLength
	}
	if span := aws.ToString(out.ContentRange); span != "" {
		var ok bool
		if a.from, a.total, ok = contentRange(span); !ok {
			out.Body.Close()
			return nil, fmt.Errorf("the server sends a part without saying which (Content-Range: %q)", span)
		}
	}
	return a, nil
}

// failed is the answer that an error of the SDK means, or an error that says what to do.
func (o *object) failed(ctx context.Context, q question, err error) (*answer, error) {
	var resp *smithyhttp.ResponseError
	if !errors.As(err, &resp) || resp.HTTPStatusCode() == 0 { // no answer
		return nil, &transientError{err: innermost(err)}
	}
	code := resp.HTTPStatusCode()
	says := fmt.Sprintf("S3 says %d %s", code, http.StatusText(code))
	var api smithy.APIError
	if errors.As(err, &api) {
		says = fmt.Sprintf("S3 says %s (%d)", api.ErrorCode(), code)
	}
	switch {
	case code == http.StatusNotModified:
		return &answer{same: true}, nil
	case code == http.StatusRequestedRangeNotSatisfiable && q.tag != "", code == http.StatusPreconditionFailed:
		return nil, &transientError{err: errRange}
	case code >= 300 && code < 400 || code == http.StatusBadRequest:
		if o.c.s3.move(o.bucket, resp.Response.Header.Get("X-Amz-Bucket-Region")) {
			return o.ask(ctx, q)
		}
	case code >= 500, code == http.StatusTooManyRequests:
		return nil, &transientError{err: errors.New(says)}
	case code != http.StatusForbidden && code != http.StatusUnauthorized:
	case o.c.s3.without != nil: // set before the first request
		says += fmt.Sprintf("; there are no credentials (%v): set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or log in", o.c.s3.without)
	default:
		says += " to the credentials of the AWS tools"
	}
	return nil, errors.New(says)
}

// innermost is what an error of the SDK comes from: its text names the request many times.
func innermost(err error) error {
	for {
		next := errors.Unwrap(err)
		if next == nil {
			return err
		}
		var op *smithy.OperationError
		var send *smithyhttp.RequestSendError
		if !errors.As(err, &op) && !errors.As(err, &send) {
			return inner(err)
		}
		err = next
	}
}

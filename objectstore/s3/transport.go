package s3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
)

// A StallError says that a request made no progress. It is retried like a broken connection.
type StallError struct {
	After time.Duration
}

func (e *StallError) Error() string {
	return fmt.Sprintf("no byte was sent or received for %v", e.After)
}

// Timeout marks the error as a timeout for net and the SDK.
func (e *StallError) Timeout() bool { return true }

// newHTTPClient returns the client of the configuration, watched. If it is the SDK's, perhaps with certificates or a
// proxy, it gets room for the concurrency. heard becomes true with the first answer.
func newHTTPClient(o Options, heard *atomic.Bool) aws.HTTPClient {
	client := o.Config.HTTPClient
	buildable, ok := client.(*awshttp.BuildableClient)
	if client == nil {
		buildable, ok = awshttp.NewBuildableClient(), true
	}
	if ok {
		client = buildable.WithReadTimeout(0).WithTransportOptions(func(t *http.Transport) {
			t.MaxIdleConnsPerHost = max(t.MaxIdleConnsPerHost, 8*o.Concurrency)
			t.MaxIdleConns = max(t.MaxIdleConns, 2*t.MaxIdleConnsPerHost)
			t.WriteBufferSize = 64 << 10
			t.ReadBufferSize = 64 << 10
			onlyHTTP1(t)
		}).Freeze()
	}
	return &watchedClient{client: client, patience: o.Patience, heard: heard, trying: o.Trying}
}

// onlyHTTP1 keeps parts from sharing a connection, its flow-control window and its failures.
func onlyHTTP1(t *http.Transport) {
	t.ForceAttemptHTTP2 = false
	t.TLSNextProto = nil
	t.Protocols = new(http.Protocols)
	t.Protocols.SetHTTP1(true)
	if t.TLSClientConfig != nil { // an earlier use may have allowed HTTP/2
		t.TLSClientConfig = t.TLSClientConfig.Clone()
		t.TLSClientConfig.NextProtos = nil
	}
}

// patienceKey is the context key of patient.
type patienceKey struct{}

// patient returns a context whose requests may be without progress for d, for slow operations of the server.
func patient(ctx context.Context, d time.Duration) context.Context {
	return context.WithValue(ctx, patienceKey{}, d)
}

// A watchedClient cancels requests that make no progress. Time during which the caller does not read the answer is not
// counted.
type watchedClient struct {
	client   aws.HTTPClient
	patience time.Duration
	heard    *atomic.Bool // an answer has come
	trying   func(error)  // Options.Trying
	silent   atomic.Int64 // beginning of the first attempt since the last answer, ns since 1970; 0: none
}

// quiet is the time without an answer after which Options.Trying is called.
const quiet = 2 * time.Second

// unheard notes an attempt that got no answer, or that the server could not serve.
func (c *watchedClient) unheard(began time.Time, err error) {
	c.silent.CompareAndSwap(0, began.UnixNano())
	if since := c.silent.Load(); c.trying != nil && since != 0 && time.Since(time.Unix(0, since)) >= quiet {
		c.trying(err)
	}
}

func (c *watchedClient) Do(req *http.Request) (*http.Response, error) {
	patience := c.patience
	if d, ok := req.Context().Value(patienceKey{}).(time.Duration); ok {
		patience = max(patience, d)
	}
	outer := req.Context()
	ctx, cancel := context.WithCancelCause(outer)
	w := &watchdog{patience: patience, cancel: cancel}
	w.timer = time.AfterFunc(patience, func() { cancel(&StallError{patience}) })
	req = req.WithContext(ctx)
	if req.Body != nil && req.Body != http.NoBody {
		req.Body = &sentBody{req.Body, w}
	}
	began := time.Now()
	resp, err := c.client.Do(req)
	w.answered()
	if err != nil {
		err = stalled(ctx, err)
		if outer.Err() == nil {
			c.unheard(began, err)
		}
		cancel(nil)
		return nil, err
	}
	c.heard.Store(true)
	if resp.StatusCode >= http.StatusInternalServerError { // also where the server asks for fewer requests
		c.unheard(began, fmt.Errorf("it answers %s", resp.Status))
	} else {
		c.silent.Store(0)
	}
	resp.Body = &receivedBody{body: resp.Body, w: w, ctx: ctx}
	return resp, nil
}

// stalled returns the StallError that led to err, or err.
func stalled(ctx context.Context, err error) error {
	if stall := (*StallError)(nil); errors.As(context.Cause(ctx), &stall) {
		return stall
	}
	return err
}

// A watchdog cancels a request when its timer ends.
type watchdog struct {
	patience time.Duration
	cancel   context.CancelCauseFunc

	mu    sync.Mutex
	timer *time.Timer
	head  bool // the answer has begun: data still sent does not count
}

// sent says that a part of the request was sent.
func (w *watchdog) sent() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.head {
		w.timer.Reset(w.patience)
	}
}

func (w *watchdog) answered() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.head = true
	w.timer.Stop()
}

type sentBody struct {
	io.ReadCloser
	w *watchdog
}

func (s *sentBody) Read(p []byte) (int, error) {
	n, err := s.ReadCloser.Read(p)
	s.w.sent()
	return n, err
}

type receivedBody struct {
	body io.ReadCloser
	w    *watchdog
	ctx  context.Context // of the request
}

func (r *receivedBody) Read(p []byte) (int, error) {
	r.w.timer.Reset(r.w.patience)
	n, err := r.body.Read(p)
	r.w.timer.Stop()
	if err != nil && err != io.EOF {
		err = stalled(r.ctx, err)
	}
	return n, err
}

func (r *receivedBody) Close() error {
	err := r.body.Close()
	r.w.timer.Stop()
	r.w.cancel(nil)
	return err
}

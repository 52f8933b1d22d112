package telemetry

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"sync"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/trace"

	"e3/internal/backoff"
)

// exporter sends spans to a collector by OTLP over HTTP, in protobuf. The SDK calls it for one batch at a time.
type exporter struct {
	to     *endpoint
	client *http.Client

	mu   sync.Mutex
	sent int
	last error // the latest fault
}

func newExporter(to *endpoint) (*exporter, error) {
	secure := &tls.Config{MinVersion: tls.VersionTLS12}
	if to.roots != "" {
		pem, err := os.ReadFile(to.roots)
		if err != nil {
			return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_CERTIFICATE: %w", err)
		}
		secure.RootCAs = x509.NewCertPool()
		if !secure.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_CERTIFICATE: %s holds no certificate", to.roots)
		}
	}
	if to.certificate != "" {
		pair, err := tls.LoadX509KeyPair(to.certificate, to.key)
		if err != nil {
			return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE: %w", err)
		}
		secure.Certificates = []tls.Certificate{pair}
	}
	return &exporter{to: to, client: &http.Client{
		Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: secure, ForceAttemptHTTP2: true},
		// Headers may be secrets for one host, so redirects do not carry them to others.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// ExportSpans implements sdktrace.SpanExporter. It stores errors for the single warning at the end.
func (x *exporter) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	ctx, cancel := context.WithTimeout(ctx, x.to.timeout)
	defer cancel()
	err := x.send(ctx, encode(spans))
	x.mu.Lock()
	defer x.mu.Unlock()
	if err != nil {
		x.last = err
	} else {
		x.sent += len(spans)
	}
	return nil
}

// Shutdown implements sdktrace.SpanExporter.
func (x *exporter) Shutdown(context.Context) error {
	x.client.CloseIdleConnections()
	return nil
}

// delivered returns the number of spans that the collector accepted, and the latest error.
func (x *exporter) delivered() (int, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.sent, x.last
}

// where is the address without parts that may be secret.
func (x *exporter) where() string { return x.to.url.Scheme + "://" + x.to.url.Host }

// Pauses between two attempts to send a batch.
const (
	firstPause = 100 * time.Millisecond
	maxPause   = 5 * time.Second
)

// send posts a batch, and repeats this while the collector asks to retry later. It does not retry if the collector
// cannot be reached.
func (x *exporter) send(ctx context.Context, batch []byte) error {
	if x.to.gzip {
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		if _, err := w.Write(batch); err != nil {
			return err
		}
		if err := w.Close(); err != nil {
			return err
		}
		batch = b.Bytes()
	}
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		after, err := x.post(ctx, batch)
		var busy *statusError
		if !errors.As(err, &busy) || !busy.retry() {
			return err
		}
		if backoff.Wait(ctx, max(pause, after)) != nil {
			return err
		}
	}
}

// statusError is an HTTP response other than success.
type statusError struct{ code int }

func (e *statusError) Error() string {
	return fmt.Sprintf("the response was %d %s", e.code, http.StatusText(e.code))
}

func (e *statusError) retry() bool {
	switch e.code {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// post sends a batch once. after is the pause that the collector asked for.
func (x *exporter) post(ctx context.Context, batch []byte) (after time.Duration, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, x.to.url.String(), bytes.NewReader(batch))
	if err != nil {
		return 0, withoutURL(err)
	}
	for name, values := range x.to.headers {
		req.Header[name] = values
	}
	req.Header.Set("Content-Type", "application/x-protobuf")
	if x.to.gzip {
		req.Header.Set("Content-Encoding", "gzip")
	}
	res, err := x.client.Do(req)
	if err != nil {
		return 0, withoutURL(err)
	}
	defer res.Body.Close()
	// The body is read only so that the connection can be used again.
	if _, err := io.Copy(io.Discard, io.LimitReader(res.Body, 1<<20)); err != nil {
		return 0, withoutURL(err)
	}
	if res.StatusCode/100 == 2 {
		return 0, nil
	}
	if s, err := strconv.ParseInt(res.Header.Get("Retry-After"), 10, 32); err == nil && s > 0 {
		after = time.Duration(s) * time.Second
	}
	return after, &statusError{res.StatusCode}
}

// withoutURL removes the address from an error, since the address may hold a password.
func withoutURL(err error) error {
	var of *url.Error
	if errors.As(err, &of) {
		return of.Err
	}
	return err
}

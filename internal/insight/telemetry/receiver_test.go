package telemetry_test

import (
	"compress/gzip"
	"crypto/x509"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// A receiver is a collector that keeps what it is sent.
type receiver struct {
	*httptest.Server
	t *testing.T

	mu       sync.Mutex
	answers  []int // statuses to answer with first
	requests []*http.Request
	batches  []*collector.ExportTraceServiceRequest
}

func newReceiver(t *testing.T, answers ...int) *receiver {
	r := &receiver{t: t, answers: answers}
	r.Server = httptest.NewServer(r)
	t.Cleanup(r.Close)
	return r
}

// ServeHTTP implements http.Handler.
func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests = append(r.requests, req)
	if len(r.answers) > 0 {
		w.WriteHeader(r.answers[0])
		r.answers = r.answers[1:]
		return
	}
	var body io.Reader = req.Body
	if req.Header.Get("Content-Encoding") == "gzip" {
		zipped, err := gzip.NewReader(body)
		if err != nil {
			r.t.Error(err)
			return
		}
		body = zipped
	}
	data, err := io.ReadAll(body)
	if err != nil {
		r.t.Error(err)
		return
	}
	batch := &collector.ExportTraceServiceRequest{}
	if err := proto.Unmarshal(data, batch); err != nil {
		r.t.Error(err)
	}
	r.batches = append(r.batches, batch)
}

// spans are all spans that came, by name.
func (r *receiver) spans() map[string][]*tracepb.Span {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := map[string][]*tracepb.Span{}
	for _, batch := range r.batches {
		for _, rs := range batch.ResourceSpans {
			for _, ss := range rs.ScopeSpans {
				for _, s := range ss.Spans {
					all[s.Name] = append(all[s.Name], s)
				}
			}
		}
	}
	return all
}

// one returns the only span of a name.
func (r *receiver) one(name string) *tracepb.Span {
	r.t.Helper()
	list := r.spans()[name]
	if len(list) != 1 {
		r.t.Fatalf("%d spans are called %q, want one; there are %v", len(list), name, r.spans())
	}
	return list[0]
}

// values are attributes as plain values.
func values(list []*commonpb.KeyValue) map[string]any {
	m := map[string]any{}
	for _, kv := range list {
		switch v := kv.Value.GetValue().(type) {
		case *commonpb.AnyValue_StringValue:
			m[kv.Key] = v.StringValue
		case *commonpb.AnyValue_BoolValue:
			m[kv.Key] = v.BoolValue
		case *commonpb.AnyValue_IntValue:
			m[kv.Key] = v.IntValue
		case *commonpb.AnyValue_DoubleValue:
			m[kv.Key] = v.DoubleValue
		default:
			m[kv.Key] = kv.Value
		}
	}
	return m
}

func pemOf(c *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})
}

//go:build linux

package e2e

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

var spansProject = map[string]string{"e3.yaml": `e3: 1
name: demo
tasks:
  good: {out: o, run: 'echo hi > "$out"; echo "${TRACEPARENT:-}" > "$E2E_STATE/parent"', pass_env: [E2E_STATE]}
  flaky:
    out: o
    pass_env: [E2E_STATE]
    retries: {max: 1, backoff: 1ms}
    run: |
      if [ -e "$E2E_STATE/tried" ]; then echo ok > "$out"; else touch "$E2E_STATE/tried"; exit 7; fi
  after: {in: {x: good, y: "twice[*]"}, out: p, run: 'cat "$x" > "$out"'}
  twice: {out: o, matrix: {k: [1, 2]}, run: 'echo "$k" > "$out"'}
  bad: {out: o, run: 'exit 3'}
`}

// spansOf runs the project with a collector and returns the spans by name, and how the run ended.
func spansOf(t *testing.T, p *project, want int) (map[string][]*tracepb.Span, result) {
	t.Helper()
	var mu sync.Mutex
	all := map[string][]*tracepb.Span{}
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		data, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		batch := &collector.ExportTraceServiceRequest{}
		if err := proto.Unmarshal(data, batch); err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		for _, rs := range batch.ResourceSpans {
			for _, ss := range rs.ScopeSpans {
				for _, s := range ss.Spans {
					all[s.Name] = append(all[s.Name], s)
				}
			}
		}
	}))
	defer server.Close()
	env := p.env
	defer func() { p.env = env }()
	p.env = append(env[:len(env):len(env)], "OTEL_EXPORTER_OTLP_ENDPOINT="+server.URL, "TRACEPARENT=00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	res := p.start(want)
	mu.Lock()
	defer mu.Unlock()
	return all, res
}

// The spans of a run are those of its events: one for the run, below the caller's, and below it one for each attempt.
func TestSpans(t *testing.T) {
	p := newProject(t, spansProject)
	spans, res := spansOf(t, p, 1)
	if strings.Contains(res.stderr, "OpenTelemetry") {
		t.Errorf("stderr:\n%s", res.stderr)
	}
	run := spans["RUN demo"]
	if len(run) != 1 || run[0].Status.Code != tracepb.Status_STATUS_CODE_ERROR {
		t.Fatalf("spans of the run: %v", run)
	}
	if !bytes.Equal(run[0].ParentSpanId, []byte{0xb7, 0xad, 0x6b, 0x71, 0x69, 0x20, 0x33, 0x31}) {
		t.Errorf("the parent of the run is %x", run[0].ParentSpanId)
	}
	attempts := map[string]int{}
	for _, e := range res.events(t) {
		if e.Type == "task.started" {
			attempts[e.Task]++
		}
	}
	for name, n := range attempts {
		if len(spans[name]) != n {
			t.Errorf("%d spans of %s, want %d", len(spans[name]), name, n)
		}
		for _, s := range spans[name] {
			if !bytes.Equal(s.ParentSpanId, run[0].SpanId) || !bytes.Equal(s.TraceId, run[0].TraceId) {
				t.Errorf("%s is not below the run", name)
			}
			if s.StartTimeUnixNano < run[0].StartTimeUnixNano || s.EndTimeUnixNano > run[0].EndTimeUnixNano || s.EndTimeUnixNano < s.StartTimeUnixNano {
				t.Errorf("%s is not within the run", name)
			}
		}
	}
	if len(spans) != len(attempts)+1 || attempts["flaky"] != 2 || attempts["twice[1]"] != 1 {
		t.Errorf("spans of %d names, attempts %v", len(spans), attempts)
	}
	for _, kv := range spans["bad"][0].Attributes {
		if kv.Key == "process.exit.code" && kv.Value.GetIntValue() != 3 {
			t.Errorf("exit code of bad is %v", kv.Value)
		}
	}
	if got := p.marks("parent"); len(got) != 0 {
		t.Errorf("the command got TRACEPARENT=%q, which it did not declare", got)
	}

	// Everything but what fails is cached now.
	spans, _ = spansOf(t, p, 1)
	for _, name := range []string{"good", "flaky", "after", "twice[1]", "twice[2]"} {
		if s := spans[name]; len(s) != 1 || s[0].StartTimeUnixNano != s[0].EndTimeUnixNano {
			t.Errorf("spans of cached %s: %v", name, s)
		}
	}
}

// A collector that hangs, or is not there, is said once; the run is what it would have been.
func TestSpansUndelivered(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	hanging := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-ctx.Done():
		case <-r.Context().Done():
		}
	}))
	defer hanging.Close()
	defer cancel()
	absent := httptest.NewServer(http.NotFoundHandler())
	absent.Close()
	for _, tt := range []struct {
		name, endpoint, protocol, warning string
		within                            time.Duration
	}{
		{"hanging", hanging.URL, "", "7 of 7 OpenTelemetry spans were not delivered", 30 * time.Second},
		{"absent", absent.URL, "", "connection refused", 30 * time.Second},
		{"grpc", absent.URL, "grpc", "set OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf", 30 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			files := map[string]string{"e3.yaml": strings.Replace(spansProject["e3.yaml"], "  bad: {out: o, run: 'exit 3'}\n", "", 1)}
			p := newProject(t, files)
			p.env = append(p.env, "OTEL_EXPORTER_OTLP_ENDPOINT="+tt.endpoint, "OTEL_EXPORTER_OTLP_PROTOCOL="+tt.protocol)
			began := time.Now()
			res := p.start(0)
			if took := time.Since(began); took > tt.within {
				t.Errorf("it took %v", took)
			}
			if strings.Count(res.stderr, "OpenTelemetry") != 1 || !strings.Contains(res.stderr, tt.warning) {
				t.Errorf("stderr, want one line with %q:\n%s", tt.warning, res.stderr)
			}
			if n := len(res.ran(t)); n != 6 {
				t.Errorf("%d attempts, want 6", n)
			}
		})
	}
}

package telemetry_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"e3/internal/events"
	"e3/internal/insight/telemetry"
)

// A session is the spans of a run that a test makes up.
type session struct {
	*telemetry.Spans
	now      time.Time
	warnings []string
	console  bytes.Buffer
}

var epoch = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func begin(t *testing.T, env map[string]string) *session {
	t.Helper()
	s := &session{now: epoch}
	s.Spans = telemetry.New(telemetry.Options{
		Getenv: func(name string) string { return env[name] }, Version: "1.2.3", Console: &s.console,
		Warn: func(text string) { s.warnings = append(s.warnings, text) },
	})
	return s
}

// emit adds an event 10 ms after the previous one.
func (s *session) emit(e events.Event) {
	s.now = s.now.Add(10 * time.Millisecond)
	e.Time, e.Run, e.Workspace = s.now, "018f3b4c-9a01-7000-8000-000000000000", "prod"
	s.Event(e)
}

// play is a run with each kind of end.
func (s *session) play() {
	s.emit(events.Event{Type: events.RunStarted, Data: &events.Data{Package: "demo@1.0.0", Process: &events.Process{PID: 42}}})
	s.emit(events.Event{Type: events.TaskCached, Data: &events.Data{Tasks: 500, As: "another"}})
	s.emit(events.Event{Type: events.TaskCached, Task: "old", Execution: "x0", Data: &events.Data{Output: "0000"}})
	s.emit(events.Event{Type: events.TaskStarted, Task: "good", Execution: "x1", Data: &events.Data{Key: "k/1", Attempt: 1}})
	s.emit(events.Event{Type: events.TaskStarted, Task: "bad", Execution: "x2", Data: &events.Data{Key: "k/2", Attempt: 1}})
	s.emit(events.Event{Type: events.TaskCompleted, Task: "good", Execution: "x1", Data: &events.Data{Key: "k/1", Attempt: 1, Output: "beef", Duration: 20}})
	s.emit(events.Event{Type: events.TaskFailed, Task: "bad", Execution: "x2", Data: &events.Data{Key: "k/2", Attempt: 1, ExitCode: 3}})
	s.emit(events.Event{Type: events.TaskRetryScheduled, Task: "bad", Data: &events.Data{Attempt: 2, DelayMs: 5}})
	s.emit(events.Event{Type: events.TaskStarted, Task: "bad", Execution: "x3", Data: &events.Data{Key: "k/2", Attempt: 2}})
	s.emit(events.Event{Type: events.TaskFailed, Task: "bad", Execution: "x3", Data: &events.Data{Key: "k/2", Attempt: 2, Reason: "timeout", Message: "timed out after 5s"}})
	s.emit(events.Event{Type: events.TaskFailed, Task: "lacking", Data: &events.Data{Attempt: 1, Reason: "input", Message: "no \xff such input"}})
	s.emit(events.Event{Type: events.TaskCompleted, Task: "theirs", Execution: "x4", Data: &events.Data{Duration: 30, Shared: true}})
	s.emit(events.Event{Type: events.TaskSkipped, Task: "after", Data: &events.Data{Because: "bad"}})
	s.emit(events.Event{Type: events.RunFailed, Task: "bad", Data: &events.Data{Message: "3", Summary: &events.Summary{Total: 505, Completed: 503, Cached: 501, Failed: 2, Skipped: 1}}})
}

func TestSpans(t *testing.T) {
	r := newReceiver(t)
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "team=ml,service.name=ignored")
	t.Setenv("OTEL_SERVICE_NAME", "nightly")
	s := begin(t, map[string]string{
		"OTEL_EXPORTER_OTLP_ENDPOINT": r.URL + "/base/", "OTEL_EXPORTER_OTLP_HEADERS": "api-key=a%20b%3D, x = y",
		"OTEL_EXPORTER_OTLP_COMPRESSION": "gzip",
		"TRACEPARENT":                    "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "TRACESTATE": "vendor=1",
	})
	s.play()
	s.Close()
	if len(s.warnings) > 0 {
		t.Errorf("warnings: %q", s.warnings)
	}
	req := r.requests[0]
	if req.Method != http.MethodPost || req.URL.Path != "/base/v1/traces" || req.Header.Get("Content-Type") != "application/x-protobuf" ||
		req.Header.Get("api-key") != "a b=" || req.Header.Get("x") != "y" {
		t.Errorf("request %s %s with %v", req.Method, req.URL, req.Header)
	}
	resource := values(r.batches[0].ResourceSpans[0].Resource.Attributes)
	for name, want := range map[string]any{"service.name": "nightly", "service.version": "1.2.3", "team": "ml", "telemetry.sdk.language": "go"} {
		if resource[name] != want {
			t.Errorf("resource: %s is %v, want %v", name, resource[name], want)
		}
	}
	if scope := r.batches[0].ResourceSpans[0].ScopeSpans[0].Scope; scope.Name != "e3" || scope.Version != "1.2.3" {
		t.Errorf("scope is %v", scope)
	}

	run := r.one("RUN demo")
	if got := hex.EncodeToString(run.TraceId) + " " + hex.EncodeToString(run.ParentSpanId); got != "0af7651916cd43dd8448eb211c80319c b7ad6b7169203331" {
		t.Errorf("the run's trace and parent are %s", got)
	}
	if run.TraceState != "vendor=1" || run.Kind != tracepb.Span_SPAN_KIND_SERVER || run.Flags != 0x301 {
		t.Errorf("the run has state %q, kind %v, flags %#x", run.TraceState, run.Kind, run.Flags)
	}
	want := map[string]any{
		"e3.run": "018f3b4c-9a01-7000-8000-000000000000", "e3.workspace": "prod", "e3.package": "demo@1.0.0", "cicd.pipeline.name": "demo",
		"cicd.pipeline.run.id": "018f3b4c-9a01-7000-8000-000000000000", "cicd.pipeline.action.name": "RUN", "process.pid": int64(42),
		"cicd.pipeline.result": "failure", "e3.tasks.total": int64(505), "e3.tasks.completed": int64(503), "e3.tasks.cached": int64(501),
		"e3.tasks.failed": int64(2), "e3.tasks.skipped": int64(1), "error.type": "task_failed", "e3.failed_task": "bad",
	}
	if diff := cmp.Diff(want, values(run.Attributes)); diff != "" {
		t.Errorf("attributes of the run (-want +got):\n%s", diff)
	}
	if run.Status.Code != tracepb.Status_STATUS_CODE_ERROR || run.Status.Message != "task bad failed: exit code 3" {
		t.Errorf("status of the run is %v", run.Status)
	}
	at := func(n int) uint64 { return uint64(epoch.Add(time.Duration(n) * 10 * time.Millisecond).UnixNano()) }
	if run.StartTimeUnixNano != at(1) || run.EndTimeUnixNano != at(14) {
		t.Errorf("the run lasts from %d to %d", run.StartTimeUnixNano, run.EndTimeUnixNano)
	}
	if len(run.Events) != 2 || run.Events[0].Name != "task.cached" || values(run.Events[0].Attributes)["e3.tasks"] != int64(500) ||
		run.Events[1].Name != "task.retry_scheduled" || run.Events[1].TimeUnixNano != at(8) || values(run.Events[1].Attributes)["e3.attempt"] != int64(2) {
		t.Errorf("events of the run are %v", run.Events)
	}

	good := r.one("good")
	if !bytes.Equal(good.TraceId, run.TraceId) || !bytes.Equal(good.ParentSpanId, run.SpanId) || good.Kind != tracepb.Span_SPAN_KIND_INTERNAL {
		t.Errorf("good is not below the run: %v", good)
	}
	want = map[string]any{
		"e3.run": "018f3b4c-9a01-7000-8000-000000000000", "e3.workspace": "prod", "e3.task": "good", "e3.execution": "x1", "e3.key": "k/1", "e3.attempt": int64(1),
		"e3.cached": false, "e3.output": "beef", "cicd.pipeline.task.name": "good", "cicd.pipeline.task.run.id": "x1",
		"cicd.pipeline.task.run.result": "success", "process.exit.code": int64(0),
	}
	if diff := cmp.Diff(want, values(good.Attributes)); diff != "" {
		t.Errorf("attributes of good (-want +got):\n%s", diff)
	}
	if good.StartTimeUnixNano != at(4) || good.EndTimeUnixNano != at(6) || good.Status.GetCode() != tracepb.Status_STATUS_CODE_UNSET {
		t.Errorf("good lasts from %d to %d, with %v", good.StartTimeUnixNano, good.EndTimeUnixNano, good.Status)
	}

	bad := r.spans()["bad"]
	if len(bad) != 2 {
		t.Fatalf("%d spans of bad, want one for each attempt", len(bad))
	}
	for i, want := range []struct {
		code    any
		result  string
		kind    string
		message string
	}{{int64(3), "failure", "exit_code", "exit code 3"}, {nil, "timeout", "timeout", "timed out after 5s"}} {
		got := values(bad[i].Attributes)
		if got["process.exit.code"] != want.code || got["cicd.pipeline.task.run.result"] != want.result || got["error.type"] != want.kind ||
			got["e3.attempt"] != int64(i+1) || bad[i].Status.Code != tracepb.Status_STATUS_CODE_ERROR || bad[i].Status.Message != want.message {
			t.Errorf("attempt %d of bad is %v, %v", i+1, got, bad[i].Status)
		}
	}
	if s := r.one("lacking"); s.Status.Message != "no \ufffd such input" || s.StartTimeUnixNano != s.EndTimeUnixNano {
		t.Errorf("what could not start is %v", s)
	}
	if s := r.one("theirs"); values(s.Attributes)["e3.shared"] != true || s.EndTimeUnixNano-s.StartTimeUnixNano != 30e6 {
		t.Errorf("what another run made is %v", s)
	}
	if s := r.one("old"); values(s.Attributes)["e3.cached"] != true || s.StartTimeUnixNano != s.EndTimeUnixNano {
		t.Errorf("what was cached is %v", s)
	}
	if n := len(r.spans()); n != 6 {
		t.Errorf("spans of %d names: %v", n, r.spans())
	}
}

// Runs that take thousands of tasks from the cache send few spans.
func TestManyCached(t *testing.T) {
	r := newReceiver(t)
	s := begin(t, map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": r.URL})
	s.emit(events.Event{Type: events.RunStarted, Data: &events.Data{Package: "demo@1"}})
	for i := range 10_000 {
		s.emit(events.Event{Type: events.TaskCached, Task: fmt.Sprint("t", i), Execution: fmt.Sprint("x", i)})
	}
	s.emit(events.Event{Type: events.RunCompleted})
	s.Close()
	if n := len(r.spans()); n != events.Bulk+1 || len(s.warnings) > 0 {
		t.Errorf("%d spans, want %d; warnings %q", n, events.Bulk+1, s.warnings)
	}
	if path := r.requests[0].URL.Path; path != "/" {
		t.Errorf("an endpoint for traces is used as it is, not as %s", path)
	}
	if run := r.one("RUN demo"); run.Status.GetCode() != tracepb.Status_STATUS_CODE_UNSET || len(run.ParentSpanId) != 0 {
		t.Errorf("the run is %v", run)
	}
}

// A run without an end event, because of a fault of the stores, ends with the process.
func TestUnfinished(t *testing.T) {
	r := newReceiver(t)
	s := begin(t, map[string]string{"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_ENDPOINT": r.URL})
	s.emit(events.Event{Type: events.RunStarted, Data: &events.Data{Package: "demo@1"}})
	s.emit(events.Event{Type: events.TaskStarted, Task: "t", Execution: "x"})
	s.Close()
	if run := r.one("RUN demo"); run.Status.GetMessage() != "the run was not finished" || values(run.Attributes)["cicd.pipeline.result"] != "error" {
		t.Errorf("the run is %v", run)
	}
	if task := r.one("t"); task.Status.GetCode() != tracepb.Status_STATUS_CODE_ERROR {
		t.Errorf("the task is %v", task)
	}
}

func TestCancelled(t *testing.T) {
	r := newReceiver(t)
	s := begin(t, map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": r.URL})
	s.emit(events.Event{Type: events.RunStarted, Data: &events.Data{Package: "demo@1"}})
	s.emit(events.Event{Type: events.TaskStarted, Task: "t", Execution: "x"})
	s.emit(events.Event{Type: events.TaskFailed, Task: "t", Execution: "x", Data: &events.Data{Reason: "cancelled", Message: "cancelled"}})
	s.emit(events.Event{Type: events.RunCancelled, Data: &events.Data{By: "ann@lab"}})
	s.Close()
	run := values(r.one("RUN demo").Attributes)
	if run["cicd.pipeline.result"] != "cancellation" || run["e3.cancelled_by"] != "ann@lab" {
		t.Errorf("the run is %v", run)
	}
	if task := values(r.one("t").Attributes); task["cicd.pipeline.task.run.result"] != "cancellation" {
		t.Errorf("the task is %v", task)
	}
}

// A parent that is not sampled has no spans, and that is no error.
func TestNotSampled(t *testing.T) {
	r := newReceiver(t)
	s := begin(t, map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": r.URL, "TRACEPARENT": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"})
	s.play()
	s.Close()
	if len(r.batches) > 0 || len(s.warnings) > 0 {
		t.Errorf("%d batches, warnings %q", len(r.batches), s.warnings)
	}
}

func TestConsole(t *testing.T) {
	s := begin(t, map[string]string{"OTEL_TRACES_EXPORTER": "console"})
	s.play()
	s.Close()
	if n := strings.Count(s.console.String(), `"TraceID"`); n < 6 || len(s.warnings) > 0 {
		t.Errorf("the console has %d spans; warnings %q", n, s.warnings)
	}
}

func TestBusyCollector(t *testing.T) {
	for _, tt := range []struct {
		name    string
		answers []int
		arrives bool
		warning string
	}{
		{"comes back", []int{503, 429}, true, ""},
		{"refuses", []int{400}, false, "the response was 400 Bad Request"},
		{"sends elsewhere", []int{307}, false, "the response was 307 Temporary Redirect"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newReceiver(t, tt.answers...)
			s := begin(t, map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": r.URL})
			s.play()
			s.Close()
			if got := len(r.batches) > 0; got != tt.arrives {
				t.Errorf("arrived: %t, want %t", got, tt.arrives)
			}
			switch {
			case tt.warning == "" && len(s.warnings) > 0:
				t.Errorf("warnings: %q", s.warnings)
			case tt.warning != "" && (len(s.warnings) != 1 || !strings.Contains(s.warnings[0], tt.warning) || !strings.Contains(s.warnings[0], "7 of 7")):
				t.Errorf("warnings are %q, want one with %q", s.warnings, tt.warning)
			}
		})
	}
}

// wire answers requests in a bubble, in which the clock does not wait for a network.
type wire func(*http.Request) (*http.Response, error)

func (w wire) RoundTrip(r *http.Request) (*http.Response, error) { return w(r) }

// A collector that accepts connections and never answers gets two seconds at the end, and does not delay the run
// before.
func TestHangingCollector(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := begin(t, map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector.test"})
		s.SendBy(wire(func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, context.Cause(r.Context())
		}))
		s.emit(events.Event{Type: events.RunStarted, Data: &events.Data{Package: "demo@1"}})
		began := time.Now()
		const tasks = 20_000 // far more than the queue holds
		for i := range tasks {
			id := fmt.Sprint("x", i)
			s.emit(events.Event{Type: events.TaskStarted, Task: "t", Execution: id})
			s.emit(events.Event{Type: events.TaskCompleted, Task: "t", Execution: id})
		}
		if took := time.Since(began); took > 0 {
			t.Errorf("%d tasks waited for %v", tasks, took)
		}
		s.emit(events.Event{Type: events.RunCompleted})
		began = time.Now()
		s.Close()
		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("the end waited for %v, want 2s", took)
		}
		if len(s.warnings) != 1 || !strings.Contains(s.warnings[0], "20001 of 20001") || !strings.Contains(s.warnings[0], "it does not answer") {
			t.Errorf("warnings are %q", s.warnings)
		}
		time.Sleep(time.Minute) // the request in flight ends at its own limit
	})
}

func TestAbsentCollector(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	s := begin(t, map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://user:geheim@" + address, "OTEL_EXPORTER_OTLP_HEADERS": "api-key=geheim"})
	s.play()
	s.Close()
	if len(s.warnings) != 1 || !strings.Contains(s.warnings[0], "http://"+address) || strings.Contains(s.warnings[0], "geheim") {
		t.Errorf("warnings are %q", s.warnings)
	}
}

// An absent collector is tried again at the end, for two seconds in all.
func TestAbsentCollectorIsNotAwaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := begin(t, map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector.test"})
		s.SendBy(wire(func(*http.Request) (*http.Response, error) {
			return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
		}))
		s.play()
		began := time.Now()
		s.Close()
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("the end waited for %v, want at most 2s", took)
		}
	})
}

// A collector behind TLS must have the named certificate.
func TestCertificate(t *testing.T) {
	r := &receiver{t: t}
	r.Server = httptest.NewUnstartedServer(r)
	r.Config.ErrorLog = nil
	r.StartTLS()
	defer r.Close()
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, pemOf(r.Certificate()), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		certificate string
		arrives     bool
	}{{file, true}, {"", false}} {
		r.batches = nil
		s := begin(t, map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": r.URL, "OTEL_EXPORTER_OTLP_CERTIFICATE": tt.certificate})
		s.play()
		s.Close()
		if arrived := len(r.batches) > 0; arrived != tt.arrives || arrived != (len(s.warnings) == 0) {
			t.Errorf("with certificate %q: arrived %t, warnings %q", tt.certificate, arrived, s.warnings)
		}
	}
	s := begin(t, map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": r.URL, "OTEL_EXPORTER_OTLP_CERTIFICATE": "/nonexistent"})
	if s.Spans != nil || len(s.warnings) != 1 {
		t.Errorf("a certificate that is not there: warnings %q", s.warnings)
	}
}

// Every invalid setting gives a warning, and fails no run.
func TestSettings(t *testing.T) {
	const endpoint = "OTEL_EXPORTER_OTLP_ENDPOINT"
	for _, tt := range []struct {
		name    string
		env     map[string]string
		makes   bool
		warning string
	}{
		{"nothing", nil, false, ""},
		{"another variable", map[string]string{"OTEL_SERVICE_NAME": "x", "OTEL_EXPORTER_OTLP_HEADERS": "a=b"}, false, ""},
		{"an endpoint", map[string]string{endpoint: "http://localhost:1"}, true, ""},
		{"an endpoint for traces", map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "https://localhost:1/x"}, true, ""},
		{"otlp", map[string]string{"OTEL_TRACES_EXPORTER": "otlp"}, true, ""},
		{"two", map[string]string{"OTEL_TRACES_EXPORTER": " console , otlp "}, true, ""},
		{"none", map[string]string{"OTEL_TRACES_EXPORTER": "none", endpoint: "http://localhost:1"}, false, ""},
		{"disabled", map[string]string{"OTEL_SDK_DISABLED": "TRUE", endpoint: "http://localhost:1"}, false, ""},
		{"not disabled", map[string]string{"OTEL_SDK_DISABLED": "no", endpoint: "http://localhost:1"}, true, ""},
		{"another exporter", map[string]string{"OTEL_TRACES_EXPORTER": "zipkin"}, false, "OTEL_TRACES_EXPORTER=zipkin"},
		{"http/protobuf", map[string]string{endpoint: "http://localhost:1", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}, true, ""},
		{"grpc", map[string]string{endpoint: "http://localhost:1", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, false, "set OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf"},
		{"grpc for others", map[string]string{endpoint: "http://localhost:1", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf"}, true, ""},
		{"no address", map[string]string{endpoint: "localhost:4318"}, false, endpoint + " is no address"},
		{"another scheme", map[string]string{endpoint: "unix:///x"}, false, endpoint + " is no address"},
		{"bad headers", map[string]string{endpoint: "http://localhost:1", "OTEL_EXPORTER_OTLP_HEADERS": "a=b,secret"}, false, "header 2 is not like"},
		{"a header in a header", map[string]string{endpoint: "http://localhost:1", "OTEL_EXPORTER_OTLP_HEADERS": "a=b%0D%0Ac: d"}, false, "header 1 is not like"},
		{"a bad name", map[string]string{endpoint: "http://localhost:1", "OTEL_EXPORTER_OTLP_HEADERS": "a:=b"}, false, "header 1 is not like"},
		{"bad timeout", map[string]string{endpoint: "http://localhost:1", "OTEL_EXPORTER_OTLP_TIMEOUT": "10s"}, false, "OTEL_EXPORTER_OTLP_TIMEOUT=10s"},
		{"bad compression", map[string]string{endpoint: "http://localhost:1", "OTEL_EXPORTER_OTLP_COMPRESSION": "zstd"}, false, "gzip and none"},
		{"half a certificate", map[string]string{endpoint: "http://localhost:1", "OTEL_EXPORTER_OTLP_CLIENT_KEY": "x"}, false, "need each other"},
	} {
		s := begin(t, tt.env)
		if got := s.Spans != nil; got != tt.makes {
			t.Errorf("%s: makes spans: %t, want %t; warnings %q", tt.name, got, tt.makes, s.warnings)
		}
		if tt.warning == "" && len(s.warnings) > 0 || tt.warning != "" && (len(s.warnings) != 1 || !strings.Contains(s.warnings[0], tt.warning)) {
			t.Errorf("%s: warnings are %q, want %q", tt.name, s.warnings, tt.warning)
		}
		for _, w := range s.warnings {
			if strings.Contains(w, "secret") {
				t.Errorf("%s: the warning tells a secret: %q", tt.name, w)
			}
		}
		s.Close() // also of one that makes none
	}
}

// Whatever events hold, the sent spans can be decoded.
func TestHostileText(t *testing.T) {
	r := newReceiver(t)
	s := begin(t, map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": r.URL})
	s.emit(events.Event{Type: events.RunStarted, Data: &events.Data{Package: "\xff\x00@"}})
	long := strings.Repeat("é", 1<<20)
	s.emit(events.Event{Type: events.TaskFailed, Task: long, Data: &events.Data{Message: "\x80" + long, ExitCode: -1, Duration: -5}})
	s.emit(events.Event{Type: events.TaskCompleted, Task: "", Execution: "never"})
	s.emit(events.Event{Type: "task.napped"})
	s.emit(events.Event{Type: events.RunCompleted})
	s.emit(events.Event{Type: events.RunCompleted})
	s.Close()
	if len(s.warnings) > 0 || len(r.spans()) != 3 {
		t.Errorf("spans %v, warnings %q", r.spans(), s.warnings)
	}
	for name, list := range r.spans() {
		for _, span := range list {
			for _, kv := range span.Attributes {
				if v, ok := kv.Value.Value.(*commonpb.AnyValue_StringValue); ok && len(v.StringValue) > 5000 {
					t.Errorf("%.20s: %s is %d bytes long", name, kv.Key, len(v.StringValue))
				}
			}
		}
	}
}

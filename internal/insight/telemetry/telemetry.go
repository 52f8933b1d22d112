// Package telemetry makes OpenTelemetry spans of a run and its executions, from the events of the run as they are made, if the
// standard OTEL_* variables ask for them (doc/design.md §14).
//
// A collector that is down or slow does not slow a run down. Spans wait in a bounded queue, which drops them when it is
// full, and at the end of the run the rest has two seconds. One warning reports the lost spans.
//
// Spans are made and sampled by the OpenTelemetry SDK. This package has its own exporter, because the exporters of
// the SDK include gRPC even for HTTP: that would double the size of the program and cost every command a millisecond
// or more.
package telemetry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/stdout/stdouttrace"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"e3/internal/events"
	"e3/internal/human"
	"e3/internal/insight/runview"
	"e3/internal/pkgref"
)

// flushWithin bounds the wait for a collector at the end of a run.
const flushWithin = 2 * time.Second

// maxText bounds a text in an attribute.
const maxText = 4 << 10

// Options are the facts about the process that spans need.
type Options struct {
	Getenv  func(string) string
	Version string       // of e3
	Console io.Writer    // where the exporter "console" writes: not to standard output, which is for data
	Warn    func(string) // is called about invalid settings and lost spans
}

// Spans turns the events of one run into spans. A nil *Spans makes none. Its methods are safe for concurrent use.
type Spans struct {
	opts     Options
	provider *sdk.TracerProvider
	tracer   trace.Tracer
	otlp     *exporter // nil without one

	mu       sync.Mutex
	ctx      context.Context // of the run's span
	run      trace.Span      // nil before it begins and after it has ended
	attempts runview.AttemptFold
	open     map[*runview.Attempt]trace.Span
	cached   int // spans of cached tasks
	ended    int // spans that are to be sent
}

// New returns nil if the environment does not ask for spans. It warns about invalid settings and returns nil too, since
// a run should not fail because of them.
func New(o Options) *Spans {
	set, err := parse(o.Getenv)
	if err != nil {
		o.Warn("no OpenTelemetry spans: " + err.Error())
		return nil
	}
	if !set.otlp && !set.console {
		return nil
	}
	s := &Spans{opts: o, open: map[*runview.Attempt]trace.Span{}}
	var opts []sdk.TracerProviderOption
	if set.console {
		console, err := stdouttrace.New(stdouttrace.WithWriter(o.Console))
		if err != nil {
			o.Warn("no OpenTelemetry spans on the console: " + err.Error())
		} else {
			opts = append(opts, sdk.WithBatcher(console))
		}
	}
	if set.otlp {
		if s.otlp, err = newExporter(&set.endpoint); err != nil {
			o.Warn("no OpenTelemetry spans: " + err.Error())
			return nil
		}
		opts = append(opts, sdk.WithBatcher(s.otlp))
	}
	res, err := resource.New(context.Background(), // later ones win
		resource.WithAttributes(attribute.String("service.name", "e3"), attribute.String("service.version", o.Version)),
		resource.WithTelemetrySDK(), resource.WithHost(), resource.WithFromEnv())
	if err != nil {
		o.Warn("OpenTelemetry resource: " + err.Error())
	}
	if res != nil {
		opts = append(opts, sdk.WithResource(res))
	}
	s.provider = sdk.NewTracerProvider(opts...)
	s.tracer = s.provider.Tracer("e3", trace.WithInstrumentationVersion(o.Version))
	s.ctx = propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{
		"traceparent": o.Getenv("TRACEPARENT"), "tracestate": o.Getenv("TRACESTATE"),
	})
	return s
}

// Event adds the next event of the run. It never blocks.
func (s *Spans) Event(e events.Event) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	d := e.Facts()
	a, first := s.attempts.Add(&e)
	if first {
		s.open[a] = s.begin(&e, d, a.StartedAt)
	}
	if a != nil && a.State != "" {
		s.endAttempt(a, &e, d)
	}
	if e.Type.Ends() {
		s.endRun(&e, d)
	}
	switch e.Type {
	case events.RunStarted:
		s.beginRun(&e, d)
	case events.TaskFailed:
		if d.Block != "" { // if it had an attempt, that ended when it was deferred
			s.note("task.rejected", &e, attribute.String("e3.task", text(e.Task)), attribute.String("e3.block", d.Block), attribute.String("e3.rejected_by", text(d.By)))
		}
	case events.TaskDeferred:
		s.note("task.deferred", &e, attribute.String("e3.task", text(e.Task)), attribute.String("e3.block", d.Block), attribute.String("e3.block_type", d.BlockType))
	case events.TaskResumed:
		s.note("task.resumed", &e, attribute.String("e3.task", text(e.Task)), attribute.String("e3.block", d.Block), attribute.String("e3.approved_by", text(d.By)))
	case events.TaskCached:
		s.cachedTask(&e, d)
	case events.TaskReopened:
		s.note("task.reopened", &e, attribute.String("e3.task", text(e.Task)), attribute.String("e3.because", text(d.Because)))
	case events.TaskRetryScheduled:
		s.note("task.retry_scheduled", &e, attribute.String("e3.task", text(e.Task)), attribute.Int64("e3.attempt", d.Attempt), attribute.Int64("e3.delay_ms", d.DelayMs))
	}
}

// note adds an event to the span of the run.
func (s *Spans) note(name string, e *events.Event, about ...attribute.KeyValue) {
	if s.run != nil {
		s.run.AddEvent(name, trace.WithTimestamp(e.Time), trace.WithAttributes(about...))
	}
}

// Names of attributes follow the semantic conventions for CI/CD and processes if one fits.

func (s *Spans) beginRun(e *events.Event, d *events.Data) {
	name, _ := pkgref.Split(d.Package)
	about := []attribute.KeyValue{
		attribute.String("e3.run", e.Run), attribute.String("e3.workspace", text(e.Workspace)), attribute.String("e3.package", text(d.Package)),
		attribute.String("cicd.pipeline.name", text(name)), attribute.String("cicd.pipeline.run.id", e.Run), attribute.String("cicd.pipeline.action.name", "RUN"),
	}
	if d.Process != nil {
		about = append(about, attribute.Int("process.pid", d.Process.PID))
	}
	if g := d.Git.Sound(); g != nil {
		about = append(about,
			attribute.String("vcs.ref.head.revision", g.Commit), attribute.String("vcs.ref.head.name", text(g.Branch)))
	}
	if d.Filter != "" {
		about = append(about, attribute.String("e3.filter", text(d.Filter)))
	}
	if d.Force {
		about = append(about, attribute.Bool("e3.force", true))
	}
	s.ctx, s.run = s.tracer.Start(s.ctx, "RUN "+text(name), trace.WithTimestamp(e.Time), trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(about...))
}

func (s *Spans) endRun(e *events.Event, d *events.Data) {
	if s.run == nil {
		return
	}
	s.abandon(e.Time)
	result := map[events.Type]string{events.RunCompleted: "success", events.RunFailed: "failure", events.RunCancelled: "cancellation"}[e.Type]
	s.run.SetAttributes(attribute.String("cicd.pipeline.result", result))
	if sum := d.Summary; sum != nil {
		s.run.SetAttributes(attribute.Int64("e3.tasks.total", sum.Total), attribute.Int64("e3.tasks.completed", sum.Completed),
			attribute.Int64("e3.tasks.cached", sum.Cached), attribute.Int64("e3.tasks.failed", sum.Failed), attribute.Int64("e3.tasks.skipped", sum.Skipped))
	}
	switch e.Type {
	case events.RunFailed:
		s.run.SetAttributes(attribute.String("error.type", "task_failed"), attribute.String("e3.failed_task", text(e.Task)))
		s.run.SetStatus(codes.Error, text(fmt.Sprintf("task %s failed: %s", e.Task, failure(d.Message))))
	case events.RunCancelled:
		if d.By != "" {
			s.run.SetAttributes(attribute.String("e3.cancelled_by", text(d.By)))
		}
		s.run.SetAttributes(attribute.String("error.type", "cancelled"))
		s.run.SetStatus(codes.Error, "cancelled")
	}
	s.finish(s.run, e.Time)
	s.run = nil
}

// failure describes the failure of a task. A message that is only a number is an exit code.
func failure(message string) string {
	for _, c := range message {
		if c < '0' || c > '9' {
			return message
		}
	}
	return "exit code " + message
}

// begin starts the span of an attempt.
func (s *Spans) begin(e *events.Event, d *events.Data, at time.Time) trace.Span {
	about := []attribute.KeyValue{
		attribute.String("e3.run", e.Run), attribute.String("e3.workspace", text(e.Workspace)), attribute.String("e3.task", text(e.Task)),
		attribute.Bool("e3.cached", e.Type == events.TaskCached), attribute.String("cicd.pipeline.task.name", text(e.Task)),
	}
	if e.Execution != "" {
		about = append(about, attribute.String("e3.execution", e.Execution), attribute.String("cicd.pipeline.task.run.id", e.Execution))
	}
	if d.Key != "" {
		about = append(about, attribute.String("e3.key", d.Key))
	}
	if d.Attempt > 0 {
		about = append(about, attribute.Int64("e3.attempt", d.Attempt))
	}
	if e.Worker != "" {
		about = append(about, attribute.String("e3.worker", text(e.Worker)))
	}
	_, span := s.tracer.Start(s.ctx, text(e.Task), trace.WithTimestamp(at), trace.WithAttributes(about...))
	return span
}

// endAttempt ends the span of an attempt.
func (s *Spans) endAttempt(a *runview.Attempt, e *events.Event, d *events.Data) {
	span := s.open[a]
	if span == nil { // it was abandoned
		return
	}
	delete(s.open, a)
	if a.Shared {
		span.SetAttributes(attribute.Bool("e3.shared", true))
	}
	defer s.finish(span, e.Time)
	switch a.State {
	case runview.TaskSuccess:
		span.SetAttributes(attribute.String("cicd.pipeline.task.run.result", "success"), attribute.Int("process.exit.code", 0), attribute.String("e3.output", d.Output))
		return
	case runview.TaskDeferred:
		span.SetAttributes(attribute.Bool("e3.suspended", true), attribute.Int64("process.exit.code", d.ExitCode))
		return
	}
	result, kind, message := "failure", d.Reason, d.Message
	switch d.Reason {
	case "":
		kind = "exit_code"
	case "timeout":
		result = "timeout"
	case "cancelled":
		result = "cancellation"
	default:
		result = "error"
	}
	if message == "" {
		message = fmt.Sprintf("exit code %d", d.ExitCode)
		span.SetAttributes(attribute.Int64("process.exit.code", d.ExitCode))
	}
	span.SetAttributes(attribute.String("cicd.pipeline.task.run.result", result), attribute.String("error.type", text(kind)))
	span.SetStatus(codes.Error, text(message))
}

// cachedTask makes a span of no duration for each of the first cached tasks. The summary counts the rest. Many tasks
// that are proven at once are one event of the run's span.
func (s *Spans) cachedTask(e *events.Event, d *events.Data) {
	if e.Task == "" {
		s.note("task.cached", e, attribute.Int("e3.tasks", d.Tasks), attribute.String("e3.as", d.As))
		return
	}
	if s.cached++; s.cached > events.Bulk {
		return
	}
	span := s.begin(e, d, e.Time)
	span.SetAttributes(attribute.String("cicd.pipeline.task.run.result", "success"))
	if d.Output != "" {
		span.SetAttributes(attribute.String("e3.output", d.Output))
	}
	s.finish(span, e.Time)
}

func (s *Spans) finish(span trace.Span, at time.Time) {
	if span.SpanContext().IsSampled() {
		s.ended++
	}
	span.End(trace.WithTimestamp(at))
}

// abandon ends the spans of attempts without an end event.
func (s *Spans) abandon(at time.Time) {
	for a, span := range s.open {
		span.SetStatus(codes.Error, "the run ended first")
		s.finish(span, at)
		delete(s.open, a)
	}
}

// Close sends the spans that wait, for at most two seconds. A run without an end event is marked as failed by a fault
// of e3.
func (s *Spans) Close() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.abandon(now)
	if s.run != nil {
		s.run.SetAttributes(attribute.String("cicd.pipeline.result", "error"), attribute.String("error.type", "e3"))
		s.run.SetStatus(codes.Error, "the run was not finished")
		s.finish(s.run, now)
		s.run = nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), flushWithin)
	defer cancel()
	err := s.provider.Shutdown(ctx)
	if s.otlp != nil {
		sent, last := s.otlp.delivered()
		if last == nil {
			last = err
		}
		if lost := s.ended - sent; lost > 0 {
			s.opts.Warn(fmt.Sprintf("%d of %d OpenTelemetry spans were not delivered to %s%s", lost, s.ended, s.otlp.where(), because(last)))
		}
		return
	}
	if err != nil {
		s.opts.Warn("OpenTelemetry spans: " + err.Error())
	}
}

func because(err error) string {
	switch {
	case err == nil:
		return ""
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return ": it does not answer"
	}
	return ": " + err.Error()
}

// text bounds the length of an untrusted text.
func text(s string) string { return human.Truncate(s, maxText) }

package main

import (
	"e3/internal/events"
	"e3/internal/insight/telemetry"
)

// newSpans makes OpenTelemetry spans of a run if the environment asks for them; nil if not.
func newSpans(a *app) *telemetry.Spans {
	return telemetry.New(telemetry.Options{
		Getenv: a.Getenv, Version: a.version(), Console: a.Stderr,
		Warn: func(text string) { a.Warnf("%s", text) },
	})
}

// both passes events to two functions; the first may be nil.
func both(first, second func(events.Event)) func(events.Event) {
	if first == nil {
		return second
	}
	return func(e events.Event) {
		first(e)
		second(e)
	}
}

//go:build !noevents

package events

// recording says that events are written. Only the benchmark that measures their cost is built without.
const recording = true

//go:build !noevents

package events

// recording says that events are written. Only the benchmark of their cost is built without them.
const recording = true

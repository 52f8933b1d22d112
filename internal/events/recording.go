//go:build !noevents

package events

// recording tells whether events are written. Only the benchmark that measures what that costs is built without.
const recording = true

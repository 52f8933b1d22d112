//go:build noevents

package events

const recording = false

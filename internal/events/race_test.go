//go:build race

package events_test

// raced says that the race detector is at work: everything takes many times as long.
const raced = true

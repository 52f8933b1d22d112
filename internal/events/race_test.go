//go:build race

package events_test

// raced says that the race detector is on: everything is many times slower.
const raced = true

// Package suite divides the tests in two: the quick suite, which "./run-tests" runs, and all of them, which
// "./run-tests --all" runs. The quick one is "go test -short".
//
// A test that takes many seconds calls [Thorough] in its first line, where "./run-tests" finds its name. A test whose
// length is a number plays fewer rounds under [testing.Short] instead. One in which the race detector finds nothing that
// it does not find in others calls [WithoutRace] there.
package suite

import "testing"

// Thorough skips the test in the quick suite.
func Thorough(tb testing.TB) {
	tb.Helper()
	if testing.Short() {
		tb.Skip("not in the quick suite; ./run-tests --all runs it")
	}
}

// WithoutRace skips the test under the race detector, which makes its processor time many times as long: it does one
// thing after another, hundreds of times, and other tests of the package play the same code with goroutines beside.
// ".ci/run" plays these tests in a step of their own.
func WithoutRace(tb testing.TB) {
	tb.Helper()
	if race {
		tb.Skip("not with the race detector; it is played without")
	}
}

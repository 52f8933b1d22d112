// Package suite divides the tests in two: the quick suite, which "./run-tests" runs, and all of them, which
// "./run-tests --all" runs. The quick one is "go test -short".
//
// A test that takes many seconds calls [Thorough] in its first line, where "./run-tests" finds its name. A test whose
// length is a number plays fewer rounds under [testing.Short] instead.
package suite

import "testing"

// Thorough skips the test in the quick suite.
func Thorough(tb testing.TB) {
	tb.Helper()
	if testing.Short() {
		tb.Skip("not in the quick suite; ./run-tests --all runs it")
	}
}

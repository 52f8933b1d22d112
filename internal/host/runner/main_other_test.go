//go:build !linux

package runner_test

import (
	"os"
	"testing"

	"e3/internal/host/runner"
)

func TestMain(m *testing.M) {
	runner.Main()
	os.Exit(m.Run())
}

package gc_test

import (
	"os"
	"strings"
	"testing"

	"e3/internal/testserver"
)

// The credentials of the servers for tests are in the environment, as those of others are.
func TestMain(m *testing.M) {
	for _, v := range testserver.Env() {
		name, value, _ := strings.Cut(v, "=")
		os.Setenv(name, value)
	}
	os.Exit(m.Run())
}

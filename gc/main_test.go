package gc_test

import (
	"flag"
	"os"
	"strings"
	"testing"

	"e3/internal/testing/testserver"
)

// The credentials of the servers for tests are in the environment, as those of others are.
func TestMain(m *testing.M) {
	for _, v := range testserver.Env() {
		name, value, _ := strings.Cut(v, "=")
		os.Setenv(name, value)
	}
	if os.Getenv("CI") != "" {
		flag.Set("rapid.checks", "30") // each is a repository with a history; -rapid.checks says otherwise
	}
	os.Exit(m.Run())
}

package gc_test

import (
	"flag"
	"os"
	"strings"
	"testing"

	"e3/internal/testing/testserver"
)

// The credentials of the test servers are in the environment, like those of real servers.
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

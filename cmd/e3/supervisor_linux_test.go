package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// The process that starts commands is of the same program, but initialises little of it.
func TestSupervisorInitialisesNoStores(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		all  bool
	}{{"e3", true}, {"e3-supervisor", false}} {
		cmd := exec.Command(self, "-test.run=^$")
		cmd.Args[0] = c.name
		cmd.Env = []string{"GODEBUG=inittrace=1"}
		out, err := cmd.CombinedOutput() // a supervisor without a socket ends at once, with an error
		if c.all == (err != nil) {
			t.Fatalf("%s: %v\n%s", c.name, err, out)
		}
		for _, pkg := range []string{"e3/internal/repo", "github.com/aws/aws-sdk-go-v2/service/s3", "net/http"} {
			if got := strings.Contains(string(out), "\ninit "+pkg+" "); got != c.all {
				t.Errorf("%s initialises %s: %v, want %v", c.name, pkg, got, c.all)
			}
		}
	}
}

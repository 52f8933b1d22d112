package executions_test

import (
	"fmt"
	"strings"
	"testing"

	"e3/executions"
	"e3/internal/format/record"
)

// long are lines that make a script longer than an argument may be.
var long = strings.Repeat(": a line of a long script\n", 6_000)

// A script may be longer than an argument, and runs as a shorter one does.
func TestLongScript(t *testing.T) {
	const body = "ls -A; echo \"$0 $# $-\"; touch out\nfor i in a b; do\n echo $i\ndone\n"
	for _, size := range []int{128<<10 - 1, 128 << 10, 900_000} {
		l := newLab(t)
		script := script(body + strings.Repeat("#", size-len(body)))
		if got, want := l.run(t, script), "bash 0 ehuBc\na\nb\n"; got != want {
			t.Errorf("a script of %d bytes prints %q, want %q", len(script.Shell), got, want)
		}
	}
}

// The file of a long script is gone before another command gets the sandbox, whatever the script does to it.
func TestLongScriptLeavesNothing(t *testing.T) {
	l := newLab(t)
	for i, change := range []string{"rm ../script", "rm ../script; mkdir -p ../script/x", "echo 'echo no' > ../script", "true"} {
		script1 := script(fmt.Sprintf("%s\n%s\necho %d; touch out", change, long, i))
		if got, want := l.run(t, script1), fmt.Sprintf("%d\n", i); got != want {
			t.Errorf("after %q it prints %q, want %q", change, got, want)
		}
		if got := l.run(t, script(fmt.Sprintf("ls ..; touch out; : %d", i))); got != "home\ntmp\nwork\n" {
			t.Errorf("after %q the next command sees %q", change, got)
		}
	}
}

// A long script fails at its line, with its exit code.
func TestLongScriptFails(t *testing.T) {
	l := newLab(t)
	req := l.request(script(long + "no-such-program\necho after"))
	res := l.do(t, req)
	if res.State != record.Failed || res.ExitCode != 127 {
		t.Fatalf("it ended in %v %d, want exit code 127", res.State, res.ExitCode)
	}
	if got, want := l.log(t, req, res.ExecutionID, executions.Stderr), "../script: line 6001: no-such-program: command not found\n"; got != want {
		t.Errorf("it says %q, want %q", got, want)
	}
	if got := l.log(t, req, res.ExecutionID, executions.Stdout); got != "" {
		t.Errorf("it went on: %q", got)
	}
}

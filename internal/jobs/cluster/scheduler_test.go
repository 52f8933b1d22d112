package cluster

import (
	"errors"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"
)

// The kind of a failure follows from its message, the time limit, or a signal.
func TestCommandsRun(t *testing.T) {
	c := &Commands{Env: append(os.Environ(), "A=1"), Timeout: 100 * time.Millisecond,
		Temporary: regexp.MustCompile("asleep"), Limit: regexp.MustCompile("no more"), Unknown: regexp.MustCompile("^exit status 7$")}
	for _, test := range []struct {
		script, out string
		kind        error  // nil: none of them
		message     string // "" for a success
	}{
		{`echo "$A $B"; cat`, "1 2\ninput", nil, ""},
		{`echo "sh: error: the server is asleep" >&2; echo >&2; echo "  really" >&2; exit 1`, "", ErrTemporary, "sh: the server is asleep; really"},
		{`echo "Connection refused"; exit 1`, "Connection refused\n", ErrTemporary, "sh: Connection refused"},
		{`echo "no more, asleep or not" >&2; exit 1`, "", ErrTemporary, "sh: no more, asleep or not"},
		{`echo "no more" >&2; exit 1`, "", ErrLimit, "sh: no more"},
		{`test "$(ps -o pgid= -p $$)" -eq $$ && echo "a group of its own"`, "a group of its own\n", nil, ""},
		{`exit 7`, "", ErrUnknown, "sh: exit status 7"},
		{`echo "unknown queue x" >&2; exit 1`, "", nil, "sh: unknown queue x"},
		{`kill -9 $$`, "", ErrTemporary, "sh: signal: killed"},
		{`exec sleep 1000`, "", ErrTemporary, "sh: no answer in 100ms"},
	} {
		limit := *c
		if !strings.HasPrefix(test.script, "exec sleep") {
			limit.Timeout = 0 // the machine may be busy
		}
		out, err := limit.Run(t.Context(), "input", []string{"sh", "-c", test.script}, "B=2")
		var kinds []error
		for _, kind := range []error{ErrTemporary, ErrLimit, ErrUnknown} {
			if errors.Is(err, kind) {
				kinds = append(kinds, kind)
			}
		}
		ok := len(kinds) == 0 && test.kind == nil || len(kinds) == 1 && kinds[0] == test.kind
		if text := message(err); out != test.out || !ok || text != test.message {
			t.Errorf("%s: got %q, %q of the kinds %v; want %q, %q of %v", test.script, out, text, kinds, test.out, test.message, test.kind)
		}
	}
}

func message(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

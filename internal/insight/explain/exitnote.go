package explain

import (
	"fmt"
	"strconv"
	"strings"
)

// ExitNote says what the exit code in a message like "exit code 141" means if a shell has made it from a signal; ""
// if no meaning is known. Scripts fail in these ways although no program has printed an error.
func ExitNote(message string) string {
	text, ok := strings.CutPrefix(message, "exit code ")
	code, err := strconv.Atoi(text)
	if !ok || err != nil {
		return ""
	}
	for _, s := range []struct {
		signal int
		text   string
	}{
		{6, "SIGABRT ended a command of the script: a check of its own failed"},
		{9, "SIGKILL ended a command of the script, as the system does when memory runs out"},
		{11, "SIGSEGV ended a command of the script: it crashed"},
		{13, "SIGPIPE ended a command of the script: it wrote to a pipe that is not read any more, as in \"yes | head\"; under pipefail the script then fails. Let the reader read all, or write \"|| true\" behind the pipe"},
	} {
		if code == 128+s.signal {
			return fmt.Sprintf("%d is 128 + %d: %s", code, s.signal, s.text)
		}
	}
	return ""
}

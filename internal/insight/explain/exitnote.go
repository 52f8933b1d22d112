package explain

import (
	"fmt"
	"strconv"
	"strings"
)

// Note says what a failure with this message means, beyond the message; "" for nothing.
func Note(message string) string {
	if strings.HasPrefix(message, "output ") && strings.HasSuffix(message, ", found nothing") &&
		strings.Contains(message, ": expected a file ") {
		name, _, _ := strings.Cut(message[len("output "):], ":")
		return fmt.Sprintf("the command wrote no file. One that only checks something may end with: touch \"$%s\"", name)
	}
	if rest, ok := strings.CutPrefix(message, "output "); ok && strings.HasSuffix(message, ", found a directory") {
		if _, path, at := strings.Cut(strings.TrimSuffix(rest, ", found a directory"), ": expected a file at "); at {
			if path, err := strconv.Unquote(path); err == nil {
				return fmt.Sprintf("a directory is declared with a slash at its end: out: %s/", path)
			}
		}
	}
	return ExitNote(message)
}

// ExitNote says what the exit code in a message like "exit code 141" means if a shell has made it, for the most part
// from a signal; "" if no meaning is known. Scripts fail in these ways although no program has printed an error.
func ExitNote(message string) string {
	text, ok := strings.CutPrefix(message, "exit code ")
	code, err := strconv.Atoi(text)
	if !ok || err != nil {
		return ""
	}
	switch code {
	case 126:
		return "126 is what a shell ends with if it may not execute a program that a script names"
	case 127:
		return "127 is what a shell ends with if it does not find a program that a script names"
	}
	for _, s := range []struct {
		signal int
		text   string
	}{
		{6, "SIGABRT ended a command of the script: a check of its own failed"},
		{9, "SIGKILL ended a command of the script, as the system does when memory runs out"},
		{11, "SIGSEGV ended a command of the script: it crashed"},
		{8, "SIGFPE ended a command of the script: it divided by zero, or computed what has no result"},
		{7, "SIGBUS ended a command of the script: a file in its memory became shorter, or its disk is full"},
		{15, "SIGTERM ended a command of the script: something asked it to end"},
		{2, "SIGINT ended a command of the script, as Ctrl-C does"},
		{13, "SIGPIPE ended a command of the script: it wrote to a pipe that is not read any more, as in \"yes | head\"; under pipefail the script then fails. Let the reader read all, or write \"|| true\" behind the pipe"},
	} {
		if code == 128+s.signal {
			return fmt.Sprintf("%d is 128 + %d: %s", code, s.signal, s.text)
		}
	}
	return ""
}

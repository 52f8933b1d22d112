package bash

import (
	"fmt"
	"strings"
	"syscall"
)

// Died tells how bash would report that a signal, which e3 did not send, has ended its child: the exit code, and the
// line on standard error, if any. It returns false if bash would have executed the command in its own process, so that
// the signal ends bash, too.
func (p *Process) Died(pid int, signal syscall.Signal, core bool) (code int, line string, ok bool) {
	if !p.command.forked() {
		return 0, "", false
	}
	switch signal {
	case syscall.SIGINT, syscall.SIGPIPE:
	case syscall.SIGTERM:
		line = "Terminated\n"
	default:
		dumped := ""
		if core {
			dumped = "(core dumped) "
		}
		line = fmt.Sprintf("bash: line %d: %5d %-24s%s%s\n", p.command.line, pid, describe(signal), dumped, p.command)
	}
	return 128 + int(signal), line, true
}

// String is the command as bash prints it.
func (c *Command) String() string {
	var list []string
	for i := range c.words {
		list = append(list, c.words[i].source)
	}
	for i := range c.redirects {
		list = append(list, c.redirects[i].String())
	}
	return strings.Join(list, " ")
}

// String is the redirection as bash prints it: without the descriptor if the operator implies it.
func (r *redirect) String() string {
	switch {
	case r.from >= 0:
		return fmt.Sprintf("%d>&%d", r.fd, r.from)
	case r.fd < 0, r.fd == 0 && r.operator == "<", r.fd == 1 && r.operator != "<":
		return r.operator + " " + r.target.source
	}
	return fmt.Sprintf("%d%s %s", r.fd, r.operator, r.target.source)
}

// descriptions are the GNU C library's texts, by the numbers of signals on Linux (except on MIPS).
var descriptions = map[syscall.Signal]string{
	1: "Hangup", 3: "Quit", 4: "Illegal instruction", 5: "Trace/breakpoint trap", 6: "Aborted", 7: "Bus error",
	8: "Floating point exception", 9: "Killed", 10: "User defined signal 1", 11: "Segmentation fault",
	12: "User defined signal 2", 14: "Alarm clock", 16: "Stack fault", 24: "CPU time limit exceeded",
	25: "File size limit exceeded", 26: "Virtual timer expired", 27: "Profiling timer expired", 29: "I/O possible",
	30: "Power failure", 31: "Bad system call",
}

// realTime is the first signal that the C library leaves to programs.
const realTime = 34

func describe(signal syscall.Signal) string {
	if text, ok := descriptions[signal]; ok {
		return text
	}
	if signal >= realTime {
		return fmt.Sprintf("Real-time signal %d", signal-realTime)
	}
	return fmt.Sprintf("Unknown signal %d", signal)
}

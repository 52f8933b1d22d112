package runner

import (
	"cmp"
	"encoding/json"
	"fmt"
	"syscall"

	"e3/internal/host/room"
	"e3/internal/host/trace"
)

// traced encodes the spec's Look for the supervisor; "" if the command is not traced.
func (spec *Spec) traced() (string, error) {
	if spec.Trace == nil {
		return "", nil
	}
	text, err := json.Marshal(spec.Trace)
	return string(text), err
}

// explainTrace says why the kernel refuses a tracer.
func explainTrace(errno syscall.Errno) error {
	why := "it needs Linux 5.5 with seccomp"
	if errno == syscall.EBUSY {
		why = "a container or another program watches the system calls of this process already"
	}
	if errno == syscall.EPERM {
		why = "the sysctl kernel.yama.ptrace_scope must be 0 or 1"
	}
	return fmt.Errorf("%w: %w: %s", trace.ErrUnavailable, errno, why)
}

// explainOpen says why a traced command did not start in the open room.
func explainOpen(err *room.Error, spec *Spec) error {
	return explainErrno(err.Err, cmp.Or(spec.Path, spec.Argv[0]), spec)
}

// untraced says that the spec's command cannot be traced.
func untraced(spec *Spec, err error) *StartError {
	return &StartError{Op: OpTrace, Path: spec.Argv[0], Err: err, detail: err.Error() + "; start without --trace-files and --propose"}
}

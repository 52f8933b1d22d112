package runner

import (
	"encoding/json"
	"errors"
	"fmt"
	"syscall"

	"e3/internal/host/room"
)

// closed is the room of the spec for the supervisor; "" if the command runs in the open.
func (spec *Spec) closed() (string, error) {
	if spec.Closed == nil {
		return "", nil
	}
	text, err := json.Marshal(spec.Closed)
	return string(text), err
}

// closedError says that the spec's room cannot be made.
func closedError(spec *Spec, err error) *StartError {
	return &StartError{Op: OpClosed, Path: spec.Argv[0], Err: err, detail: err.Error()}
}

// explainClosed says why a command did not start in its room.
func explainClosed(err *room.Error, spec *Spec) error {
	switch {
	case err.Step == room.StepTrace:
		return untraced(spec, explainTrace(err.Err))
	case spec.Closed == nil:
		return explainOpen(err, spec)
	case err.Step != room.StepExec:
		return closedError(spec, err)
	}
	failed := &StartError{Op: OpExec, Path: spec.Argv[0], Err: err.Err}
	switch err.Err {
	case syscall.ENOENT, syscall.ENOTDIR:
		search, _ := getenv(spec.Env, "PATH")
		if spec.Closed.Root != "" {
			failed.detail = fmt.Sprintf("the image has no such program (PATH %s), or not its interpreter", search)
			break
		}
		failed.detail = fmt.Sprintf("the closed room has no such program (PATH %s), or not its interpreter; the room has the "+
			"system's folders only: make the program an input of the task, or set room: open", search)
	case syscall.EACCES:
		failed.detail = "the closed room has it, but it is not executable for this user; chmod +x it"
	case syscall.ENOEXEC:
		failed.detail = "it has the wrong format: it is neither a program for this machine nor a script with a #! line"
	case syscall.E2BIG:
		failed.detail = fmt.Sprintf("arguments and environment are too long for the system (%d bytes); pass large data in a file", argumentBytes(spec))
	}
	return failed
}

// CannotMount reports whether a command did not start because a mount of its room failed.
func CannotMount(err error) bool {
	e, ok := errors.AsType[*room.Error](err)
	return ok && e.Step == room.StepMount
}

// NoRoom reports whether a command did not start because this machine cannot make closed rooms.
func NoRoom(err error) bool { return errors.Is(err, room.ErrUnavailable) }

package runner

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// Steps of starting a command, as StartError.Op names them.
const (
	OpSpec   = "spec"   // validating the Spec
	OpLookup = "lookup" // finding the command in PATH
	OpChdir  = "chdir"  // entering the working directory
	OpExec   = "exec"   // creating the process or executing the file
	OpClosed = "closed" // making the closed room
	OpTrace  = "trace"  // tracing the files that the command opens
	OpLimits = "limits" // making the control group that holds its limits
)

// StartError says that a command could not start. No part of it ran.
type StartError struct {
	Op   string
	Path string // the command, or the working directory for OpChdir
	Err  error  // a syscall.Errno; for OpClosed an error that wraps an Errno or room.ErrUnavailable

	detail string
}

func (e *StartError) Error() string {
	text := e.detail
	if text == "" {
		text = e.Err.Error()
	}
	if e.Op == OpClosed || e.Op == OpTrace || e.Op == OpLimits {
		return text
	}
	if e.Op == OpChdir {
		return fmt.Sprintf("cannot enter working directory %q: %s", e.Path, text)
	}
	return fmt.Sprintf("cannot start %q: %s", e.Path, text)
}

// Unwrap returns the system's error.
func (e *StartError) Unwrap() error { return e.Err }

// absolute reports whether dir is an absolute path.
func absolute(dir string) bool { return filepath.IsAbs(dir) }

// LookPath finds the file of a command: in the PATH of env if it has no slash. Relative results and PATH entries are
// relative to dir, as for the command itself. The error is a *StartError.
func LookPath(command, dir string, env []string) (string, error) {
	if strings.IndexByte(command, '/') >= 0 {
		return command, nil
	}
	search, set := getenv(env, "PATH")
	if !set {
		return "", &StartError{Op: OpLookup, Path: command, Err: syscall.ENOENT,
			detail: "its environment has no PATH; pass PATH or give the command's path"}
	}
	var denied string
	for entry := range strings.SplitSeq(search, ":") {
		candidate := entry + "/" + command
		if entry == "" {
			candidate = "./" + command
		}
		probe := candidate
		if probe[0] != '/' {
			probe = dir + "/" + probe
		}
		switch err := executable(probe); {
		case err == nil:
			return candidate, nil
		case errors.Is(err, fs.ErrPermission) && denied == "":
			denied = candidate
		}
	}
	if denied != "" {
		return "", &StartError{Op: OpLookup, Path: command, Err: syscall.EACCES,
			detail: fmt.Sprintf("%s is not executable for this user; chmod +x it", denied)}
	}
	return "", &StartError{Op: OpLookup, Path: command, Err: syscall.ENOENT,
		detail: fmt.Sprintf("not found in PATH (%s); install it or give its path", search)}
}

// getenv returns the first value of name in env.
func getenv(env []string, name string) (string, bool) {
	for _, entry := range env {
		key, value, ok := strings.Cut(entry, "=")
		if ok && key == name {
			return value, true
		}
	}
	return "", false
}

// explainStart turns the bare errno of a failed start into a StartError that says which step failed. The system
// reports only the number; repeating the checks finds the step. Other errors pass unchanged.
func explainStart(err error, path string, spec *Spec) error {
	if errno, ok := err.(syscall.Errno); ok {
		return explainErrno(errno, path, spec)
	}
	return err
}

func explainErrno(errno syscall.Errno, path string, spec *Spec) error {
	info, statErr := os.Stat(spec.Dir)
	if statErr == nil && !info.IsDir() {
		statErr = syscall.ENOTDIR
	}
	if statErr == nil {
		statErr = searchable(spec.Dir)
	}
	if statErr != nil {
		var cause syscall.Errno
		if !errors.As(statErr, &cause) {
			cause = errno
		}
		return &StartError{Op: OpChdir, Path: spec.Dir, Err: cause}
	}

	failed := &StartError{Op: OpExec, Path: spec.Argv[0], Err: errno}
	file := path
	if !filepath.IsAbs(file) {
		file = filepath.Join(spec.Dir, file)
	}
	switch {
	case errors.Is(errno, fs.ErrNotExist):
		failed.detail = "no such file: " + file
		if _, err := os.Stat(file); err == nil {
			failed.detail = file + " exists, but the interpreter that it names (the #! line, or the loader of a binary) does not"
		}
	case errno == syscall.EACCES:
		failed.detail = file + " is not executable for this user; chmod +x it"
		if info, err := os.Stat(file); err == nil && info.IsDir() {
			failed.detail = file + " is a directory"
		}
	case errno == syscall.ENOEXEC:
		failed.detail = file + " has the wrong format: it is neither a program for this machine nor a script with a #! line"
	case errno == syscall.E2BIG:
		failed.detail = fmt.Sprintf("arguments and environment are too long for the system (%d bytes); pass large data in a file", argumentBytes(spec))
	case errno == syscall.EAGAIN:
		failed.detail = "the limit on processes is reached (ulimit -u, or pids.max of the control group)"
	}
	return failed
}

// argumentBytes is the size of arguments and environment, terminators included.
func argumentBytes(spec *Spec) int { return stringBytes(spec.Argv) + stringBytes(spec.Env) }

func stringBytes(list []string) int {
	total := 0
	for _, s := range list {
		total += len(s) + 1
	}
	return total
}

package executions

import (
	"fmt"
	"strings"

	"e3/internal/host/runner"
)

// secrets are the values to mask in the logs.
func (a *assignment) secrets() []string {
	var values []string
	for _, name := range a.spec.Passed.Secrets {
		if v, ok := a.x.opts.Getenv(name); ok && v != "" {
			values = append(values, v)
		}
	}
	return values
}

// unsetError names the secrets of a task that are not set, so that the task does not start.
type unsetError struct {
	names []string
	where string // the process that lacks them
}

func (e *unsetError) Error() string {
	one, verb, them := "secret", "is", "it"
	if len(e.names) > 1 {
		one, verb, them = "secrets", "are", "them"
	}
	return fmt.Sprintf("%s %s %s not set in the environment of %s: set %s, or take %s from the task's secrets",
		one, strings.Join(e.names, ", "), verb, e.where, them, them)
}

// unset returns an *unsetError if this process lacks a secret that the task declares; an empty one counts as set. A
// secret is not part of the key, so a result made without it would also answer processes that have it.
func (a *assignment) unset() error {
	var names []string
	for _, name := range a.spec.Passed.Secrets {
		if _, ok := a.x.opts.Getenv(name); !ok {
			names = append(names, name)
		}
	}
	if names == nil {
		return nil
	}
	where := fmt.Sprintf("e3 (%s)", a.x.opts.Worker)
	if a.req.Job.Ref != "" {
		where = "the worker " + a.x.opts.Worker
	}
	return &unsetError{names, where}
}

// Messages about a task may quote its command: the name of a file that it wrote, the target of a link. Secrets in them
// are masked here, before they reach records, events, reports, traces, jobs, workers' logs and terminals. Logs are
// masked as they are written (runner.Spec.Mask), by the same Forms. Outputs, objects and keys are not masked.

// mask masks the task's secrets in a text about it.
func (a *assignment) mask(text string) string {
	if a.spec == nil || text == "" { // no command ran before the task was read
		return text
	}
	return runner.Mask(text, a.secrets()...)
}

// maskError masks the text of an error. errors.Is and errors.As still see the original.
func (a *assignment) maskError(err error) error {
	if a == nil || err == nil {
		return err
	}
	text := err.Error()
	if masked := a.mask(text); masked != text {
		return &maskedError{masked, err}
	}
	return err
}

type maskedError struct {
	text string
	err  error
}

func (e *maskedError) Error() string { return e.text }
func (e *maskedError) Unwrap() error { return e.err }

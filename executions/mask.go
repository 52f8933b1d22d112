package executions

import "e3/internal/host/runner"

// Messages about a task may quote its command: the name of a file that it wrote, the target of a link. All of them
// are masked here on their way to records, events, reports, traces, jobs, workers' logs and terminals, which know no
// secrets. Logs are masked as they are written (runner.Spec.Mask), by the same Forms. Outputs, objects and keys are
// not masked.

// mask masks the task's secrets in a text about it.
func (a *attempt) mask(text string) string {
	if a.spec == nil || text == "" { // before the task was read there was no command
		return text
	}
	return runner.Mask(text, a.secrets()...)
}

// maskError is mask for an error, which stays what it is for errors.Is and errors.As.
func (a *attempt) maskError(err error) error {
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

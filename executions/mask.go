package executions

import "e3/internal/host/runner"

// Messages about a task may quote its command: the name of a file that it wrote, the target of a link. Secrets in them
// are masked here, before they reach records, events, reports, traces, jobs, workers' logs and terminals. Logs are
// masked as they are written (runner.Spec.Mask), by the same Forms. Outputs, objects and keys are not masked.

// mask masks the task's secrets in a text about it.
func (a *attempt) mask(text string) string {
	if a.spec == nil || text == "" { // no command ran before the task was read
		return text
	}
	return runner.Mask(text, a.secrets()...)
}

// maskError masks the text of an error. errors.Is and errors.As still see the original.
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

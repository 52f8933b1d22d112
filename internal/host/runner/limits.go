package runner

import (
	"encoding/json"
	"fmt"

	"e3/internal/host/cgroup"
)

// Limits returns nil if commands can have limits here, else an error of cgroup.Check.
func (s *Supervisor) Limits() error { return cgroup.Check() }

// limits encodes the spec's limits for the supervisor; "" if the command has none.
func (spec *Spec) limits() (string, error) {
	if spec.Limits == nil {
		return "", nil
	}
	text, err := json.Marshal(spec.Limits)
	return string(text), err
}

// unlimited says that the spec's limits cannot be set.
func unlimited(spec *Spec, err error) *StartError {
	return &StartError{Op: OpLimits, Path: spec.Argv[0], Err: err, detail: fmt.Sprintf("cannot make a control group for the command's limits: %v", err)}
}

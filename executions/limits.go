package executions

import (
	"fmt"

	"e3/internal/host/cgroup"
	"e3/internal/host/runner"
	"e3/internal/human"
)

// A limiter is a runner that holds limits. Limits is cgroup.Check for its commands.
type limiter interface{ Limits() error }

// limits tells whether commands can have limits here.
func (x *Executor) limits() error {
	if l, ok := x.runner.(limiter); ok {
		return l.Limits()
	}
	return fmt.Errorf("%w: the runner cannot", cgroup.ErrUnavailable)
}

// setLimits gives a command the limits of its policy, as far as this machine can hold them. A limit that it cannot
// hold is told once, and the command runs without it.
func (c *command) setLimits(spec *runner.Spec) {
	p := c.req.Policy
	if p == nil || !p.Limits {
		return
	}
	err := c.x.limits()
	some := err == nil || cgroup.IsLack(err)
	if err != nil && c.x.opts.Unlimited != nil {
		c.x.unlimited.Do(func() {
			what := "them"
			if some {
				what = "some of their limits"
			}
			c.x.opts.Unlimited(fmt.Errorf("tasks with limits run without %s: %w", what, err))
		})
	}
	if some {
		spec.Limits = &cgroup.Limits{Memory: p.Memory, CPU: p.CPU}
	}
}

// outOfMemory is the message about a command that ran out of memory.
func (a *assignment) outOfMemory(res *runner.Result) string {
	p := a.req.Policy
	if res.Limit && p != nil {
		return fmt.Sprintf("out of memory: its limit is %s, set by resources.memory in the package file", human.Bytes(p.Memory))
	}
	text := "killed by the system because memory was used up"
	switch {
	case res.PeakRSS <= 0:
	case p != nil && p.Limits && a.x.limits() == nil:
		text += fmt.Sprintf(" (the command had %s)", human.Bytes(res.PeakRSS))
	default:
		text += fmt.Sprintf(" (the largest process had %s)", human.Bytes(res.PeakRSS))
	}
	return text
}

package main

import (
	"e3/executions"
	"e3/internal/human"
)

// tellPreparation says that an environment of programs is being made, and how that has ended. The task that needs it
// tells why it was not made.
func (a *app) tellPreparation(p executions.Preparation) {
	switch {
	case !p.Done:
		a.Notef("Making the environment %s for %s: %s", human.Line(p.Name), human.Line(p.Task), human.Line(p.Command))
	case p.Err == nil:
		a.Notef("The environment %s is made, in %s", human.Line(p.Name), human.Duration(p.Took))
	}
}

package executions

import (
	"errors"
	"fmt"

	"e3/internal/format/record"
	"e3/internal/format/value"
	"e3/objectstore"
)

// ErrOtherTool is wrapped if a program that is in the key is not the one of this machine. The command was not started,
// and another machine may have the program.
var ErrOtherTool = errors.New("another program than that in the key")

// checkTools compares the programs of the task on this machine with those in the key, right before the command: a result
// of other programs must not answer for them. Changes while the command runs are not seen.
func checkTools(a *attempt) error {
	for i, in := range a.spec.Inputs {
		program, ok := record.ToolOf(in.Name)
		if in.Kind != record.KindTool || !ok {
			continue
		}
		if a.x.opts.Tools == nil {
			return fmt.Errorf("%w: programs cannot be read here", ErrOtherTool)
		}
		text, err := a.x.opts.Tools(program)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrOtherTool, err)
		}
		data, err := value.Encode(text)
		if err != nil {
			return err
		}
		if objectstore.Sum(data) != a.req.Inputs[i] {
			return fmt.Errorf("program %s on %s is %w", program, a.x.opts.Host, ErrOtherTool)
		}
	}
	return nil
}

package executions

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"e3/internal/format/record"
	"e3/internal/format/value"
	"e3/internal/host/room"
	"e3/internal/host/tools"
	"e3/objectstore"
)

// ErrOtherTool is wrapped if a program that is in the key is not the one of this machine. The command was not started,
// and another machine may have the program.
var ErrOtherTool = errors.New("another program than that in the key")

// An otherTool says how this machine's program differs from the program in the key.
type otherTool struct {
	program, host string
	changed       []string // record.ToolChanges; empty: unknown
}

func (e *otherTool) Error() string {
	text := "program " + e.program
	if record.ToolFile(e.program) {
		text = "what interprets or loads " + e.program
	}
	text += fmt.Sprintf(" on %s is %v", e.host, ErrOtherTool)
	if len(e.changed) > 0 && !slices.Equal(e.changed, []string{record.ToolProgram + " " + e.program}) {
		text += ": " + strings.Join(e.changed, ", ")
	}
	return text
}

func (e *otherTool) Unwrap() error { return ErrOtherTool }

// checkTools compares the programs of the task on this machine with those in the key, right before the command: a result
// of other programs must not answer for them. Changes while the command runs are not seen.
func (a *assignment) checkTools(ctx context.Context, closed *room.Room) error {
	for i, in := range a.spec.Inputs {
		program, ok := record.ToolOf(in.Name)
		if in.Kind != record.KindTool || !ok {
			continue
		}
		if a.x.opts.Tools == nil {
			return fmt.Errorf("%w: programs cannot be read here", ErrOtherTool)
		}
		parts, err := a.toolParts(ctx, program)
		if err != nil {
			return fmt.Errorf("on %s, %w (%w)", a.x.opts.Host, err, ErrOtherTool)
		}
		text := tools.Text(parts)
		data, err := value.Encode(text)
		if err != nil {
			return err
		}
		if objectstore.Sum(data) != a.req.Inputs[i] {
			other := &otherTool{program: program, host: a.x.opts.Host}
			if v, err := a.readValue(ctx, a.req.Inputs[i]); err == nil { // else the error does not list the parts
				was, _ := v.Text()
				other.changed = record.ToolChanges(was, text)
			}
			return other
		}
		if closed == nil {
			continue
		}
		for _, p := range parts {
			if p.Role != record.ToolLibrary && p.Path != "" && !room.Shows(p.Path, closed.Hidden) {
				return fmt.Errorf("program %s is %s, which a closed room does not show, so the command would run %w: "+
					"take its folder from the PATH of e3, or set room: open", p.Name, p.Path, ErrOtherTool)
			}
		}
	}
	return nil
}

// toolParts reads a program of the PATH, or what this machine has to run a program file of the project.
func (a *assignment) toolParts(ctx context.Context, program string) ([]tools.Part, error) {
	if !record.ToolFile(program) {
		return a.x.opts.Tools.Find(program)
	}
	i := slices.IndexFunc(a.spec.Inputs, func(in record.Input) bool { return in.Name == program })
	if i < 0 {
		return nil, fmt.Errorf("the task has no input %s", program)
	}
	h := a.req.Inputs[i]
	return a.x.opts.Tools.Around(program, h.String(), func() (io.ReadCloser, error) { return a.x.objects.Open(ctx, h) })
}

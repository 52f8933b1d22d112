package executions

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"e3/internal/format/record"
	"e3/internal/format/value"
	"e3/internal/host/room"
	"e3/objectstore"
)

// ErrOtherTool is wrapped if a program that is in the key is not the one of this machine. The command was not started,
// and another machine may have the program.
var ErrOtherTool = errors.New("another program than that in the key")

// checkTools compares the programs of the task on this machine with those in the key, right before the command: a result
// of other programs must not answer for them. Changes while the command runs are not seen.
func checkTools(a *attempt, closed *room.Room) error {
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
			return fmt.Errorf("on %s, %w (%w)", a.x.opts.Host, err, ErrOtherTool)
		}
		data, err := value.Encode(text)
		if err != nil {
			return err
		}
		if objectstore.Sum(data) != a.req.Inputs[i] {
			return fmt.Errorf("program %s on %s is %w", program, a.x.opts.Host, ErrOtherTool)
		}
		if closed != nil {
			if err := shownTool(program, a.x.opts.Path, closed); err != nil {
				return err
			}
		}
	}
	return nil
}

// shownTool checks that a closed room has the program at the path where it was found. If not, the command would find
// another one further on the PATH, or none.
func shownTool(program, search string, closed *room.Room) error {
	for _, path := range room.Candidates(program, []string{"PATH=" + search}) {
		info, err := os.Stat(path)
		if err != nil || !filepath.IsAbs(path) || !info.Mode().IsRegular() || info.Mode().Perm()&0o111 == 0 {
			continue
		}
		if !room.Shows(path, closed.Hidden) {
			return fmt.Errorf("program %s is %s, which a closed room does not show, so the command would run %w: "+
				"take its folder from the PATH of e3, or set room: open", program, path, ErrOtherTool)
		}
		break
	}
	return nil
}

package executions

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
)

const (
	// scriptFile lies beside the working directory, in every room, if the script is too long for an argument.
	scriptFile = "script"
	// maxArgument is the greatest length of an argument: Linux allows 128 KiB with the byte at its end.
	maxArgument = 128<<10 - 1
)

// shell is the command that runs the task's script. bash reads a file that it sources as a whole before it runs
// anything, so what the script does with the file changes nothing.
func (b *box) shell() []string {
	script := b.script()
	if len(script) > maxArgument {
		script = ". ../" + scriptFile
	}
	return []string{"bash", "-euo", "pipefail", "-c", script}
}

// stageScript writes the file that shell names, if it names one.
func (b *box) stageScript() error {
	if b.spec.Argv != nil {
		return nil
	}
	script := b.script()
	if len(script) <= maxArgument {
		return nil
	}
	if strings.ContainsRune(script, 0) {
		return errors.New("the script has a NUL character")
	}
	if err := b.removeScript(); err != nil {
		return err
	}
	b.scripted = true
	if err := writeFile(b.room, scriptFile, []byte(script)); err != nil {
		return fmt.Errorf("write the script: %w", err)
	}
	if b.strips {
		return b.room.Chmod(scriptFile, stagedFile)
	}
	return nil
}

// removeScript removes the file of a script, or whatever a command has put in its place.
func (b *sandbox) removeScript() error {
	b.scripted = false
	if err := b.room.Discard(scriptFile); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

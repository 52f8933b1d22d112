//go:build !linux

package runner

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// launchArg tells Main to become a command: "e3-supervisor launch <path> <argv…>".
const launchArg = "launch"

// commandUmask is the umask of every command. All have the same umask, because it is not part of the key.
const commandUmask umask = 0o022

// umask is the umask of a process.
type umask int

// readUmask returns this process's umask. To read it, it has to set it for a moment.
func readUmask() umask {
	mask := syscall.Umask(int(commandUmask))
	syscall.Umask(mask)
	return umask(mask)
}

// start starts a command with commandUmask. A process cannot change the umask only for a child, nor for itself while
// other goroutines make files of the repository. So under another umask, a second process of this binary becomes the
// command.
func (u umask) start(path string, argv []string, attr *os.ProcAttr) (*os.Process, error) {
	if u == commandUmask {
		return os.StartProcess(path, argv, attr)
	}
	binary, err := os.Executable()
	if err != nil {
		return nil, err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	launch := *attr
	launch.Files = append(append([]*os.File{}, attr.Files...), w)
	process, err := os.StartProcess(binary, append([]string{helperName, launchArg, path}, argv...), &launch)
	w.Close()
	if err != nil {
		return nil, err
	}
	refused, err := io.ReadAll(r) // the read ends when the command has replaced this binary
	if err == nil && len(refused) == 0 {
		return process, nil
	}
	_ = process.Kill()
	_, _ = process.Wait()
	if number, convErr := strconv.Atoi(strings.TrimSpace(string(refused))); err == nil && convErr == nil {
		err = syscall.Errno(number)
	}
	return nil, err
}

// launch becomes the command, or writes the errno to the descriptor after the standard ones.
func launch(args []string) {
	const report = 3
	unix.CloseOnExec(report)
	syscall.Umask(int(commandUmask))
	err := syscall.Exec(args[0], args[1:], os.Environ())
	errno, ok := errors.AsType[syscall.Errno](err)
	if !ok {
		errno = syscall.EINVAL
	}
	fmt.Fprintln(os.NewFile(report, "report"), int(errno))
	os.Exit(1)
}

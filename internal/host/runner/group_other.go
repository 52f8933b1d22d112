//go:build !linux

package runner

import (
	"bufio"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// On these systems commands are direct children in process groups of their own. A small watchdog process learns the
// groups through a pipe and kills them when this process dies. Four gaps remain. A process that left its group (setsid)
// is not found, not even by its marker. If this process dies between the start of a command and the message to the
// watchdog, that command keeps running. A group is killed only after its first process was reaped, so that its number
// may be reused. Other processes of a group may end shortly after Run returned.

// helperName is the argv[0] of the watchdog process.
const helperName = "e3-supervisor"

func isHelper() bool { return len(os.Args) > 0 && os.Args[0] == helperName }

// Main turns this process into the watchdog, or into a command (umask.start), if it was started as one, and then never
// returns. It must be the first call in main, and in TestMain of every package whose tests run commands.
func Main() {
	if !isHelper() {
		return
	}
	if len(os.Args) > 3 && os.Args[1] == launchArg {
		launch(os.Args[2:])
	}
	signal.Ignore(unix.SIGHUP, unix.SIGINT, unix.SIGTERM, unix.SIGQUIT)
	groups := make(map[int]struct{})
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		text := lines.Text()
		pgid, err := strconv.Atoi(strings.TrimLeft(text, "+-"))
		switch {
		case err != nil || pgid <= 1:
		case text[0] == '+':
			groups[pgid] = struct{}{}
		default:
			delete(groups, pgid)
		}
	}
	for pgid := range groups {
		_ = unix.Kill(-pgid, unix.SIGKILL)
	}
	os.Exit(0)
}

// guard is e3's side of the watchdog.
type guard struct {
	process *os.Process

	mu   sync.Mutex
	pipe *os.File
	err  error // the first error of the pipe: the watchdog is gone
}

// group is the process group of one command.
type group struct{ id int }

func groupAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func newGuard() (*guard, error) {
	binary, err := os.Executable()
	if err != nil {
		return nil, err
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	process, err := os.StartProcess(binary, []string{helperName}, &os.ProcAttr{
		Dir:   "/",
		Env:   []string{},
		Files: []*os.File{r, null, null},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		w.Close()
		return nil, err
	}
	return &guard{process: process, pipe: w}, nil
}

func (g *guard) gone() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.err != nil
}

func (g *guard) tell(sign byte, id int) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.err == nil {
		_, g.err = fmt.Fprintf(g.pipe, "%c%d\n", sign, id)
	}
	return g.err
}

func (g *guard) add(process *os.Process) (*group, error) {
	if err := g.tell('+', process.Pid); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSupervisorLost, err)
	}
	return &group{id: process.Pid}, nil
}

// remove ignores errors: the next add notices a lost watchdog.
func (g *guard) remove(gr *group) { _ = g.tell('-', gr.id) }

func (g *guard) close() error {
	err := g.pipe.Close()
	if _, waitErr := g.process.Wait(); err == nil {
		err = waitErr
	}
	return err
}

func (g *group) terminate() {
	_ = unix.Kill(-g.id, unix.SIGTERM)
	_ = unix.Kill(-g.id, unix.SIGCONT) // a stopped process could not handle TERM
}

func (g *group) kill() { _ = unix.Kill(-g.id, unix.SIGKILL) }

func peakRSS(state *os.ProcessState) int64 {
	usage, ok := state.SysUsage().(*syscall.Rusage)
	if !ok {
		return 0
	}
	return int64(usage.Maxrss) // bytes on macOS
}

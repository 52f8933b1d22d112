package runner

import (
	"fmt"
	"os"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/windows"
)

// On Windows every command has a job object that dies with its last handle, which this process holds. So the kernel
// kills all processes of the job when the command ends, or when e3 ends in any way. Three gaps remain. A child started
// before the command is put into its job stays outside. There is no TERM, so a timeout or a cancellation kills at once.
// Peak memory is not measured. The marker is not used, because no process leaves a job.

// Main does nothing here: no supervisor process is needed.
func Main() {}

func isHelper() bool { return false }

// guard is empty here.
type guard struct{}

// group is the job object of one command.
type group struct {
	mu  sync.Mutex
	job windows.Handle
}

func groupAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: windows.CREATE_NEW_PROCESS_GROUP}
}

func newGuard() (*guard, error) { return &guard{}, nil }

func (*guard) gone() bool   { return false }
func (*guard) close() error { return nil }

func (*guard) add(process *os.Process) (*group, error) {
	job, err := windows.CreateJobObject(nil, nil)
	if err != nil {
		return nil, fmt.Errorf("create a job object: %w", err)
	}
	limits := windows.JOBOBJECT_EXTENDED_LIMIT_INFORMATION{
		BasicLimitInformation: windows.JOBOBJECT_BASIC_LIMIT_INFORMATION{
			LimitFlags: windows.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE,
		},
	}
	_, err = windows.SetInformationJobObject(job, windows.JobObjectExtendedLimitInformation,
		uintptr(unsafe.Pointer(&limits)), uint32(unsafe.Sizeof(limits)))
	if err == nil {
		err = assign(job, process.Pid)
	}
	if err != nil {
		windows.CloseHandle(job)
		return nil, fmt.Errorf("put the process into a job object: %w", err)
	}
	return &group{job: job}, nil
}

// assign puts a process into the job, unless it has ended already.
func assign(job windows.Handle, pid int) error {
	process, err := windows.OpenProcess(windows.PROCESS_SET_QUOTA|windows.PROCESS_TERMINATE|windows.PROCESS_QUERY_LIMITED_INFORMATION, false, uint32(pid))
	if err != nil {
		return err
	}
	defer windows.CloseHandle(process)
	err = windows.AssignProcessToJobObject(job, process)
	var code uint32
	const stillActive = 259
	if err != nil && windows.GetExitCodeProcess(process, &code) == nil && code != stillActive {
		return nil
	}
	return err
}

func (*guard) remove(g *group) {
	g.mu.Lock()
	defer g.mu.Unlock()
	windows.CloseHandle(g.job)
	g.job = 0
}

func (g *group) terminate() { g.kill() }

func (g *group) kill() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.job != 0 {
		_ = windows.TerminateJobObject(g.job, 1)
	}
}

func peakRSS(*os.ProcessState) int64 { return 0 }

// umask is empty here, because Windows has none.
type umask struct{}

func readUmask() umask { return umask{} }

func (umask) start(path string, argv []string, attr *os.ProcAttr) (*os.Process, error) {
	return os.StartProcess(path, argv, attr)
}

// Package room starts commands in closed rooms. A room is a set of Linux namespaces, made by an ordinary user, in which
// the command sees the system's programs, its own folder, and nothing else of the machine.
//
// A slot makes rooms, for one command at a time. Its keeper, a fork of this process, has a user, network, host name and
// mount namespace, with the root file system that all rooms of the slot share. For each command the keeper forks
// process 1 of a room, with process, mount and IPC namespaces of its own. Process 1 mounts the command's folders,
// starts the command as process 2, and reaps processes that lose their parent. When the command has ended, it kills the
// remaining processes. No other program is involved, and root is not needed.
//
// Between a fork and the execution of the command no Go code may allocate or lock. So a room is compiled into a list of
// system calls, in memory that all these processes share (program_linux.go), and they make these calls (fork_linux.go).
package room

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
)

// Paths of a command's own folders in a room. They are the same on all machines, so that programs which store the path
// of their working directory write the same bytes everywhere.
const (
	Folder = "/e3"      // shows Room.Folder
	Work   = "/e3/work" // the working directory
	Home   = "/e3/home"
	Temp   = "/e3/tmp" // also /tmp
)

// A Room says what a command can see and reach. Its zero value, with folders, is a room with the programs of this system
// and no network.
type Room struct {
	// Base is the absolute path of a folder around Folder, Lower and Scratch. Rooms with the same Base can share a
	// slot.
	Base string

	// Folder is the only folder in which the command may write: shown as /e3. It holds the folders work, home and tmp.
	Folder string

	// Root is the absolute path of a folder with a root file system. The command sees a read-only view of it. It must
	// have the folders in RootFolders and the files of RootFiles. Empty: /usr, /bin, /lib and parts of /etc of this
	// system.
	Root string

	// Lower are folders, at most MaxLower, whose content the command sees in Folder, below Folder's own content
	// (overlayfs). Its changes go into Folder, and Lower stays as it is. Folder must be without the marks of earlier
	// rooms ([Unmark]).
	Lower []string

	// Scratch is an empty folder on the file system of Folder, for one room with Lower. All these are below Base.
	Scratch string

	// Hidden are folders of this system that the room covers with empty ones, as [Hidden] returns them. It needs an
	// empty Root.
	Hidden []string

	// ReadOnly is a folder of this machine that the command sees at its path, and cannot change. It needs an empty Root.
	// Empty: there is none.
	ReadOnly string

	// Devices are shown in /dev.
	Devices []Device

	// Network lets the command use this machine's network. Otherwise it has a loopback device of its own.
	Network bool
}

// MaxLower bounds Room.Lower: a page has to hold the names of all.
const MaxLower = 100

// RootFolders must exist in a Room.Root, and no one may be a link: something is mounted on each.
var RootFolders = []string{"dev", "e3", "etc", "proc", "run", "sys/devices/system", "tmp", "var/tmp"}

// nameFiles are the files of RootFiles that a room with Network replaces by this machine's files.
var nameFiles = []string{"etc/hosts", "etc/resolv.conf"}

// ErrUnavailable is wrapped by errors if this machine cannot make a room.
var ErrUnavailable = errors.New("this machine cannot make closed rooms")

// An Error says which step of making a room failed. The command did not run.
type Error struct {
	Step Step
	Err  syscall.Errno
}

func (e *Error) Error() string {
	text := fmt.Sprintf("cannot make a closed room: %s: %v", e.Step, e.Err)
	if e.unavailable() {
		text = fmt.Sprintf("%v: %s: %v; %s", ErrUnavailable, e.Step, e.Err, e.advice())
	}
	return text
}

// Unwrap returns the system's error, and ErrUnavailable if the kernel refuses rooms.
func (e *Error) Unwrap() []error {
	if e.unavailable() {
		return []error{e.Err, ErrUnavailable}
	}
	return []error{e.Err}
}

// unavailable reports whether every other room would fail, too.
func (e *Error) unavailable() bool {
	return e.Step != StepFolder && e.Step != StepMount && e.Step != StepEnter && e.Step != StepTrace && e.Step != StepExec
}

// A Step is a part of making a room.
type Step uint32

// The steps, in their order.
const (
	StepFork    Step = iota + 1 // making the namespaces
	StepUser                    // naming the user in the namespaces
	StepRoot                    // the root file system
	StepSystem                  // the system's folders in the root file system
	StepDevices                 // /dev
	StepProc                    // /proc
	StepNetwork                 // the loopback device
	StepFolder                  // Room.Folder
	StepMount                   // Room.Lower
	StepPivot                   // leaving the old root file system
	StepSpawn                   // the command's process
	StepRights                  // giving up capabilities, and the system call filter
	StepEnter                   // the working directory
	StepTrace                   // the filter of a tracer
	StepExec                    // the command
)

func (s Step) String() string {
	names := [...]string{
		StepFork: "make namespaces", StepUser: "name the user", StepRoot: "make a root file system",
		StepSystem: "show the system's folders", StepDevices: "make /dev", StepProc: "mount /proc",
		StepNetwork: "set up the loopback device", StepFolder: "show the task's folder",
		StepMount: "mount the inputs", StepPivot: "enter the root file system",
		StepSpawn: "make a process", StepRights: "give up rights", StepEnter: "enter the working directory",
		StepTrace: "trace the command", StepExec: "execute the command",
	}
	if int(s) < len(names) && names[s] != "" {
		return names[s]
	}
	return fmt.Sprintf("step %d", uint32(s))
}

// Candidates lists the possible paths of a command of this name, in the order of the PATH of env. A name with a slash
// is its own path.
func Candidates(name string, env []string) []string {
	if strings.Contains(name, "/") {
		return []string{name}
	}
	var list []string
	for _, entry := range env {
		search, ok := strings.CutPrefix(entry, "PATH=")
		if !ok {
			continue
		}
		for folder := range strings.SplitSeq(search, ":") {
			if folder == "" {
				folder = "."
			}
			list = append(list, strings.TrimSuffix(folder, "/")+"/"+name)
		}
		break
	}
	return list
}

package runner

import (
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// helperName is the argv[0] of the supervisor process, which ps shows. No shell passes it by accident.
const helperName = "e3-supervisor"

// firstLane is the number of the first lane's descriptor in the supervisor.
const firstLane = 3

// helperArgs are the arguments of the supervisor. After the descriptors of its lanes it inherits the descriptors of
// keeping, if any.
func helperArgs(lanes int, keeping *keeping) []string {
	args := []string{helperName, strconv.Itoa(lanes), "for", strconv.Itoa(os.Getpid())}
	return append(args, keeping.args()...)
}

func isHelper() bool { return len(os.Args) > 0 && os.Args[0] == helperName }

// Main turns this process into the supervisor if it was started as one, and then never returns. It must be the first
// call in main, and in TestMain of every package whose tests run commands.
func Main() {
	if !isHelper() {
		return
	}
	lanes := 0
	if len(os.Args) > 1 {
		lanes, _ = strconv.Atoi(os.Args[1])
	}
	keeping, ok := parseKeeping(os.Args)
	if lanes < 1 || !ok {
		fmt.Fprintln(os.Stderr, helperName+": this command is started by e3 itself")
		os.Exit(2)
	}
	if err := serve(lanes, keeping); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", helperName, err)
	}
	os.Exit(1)
}

// init calls Main before later packages are initialised: the supervisor needs none of them, and the clients of the
// stores take most of the time and memory of a start.
func init() { Main() }

// serve prepares the process and starts the threads. It returns only on an error.
func serve(lanes int, keeping *keeping) error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become the adopter of orphans: %w", err)
	}
	// Cosmetic: the name that ps and top show.
	if name, err := unix.BytePtrFromString(helperName); err == nil {
		_ = unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(name)), 0, 0, 0)
	}
	syscall.Umask(0o022)
	inherited := firstLane + lanes + keeping.descriptors()
	closeInherited(inherited)

	// Signals are caught and dropped, not ignored: commands inherit an ignored signal, but reset a caught one to its
	// default. e3's own parent may have ignored the last four, and Go does not reset those.
	signal.Notify(make(chan os.Signal, 1), unix.SIGHUP, unix.SIGINT, unix.SIGTERM, unix.SIGQUIT,
		unix.SIGUSR1, unix.SIGUSR2, unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU, unix.SIGCONT)

	null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", os.DevNull, err)
	}
	// Close them before the first command starts, which would inherit them.
	for fd := firstLane; fd < inherited; fd++ {
		unix.CloseOnExec(fd)
	}
	s := newServer(null, lanes)
	servers := make([]*laneServer, lanes)
	for i := range servers {
		servers[i] = s.newLane(firstLane + i)
	}
	if keeping != nil {
		if err := s.keep(keeping, servers, firstLane+lanes); err != nil {
			return err
		}
	}
	for _, l := range servers {
		go l.serve()
	}
	select {}
}

// closeInherited closes the descriptors that e3's own parent left open, so that no process waits for the supervisor to
// close them. It spares close-on-exec descriptors, such as those of the Go runtime.
func closeInherited(from int) {
	dir, err := os.Open("/proc/self/fd")
	if err != nil {
		return
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	for _, name := range names {
		fd, err := strconv.Atoi(name)
		if err != nil || fd < from {
			continue
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			unix.Close(fd)
		}
	}
}

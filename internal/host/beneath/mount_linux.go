package beneath

import (
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Detach takes away what is mounted below the folder, where this process may: the mounted files stay where they are. It
// reads the system's list of mounts. What it cannot detach stays, for RemoveAll to name.
func (d *Dir) Detach() {
	own, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(d.fd))
	if err != nil {
		return
	}
	list, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil || !strings.Contains(string(list), own) && !strings.ContainsAny(own, " \t\n\\") {
		return
	}
	for line := range strings.Lines(string(list)) {
		fields := strings.Fields(line)
		if len(fields) < 5 {
			continue
		}
		rel, below := strings.CutPrefix(mountUnquote.Replace(fields[4]), own+"/")
		for below && d.detach(rel) { // mounts can lie on each other
		}
	}
}

// mountUnquote reads a path of mountinfo.
var mountUnquote = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

// detach detaches a mount whose root is at rel. A path is needed for that: this one is the open file's.
func (d *Dir) detach(rel string) bool {
	all := Dir{fd: d.fd, name: d.name}
	fd, err := all.open(rel, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	var st unix.Statx_t
	if unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_INO, &st) != nil || st.Attributes&unix.STATX_ATTR_MOUNT_ROOT == 0 {
		return false
	}
	return unix.Unmount("/proc/self/fd/"+strconv.Itoa(fd), unix.MNT_DETACH) == nil
}

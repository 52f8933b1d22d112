package beneath

import (
	"errors"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Discard is RemoveAll for an entry in which nothing should be mounted. If something is mounted in it, Discard detaches
// the mount first, if this process may: the mounted files stay where they are.
func (d *Dir) Discard(rel string) error {
	err := d.RemoveAll(rel)
	if !errors.Is(err, ErrMount) || !d.detachIn(rel) {
		return err
	}
	return d.RemoveAll(rel)
}

// detachIn detaches all mounts at rel or below, and tells whether there was one.
func (d *Dir) detachIn(rel string) (some bool) {
	dir, err := d.hold()
	if err != nil {
		return false
	}
	defer d.release()
	own, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(dir))
	if err != nil {
		return false
	}
	list, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(list)) {
		fields := strings.Fields(line)
		if len(fields) < 5 {
			continue
		}
		at, below := strings.CutPrefix(mountUnquote.Replace(fields[4]), own+"/")
		for below && (at == rel || strings.HasPrefix(at, rel+"/")) && detach(dir, at) { // mounts can be stacked
			some = true
		}
	}
	return some
}

// mountUnquote reads a path of mountinfo.
var mountUnquote = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

// detach detaches a mount whose root is at rel in an open folder. The call needs a path: it gets the open file's path
// in /proc.
func detach(dir int, rel string) bool {
	fd, err := way{fd: dir}.open(rel, unix.O_PATH|unix.O_CLOEXEC, 0)
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

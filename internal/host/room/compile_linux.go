//go:build amd64 || arm64

package room

import (
	"encoding/binary"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// base is where the root file system is mounted before the room is entered. It exists everywhere, and nothing of the
// system lies below it.
const base = "/tmp"

const (
	readOnly = unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV
	plain    = unix.MS_NOSUID | unix.MS_NODEV
)

// hold is the first of the descriptors of files that mounts hide.
const hold = 100

// shell adds the calls by which a keeper makes the common part of the rooms of its slot: everything but /proc, private
// file systems and the command's folder. Room.Base is at Folder, where the folder of a command covers it.
func (r *Room) shell(p *program) {
	s := thisSystem()
	p.step = StepUser
	p.write("/proc/self/setgroups", "deny", 0)
	p.write("/proc/self/uid_map", fmt.Sprintf("%d %d 1", os.Geteuid(), os.Geteuid()), 0)
	p.write("/proc/self/gid_map", fmt.Sprintf("%d %d 1", os.Getegid(), os.Getegid()), 0)
	// Commands must not see this process's memory, which is a copy of the supervisor's.
	p.add(unix.SYS_PRCTL, unix.PR_SET_DUMPABLE, 0)

	p.step = StepRoot
	p.add(unix.SYS_SETHOSTNAME, p.text(hostname), uintptr(len(hostname)))
	p.mount("none", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
	const heldBase, heldRoot, heldReadOnly = hold, hold + 1, hold + 2
	p.step = StepFolder
	p.hold(r.Base, heldBase)
	if r.ReadOnly != "" {
		p.hold(r.ReadOnly, heldReadOnly)
	}
	p.step = StepRoot
	if r.Root != "" {
		p.hold(r.Root, heldRoot)
		p.mount(held(heldRoot), base, "", unix.MS_BIND|unix.MS_REC, "")
		p.step = StepSystem
		p.bind("/sys/devices/system", base+"/sys/devices/system").how = ignores
		if r.Network {
			p.bindNames()
		}
	} else {
		p.mount("room", base, "tmpfs", plain, "mode=0755,size=1m")
		p.step = StepSystem
		r.showSystem(p, s)
		for _, folder := range r.Hidden {
			p.mount("hidden", base+folder, "tmpfs", plain, "mode=0555,size=4k")
		}
		if r.ReadOnly != "" {
			p.mkdir(base + aside)
			p.bind(held(heldReadOnly), base+aside)
			p.mkdirs(base, r.ReadOnly)
		}
	}
	p.restrict(base, readOnly)
	p.step = StepDevices
	makeDevices(p, s, r.Devices)
	p.step = StepProc // the machine's /proc, which the kernel requires to be visible when a command gets its own
	p.bind("/proc", base+"/proc")
	p.step = StepFolder
	p.bind(held(heldBase), base+Folder)
	p.restrict(base+Folder, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV)
	if !r.Network {
		p.step = StepNetwork
		raiseLoopback(p)
	}
	p.step = StepPivot
	p.add(unix.SYS_CHDIR, p.text(base))
	p.add(unix.SYS_PIVOT_ROOT, p.text("."), p.text("."))
	p.add(unix.SYS_UMOUNT2, p.text("."), unix.MNT_DETACH)
	p.add(unix.SYS_CHDIR, p.text("/"))
	for _, fd := range []uintptr{heldBase, heldRoot, heldReadOnly} {
		p.add(unix.SYS_CLOSE, fd).how = ignores
	}
	p.add(unix.SYS_KEYCTL, unix.KEYCTL_JOIN_SESSION_KEYRING).how = ignores
	p.step = StepRights
	for c := range uintptr(lastCapability) {
		p.add(unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, c).hint = uint32(unix.EINVAL)
	}
	p.add(unix.SYS_PRCTL, unix.PR_SET_SECUREBITS, noRoot)
}

// finish adds the calls by which process 1 makes its room out of the keeper's. It has a copy of the keeper's mounts.
func (r *Room) finish(p *program) {
	s := thisSystem()
	p.step = StepProc
	p.mount("proc", "/proc", "proc", plain|unix.MS_NOEXEC, "")
	for _, path := range s.procReadOnly {
		p.bind(path, path).how = ignores
		p.restrict(path, unix.MOUNT_ATTR_RDONLY).how = ignores
	}
	for _, path := range s.procHidden {
		p.bind("/dev/null", path).how = ignores
	}
	p.step = StepDevices
	p.mount("devpts", "/dev/pts", "devpts", unix.MS_NOSUID|unix.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620")
	p.mount("shm", "/dev/shm", "tmpfs", plain, "mode=1777")
	// This covers Base, with the files of other commands in it. Without capabilities no command can uncover it.
	r.showFolder(p)
	p.bind(Temp, "/tmp")
	if r.ReadOnly != "" { // after all else, since its path may lie in any of these
		p.mkdirs("", r.ReadOnly)
		p.bind(aside, r.ReadOnly)
		p.add(unix.SYS_UMOUNT2, p.text(aside), unix.MNT_DETACH)
	}
	if r.Root != "" {
		p.bind(Temp, "/var/tmp")
		p.mount("run", "/run", "tmpfs", plain, "mode=0755,size=64m")
	}
}

// aside shows Room.ReadOnly until the command's folder and the private file systems are mounted.
const aside = "/e3-environment"

// mkdirs makes the folders of a path below another, where that is possible. Where it is not, they have to exist.
func (p *program) mkdirs(below, path string) {
	for i := 1; i <= len(path); i++ {
		if i == len(path) || path[i] == '/' {
			p.add(unix.SYS_MKDIRAT, at, p.text(below+path[:i]), 0o755).how = ignores
		}
	}
}

// held is the name of a descriptor of program.hold.
func held(number int) string { return fmt.Sprintf("/proc/self/fd/%d", number) }

// showFolder shows Room.Folder, above Room.Lower.
func (r *Room) showFolder(p *program) {
	p.step = StepFolder
	inBase := func(path string) string { return Folder + strings.TrimPrefix(path, r.Base) }
	if len(r.Lower) == 0 {
		p.bind(inBase(r.Folder), Folder)
		return
	}
	p.step = StepMount
	names := make([]string, 0, MaxLower+2) // commas and colons in paths have a meaning in the options of a mount
	for i, path := range append([]string{r.Folder, r.Scratch}, r.Lower...) {
		p.hold(inBase(path), hold+i)
		names = append(names, held(hold+i))
	}
	// Without "volatile" the end of each room would write the whole file system of Folder to the disk.
	p.mount("overlay", Folder, "overlay", plain,
		"upperdir="+names[0]+",workdir="+names[1]+",lowerdir="+strings.Join(names[2:], ":")+",userxattr,index=off,volatile")
	p.add(unix.SYS_CLOSE_RANGE, hold, uintptr(^uint32(0)), 0)
}

// showSystem makes the root file system of this machine's programs.
func (r *Room) showSystem(p *program, s *system) {
	for _, folder := range []string{"/dev", Folder, "/etc", "/proc", "/run", "/sys", "/tmp", "/var"} {
		p.mkdir(base + folder)
	}
	p.symlink("../tmp", base+"/var/tmp")
	p.symlink("../run", base+"/var/run")
	for _, folder := range s.folders {
		p.mkdir(base + folder)
		p.bind(folder, base+folder)
	}
	for _, folder := range s.etc {
		p.mkdir(base + folder)
	}
	for _, link := range s.links {
		p.symlink(link[0], base+link[1])
	}
	p.symlink("/proc/self/mounts", base+"/etc/mtab")
	for _, folder := range s.settingFolders {
		p.mkdir(base + folder)
		p.bind(folder, base+folder)
	}
	for _, file := range s.settings {
		p.place(base + file)
		p.bind(file, base+file)
	}
	for _, file := range s.files(r.Network) {
		p.write(base+file[0], file[1], unix.O_CREAT)
	}
	if r.Network {
		for _, file := range nameFiles {
			p.place(base + "/" + file)
		}
		p.bindNames()
	}
}

// bindNames shows the files by which this machine finds other machines.
func (p *program) bindNames() {
	for _, file := range nameFiles {
		p.bind("/"+file, base+"/"+file).how = ignores
	}
}

// makeDevices makes /dev.
func makeDevices(p *program, s *system, more []Device) {
	dev := base + "/dev"
	p.mount("dev", dev, "tmpfs", plain|unix.MS_NOEXEC, "mode=0755,size=64k")
	for _, device := range s.devices {
		p.place(base + device)
		p.bind(device, base+device)
	}
	for _, d := range more {
		if folder := path.Dir(d.Target); folder != "/dev" {
			p.mkdir(base + folder)
		}
		p.place(base + d.Target)
		p.bind(d.Source, base+d.Target)
	}
	for _, link := range deviceLinks {
		p.symlink(link[0], dev+"/"+link[1])
	}
	p.mkdir(dev + "/pts")
	p.mkdir(dev + "/shm")
	p.restrict(dev, unix.MOUNT_ATTR_RDONLY|unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NOEXEC)
}

// raiseLoopback lets commands reach themselves as localhost.
func raiseLoopback(p *program) {
	request := make([]byte, 40) // struct ifreq: a name, and flags
	copy(request, "lo")
	binary.NativeEndian.PutUint16(request[unix.IFNAMSIZ:], unix.IFF_UP|unix.IFF_RUNNING)
	p.add(unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0).how = saves
	p.add(unix.SYS_IOCTL, 0, unix.SIOCSIFFLAGS, p.bytes(request)).how = uses
	p.add(unix.SYS_CLOSE, 0).how = uses
}

// lastCapability is greater than any capability of a kernel; dropping a capability that does not exist fails.
const lastCapability = 63

// enter adds the calls of process 2 before it becomes the command.
func (r *Room) enter(p *program, spec *Spec) {
	p.step = StepRights
	if !spec.Foreground {
		p.add(unix.SYS_SETPGID, 0, 0)
	}
	if spec.Group != 0 {
		p.add(unix.SYS_UNSHARE, unix.CLONE_NEWCGROUP)
	}
	p.add(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, store(p.memory, uint64(0)), 0, 8)
	p.add(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
	if r.Network && canScope() {
		scopeAbstractSockets(p)
	}
	header := store(p.memory, unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3})
	p.add(unix.SYS_CAPSET, header, store(p.memory, [2]unix.CapUserData{}))
	p.step = StepEnter
	p.add(unix.SYS_CHDIR, p.text(spec.Dir))
	p.step = StepRights
	filter := storeList(p.memory, systemCallFilter())
	prog := store(p.memory, [2]uintptr{filter.n, p.address(filter.at)}) // struct sock_fprog
	p.add(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, prog)
}

// noRoot: user 0 gets no capabilities because of its number, now and later.
const noRoot = 1<<0 | 1<<1 | 1<<2 | 1<<3 | 1<<5 | 1<<6 | 1<<7 // NOROOT, NO_SETUID_FIXUP, KEEP_CAPS locked, NO_CAP_AMBIENT_RAISE

// scopeAbstractSockets keeps the abstract sockets of this machine out of reach.
func scopeAbstractSockets(p *program) {
	const abstractSockets, signals = 1 << 0, 1 << 1
	attr := store(p.memory, [3]uint64{0, 0, abstractSockets | signals}) // handled_access_fs, handled_access_net, scoped
	p.add(unix.SYS_LANDLOCK_CREATE_RULESET, attr, 24, 0).how = saves
	p.add(unix.SYS_LANDLOCK_RESTRICT_SELF, 0, 0).how = uses
	p.add(unix.SYS_CLOSE, 0).how = uses
}

// canScope reports whether Landlock has scopes: Linux 6.12.
var canScope = sync.OnceValue(func() bool {
	const scopes = 6 // the first version of Landlock with scopes
	version, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	return errno == 0 && version >= scopes
})

// HidesAbstractSockets reports whether a room with Network keeps the abstract sockets of this machine out of reach.
func HidesAbstractSockets() bool { return canScope() }

// valid refuses rooms with paths that make no sense.
func (r *Room) valid() bool {
	inside := append([]string{r.Folder}, r.Lower...)
	if len(r.Lower) > 0 {
		inside = append(inside, r.Scratch)
	}
	for _, p := range inside {
		if !strings.HasPrefix(p, r.Base+"/") || path.Clean(p) != p || strings.ContainsRune(p, 0) {
			return false
		}
	}
	for _, d := range r.Devices {
		if !validDevice(d) {
			return false
		}
	}
	shown := r.Hidden
	if r.ReadOnly != "" {
		shown = append(slices.Clone(shown), r.ReadOnly)
	}
	for _, folder := range shown {
		if !path.IsAbs(folder) || path.Clean(folder) != folder || folder == "/" || strings.ContainsRune(folder, 0) {
			return false
		}
	}
	if r.ReadOnly != "" && r.Root != "" {
		return false
	}
	return path.IsAbs(r.Base) && path.Clean(r.Base) == r.Base && len(r.Lower) <= MaxLower
}

//go:build amd64 || arm64

package room_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"e3/internal/host/room"

	"golang.org/x/sys/unix"
)

// secret is what no attempt may print.
const secret = "E3-SECRET-OF-THE-HOST"

// TestEscapes tries to get out of a room, or to see what is outside: as this user, and if that is root, as an ordinary
// one too.
func TestEscapes(t *testing.T) {
	t.Run("this user", func(t *testing.T) { testEscapes(t, newPlace(t), escapeScripts) })
	if os.Getuid() == 0 {
		t.Run("ordinary user", func(t *testing.T) {
			asOrdinaryUser(t, "TestEscapes", "TestCommand", "TestLower", "TestUnmark", "TestNetwork")
		})
	}
}

// asOrdinaryUser runs tests of this package once more, as a user without rights. The first one must not be skipped.
func asOrdinaryUser(t *testing.T, tests ...string) {
	t.Helper()
	const uid = 54321
	base, err := os.MkdirTemp("", "e3-room")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(base)
	// The test's own binary lies in a folder that only root enters.
	binary := filepath.Join(base, "room.test")
	copyFile(t, "/proc/self/exe", binary)
	for _, path := range []string{base, binary} {
		if err := os.Chown(path, uid, uid); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(binary, "-test.run=^("+strings.Join(tests, "|")+")$", "-test.v")
	cmd.Dir = base
	cmd.Env = append(os.Environ(), "TMPDIR="+base, "HOME="+base)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+tests[0]+"/this_user") {
		t.Errorf("%v\n%s", err, out)
	}
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	in, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(out, in); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
}

// Scripts that must not print the secret. $outside is a file of the host with it, $neighbour one in the folder of
// another command. Each prints the secret too if it could do what no command may.
var escapeScripts = map[string]string{
	"a file":                 `cat $outside`,
	"a neighbour's file":     `cat $neighbour`,
	"dots":                   `cat ../../../../../../../../$outside ../../../w2/room/work/secret ../../w2/room/work/secret`,
	"a link":                 `ln -s $outside out; cat out; ln -s / root; cat root$outside; ln -s ../../.. up; cat up/w2/room/work/secret`,
	"process 1's root":       `cat /proc/1/root$outside /proc/1/cwd$outside /proc/self/root$outside /proc/2/root$outside`,
	"process 1's memory":     `cat /proc/1/mem /proc/1/maps /proc/1/environ && echo $got`,
	"process 1's files":      `readlink /proc/1/fd/* | grep . && echo $got; ls /proc/1/map_files | grep . && echo $got`,
	"descriptors":            `ls /proc/self/fd/3/ && ls /proc/self/fd | grep -v '[0123]' && echo $got; cat /proc/self/fd/*/secret`,
	"processes":              `[ $(ls /proc | grep -c '^[0-9]') -gt 6 ] && echo $got`,
	"environments":           `cat /proc/*/environ | tr '\0' '\n' | grep '^E3_ROOM_TEST_HOST' && echo $got`,
	"the password file":      `cat /etc/shadow /etc/gshadow /etc/sudoers && echo $got`,
	"homes":                  `ls /root /home && echo $got`,
	"the system's programs":  `touch /usr/bin/e3-test /bin/e3-test && echo $got`,
	"a system program":       `echo >> /usr/bin/env && echo $got`,
	"the root":               `touch /e3-test && echo $got`,
	"settings":               `echo x > /etc/hosts && echo $got; echo x > /etc/passwd && echo $got; rm /etc/hosts && echo $got`,
	"a device":               `mknod work-device b 254 0 && cat work-device && echo $got`,
	"a character device":     `mknod mem c 1 1 && head -c 1 mem && echo $got`,
	"devices":                `ls /dev/vda /dev/sda /dev/mem /dev/kmsg /dev/kvm /dev/fuse /dev/net && echo $got; touch /dev/x && echo $got`,
	"kernel settings":        `for f in /proc/sys/kernel/core_pattern /proc/sys/vm/overcommit_memory /proc/sysrq-trigger /proc/sys/kernel/hostname; do (echo x > $f) && echo $got; done`,
	"the kernel's log":       `head -c 1 /proc/kmsg | grep . && echo $got; dmesg | grep . && echo $got`,
	"the kernel's memory":    `head -c 1 /proc/kcore | grep . && echo $got; head -c 8 /proc/kpageflags | grep . && echo $got`,
	"keys":                   `grep . /proc/keys && echo $got; grep . /proc/key-users && echo $got`,
	"devices of the system":  `echo 0 > /sys/devices/system/cpu/cpu1/online && echo $got`,
	"the rest of /sys":       `ls /sys/fs /sys/kernel /sys/block && echo $got`,
	"mount":                  `mount -t tmpfs none /tmp && echo $got; mount --bind / /tmp && echo $got`,
	"umount":                 `umount /e3 && echo $got; umount -l /proc && echo $got; umount /tmp && echo $got; cat /e3/w2/room/work/secret`,
	"remount":                `mount -o remount,rw / && echo $got; mount -o remount,bind,rw /usr && echo $got`,
	"another namespace":      `unshare -Ur true && echo $got; unshare -m true && echo $got; unshare -n true && echo $got; unshare -p -f true && echo $got`,
	"enter namespaces":       `nsenter -t 1 -m true && echo $got; nsenter -t 1 -n true && echo $got; nsenter -t 2 -U true && echo $got`,
	"chroot":                 `chroot / true && echo $got`,
	"another user":           `setpriv --reuid 1 --clear-groups true && echo $got; chown 1 . && echo $got`,
	"capabilities":           `grep -E 'Cap(Inh|Prm|Eff|Bnd|Amb)' /proc/self/status | grep -v 0000000000000000 && echo $got`,
	"a set-uid program":      `cp /usr/bin/id id; chmod 4755 id; ./id -u | grep -vx $(id -u) && echo $got; su nobody -s /bin/sh -c 'id -u' | grep -vx $(id -u) && echo $got`,
	"killing process 1":      `kill -9 1; sleep 0.01; [ -d /proc/1 ] || echo $got`,
	"killing others":         `kill -9 $host && echo $got; kill -0 $host && echo $got`,
	"the host's name":        `hostname e3-test && echo $got; hostname | grep -vx e3 && echo $got`,
	"the host's network":     `ls /sys/class/net && echo $got; grep -v -e lo: -e '|' /proc/net/dev && echo $got`,
	"memory of others":       `ipcs -m | grep 0x && echo $got; ls /dev/shm | grep . && echo $got`,
	"cgroups":                `ls /sys/fs/cgroup && echo $got; grep -v ':/$' /proc/self/cgroup && echo $got`,
	"messages to a terminal": `echo x > /dev/tty && echo $got`,
}

// attempts are programs that print the secret if a system call does what it must not. They run by their names.
var attempts = map[string]func(){
	"attempt-keys": func() {
		key, err := unix.AddKey("user", "e3-test", []byte("x"), unix.KEY_SPEC_USER_KEYRING)
		denied("add_key", uintptr(key), err)
		_, err = unix.KeyctlGetKeyringID(unix.KEY_SPEC_USER_KEYRING, true)
		denied("keyctl", 0, err)
		_, err = unix.RequestKey("user", "e3-test", "", 0)
		denied("request_key", 0, err)
	},
	"attempt-ptrace": func() {
		denied("ptrace", 0, unix.PtraceAttach(1))
		denied("ptrace", 0, unix.PtraceSeize(1))
		var b [8]byte
		local := []unix.Iovec{{Base: &b[0], Len: 8}}
		n, err := unix.ProcessVMReadv(1, local, []unix.RemoteIovec{{Base: 0x400000, Len: 8}}, 0)
		denied("process_vm_readv", uintptr(n), err)
		fd, err := unix.PidfdOpen(1, 0)
		if err == nil {
			for n := range 8 {
				_, err := unix.PidfdGetfd(fd, n, 0)
				denied("pidfd_getfd", 0, err)
			}
		}
	},
	"attempt-namespaces": func() {
		for _, name := range []string{"mnt", "net", "user", "pid", "uts", "ipc", "cgroup"} {
			for _, process := range []string{"1", "self"} {
				fd, err := unix.Open("/proc/"+process+"/ns/"+name, unix.O_RDONLY, 0)
				if err == nil {
					denied("setns "+name, 0, unix.Setns(fd, 0))
				}
			}
		}
		for _, flag := range []int{unix.CLONE_NEWUSER, unix.CLONE_NEWNS, unix.CLONE_NEWNET, unix.CLONE_NEWPID, unix.CLONE_NEWIPC,
			unix.CLONE_NEWUTS, unix.CLONE_NEWCGROUP, unix.CLONE_NEWTIME} {
			denied("unshare", 0, unix.Unshare(flag))
			pid, _, errno := unix.RawSyscall6(unix.SYS_CLONE, uintptr(flag)|uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
			if pid == 0 && errno == 0 {
				unix.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
			}
			denied("clone", pid, errno)
		}
		args := [11]uint64{unix.CLONE_NEWUSER, 0, 0, 0, uint64(unix.SIGCHLD)}
		pid, _, errno := unix.RawSyscall(unix.SYS_CLONE3, uintptr(unsafe.Pointer(&args)), 88, 0)
		if pid == 0 && errno == 0 {
			unix.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
		}
		denied("clone3", pid, errno)
	},
	"attempt-mounts": func() {
		denied("mount", 0, unix.Mount("/", "/tmp", "", unix.MS_BIND, ""))
		denied("mount", 0, unix.Mount("", "/usr", "", unix.MS_BIND|unix.MS_REMOUNT, ""))
		denied("umount", 0, unix.Unmount("/e3", unix.MNT_DETACH))
		denied("umount", 0, unix.Unmount("/proc", unix.MNT_DETACH))
		denied("pivot_root", 0, unix.PivotRoot("/e3", "/e3/work"))
		denied("chroot", 0, unix.Chroot("/e3"))
		_, err := unix.OpenTree(unix.AT_FDCWD, "/e3", unix.OPEN_TREE_CLONE)
		denied("open_tree", 0, err)
		_, err = unix.Fsopen("tmpfs", 0)
		denied("fsopen", 0, err)
		denied("move_mount", 0, unix.MoveMount(unix.AT_FDCWD, "/e3", unix.AT_FDCWD, "/tmp", 0))
		denied("mount_setattr", 0, unix.MountSetattr(unix.AT_FDCWD, "/usr", 0, &unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_RDONLY}))
		handle, _, err := unix.NameToHandleAt(unix.AT_FDCWD, "/e3", 0)
		denied("name_to_handle_at", 0, err)
		if err != nil {
			handle = unix.NewFileHandle(1, make([]byte, 8))
		}
		fd, err := unix.Open("/usr", unix.O_RDONLY, 0)
		if err == nil {
			_, err = unix.OpenByHandleAt(fd, handle, unix.O_RDONLY)
			denied("open_by_handle_at", 0, err)
		}
	},
	"attempt-kernel": func() {
		for name, call := range map[string]uintptr{
			"bpf": unix.SYS_BPF, "perf_event_open": unix.SYS_PERF_EVENT_OPEN, "userfaultfd": unix.SYS_USERFAULTFD,
			"io_uring_setup": unix.SYS_IO_URING_SETUP, "kexec_load": unix.SYS_KEXEC_LOAD, "syslog": unix.SYS_SYSLOG,
			"init_module": unix.SYS_INIT_MODULE, "swapon": unix.SYS_SWAPON, "acct": unix.SYS_ACCT,
			"fanotify_init": unix.SYS_FANOTIFY_INIT, "quotactl": unix.SYS_QUOTACTL,
		} {
			// Arguments that are wrong only after the rights have been looked at.
			r, _, errno := unix.Syscall6(call, 3, 0, 0, 0, 0, 0)
			if errno != unix.EPERM && errno != unix.ENOSYS {
				denied(name, r, nil)
			}
		}
		denied("reboot", 0, unix.Reboot(unix.LINUX_REBOOT_CMD_CAD_OFF))
		denied("settimeofday", 0, unix.Settimeofday(&unix.Timeval{Sec: 1}))
	},
	"attempt-sockets": func() {
		for name, family := range map[string]int{"vsock": unix.AF_VSOCK, "packet": unix.AF_PACKET, "alg": unix.AF_ALG, "bluetooth": unix.AF_BLUETOOTH} {
			_, err := unix.Socket(family, unix.SOCK_STREAM, 0)
			denied(name, 0, err)
			_, err = unix.Socket(family, unix.SOCK_RAW, 0)
			denied(name, 0, err)
		}
		_, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP)
		denied("raw", 0, err)
	},
	"attempt-terminal": func() {
		master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
		if err != nil {
			fmt.Println("no terminal:", err)
			return
		}
		x := byte('x')
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, master.Fd(), unix.TIOCSTI, uintptr(unsafe.Pointer(&x)))
		if errno == unix.EPERM {
			err = errno
		}
		denied("TIOCSTI", 0, err)
	},
	"attempt-abstract": func() { dial("unix", "@"+os.Args[1]) },
	"attempt-tcp":      func() { dial("tcp", os.Args[1]) },
	"attempt-self": func() {
		listener, err := net.Listen("tcp", "localhost:0")
		if err != nil {
			fmt.Println(err)
			return
		}
		defer listener.Close()
		dial("tcp", listener.Addr().String())
	},
}

// dial prints the secret if it can connect.
func dial(network, address string) {
	_, err := net.Dial(network, address)
	denied("dial", 0, err)
}

// denied prints the secret if a system call has worked.
func denied(name string, _ uintptr, err error) {
	if errno, ok := err.(syscall.Errno); err == nil || ok && errno == 0 {
		fmt.Println(secret, name)
	} else {
		fmt.Println(name, err)
	}
}

// testEscapes plays scripts and attempts in a room.
func testEscapes(t *testing.T, p *place, scripts map[string]string) {
	t.Helper()
	neighbour := filepath.Join(p.Base, "w2", "room", "work", "secret")
	if err := os.MkdirAll(filepath.Dir(neighbour), 0o755); err != nil {
		t.Fatal(err)
	}
	outside := filepath.Join(t.TempDir(), "secret")
	for _, path := range []string{neighbour, outside} {
		if err := os.WriteFile(path, []byte(secret), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("E3_ROOM_TEST_HOST", "1")
	host := exec.Command("sleep", "600")
	host.Env = append(os.Environ(), "E3_ROOM_TEST_HOST=1")
	if err := host.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = host.Process.Kill()
		_ = host.Wait()
	}()
	for name, script := range scripts {
		head := fmt.Sprintf("outside=%s neighbour=%s host=%d got=%s\n", outside, neighbour, host.Process.Pid, secret)
		text, _, err := p.run("bash", "-c", head+script)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if strings.Contains(text, secret) {
			t.Errorf("%s: %s printed\n%s", name, script, text)
		}
		fresh(t, p)
	}
	for name := range attempts {
		if name == "attempt-abstract" || name == "attempt-tcp" || name == "attempt-self" {
			continue // TestNetwork
		}
		copyFile(t, "/proc/self/exe", filepath.Join(p.Folder, "work", name))
		text, _, err := p.run("./" + name)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if strings.Contains(text, secret) || text == "" {
			t.Errorf("%s printed\n%s", name, text)
		}
		fresh(t, p)
	}
}

// fresh empties the folders of a place.
func fresh(t *testing.T, p *place) {
	t.Helper()
	for _, name := range []string{"work", "home", "tmp"} {
		path := filepath.Join(p.Folder, name)
		if err := os.RemoveAll(path); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(path, 0o700); err != nil {
			t.Fatal(err)
		}
	}
}

// TestNetwork: without Network a room has only itself. With Network it reaches this machine, but for abstract sockets
// where the kernel can hide those.
func TestNetwork(t *testing.T) {
	name := fmt.Sprintf("e3-room-test-%d", os.Getpid())
	abstract, err := net.Listen("unix", "@"+name)
	if err != nil {
		t.Fatal(err)
	}
	defer abstract.Close()
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	for _, network := range []bool{false, true} {
		p := newPlace(t)
		p.Network = network
		for _, c := range []struct {
			program, argument string
			reaches           bool
		}{
			{"attempt-abstract", name, network && !room.HidesAbstractSockets()},
			{"attempt-tcp", tcp.Addr().String(), network},
			{"attempt-self", "", true},
		} {
			copyFile(t, "/proc/self/exe", filepath.Join(p.Folder, "work", c.program))
			text, _, err := p.run("./"+c.program, c.argument)
			if err != nil || strings.Contains(text, secret) != c.reaches || text == "" {
				t.Errorf("network %v: %s %s reaches it: %v, want %v (%v)\n%s", network, c.program, c.argument, !c.reaches, c.reaches, err, text)
			}
		}
	}
}

// TestNothingOutlives starts processes that leave their group, session and parent, and hold on to the terminal of others.
func TestNothingOutlives(t *testing.T) {
	p := newPlace(t)
	marker := fmt.Sprintf("E3_ROOM_TEST=%d", os.Getpid())
	for _, script := range []string{
		"sleep 600 &",
		"setsid sleep 600 &",
		"(setsid setsid sh -c 'trap : TERM INT HUP; (sleep 600 &) ; sleep 600' &) ; kill -9 $$",
		"for i in 1 2 3 4 5; do (setsid sh -c 'while :; do sleep 600 & wait; done' &); done; exit 1",
		"nohup setsid sleep 600 >/dev/null 2>&1 & exec sleep 0.01",
	} {
		p.sh("export " + marker + "; " + script)
		if pid := carries(t, marker); pid != "" {
			t.Errorf("%s left process %s", script, pid)
		}
	}
}

// carries returns a process with an entry in its environment.
func carries(t *testing.T, entry string) string {
	t.Helper()
	paths, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		if text, err := os.ReadFile(path); err == nil && bytes.Contains(text, []byte(entry)) {
			return path
		}
	}
	return ""
}

// TestNothingStays: a command finds nothing of earlier commands of its slot outside of the files of its folder.
func TestNothingStays(t *testing.T) {
	p := newPlace(t)
	p.sh("ipcmk -M 100; ipcmk -Q; ipcmk -S 1; echo x >/dev/shm/x; ulimit -n 50; umask 0")
	if got := p.sh("ipcs | grep 0x; ls -A /dev/shm; umask"); got != "0022" {
		t.Errorf("a later command finds %q", got)
	}
}

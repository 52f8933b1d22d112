//go:build amd64 || arm64

package room

import (
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
)

// The folders of programs and libraries. Where a folder is a link, the room has the same link.
var systemFolders = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"}

// These files of /etc and /var tell programs where their parts are. None is secret or names the users of the machine:
// of /etc/ssl and /etc/pki only the certificates are listed.
var systemSettings = []string{
	"/etc/ImageMagick-*", "/etc/OpenCL", "/etc/R", "/etc/alternatives", "/etc/crypto-policies", "/etc/debian_version", "/etc/fonts",
	"/etc/ghostscript", "/etc/groff", "/etc/java*", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/locale.alias",
	"/etc/localtime", "/etc/lsb-release", "/etc/magic", "/etc/magic.mime", "/etc/maven", "/etc/mime.types", "/etc/netconfig",
	"/etc/openmpi*", "/etc/os-release", "/etc/papersize", "/etc/perl", "/etc/pki/ca-trust/extracted", "/etc/pki/tls/certs",
	"/etc/protocols", "/etc/python*", "/etc/redhat-release", "/etc/rpc", "/etc/services", "/etc/sgml", "/etc/ssl/certs",
	"/etc/ssl/openssl.cnf", "/etc/system-release", "/etc/terminfo", "/etc/texmf", "/etc/timezone", "/etc/vim", "/etc/vulkan",
	"/etc/xml",
	"/sys/devices/system", "/var/cache/fontconfig", "/var/lib/texmf",
}

// Devices that a command may open. They store no data.
var devices = []string{"full", "null", "random", "tty", "urandom", "zero"}

// Links in /dev.
var deviceLinks = [][2]string{
	{"/proc/self/fd", "fd"}, {"/proc/self/fd/0", "stdin"}, {"/proc/self/fd/1", "stdout"}, {"/proc/self/fd/2", "stderr"},
	{"pts/ptmx", "ptmx"},
}

// Files and folders of /proc that show or change the state of the machine. Only in a room started by root may the
// command's user open the files of the last two lists, as the kernel takes this user for their owner.
var (
	procHidden     = []string{"/proc/key-users", "/proc/keys"}
	procHiddenRoot = []string{
		"/proc/kcore", "/proc/kmsg", "/proc/kpagecgroup", "/proc/kpagecount", "/proc/kpageflags", "/proc/latency_stats",
		"/proc/pagetypeinfo", "/proc/sched_debug", "/proc/slabinfo", "/proc/sysrq-trigger", "/proc/timer_list",
		"/proc/vmallocinfo",
	}
	procReadOnlyRoot = []string{"/proc/acpi", "/proc/bus", "/proc/driver", "/proc/fs", "/proc/irq", "/proc/scsi", "/proc/sys"}
)

// A system holds the entries of the lists above that this machine has. It is read once.
type system struct {
	links   [][2]string // target, path
	folders []string
	etc     []string // folders to make, parents first
	settings,
	settingFolders []string
	devices, procReadOnly, procHidden []string
	user, group                       string // names
}

var thisSystem = sync.OnceValue(func() *system {
	s := &system{user: "user", group: "user"}
	for _, path := range systemFolders {
		info, err := os.Lstat(path)
		if err != nil {
			continue
		}
		if info.IsDir() {
			s.folders = append(s.folders, path)
		} else if target, err := os.Readlink(path); err == nil {
			s.links = append(s.links, [2]string{target, path})
		}
	}
	made := map[string]bool{"/etc": true}
	for _, pattern := range systemSettings {
		paths, _ := filepath.Glob(pattern)
		for _, path := range paths {
			s.addSetting(path, made)
		}
	}
	s.devices = existing("/dev/", devices)
	s.procHidden = existing("", procHidden)
	if os.Geteuid() == 0 {
		s.procHidden = append(s.procHidden, existing("", procHiddenRoot)...)
		s.procReadOnly = existing("", procReadOnlyRoot)
	}
	if u, err := user.LookupId(strconv.Itoa(os.Geteuid())); err == nil && !strings.ContainsAny(u.Username, ":\n") {
		s.user = u.Username
	}
	if g, err := user.LookupGroupId(strconv.Itoa(os.Getegid())); err == nil && !strings.ContainsAny(g.Name, ":\n") {
		s.group = g.Name
	}
	return s
})

func (s *system) addSetting(path string, made map[string]bool) {
	info, err := os.Stat(path)
	if err != nil {
		return
	}
	var missing []string
	for folder := filepath.Dir(path); folder != "/" && !made[folder]; folder = filepath.Dir(folder) {
		made[folder] = true
		missing = append([]string{folder}, missing...)
	}
	s.etc = append(s.etc, missing...)
	link, err := os.Readlink(path)
	switch {
	case err == nil && (strings.HasPrefix(link, "../usr/") || strings.HasPrefix(link, "/usr/")):
		s.links = append(s.links, [2]string{link, path})
	case info.IsDir():
		s.settingFolders = append(s.settingFolders, path)
	default:
		s.settings = append(s.settings, path)
	}
}

func existing(prefix string, names []string) []string {
	var list []string
	for _, name := range names {
		if _, err := os.Stat(prefix + name); err == nil {
			list = append(list, prefix+name)
		}
	}
	return list
}

// files are the small files of /etc that a room has in place of the machine's files.
func (s *system) files(network bool) [][2]string {
	uid, gid := os.Geteuid(), os.Getegid()
	passwd, group := "", ""
	if uid != 0 {
		passwd = "root:x:0:0:root:/:/usr/sbin/nologin\n"
	}
	if gid != 0 {
		group = "root:x:0:\n"
	}
	passwd += s.passwdLine() + "\n"
	group += s.groupLine() + "\n"
	files := [][2]string{
		{"/etc/passwd", passwd + "nobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n"},
		{"/etc/group", group + "nogroup:x:65534:\n"},
		{"/etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n"},
		{"/etc/hostname", hostname + "\n"},
	}
	if network {
		return files
	}
	return append(files, [2]string{"/etc/hosts", loopbackHosts})
}

// hostname is the name of every room.
const hostname = "e3"

// loopbackHosts is the /etc/hosts of a room without the machine's network.
const loopbackHosts = "127.0.0.1 localhost " + hostname + "\n::1 localhost " + hostname + "\n"

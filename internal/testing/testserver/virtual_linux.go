package testserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"
)

// A VirtualMachine is a Debian kernel in an emulator, with a root file system in its memory: for what needs another kernel,
// or another configuration of it, than this machine has. It is slow (some ten times), and sees nothing of this machine.
//
// Its programs are those of busybox, bash, and Files. Root runs Script by bash, in a machine with /proc, /sys, /dev and /tmp.
type VirtualMachine struct {
	Files  map[string]string // path in the machine → path here of an executable file, with the libraries that it is linked to
	Script string
	Memory int           // MiB; 0: 512
	Limit  time.Duration // 0: three minutes
}

// virtualEnd is what the machine prints last: the exit code of the script.
var virtualEnd = regexp.MustCompile(`(?m)^e3-virtual-machine ended with ([0-9]+)\r?$`)

// virtualInit is the first program of the machine. The file system that the kernel unpacks cannot be left by pivot_root, so
// that closed rooms need another.
const virtualInit = `#!/bin/busybox sh
export PATH=/bin
/bin/busybox --install -s /bin
mkdir -p /new /proc
mount -t proc proc /proc
if [ ! -e /moved ]; then
	mount -t tmpfs -o mode=0755,size=80% root /new
	for each in /*; do
		case $each in /new|/proc) ;; *) cp -a $each /new/;; esac
	done
	touch /new/moved
	mkdir -p /new/new /new/proc
	umount /proc
	exec switch_root /new /init
fi
mkdir -p /sys /dev /tmp /etc /home
chmod 1777 /tmp
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/pts /dev/shm
mount -t devpts pts /dev/pts
mount -t tmpfs shm /dev/shm
ip link set lo up
echo root:x:0:0:root:/tmp:/bin/sh > /etc/passwd
echo user:x:1000:1000:user:/home:/bin/sh >> /etc/passwd
echo root:x:0: > /etc/group
echo user:x:1000: >> /etc/group
export HOME=/tmp TMPDIR=/tmp
bash /script
echo "e3-virtual-machine ended with $?"
reboot -f
`

// Run runs the machine and returns what it prints, with the exit code of the script. It skips the test where what it needs is
// neither there nor can be installed.
func (m *VirtualMachine) Run(tb TB) (output string, code string) {
	tb.Helper()
	emulator, kernel, err := virtualParts()
	if err != nil {
		tb.Skipf("no virtual machine: %v (as root: apt-get install %s; E3_TEST_KERNEL names a kernel for them)", err, strings.Join(virtualPackages(), " "))
	}
	dir := tb.TempDir()
	image := filepath.Join(dir, "initrd")
	if err := m.writeImage(image); err != nil {
		tb.Fatalf("make the files of a virtual machine: %v", err)
	}
	limit, memory := m.Limit, m.Memory
	if limit == 0 {
		limit = 3 * time.Minute
	}
	if memory == 0 {
		memory = 512
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	console := "ttyS0"
	args := []string{"-accel", "tcg", "-m", fmt.Sprint(memory), "-nodefaults", "-no-reboot", "-display", "none", "-serial", "stdio"}
	if runtime.GOARCH == "arm64" {
		args, console = append(args, "-machine", "virt", "-cpu", "max"), "ttyAMA0"
	}
	args = append(args, "-kernel", kernel, "-initrd", image, "-append", "console="+console+" quiet panic=-1 no_timer_check") // a busy machine emulates a timer too slowly for the check
	cmd := exec.CommandContext(ctx, emulator, args...)
	cmd.WaitDelay = time.Second
	text, err := cmd.CombinedOutput()
	output = strings.ReplaceAll(string(text), "\r\n", "\n")
	end := virtualEnd.FindStringSubmatch(output)
	if end == nil {
		tb.Fatalf("the virtual machine did not reach its end: %v\n%s", errors.Join(err, ctx.Err()), output)
	}
	return output, end[1]
}

// virtualArch is what qemu and Debian's kernels call this processor.
func virtualArch() (qemu, system, kernel string) {
	if runtime.GOARCH == "arm64" {
		return "qemu-system-aarch64", "qemu-system-arm", "linux-image-cloud-arm64"
	}
	return "qemu-system-x86_64", "qemu-system-x86", "linux-image-cloud-amd64"
}

func virtualPackages() []string {
	_, system, _ := virtualArch()
	return []string{system, "busybox-static"}
}

// virtualParts returns the emulator and a kernel: E3_TEST_KERNEL, or that of Debian, which is unpacked but not installed.
func virtualParts() (emulator, kernel string, err error) {
	name, _, meta := virtualArch()
	find := func() (err error) {
		if emulator, err = exec.LookPath(name); err == nil {
			_, err = exec.LookPath("busybox")
		}
		return err
	}
	if find() != nil {
		if os.Geteuid() != 0 {
			return "", "", find()
		}
		if err := installPackages("qemu", virtualPackages(), find); err != nil {
			return "", "", err
		}
	}
	if kernel = os.Getenv("E3_TEST_KERNEL"); kernel != "" {
		return emulator, kernel, nil
	}
	cache, err := cacheFolder()
	if err != nil {
		return "", "", err
	}
	folder := filepath.Join(cache, "linux")
	found := func() error {
		kernels, _ := filepath.Glob(filepath.Join(folder, "boot", "vmlinu?-*"))
		if len(kernels) == 0 {
			return fmt.Errorf("%s/boot has no kernel", folder)
		}
		kernel = kernels[0]
		return nil
	}
	if found() == nil {
		return emulator, kernel, nil
	}
	return emulator, kernel, errors.Join(unpackKernel(folder, meta), found())
}

// unpackKernel fetches the package on which meta depends, and unpacks it into a folder, which appears whole.
func unpackKernel(folder, meta string) error {
	out, err := exec.Command("apt-cache", "depends", meta).Output()
	if err != nil {
		return fmt.Errorf("apt-cache depends %s: %w", meta, err)
	}
	i := slices.IndexFunc(strings.Fields(string(out)), func(word string) bool { return strings.HasPrefix(word, "linux-image-") && word != meta })
	if i < 0 {
		return fmt.Errorf("apt-cache knows no package %s", meta)
	}
	return unpackPackages(folder, strings.Fields(string(out))[i])
}

// writeImage writes the first file system, in the form that the kernel unpacks: an archive of cpio's "newc".
func (m *VirtualMachine) writeImage(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	files := map[string]string{"bin/busybox": "busybox", "bin/bash": "bash"}
	for name := range files {
		if files[name], err = exec.LookPath(files[name]); err != nil {
			return err
		}
	}
	for name, from := range m.Files {
		files[strings.TrimPrefix(name, "/")] = from
	}
	for _, from := range files {
		libraries, err := libraries(from)
		if err != nil {
			return err
		}
		for _, library := range libraries {
			files[strings.TrimPrefix(library, "/")] = library
		}
	}
	a := archive{w: f, made: map[string]bool{}}
	for name, from := range files {
		content, err := os.ReadFile(from)
		if err != nil {
			return err
		}
		a.add(name, content)
	}
	a.add("init", []byte(virtualInit))
	a.add("script", []byte(m.Script))
	a.end()
	return errors.Join(a.err, f.Close())
}

// libraries lists the libraries of a program, and its loader.
func libraries(program string) ([]string, error) {
	out, err := exec.Command("ldd", program).CombinedOutput()
	if err != nil && (bytes.Contains(out, []byte("not a dynamic executable")) || bytes.Contains(out, []byte("statically linked"))) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("ldd %s: %w: %s", program, err, out)
	}
	var list []string
	for line := range strings.Lines(string(out)) {
		for _, word := range strings.Fields(line) {
			if strings.HasPrefix(word, "/") {
				list = append(list, word)
			}
		}
	}
	return list, nil
}

// An archive is written file by file, with the folders above each.
type archive struct {
	w    io.Writer
	made map[string]bool
	n    int
	err  error
}

func (a *archive) add(name string, content []byte) {
	for i, c := range name {
		if folder := name[:i]; c == '/' && !a.made[folder] {
			a.made[folder] = true
			a.entry(folder, 0o40755, nil)
		}
	}
	a.entry(name, 0o100755, content)
}

func (a *archive) end() { a.entry("TRAILER!!!", 0, nil) }

func (a *archive) entry(name string, mode int, content []byte) {
	a.n++
	header := fmt.Sprintf("070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%s\x00", a.n, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name)+1, 0, name)
	for _, part := range [][]byte{[]byte(header), content} {
		if _, err := a.w.Write(append(slices.Clip(part), make([]byte, -len(part)&3)...)); err != nil {
			a.err = err
		}
	}
}

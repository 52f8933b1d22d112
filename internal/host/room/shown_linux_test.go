//go:build amd64 || arm64

package room_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"e3/internal/host/room"

	"golang.org/x/sys/unix"
)

// TestHidden: a project where the system's programs are is not seen in a room. The folder of a distribution stands for it.
func TestHidden(t *testing.T) {
	const project = "/usr/share/doc"
	if entries, err := os.ReadDir(project); err != nil || len(entries) == 0 {
		t.Skip("there is no " + project + ": make it")
	}
	hidden, err := room.Hidden(project, filepath.Join(project, "base-files"), t.TempDir(), filepath.Join(t.TempDir(), "none"))
	if err != nil || len(hidden) != 1 || hidden[0] != project {
		t.Fatalf("hidden are %q, %v", hidden, err)
	}
	p := newPlace(t)
	if got := p.sh("ls -A " + project + " | head -1"); got == "" {
		t.Fatal("a room without hidden folders does not show the folder")
	}
	p.Hidden = hidden
	for script, want := range map[string]string{
		"ls -A " + project:                    "",
		"touch " + project + "/x 2>/dev/null": "(status 0x100)",
		"ls -d /usr/share":                    "/usr/share",
	} {
		if got := p.sh(script); got != want {
			t.Errorf("%s: printed %q, want %q", script, got, want)
		}
	}
	for _, folder := range []string{"/usr", "/usr/bin", "/usr/local"} {
		if _, err := room.Hidden(folder); !errors.Is(err, room.ErrExposed) {
			t.Errorf("%s: %v", folder, err)
		}
	}
}

// TestDevices: a fake device node is a device of the room, and only where it was asked for.
func TestDevices(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root makes device nodes: run it as root")
	}
	dev, err := os.MkdirTemp("/dev/shm", "e3-devices-") // the files below /tmp are out of sight when a room gets its devices
	if err != nil {
		t.Skipf("there is no shared memory for a folder of devices, mount /dev/shm: %v", err)
	}
	defer os.RemoveAll(dev)
	if _, err := room.Devices(dev, []string{"nvidia"}); err == nil || !strings.Contains(err.Error(), "this machine has none") {
		t.Errorf("without a device: %v", err)
	}
	if err := os.Mkdir(filepath.Join(dev, "nvidia-caps"), 0o755); err != nil {
		t.Fatal(err)
	}
	zero := int(unix.Mkdev(1, 5))
	for _, name := range []string{"nvidia0", "nvidiactl", "nvidia-caps/nvidia-cap1", "sda"} {
		if err := unix.Mknod(filepath.Join(dev, name), unix.S_IFCHR|0o666, zero); err != nil {
			t.Skipf("this file system takes no device nodes, use another for TMPDIR: %v", err)
		}
	}
	if f, err := os.Open(filepath.Join(dev, "nvidia0")); err != nil {
		t.Skipf("this file system opens no devices, use another for TMPDIR: %v", err)
	} else {
		f.Close()
	}
	p := newPlace(t)
	if p.Devices, err = room.Devices(dev, []string{"nvidia"}); err != nil {
		t.Fatal(err)
	}
	for script, want := range map[string]string{
		"head -c 2 /dev/nvidia0 | od -An -tx1": " 00 00",
		"echo x > /dev/nvidiactl && echo on":   "on",
		"ls /dev | grep -e nvidia -e sda":      "nvidia-caps\nnvidia0\nnvidiactl",
		"ls /dev/nvidia-caps":                  "nvidia-cap1",
		"rm /dev/nvidia0 2>/dev/null":          "(status 0x100)",
	} {
		if got := p.sh(script); got != want {
			t.Errorf("%s: printed %q, want %q", script, got, want)
		}
	}
	p.Devices = nil
	if got := p.sh("ls /dev | grep -c nvidia"); got != "0(status 0x100)" && got != "0\n(status 0x100)" {
		t.Errorf("without devices: %q", got)
	}
	for _, d := range []room.Device{{Source: "/dev/null", Target: "/etc/x"}, {Source: "/dev/null", Target: "/dev/pts/1"}, {Source: "dev/null", Target: "/dev/x"}} {
		p.Devices = []room.Device{d}
		if _, _, err := p.run("true"); err == nil {
			t.Errorf("%v is accepted", d)
		}
	}
}

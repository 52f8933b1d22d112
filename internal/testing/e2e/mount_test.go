//go:build linux

package e2e

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A volume is a file system of its own, on a loop device or in memory.
type volume struct {
	t     testing.TB
	kind  string // as mkfs knows it, or tmpfs
	image string // "" for tmpfs
	dir   string // where it is mounted
}

// newVolume makes and mounts a file system of so many MiB, with these options of its mkfs; it skips the test where
// that cannot be done.
func newVolume(t testing.TB, kind string, mib string, options ...string) *volume {
	t.Helper()
	needRoot(t)
	base, err := os.MkdirTemp("", "e3-volume-*")
	if err == nil {
		err = os.Chmod(base, 0o755)
	}
	v := &volume{t: t, kind: kind, dir: filepath.Join(base, "mnt")}
	if err == nil {
		err = os.Mkdir(v.dir, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(base) })
	if kind == "tmpfs" {
		v.run("mount", "-t", "tmpfs", "-o", "size="+mib+"m", "e3-e2e", v.dir)
	} else {
		mkfs := "mkfs." + kind
		if _, err := exec.LookPath(mkfs); err != nil {
			t.Skipf("install %s: %v", map[string]string{"ext3": "e2fsprogs", "ext4": "e2fsprogs", "vfat": "dosfstools", "xfs": "xfsprogs"}[kind], err)
		}
		v.image = filepath.Join(base, "image")
		v.run("truncate", "-s", mib+"M", v.image)
		if kind != "vfat" { // whose mkfs says little, and has no such flag
			options = append([]string{"-q"}, options...)
		}
		v.run(mkfs, append(options, v.image)...)
		if out, err := exec.Command("mount", "-o", "loop", v.image, v.dir).CombinedOutput(); err != nil {
			t.Skipf("a loop device with %s is needed: mount: %v: %s", kind, err, out)
		}
	}
	t.Cleanup(v.unmount)
	return v
}

func (v *volume) run(name string, args ...string) {
	v.t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		v.t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
}

// unmount waits for processes that still use the volume.
func (v *volume) unmount() {
	v.t.Helper()
	eventually(v.t, patience, "unmount "+v.dir, func() string {
		err := syscall.Unmount(v.dir, 0)
		if err == nil || errors.Is(err, syscall.EINVAL) { // EINVAL: it is not mounted
			return ""
		}
		return err.Error()
	})
}

// freeze has all writes wait until thaw, or the end of the test.
func (v *volume) freeze() {
	v.t.Helper()
	if _, err := exec.LookPath("fsfreeze"); err != nil {
		v.t.Skipf("install util-linux: %v", err)
	}
	v.t.Cleanup(func() { exec.Command("fsfreeze", "--unfreeze", v.dir).Run() })
	v.run("fsfreeze", "--freeze", v.dir)
}

func (v *volume) thaw() {
	v.t.Helper()
	v.run("fsfreeze", "--unfreeze", v.dir)
}

// cutPower stops the volume as a loss of power does: what was not synced is gone. With
// journal, what the journal holds in memory is written first, as if its timer had run just
// before: names and sizes without the bytes.
func (v *volume) cutPower(journal bool) {
	v.t.Helper()
	command := "shutdown"
	if journal {
		command += " -f"
	}
	v.run("xfs_io", "-x", "-c", command, v.dir)
}

// restore mounts the volume again after power was cut; the kernel replays the journal.
func (v *volume) restore() {
	v.t.Helper()
	v.unmount()
	// Mount namespaces that others have made meanwhile keep the file system alive, as it was cut off: then its
	// successor is on another device.
	if out, err := exec.Command("losetup", "--associated", v.image).Output(); err != nil || len(out) > 0 {
		old := v.image
		v.image += "+"
		v.run("cp", "--sparse=always", old, v.image)
		v.run("rm", old)
	}
	options := "loop"
	if v.kind == "xfs" {
		options += ",nouuid"
	}
	v.run("mount", "-o", options, v.image, v.dir)
}

// remount changes how the volume is mounted: "ro" or "rw".
func (v *volume) remount(how string) {
	v.t.Helper()
	eventually(v.t, patience, "remount "+how, func() string {
		if out, err := exec.Command("mount", "-o", "remount,"+how, v.dir).CombinedOutput(); err != nil {
			return string(out)
		}
		return ""
	})
}

// project makes a project on the volume.
func (v *volume) project(name string, files map[string]string) *project {
	v.t.Helper()
	dir := filepath.Join(v.dir, name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		v.t.Fatal(err)
	}
	return projectIn(v.t, dir, files)
}

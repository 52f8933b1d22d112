//go:build amd64 || arm64

package room_test

import (
	"archive/tar"
	"bytes"
	"debug/elf"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"e3/internal/host/room"
	"e3/internal/host/rootfs"
	"e3/internal/testing/testimage"

	"golang.org/x/sys/unix"
)

// imageScripts are what TestEscapes does not try, because it needs an image that helps. $linked is a file of the host to
// which the image's links lead.
var imageScripts = map[string]string{
	"links of the image":      `cat /leak /etc/leak /usr/up$linked /deep/er/leak /etc/resolv.conf /etc/passwd; cat /root$linked`,
	"links to processes":      `cat /self/root$linked /one/root$linked /one/cwd$linked /fds/*/secret`,
	"folders that were links": `for f in /tmp /proc /dev /e3 /run /var/tmp; do [ -L $f ] && echo $got; done; cat /tmp/secret /run/secret /var/tmp/secret`,
	"a set-uid program":       `/bin/rise id -u | grep -vx $(id -u) && echo $got; [ -u /bin/rise ] && echo $got; [ -g /bin/rise ] && echo $got`,
	"a program with rights":   `/bin/capable grep CapEff /proc/self/status | grep -v 0000000000000000 && echo $got`,
	"devices of the image":    `for f in /nod/*; do head -c 1 $f | grep -q . && echo $got; : > $f && echo $got; done`,
	"files of the image":      `echo x >> /bin/busybox && echo $got; rm /etc/motd && echo $got; mkdir /x && echo $got; mv /bin /b && echo $got; echo x > /etc/motd && echo $got`,
	"modes of the image":      `chmod 4755 /bin/busybox && echo $got; chmod 777 /etc && echo $got; touch /etc/motd && echo $got; chown $(id -u) /etc/motd && echo $got`,
	"a name for a file":       `ln /bin/busybox /e3/work/busybox && echo $got; ln /etc/motd /tmp/motd && echo $got`,
	"a mapped file":           `dd if=/dev/zero of=/bin/busybox bs=1 count=1 conv=notrunc && echo $got`,
	"the machine's programs":  `ls /usr/bin/env /usr/lib/os-release /sbin/init && echo $got`,
}

// TestEscapesInAnImage makes all attempts of TestEscapes in a room with a hostile image, and some that need its help. In
// the end no file of the image has changed.
func TestEscapesInAnImage(t *testing.T) {
	t.Run("this user", testImage)
	t.Run("a tree that nobody has checked", testTree)
	if os.Getuid() == 0 {
		t.Run("ordinary user", func(t *testing.T) {
			if _, err := testimage.Busybox("the image's"); err != nil {
				t.Skip(err)
			}
			asOrdinaryUser(t, "TestEscapesInAnImage")
		})
	}
}

// hostile are the layers of an image with a shell, and with all that could lead out of it.
func hostile(t *testing.T, linked string) [][]byte {
	t.Helper()
	box, err := testimage.Busybox("the image's")
	if err != nil {
		t.Skip(err)
	}
	shell := layerFile(t, box.Layers[0], "bin/busybox")
	rise := testimage.File("bin/rise", shell, 0o6755)
	capable := testimage.File("bin/capable", shell, 0o755)
	// struct vfs_cap_data: version 2, effective; all capabilities permitted and inherited.
	capable.PAXRecords = map[string]string{"SCHILY.xattr.security.capability": "\x01\x00\x00\x02" + strings.Repeat("\xff", 16)}
	entries := []testimage.Entry{
		testimage.Link("leak", linked), testimage.Link("etc/leak", strings.Repeat("../", 20)+linked[1:]), testimage.Link("usr/up", "../../../.."),
		testimage.Link("deep/er/leak", "../../leak"), testimage.Link("root", "/"), testimage.Link("etc/resolv.conf", linked),
		testimage.Link("etc/passwd", linked), testimage.Link("etc/group", linked), testimage.Link("etc/hosts", linked),
		testimage.Link("self", "/proc/self"), testimage.Link("one", "/proc/1"), testimage.Link("fds", "/proc/self/fd"),
		testimage.Link("tmp", filepath.Dir(linked)), testimage.Link("proc", "/"), testimage.Link("dev", "/"), testimage.Link("e3", "/"),
		testimage.Link("sys", "/"), testimage.Link("run", filepath.Dir(linked)), testimage.Link("var/tmp", filepath.Dir(linked)),
		rise, capable,
	}
	for name, number := range map[string][2]int64{"mem": {1, 1}, "null": {1, 3}, "kmsg": {1, 11}, "tty": {5, 0}, "fuse": {10, 229}} {
		entries = append(entries, device("nod/"+name, tar.TypeChar, number))
	}
	entries = append(entries, device("nod/vda", tar.TypeBlock, [2]int64{254, 0}), device("nod/sda", tar.TypeBlock, [2]int64{8, 0}))
	// The attempts are this program, which may need libraries.
	for _, path := range libraries(t) {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		entries = append(entries, testimage.File(path[1:], string(content), 0o755))
	}
	return append(box.Layers, testimage.Layer(entries...))
}

func device(name string, kind byte, number [2]int64) testimage.Entry {
	return testimage.Entry{Header: tar.Header{Typeflag: kind, Name: name, Mode: 0o666, Devmajor: number[0], Devminor: number[1]}}
}

// layerFile returns the content of a file of a layer.
func layerFile(t *testing.T, layer []byte, name string) string {
	t.Helper()
	r := tar.NewReader(bytes.NewReader(layer))
	for {
		h, err := r.Next()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if h.Name == name {
			var b bytes.Buffer
			if _, err := b.ReadFrom(r); err != nil {
				t.Fatal(err)
			}
			return b.String()
		}
	}
}

// libraries are the files that this program is linked with, and its loader.
func libraries(t *testing.T) []string {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	f, err := elf.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if !slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
		return nil
	}
	out, err := exec.Command("ldd", program).Output()
	if err != nil {
		t.Fatalf("ldd: %v", err)
	}
	var paths []string
	for _, m := range regexp.MustCompile(`(?m)(/\S+) \(0x`).FindAllStringSubmatch(string(out), -1) {
		paths = append(paths, m[1])
	}
	return paths
}

func testImage(t *testing.T) {
	base := t.TempDir()
	linked := filepath.Join(base, "outside", "secret")
	writeSecret(t, linked)
	root := filepath.Join(base, "root")
	if err := os.Mkdir(root, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unpackAll(root, hostile(t, linked)); err != nil {
		t.Fatal(err)
	}
	before := fingerprint(t, root)
	playImage(t, root, linked)
	if after := fingerprint(t, root); after != before {
		t.Errorf("a command has changed the image: its fingerprint is %s, want %s", after, before)
	}
}

func fingerprint(t *testing.T, folder string) string {
	t.Helper()
	mark, err := rootfs.Fingerprint(folder)
	if err != nil {
		t.Fatal(err)
	}
	return mark
}

// unpackAll does as executions does with an image.
func unpackAll(to string, layers [][]byte) error {
	u, err := rootfs.New(to, rootfs.Limits{})
	if err != nil {
		return err
	}
	defer u.Close() // nothing is buffered
	for _, layer := range layers {
		if err := u.Layer(bytes.NewReader(layer)); err != nil {
			return err
		}
	}
	if err := u.Prepare(&rootfs.Base{Folders: room.RootFolders, Files: room.RootFiles(), Accounts: room.Accounts()}); err != nil {
		return err
	}
	return u.Finish()
}

// playImage makes all attempts in a room with a root, without network and with it.
func playImage(t *testing.T, root, linked string) {
	t.Helper()
	scripts := maps.Clone(escapeScripts)
	for name, script := range imageScripts {
		scripts["in the image: "+name] = "linked=" + linked + "\n" + script
	}
	for _, network := range []bool{false, true} {
		if network && testing.Short() {
			break
		}
		p := newPlace(t)
		p.Root, p.Network = root, network
		if got := p.sh("cat /etc/motd; cd /tmp; pwd; touch x /var/tmp/y; ls /e3/tmp; [ -d /proc/2 ] && [ -c /dev/null ] && echo all"); got != "the image's/tmp\nx\ny\nall" {
			t.Fatalf("the image is not there: %q", got)
		}
		fresh(t, p)
		if network {
			scripts = maps.Clone(scripts)
			maps.DeleteFunc(scripts, func(name, _ string) bool { return strings.Contains(name, "network") })
		}
		testEscapes(t, p, scripts)
	}
}

func writeSecret(t *testing.T, path string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(secret), 0o644); err != nil {
		t.Fatal(err)
	}
}

// testTree plays in a root with set-uid programs and, where this user may make them, device nodes: a room relies on no
// unpacker.
func testTree(t *testing.T) {
	base := t.TempDir()
	linked := filepath.Join(base, "outside", "secret")
	writeSecret(t, linked)
	root := filepath.Join(base, "tree")
	if err := os.Mkdir(root, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unpackAll(root, hostile(t, linked)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"bin/rise", "bin/busybox"} {
		if err := os.Chmod(filepath.Join(root, name), 0o755|os.ModeSetuid|os.ModeSetgid); err != nil {
			t.Fatal(err)
		}
	}
	if os.Getuid() == 0 {
		if err := os.Chown(filepath.Join(root, "bin/rise"), 1, 1); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(filepath.Join(root, "bin/rise"), 0o755|os.ModeSetuid|os.ModeSetgid); err != nil { // chown has cleared it
			t.Fatal(err)
		}
		rights := append([]byte{1, 0, 0, 2}, bytes.Repeat([]byte{0xff, 0xff, 0xff, 0xff}, 4)...)
		if err := unix.Setxattr(filepath.Join(root, "bin/capable"), "security.capability", rights, 0); err != nil {
			t.Log("no capabilities of files here:", err)
		}
		if err := os.MkdirAll(filepath.Join(root, "nod"), 0o755); err != nil {
			t.Fatal(err)
		}
		for name, number := range map[string]uint64{"mem": unix.Mkdev(1, 1), "zero": unix.Mkdev(1, 5), "full": unix.Mkdev(1, 7)} {
			path := filepath.Join(root, "nod", name)
			if err := unix.Mknod(path, unix.S_IFCHR|0o666, int(number)); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(path, 0o666); err != nil {
				t.Fatal(err)
			}
		}
	}
	scripts := maps.Clone(imageScripts)
	scripts["a set-uid program"] = `/bin/rise id -u | grep -vx $(id -u) && echo $got; /bin/rise id -g | grep -vx $(id -g) && echo $got; /bin/rise grep -E '[UG]id' /proc/self/status | grep -w 1 && echo $got`
	p := newPlace(t)
	p.Root = root
	for name, script := range scripts {
		scripts[name] = "linked=" + linked + "\n" + script
	}
	testEscapes(t, p, scripts)
}

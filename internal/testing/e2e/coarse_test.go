//go:build linux

package e2e

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
)

// TestCoarseTimes edits inputs and the package file on file systems whose times are whole seconds, or pairs of them, right after they
// were read: the new content has the size and the times of the old one, and is seen all the same.
func TestCoarseTimes(t *testing.T) {
	for _, kind := range []struct {
		name    string
		fs      string
		options []string
	}{
		{"ext3", "ext3", []string{"-I", "128"}},
		{"ext4 with small inodes", "ext4", []string{"-I", "128"}},
		{"vfat", "vfat", nil},
	} {
		t.Run(kind.name, func(t *testing.T) {
			v := newVolume(t, kind.fs, "64", kind.options...)
			elsewhere := t.TempDir() // vfat has no hard links, so no repository
			file := "e3: 1\nname: demo\ninputs: {a: {file: a.txt}, d: {dir: d}}\ntasks: {t: {in: [a, d], out: o, run: 'cat \"$a\" \"$d/x\" > \"$out\"; echo %02d >> \"$out\"'}}\n"
			p := projectIn(t, v.dir, map[string]string{"a.txt": "00", "d/x": "00", "e3.yaml": fmt.Sprintf(file, 0)})
			location := p.repository()
			if kind.fs == "vfat" {
				location = elsewhere
			}
			if r := p.e3("init", location); r.code != 0 {
				t.Fatal(r)
			}
			start := func(want string) {
				t.Helper()
				p.start(0, location, "w")
				if r := p.e3("get", location, "w.t"); r.code != 0 || strings.TrimSpace(r.stdout) != want {
					t.Fatalf("the output is %q, want %q", r.stdout, want)
				}
			}
			start("000000")
			same := 0
			edits := 12
			if testing.Short() {
				edits = 6
			}
			for i := 1; i <= edits; i++ {
				name, text := "a.txt", fmt.Sprintf("%02d", i)
				switch i % 3 {
				case 1:
					name = "d/x"
				case 2:
					name, text = "e3.yaml", fmt.Sprintf(file, i)
				}
				p.write(name, text)
				before := times(t, p.path(name))
				start(p.read("a.txt") + p.read("d/x") + lastNumber(p.read("e3.yaml")))
				text = strings.Replace(text, fmt.Sprintf("%02d", i), fmt.Sprintf("%02d", i+50), 1)
				p.write(name, text)
				if times(t, p.path(name)) == before {
					same++
				}
				start(p.read("a.txt") + p.read("d/x") + lastNumber(p.read("e3.yaml")))
			}
			t.Logf("%d of %d edits left size, times and inode as they were", same, edits)
		})
	}
}

// lastNumber is what the command of the package file prints.
func lastNumber(file string) string {
	_, rest, _ := strings.Cut(file, "echo ")
	return rest[:2]
}

// times are what a file shows of its last change.
func times(t *testing.T, path string) [4]int64 {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	st := info.Sys().(*syscall.Stat_t)
	return [4]int64{st.Mtim.Nano(), st.Ctim.Nano(), st.Size, int64(st.Ino)}
}

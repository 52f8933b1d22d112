package rootfs_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"e3/internal/host/rootfs"
	"e3/internal/testing/testimage"
)

type entry = testimage.Entry

var (
	file = func(name, content string) entry { return testimage.File(name, content, 0o644) }
	dir  = testimage.Dir
	link = testimage.Link
	hard = testimage.Hard
)

// special is an entry of another type.
func special(name string, kind byte, change func(*tar.Header)) entry {
	e := file(name, "")
	e.Typeflag = kind
	if change != nil {
		change(&e.Header)
	}
	return e
}

// list describes all files of a folder, in order: "a=content", "d/", "l->target".
func list(t *testing.T, folder string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		rel := strings.TrimPrefix(path, folder+"/")
		switch {
		case err != nil || path == folder:
			return err
		case d.IsDir():
			fmt.Fprintf(&b, "%s/ ", rel)
		case d.Type() == fs.ModeSymlink:
			target, err := os.Readlink(path)
			fmt.Fprintf(&b, "%s->%s ", rel, target)
			return err
		default:
			data, err := os.ReadFile(path)
			fmt.Fprintf(&b, "%s=%s ", rel, data)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSuffix(b.String(), " ")
}

// unpack unpacks layers into root of a folder that also has a file outside of it, which must stay as it is.
func unpack(t *testing.T, limits rootfs.Limits, layers ...[]byte) (root string, err error) {
	t.Helper()
	top := t.TempDir()
	root = filepath.Join(top, "root")
	if err := os.Mkdir(root, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(top, "outside"), []byte("outside"), 0o644); err != nil {
		t.Fatal(err)
	}
	u, err := rootfs.New(root, limits)
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	for _, layer := range layers {
		if err = u.Layer(bytes.NewReader(layer)); err != nil {
			break
		}
	}
	if err == nil {
		err = u.Finish()
	}
	entries, fault := os.ReadDir(top)
	if data, e := os.ReadFile(filepath.Join(top, "outside")); fault != nil || e != nil || len(entries) != 2 || string(data) != "outside" {
		t.Errorf("outside: %v, %q, %v %v", entries, data, fault, e)
	}
	return root, err
}

func TestLayers(t *testing.T) {
	for name, test := range map[string]struct {
		layers [][]entry
		want   string
	}{
		"over each other":               {[][]entry{{file("a", "1"), dir("d"), file("d/b", "2")}, {file("a", "3"), file("d/c", "4")}}, "a=3 d/ d/b=2 d/c=4"},
		"whiteout":                      {[][]entry{{file("a", "1"), file("d/b", "2"), file("d/c", "3")}, {file(".wh.a", ""), file("d/.wh.b", "")}}, "d/ d/c=3"},
		"whiteout of a folder":          {[][]entry{{file("d/e/f", "1"), file("g", "2")}, {file(".wh.d", "")}}, "g=2"},
		"whiteout of nothing":           {[][]entry{{file("a", "1")}, {file(".wh.b", ""), file("no/.wh.c", "")}}, "a=1"},
		"whiteout, then the file":       {[][]entry{{file("a", "1")}, {file(".wh.a", ""), file("a", "2")}}, "a=2"},
		"the file, then whiteout":       {[][]entry{{file("a", "1")}, {file("a", "2"), file(".wh.a", "")}}, "a=2"},
		"opaque":                        {[][]entry{{file("d/a", "1"), file("d/e/b", "2")}, {dir("d"), file("d/.wh..wh..opq", ""), file("d/c", "3")}}, "d/ d/c=3"},
		"opaque after its files":        {[][]entry{{file("d/a", "1"), file("d/e/b", "2")}, {file("d/e/c", "3"), file("d/.wh..wh..opq", "")}}, "d/ d/e/ d/e/c=3"},
		"opaque in the same layer":      {[][]entry{{file("d/a", "1"), file("d/.wh..wh..opq", "")}}, "d/ d/a=1"},
		"internal of aufs":              {[][]entry{{file(".wh..wh.plnk", ""), file(".wh..wh.aufs", ""), file("a", "1")}}, "a=1"},
		"absolute names":                {[][]entry{{file("/a", "1"), file("//d//b", "2"), hard("/c", "/a")}}, "a=1 c=1 d/ d/b=2"},
		"names with a dot":              {[][]entry{{dir("./"), file("./a", "1"), dir("./d/")}}, "a=1 d/"},
		"a file for a folder":           {[][]entry{{file("d/a", "1")}, {file("d", "2")}}, "d=2"},
		"a folder for a file":           {[][]entry{{file("d", "1")}, {dir("d"), file("d/a", "2")}}, "d/ d/a=2"},
		"a link for a folder":           {[][]entry{{file("d/a", "1")}, {link("d", "e")}}, "d->e"},
		"a folder for a link":           {[][]entry{{link("d", "e"), file("e/a", "1")}, {dir("d"), file("d/b", "2")}}, "d/ d/b=2 e/ e/a=1"},
		"names twice":                   {[][]entry{{file("a", "1"), file("a", "2"), dir("a"), file("a", "3")}}, "a=3"},
		"through a link":                {[][]entry{{dir("usr/lib"), link("lib", "usr/lib")}, {file("lib/x", "1")}}, "lib->usr/lib usr/ usr/lib/ usr/lib/x=1"},
		"through an absolute link":      {[][]entry{{dir("run"), link("var/run", "/run")}, {file("var/run/x", "1")}}, "run/ run/x=1 var/ var/run->/run"},
		"through a link that leads out": {[][]entry{{link("up", "../../.."), file("up/outside", "1")}}, "outside=1 up->../../.."},
		"a file through a link":         {[][]entry{{link("a", "../outside")}, {file("a", "1")}}, "a=1"},
		"hard link to a link":           {[][]entry{{link("a", "../outside"), hard("b", "a")}}, "a->../outside b->../outside"},
		"hard link, then its target":    {[][]entry{{file("a", "1"), hard("b", "a")}, {file("a", "2")}}, "a=2 b=1"},
		"hard link to itself":           {[][]entry{{file("a", "1"), hard("a", "a")}}, "a=1"},
		"devices":                       {[][]entry{{special("null", tar.TypeChar, nil), special("sda", tar.TypeBlock, nil), special("pipe", tar.TypeFifo, nil), file("a", "1")}}, "a=1"},
		"a device for a file":           {[][]entry{{file("a", "1"), file("b", "2")}, {special("a", tar.TypeChar, nil)}}, "b=2"},
		"a whiteout through a link":     {[][]entry{{link("d", "e"), file("e/a", "1"), file("e/b", "2")}, {file("d/.wh.a", "")}}, "d->e e/ e/b=2"},
	} {
		t.Run(name, func(t *testing.T) {
			var layers [][]byte
			for _, l := range test.layers {
				layers = append(layers, testimage.Layer(l...))
			}
			root, err := unpack(t, rootfs.Limits{}, layers...)
			if err != nil {
				t.Fatal(err)
			}
			if got := list(t, root); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

func TestHostileLayers(t *testing.T) {
	for name, test := range map[string]struct {
		layer []entry
		says  string
	}{
		"name that goes up":             {[]entry{file("../outside", "x")}, "the path goes up"},
		"name that goes up later":       {[]entry{file("a/../../outside", "x")}, "the path goes up"},
		"absolute name that goes up":    {[]entry{file("/../outside", "x")}, "the path goes up"},
		"folder that goes up":           {[]entry{dir("..")}, "the path goes up"},
		"hard link that goes up":        {[]entry{hard("a", "../outside")}, "the path goes up"},
		"hard link through a link":      {[]entry{link("up", ".."), hard("a", "up/outside")}, "does not exist"},
		"hard link to nothing":          {[]entry{hard("a", "b")}, "does not exist"},
		"hard link to a folder":         {[]entry{dir("d"), hard("a", "d")}, "a hard link to the folder"},
		"whiteout of the folder above":  {[]entry{file("d/.wh...", "")}, `a whiteout of ".."`},
		"whiteout of the folder":        {[]entry{file("d/.wh..", "")}, `a whiteout of "."`},
		"whiteout of no name":           {[]entry{file("d/.wh.", "")}, `a whiteout of ""`},
		"file in a file":                {[]entry{file("a", "x"), file("a/b", "y")}, `"a" is no folder`},
		"links in a circle":             {[]entry{link("a", "b"), link("b", "a"), file("a/c", "x")}, "too many links"},
		"unknown type":                  {[]entry{special("a", 'Z', nil)}, "is not known"},
		"long name":                     {[]entry{file(strings.Repeat("a/", 3000)+"b", "x")}, "a path has 6001 bytes"},
		"more bytes than are allowed":   {[]entry{file("a", strings.Repeat("x", 600)), file("b", strings.Repeat("x", 600))}, "more than 1000 bytes"},
		"more files than are allowed":   {[]entry{file("a", ""), file("b", ""), file("c", ""), file("d", "")}, "more than 3 files"},
		"more folders than are allowed": {[]entry{file("a/b/c/d/e", "")}, "more than 3 files"},
	} {
		t.Run(name, func(t *testing.T) {
			limits := rootfs.Limits{}
			if strings.HasPrefix(name, "more ") {
				limits = rootfs.Limits{Bytes: 1000, Files: 3}
			}
			_, err := unpack(t, limits, testimage.Layer(test.layer...))
			if !errors.Is(err, rootfs.ErrLayer) || !strings.Contains(err.Error(), test.says) {
				t.Errorf("the error is %v, want %q", err, test.says)
			}
		})
	}
}

// TestSparse: a sparse file counts with the size that it claims to have, and nothing is written of one that is too large.
func TestSparse(t *testing.T) {
	data, err := os.ReadFile("testdata/sparse.tar") // tar --sparse, of a file with 1 GiB of nothing
	if err != nil {
		t.Fatal(err)
	}
	_, err = unpack(t, rootfs.Limits{Bytes: 1 << 20}, data)
	if !errors.Is(err, rootfs.ErrLayer) || !strings.Contains(err.Error(), "more than 1048576 bytes") {
		t.Errorf("the error is %v", err)
	}
}

// TestModes: no file is set-uid, the user can read everything, and times are those of the layer.
func TestModes(t *testing.T) {
	secret, suid := file("etc/shadow", "x"), file("bin/su", "x")
	secret.Mode, suid.Mode = 0, 0o6755
	shut := dir("shut")
	shut.Mode = 0o1000
	root, err := unpack(t, rootfs.Limits{}, testimage.Layer(dir("etc"), secret, dir("bin"), suid, shut, file("shut/a", "x"), link("l", "a")))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]fs.FileMode{
		"etc/shadow": 0o400, "bin/su": 0o755, "shut": fs.ModeDir | 0o700, "etc": fs.ModeDir | 0o755, "l": fs.ModeSymlink | 0o777,
	} {
		info, err := os.Lstat(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode() != want || !info.ModTime().Equal(testimage.Epoch) {
			t.Errorf("%s has mode %v and time %v, want %v and %v", name, info.Mode(), info.ModTime(), want, testimage.Epoch)
		}
	}
}

// TestPrepare: folders and files that a room needs are real ones, whatever the image has there.
func TestPrepare(t *testing.T) {
	root := t.TempDir()
	u, err := rootfs.New(root, rootfs.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	layer := testimage.Layer(link("tmp", "/etc"), file("dev", "x"), dir("etc"), link("etc/hosts", "../../outside"), file("etc/passwd", "root:x:0:0"), link("var/tmp", "/tmp"))
	if err := u.Layer(bytes.NewReader(layer)); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"ann:x:1000:", "root:x:0:", "bob:x:1000:"} {
		base := &rootfs.Base{
			Folders:  []string{"tmp", "dev", "var/tmp", "sys/devices"},
			Files:    map[string]string{"etc/hosts": "here"},
			Accounts: map[string]string{"etc/passwd": line},
		}
		if err := u.Prepare(base); err != nil {
			t.Fatal(err)
		}
	}
	want := "dev/ etc/ etc/hosts=here etc/passwd=root:x:0:0\nann:x:1000:\n sys/ sys/devices/ tmp/ var/ var/tmp/"
	if got := list(t, root); got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// FuzzLayer unpacks any bytes: nothing outside of the folder changes, and nothing panics.
func FuzzLayer(f *testing.F) {
	f.Add(testimage.Layer(file("a", "1"), link("up", ".."), file("up/outside", "2"), hard("b", "a")))
	f.Add(testimage.Layer(dir("d"), file("d/.wh..wh..opq", ""), file("d/.wh.a", ""), file("../x", "")))
	f.Add(testimage.Layer(link("a", "/"), link("b", "a/../.."), file("a/b/outside", "3"), hard("a/c", "b/outside")))
	f.Fuzz(func(t *testing.T, layer []byte) {
		_, _ = unpack(t, rootfs.Limits{Bytes: 1 << 20, Files: 1000}, layer)
	})
}

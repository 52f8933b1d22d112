package tools_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"e3/internal/format/record"
	"e3/internal/host/tools"
)

// put writes an executable file with times that prove it unchanged.
func put(t *testing.T, dir, name, content string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(content), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func text(t *testing.T, f *tools.Finder, name string) string {
	t.Helper()
	parts, err := f.Find(name)
	if err != nil {
		t.Fatal(err)
	}
	return tools.Text(parts)
}

// roles are the parts of a text without their hashes.
func roles(text string) []string {
	var list []string
	for line := range strings.Lines(text) {
		list = append(list, line[:strings.LastIndexByte(line, ' ')])
	}
	return list
}

func TestScripts(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "inner", "#! "+filepath.Join(dir, "outer")+"\n")
	put(t, dir, "outer", "no program\n")
	put(t, dir, "of_env", "#!"+filepath.Join(dir, "env")+" -S A=1 outer -x\n")
	put(t, dir, "env", "the env of this test\n")
	put(t, dir, "loop", "#!"+filepath.Join(dir, "loop")+"\n")
	put(t, dir, "orphan", "#!"+filepath.Join(dir, "nothing")+"\n")
	put(t, dir, "orphan_env", "#!"+filepath.Join(dir, "env")+" nothing\n")
	if err := os.WriteFile(filepath.Join(dir, "data"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	f := tools.New(dir, "")
	for name, want := range map[string][]string{
		"outer":  {"program outer"},
		"inner":  {"interpreter outer", "program inner"},
		"of_env": {"interpreter env", "interpreter outer", "program of_env"},
		"loop":   {"interpreter loop", "program loop"},
	} {
		if got := roles(text(t, f, name)); !slices.Equal(got, want) {
			t.Errorf("%s has the parts %q, want %q", name, got, want)
		}
	}
	for _, name := range []string{"nothing", "data", "orphan_env"} {
		if _, err := f.Find(name); !errors.Is(err, tools.ErrNotFound) {
			t.Errorf("%s: got %v, want ErrNotFound", name, err)
		}
	}
	if _, err := f.Find("orphan"); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "interpreter is missing") {
		t.Errorf("a script without its interpreter: got %v", err)
	}
}

// TestFolders: where a program lies, or another program in a folder that comes later, changes nothing.
func TestFolders(t *testing.T) {
	one, two := t.TempDir(), t.TempDir()
	put(t, one, "fit", "fit 1")
	first := text(t, tools.New(one, ""), "fit")
	put(t, two, "fit", "fit 1")
	if got := text(t, tools.New(two, ""), "fit"); got != first {
		t.Errorf("in another folder: got %q, want %q", got, first)
	}
	put(t, two, "fit", "fit 2")
	if got := text(t, tools.New(one+":"+two, ""), "fit"); got != first {
		t.Errorf("with another one behind it: got %q, want %q", got, first)
	}
	got := text(t, tools.New("relative:"+two+":"+one, ""), "fit")
	if got == first {
		t.Error("another program has the same text")
	}
	if changed := record.ToolChanges(first, got); !slices.Equal(changed, []string{"program fit"}) {
		t.Errorf("changed: got %q", changed)
	}
}

// TestLinked links programs with a library of their own, which is found by an rpath, and changes it.
func TestLinked(t *testing.T) {
	cc, err := exec.LookPath("cc")
	if err != nil || runtime.GOOS != "linux" {
		t.Skip("no cc on Linux here: install gcc to test programs with libraries")
	}
	dir := t.TempDir()
	build := func(args ...string) {
		t.Helper()
		cmd := exec.Command(cc, args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("cc %q: %v\n%s", args, err, out)
		}
	}
	put(t, dir, "lib.c", "int answer(void) { return 41; }\n")
	put(t, dir, "main.c", "int answer(void); int main(void) { return answer(); }\n")
	build("-shared", "-fPIC", "-o", "libanswer.so", "lib.c")
	build("-o", "prog", "main.c", "-L.", "-lanswer", "-Wl,-rpath,$ORIGIN")
	first := text(t, tools.New(dir, ""), "prog")
	for _, want := range []string{"program prog", "library libanswer.so", "library libc.so.6"} {
		if !slices.Contains(roles(first), want) {
			t.Errorf("the parts lack %q:\n%s", want, first)
		}
	}
	if strings.Contains(first, "missing") {
		t.Errorf("a part was not found:\n%s", first)
	}
	put(t, dir, "lib.c", "int answer(void) { return 42; }\n")
	build("-shared", "-fPIC", "-o", "libanswer.so", "lib.c")
	if changed := record.ToolChanges(first, text(t, tools.New(dir, ""), "prog")); !slices.Equal(changed, []string{"library libanswer.so"}) {
		t.Errorf("after a change of the library: got %q", changed)
	}
	if err := os.Remove(filepath.Join(dir, "libanswer.so")); err != nil {
		t.Fatal(err)
	}
	if got := text(t, tools.New(dir, ""), "prog"); !strings.Contains(got, "library libanswer.so missing\n") {
		t.Errorf("without the library:\n%s", got)
	}
}

// TestRemembered reads a program once for two processes, and again after a change that keeps its size and time.
func TestRemembered(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("without change times, nothing is remembered; run this on Linux")
	}
	dir, cache := t.TempDir(), filepath.Join(t.TempDir(), "made", "later")
	path := put(t, dir, "fit", "fit 1")
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(path, old, old); err != nil {
		t.Fatal(err)
	}
	find := func() string {
		f := tools.New(dir, cache)
		defer f.Close()
		return text(t, f, "fit")
	}
	first := find()
	for limit := time.Now().Add(time.Minute); ; { // its times prove nothing for some milliseconds
		if _, err := os.Stat(filepath.Join(cache, "tools.json")); err == nil {
			break
		}
		if find(); time.Now().After(limit) {
			t.Fatal("nothing was remembered for a minute")
		}
	}
	if got := find(); got != first {
		t.Errorf("the second time: got %q, want %q", got, first)
	}
	put(t, dir, "fit", "fit 2")
	if err := os.Chtimes(path, old, old); err != nil {
		t.Fatal(err)
	}
	if got := find(); got == first {
		t.Error("a changed program has the same text, since its size and time are as before")
	}
	for _, hostile := range []string{"", "{", "null", `{"` + path + `": null}`, `[1]`} {
		if err := os.MkdirAll(cache, 0o700); err != nil {
			t.Fatal(err)
		}
		put(t, cache, "tools.json", hostile)
		if got := find(); got == first {
			t.Errorf("with %q as memory: got the first text", hostile)
		}
	}
}

// FuzzParts reads any bytes as a program.
func FuzzParts(f *testing.F) {
	f.Add([]byte("#!/bin/sh\n"))
	f.Add([]byte("#!/usr/bin/env -S"))
	f.Add([]byte("\x7fELF\x02\x01\x01"))
	if self, err := os.ReadFile("/bin/true"); err == nil && len(self) < 1<<17 {
		f.Add(self)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		dir := t.TempDir()
		put(t, dir, "p", string(data))
		parts, err := tools.New(dir, "").Find("p")
		if err == nil && !slices.ContainsFunc(parts, func(p tools.Part) bool { return p.Role == "program" && p.Name == "p" && p.Hash != "" }) {
			t.Errorf("the program is not among its parts: %v", parts)
		}
	})
}

// TestUnchangedFilesStayClosed: comparing a program again opens none of its files. Each task with tools compares.
func TestUnchangedFilesStayClosed(t *testing.T) {
	sh, err := exec.LookPath("sh")
	if err != nil || runtime.GOOS != "linux" {
		t.Skip("only Linux tells when a file has changed: run it there")
	}
	f := tools.New(filepath.Dir(sh), "")
	first := text(t, f, "sh")
	if tools.Opens(f) == 0 {
		t.Fatal("the program was not read")
	}
	before := tools.Opens(f)
	if again := text(t, f, "sh"); again != first || tools.Opens(f) != before {
		t.Errorf("comparing again opens %d files and gives\n%s, not\n%s", tools.Opens(f)-before, again, first)
	}
}

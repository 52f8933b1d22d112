package tools_test

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
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
	"e3/internal/testing/suite"
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

// TestEnv: env is followed to the program that it starts.
func TestEnv(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "env", "the env of this test\n")
	put(t, dir, "prog", "no program\n")
	env := "#!" + filepath.Join(dir, "env") + " "
	f := tools.New(dir, "")
	for i, line := range []string{
		"prog", "-S prog -x", "-Sprog -x", "-vS prog", "-vSprog", "-i prog", "- prog", "-S -i A=1 B= prog", "-S -u HOME prog", "-S --unset HOME prog",
		"-S --unset=HOME -C / prog", "-S -- prog", "--split-string=prog -x", "-S --ignore-environment prog", `-S "prog" x`, filepath.Join(dir, "prog"),
	} {
		name := fmt.Sprint("script", i)
		put(t, dir, name, env+line+"\n")
		if got, want := roles(text(t, f, name)), []string{"interpreter env", "interpreter prog", "program " + name}; !slices.Equal(got, want) {
			t.Errorf("%q: the parts are %q, want %q", line, got, want)
		}
	}
	for i, line := range []string{"", "-i", "-S", "A=1", "./prog", "-S -u prog"} { // none, or one of the command's folder
		name := fmt.Sprint("none", i)
		put(t, dir, name, env+line+"\n")
		if got, want := roles(text(t, f, name)), []string{"interpreter env", "program " + name}; !slices.Equal(got, want) {
			t.Errorf("%q: the parts are %q, want %q", line, got, want)
		}
	}
}

// TestAround: of a file that may lie anywhere, the interpreter counts with its own parts, and so do libraries of this machine.
func TestAround(t *testing.T) {
	dir, cache := t.TempDir(), t.TempDir()
	put(t, dir, "env", "the env of this test\n")
	put(t, dir, "inner", "#!"+filepath.Join(dir, "outer")+"\n")
	put(t, dir, "outer", "no program\n")
	opened := 0
	around := func(content string) []string {
		t.Helper()
		sum := sha256.Sum256([]byte(content))
		parts, err := tools.New(dir, cache).Around("./bin/fit", hex.EncodeToString(sum[:]), func() (io.ReadCloser, error) {
			opened++
			return io.NopCloser(strings.NewReader(content)), nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return strings.Split(tools.Text(parts), "\n")
	}
	hash := func(content string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(content))) }
	env, outer := "interpreter env "+hash("the env of this test\n"), "interpreter outer "+hash("no program\n")
	inner := "interpreter inner " + hash("#!"+filepath.Join(dir, "outer")+"\n")
	for content, want := range map[string][]string{
		"#!" + dir + "/outer -x\nbody":      {outer},
		"#!" + dir + "/inner\n":             {inner, outer},
		"#!" + dir + "/env -S inner -u\n":   {env, inner, outer},
		"#!" + dir + "/env nothing\n":       {env, "interpreter nothing missing"},
		"#!" + dir + "/nothing\n":           {"interpreter nothing missing"},
		"#!bin/relative\n":                  nil,
		"no program":                        nil,
		"":                                  nil,
		"#!" + dir + "/env bin/relative\n":  {env},
		"#!" + dir + "/outer\n" + "another": {outer},
	} {
		before := opened
		if got := around(content); !slices.Equal(got, append(want, "")) {
			t.Errorf("%q: got %q, want %q", content, got, want)
		}
		if around(content); opened != before+1 {
			t.Errorf("%q was opened %d times", content, opened-before)
		}
	}
	if runtime.GOOS != "linux" {
		return
	}
	self, err := os.ReadFile("/bin/sh")
	if err != nil {
		t.Fatal(err)
	}
	if got := around(string(self)); !slices.ContainsFunc(got, func(part string) bool { return strings.HasPrefix(part, "library libc.so.") }) {
		t.Errorf("the parts of a shell are %q", got)
	}
	_, err = tools.New(dir, cache).Around("./fit", hash("x"), func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("y")), nil })
	if err == nil || !strings.Contains(err.Error(), "it has changed while it was read") {
		t.Errorf("with other content than the hash says: %v", err)
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
	find := func() string { return text(t, tools.New(dir, cache), "fit") }
	first := find()
	for limit := time.Now().Add(suite.Stuck); ; { // its times prove nothing for some milliseconds
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

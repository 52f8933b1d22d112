package runner_test

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"e3/internal/host/runner"
)

// A command gets its redirections in their order, in files of mode 0644.
func TestRedirects(t *testing.T) {
	s := newSupervisor(t)
	if !s.Redirects() {
		t.Skip("this kernel has no openat2: run it on Linux 5.6 or later")
	}
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("in", "line\n")
	write("out", "old and longer\n")
	write("log", "old\n")
	spec := shell(t, `cat; echo error >&2; umask`, dir)
	spec.Redirects = []runner.Redirect{
		{FD: 0, Path: "in", Mode: runner.Read},
		{FD: 1, Path: "new", Mode: runner.Append},
		{FD: 1, Path: "out", Mode: runner.Truncate},
		{FD: 2, From: 1},
		{FD: 1, Path: "log", Mode: runner.Append},
	}
	if got := output(t, s, spec); got != "" {
		t.Errorf("%q is printed past the redirections", got)
	}
	for name, want := range map[string]string{"out": "error\n", "log": "old\nline\n0022\n", "new": "", "in": "line\n"} {
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != want {
			t.Errorf("%s holds %q, %v; want %q", name, got, err, want)
		}
	}
	if info, err := os.Stat(filepath.Join(dir, "new")); err != nil || info.Mode() != 0o644 {
		t.Errorf("a new file has the mode %v, %v", info.Mode(), err)
	}
}

// A redirection that fails, or leads out of the folder, starts nothing.
func TestRedirectsFail(t *testing.T) {
	s := newSupervisor(t)
	if !s.Redirects() {
		t.Skip("this kernel has no openat2: run it on Linux 5.6 or later")
	}
	parent := t.TempDir()
	dir := filepath.Join(parent, "work")
	for _, err := range []error{
		os.Mkdir(dir, 0o755), os.Mkdir(filepath.Join(dir, "sub"), 0o755), os.WriteFile(filepath.Join(dir, "file"), nil, 0o644),
		os.WriteFile(filepath.Join(parent, "outside"), nil, 0o644),
		os.Symlink("file", filepath.Join(dir, "link")), os.Symlink("/proc/self/fd", filepath.Join(dir, "fds")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]error{
		"missing": syscall.ENOENT, "missing/x": syscall.ENOENT, "file/x": syscall.ENOTDIR, "link": syscall.ELOOP, "fds/1": syscall.ELOOP,
		"../outside": syscall.EXDEV, "../work/file": syscall.EXDEV, filepath.Join(dir, "file"): syscall.EXDEV,
	} {
		spec := shell(t, "touch ran", dir)
		spec.Redirects = []runner.Redirect{{FD: 0, Path: path}}
		var start *runner.StartError
		if _, err := s.Run(t.Context(), spec); !errors.As(err, &start) || !errors.Is(err, want) {
			t.Errorf("reading %s: %v, want %v", path, err, want)
		}
	}
	spec := shell(t, "touch ran", dir)
	spec.Redirects = []runner.Redirect{{FD: 1, Path: "sub", Mode: runner.Truncate}}
	if _, err := s.Run(t.Context(), spec); !errors.Is(err, syscall.EISDIR) {
		t.Errorf("writing a folder: %v", err)
	}
	for _, bad := range []runner.Redirect{{FD: 3, Path: "x"}, {FD: -1, Path: "x"}, {FD: 1, From: 3}, {FD: 1, Path: "x", Mode: 9}, {FD: 1, Path: "x\x00"}} {
		spec.Redirects = []runner.Redirect{bad}
		if _, err := s.Run(t.Context(), spec); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "ran")); err == nil {
		t.Error("the command ran")
	}
}

// Path names the file that is executed, whatever its arguments say.
func TestPath(t *testing.T) {
	s := newSupervisor(t)
	spec := shell(t, `echo "$0"`, t.TempDir())
	path, err := runner.LookPath(spec.Argv[0], spec.Dir, spec.Env)
	if err != nil {
		t.Fatal(err)
	}
	spec.Path, spec.Argv = path, append([]string{"no such program"}, spec.Argv[1:]...)
	if got := output(t, s, spec); got != "no such program\n" {
		t.Errorf("the command sees %q", got)
	}
}

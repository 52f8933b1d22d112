package git_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"e3/internal/host/git"
)

const someCommit = "8fb2db10aa96df5f2a6b1e2a9b6ad3f2bb3e1c77"

// run runs git in a folder, as a user without configuration.
func run(t testing.TB, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CEILING_DIRECTORIES="+os.TempDir(),
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// made is a repository with a commit on the branch main; the test is skipped without git.
func made(t testing.TB, args ...string) string {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("needs git: install git")
	}
	dir := filepath.Join(t.TempDir(), "project")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	run(t, dir, append([]string{"init", "-q", "-b", "main"}, args...)...)
	run(t, dir, "commit", "-q", "--allow-empty", "-m", "first")
	return dir
}

// said is what git itself says.
func said(t testing.TB, dir string) git.Head {
	t.Helper()
	return git.Head{Commit: run(t, dir, "rev-parse", "HEAD"), Branch: run(t, dir, "branch", "--show-current")}
}

func sameAsGit(t testing.TB, dir string) {
	t.Helper()
	got, err := git.Read(dir)
	if want := said(t, dir); err != nil || got != want {
		t.Errorf("Read(%s) = %+v, %v; git says %+v", dir, got, err, want)
	}
}

func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// Read says what git says.
func TestReadAsGit(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, dir string) (project string){
		"a branch": func(t *testing.T, dir string) string { return dir },
		"a branch with slashes": func(t *testing.T, dir string) string {
			run(t, dir, "switch", "-q", "-c", "feature/é/x")
			return dir
		},
		"a folder below": func(t *testing.T, dir string) string {
			sub := filepath.Join(dir, "a", "b")
			if err := os.MkdirAll(sub, 0o755); err != nil {
				t.Fatal(err)
			}
			return sub
		},
		"a folder behind a link": func(t *testing.T, dir string) string {
			sub, link := filepath.Join(dir, "sub"), filepath.Join(t.TempDir(), "link")
			if err := errors.Join(os.Mkdir(sub, 0o755), os.Symlink(sub, link)); err != nil {
				t.Fatal(err)
			}
			return link
		},
		"detached": func(t *testing.T, dir string) string {
			run(t, dir, "checkout", "-q", "--detach")
			return dir
		},
		"packed": func(t *testing.T, dir string) string {
			run(t, dir, "pack-refs", "--all")
			return dir
		},
		"packed, and an empty folder": func(t *testing.T, dir string) string {
			run(t, dir, "pack-refs", "--all")
			if err := os.Mkdir(filepath.Join(dir, ".git/refs/heads/main"), 0o755); err != nil {
				t.Fatal(err)
			}
			return dir
		},
		"packed, and then a commit": func(t *testing.T, dir string) string {
			run(t, dir, "pack-refs", "--all")
			run(t, dir, "commit", "-q", "--allow-empty", "-m", "second")
			return dir
		},
		"a worktree": func(t *testing.T, dir string) string {
			other := filepath.Join(t.TempDir(), "other")
			run(t, dir, "worktree", "add", "-q", "-b", "side", other)
			run(t, other, "commit", "-q", "--allow-empty", "-m", "on the side")
			return other
		},
		"a worktree, packed": func(t *testing.T, dir string) string {
			other := filepath.Join(t.TempDir(), "other")
			run(t, dir, "worktree", "add", "-q", "-b", "side", other)
			run(t, dir, "pack-refs", "--all")
			return other
		},
		"a submodule": func(t *testing.T, dir string) string {
			above := made(t)
			run(t, above, "-c", "protocol.file.allow=always", "submodule", "add", "-q", dir, "sub")
			run(t, filepath.Join(above, "sub"), "commit", "-q", "--allow-empty", "-m", "inside")
			return filepath.Join(above, "sub")
		},
		"a folder with an empty .git": func(t *testing.T, dir string) string {
			sub := filepath.Join(dir, "sub")
			if err := os.MkdirAll(filepath.Join(sub, ".git"), 0o755); err != nil {
				t.Fatal(err)
			}
			return sub
		},
		"a reference to a reference": func(t *testing.T, dir string) string {
			run(t, dir, "symbolic-ref", "refs/heads/alias", "refs/heads/main")
			run(t, dir, "symbolic-ref", "HEAD", "refs/heads/alias")
			return dir
		},
	} {
		t.Run(name, func(t *testing.T) { sameAsGit(t, change(t, made(t))) })
	}
	t.Run("SHA-256", func(t *testing.T) { sameAsGit(t, made(t, "--object-format=sha256")) })
	t.Run("the repository's own folder apart", func(t *testing.T) {
		sameAsGit(t, made(t, "--separate-git-dir", filepath.Join(t.TempDir(), "apart.git")))
	})
}

func TestReadUnborn(t *testing.T) {
	dir := made(t)
	run(t, dir, "switch", "-q", "--orphan", "new")
	if got, err := git.Read(dir); err != nil || got != (git.Head{Branch: "new"}) {
		t.Errorf("Read = %+v, %v; want the branch new without a commit", got, err)
	}
}

// In a file of many packed references, each is found, and none that is not there.
func TestReadManyPacked(t *testing.T) {
	dir := made(t)
	for _, sorted := range []string{"sorted ", ""} {
		var refs []string
		var b strings.Builder
		fmt.Fprintf(&b, "# pack-refs with: peeled fully-peeled %s\n", sorted)
		for i := range 5_000 {
			ref := fmt.Sprintf("refs/heads/b%06d%s", 2*i, strings.Repeat("x", i%200))
			refs = append(refs, ref)
			fmt.Fprintf(&b, "%040x %s\n", i+1, ref)
			if i%3 == 0 {
				fmt.Fprintf(&b, "^%s\n", someCommit)
			}
		}
		write(t, filepath.Join(dir, ".git/packed-refs"), b.String())
		look := func(ref, want string) {
			t.Helper()
			write(t, filepath.Join(dir, ".git/HEAD"), "ref: "+ref+"\n")
			if got, err := git.Read(dir); err != nil || got.Commit != want {
				t.Fatalf("%q: %s is at %q, %v; want %q", sorted, ref, got.Commit, err, want)
			}
		}
		for range 200 {
			i := rand.IntN(len(refs))
			look(refs[i], fmt.Sprintf("%040x", i+1))
			look(fmt.Sprintf("refs/heads/b%06d", 2*i+1), "")
		}
		look(refs[0], fmt.Sprintf("%040x", 1))
		look(refs[len(refs)-1], fmt.Sprintf("%040x", len(refs)))
		look("refs/heads/a", "")
		look("refs/heads/c", "")
	}
}

// Whatever a repository has, nothing outside of it is read and shown, nothing waits, and nothing long is read.
func TestReadHostile(t *testing.T) {
	const secret = "root:x:0:0"
	for name, plant := range map[string]func(t *testing.T, dir string) error{
		"no commit": func(t *testing.T, dir string) error { return os.WriteFile(dir+"/HEAD", []byte(secret), 0o644) },
		"a reference upwards": func(t *testing.T, dir string) error {
			return os.WriteFile(dir+"/HEAD", []byte("ref: refs/../../secret\n"), 0o644)
		},
		"a reference elsewhere": func(t *testing.T, dir string) error {
			return os.WriteFile(dir+"/HEAD", []byte("ref: /etc/passwd\n"), 0o644)
		},
		"control sequences": func(t *testing.T, dir string) error {
			return os.WriteFile(dir+"/HEAD", []byte("ref: refs/heads/\x1b[31mx\n"), 0o644)
		},
		"no UTF-8": func(t *testing.T, dir string) error {
			return os.WriteFile(dir+"/HEAD", []byte("ref: refs/heads/\xff\n"), 0o644)
		},
		"a very long line": func(t *testing.T, dir string) error { return os.WriteFile(dir+"/HEAD", make([]byte, 1<<20), 0o644) },
		"a pipe": func(t *testing.T, dir string) error {
			return errors.Join(os.Remove(dir+"/HEAD"), syscall.Mkfifo(dir+"/HEAD", 0o644))
		},
		"a pipe as a branch": func(t *testing.T, dir string) error { return syscall.Mkfifo(dir+"/refs/heads/main", 0o644) },
		"a link": func(t *testing.T, dir string) error {
			return errors.Join(os.Remove(dir+"/HEAD"), os.Symlink("../secret", dir+"/HEAD"))
		},
		"a branch that is a link": func(t *testing.T, dir string) error {
			return os.Symlink("../../../secret", dir+"/refs/heads/main")
		},
		"a branch with other text": func(t *testing.T, dir string) error {
			return os.WriteFile(dir+"/refs/heads/main", []byte(secret), 0o644)
		},
		"packed references as a folder": func(t *testing.T, dir string) error { return os.Mkdir(dir+"/packed-refs", 0o755) },
		"packed references as a link":   func(t *testing.T, dir string) error { return os.Symlink("../secret", dir+"/packed-refs") },
		"packed references, no commit": func(t *testing.T, dir string) error {
			return os.WriteFile(dir+"/packed-refs", []byte(secret+" refs/heads/main\n"), 0o644)
		},
		"packed references in one line": func(t *testing.T, dir string) error {
			return os.WriteFile(dir+"/packed-refs", append([]byte("# pack-refs with: sorted \n"), make([]byte, 1<<20)...), 0o644)
		},
		"references in a circle": func(t *testing.T, dir string) error {
			return os.WriteFile(dir+"/refs/heads/main", []byte("ref: refs/heads/main\n"), 0o644)
		},
		"references in a reftable": func(t *testing.T, dir string) error {
			return os.WriteFile(dir+"/HEAD", []byte("ref: refs/heads/.invalid\n"), 0o644)
		},
		"a common folder that is none": func(t *testing.T, dir string) error {
			return os.WriteFile(dir+"/commondir", []byte("../secret\n"), 0o644)
		},
		"a file that names none": func(t *testing.T, dir string) error {
			return errors.Join(os.RemoveAll(dir), os.WriteFile(dir, []byte(secret), 0o644))
		},
		"a file that names a file": func(t *testing.T, dir string) error {
			return errors.Join(os.RemoveAll(dir), os.WriteFile(dir, []byte("gitdir: secret\n"), 0o644))
		},
	} {
		t.Run(name, func(t *testing.T) {
			project := t.TempDir()
			write(t, filepath.Join(project, "secret"), secret)
			dir := filepath.Join(project, ".git")
			write(t, filepath.Join(dir, "HEAD"), "ref: refs/heads/main\n")
			if err := os.MkdirAll(filepath.Join(dir, "refs/heads"), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := plant(t, dir); err != nil {
				t.Fatal(err)
			}
			head, err := git.Read(project)
			if err == nil || head != (git.Head{}) {
				t.Fatalf("Read = %+v, %v; want an error", head, err)
			}
			if strings.Contains(err.Error(), secret) || strings.Contains(err.Error(), project) {
				t.Errorf("the error %q quotes a file, or a path of this machine", err)
			}
			if name == "references in a reftable" && !errors.Is(err, git.ErrReftable) {
				t.Errorf("Read: %v, want ErrReftable", err)
			}
		})
	}
}

func TestReadNone(t *testing.T) {
	if head, err := git.Read(t.TempDir()); !errors.Is(err, git.ErrNone) {
		t.Errorf("Read = %+v, %v; want ErrNone", head, err)
	}
}

// A repository that another user has put above a project does not count.
func TestReadOtherOwner(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: another user owns the repository in this test")
	}
	dir := made(t)
	sub := filepath.Join(dir, "sub")
	if err := errors.Join(os.Mkdir(sub, 0o755), os.Lchown(sub, 54321, 54321)); err != nil {
		t.Fatal(err)
	}
	sameAsGit(t, dir)
	if head, err := git.Read(sub); err != nil || head.Branch != "main" { // of the process's user
		t.Errorf("Read = %+v, %v", head, err)
	}
	if err := os.Lchown(filepath.Join(dir, ".git"), 1234, 1234); err != nil {
		t.Fatal(err)
	}
	if head, err := git.Read(sub); !errors.Is(err, git.ErrOwner) {
		t.Errorf("Read = %+v, %v; want ErrOwner", head, err)
	}
}

func BenchmarkRead(b *testing.B) {
	dir := made(b)
	sub := filepath.Join(dir, "a", "b")
	if err := os.MkdirAll(sub, 0o755); err != nil {
		b.Fatal(err)
	}
	b.Run("a branch", func(b *testing.B) { benchmark(b, sub) })
	var text strings.Builder
	text.WriteString("# pack-refs with: peeled fully-peeled sorted \n")
	for i := range 200_000 {
		fmt.Fprintf(&text, "%s refs/heads/branch-%06d\n", someCommit, i)
	}
	write(b, filepath.Join(dir, ".git/packed-refs"), text.String())
	write(b, filepath.Join(dir, ".git/HEAD"), "ref: refs/heads/branch-123456\n")
	b.Run("200,000 packed", func(b *testing.B) { benchmark(b, sub) })
}

func benchmark(b *testing.B, dir string) {
	for b.Loop() {
		if head, err := git.Read(dir); err != nil || head.Commit == "" {
			b.Fatal(head, err)
		}
	}
}

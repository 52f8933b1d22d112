package repo_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"e3/internal/repo"
)

// TestForeignRepository finds repositories of other users in folders above: planted there, they would decide what is run.
func TestForeignRepository(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give files to others: run it as root")
	}
	const stranger = 60123
	dir := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", filepath.Join(dir, "config"))
	t.Setenv("SUDO_UID", "")
	root, err := repo.Create(filepath.Join(dir, "up", repo.DirName))
	if err != nil {
		t.Fatal(err)
	}
	below := filepath.Join(dir, "up", "project", "sub")
	if err := os.MkdirAll(below, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Chdir(below)
	link := filepath.Join(below, repo.DirName)
	give := func(path string, uid int) {
		t.Helper()
		if err := os.Lchown(path, uid, uid); err != nil {
			t.Fatal(err)
		}
	}
	found := func(what string, want bool) {
		t.Helper()
		for _, find := range []func() (string, error){
			func() (string, error) { return repo.Find(".") },
			func() (string, error) { return repo.FindAbove(below) },
			func() (string, error) {
				r, err := repo.Open(t.Context(), ".", repo.Options{})
				if err != nil {
					return "", err
				}
				return r.Root, r.Close()
			},
		} {
			got, err := find()
			if want && err != nil || !want && !errors.Is(err, repo.ErrForeign) {
				t.Errorf("%s: found %q, %v", what, got, err)
			}
			if err != nil && !want && !strings.Contains(err.Error(), "60123") {
				t.Errorf("%s: the error names no owner: %v", what, err)
			}
		}
	}
	found("one's own", true)
	give(root, stranger)
	found("another's folder", false)
	t.Setenv("SUDO_UID", "60123")
	found("that of the user behind sudo", true)
	t.Setenv("SUDO_UID", "60124")
	found("that of neither", false)
	t.Setenv("SUDO_UID", "nonsense")
	found("with a number that is none", false)
	t.Setenv("SUDO_UID", "")
	if _, err := repo.Find(root); err != nil {
		t.Errorf("named: %v", err)
	}
	if _, err := repo.Find("../.."); err != nil {
		t.Errorf("named by the folder that it is in: %v", err)
	}
	if at, err := repo.Trust("../..", true); err != nil || at != root {
		t.Errorf("trusted: %s, %v", at, err)
	}
	found("trusted", true)
	if list, err := repo.TrustedRepositories(); err != nil || len(list) != 1 || list[0] != root {
		t.Errorf("trusted are %q, %v", list, err)
	}
	if info, err := os.Stat(filepath.Join(dir, "config", "e3", "safe-repositories")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the list: %v, %v", info, err)
	}
	if _, err := repo.Trust(root, false); err != nil {
		t.Error(err)
	}
	found("not trusted any more", false)
	give(root, 0)
	give(filepath.Join(root, "format.json"), stranger)
	found("another's format", false)
	give(filepath.Join(root, "format.json"), 0)
	found("one's own again", true)
	if err := os.Symlink(root, link); err != nil {
		t.Fatal(err)
	}
	found("a link of one's own", true)
	give(link, stranger)
	found("another's link", false)
	if _, err := repo.Trust(filepath.Join(dir, "nothing"), true); !errors.Is(err, repo.ErrNoRepository) {
		t.Errorf("trust in nothing: %v", err)
	}
}

//go:build unix

package modes_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"testing"

	"e3/internal/host/modes"
)

// under runs f with a umask. The umask is process-wide, so these tests cannot run in parallel.
func under(t *testing.T, umask int, f func()) {
	t.Helper()
	before := syscall.Umask(umask)
	defer syscall.Umask(before)
	f()
}

// repository makes the part of a repository that package modes uses.
func repository(t *testing.T, a modes.Access) (string, modes.Modes) {
	t.Helper()
	root := t.TempDir()
	m := modes.Of(a, root)
	if err := errors.Join(os.Chmod(root, m.Folder()), m.Mkdir(filepath.Join(root, "tmp"))); err != nil {
		t.Fatal(err)
	}
	return root, m
}

func wantMode(t *testing.T, path string, want fs.FileMode) {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil {
		t.Error(err)
	} else if got := info.Mode() & (fs.ModePerm | fs.ModeSetgid); got != want {
		t.Errorf("%s has the mode %v, want %v", path, got, want)
	}
}

// New files have the modes of their repository under any umask; without such modes the umask decides.
func TestModes(t *testing.T) {
	setgid := fs.FileMode(0)
	if runtime.GOOS == "linux" {
		setgid = fs.ModeSetgid
	}
	for _, umask := range []int{0, 0o002, 0o022, 0o027, 0o077} {
		off := fs.FileMode(umask)
		for access, want := range map[modes.Access][2]fs.FileMode{
			modes.Umask: {0o666 &^ off, 0o777 &^ off}, modes.Private: {0o600, 0o700}, modes.Group: {0o660, 0o770 | setgid}, modes.World: {0o664, 0o775 | setgid},
		} {
			t.Run(fmt.Sprintf("%s under %03o", access, umask), func(t *testing.T) {
				root, m := repository(t, access)
				under(t, umask, func() {
					deep, file := filepath.Join(root, "a", "b"), filepath.Join(root, "f")
					if err := errors.Join(m.MkdirAll(deep), m.MkdirAll(deep), m.Create(file)); err != nil {
						t.Fatal(err)
					}
					if err := m.Create(file); !errors.Is(err, fs.ErrExist) {
						t.Errorf("made a second time: error %v, want fs.ErrExist", err)
					}
					if err := m.Mkdir(deep); !errors.Is(err, fs.ErrExist) {
						t.Errorf("a folder made a second time: error %v, want fs.ErrExist", err)
					}
					if err := m.Mkdir(filepath.Join(root, "none", "b")); !errors.Is(err, fs.ErrNotExist) {
						t.Errorf("a folder below a missing one: error %v, want fs.ErrNotExist", err)
					}
					wantMode(t, file, want[0])
					wantMode(t, filepath.Dir(deep), want[1])
					wantMode(t, deep, want[1])
					if left, _ := os.ReadDir(filepath.Join(root, "tmp")); len(left) > 0 {
						t.Errorf("temporary folders remain: %v", left)
					}
				})
			})
		}
	}
}

// Other processes never see a folder or a file with a wrong mode. Concurrent makers of one folder all find it.
func TestModesAppear(t *testing.T) {
	root, m := repository(t, modes.Group)
	under(t, 0o077, func() {
		for i := range 200 {
			folder, file := filepath.Join(root, fmt.Sprint(i)), filepath.Join(root, fmt.Sprint(i, "f"))
			var all sync.WaitGroup
			for path, want := range map[string]fs.FileMode{folder: m.Folder(), file: m.File()} {
				all.Go(func() {
					for {
						info, err := os.Lstat(path)
						if errors.Is(err, fs.ErrNotExist) {
							runtime.Gosched()
							continue
						}
						if err != nil || info.Mode()&(fs.ModePerm|fs.ModeSetgid) != want {
							t.Errorf("%s appears as %v, %v, want %v", path, info.Mode(), err, want)
						}
						return
					}
				})
			}
			for range 3 {
				all.Go(func() {
					if err := m.MkdirAll(folder); err != nil {
						t.Error(err)
					}
				})
			}
			if err := m.Create(file); err != nil {
				t.Fatal(err)
			}
			all.Wait()
		}
	})
}

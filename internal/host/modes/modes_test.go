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

	"e3/internal/host/beneath"
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
func repository(t *testing.T, a modes.Access) (*beneath.Dir, modes.Modes) {
	t.Helper()
	root := t.TempDir()
	m := modes.Of(a, root)
	dir, err := beneath.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dir.Close() })
	if err := errors.Join(os.Chmod(root, m.Folder()), m.Mkdir(dir, "tmp")); err != nil {
		t.Fatal(err)
	}
	return dir, m
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
		for access, want := range map[modes.Access][3]fs.FileMode{
			modes.Umask:   {0o666 &^ off, 0o777 &^ off, 0o600 | 0o060&^(off&0o020|off&0o020<<1) | 0o006&^(off&0o002|off&0o002<<1)},
			modes.Private: {0o600, 0o700, 0o600}, modes.Group: {0o660, 0o770 | setgid, 0o660}, modes.World: {0o664, 0o775 | setgid, 0o660},
		} {
			t.Run(fmt.Sprintf("%s under %03o", access, umask), func(t *testing.T) {
				root, m := repository(t, access)
				under(t, umask, func() {
					deep, file := filepath.Join("a", "b"), "f"
					if err := errors.Join(m.MkdirAll(root, deep), m.MkdirAll(root, deep), m.Create(root, file), m.CreateLock(root, "l")); err != nil {
						t.Fatal(err)
					}
					if err := m.Create(root, file); !errors.Is(err, fs.ErrExist) {
						t.Errorf("made a second time: error %v, want fs.ErrExist", err)
					}
					if err := m.Mkdir(root, deep); !errors.Is(err, fs.ErrExist) {
						t.Errorf("a folder made a second time: error %v, want fs.ErrExist", err)
					}
					if err := m.Mkdir(root, filepath.Join("none", "b")); !errors.Is(err, fs.ErrNotExist) {
						t.Errorf("a folder below a missing one: error %v, want fs.ErrNotExist", err)
					}
					wantMode(t, root.Path(file), want[0])
					wantMode(t, root.Path("l"), want[2])
					wantMode(t, root.Path(filepath.Dir(deep)), want[1])
					wantMode(t, root.Path(deep), want[1])
					if left, _ := os.ReadDir(root.Path("tmp")); len(left) > 0 {
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
			folder, file := fmt.Sprint(i), fmt.Sprint(i, "f")
			var all sync.WaitGroup
			for path, want := range map[string]fs.FileMode{folder: m.Folder(), file: m.File()} {
				all.Go(func() {
					for {
						info, err := os.Lstat(root.Path(path))
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
					if err := m.MkdirAll(root, folder); err != nil {
						t.Error(err)
					}
				})
			}
			if err := m.Create(root, file); err != nil {
				t.Fatal(err)
			}
			all.Wait()
		}
	})
}

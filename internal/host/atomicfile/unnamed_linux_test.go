package atomicfile_test

import (
	"errors"
	"io"
	"io/fs"
	"path/filepath"
	"testing"

	"e3/internal/host/atomicfile"
)

// An unnamed file that can never get a name is copied to a named one.
func TestNewHiddenCopies(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	for _, tt := range []struct {
		text   string
		commit func(*atomicfile.File, string) error
		want   string // "" is the text
		exists bool
	}{
		{text: "first", commit: (*atomicfile.File).Create},
		{text: "second", commit: (*atomicfile.File).Create, want: "first", exists: true},
		{text: "third", commit: (*atomicfile.File).Replace},
	} {
		f, err := atomicfile.NewUnlinkable(dir, "f", 0o666)
		if err != nil {
			t.Skipf("a file system that has files without a name is needed: %v", err)
		}
		if _, err := io.WriteString(f, tt.text); err != nil {
			t.Fatal(err)
		}
		if err := tt.commit(f, path); errors.Is(err, fs.ErrExist) != tt.exists || !tt.exists && err != nil {
			t.Errorf("commit of %q: %v", tt.text, err)
		}
		if tt.want == "" {
			tt.want = tt.text
		}
		if got := read(t, path); got != tt.want {
			t.Errorf("file holds %q, want %q", got, tt.want)
		}
		wantNames(t, dir, "f")
	}
}

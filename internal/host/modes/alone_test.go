package modes_test

import (
	"os"
	"path/filepath"
	"testing"

	"e3/internal/host/modes"
	"e3/internal/testing/suite"
)

// A path is a user's alone if no folder on the way lets others put something else there.
func TestAlone(t *testing.T) {
	top := suite.OpenFolder(t)
	folder := func(mode os.FileMode, names ...string) string {
		path := filepath.Join(append([]string{top}, names...)...)
		if err := os.MkdirAll(path, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	open := folder(0o777, "open")
	sticky := folder(0o777|os.ModeSticky, "sticky")
	closed := folder(0o700, "closed")
	link := filepath.Join(top, "link")
	if err := os.Symlink(open, link); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{
		folder(0o755, "own"):                    true,
		filepath.Join(top, "own", "not", "yet"): true,
		open:                                    false,
		folder(0o700, "open", "private"):        false, // it can be renamed
		filepath.Join(open, "not", "yet"):       false,
		folder(0o700, "sticky", "private"):      true,
		filepath.Join(sticky, "not", "yet"):     true, // once another user has made it, it is seen
		folder(0o777, "closed", "open"):         true, // nobody else comes there
		closed:                                  true,
		filepath.Join(link, "private"):          false,
	} {
		if err := modes.Alone(path); (err == nil) != want {
			t.Errorf("%s: %v; want it alone: %v", path, err, want)
		}
	}
}

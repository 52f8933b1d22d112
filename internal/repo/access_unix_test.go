//go:build unix

package repo

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"e3/internal/host/modes"
)

// A repository that is made in a folder that is there gets its modes in all of it, whatever made that: an earlier init
// that was cut off had others; those of what its owner may not write stay so.
func TestInitThere(t *testing.T) {
	for access, want := range map[modes.Access]map[string]fs.FileMode{
		modes.Private: {".": 0o700, "objects": 0o700, "objects/x": 0o400, "tmp": 0o700, "tmp/left": 0o600, formatFile: 0o600},
		modes.Group:   {".": 0o770, "objects": 0o770, "objects/x": 0o440, "tmp": 0o770, "tmp/left": 0o660, formatFile: 0o660},
		modes.World:   {".": 0o775, "objects": 0o775, "objects/x": 0o444, "tmp": 0o775, "tmp/left": 0o664, formatFile: 0o664},
	} {
		for _, made := range []string{"not there", "there", "a link"} {
			t.Run(string(access)+" "+made, func(t *testing.T) {
				dir := t.TempDir()
				root := filepath.Join(dir, DirName)
				if made != "not there" {
					at := root
					if made == "a link" {
						at = filepath.Join(dir, "elsewhere")
						if err := os.Symlink(at, root); err != nil {
							t.Fatal(err)
						}
					}
					for _, name := range []string{"objects", "tmp"} {
						if err := os.MkdirAll(filepath.Join(at, name), 0o755); err != nil {
							t.Fatal(err)
						}
					}
					if err := errors.Join(os.WriteFile(filepath.Join(at, "objects", "x"), nil, 0o444), os.WriteFile(filepath.Join(at, "tmp", "left"), nil, 0o644),
						os.Symlink("/", filepath.Join(at, "away"))); err != nil {
						t.Fatal(err)
					}
				}
				c, err := Init(t.Context(), root, InitOptions{Access: access})
				if err != nil || c.Access != access || len(c.Advice) > 0 || (c.Group != "") != access.Shared() {
					t.Fatalf("init: %+v, %v", c, err)
				}
				for name, mode := range want {
					info, err := os.Stat(filepath.Join(root, name))
					if made == "not there" && errors.Is(err, fs.ErrNotExist) && strings.Count(name, "/") == 1 {
						continue
					}
					if err != nil || info.Mode().Perm() != mode {
						t.Errorf("%s: %v, %v, want the mode %v", name, info.Mode(), err, mode)
					}
				}
				if _, err := Init(t.Context(), root, InitOptions{Access: modes.Group}); !errors.Is(err, ErrExists) {
					t.Errorf("init again: %v, want an ErrExists", err)
				}
				r, err := Open(t.Context(), root, Options{})
				if err != nil {
					t.Fatal(err)
				}
				if got := r.Modes(); got != modes.Of(access, root) {
					t.Errorf("opened with the modes %+v", got)
				}
				if err := r.Close(); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// A repository says who can use it. One whose access this program does not know is refused.
func TestAccessOnRecord(t *testing.T) {
	for access, want := range map[modes.Access]string{
		modes.Private: `{"e3":"repository","version":1,"access":"private","sum":"`,
		modes.Group:   `{"e3":"repository","version":1,"access":"group","sum":"`,
		modes.World:   `{"e3":"repository","version":1,"access":"world","sum":"`,
	} {
		text, err := (&format{Access: access}).encode()
		if err != nil || !strings.HasPrefix(string(text), want) {
			t.Errorf("%q is %s, %v, want %s", access, text, err, want)
		}
		if f, err := decodeFormat(text, "here"); err != nil || f.Access != access {
			t.Errorf("%s is read as %+v, %v", text, f, err)
		}
	}
	text, err := (&format{Access: "friends"}).encode()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := decodeFormat(text, "here"); !errors.Is(err, ErrOtherFormat) {
		t.Errorf("%s is read with error %v, want an ErrOtherFormat", text, err)
	}
}

//go:build linux

package e2e

import (
	"archive/zip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// wholeZip reads a zip with another program's eyes: every entry to its end, with its checksum, and every object
// against its name. It returns the SHA-256 of the file.
func wholeZip(path string) (sum string, err error) {
	r, err := zip.OpenReader(path)
	if err != nil {
		return "", err
	}
	defer r.Close()
	objects := 0
	for _, f := range r.File {
		got, err := hashEntry(f)
		if err != nil {
			return "", fmt.Errorf("%s: %s: %w", path, f.Name, err)
		}
		if name, ok := strings.CutPrefix(f.Name, "objects/"); ok {
			objects++
			if strings.ReplaceAll(name, "/", "") != got {
				return "", fmt.Errorf("%s: %s holds %s", path, f.Name, got)
			}
		}
	}
	if objects == 0 {
		return "", fmt.Errorf("%s has %d entries and no object", path, len(r.File))
	}
	data, err := os.ReadFile(path)
	return hashOf(string(data)), err
}

func hashEntry(f *zip.File) (string, error) {
	r, err := f.Open()
	if err != nil {
		return "", err
	}
	defer r.Close()
	h := sha256.New()
	_, err = io.Copy(h, r)
	return hex.EncodeToString(h.Sum(nil)), err
}

// stateFolders are those whose files say what a repository holds.
var stateFolders = []string{"objects", "packages", "workspaces", "executions", "dataflows", "events", "tombstones", "pins", "settings"}

// dated are the files, and the fields of executions, that say when something was done to this repository.
var dated = []string{"provenance.beast2", "metadata.beast2"}

// contents are the hashes of the files that say what a repository holds, by their paths in it; "" for those with dates. Each
// field of an execution counts as a file.
func contents(t testing.TB, root string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, folder := range stateFolders {
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, d fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err != nil || d.IsDir() {
				return err
			}
			rel, err := filepath.Rel(root, path)
			if err != nil {
				return err
			}
			switch {
			case strings.HasSuffix(rel, "~sum"): // one that was not synced may be torn, which counts as none; check compares the others
			case folder == "objects": // their names are their content, which check looks at
				all[rel] = filepath.Base(filepath.Dir(rel)) + filepath.Base(rel)
			case folder == "tombstones", slices.Contains(dated, filepath.Base(rel)):
				all[rel] = ""
			default:
				data, err := os.ReadFile(path)
				if err != nil {
					return err
				}
				if folder != "executions" || filepath.Base(rel) != "status.beast2" {
					all[rel] = hashOf(string(data))
					return nil
				}
				within, err := parts(data)
				for name, part := range within {
					hash := ""
					if !slices.Contains(dated, name) {
						hash = hashOf(string(part))
					}
					all[filepath.Join(filepath.Dir(rel), name)] = hash
				}
				return err
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// difference says where two contents differ, "" if they do not.
func difference(got, want map[string]string) string {
	var lines []string
	for path, hash := range want {
		if is, ok := got[path]; !ok {
			lines = append(lines, path+" is not there")
		} else if is != hash {
			lines = append(lines, path+" is another")
		}
	}
	for path := range got {
		if _, ok := want[path]; !ok {
			lines = append(lines, path+" is there")
		}
	}
	slices.Sort(lines)
	if n := len(lines); n > 12 {
		lines = append(lines[:12], fmt.Sprintf("and %d more", n-12))
	}
	return strings.Join(lines, "\n  ")
}

// copyTree copies a folder with all times.
func copyTree(t testing.TB, from, to string) {
	t.Helper()
	if out, err := exec.Command("cp", "-a", from, to).CombinedOutput(); err != nil {
		t.Fatalf("copy %s: %v\n%s", from, err, out)
	}
}

// addGarbage puts objects into a repository that nothing names, and returns their names.
func addGarbage(t testing.TB, root string, n int, rnd *rand.Rand) []string {
	t.Helper()
	var names []string
	for i := range n {
		data := fmt.Appendf(nil, "garbage %d %d\n", i, rnd.Uint64())
		if i%50 == 0 {
			data = append(data, make([]byte, 100_000)...)
		}
		hash := hashOf(string(data))
		path := filepath.Join(root, "objects", hash[:2], hash[2:])
		err := os.MkdirAll(filepath.Dir(path), 0o777)
		if err == nil {
			err = os.WriteFile(path, data, 0o444)
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, hash)
	}
	return names
}

// addLeftovers puts folders into a repository as killed imports leave them: logs of executions without a record.
func addLeftovers(t testing.TB, root string, n int, rnd *rand.Rand) {
	t.Helper()
	for range n {
		hash := func() string { return hashOf(fmt.Sprint(rnd.Uint64())) }
		id := fmt.Sprintf("01900000-0000-7000-8000-%012x", rnd.Uint64()&0xffffffffffff)
		dir := filepath.Join(root, "executions", hash(), hash(), id)
		err := os.MkdirAll(dir, 0o777)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, "stdout.txt"), make([]byte, 70_000), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// must runs e3 and expects it to end well.
func (p *project) must(args ...string) result {
	p.t.Helper()
	return p.exits(0, args...)
}

// exits runs e3 and expects an exit code.
func (p *project) exits(want int, args ...string) result {
	p.t.Helper()
	r := p.e3(args...)
	if r.code != want {
		p.t.Fatalf("e3 %q: exit code %d, want %d\n%s", args, r.code, want, r.text())
	}
	return r
}

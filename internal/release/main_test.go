package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"e3/internal/testing/suite"
)

// TestRelease builds an archive and a wheel twice, in two folders: the bytes are the same, and everything is in it.
func TestRelease(t *testing.T) {
	suite.Thorough(t)
	t.Chdir("../..")
	system := runtime.GOOS + "/" + runtime.GOARCH
	name := "e3-1.2.3-" + strings.ReplaceAll(system, "/", "-")
	var sums [2]string
	for i := range sums {
		dir := t.TempDir()
		if err := run([]string{"-dir", dir, "-only", system, "1.2.3"}, io.Discard); err != nil {
			t.Fatal(err)
		}
		content, err := os.ReadFile(filepath.Join(dir, name+".tar.gz"))
		if err != nil {
			t.Fatal(err)
		}
		list, err := os.ReadFile(filepath.Join(dir, "SHA256SUMS"))
		if err != nil {
			t.Fatal(err)
		}
		wheels, err := filepath.Glob(filepath.Join(dir, "e3-1.2.3-py3-none-*.whl"))
		if err != nil || len(wheels) != 1 {
			t.Fatalf("%d wheels (%v), want 1", len(wheels), err)
		}
		wheel, err := os.ReadFile(wheels[0])
		if err != nil {
			t.Fatal(err)
		}
		sums[i] = fmt.Sprintf("%x  %s.tar.gz\n%x  %s\n", sha256.Sum256(content), name, sha256.Sum256(wheel), filepath.Base(wheels[0]))
		if string(list) != sums[i] {
			t.Errorf("SHA256SUMS is %q, want %q", list, sums[i])
		}
		if i == 0 {
			checkArchive(t, name, content)
		}
	}
	if sums[0] != sums[1] {
		t.Errorf("two builds of one commit differ: %s, %s", sums[0], sums[1])
	}
}

func checkArchive(t *testing.T, name string, content []byte) {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	have := map[string][]byte{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if have[strings.TrimPrefix(h.Name, name+"/")], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{"e3", "README.md", "LICENSE", "man/man1/e3.1", "man/man1/e3-start.1", "completions/e3.bash"} {
		if len(have[want]) == 0 && len(have[want+".exe"]) == 0 {
			t.Errorf("the archive lacks %s", want)
		}
	}
	var parts struct{ Components []component }
	if err := json.Unmarshal(have["sbom.cdx.json"], &parts); err != nil || len(parts.Components) < 20 {
		t.Errorf("the list of parts has %d components (%v), want more", len(parts.Components), err)
	}
}

// A release has a version.
func TestVersionIsNeeded(t *testing.T) {
	for _, args := range [][]string{nil, {"v1"}, {"1.2"}, {"1.2.3", "x"}} {
		if err := run(args, io.Discard); err == nil || !strings.Contains(err.Error(), "say the version") {
			t.Errorf("%q: %v, want an error that asks for the version", args, err)
		}
	}
}

package main

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// module is the Python module beside the program.
//
//go:embed python/e3/__init__.py python/e3/py.typed
var module embed.FS

// platforms are the tags of wheels by system. The program for Linux is static, so it runs with any C library; that for macOS needs
// what Go needs.
var platforms = map[string][]string{
	"linux/amd64":  {"manylinux2014_x86_64", "manylinux_2_17_x86_64", "musllinux_1_1_x86_64"},
	"linux/arm64":  {"manylinux2014_aarch64", "manylinux_2_17_aarch64", "musllinux_1_1_aarch64"},
	"darwin/amd64": {"macosx_12_0_x86_64"},
	"darwin/arm64": {"macosx_12_0_arm64"},
}

// preRelease is a pre-release of Semantic Versioning that Python has a notation for.
var preRelease = regexp.MustCompile(`^(\d+\.\d+\.\d+)-(alpha|beta|rc)\.?(\d*)$`)

// pythonVersion is a version in the notation of Python: 0.3.0rc1 for 0.3.0-rc.1. Others than alpha, beta and rc are development
// versions.
func pythonVersion(version string) string {
	if m := preRelease.FindStringSubmatch(version); m != nil {
		number := m[3]
		if number == "" {
			number = "0"
		}
		return m[1] + map[string]string{"alpha": "a", "beta": "b", "rc": "rc"}[m[2]] + number
	}
	base, rest, found := strings.Cut(version, "-")
	if !found {
		return version
	}
	return base + ".dev0+" + strings.Trim(regexp.MustCompile(`[^0-9A-Za-z]+`).ReplaceAllString(rest, "."), ".")
}

// wheel writes the wheel for a system (packaging.python.org, "Binary distribution format") and returns its name.
func (r *release) wheel(system string, program []byte) (name string, err error) {
	tags := platforms[system]
	if tags == nil {
		return "", errors.New("no wheel has a tag for this system")
	}
	version := pythonVersion(r.version)
	base := "e3-" + version
	var files []file
	err = fs.WalkDir(module, "python", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := module.ReadFile(path)
		files = append(files, file{strings.TrimPrefix(path, "python/"), 0o644, content})
		return err
	})
	if err != nil {
		return "", err
	}
	wheel := "Wheel-Version: 1.0\nGenerator: e3\nRoot-Is-Purelib: false\n"
	for _, tag := range tags {
		wheel += "Tag: py3-none-" + tag + "\n"
	}
	license, err := os.ReadFile("LICENSE")
	if err != nil {
		return "", err
	}
	metadata := "Metadata-Version: 2.1\nName: e3\nVersion: " + version + "\nSummary: Pipelines of ordinary commands that never do the same work twice\n" +
		"License: Apache-2.0\nLicense-File: LICENSE\nRequires-Python: >=3.9\n"
	about := base + ".dist-info/"
	files = append(files, file{base + ".data/scripts/e3", 0o755, program}, file{about + "LICENSE", 0o644, license},
		file{about + "METADATA", 0o644, []byte(metadata)}, file{about + "WHEEL", 0o644, []byte(wheel)})
	name = base + "-py3-none-" + strings.Join(tags, ".") + ".whl"
	content, err := wheelOf(files, about+"RECORD")
	if err != nil {
		return "", err
	}
	return name, os.WriteFile(filepath.Join(r.dir, name), content, 0o644)
}

// wheelOf is a zip of files with a record of their sums at its end, and with fixed times.
func wheelOf(files []file, record string) ([]byte, error) {
	var out, sums bytes.Buffer
	for _, f := range files {
		sum := sha256.Sum256(f.content)
		fmt.Fprintf(&sums, "%s,sha256=%s,%d\n", f.name, base64.RawURLEncoding.EncodeToString(sum[:]), len(f.content))
	}
	sums.WriteString(record + ",,\n")
	z := zip.NewWriter(&out)
	for _, f := range append(files, file{record, 0o644, sums.Bytes()}) {
		header := &zip.FileHeader{Name: f.name, Method: zip.Deflate, Modified: time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC)}
		header.SetMode(fs.FileMode(f.mode))
		w, err := z.CreateHeader(header)
		if err != nil {
			return nil, err
		}
		if _, err := w.Write(f.content); err != nil {
			return nil, err
		}
	}
	err := z.Close()
	return out.Bytes(), err
}

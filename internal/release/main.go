// Command release builds what is published of e3: for each system an archive with a static, stripped program, its manual
// pages, completions and a list of its parts (SBOM), and a wheel, which Python's installers put on the PATH with a module that reads
// results; and the SHA-256 of each of them.
//
// It is reproducible: the same commit, version and Go give the same bytes, in any folder and on any machine.
package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"
)

// systems are those for which e3 is published.
var systems = []string{"linux/amd64", "linux/arm64", "darwin/amd64", "darwin/arm64"}

// shells are those for which the program prints a completion script.
var shells = []string{"bash", "zsh", "fish", "powershell"}

// documents go into each archive.
var documents = []string{"README.md", "LICENSE", "CHANGELOG.md"}

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintf(os.Stderr, "release: %v\n", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	dir := flags.String("dir", filepath.Join("dist", "release"), "where to write")
	only := flags.String("only", strings.Join(systems, ","), "systems, as os/arch")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() != 1 || !regexp.MustCompile(`^\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$`).MatchString(flags.Arg(0)) {
		return errors.New("say the version, as 0.3.0: ./release 0.3.0")
	}
	if err := os.MkdirAll(*dir, 0o755); err != nil {
		return err
	}
	scratch, err := os.MkdirTemp("", "e3-release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	r := &release{version: flags.Arg(0), dir: *dir, scratch: scratch}
	if err := r.extras(); err != nil {
		return err
	}
	sums := &bytes.Buffer{}
	for system := range strings.SplitSeq(*only, ",") {
		names, err := r.system(system)
		if err != nil {
			return fmt.Errorf("%s: %w", system, err)
		}
		for _, name := range names {
			content, err := os.ReadFile(filepath.Join(*dir, name))
			if err != nil {
				return err
			}
			fmt.Fprintf(sums, "%x  %s\n", sha256.Sum256(content), name)
			fmt.Fprintf(out, "%s  %.1f MB\n", name, float64(len(content))/1e6)
		}
	}
	return os.WriteFile(filepath.Join(*dir, "SHA256SUMS"), sums.Bytes(), 0o644)
}

// A release is being built.
type release struct {
	version string
	dir     string // of the archives
	scratch string
	files   []file // of every archive
}

// A file of an archive.
type file struct {
	name    string
	mode    int64
	content []byte
}

// build compiles the program for a system.
func (r *release) build(system string) (path string, err error) {
	goos, goarch, found := strings.Cut(system, "/")
	if !found {
		return "", errors.New("a system is os/arch")
	}
	path = filepath.Join(r.scratch, goos+"-"+goarch)
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w -buildid= -X main.version="+r.version, "-o", path, "e3/cmd/e3")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+goos, "GOARCH="+goarch, "GOFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return path, nil
}

// extras gathers what is the same for every system: documents, manual pages, and completions.
func (r *release) extras() error {
	program, err := r.build(runtime.GOOS + "/" + runtime.GOARCH)
	if err != nil {
		return err
	}
	for _, name := range documents {
		content, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		r.files = append(r.files, file{name, 0o644, content})
	}
	man := filepath.Join(r.scratch, "man")
	if out, err := exec.Command(program, "man", "--dir", man).CombinedOutput(); err != nil {
		return fmt.Errorf("manual pages: %w\n%s", err, out)
	}
	pages, err := fs.Glob(os.DirFS(man), "*.1")
	if err != nil {
		return err
	}
	for _, page := range pages {
		content, err := os.ReadFile(filepath.Join(man, page))
		if err != nil {
			return err
		}
		r.files = append(r.files, file{"man/man1/" + page, 0o644, content})
	}
	for _, shell := range shells {
		content, err := exec.Command(program, "completion", shell).Output()
		if err != nil {
			return fmt.Errorf("completion of %s: %w", shell, err)
		}
		r.files = append(r.files, file{"completions/e3." + shell, 0o644, content})
	}
	return nil
}

// system writes the archive and the wheel for a system, and returns their names.
func (r *release) system(system string) (names []string, err error) {
	path, err := r.build(system)
	if err != nil {
		return nil, err
	}
	program, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	archive, err := r.archive(system, path, program)
	if err != nil {
		return nil, err
	}
	wheel, err := r.wheel(system, program)
	return []string{archive, wheel}, err
}

// archive writes the archive for a system and returns its name.
func (r *release) archive(system, path string, program []byte) (name string, err error) {
	parts, err := billOfMaterials(path, r.version)
	if err != nil {
		return "", err
	}
	base := "e3-" + r.version + "-" + strings.ReplaceAll(system, "/", "-")
	files := append(slices.Clone(r.files), file{"e3", 0o755, program}, file{"sbom.cdx.json", 0o644, parts})
	slices.SortFunc(files, func(a, b file) int { return strings.Compare(a.name, b.name) })
	var out bytes.Buffer
	if err := writeArchive(&out, base, files); err != nil {
		return "", err
	}
	return base + ".tar.gz", os.WriteFile(filepath.Join(r.dir, base+".tar.gz"), out.Bytes(), 0o644)
}

// writeArchive writes files below a folder, with fixed times and owners.
func writeArchive(w io.Writer, folder string, files []file) error {
	z, err := gzip.NewWriterLevel(w, gzip.BestCompression)
	if err != nil {
		return err
	}
	t := tar.NewWriter(z)
	for _, f := range files {
		header := &tar.Header{Name: folder + "/" + f.name, Mode: f.mode, Size: int64(len(f.content)), ModTime: time.Unix(0, 0), Format: tar.FormatUSTAR}
		if err := t.WriteHeader(header); err != nil {
			return err
		}
		if _, err := t.Write(f.content); err != nil {
			return err
		}
	}
	return errors.Join(t.Close(), z.Close())
}

package examples_test

import (
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"e3/internal/testing/suite"
)

// makes returns the files of a project that are not of its example: what a run of e3 or of a peer has left there.
func (p *project) makes(example string) map[string]string {
	p.t.Helper()
	hidden := []string{".e3", ".snakemake", ".nextflow", ".nextflow.log", "work", ".venv", "uv.lock", "__pycache__"}
	all := map[string]string{}
	err := fs.WalkDir(os.DirFS(p.dir), ".", func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if slices.Contains(hidden, e.Name()) && e.IsDir() {
			return fs.SkipDir
		}
		if _, err := os.Stat(filepath.Join(example, path)); err == nil || e.IsDir() || slices.Contains(hidden, e.Name()) {
			return nil
		}
		all[path] = p.read(path)
		return nil
	})
	if err != nil {
		p.t.Fatal(err)
	}
	return all
}

// like runs the same pipeline with a peer in another copy, and compares all files that the two have left. A peer that is not
// installed is left out by name. The copy gets the example and these files of the project.
func (p *project) like(example, get string, argv []string, files ...string) {
	p.t.Run(argv[0], func(t *testing.T) {
		if argv[0] != "make" {
			suite.Thorough(t) // these programs take seconds to begin
		}
		if _, err := exec.LookPath(argv[0]); err != nil {
			t.Skipf("%s is missing, so its side is not run: install it (%s)", argv[0], get)
		}
		other := newProject(t, example)
		for _, name := range files {
			other.edit(name, func(string) string { return p.read(name) })
		}
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Dir = other.dir
		cmd.Env = append(os.Environ(), "HOME="+t.TempDir(), "XDG_CACHE_HOME="+t.TempDir(), "LC_ALL=C.UTF-8", "MAKEFLAGS=")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", strings.Join(argv, " "), err, out)
		}
		got, want := p.makes(example), other.makes(example)
		if len(want) == 0 || !maps.Equal(got, want) {
			t.Errorf("e3 has made %q\n%s makes %q", got, argv[0], want)
		}
	})
}

// TestVariants: of the pipeline with one parameter edited, the call and what follows runs; with a comment, nothing.
func TestVariants(t *testing.T) {
	p := newProject(t, "variants")
	p.starts("0 cached, 11 executed", "-f", "e3.yaml")
	p.has("calls/all.tsv", "00041")
	p.like("variants", "pip install snakemake", []string{"snakemake", "-s", "peers/Snakefile", "--cores", "2", "--quiet"})
	p.edit("config.yaml", appended("# a comment\n"))
	p.starts("11 cached, 0 executed")
	p.edit("config.yaml", func(was string) string { return strings.Replace(was, "least: 2", "least: 4", 1) })
	p.starts("9 cached, 2 executed")
	p.edit("config.yaml", func(was string) string { return strings.Replace(was, "least: 4", "least: 2", 1) })
	p.starts("11 cached, 0 executed")
}

// TestWords: a book more is counted alone, and a program that changes counts all of them.
func TestWords(t *testing.T) {
	p := newProject(t, "words")
	p.starts("0 cached, 4 executed", "-f", "e3.yaml")
	p.has("results.txt", "harbour 5 3 1.67")
	p.like("words", "Debian: apt-get install make", []string{"make", "-s", "-f", "peers/Makefile"})
	p.edit("books/spring.txt", func(string) string { return "rain and rain and rain\n" })
	p.starts("3 cached, 2 executed")
	p.has("results.txt", "spring 3 2 1.50")
	p.edit("scripts/count.awk", appended("# edited\n"))
	p.starts("1 cached, 4 executed")
}

// TestSheet: an edit of a row's file runs its row, and that of a column only the tasks that have it as a variable.
func TestSheet(t *testing.T) {
	p := newProject(t, "sheet")
	p.starts("0 cached, 7 executed", "-f", "e3.yaml")
	p.has("report.csv", "z,forward,100")
	p.like("sheet", "pip install nextflow; it needs Java and curl", []string{"nextflow", "-q", "run", "peers/main.nf"})
	p.edit("raw/second/z_R2.fq", appended("@z.9\nACGTACGTACGT\n+\nIIIIIIIIIIII\n"))
	p.starts("4 cached, 3 executed")
	p.has("report.csv", "z,forward,110")
	p.edit("samples.csv", func(was string) string { return strings.Replace(was, "x_R2.fq,forward", "x_R2.fq,reverse", 1) })
	p.starts("5 cached, 2 executed")
	p.has("report.csv", "x,reverse,60")
}

package examples_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// lines counts the lines of a file that are neither empty nor a comment; 0 where there is none.
func lines(t *testing.T, path string) (n int) {
	t.Helper()
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0
	}
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			n++
		}
	}
	return n
}

// TestNoLongerThanPeers: the package file of each example is at most as long as the same pipeline for Snakemake, DVC and
// Nextflow, and the table in the documents has the numbers. A Makefile names no inputs and is shorter.
func TestNoLongerThanPeers(t *testing.T) {
	doc, err := os.ReadFile("../doc/package-file.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"genomics", "folds", "levels", "variants", "sheet", "words", "uv"} {
		own := lines(t, filepath.Join(name, "e3.yaml"))
		row := fmt.Sprintf("[%s](../examples/%s) | %d |", name, name, own)
		for _, file := range []string{"Snakefile", "dvc.yaml", "main.nf", "Makefile"} {
			n := lines(t, filepath.Join(name, "peers", file))
			if n == 0 {
				row += " –"
			} else {
				row += fmt.Sprintf(" [%d](../examples/%s/peers/%s)", n, name, file)
			}
			if row += " |"; n > 0 && n < own && file != "Makefile" {
				t.Errorf("%s: e3.yaml has %d lines, and %s %d", name, own, file, n)
			}
		}
		if !strings.Contains(string(doc), row) {
			t.Errorf("doc/package-file.md lacks the row %q", row)
		}
	}
}

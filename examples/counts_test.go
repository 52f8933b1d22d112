package examples_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"e3/internal/format/manifest"
)

// TestCounts compares the numbers of tasks in README.md with the package files.
func TestCounts(t *testing.T) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	words := []string{"no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"}
	rows := regexp.MustCompile(`(?m)^\| \[(\w+)\]\(\w+\) \|.* of (\w+) tasks`).FindAllStringSubmatch(string(text), -1)
	if len(rows) == 0 {
		t.Fatal("README.md counts no tasks")
	}
	for _, row := range rows {
		def, err := manifest.ParseFile(filepath.Join(row[1], manifest.FileName))
		if err != nil {
			t.Fatal(err)
		}
		if n := slices.Index(words, row[2]); n != len(def.Tasks) {
			t.Errorf("README.md says that %s has %s tasks; it has %d", row[1], row[2], len(def.Tasks))
		}
	}
}

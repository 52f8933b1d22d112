package doc_test

import (
	"os"
	"path"
	"regexp"
	"strings"
	"testing"
)

// TestLifeOfATask finds each file that life-of-a-task.md names. A bare name lies in the folder of its section's heading.
func TestLifeOfATask(t *testing.T) {
	files := regexp.MustCompile("`([a-z0-9_/]+\\.go)`")
	folder, n := "", 0
	for line := range strings.Lines(read(t, "life-of-a-task.md")) {
		for _, m := range files.FindAllStringSubmatch(line, -1) {
			name := m[1]
			if strings.HasPrefix(line, "## ") {
				folder = path.Dir(name)
			}
			if !strings.Contains(name, "/") {
				name = path.Join(folder, name)
			}
			if _, err := os.Stat(path.Join("..", name)); err != nil {
				t.Errorf("life-of-a-task.md names %s: %v", name, err)
			}
			n++
		}
	}
	if n < 30 {
		t.Errorf("life-of-a-task.md names %d files, want more", n)
	}
}

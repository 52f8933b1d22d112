package doc_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"e3/internal/testing/built"
)

// TestTutorial runs the commands of tutorial.md.
func TestTutorial(t *testing.T) {
	follow(t, read(t, "tutorial.md"), "bash", "awk")
}

// TestExperiments runs the commands of experiments.md.
func TestExperiments(t *testing.T) {
	follow(t, read(t, "experiments.md"), "bash", "awk")
}

// packages are those of Debian that have the programs which documents need.
var packages = map[string]string{"bash": "bash", "awk": "mawk", "python3": "python3"}

// follow writes the files that a document shows, runs its commands in order, and compares what they print.
func follow(t *testing.T, document string, needs ...string) {
	t.Helper()
	for _, name := range needs {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("%s is missing: install it (Debian: apt-get install %s)", name, packages[name])
		}
	}
	reader := &reader{t: t, dir: t.TempDir(), env: append(os.Environ(),
		"PATH="+filepath.Dir(built.Program(t))+string(os.PathListSeparator)+os.Getenv("PATH"), "HOME="+t.TempDir(), "E3_REPO=")}
	// A fence follows the name of a file, or begins a transcript.
	parts := regexp.MustCompile("(?s)<!-- file: ([^ ]+) -->\n```[a-z]*\n(.*?)```|```console\n(.*?)```").FindAllStringSubmatch(document, -1)
	if len(parts) < 4 {
		t.Fatalf("the document has %d files and transcripts, want more", len(parts))
	}
	for _, part := range parts {
		if name, content := part[1], part[2]; name != "" {
			if err := os.WriteFile(filepath.Join(reader.dir, name), []byte(content), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		reader.plays(part[3])
	}
}

// A reader follows a document in a folder.
type reader struct {
	t   *testing.T
	dir string
	env []string
}

// plays runs the lines of a transcript that begin with "$ " and compares what they print with the lines that follow. A
// line that is "…" stands for any number of lines, and one that ends so for any end.
func (r *reader) plays(transcript string) {
	r.t.Helper()
	for _, step := range strings.Split("\n"+transcript, "\n$ ")[1:] {
		command, want, _ := strings.Cut(step, "\n")
		got := r.run(command)
		pattern := regexp.QuoteMeta(settled("\n" + strings.TrimSuffix(want, "\n")))
		pattern = strings.ReplaceAll(strings.ReplaceAll(pattern, "\n…", `(\n.*)*`), "…", ".*")
		if want == "" {
			continue
		}
		if !regexp.MustCompile("^" + pattern + "\n*$").MatchString(settled("\n" + got)) {
			r.t.Fatalf("%q prints:\n%s\nthe document has:\n%s", command, got, want)
		}
	}
}

// run gives one command to a shell and remembers the folder in which it ended.
func (r *reader) run(command string) string {
	r.t.Helper()
	where := filepath.Join(r.t.TempDir(), "pwd")
	c := exec.Command("bash", "-c", command+"\nend=$?; pwd > \"$0\"; exit $end", where)
	c.Dir, c.Env = r.dir, r.env
	out, err := c.CombinedOutput()
	if err != nil {
		r.t.Fatalf("%s: %v\n%s", command, err, out)
	}
	dir, err := os.ReadFile(where)
	if err != nil {
		r.t.Fatal(err)
	}
	r.dir = strings.TrimSuffix(string(dir), "\n")
	return string(out)
}

// settled replaces what differs from run to run: ids, durations, and the width of columns.
func settled(text string) string {
	for _, part := range []struct{ pattern, by string }{
		{`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}(-[0-9a-f]{4}-[0-9a-f]{12})?`, "ID"},
		{`\b[0-9]+(\.[0-9]+)?m?s\b`, "TIME"},
		{` +`, " "},
	} {
		text = regexp.MustCompile(part.pattern).ReplaceAllString(text, part.by)
	}
	return text
}

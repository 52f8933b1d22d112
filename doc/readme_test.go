package doc_test

import (
	"maps"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"e3/internal/format/manifest"
	"e3/internal/testing/built"
)

// TestReadmeCommands compares the table of commands with the program.
func TestReadmeCommands(t *testing.T) {
	program := built.Program(t)
	usage := func(args ...string) string {
		out, err := exec.Command(program, append(args, "--help")...).CombinedOutput()
		if err != nil {
			t.Errorf("e3 %s --help: %v\n%s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	// A row begins with the command line: words, then what is to be filled in.
	rows := regexp.MustCompile("(?m)^\\| `e3 ([^`]+)`").FindAllStringSubmatch(read(t, "../README.md"), -1)
	named := map[string]bool{}
	for _, row := range rows {
		var words []string
		for _, word := range strings.Fields(row[1]) {
			if !regexp.MustCompile(`^[a-z]+$`).MatchString(word) {
				break
			}
			words = append(words, word)
		}
		named[words[0]] = true
		for _, word := range strings.Split(words[len(words)-1], "|") {
			path := append(slices.Clone(words[:len(words)-1]), word)
			if help := usage(path...); !strings.Contains(help, "e3 "+strings.Join(path, " ")) {
				t.Errorf("README.md has the command %q, which the program does not know", "e3 "+strings.Join(path, " "))
			}
		}
	}
	commands := regexp.MustCompile(`(?m)^  ([a-z]+) +[A-Z]`).FindAllStringSubmatch(usage(), -1)
	if len(commands) < 10 {
		t.Fatalf("e3 --help names %d commands, want more:\n%s", len(commands), usage())
	}
	for _, c := range commands {
		if c[1] != "help" && !named[c[1]] {
			t.Errorf("the command %q is not in the table of README.md", "e3 "+c[1])
		}
	}
}

// TestReadmeExitCodes compares the table of exit codes with the program's.
func TestReadmeExitCodes(t *testing.T) {
	codes := func(text, pattern string) []string {
		found := map[string]bool{}
		for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
			found[m[1]] = true
		}
		return slices.Sorted(maps.Keys(found))
	}
	_, section, _ := strings.Cut(read(t, "../README.md"), "\n## Exit codes\n")
	section, _, _ = strings.Cut(section, "\n## ")
	got := codes(section, `(?m)^\| (\d+) \|`)
	want := codes(read(t, "../cmd/e3/errors.go"), `(?m)^\texit[A-Z]\w+ += (\d+)`)
	if len(want) < 5 || !slices.Equal(got, want) {
		t.Errorf("README.md has the exit codes %v, the program %v", got, want)
	}
}

// TestTeamTasks reads the tasks that team.md shows without a package around them.
func TestTeamTasks(t *testing.T) {
	_, shown, _ := strings.Cut(read(t, "team.md"), "\n## Running on more than one machine\n")
	_, shown, _ = strings.Cut(shown, "```yaml\n")
	shown, _, found := strings.Cut(shown, "```")
	if !found {
		t.Fatal("team.md shows no tasks")
	}
	d, err := manifest.Parse("team.md", []byte("e3: 1\nname: p\ntasks:\n"+shown))
	if err != nil {
		t.Fatal(err)
	}
	if p := d.Tasks[0].Policy; p.OOM.Factor != 2 || p.Queue == "" || !d.Tasks[1].Policy.Approve {
		t.Errorf("the tasks are read as %+v and %+v", p, d.Tasks[1].Policy)
	}
}

// TestReadmeExample makes the pipeline that README.md begins with, and runs its commands.
func TestReadmeExample(t *testing.T) {
	text, _, _ := strings.Cut(read(t, "../README.md"), "\n## The ideas\n")
	follow(t, text, "bash", "python3")
}

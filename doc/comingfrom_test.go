package doc_test

import (
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"e3/internal/testing/built"
	"e3/internal/testing/suite"
)

// A peer is a program whose idioms coming-from.md shows.
type peer struct {
	file string   // as which its side of a pair is saved
	argv []string // runs it
	get  string   // how it is installed
	own  []string // names that it leaves beside the results
}

// peers are the programs by the language of their fences.
var peers = map[string]peer{
	"python": {"Snakefile", []string{"snakemake", "--cores", "2", "--quiet"},
		"pip install snakemake", []string{".snakemake", ".snakemake_timestamp", "logs"}},
	"make": {"Makefile", []string{"make", "-s"}, "Debian: apt-get install make", nil},
	"groovy": {"main.nf", []string{"nextflow", "-q", "run", "main.nf", "-ansi-log", "false"},
		"pip install nextflow; it needs Java and curl", []string{"work", ".nextflow", ".nextflow.log"}},
}

// A pair is an idiom of a peer beside that of e3.
type pair struct {
	section, heading string
	file, content    string // one file that both make, with its words
	language         string
	theirs, ours     string
}

// pairs returns the idioms of coming-from.md, and the commands that make the files with which they begin.
func pairs(t *testing.T) (all []pair, begin string) {
	t.Helper()
	text := read(t, "coming-from.md")
	section, title := "", ""
	token := regexp.MustCompile("(?ms)^(##+) ([^\n]+)$|^<!-- (\\S+): ([^\n]*) -->\n" +
		"```([a-z]+)\n(.*?)^```\n\n```yaml\n(.*?)^```|^```console\n(.*?)^```")
	for _, m := range token.FindAllStringSubmatch(text, -1) {
		switch {
		case m[1] == "##":
			section, title = m[2], m[2]
		case m[1] != "":
			title = m[2]
		case m[8] != "":
			begin = strings.ReplaceAll("\n"+m[8], "\n$ ", "\n")
		default:
			all = append(all, pair{section, title, m[3], m[4], m[5], m[6], m[7]})
		}
	}
	if fences := strings.Count(text, "\n```yaml\n"); len(all) != fences || fences < 20 || begin == "" {
		t.Fatalf("coming-from.md has %d package files and %d pairs, want at least 20 and each in a pair", fences, len(all))
	}
	return all, begin
}

// made runs a command in a new folder with the files of the page and one more, and returns the files that it leaves there.
func made(t *testing.T, begin, name, text string, own []string, argv ...string) map[string]string {
	t.Helper()
	dir := t.TempDir()
	run := func(argv ...string) {
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "E3_REPO=", "HOME="+t.TempDir(), "XDG_CACHE_HOME="+t.TempDir(),
			"LC_ALL=C.UTF-8", "MAKEFLAGS=")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s\nof\n%s", strings.Join(argv, " "), err, out, text)
		}
	}
	run("bash", "-euc", begin)
	before := files(t, dir)
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	run(argv...)
	after := files(t, dir)
	maps.DeleteFunc(after, func(path, content string) bool {
		was, there := before[path]
		owns := func(part string) bool { return slices.Contains(own, part) }
		return path == name || slices.ContainsFunc(strings.Split(path, "/"), owns) || there && was == content
	})
	return after
}

// files returns the content of each file below a folder by its path.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := fs.WalkDir(os.DirFS(dir), ".", func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(filepath.Join(dir, path))
		all[path] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestComingFrom runs both sides of each pair, and compares all files that they leave in the project. The side of a
// program that is not installed is left out by name.
func TestComingFrom(t *testing.T) {
	all, begin := pairs(t)
	program := built.Program(t)
	for _, p := range all {
		t.Run(p.section+"/"+p.heading, func(t *testing.T) {
			t.Parallel()
			head := "e3: 1\nname: pair\n"
			if !strings.HasPrefix(p.ours, "results:") {
				head += "results: .\n"
			}
			got := made(t, begin, "e3.yaml", head+p.ours, []string{".e3"}, program, "start", "-f", "e3.yaml")
			if words := strings.Join(strings.Fields(got[p.file]), " "); words != p.content {
				t.Errorf("e3 makes %s with %q, the page says %q; all that it makes: %q", p.file, words, p.content, got)
			}
			other, known := peers[p.language]
			if !known {
				t.Fatalf("a pair in the language %q, want one of %q", p.language, slices.Sorted(maps.Keys(peers)))
			}
			if p.language != "make" {
				suite.Thorough(t) // these programs take seconds to begin
			}
			if _, err := exec.LookPath(other.argv[0]); err != nil {
				t.Skipf("%s is missing, so its side is not run: install it (%s)", other.argv[0], other.get)
			}
			want := made(t, begin, other.file, p.theirs, other.own, other.argv...)
			if !maps.Equal(got, want) {
				t.Errorf("e3 makes %q\n%s makes %q", got, other.argv[0], want)
			}
		})
	}
}

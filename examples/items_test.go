// Package examples_test runs the examples whose graphs depend on data with the e3 program, changes the data, and counts what
// runs.
package examples_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	_ "e3/internal/repo" // for the cache of go test: what the program is made of
	"e3/internal/testing/built"
)

// A project is a copy of an example.
type project struct {
	t            *testing.T
	dir, program string
}

func newProject(t *testing.T, name string, needs ...string) *project {
	t.Helper()
	for _, program := range append(needs, "bash", "awk") {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("the example's tasks need %s: install it", program)
		}
	}
	p := &project{t: t, dir: filepath.Join(t.TempDir(), name), program: built.Program(t)}
	if err := os.CopyFS(p.dir, os.DirFS(name)); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *project) e3(args ...string) string {
	p.t.Helper()
	out, err := p.try(args...)
	if err != nil {
		p.t.Fatalf("e3 %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// try is e3 for a command that may fail.
func (p *project) try(args ...string) (string, error) {
	cmd := exec.Command(p.program, args...)
	cmd.Dir = p.dir
	cmd.Env = append(os.Environ(), "E3_REPO=")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// starts runs the example and demands these counts.
func (p *project) starts(want string, args ...string) {
	p.t.Helper()
	if out := p.e3(append([]string{"start"}, args...)...); !strings.Contains(out, want) {
		p.t.Errorf("e3 start %s printed:\n%s\nwant %q in it", strings.Join(args, " "), out, want)
	}
}

func (p *project) edit(name string, change func(string) string) {
	p.t.Helper()
	path := filepath.Join(p.dir, name)
	data, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(change(string(data))), 0o644); err != nil {
		p.t.Fatal(err)
	}
}

func (p *project) read(name string) string {
	p.t.Helper()
	data, err := os.ReadFile(filepath.Join(p.dir, name))
	if err != nil {
		p.t.Fatal(err)
	}
	return string(data)
}

func (p *project) has(name, want string) {
	p.t.Helper()
	data, err := os.ReadFile(filepath.Join(p.dir, name))
	if err != nil || !strings.Contains(string(data), want) {
		p.t.Errorf("%s holds %q, %v, want %q in it", name, data, err, want)
	}
}

func appended(text string) func(string) string { return func(was string) string { return was + text } }

// TestGenomics: one more lane runs its own tasks, and those of its sample.
func TestGenomics(t *testing.T) {
	p := newProject(t, "genomics")
	p.starts("0 cached, 9 executed", "-f", "e3.yaml")
	p.has("results/table.csv", "ada,160,")
	p.edit("reads/eve_L2.fq", appended("@eve.2.0\nACGTACGTACGTACGTACGTACGT\n+\nIIIIIIIIIIIIIIIIIIIIIIII\n"))
	p.starts("7 cached, 3 executed")
	p.has("results/table.csv", "eve,100,")
	if err := os.Remove(filepath.Join(p.dir, "reads", "eve_L2.fq")); err != nil {
		t.Fatal(err)
	}
	p.starts("9 cached, 0 executed")
	p.has("results/table.csv", "eve,80,")
	p.edit("reads/zoe_L1.fq", func(string) string { return "" })
	p.starts("8 cached, 2 executed, 1 allowed to fail")
	if text := p.read("results/table.csv"); strings.Contains(text, "zoe") || !strings.Contains(text, "ada,160,") {
		t.Errorf("with a sample that fails the table is:\n%s", text)
	}
	p.edit("reads/zoe_L1.fq", func(string) string { return "@zoe.1.0\nACGTACGTACGT\n+\nIIIIIIIIIIII\n" })
	p.starts("8 cached, 3 executed")
	p.has("results/table.csv", "zoe,8,")
}

// TestLevels: a chapter more is three tasks more, of which nothing was known before the run.
func TestLevels(t *testing.T) {
	p := newProject(t, "levels")
	p.starts("0 cached, 13 executed", "-f", "e3.yaml")
	p.has("results/longest.txt", "chapter=Three.txt,sentence=3.txt")
	p.edit("book.txt", appended("# Four\nNobody ever heard of the ship or of its crew or of the lamp again.\n"))
	p.starts("11 cached, 4 executed")
	p.has("results/longest.txt", "chapter=Four.txt,sentence=1.txt")
}

// TestFolds: a fold more is one fit more, and an experiment leaves its base alone.
func TestFolds(t *testing.T) {
	p := newProject(t, "folds", "python3")
	p.starts("0 cached, 4 executed", "-f", "e3.yaml")
	p.edit("folds.csv", appended("odd,5,15\n"))
	p.starts("3 cached, 2 executed")
	p.starts("0 cached, 5 executed", ".", "folds", "--as", "fast", "--set", "params.train.rate=0.05")
	p.starts("5 cached, 0 executed", ".", "folds")
	if out := p.e3("compare", ".", "folds", "fast"); !strings.Contains(out, "mean_error") || !strings.Contains(out, "0.05") {
		t.Errorf("e3 compare printed:\n%s", out)
	}
}

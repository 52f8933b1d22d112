// Package forecast_test runs the example with the e3 program: once from nothing, then
// after edits, of which each must run again exactly what depends on it.
package forecast_test

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	_ "e3/internal/repo" // for the cache of go test: what the program is made of
	"e3/internal/testing/built"
)

// all are the tasks of the example.
var all = []string{"clean", "evaluate", "forecast", "report", "train[1]", "train[2]", "train[3]"}

// project is a copy of the example.
type project struct {
	t       *testing.T
	dir     string
	program string
}

func newProject(t *testing.T) *project {
	t.Helper()
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip("the example's tasks are shell scripts; install bash")
	}
	if _, err := exec.LookPath("awk"); err != nil {
		t.Skip("the example computes with awk; install mawk or any other awk")
	}
	p := &project{t: t, dir: t.TempDir(), program: built.Program(t)}
	for _, name := range []string{"e3.yaml", "data", "scripts"} {
		copyTree(t, name, filepath.Join(p.dir, name))
	}
	return p
}

func copyTree(t *testing.T, from, to string) {
	t.Helper()
	err := filepath.WalkDir(from, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		target := to + strings.TrimPrefix(path, from)
		if e.IsDir() {
			return os.MkdirAll(target, 0o755)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(target, data, 0o644)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// e3 runs the program in the project's folder and returns what it prints.
func (p *project) e3(args ...string) []byte {
	p.t.Helper()
	cmd := exec.Command(p.program, args...)
	cmd.Dir = p.dir
	cmd.Env = append(os.Environ(), "E3_REPO=")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		p.t.Fatalf("e3 %s: %v\n%s%s", strings.Join(args, " "), err, out, stderr.Bytes())
	}
	return out
}

// start runs the example and returns the names of the tasks whose commands were run.
func (p *project) start() []string {
	p.t.Helper()
	var executed []string
	for line := range bytes.Lines(p.e3("start", "-f", "e3.yaml", "--json")) {
		var e struct{ Type, Task string }
		if err := json.Unmarshal(line, &e); err != nil {
			p.t.Fatalf("e3 start printed %q: %v", line, err)
		}
		if e.Type == "task.completed" {
			executed = append(executed, e.Task)
		}
	}
	slices.Sort(executed)
	return executed
}

func (p *project) path(name string) string { return filepath.Join(p.dir, filepath.FromSlash(name)) }

func (p *project) read(name string) string {
	p.t.Helper()
	data, err := os.ReadFile(p.path(name))
	if err != nil {
		p.t.Fatal(err)
	}
	return string(data)
}

func (p *project) write(name, text string) {
	p.t.Helper()
	if err := os.WriteFile(p.path(name), []byte(text), 0o644); err != nil {
		p.t.Fatal(err)
	}
}

func TestEditsRunWhatDependsOnThem(t *testing.T) {
	p := newProject(t)
	if got := p.start(); !slices.Equal(got, all) {
		t.Fatalf("the first start ran %v, want %v", got, all)
	}
	if got := p.start(); len(got) > 0 {
		t.Fatalf("the second start ran %v, want nothing", got)
	}
	for _, tt := range []struct {
		name, file, old, new string
		want                 []string
	}{
		{"horizon", "e3.yaml", "{value: 120,", "{value: 240,", []string{"forecast", "report"}},
		// The same model is best: what only asks which one that is does not run.
		{"holdout", "e3.yaml", "{value: 60,", "{value: 48,", []string{"evaluate", "report", "train[1]", "train[2]", "train[3]"}},
		{"another item", "e3.yaml", "degree: [1, 2, 3]", "degree: [1, 2, 3, 4]", []string{"evaluate", "report", "train[4]"}},
		{"the plot's script", "scripts/plot.awk", "width = 960", "width = 800", []string{"report"}},
		// Scripts that compute the same as before stop there.
		{"a comment in fit.awk", "scripts/fit.awk", "# Fits", "# It fits", []string{"forecast", "train[1]", "train[2]", "train[3]"}},
		{"a comment in clean.awk", "scripts/clean.awk", "# Weekly", "# The weekly", []string{"clean"}},
		{"a description", "e3.yaml", "description: The forecast as a plot", "description: A plot of the forecast", nil},
		{"a new reading", "data/co2.csv", "20011229,371.5", "20011229,371.5\n20020105,372.4", all},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p.t = t
			before := p.read(tt.file)
			if strings.Count(before, tt.old) != 1 {
				t.Fatalf("%s has %d times %q, want one", tt.file, strings.Count(before, tt.old), tt.old)
			}
			p.write(tt.file, strings.Replace(before, tt.old, tt.new, 1))
			if got := p.start(); !slices.Equal(got, tt.want) {
				t.Errorf("after the edit: ran %v, want %v", got, tt.want)
			}
			p.write(tt.file, before)
			if got := p.start(); len(got) > 0 {
				t.Errorf("after undoing it: ran %v, want nothing", got)
			}
		})
	}
}

func TestSetRunsWhatDependsOnIt(t *testing.T) {
	p := newProject(t)
	p.start()
	want := []string{"forecast", "report"}
	p.e3("set", ".", "co2.horizon", "240")
	if got := p.start(); !slices.Equal(got, want) {
		t.Errorf("after e3 set: ran %v, want %v", got, want)
	}
	p.e3("unset", ".", "co2.horizon")
	if got := p.start(); len(got) > 0 {
		t.Errorf("after e3 unset: ran %v, want nothing", got)
	}
}

func TestReport(t *testing.T) {
	p := newProject(t)
	p.start()
	plot := p.e3("get", ".", "co2.report.plot")
	for dec := xml.NewDecoder(bytes.NewReader(plot)); ; {
		if _, err := dec.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("the plot is not well-formed: %v", err)
		}
	}
	for _, want := range []string{"<svg ", "CO₂ (ppm)", ">year<", ">1960<", "forecast, to 2011-12"} {
		if !bytes.Contains(plot, []byte(want)) {
			t.Errorf("the plot has no %q", want)
		}
	}
	text := string(p.e3("get", ".", "co2.report.text"))
	for _, want := range []string{
		"526 months from 1958-03 to 2001-12, 5 of them filled in",
		"| 2 | 1.39 | 1.23 | +1.23 | chosen |",
		"| 2011-12 | 391.5 | 390.0 | 393.0 |",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the report has no %q:\n%s", want, text)
		}
	}
}

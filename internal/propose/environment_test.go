package propose_test

import (
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"e3/internal/host/trace"
	"e3/internal/propose"
)

// A file of a virtual environment is no input: an environment is proposed.
func TestHintsOfEnvironments(t *testing.T) {
	const declare = ": declare an environment, as e3 new -o draft.yaml does"
	for name, c := range map[string]struct{ files, line, want string }{
		"its Python":           {"venv/pyvenv.cfg venv/bin/python", "bash: line 1: venv/bin/python: No such file or directory", "tasks do not see venv of the project" + declare},
		"a hidden one":         {".venv/pyvenv.cfg .venv/bin/activate", "bash: line 1: .venv/bin/activate: No such file or directory", "tasks do not see .venv of the project" + declare},
		"a program of npm":     {"node_modules/.bin/tsc", "bash: line 1: node_modules/.bin/tsc: No such file or directory", "tasks do not see node_modules of the project" + declare},
		"a package":            {"uv.lock", "ModuleNotFoundError: No module named 'numpy'", "the program of report does not find the package numpy, and the project has uv.lock" + declare},
		"a package of Node":    {"package.json", "Error: Cannot find module '@scope/name'", "the program of report does not find the package @scope/name, and the project has package.json" + declare},
		"a package of R":       {"renv.lock", "Error in library(dplyr) : there is no package called ‘dplyr’", "the program of report does not find the package dplyr, and the project has renv.lock" + declare},
		"a project of no such": {"a.csv", "ModuleNotFoundError: No module named 'numpy'", ""},
		"a module of its own":  {"uv.lock helper.py", "ModuleNotFoundError: No module named 'helper'", "helper.py is in the project but not among the inputs of report: write helper_py: {file: helper.py} under inputs, and helper_py in its in"},
	} {
		files := fstest.MapFS{}
		for f := range strings.FieldsSeq(c.files) {
			files[f] = &fstest.MapFile{}
		}
		project := &propose.Project{Files: files, Ignored: propose.Ignored(files), Made: func(string) string { return "" }}
		var want []string
		if c.want != "" {
			want = []string{c.want}
		}
		if got := propose.Hints(offered(t, study), project, &propose.Run{Task: "report"}, []string{c.line}, nil); !slices.Equal(got, want) {
			t.Errorf("%s:\n got %q\nwant %q", name, got, want)
		}
		run := propose.Run{Task: "report", Traced: true, Findings: []trace.Finding{{Kind: trace.File, Path: "venv/bin/python"}}}
		if p := propose.Of(offered(t, study), project, []propose.Run{run}); files["venv/pyvenv.cfg"] != nil && len(p.New) > 0 {
			t.Errorf("%s: proposed %+v as inputs", name, p.New)
		}
	}
	// The package has an environment.
	files := fstest.MapFS{".venv/pyvenv.cfg": &fstest.MapFile{}, ".venv/bin/python": &fstest.MapFile{}}
	project := &propose.Project{Files: files, Ignored: propose.Ignored(files)}
	pkg := offered(t, strings.Replace(study, "inputs:", "environments: {py: {from: uv.lock, run: uv sync}}\ninputs:", 1))
	got := propose.Hints(pkg, project, &propose.Run{Task: "report"}, []string{"bash: line 1: .venv/bin/python: No such file or directory"}, nil)
	if want := []string{"tasks do not see .venv of the project: write environment: py at the task, and programs without a folder"}; !slices.Equal(got, want) {
		t.Errorf("with an environment: got %q, want %q", got, want)
	}
}

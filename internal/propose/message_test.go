package propose_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"e3/internal/propose"
)

func TestMisses(t *testing.T) {
	for line, want := range map[string]string{
		"cat: data/b.txt: No such file or directory":                                     "data/b.txt!",
		"cat: data: No such file or directory":                                           "data!",
		"cat: can't open 'b.txt': No such file or directory":                             "b.txt!",
		"ls: cannot access 'data/x': No such file or directory":                          "data/x!",
		"awk: cannot open \"x.awk\" (No such file or directory)":                         "x.awk!",
		"FileNotFoundError: [Errno 2] No such file or directory: 'a/b.csv'":              "a/b.csv!",
		"python3: can't open file '/home/a/e3/s/w1/room/work/fit.py': [Errno 2] No such": "fit.py!",
		"python3: can't open file '/e3/work/src/fit.py': [Errno 2] No such file":         "src/fit.py!",
		"cat: /home/ann/shop/data/b.txt: No such file or directory":                      "data/b.txt!",
		"cat: /etc/none.txt: No such file or directory":                                  "",
		"bash: line 3: tool.sh: command not found":                                       "tool.sh!p",
		"../script: line 3: tool: command not found":                                     "tool!p",
		"./run.sh: line 3: b.txt: No such file or directory":                             "b.txt!",
		"sh: 1: tool: not found":                                                         "tool!p",
		"bash: line 1: ./tool: No such file or directory":                                "tool!",
		"cat: ../data/b.txt: No such file or directory":                                  "data/b.txt",
		"Can't open data.csv: No such file or directory at sum.pl line 3.":               "data.csv!, sum.pl",
		"could not open the data file":                                                   "",
		"Error: the file data does not exist":                                            "",
		"all is well with data.csv":                                                      "",
		"cat: ..: No such file or directory":                                             "",
		"make: *** No rule to make target 'a.txt', needed by 'o.txt'.  Stop.":            "a.txt!, o.txt!",
		"Error: Cannot find module '/home/a/e3/s/w1/room/work/lib/x.js'":                 "lib/x.js!",
		"src/main.c:1:10: fatal error: inc/a.h: No such file or directory":               "src/main.c, inc/a.h!",
		"Exception: in.csv (No such file or directory)":                                  "in.csv",
		"cp: cannot stat 'a b.csv': No such file or directory":                           "b.csv",
		"error: /e3/work/../../etc/passwd: no such file":                                 "",
		"\x1b[31mcat: x.csv: No such file or directory\x1b[0m and more: \x00: not found": "x.csv!",
	} {
		var got []string
		for _, m := range propose.Misses([]string{line}, []string{"/home/ann/shop"}) {
			text := m.Path
			if m.Sure {
				text += "!"
			}
			if m.Program {
				text += "p"
			}
			got = append(got, text)
		}
		if text := strings.Join(got, ", "); text != want {
			t.Errorf("%q names %q, want %q", line, text, want)
		}
	}
}

// hintsIn is a project on disk, with links: fs.FS has none of its own.
func hintsIn(t *testing.T) (*propose.Package, *propose.Project) {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"data/table.csv", "data/more.csv", "bin/tool.sh", "run.sh", "prog.sh", "src/lib.py", "same.csv", "helper.py", "clean.csv", "raw/s1_a.fq"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for link, target := range map[string]string{"latest.csv": "data/table.csv", "code": "src"} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	files := os.DirFS(dir)
	return offered(t, study), &propose.Project{Files: files, Ignored: propose.Ignored(files), Made: func(string) string { return "" }}
}

const elsewhere = " is among the inputs of report, in the folder where the command begins: has it gone elsewhere (cd), or moved the file?"

// Each hint is true, and none is given where nothing is certain.
func TestHints(t *testing.T) {
	pkg, project := hintsIn(t)
	run := func(task string) *propose.Run {
		return &propose.Run{
			Task: task, Sources: []string{"parts", "table"},
			Inputs: []propose.Staged{
				{Name: "table", Path: "data/table.csv"}, {Name: "prog", Path: "prog.sh", Executable: true}, {Name: "run", Path: "run.sh"},
				{Name: "tool", Path: "bin/tool.sh", Executable: true}, {Name: "k"},
				{Name: "lib", Path: "src", Has: func(rel string) bool { return rel == "lib.py" }},
			},
			Content: func(rel string) bool { return rel == "same.csv" },
		}
	}
	for line, want := range map[string]string{
		// An input is never called missing.
		"cat: data/table.csv: No such file or directory": "data/table.csv" + elsewhere,
		"cat: ../data/table.csv: No such file":           "",
		"bash: line 1: prog.sh: command not found":       "prog.sh is among the inputs of report; a shell looks for a name without / in the PATH: write ./prog.sh",
		"bash: line 1: run.sh: command not found":        "run.sh is among the inputs of report, but not executable: write ./run.sh, and executable: true at the input",
		"bash: line 1: tool.sh: command not found":       "bin/tool.sh is among the inputs of report; a shell looks for a name without / in the PATH: write ./bin/tool.sh",
		"cat: latest.csv: No such file or directory":     "latest.csv is among the inputs of report as data/table.csv: read it there, or declare it by this path too",
		"cat: code/lib.py: No such file or directory":    "code/lib.py is among the inputs of report as src/lib.py: read it there, or declare it by this path too",
		"cat: src/lib.py: No such file or directory":     "src/lib.py" + elsewhere,
		"cat: same.csv: No such file or directory":       "",
		"ModuleNotFoundError: No module named 'lib'":     "",
		"data.txt not found by data/table.csv":           "",
		// A missing input is named with the line to write.
		"cat: data/more.csv: No such file or directory": "data/more.csv is in the project but not among the inputs of report: write more_csv: {file: data/more.csv} under inputs, and more_csv in its in",
		"cat: raw/s1_a.fq: No such file or directory":   "raw/s1_a.fq is in the project, by the input raw, but not among the inputs of report: add raw to its in",
		"cat: test.csv: No such file or directory":      "test.csv is an output of split, and not among the inputs of report: add split.test to its in",
		"cat: clean.csv: No such file or directory":     "clean.csv is an output of clean, and not among the inputs of report: add clean to its in",
		"No module named 'helper'":                      "helper.py is in the project but not among the inputs of report: write helper_py: {file: helper.py} under inputs, and helper_py in its in",
		"cat: model.bin: No such file or directory":     "model.bin: it is an output of fit, which has several items: name one of them under in",
		// Its own output, a source that it reads already, what nobody has.
		"cat: report.txt: No such file or directory": "",
		"cat: parts/1: No such file or directory":    "",
		"cat: none.csv: No such file or directory":   "",
	} {
		got := propose.Hints(pkg, project, run("report"), []string{line}, nil)
		var wanted []string
		if want != "" {
			wanted = []string{want}
		}
		if !slices.Equal(got, wanted) {
			t.Errorf("%s\n got %q\nwant %q", line, got, wanted)
		}
	}
	got := propose.Hints(pkg, project, run("score[1]"), []string{"cat: model.bin: No such file or directory"}, nil)
	if want := []string{"model.bin is an output of fit, and not among the inputs of score: add fit[k] to its in"}; !slices.Equal(got, want) {
		t.Errorf("of an item: got %q, want %q", got, want)
	}

	elsewhere := run("report")
	elsewhere.Script = "cd data && cat more.csv; cat test.csv; cat none.csv"
	got = propose.Hints(pkg, project, elsewhere, []string{"cat: more.csv: No such file", "cat: test.csv: No such file", "cat: none.csv: No such file"}, nil)
	if len(got) != 2 || !strings.HasPrefix(got[0], "data/more.csv is in the project but not among") || !strings.HasPrefix(got[1], "test.csv is an output") {
		t.Errorf("of a script that begins in another folder: got %q", got)
	}
}

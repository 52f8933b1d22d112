package propose_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"e3/internal/format/manifest"
	"e3/internal/host/trace"
	"e3/internal/human"
	"e3/internal/propose"
)

// offered is a package of the given file, of which no task depends on lists of items.
func offered(t *testing.T, text string) *propose.Package {
	t.Helper()
	def, err := manifest.Parse("e3.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	pkg := &propose.Package{Inputs: def.Inputs}
	for i := range def.Tasks {
		task := &def.Tasks[i]
		if n := len(pkg.Tasks); n > 0 && pkg.Tasks[n-1].Name == task.Base {
			continue
		}
		p := propose.Producer{Name: task.Base, Matrix: task.Items != nil, Several: task.Several}
		for _, item := range task.Items {
			p.Dims = append(p.Dims, item.Name)
		}
		for _, out := range task.Outputs {
			p.Outputs = append(p.Outputs, propose.Output{Name: out.Name, Path: out.Path})
		}
		pkg.Tasks = append(pkg.Tasks, p)
	}
	return pkg
}

func project(files ...string) *propose.Project {
	all := fstest.MapFS{}
	for _, file := range files {
		all[file] = &fstest.MapFile{Data: []byte(file)}
	}
	return &propose.Project{Files: all, Ignored: func(string) bool { return false }, Made: func(string) string { return "" }}
}

const study = `e3: 1
name: study
inputs:
  table:  {file: data/table.csv}
  images: {dir: img}
  src:    {glob: "src/**/*.py"}
  raw:    {files: "raw/{sample}_{lane}.fq"}
tasks:
  clean:  {out: clean.csv, run: date}
  split:  {out: {train: train.csv, test: test.csv}, run: date}
  parts:  {out: parts/, run: date}
  fit:    {matrix: {k: [1, 2]}, out: model.bin, run: date}
  one:    {matrix: {sample: [s1, s2], lane: [a]}, out: one.txt, run: date}
  score:  {matrix: {k: [1, 2]}, out: score.txt, run: date}
  report: {out: report.txt, run: date}
`

func TestOf(t *testing.T) {
	f := func(paths ...string) (list []trace.Finding) {
		for _, p := range paths {
			kind, rest, _ := strings.Cut(p, " ")
			list = append(list, trace.Finding{Kind: trace.Kind(kind[0]), Path: rest})
		}
		return list
	}
	files := []string{"data/table.csv", "data/more.csv", "img/1.png", "src/a/b.py", "src/notes.txt", "raw/s1_a.fq", "raw/s2_a.fq",
		"logs/1.log", "logs/2.log", "logs/3.log", "logs/a.txt", "few/1.log", "few/2.log", ".git/config", "x.pem", "sub/e3.yaml", "clean.csv"}
	for name, c := range map[string]struct {
		task  string
		found []trace.Finding
		want  string
	}{
		"an input":                  {"report", f("f data/table.csv"), "table"},
		"a folder's file":           {"report", f("f img/1.png"), "images"},
		"a folder":                  {"report", f("d img"), "images"},
		"a pattern":                 {"report", f("f src/a/b.py"), "src"},
		"beside a pattern":          {"report", f("f src/notes.txt"), "notes_txt {file: src/notes.txt}"},
		"a listed pattern":          {"report", f("d src"), "src"},
		"a new file":                {"report", f("f data/more.csv"), "more_csv {file: data/more.csv}"},
		"new files":                 {"report", f("f logs/1.log", "f logs/2.log", "f logs/3.log", "d logs"), "logs_log {glob: logs/*.log}"},
		"some files":                {"report", f("f logs/1.log", "f logs/2.log"), "1_log {file: logs/1.log}, 2_log {file: logs/2.log}"},
		"a new folder":              {"report", f("d logs"), "logs {dir: logs}"},
		"another package":           {"report", f("d sub"), ""},
		"an output":                 {"report", f("m clean.csv"), "clean"},
		"an output left in the way": {"report", f("f clean.csv"), "clean"},
		"its own output":            {"clean", f("m clean.csv"), ""},
		"an entry":                  {"report", f("m train.csv"), "split.train"},
		"all entries":               {"report", f("m split"), "split"},
		"a file of a made folder":   {"report", f("m parts"), "parts"},
		"an item's own":             {"score", f("m model.bin"), "fit[k]"},
		"an item of others":         {"report", f("m model.bin"), "fit[k] (by hand)"},
		"a fan-in":                  {"report", f("m fit"), "fit[*]"},
		"keys and tools":            {"report", f("f .git/config", "f x.pem"), ""},
		"files of items, all":       {"report", f("f raw/s1_a.fq", "f raw/s2_a.fq"), "raw"},
		"only reads":                {"report", f("r table"), ""},
		"twice":                     {"report", f("f data/table.csv", "d data"), "table"},
	} {
		p := propose.Of(offered(t, study), project(files...), []propose.Run{{Task: c.task, Traced: true, Findings: c.found}})
		var got []string
		for _, task := range p.Tasks {
			for _, r := range task.Reads {
				text := r.Source
				for _, in := range p.New {
					if in.Name == r.Source {
						text += fmt.Sprintf(" {%s: %s}", in.Key, in.Path)
					}
				}
				if r.Note != "" {
					text += " (by hand)"
				}
				got = append(got, text)
			}
		}
		if want := strings.ReplaceAll(strings.ReplaceAll(c.want, "1_log", "in_1_log"), "2_log", "in_2_log"); strings.Join(got, ", ") != want {
			t.Errorf("%s: proposed %q, want %q", name, strings.Join(got, ", "), want)
		}
	}
	// Each command has opened the file of its item.
	p := propose.Of(offered(t, study), project(files...), []propose.Run{
		{Task: "one[sample=s1,lane=a]", Traced: true, Findings: f("f raw/s1_a.fq")}, {Task: "one[sample=s2,lane=a]", Traced: true, Findings: f("f raw/s2_a.fq")}})
	if len(p.Tasks) != 1 || len(p.Tasks[0].Reads) != 1 || p.Tasks[0].Reads[0].Source != "raw[sample,lane]" {
		t.Errorf("of items: %+v", p.Tasks)
	}
}

// TestSought: what a command only looked for is told, unless what it opened says the same, and never declared.
func TestSought(t *testing.T) {
	all := project("data/more.csv", "inc/a.h", "inc/b.h", "lib/x.awk", ".env", "skip.txt")
	all.Ignored = func(rel string) bool { return rel == "skip.txt" }
	p := propose.Of(offered(t, study), all, []propose.Run{{Task: "report", Traced: true, Findings: []trace.Finding{
		{Kind: trace.Sought, Path: "data/more.csv"}, {Kind: trace.Sought, Path: "inc"}, {Kind: trace.Sought, Path: "clean.csv"}, // told
		{Kind: trace.Sought, Path: "lib"}, {Kind: trace.Sought, Path: "lib/x.awk"}, {Kind: trace.File, Path: "lib/x.awk"}, // opened
		{Kind: trace.Sought, Path: ".env"}, {Kind: trace.Sought, Path: "skip.txt"}, // never told
	}}})
	if len(p.Tasks) != 1 || !slices.Equal(p.Tasks[0].Sought, []string{"clean.csv", "data/more.csv", "inc/"}) || len(p.Tasks[0].Reads) != 1 || len(p.New) != 1 {
		t.Errorf("%+v, new %+v", p.Tasks, p.New)
	}
	if p := propose.Of(offered(t, study), all, []propose.Run{{Task: "report", Traced: true, Findings: []trace.Finding{{Kind: trace.Sought, Path: "inc"}}}}); !p.Empty() {
		t.Errorf("a test of existence alone is a proposal: %+v", p.Tasks)
	}
}

// TestLacks: what a command looked for is proposed if it failed and its message says so.
func TestLacks(t *testing.T) {
	all := project("more.csv", "inc/a.h")
	run := propose.Run{Task: "report", Traced: true, Findings: []trace.Finding{{Kind: trace.Sought, Path: "more.csv"}, {Kind: trace.Sought, Path: "inc"}, {Kind: trace.Sought, Path: "clean.csv"}}}
	run.Lacks = func(rel string) bool { return rel != "inc" }
	p := propose.Of(offered(t, study), all, []propose.Run{run})
	if got := p.Tasks[0]; len(got.Reads) != 2 || got.Reads[0].Source != "clean" || got.Reads[1].Source != "more_csv" || !slices.Equal(got.Sought, []string{"inc/"}) {
		t.Errorf("%+v", got)
	}
	run.Lacks = func(rel string) bool { return rel == "inc" }
	if p := propose.Of(offered(t, study), all, []propose.Run{run}); len(p.New) != 1 || p.New[0].Key != "dir" || p.New[0].Path != "inc" {
		t.Errorf("new %+v", p.New)
	}
	run.Succeeded = true
	if p := propose.Of(offered(t, study), all, []propose.Run{run}); !p.Empty() {
		t.Errorf("of a command that succeeded: %+v", p.Tasks)
	}
}

// TestUnread: an input is unread only if all commands of its task are known to have ended well without it.
func TestUnread(t *testing.T) {
	inputs := []propose.Staged{{Name: "a", Path: "a.csv"}, {Name: "b", Path: "b.csv"}, {Name: "n"}}
	read := []trace.Finding{{Kind: trace.Read, Path: "a.csv"}}
	for name, c := range map[string]struct {
		runs []propose.Run
		want []string
	}{
		"one":         {[]propose.Run{{Task: "report", Traced: true, Succeeded: true, Inputs: inputs, Findings: read}}, []string{"b"}},
		"a failure":   {[]propose.Run{{Task: "report", Traced: true, Inputs: inputs, Findings: read}}, nil},
		"not traced":  {[]propose.Run{{Task: "report", Succeeded: true, Inputs: inputs}}, nil},
		"other items": {[]propose.Run{{Task: "fit[1]", Traced: true, Succeeded: true, Inputs: inputs}, {Task: "fit[2]", Traced: true, Succeeded: true, Inputs: inputs, Findings: read}}, []string{"b"}},
	} {
		p := propose.Of(offered(t, study), project(), c.runs)
		if len(p.Tasks) != 1 || !slices.Equal(p.Tasks[0].Unread, c.want) {
			t.Errorf("%s: %+v, want %q", name, p.Tasks, c.want)
		}
	}
}

func reads(task string, sources ...string) propose.Task {
	t := propose.Task{Name: task}
	for _, s := range sources {
		t.Reads = append(t.Reads, propose.Read{Path: s, Source: s})
	}
	return t
}

func TestEdit(t *testing.T) {
	for name, c := range map[string]struct{ before, after string }{
		"lists in brackets": {
			"e3: 1\nname: x\ninputs:\n  a: {file: a.csv}   # first\n  # about nothing\n\ntasks:\n  t:\n    in:  [a]   # reads\n    out: o\n    run: date\n  b: {out: p, run: date}\n",
			"e3: 1\nname: x\ninputs:\n  a: {file: a.csv}   # first\n  n: {file: n.csv}\n  # about nothing\n\ntasks:\n  t:\n    in:  [a, b, n]   # reads\n    out: o\n    run: date\n  b: {out: p, run: date}\n"},
		"no inputs, task in brackets": {
			"# head\ne3: 1\nname: x\ntasks:\n  t: {out: o, run: date}\n  b: {out: p, run: date}",
			"# head\ne3: 1\nname: x\ninputs:\n  n: {file: n.csv}\ntasks:\n  t: {in: [b, n], out: o, run: date}\n  b: {out: p, run: date}"},
		"mappings over lines": {
			"e3: 1\nname: x\ntasks:\n  t:\n    in: {\n      'a, b': b,   # one\n      }\n    out: o\n    run: date\n  b: {out: p, run: date}\ninputs:\n    q:\n        file: q.csv\n",
			""},
		"mapping over lines": {
			"e3: 1\nname: x\ntasks:\n  t:\n    in: {q: q,\n         r: \"w\"}\n    out: o\n    run: date\n  b: {out: p, run: date}\ninputs:\n    w: {value: 1}\n    q:\n        file: q.csv\n    # end\n",
			"e3: 1\nname: x\ntasks:\n  t:\n    in: {q: q,\n         r: \"w\", b: b, n: n}\n    out: o\n    run: date\n  b: {out: p, run: date}\ninputs:\n    w: {value: 1}\n    q:\n        file: q.csv\n    n: {file: n.csv}\n    # end\n"},
		"indented": {
			"e3: 1\nname: x\ninputs:\n  q: {file: q}\ntasks:\n  t:\n    out: o\n    in:\n    - q\n    # later\n    run: |\n      date\n  u:\n    in:\n      q: q\n    out: z\n    run: date\n  b: {out: p, run: date}\n",
			"e3: 1\nname: x\ninputs:\n  q: {file: q}\n  n: {file: n.csv}\ntasks:\n  t:\n    out: o\n    in:\n    - q\n    - b\n    - n\n    # later\n    run: |\n      date\n  u:\n    in:\n      q: q\n    out: z\n    run: date\n  b: {out: p, run: date}\n"},
		"line ends": {
			"e3: 1\r\nname: x\r\ntasks:\r\n  t:\r\n    out: o\r\n    run: date\r\n  b: {out: p, run: date}\r\n",
			"e3: 1\r\nname: x\r\ninputs:\r\n  n: {file: n.csv}\r\ntasks:\r\n  t:\r\n    in: [b, n]\r\n    out: o\r\n    run: date\r\n  b: {out: p, run: date}\r\n"},
		"empty in":  {"e3: 1\nname: x\ntasks:\n  t: {in: [], out: o, run: date}\n  b: {out: p, run: date}\n", "e3: 1\nname: x\ninputs:\n  n: {file: n.csv}\ntasks:\n  t: {in: [b, n], out: o, run: date}\n  b: {out: p, run: date}\n"},
		"JSON":      {`{"e3": 1, "name": "x", "tasks": {"t": {"out": "o", "run": "date"}, "b": {"out": "p", "run": "date"}}}`, ""},
		"an anchor": {"e3: 1\nname: x\ntasks:\n  t: {in: &i [b], out: o, run: date}\n  b: {out: p, run: date}\n  c: {in: *i, out: q, run: date}\n", ""},
		"a cycle":   {"e3: 1\nname: x\ntasks:\n  t: {out: o, run: date}\n  b: {in: [t], out: p, run: date}\n", ""},
	} {
		p := &propose.Proposal{New: []propose.NewInput{{Name: "n", Key: "file", Path: "n.csv"}}, Tasks: []propose.Task{reads("t", "b", "n")}}
		got, err := propose.Edit("e3.yaml", []byte(c.before), p)
		switch {
		case c.after == "" && !errors.Is(err, propose.ErrByHand):
			t.Errorf("%s: wrote %q, %v", name, got, err)
		case c.after != "" && (err != nil || string(got) != c.after):
			t.Errorf("%s: wrote\n%s\nwant\n%s\n%v", name, got, c.after, err)
		}
		if err == nil {
			patched(t, name, c.before, c.after)
		}
	}
}

// A file that was edited has the tasks and the comments that it had.
func FuzzEdit(f *testing.F) {
	f.Add("e3: 1\nname: x\ninputs:\n  a: {file: a.csv}   # first\ntasks:\n  t:\n    in:  [a]   # reads\n    out: o\n    run: date\n  b: {out: p, run: date}\n")
	f.Add("e3: 1\nname: x\ntasks:\n  t:\n    in:\n      q: b\n      # more\n    out: o\n    run: date\n  b: {out: p, run: date}\n")
	f.Add("e3: 1\r\nname: x\r\ntasks: {t: {out: o, run: date}, b: {out: p, run: date}}\r\n")
	f.Fuzz(func(t *testing.T, text string) {
		before, err := manifest.Parse("e3.yaml", []byte(text))
		if err != nil {
			return
		}
		p := &propose.Proposal{New: []propose.NewInput{{Name: "n", Key: "file", Path: "n.csv"}}, Tasks: []propose.Task{reads("t", "b", "n")}}
		got, err := propose.Edit("e3.yaml", []byte(text), p)
		if err != nil {
			return
		}
		after, err := manifest.Parse("e3.yaml", got)
		if err != nil || len(after.Tasks) != len(before.Tasks) {
			t.Errorf("wrote\n%s\nof\n%s\n%v", got, text, err)
		}
		if strings.Count(string(got), "#") < strings.Count(text, "#") {
			t.Errorf("comments are gone from\n%s\nof\n%s", got, text)
		}
	})
}

// patched applies a diff with patch(1), where that is installed.
func patched(t *testing.T, name, before, after string) {
	t.Helper()
	program, err := exec.LookPath("patch")
	if err != nil || strings.Contains(before, "\r") {
		return
	}
	file := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(file, []byte(before), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "-s", file)
	cmd.Stdin = strings.NewReader("--- f\n+++ f\n" + human.Diff(before, after))
	text, err := cmd.CombinedOutput()
	got, _ := os.ReadFile(file)
	if err != nil || string(got) != after {
		t.Errorf("%s: patch made\n%s\nof\n%s\n%v: %s", name, got, human.Diff(before, after), err, text)
	}
}

func TestIgnored(t *testing.T) {
	files := fstest.MapFS{
		".gitignore":     {Data: []byte("# all\n*.log\n!keep.log\n/build\ndata/*.bin\n**/tmp/\ndoc/**/x.txt\nfolder/\n")},
		"sub/.gitignore": {Data: []byte("!a.log\nb.txt\n")},
		"folder":         {Data: []byte("a file")}, "y/folder/z": {}, "sub/a.log": {}, "sub/b.txt": {}, "c.log": {}, "keep.log": {}, "build/x": {}, "sub/build": {}, "data/a.bin": {}, "data/s/a.bin": {}, "q/tmp/x": {}, "doc/x.txt": {}, "doc/a/b/x.txt": {}, "doc/y.txt": {},
	}
	ignored := propose.Ignored(files)
	for file, want := range map[string]bool{"folder": false, "y/folder/z": true, "sub/a.log": false, "sub/b.txt": true, "c.log": true, "keep.log": false, "build/x": true, "sub/build": false,
		"data/a.bin": true, "data/s/a.bin": false, "q/tmp/x": true, "doc/x.txt": true, "doc/a/b/x.txt": true, "doc/y.txt": false} {
		if got := ignored(file); got != want {
			t.Errorf("%s: ignored is %v", file, got)
		}
	}
}

func TestPrivate(t *testing.T) {
	for _, file := range []string{".git/config", "a/.git/HEAD", ".e3/x", ".env", "x/.env.local", "id_rsa", "a/id_ed25519", "tls.pem", "server.key", ".netrc", "credentials", "credentials.json",
		"aws_credentials.txt", "token.txt", "api-token.json", "secrets.yaml", "my_password.txt", "service-account.json", "__pycache__/a.pyc", "a/__pycache__/b.pyc", "node_modules/x/y.js", ".aws/config"} {
		if !trace.Private(file) {
			t.Errorf("%s is proposed", file)
		}
	}
	for _, file := range []string{"tokens.csv", "tokenizer.py", "secret_santa.csv", "passwords.py", "environment.yml", "keys.csv", "monkey.txt", "data/x.json", "tokenizer.json", "e3.yaml", ".Rprofile", "config.json"} {
		if trace.Private(file) {
			t.Errorf("%s is not proposed", file)
		}
	}
}

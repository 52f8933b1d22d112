package main

import (
	"bytes"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"e3/internal/host/trace"
)

// A pipeline whose inputs are removed, one task after the other, while variables of its scripts go on to name the paths.
type pipeline struct {
	folder   string            // with the files, relative to this one; "": those of files
	files    map[string]string // by path
	yaml     string
	set      map[string]string // of each task: the assignments that stand for what was removed
	want     map[string]string // of each task: the sources to be found, sorted, separated by spaces
	programs []string
}

// pipelines are those of examples, and others of shells, compilers, interpreters and programs that start programs.
func pipelines(t *testing.T) map[string]*pipeline {
	all := map[string]*pipeline{
		"forecast": {folder: "../../examples/forecast", set: map[string]string{
			"clean":    "weekly=data/co2.csv clean_awk=scripts/clean.awk",
			"train":    "monthly=monthly.csv basis_awk=scripts/basis.awk fit_awk=scripts/fit.awk",
			"forecast": "monthly=monthly.csv best=best.txt basis_awk=scripts/basis.awk fit_awk=scripts/fit.awk forecast_awk=scripts/forecast.awk",
			"report":   "monthly=monthly.csv scores=scores.csv forecast=forecast.csv plot_awk=scripts/plot.awk report_awk=scripts/report.awk",
		}, want: map[string]string{
			"clean": "clean_awk weekly", "train": "basis_awk clean fit_awk",
			"forecast": "basis_awk clean evaluate.best fit_awk forecast_awk", "report": "clean evaluate.scores forecast plot_awk report_awk",
		}},
		"genomics": {folder: "../../examples/genomics", set: map[string]string{"trimmed": `fastq=reads/${sample}_${lane}.fq`}, want: map[string]string{"trimmed": "reads[sample,lane]"}},
		"folds":    {folder: "../../examples/folds", set: map[string]string{"fit": "export points=points.csv; fit_py=fit.py"}, want: map[string]string{"fit": "fit_py points"}},
		"levels":   {folder: "../../examples/levels", set: map[string]string{"chapters": "book=book.txt"}, want: map[string]string{"chapters": "book"}},
		"approval": {folder: "../../examples/approval", set: map[string]string{"invoices": "orders=orders.csv"}, want: map[string]string{"invoices": "orders"}},
	}
	own := func(name string, files map[string]string, yaml string, set, want map[string]string, programs ...string) {
		all[name] = &pipeline{files: files, yaml: "e3: 1\nname: own\n" + yaml, set: set, want: want, programs: programs}
	}
	own("compiler", map[string]string{"main.c": "#include \"inc/a.h\"\n#include <stdio.h>\nint main(void) { return A - 1; }\n", "inc/a.h": "#include \"b.h\"\n", "inc/b.h": "#define A 1\n", "inc/unused.h": "", "prog": "old"},
		"inputs:\n  main: {file: main.c}\n  a: {file: inc/a.h}\n  b: {file: inc/b.h}\ntasks:\n  build:\n    in: [main, a, b]\n    out: {prog: {file: prog, executable: true}}\n    run: gcc -o \"$prog\" \"$main\"\n  use:\n    in: {p: build.prog}\n    out: x.txt\n    run: ./\"$p\" && echo yes > \"$out\"\n",
		map[string]string{"build": "main=main.c", "use": "p=prog"}, map[string]string{"build": "a b main", "use": "build.prog"}, "gcc")
	own("python", map[string]string{"run.py": "import subprocess, sys, os\nfor n in ('a', 'b'):\n  subprocess.run([sys.executable, 'part.py', n], check=True)\nif os.path.exists('maybe.txt'): open('maybe.txt')\n", "part.py": "import sys, csv\nprint(list(csv.reader(open('in/' + sys.argv[1] + '.csv'))))\n", "in/a.csv": "1\n", "in/b.csv": "2\n", "in/c.csv": "3\n", "maybe.txt": "x"},
		"inputs:\n  run: {file: run.py}\n  part: {file: part.py}\n  a: {file: in/a.csv}\n  b: {file: in/b.csv}\ntasks:\n  all:\n    in: [run, part, a, b]\n    out: o.txt\n    run: /usr/bin/python3 \"$run\" > \"$out\"\n",
		map[string]string{"all": "run=run.py"}, map[string]string{"all": "a b part run"}, "/usr/bin/python3")
	own("shell", map[string]string{"lib/f.sh": "go() { sort \"$@\" | uniq -c; }\n", "words/1.txt": "a\nb\n", "words/2.txt": "b\n", "words/.hidden": "", "other.txt": ""},
		"inputs:\n  lib: {file: lib/f.sh}\n  words: {dir: words}\n  other: {file: other.txt}\ntasks:\n  count:\n    in: [lib, words]\n    out: count.txt\n    run: |\n      . \"$lib\"\n      (cd words; cat *.txt | while read -r x; do echo \"$x\"; done) > all; go all words/*.txt > \"$out\"\n  same: {in: [other], out: s.txt, run: cp \"$other\" \"$out\"}\n",
		map[string]string{"count": "lib=lib/f.sh"}, map[string]string{"count": "lib words"})
	own("perl", map[string]string{"sum.pl": "open(my $f, '<', $ARGV[0]) or die;\nmy $s = 0; $s += $_ while <$f>; print \"$s\\n\";\nrequire './more.pl';\n", "more.pl": "1;\n", "n.txt": "1\n2\n"},
		"inputs:\n  sum: {file: sum.pl}\n  n: {file: n.txt}\ntasks:\n  s:\n    in: [sum, n]\n    out: s.txt\n    run: sed -i '/require/d' \"$sum\" 2>/dev/null || true; perl \"$sum\" \"$n\" > \"$out\"\n",
		map[string]string{"s": "sum=sum.pl n=n.txt"}, map[string]string{"s": "n sum"}, "perl")
	own("make", map[string]string{"Makefile": "all: o.txt\no.txt:\n\tcat a.txt > o.txt\n\tgrep -c a a.txt >> o.txt\n", "a.txt": "a\n"},
		"inputs:\n  mk: {file: Makefile}\n  a: {file: a.txt}\ntasks:\n  m:\n    in: [mk, a]\n    out: o.txt\n    run: make -s -f \"$mk\"\n",
		map[string]string{"m": "mk=Makefile"}, map[string]string{"m": "a mk"}, "make")
	own("sqlite", map[string]string{"q.sql": "create table t(x);\n.import rows.csv t\nselect sum(x) from t;\n", "load.sql": ".read q.sql\n", "rows.csv": "1\n2\n"},
		"inputs:\n  q: {file: q.sql}\n  rows: {file: rows.csv}\ntasks:\n  s:\n    in: [q, rows]\n    out: s.txt\n    run: sqlite3 -bail :memory: < \"$q\" > \"$out\"\n",
		map[string]string{"s": "q=q.sql"}, map[string]string{"s": "q rows"}, "sqlite3")
	own("copies", map[string]string{"a.csv": "1\n", "img/1.txt": "x\n", "img/2.txt": "y\n", "old.txt": "", "keep/z.txt": "z\n"},
		"inputs:\n  a: {file: a.csv}\n  img: {dir: img}\n  z: {file: keep/z.txt}\ntasks:\n  take:\n    in: [a, img, z]\n    out: o.txt\n    run: |\n      [ -f old.txt ] && cat old.txt\n      cp \"$a\" x; cp -r \"$img\" y; ls -l \"$z\" > /dev/null; cat x y/* > \"$out\"\n",
		map[string]string{"take": "a=a.csv img=img z=keep/z.txt"}, map[string]string{"take": "a img z"})
	for _, p := range all {
		if p.folder != "" {
			text, err := os.ReadFile(filepath.Join(p.folder, "e3.yaml"))
			if err != nil {
				t.Fatal(err)
			}
			p.yaml = string(text)
		}
	}
	return all
}

var (
	inKey  = regexp.MustCompile(`(?ms)^    in: .*?(?:\]|\})(?: *#[^\n]*)?\n`)
	runKey = regexp.MustCompile(`(?m)^    run: (?:\|\n)?`)
)

// without is the package file with what a task reads removed, but for values and fan-ins, and its script naming the paths.
func (p *pipeline) without(t *testing.T, text, task string) string {
	begin := strings.Index(text, "\n  "+task+":")
	end := len(text)
	if next := regexp.MustCompile(`\n  [a-z]+:`).FindStringIndex(text[begin+4:]); next != nil {
		end = begin + 4 + next[0]
	}
	if begin < 0 {
		t.Fatalf("no task %s", task)
	}
	body := text[begin:end] + "\n"
	kept := ""
	in := inKey.FindString(body)
	for _, word := range regexp.MustCompile(`(\w+): ("[^"]*"|[\w.]+)`).FindAllStringSubmatch(in, -1) {
		name, source := word[1], word[2]
		if source == "" || !slices.Contains([]string{"harmonics", "holdout", "horizon", "trim", "params.train.rate", "params.train.rounds"}, source) && !strings.Contains(source, "[*]") {
			continue
		}
		kept += ", " + name + ": " + source
	}
	replace := ""
	if kept != "" {
		replace = "    in: {" + kept[2:] + "}\n"
	}
	body = strings.Replace(body, in, replace, 1)
	run := runKey.FindStringIndex(body)
	script := body[run[1]:]
	script = strings.TrimSuffix(strings.TrimSuffix(script, "\n"), "\n")
	if !strings.HasSuffix(body[run[0]:run[1]], "|\n") {
		if q, ok := strings.CutPrefix(script, "'"); ok {
			script = strings.TrimSuffix(q, "'")
		}
		script = "      " + strings.TrimLeft(script, " ")
	}
	body = body[:run[0]] + "    run: |\n      " + p.set[task] + "\n" + script + "\n"
	return text[:begin] + body + text[end:]
}

// TestProposals: for pipelines of real programs, each input that a task reads is found again once it is removed from what
// the task declares, no other is, and with what was proposed the pipeline makes the same results.
func TestProposals(t *testing.T) {
	if !trace.Possible() {
		t.Skip("commands cannot be traced here: run it on Linux 5.19 or later, on amd64 or arm64, with seccomp")
	}
	bin := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(self, filepath.Join(bin, "e3")); err != nil {
		t.Fatal(err)
	}
	for name, p := range pipelines(t) {
		for _, room := range []string{"open", "closed"} {
			if testing.Short() && room == "open" {
				continue
			}
			t.Run(name+"/"+room, func(t *testing.T) {
				for _, program := range p.programs {
					if _, err := exec.LookPath(program); err != nil {
						t.Skipf("%s is not installed: install it", program)
					}
				}
				p.play(t, filepath.Join(bin, "e3"), room)
			})
		}
	}
}

func (p *pipeline) play(t *testing.T, program, room string) {
	dir := t.TempDir()
	if p.folder != "" {
		if err := os.CopyFS(dir, os.DirFS(p.folder)); err != nil {
			t.Fatal(err)
		}
	}
	for file, text := range p.files {
		path := filepath.Join(dir, file)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text := strings.Replace(p.yaml, "\nname:", "\nroom: "+room+"\nname:", 1)
	for _, task := range slices.Sorted(maps.Keys(p.set)) {
		text = p.without(t, text, task)
	}
	file := filepath.Join(dir, "e3.yaml")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	const most = 20 // awk gives up at the first file that is missing
	found := map[string][]string{}
	advice := regexp.MustCompile(`^  \S+: (?:add (\S+) to its in|.*)$`)
	var out []byte
	for round := range most {
		cmd := exec.Command(program, "start", "-f", "e3.yaml", "--write", "--yes", "--no-wait", "-j", "4")
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "E3_REPO=", "HOME="+dir)
		out, _ = cmd.CombinedOutput()
		task, more := "", false
		for line := range strings.Lines(string(out)) {
			line = strings.TrimSuffix(line, "\n")
			if of, ok := strings.CutSuffix(line, " reads what it does not declare:"); ok {
				task = of
			} else if m := advice.FindStringSubmatch(line); m != nil && task != "" {
				found[task], more = append(found[task], m[1]), true
				if m[1] == "" {
					t.Errorf("%s: %s", task, line)
				}
			} else {
				task = ""
			}
		}
		if !more {
			break
		}
		if round == most-1 {
			t.Fatal("proposals do not end")
		}
	}
	for _, task := range slices.Sorted(maps.Keys(p.want)) {
		if got := strings.Join(slices.Sorted(slices.Values(found[task])), " "); got != p.want[task] {
			t.Errorf("%s: found %q, want %q", task, got, p.want[task])
		}
		delete(found, task)
	}
	if len(found) > 0 {
		t.Errorf("proposed as well: %v", found)
	}
	if bytes.Contains(out, []byte("[failed]")) {
		t.Errorf("with all that was proposed it fails")
	}
	if t.Failed() {
		now, _ := os.ReadFile(file)
		t.Logf("%s\n%s", out, now)
	}
}

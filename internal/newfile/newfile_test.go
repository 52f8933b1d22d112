package newfile_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/fstest"

	"pgregory.net/rapid"

	"e3/internal/format/manifest"
	"e3/internal/newfile"
)

// TestFolderIsCorrect drafts a file for folders with odd names and contents: the result has neither faults nor warnings.
func TestFolderIsCorrect(t *testing.T) {
	names := []string{"a.csv", "A b.csv", "out.csv", "e3.py", "1.py", "in.sh", "if.py", "path.sh", "data/x.csv", "data/y.csv", "data/z.csv", "data/w.csv",
		"data/ä.csv", "deep/er/a.csv", "train.py", "a/train.py", "train.R", "x.tar.gz", "Makefile", "dvc.yaml", ".env", "venv/a.py", "#.csv", "- .csv", "'.csv", "HOME.py", "home.py",
		"a.js", "uv.lock", "requirements.txt", "environment.yml", "renv.lock", "package.json", "package-lock.json", ".venv/pyvenv.cfg"}
	lines := []string{"open('a.csv')", "df.to_csv('new.csv')", "open(\"new.csv\", \"w\")", "import train", "echo x > new.txt", "cat new.txt", "savefig('deep/fig.png')",
		"write.csv(x, 'data/x.csv')", "x = 'data/'", "> ../up.csv", "> deep", "> new.csv/x.csv"}
	rapid.Check(t, func(t *rapid.T) {
		fsys := fstest.MapFS{}
		for _, name := range rapid.SliceOfDistinct(rapid.SampledFrom(names), rapid.ID[string]).Draw(t, "names") {
			fsys[name] = &fstest.MapFile{Data: []byte(strings.Join(rapid.SliceOfN(rapid.SampledFrom(lines), 0, 5).Draw(t, "lines"), "\n"))}
		}
		d, err := newfile.FromFolder(fsys, rapid.SampledFrom([]string{"p", "my project", "日本", "-x", ""}).Draw(t, "name"))
		if err != nil {
			t.Fatal(err)
		}
		checkDraft(t, d, true)
	})
}

func checkDraft(t interface{ Fatalf(string, ...any) }, d *newfile.Draft, mayUnwire bool) {
	def, err := manifest.Parse("e3.yaml", []byte(d.Text()))
	if err != nil && mayUnwire {
		d.Unwire()
		def, err = manifest.Parse("e3.yaml", []byte(d.Text()))
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, d.Text())
	}
	if warnings := manifest.Lint(def); len(warnings) > 0 {
		t.Fatalf("%v\n%s", warnings, d.Text())
	}
}

// TestFolderOfPython wires numbered scripts as they are usually written: paths in parts and in variables, defaults of
// arguments, modules of a package and beside the script, and results of an earlier run that lie there.
func TestFolderOfPython(t *testing.T) {
	fsys := fstest.MapFS{
		"scripts/01_clean.py": {Data: []byte("from pathlib import Path\nROOT = Path(__file__).parent.parent\n" +
			"rows = open(ROOT / \"data\" / \"orders.csv\").read()\nout = ROOT / 'data' / 'clean.csv'\nwith out.open('w') as f:\n    f.write(rows)\nprint('wrote', out)\n")},
		"scripts/02_total.py": {Data: []byte("import os, sys\nsys.path.insert(0, 'src')\nfrom shop import total\nDATA = os.path.join('data', 'clean.csv')\n" +
			"n = total(open(DATA))\nopen('results/total.json', 'w').write(str(n))\n")},
		"scripts/03_report.py": {Data: []byte("from utils import x\np.add_argument('--total', default='results/total.json')\np.add_argument('--output', default='results/report.md')\n")},
		"scripts/04_append.py": {Data: []byte("old = open('data/log.txt').read()\nopen('data/log.txt', 'w').write(old + 'x')\n")},
		"scripts/utils.py":     {}, "src/shop/__init__.py": {Data: []byte("from .sums import total\n")}, "src/shop/sums.py": {}, "src/shop/unused.py": {},
		"tests/test_shop.py": {Data: []byte("import shop\n")}, "notebooks/look.ipynb": {Data: []byte("{}")},
		"data/orders.csv": {}, "data/clean.csv": {}, "data/log.txt": {}, "results/total.json": {},
	}
	d, err := newfile.FromFolder(fsys, "p")
	if err != nil {
		t.Fatal(err)
	}
	checkDraft(t, d, false)
	for _, want := range []string{
		"    in: [x01_clean_py, orders_csv]\n    out: data/clean.csv\n    run: 'python3 \"$x01_clean_py\"'\n",
		"    in: [x02_total_py, __init__py, sums_py, x01_clean]\n    out: results/total.json\n",
		"    in: [x03_report_py, utils_py, x02_total]\n    out: results/report.md\n",
		"    in: [x04_append_py, log_txt]\n    out: x04_append.txt\n",
		"#   notebooks/look.ipynb\n",
	} {
		if !strings.Contains(d.Text(), want) {
			t.Errorf("got\n%s\nwant in it\n%s", d.Text(), want)
		}
	}
	if len(d.Tasks) != 4 {
		t.Errorf("%d tasks, want one for each numbered script:\n%s", len(d.Tasks), d.Text())
	}
}

// A table that names files is a sheet, and its files are no inputs of their own.
func TestSheets(t *testing.T) {
	fsys := fstest.MapFS{
		"sheet.csv": {Data: []byte("\ufeffsample,fq1,fq2,n\r\na,raw/1.csv,raw/2.csv,1\r\na,raw/3.csv,,2\r\n")},
		"other.csv": {Data: []byte("sample,fq\na,raw/none.csv\nb,raw/1.csv\n")},
		"raw/1.csv": {}, "raw/2.csv": {}, "raw/3.csv": {}, "raw/4.csv": {},
	}
	d, err := newfile.FromFolder(fsys, "p")
	if err != nil {
		t.Fatal(err)
	}
	checkDraft(t, d, false)
	text := d.Text()
	for _, want := range []string{
		"  sheet_csv: {file: sheet.csv, paths: [fq1, fq2]}   # its rows name files\n", "{file: other.csv}", "{file: raw/4.csv}",
		"    matrix: {sample: sheet_csv.sample}\n    in: {files: 'sheet_csv[sample, *].fq1'}\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the file lacks %q:\n%s", want, text)
		}
	}
	if strings.Contains(text, "raw/1.csv") {
		t.Errorf("a file of the sheet is an input of its own:\n%s", text)
	}
}

// Scripts of a pipeline of another program, and the pipeline itself, are no tasks.
func TestScriptsOfOtherPrograms(t *testing.T) {
	d, err := newfile.FromFolder(fstest.MapFS{
		"_targets.R":            {Data: []byte(`source("R/f.R")`)},
		"R/f.R":                 {Data: []byte(`f <- function(x) read.csv("a.csv")`)},
		"dodo.py":               {Data: []byte("def task_x(): pass\n")},
		"workflow/Snakefile":    {Data: []byte("rule a:\n")},
		"workflow/scripts/a.py": {Data: []byte("open(snakemake.output[0], 'w')\n")},
		"run.R":                 {Data: []byte(`write.csv(read.csv("a.csv"), "b.csv")`)},
		"a.csv":                 {Data: []byte("a\n")},
	}, "p")
	if err != nil {
		t.Fatal(err)
	}
	checkDraft(t, d, false)
	text := d.Text()
	for _, want := range []string{"# _targets.R is here, of targets.", "# dodo.py is here, of doit.", "# workflow/Snakefile is here, of Snakemake.", "  run:\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("the file lacks %q:\n%s", want, text)
		}
	}
	_, tasks, _ := strings.Cut(text, "\ntasks:")
	for _, name := range []string{"_targets", "dodo", "f.R", "a.py"} {
		if strings.Contains(tasks, name) {
			t.Errorf("a task has %s:\n%s", name, tasks)
		}
	}
}

// TestCommandsStayAsTheyWere compares what becomes of a stage.
func TestCommandsStayAsTheyWere(t *testing.T) {
	for name, test := range map[string]struct{ dvc, want, notes string }{
		"a file and a folder": {
			"stages:\n  a:\n    cmd: python a.py\n    deps: [a.py, data]\n    outs: [o.txt, models]\n",
			"  a:\n    in: [a_py, data]\n    out:\n      o_txt: o.txt\n      models: models/\n    run: python a.py\n",
			"dvc.yaml:5: stage a: models may be a file or a folder, and is neither in dvc.lock nor here: it is taken for a folder; for a file, remove the slash at its end",
		},
		"a file in a folder that is read": {
			"stages:\n  a:\n    cmd: x\n    deps: [data, data/x.csv]\n    outs: [o]\n",
			"  a:\n    in: [data]\n    out: o/\n    run: x\n",
			"dvc.yaml:5: stage a: o may be a file or a folder, and is neither in dvc.lock nor here: it is taken for a folder; for a file, remove the slash at its end",
		},
		"a file in a folder that a stage writes": {
			"stages:\n  a:\n    cmd: x\n    deps: [a.py]\n    outs: [m]\n  b:\n    cmd: y\n    deps: [m/best.pt]\n    outs: [b.txt]\n",
			"  b:\n    in: [a]\n    out: b.txt\n    run: 'y'\n", "",
		},
		"a folder in which a stage writes": {
			"stages:\n  a:\n    cmd: x\n    deps: [data]\n    outs: [data/o.txt]\n", "  a:\n    in: [x_csv]\n    out: data/o.txt\n    run: x\n", "",
		},
		"a value of a file of parameters": {
			"stages:\n  a:\n    cmd: x --rate=${train.rate} '${name} x' ${name}s > o.txt\n    deps: [a.py]\n    params: [train.rate, seed]\n    outs: [o.txt]\n",
			"  a:\n    in: {a_py: a_py, params_yaml: {from: params_yaml, only: [seed, train.rate]}, name: params_yaml.name, rate: params_yaml.train.rate}\n" +
				"    out: o.txt\n    run: \"x --rate=\\\"$rate\\\" ''\\\"$name\\\"' x' \\\"${name}\\\"s > o.txt\"\n", "",
		},
		"items of a file of parameters": {
			"stages:\n  a:\n    foreach: ${list}\n    do:\n      cmd: x ${item}\n      deps: [a.py]\n      outs: ['m/${item}.txt']\n  b:\n    cmd: x\n    deps: [m]\n    outs: [o.txt]\n",
			"  a:\n    matrix: {item: params_yaml.list}\n    in: [a_py]\n    out: 'm/{item}.txt'\n    run: 'x \"$item\"'\n\n" +
				"  b:\n    in: {a: {from: 'a[*]', at: m}}\n    out: o.txt\n    run: x\n", "",
		},
		"items with members": {
			"stages:\n  a:\n    foreach: ${models}\n    do:\n      cmd: x ${key} ${item.n}\n      deps: [a.py]\n      outs: ['${key}.txt']\n",
			"    matrix: {key: {from: params_yaml.models, with: [n]}}\n    in: [a_py]\n    out: '{key}.txt'\n    run: 'x \"$key\" \"$n\"'\n", "",
		},
		"a matrix": {
			"stages:\n  a:\n    matrix: {x: [1, 2], y: '${list}'}\n    cmd: x ${item.x} ${item.y}\n    deps: [a.py]\n    outs: ['${item.x}-${item.y}.txt']\n",
			"    matrix: {x: ['1', '2'], y: params_yaml.list}\n    in: [a_py]\n    out: '{x}-{y}.txt'\n", "",
		},
		"a mapping in parts of two files": {
			"vars: [{train: {depth: 3}}]\nstages:\n  a:\n    cmd: x ${train.rate} ${train.depth} ${train}\n    deps: [a.py]\n    outs: [o.txt]\n",
			"  a:\n    in: [a_py]\n    out: o.txt\n", "dvc.yaml:4: stage a: ${train} is a mapping with parts in several files and vars; write the value by hand",
		},
		"paths that lead up are told once": {
			"stages:\n  a:\n    cmd: x\n    deps: [../a.py, ../b.py]\n    outs: [../o.txt, o.txt]\n", "  a:\n    out: o.txt\n    run: x\n",
			"dvc.yaml:4: stage a: ../a.py is not below the folder of the package file, and other paths may not be: convert it again with -o and a package file further up, or move the data",
		},
		"the key of a matrix": {
			"stages:\n  a:\n    matrix: {x: [1, 2], y: '${list}'}\n    cmd: x ${key}\n    deps: [a.py]\n    outs: ['${key}.txt']\n",
			"    matrix: {x: ['1', '2'], y: params_yaml.list}\n    in: [a_py]\n    out: '{x}-{y}.txt'\n    run: 'x \"$x\"-\"$y\"'\n", "",
		},
		"items that are written out": {
			"stages:\n  a:\n    matrix: {x: [{n: 1}, {n: 2}]}\n    cmd: x ${item.x.n} > ${key}.txt\n    outs: ['${key}.txt']\n",
			"  a-x0:\n    out: x0.txt\n    run: x 1 > x0.txt\n",
			"dvc.yaml:3: stage a: it has no deps: DVC runs it each time, e3 once; to run it again: e3 start --force --filter 'a-*'",
		},
		"what sh does otherwise": {
			"stages:\n  a:\n    cmd: x | y > o.txt\n    deps: [a.py]\n    outs: [o.txt]\n",
			"    run: |\n      set +o pipefail   # as sh has it\n      x | y > o.txt\n", "",
		},
		"what a command names": {
			"stages:\n  a:\n    cmd: python lib/run.py --config=conf.json\n    deps: [data]\n    outs: [o.txt]\n",
			"  a:\n    in: [conf_json, data, run_py, util_py, words_txt]\n", "",
		},
		"metrics and plots in a folder": {
			"stages:\n  a:\n    cmd: x\n    deps: [a.py]\n    outs: [eval/live]\nmetrics: [eval/live/m.json]\nplots:\n- ROC: {x: fpr, y: {eval/live/roc.csv: tpr}, template: simple}\n- eval/live/img\n",
			"    out: {dir: eval/live/, metrics: [m.json], plots: [img, {file: roc.csv, x: fpr, y: tpr, title: ROC}]}\n", "",
		},
		"no deps": {
			"stages:\n  a:\n    cmd: date > o.txt\n    outs: [o.txt]\n", "  a:\n    out: o.txt\n    run: date > o.txt\n",
			"dvc.yaml:3: stage a: it has no deps: DVC runs it each time, e3 once; to run it again: e3 start --force --filter a",
		},
		"no outs": {
			"stages:\n  a:\n    cmd: pytest\n    deps: [a.py]\n",
			"  a:\n    in: [a_py]\n    out: logs/a.txt\n    run: |\n      {\n      pytest\n      } > \"$out\"\n",
			"dvc.yaml:3: stage a: it has no outs, and a task must have an output: what it prints is kept in logs/a.txt, and files that it writes are not: those that another stage reads belong under out",
		},
		"variables": {
			"stages:\n  a:\n    cmd: x --token $WANDB_KEY ${HOME} \\${sh} > o\n    deps: [a.py]\n    outs: [o]\n",
			"  a:\n    in: [a_py]\n    out: o\n    pass_env: [WANDB_KEY]\n    run: |\n      set +u   # as sh has it\n      x --token $WANDB_KEY ${HOME} ${sh} > o\n",
			"dvc.yaml:3: stage a: its command uses $WANDB_KEY: it is passed on, and not in the key; if it decides the result, name it under key_env",
		},
		"one file of two stages": {
			"stages:\n  a:\n    cmd: x\n    deps: [a.py]\n    outs: [o.txt]\n  b:\n    cmd: x\n    deps: [a.py]\n    outs: [o.txt]\n",
			"  a:\n    in: [a_py]\n    out: o.txt\n    run: x\n", "dvc.yaml:9: stage b: a writes o.txt too; one of them has to write another file",
		},
		"an unknown key": {
			"stages:\n  a:\n    cmd: x\n    deps: [a.py]\n    outs: [o.txt]\n    foo: 1\n", "  a:\n    in: [a_py]\n    out: o.txt\n    run: x\n",
			"dvc.yaml:6: stage a: foo: e3 new does not know this key; look up what it does, and do it by hand",
		},
	} {
		t.Run(name, func(t *testing.T) {
			fsys := fstest.MapFS{"dvc.yaml": {Data: []byte(test.dvc)}, "a.py": {}, "data/x.csv": {},
				"params.yaml": {Data: []byte("train: {rate: 0.1}\nseed: 1\nname: n\nlist: [p, q]\nmodels: {u: {n: 1, k: 2}, v: {n: 3, k: 4}}\n")},
				"lib/run.py":  {Data: []byte("import sys, util\nopen('lib/words.txt')\n")}, "lib/util.py": {}, "lib/words.txt": {}, "conf.json": {}}
			d, notes, err := newfile.FromDVC(fsys, "dvc.yaml", "p")
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(d.Text(), test.want) {
				t.Errorf("got\n%s\nwant in it\n%s", d.Text(), test.want)
			}
			var got []string
			for _, n := range notes {
				got = append(got, n.String())
			}
			if text := strings.Join(got, "\n"); text != test.notes {
				t.Errorf("notes\n%s\nwant\n%s", text, test.notes)
			}
			checkDraft(t, d, false)
		})
	}
}

// TestNoPipeline refuses what is no pipeline, and survives any shape of one.
func TestNoPipeline(t *testing.T) {
	for _, text := range []string{"", "a", "[]", "{", "stages: {a: {cmd: [}}"} {
		if _, _, err := newfile.FromDVC(fstest.MapFS{"dvc.yaml": {Data: []byte(text)}}, "dvc.yaml", "p"); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
	keys := []string{"cmd", "deps", "outs", "params", "metrics", "plots", "foreach", "do", "matrix", "vars", "wdir", "frozen", "always_changed", "desc", "meta", "live", "x"}
	values := []string{"a", "[]", "[a, {b: c}]", "{}", "{a: {b: 1}}", "true", "null", "${a.b[0]}", "[[a]]", "{a: [1, 2]}", "[${item}]", "'${item.x}'", "../x", "[s3://b/c]", "[1, 2.5, true]"}
	rapid.Check(t, func(t *rapid.T) {
		var b strings.Builder
		b.WriteString("stages:\n")
		for i := range rapid.IntRange(1, 4).Draw(t, "stages") {
			fmt.Fprintf(&b, "  s%d:\n", i)
			for _, k := range rapid.SliceOfNDistinct(rapid.SampledFrom(keys), 1, 6, rapid.ID[string]).Draw(t, "keys") {
				fmt.Fprintf(&b, "    %s: %s\n", k, rapid.SampledFrom(values).Draw(t, "value"))
			}
		}
		fsys := fstest.MapFS{"dvc.yaml": {Data: []byte(b.String())}, "params.yaml": {Data: []byte("a: {b: [1]}")}}
		d, notes, err := newfile.FromDVC(fsys, "dvc.yaml", "p")
		if err != nil {
			return
		}
		_ = d.Text()
		for _, n := range notes {
			if n.Line < 1 {
				t.Fatalf("a note without a line: %v\n%s", n, b.String())
			}
		}
	})
}

// Files of servers: what dvc import-url has brought keeps the content that is here; a URL among deps is an input.
func TestURLsOfDVC(t *testing.T) {
	d, notes, err := newfile.FromDVC(fstest.MapFS{
		"data/raw.xml":     {Data: []byte("content")},
		"data/raw.xml.dvc": {Data: []byte("md5: a\nfrozen: true\ndeps:\n- path: https://host.example/get?id=1\n  etag: b\nouts:\n- md5: c\n  path: raw.xml\n")},
		"far.csv.dvc":      {Data: []byte("deps:\n- path: s3://bucket/far.csv\nouts:\n- path: far.csv\n")},
		"own.csv":          {}, "own.csv.dvc": {Data: []byte("outs:\n- path: own.csv\n")},
		"dvc.yaml": {Data: []byte("stages:\n  get:\n    cmd: wc data/raw.xml far.csv own.csv > n.txt\n    deps: [data/raw.xml, far.csv, own.csv, " +
			"https://host.example/a/list.txt, 'ssh://host/x', 'azure://c/x']\n    outs: [n.txt]\n")},
	}, "dvc.yaml", "p")
	if err != nil {
		t.Fatal(err)
	}
	checkDraft(t, d, false)
	text := d.Text()
	for _, want := range []string{
		`{url: https://host.example/get?id=1, at: data/raw.xml, sha256: "ed7002b439e9ac845f22357d822bac1444730fbdb6016d3ec9432297b9ec9f73"}   # by dvc import-url`,
		`{url: s3://bucket/far.csv}`, `{file: own.csv}`, `{url: https://host.example/a/list.txt, at: urls/list.txt}`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the package file lacks %s:\n%s", want, text)
		}
	}
	lost := 0
	for _, n := range notes {
		if n.Lost {
			lost++
		}
	}
	if lost != 2 {
		t.Errorf("%d parts are lost, want those of ssh and azure: %v", lost, notes)
	}
}

package manifest_test

import (
	"strings"
	"testing"

	"e3/internal/format/manifest"
)

// mistakes are what newcomers write, most of it because another tool would take it. Each message says what is wrong, where,
// and what to write. Those that need files or a command line are in cmd/e3/testdata/script/mistakes.txtar.
var mistakes = []struct{ name, file, want string }{
	// Words of DVC.
	{"stages", "stages: {a: {cmd: x}}", `f:3:1: unknown key "stages" (write tasks:, or let e3 translate the file: e3 new --from dvc.yaml)`},
	{"deps", task("deps: [data.csv]"), `f:5:5: task t: unknown key "deps" (declare files under inputs, as {file: data.csv}, and name them here under in)`},
	{"outs", task("outs: [o]"), `task t: unknown key "outs" (write out:)`},
	{"cmd", task("cmd: python x.py"), `task t: unknown key "cmd" (write run: with the command)`},
	{"params of a task", task("params: [rate]"), `task t: unknown key "params" (name the values under in, as params.train.rate, of an input {params: params.yaml})`},
	{"params of the file", "params: {rate: 1}", `unknown key "params" (write an input: inputs: {params: {params: params.yaml}})`},
	{"metrics", task("metrics: [m.json]"), `task t: unknown key "metrics" (write it under out, as {file: scores.json, kind: metrics})`},
	{"frozen", task("frozen: true"), `task t: unknown key "frozen" (leave the task out, and declare its files under inputs)`},
	{"always_changed", task("always_changed: true"), `task t: unknown key "always_changed" (a task runs when its inputs or its command change; to run it anyway: e3 start --force --filter NAME)`},
	{"foreach", task("foreach: [a, b]"), `task t: unknown key "foreach" (write matrix: {name: [items]}; the item is "$name" in the command)`},
	{"wdir", task("wdir: src"), `task t: unknown key "wdir" (a command begins in an empty folder with copies of its inputs at their paths; to work elsewhere: cd in the command)`},
	{"vars", "vars: [params.yaml]", `unknown key "vars" (there are no templates: use a matrix, or an input with value: which the command finds as "$name")`},
	{"persist of an output", "tasks: {t: {out: {file: o, persist: true}, run: x}}", `task t: out: unknown key "persist" (nothing is left from an earlier command: each begins in an empty folder)`},
	// Of Snakemake.
	{"rule", "rule: {all: {}}", `unknown key "rule" (write tasks:)`},
	{"input", task("input: a.csv"), `task t: unknown key "input" (declare files under inputs`},
	{"output", task("output: a.csv"), `task t: unknown key "output" (write out:)`},
	{"shell", task("shell: zsh"), `task t: unknown key "shell" (scripts run with bash -euo pipefail; for another, write run: as a list: [zsh, -c, …])`},
	{"threads", task("threads: 4"), `task t: unknown key "threads" (write resources: {cpu: 4})`},
	{"conda", task("conda: env.yaml"), `task t: unknown key "conda" (write environment: with the name of an entry of environments:`},
	{"configfile", "configfile: config.yaml", `unknown key "configfile" (write an input: inputs: {params: {params: config.yaml}})`},
	{"benchmark", task("benchmark: b.tsv"), `task t: unknown key "benchmark" (time and memory are kept: e3 history)`},
	// Of Nextflow, GitHub Actions, go-task, Make and Compose.
	{"publishDir", task("publishDir: out"), `task t: unknown key "publishDir" (write results: at the top of the file)`},
	{"image with spaces", task("image: 'python 3'"), `task t: image: "python 3" is no reference to an image`},
	{"image without a path", task("image: 'oci:'"), `task t: image: "oci:" names no path: write oci:PATH, or oci:PATH:TAG`},
	{"image with a short digest", task("image: 'python@sha256:12'"), `task t: image: "python@sha256:12": hash "12" has 2 characters`},
	{"image in the open", "tasks: {t: {out: o, run: x, image: 'python:3', room: open}}", `task t: it has an image, and its room is open (leave out room: a task in an image has a closed room)`},
	{"image with tools", "tasks: {t: {out: o, run: x, image: 'python:3', tools: [python3]}}", `task t: its programs are those of the image, whose digest is in the key (leave them out of tools)`},
	{"unknown environment", "environments: {good: {from: a, run: x}}\ntasks: {t: {environment: godo, out: o, run: x}}", `f:4:26: task t: there is no environment "godo" (did you mean "good"?)`},
	{"environment of none", "tasks: {t: {environment: py, out: o, run: x}}", `task t: there is no environment "py" (write it under environments:, with from and run)`},
	{"environment in an image", "image: python:3\nenvironments: {py: {from: a, run: x}}\ntasks: {t: {environment: py, out: o, run: x}}", `task t: it has an environment, made of this machine's programs, and an image, which has others (leave out environment: if the image has the programs; else write room: open at the task, or image: at the others instead of at the top)`},
	{"environment beside an image", "environments: {py: {from: a, run: x}}\ntasks: {t: {environment: py, out: o, run: x, image: 'python:3'}}", `task t: it has an environment, made of this machine's programs, and an image, which has others (leave out environment: if the image has the programs, else image:)`},
	{"container", task("container: python"), `task t: unknown key "container" (write image: with the name of an image, oci:PATH or oci-archive:PATH)`},
	{"jobs", "jobs: {build: {}}", `unknown key "jobs" (write tasks:)`},
	{"needs", task("needs: [build]"), `task t: unknown key "needs" (what a task reads decides what runs before it: name the other task under in)`},
	{"depends_on", task("depends_on: [db]"), `task t: unknown key "depends_on" (what a task reads decides`},
	{"script", task("script: [x, y]"), `task t: unknown key "script" (write run: with the command)`},
	{"steps", task("steps: [{run: x}]"), `task t: unknown key "steps" (each step is a task of its own, or a line of run: |)`},
	{"runs-on", task("runs-on: gpu"), `task t: unknown key "runs-on" (write labels: [name] for workers that have it)`},
	{"timeout-minutes", task("timeout-minutes: 3"), `task t: unknown key "timeout-minutes" (write timeout: 30m)`},
	{"if", task("if: always()"), `task t: unknown key "if" (a task has no condition: the command decides, and e3 start --filter chooses)`},
	{"command", task("command: x"), `task t: unknown key "command" (write run: with the command)`},
	{"env_file", task("env_file: .env"), `task t: unknown key "env_file" (write env: with the variables, or pass_env: with their names)`},
	{"environment", task("environment: {A: b}"), `task t: environment: want the name of an entry of environments, not a mapping (write env: with variables)`},
	{"sources and generates", task("generates: [o]"), `task t: unknown key "generates" (write out:)`},
	{"cmds", task("cmds: [a, b]"), `task t: unknown key "cmds" (write run: with the command; several lines follow run: |)`},
	{"includes", "includes: {a: b.yml}", `unknown key "includes" (a package is one file; what generates YAML or JSON can write it)`},
	{"services", "services: {db: {image: x}}", `unknown key "services" (write tasks:; services that go on running are not supported)`},
	// Of nobody in particular.
	{"path of an input", "inputs: {a: {path: a.csv}}", `input a: unknown key "path" (write file: or dir:)`},
	{"type of an input", "inputs: {a: {value: 1, type: number}}", `input a: unknown key "type" (the kind is that of the value: {value: 0.1} is a number)`},
	{"default of an input", "inputs: {a: {default: 1}}", `input a: unknown key "default" (write value:)`},
	{"an input that is only a path", "inputs: {a: a.csv}", `input a: want a mapping such as {file: data.csv}, not a string`},
	{"an absolute path", "inputs: {a: {file: /data/a.csv}}", `the path is absolute (paths are relative to the folder of the package file; copy or link the data into it)`},
	{"a path above", "inputs: {a: {file: ../a.csv}}", `the path leaves the folder of the package file (move the package file up, or the data into its folder)`},
	{"a pattern as a file", "inputs: {a: {glob: data/a.csv}}", `the pattern has no * or ? (use file: or dir:)`},
	{"names in a glob", "inputs: {a: {glob: 'raw/{sample}.fq'}}", `the pattern has no * or ? (a glob takes braces as they are; for items named by what is in braces write files:)`},
	{"a folder as a file", "inputs: {a: {file: data/}}", `the path ends in /, as a directory's (use dir:)`},
	{"a file among the sources", "tasks: {t: {in: [data/a.csv], out: o, run: x}}", `(sources are names, not paths: declare it under inputs, as data: {file: "data/a.csv"}, and write data here; what a task writes is named by the task)`},
	{"a name that is no list", "inputs: {a: {value: 1}}\ntasks: {t: {in: a, out: o, run: x}}", `task t: in: want a list of sources or a mapping of names to sources, not a string (write in: [a])`},
	{"a mistyped source", "inputs: {sales: {value: 1}}\ntasks: {t: {in: [slaes], out: o, run: x}}", `task t: there is no input or task "slaes" (did you mean "sales"?)`},
	{"no output", "tasks: {t: {run: x}}", `task t: no output is declared (add out: with the path that the command writes)`},
	{"no command", "tasks: {t: {out: o}}", `task t: there is no command (add run: with a command)`},
	{"tasks as a list", "tasks: [{name: a}]", `tasks: want a mapping, not a list`},
	{"a task of itself", "tasks: {t: {in: [t], out: o, run: x}}", `f:3:18: tasks wait for each other: t → t`},
	{"a number as text", "description: 3", `description: want a string, not an integer (quote it: "3")`},
	{"a mistyped key", task("rnu: x"), `task t: unknown key "rnu" (did you mean "run"?)`},
	{"retry", task("retry: 3"), `task t: unknown key "retry" (write retries: 2)`},
	{"memory", task("memory: 8G"), `task t: unknown key "memory" (write resources: {memory: 8GiB})`},
	// Of items, gathering, parameters and results.
	{"loop", task("loop: [a]"), `task t: unknown key "loop" (write matrix: {name: [items]}`},
	{"items", task("items: [a]"), `task t: unknown key "items" (write matrix: {name: [items]}`},
	{"scatter", task("scatter: [a]"), `task t: unknown key "scatter" (write matrix: {name: [items]}`},
	{"sweep", task("sweep: {a: [1]}"), `task t: unknown key "sweep" (write matrix: {name: [items]}`},
	{"group_by", task("group_by: sample"), `task t: unknown key "group_by" (a task for each group: matrix: {sample: raw.sample}, and in: {parts: "fit[sample, *]"})`},
	{"groupTuple", task("groupTuple: sample"), `task t: unknown key "groupTuple" (a task for each group`},
	{"range", task("range: 10"), `task t: unknown key "range" (write matrix: {i: [1, 2, 3]}, or let a task write the list: matrix: {i: numbers})`},
	{"checkpoint", task("checkpoint: true"), `task t: unknown key "checkpoint" (any output can be a list of items: matrix: {item: split} where split writes split.txt, .csv or .json)`},
	{"dynamic", "tasks: {t: {out: {file: l.txt, dynamic: true}, run: x}}", `task t: out: unknown key "dynamic" (any output can be a list of items`},
	{"collect", task("collect: fit"), `task t: unknown key "collect" (write in: {parts: "fit[*]"})`},
	{"need at a task", task("need: 95%"), `task t: unknown key "need" (write it at the source: in: {parts: {from: "fit[*]", need: 95%}})`},
	{"manifest at a task", task("manifest: true"), `task t: unknown key "manifest" (write it at the source: in: {parts: {from: "fit[*]", manifest: true}})`},
	{"exclude at a task", task("exclude: [{a: 1}]"), `task t: unknown key "exclude" (write it under matrix)`},
	{"min", gathered("min: 3"), `task t: in: p: unknown key "min" (write need: 95%, a number like 3, or any)`},
	{"allow_missing", gathered("allow_missing: true"), `task t: in: p: unknown key "allow_missing" (write need: 95%, a number like 3, or any)`},
	{"optional", gathered("optional: true"), `task t: in: p: unknown key "optional" (write need: 95%, a number like 3, or any)`},
	{"need in words", gathered("need: most"), `task t: in: p: need: "most" is not how many members must succeed (write 95%, a number like 3, or any)`},
	{"need above all", gathered("need: 120%"), `task t: in: p: need: "120%" is not how many members must succeed`},
	{"need as a fraction", gathered("need: 0.95"), `task t: in: p: need: want a share like 95%, a number, or any, not a fractional number`},
	{"a manifest with a name", gathered("manifest: list.json"), `task t: in: p: manifest: want true or false, not a string`},
	{"ext", gathered("ext: json"), `task t: in: p: unknown key "ext" (entries have the suffix of the output, unless there is suffix: false)`},
	{"an optional output", "tasks: {t: {out: {file: o, optional: true}, run: x}}", `task t: out: unknown key "optional" (each output must be written: an empty file says that there is nothing)`},
	{"config", task("config: c.yaml"), `task t: unknown key "config" (name the values under in, as params.train.rate, of an input {params: config.yaml})`},
	{"results at a task", task("results: out/"), `task t: unknown key "results" (write results: at the top of the file)`},
	{"results to", "tasks: {t: {out: o, run: x}}\nresults: {to: r/}", `results: unknown key "to" (write dir:)`},
	{"results as a list", "tasks: {t: {out: o, run: x}}\nresults: [t]", `results: want a folder such as results/, not a list`},
}

func task(key string) string { return "tasks:\n  t:\n    " + key }

func gathered(key string) string {
	return "tasks:\n  fit: {matrix: {a: [1]}, out: o, run: x}\n  t: {in: {p: {from: 'fit[*]', " + key + "}}, out: o, run: x}"
}

func TestMistakes(t *testing.T) {
	if len(mistakes) < 80 {
		t.Errorf("%d mistakes, want at least 80", len(mistakes))
	}
	for _, m := range mistakes {
		t.Run(m.name, func(t *testing.T) {
			text := m.file
			_, err := manifest.Parse("f", []byte("e3: 1\nname: p\n"+text))
			if err == nil || !strings.Contains(err.Error(), m.want) {
				t.Errorf("got\n%v\nwant in it\n%s", err, m.want)
			}
		})
	}
}

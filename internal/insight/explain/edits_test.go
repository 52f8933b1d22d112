package explain_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"e3/internal/format/record"
	"e3/internal/insight/explain"
)

const project = `e3: 1
name: p
inputs:
  file: {file: data.txt}
  images: {dir: images}
  logs: {glob: "logs/*.log"}
  tool: {file: tool.sh}
  n: {value: {a: 1, list: [1, 2]}}
tasks:
  copy: {in: [file], out: c.txt, run: [cp, "{file}", "{out}"]}
  raw: {in: [file], out: raw.txt, run: 'cat "$file" > "$out"'}
  clean: {in: [raw], out: clean.txt, env: {MODE: fast}, run: '{ grep -v "^#" "$raw"; echo "$MODE"; } > "$out"'}
  report: {in: [clean], out: report.txt, run: 'cat "$clean" > "$out"'}
  pics: {in: [images], out: p.txt, run: 'find "$images" -type f -exec cat {} + > "$out"'}
  grep: {in: [logs], out: g.txt, run: 'cat "$logs"/*.log > "$out"'}
  calc: {in: [n], out: v.txt, version: "1", run: 'cat "$n" > "$out"'}
  run: {in: [tool], out: t.txt, run: 'ls -l "$tool" | cut -c1-4 > "$out"'}
  both: {in: [file, n], out: both.txt, run: 'cat $(find . -name "*.txt" -not -name both.txt) > "$out"'}
  sq: {matrix: {k: [1, 2]}, out: k.txt, run: 'echo "$(env | grep -E "^[km]=")" > "$out"'}
  sum: {in: {all: "sq[*]"}, out: s.txt, run: 'cat "$all"/* > "$out"'}
  multi: {in: [file], out: {a: a.txt, b: b.txt}, run: 'cat "$file" > "$b"; echo a > "$a"'}
  ra: {in: {x: multi.a}, out: ra.txt, run: 'cat "$x" > "$out"'}
  left: {out: same.txt, run: 'echo left > "$out"'}
  right: {out: same.txt, run: 'echo right > "$out"'}
  pick: {in: {x: left}, out: pick.txt, run: 'cat "$x" > "$out"'}
  many: {out: d/, run: 'echo 1 > "$out/one"'}
`

// furnish writes the project and its files.
func (h *house) furnish() {
	h.Helper()
	h.write("e3.yaml", project)
	h.write("data.txt", "1\n2\n")
	h.write("images/a", "a")
	h.write("images/deep/er/b", "b")
	h.write("logs/one.log", "one")
	h.write("tool.sh", "echo tool")
}

// anEdit is a change of a project, with the expected root cause for a task.
type anEdit struct {
	name    string
	do      func(h *house)
	task    string
	kind    explain.Kind
	of      string // the task whose cause it is; "": task
	subject string
	path    string
	says    string
	waits   bool // until something upstream has run
}

var edits = []anEdit{
	{name: "command as a list", do: func(h *house) { h.edit(`[cp, "{file}"`, `[cp, -p, "{file}"`) }, task: "copy", kind: explain.Command, says: "the command changed"},
	{name: "script", do: func(h *house) { h.edit(`'cat "$file" > "$out"'`, `'cat "$file" "$file" > "$out"'`) }, task: "raw", kind: explain.Command},
	{name: "list to script", do: func(h *house) { h.edit(`[cp, "{file}", "{out}"]`, `'cp "$file" "$out"'`) }, task: "copy", kind: explain.Command, says: "from a list to a script"},
	{name: "env value", do: func(h *house) { h.edit("MODE: fast", "MODE: slow") }, task: "clean", kind: explain.Environment, subject: "MODE", says: `environment variable MODE changed from "fast" to "slow"`},
	{name: "env added", do: func(h *house) { h.edit("MODE: fast", "MODE: fast, EXTRA: x") }, task: "clean", kind: explain.Environment, subject: "EXTRA", says: `EXTRA was added: "x"`},
	{name: "env removed", do: func(h *house) {
		h.edit(`env: {MODE: fast}`, `env: {}`)
		h.edit(`{ grep`, `MODE=; { grep`)
	}, task: "clean", kind: explain.Command},
	{name: "env unused removed", do: func(h *house) { h.edit("matrix: {k: [1, 2]}, out: k.txt", "matrix: {m: [1, 2]}, out: k.txt") }, task: "sq[1]", kind: explain.Environment, subject: "m", says: "matrix constant m was added"},
	{name: "variable passed", do: func(h *house) { h.edit("raw: {in: [file]", "raw: {pass_env: [MODE], in: [file]") }, task: "raw", kind: explain.Environment, subject: "MODE", says: "environment variable MODE was added: passed on by pass_env"},
	{name: "secret", do: func(h *house) { h.edit("raw: {in: [file]", "raw: {secrets: [PATH], in: [file]") }, task: "raw", kind: explain.Environment, subject: "PATH", says: "environment variable PATH was added: passed on as a secret"},
	{name: "version", do: func(h *house) { h.edit(`version: "1"`, `version: "2"`) }, task: "calc", kind: explain.Version, says: `the version changed from "1" to "2"`},
	{name: "matrix item added", do: func(h *house) { h.edit("k: [1, 2]", "k: [1, 2, 3]") }, task: "sq[3]", kind: explain.NeverRan},
	{name: "matrix item added, fan-in", do: func(h *house) { h.edit("k: [1, 2]", "k: [1, 2, 3]") }, task: "sum", kind: explain.ItemAdded, subject: "all", path: "3.txt", says: "item 3.txt was added", waits: true},
	{name: "matrix item removed, fan-in", do: func(h *house) { h.edit("k: [1, 2]", "k: [1]") }, task: "sum", kind: explain.ItemRemoved, subject: "all", path: "2.txt", says: "item 2.txt was removed"},
	{name: "matrix item changed, fan-in", do: func(h *house) { h.edit(`'echo "$(env`, `'echo "more $(env`) }, task: "sum", kind: explain.Command, of: "sq[1]", waits: true},
	{name: "input file", do: func(h *house) { h.write("data.txt", "1\n2\n3\n") }, task: "raw", kind: explain.Input, subject: "file", says: "input file changed (4 B → 6 B)"},
	{name: "file deep in a directory", do: func(h *house) { h.write("images/deep/er/b", "other") }, task: "pics", kind: explain.Input, subject: "images", path: "deep/er/b", says: "input images: deep/er/b changed (1 B → 5 B)"},
	{name: "file added to a directory", do: func(h *house) { h.write("images/deep/c", "c") }, task: "pics", kind: explain.Input, subject: "images", path: "deep/c", says: "deep/c was added"},
	{name: "file removed from a directory", do: func(h *house) { h.must(os.Remove(filepath.Join(h.dir, "images/a"))) }, task: "pics", kind: explain.Input, subject: "images", path: "a", says: "a was removed"},
	{name: "mode of a file in a directory", do: func(h *house) { h.must(os.Chmod(filepath.Join(h.dir, "images/a"), 0o755)) }, task: "pics", kind: explain.Input, subject: "images", path: "a", says: "a is executable now"},
	{name: "glob gains a file", do: func(h *house) { h.write("logs/two.log", "two") }, task: "grep", kind: explain.Input, subject: "logs", says: "two.log was added"},
	{name: "executable bit", do: func(h *house) { h.must(os.Chmod(filepath.Join(h.dir, "tool.sh"), 0o755)) }, task: "run", kind: explain.InputKind, subject: "tool", says: "staged as an executable file now, not as a file"},
	{name: "file moved", do: func(h *house) {
		h.write("moved/data.txt", "1\n2\n")
		h.edit("file: data.txt", "file: moved/data.txt")
	}, task: "raw", kind: explain.InputPath, subject: "file", says: "staged at moved/data.txt now, not at data.txt"},
	{name: "value", do: func(h *house) { h.edit("{a: 1, list: [1, 2]}", "{a: 1, list: [1, 5]}") }, task: "calc", kind: explain.Input, subject: "n", says: "input n: list[1] 2 → 5"},
	{name: "value set", do: func(h *house) {
		leaf, err := h.Workspaces.Datasets.PutValue(h.Context(), []any{int64(7)})
		h.must(err)
		h.must(h.Workspaces.Datasets.Set(h.Context(), "w", "n", leaf))
	}, task: "calc", kind: explain.Input, subject: "n", says: "→ [7]"},
	{name: "file set", do: func(h *house) {
		h.write("other", "other content")
		leaf, err := h.Workspaces.Datasets.PutPath(h.Context(), record.FromFile, filepath.Join(h.dir, "other"))
		h.must(err)
		h.must(h.Workspaces.Datasets.Set(h.Context(), "w", "file", leaf))
	}, task: "raw", kind: explain.Input, subject: "file", says: "(4 B → 13 B)"},
	{name: "input added", do: func(h *house) { h.edit("both: {in: [file, n]", "both: {in: [file, n, tool]") }, task: "both", kind: explain.InputAdded, subject: "tool"},
	{name: "input removed", do: func(h *house) { h.edit("both: {in: [file, n]", "both: {in: [file]") }, task: "both", kind: explain.InputRemoved, subject: "n"},
	{name: "input renamed", do: func(h *house) { h.edit("both: {in: [file, n]", "both: {in: {f: file, n: n}") }, task: "both", kind: explain.InputRenamed, subject: "f", says: "input file is named f now"},
	{name: "inputs reordered", do: func(h *house) { h.edit("both: {in: [file, n]", "both: {in: [n, file]") }, task: "both", kind: explain.Definition, subject: "order"},
	{name: "input from another task", do: func(h *house) { h.edit("{x: left}", "{x: right}") }, task: "pick", kind: explain.InputSource, subject: "x", says: "input x comes from task right now, not from task left"},
	{name: "output path", do: func(h *house) { h.edit("out: v.txt", "out: w.txt") }, task: "calc", kind: explain.Output, says: "the output changed from file v.txt to file w.txt"},
	{name: "output kind", do: func(h *house) {
		h.edit(`out: v.txt, version: "1", run: 'cat "$n" > "$out"'`, `out: v.txt/, version: "1", run: 'cat "$n" > "$out"'`)
		h.edit(`'cat "$n" > "$out"'`, `'cat "$n" > "$out/v"'`)
	}, task: "calc", kind: explain.Command},
	{name: "output added", do: func(h *house) {
		h.edit("out: {a: a.txt, b: b.txt}", "out: {a: a.txt, b: b.txt, c: c/}")
	}, task: "multi", kind: explain.Output, subject: "c", says: "output c was added: directory c"},
	{name: "output declared as a directory", do: func(h *house) {
		h.edit("out: d/, run: 'echo 1 > \"$out/one\"'", "out: e/, run: 'echo 1 > \"$out/one\"'")
	}, task: "many", kind: explain.Output},
	{name: "command two tasks up", do: func(h *house) { h.edit(`'cat "$file" > "$out"'`, `'tac "$file" > "$out"'`) }, task: "report", kind: explain.Command, of: "raw", says: "the command changed", waits: true},
	{name: "env one task up", do: func(h *house) { h.edit("MODE: fast", "MODE: slow") }, task: "report", kind: explain.Environment, of: "clean", subject: "MODE", waits: true},
	{name: "input two tasks up", do: func(h *house) { h.write("data.txt", "1\n2\n4\n") }, task: "report", kind: explain.Input, of: "raw", subject: "file", says: "input file changed", waits: true},
}

// Each edit is the root cause of the tasks that would run, and, after a start, of those that ran.
func TestEdits(t *testing.T) {
	for _, tt := range edits {
		t.Run(tt.name, func(t *testing.T) {
			h := newHouse(t, t.TempDir())
			defer h.Close()
			h.furnish()
			h.deploy("w")
			h.start("w")
			tt.do(h)
			state := explain.WouldRun
			if tt.waits {
				state = explain.Waits
			}
			before := h.why("w." + tt.task)
			if tt.kind != explain.ItemAdded { // a task that waits for a new item has the item as its root
				tt.check(h, before, state)
			}
			h.start("w")
			after := h.why("w." + tt.task)
			tt.check(h, after, explain.Current)
			one := h.why("w." + tt.task + "@" + after.Execution.Execution)
			tt.check(h, one, explain.Ran)
		})
	}
}

func (e *anEdit) check(h *house, w *explain.Explanation, state explain.State) {
	h.Helper()
	of := e.of
	if of == "" {
		of = e.task
	}
	if w.State != state || w.Root.Kind != e.kind || w.Root.Task != of || e.subject != "" && w.Root.Subject != e.subject || e.path != "" && w.Root.Path != e.path {
		h.Errorf("got %s, root %+v\nwant %s, %s of %s, %q %q\nsentence %q", w.State, w.Root, state, e.kind, of, e.subject, e.path, w.Sentence)
	}
	if !strings.Contains(w.Sentence, e.says) {
		h.Errorf("%s: got %q, want %q in it", state, w.Sentence, e.says)
	}
}

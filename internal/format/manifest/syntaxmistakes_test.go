package manifest_test

import (
	"fmt"
	"strings"
	"testing"

	"e3/internal/format/manifest"
)

// syntaxMistakes are files whose YAML cannot be read, or means something else than it looks like, with a part of the
// message: where, and what to write.
var syntaxMistakes = []struct{ name, file, want string }{
	{"a fan-in without quotes", "tasks:\n  r:\n    in: [train[*]]\n    out: o", `f:5:17: YAML: while scanning an alias, did not find expected alphabetic or numeric character (begun at 5:16) (quote what has brackets: "train[*]")`},
	{"an item without quotes", "tasks:\n  r: {in: [fit[rate=1].model], out: o}", `(quote what has brackets: "fit[rate=1].model")`},
	{"a fan-in in a list", "tasks:\n  r:\n    in:\n      - fit[*]\n      - [fit[*]]", `(quote what has brackets: "fit[*]")`},
	{"a pattern without quotes", "inputs: {d: {glob: *.csv}}", `(quote text that begins with * or &: "*.csv")`},
	{"an at sign", "inputs: {d: {file: @data.csv}}", `(quote text that begins with a special character: "@data.csv")`},
	{"backquotes", "tasks:\n  a:\n    out: o\n    run: `date` > o", "(quote text that begins with a special character: \"`date` > o\")"},
	{"a tab", "inputs:\n\td: {file: x}", `f:4:1: `},
	{"a tab in a task", "tasks:\n  a:\n    out: o\n\trun: x", `(indent with spaces: this line begins with a tab)`},
	{"no colon", "tasks:\n  a:\n    out o\n    run: x", `(line 5 has no colon: out: o)`},
	{"no colon after a name", "tasks:\n  a\n    out: o", `(line 4 has no colon: a:)`},
	{"no space after a colon", "tasks:\n  a:\n    out:o\n    run: x", `(line 5 needs a space after the colon: out: o)`},
	{"no space in braces", "inputs: {d: {file:x.csv}}", `input d: unknown key "file:x.csv" (write a space after the colon: file: x.csv)`},
	{"no space in an output", "tasks: {a: {out: {file:o}, run: x}}", `"file:o" is not an output name (write a space after the colon: file: o)`},
	{"two colons", "inputs:\n  d: file: x.csv", `(write {file: x.csv}, or quote the text)`},
	{"a colon in a command", "tasks:\n  a:\n    out: o\n    run: echo \"x: y\" > o: z", `(quote text that contains ": ", or write it in lines of its own below |)`},
	{"a backslash", "tasks:\n  a:\n    out: o\n    run: \"grep \\d x\"", `(in double quotes \ begins an escape: write \\, or single quotes`},
	{"an open quote", "tasks:\n  a:\n    out: o\n    run: \"echo x > o", `(the quote is not closed`},
	{"a test as a command", "tasks:\n  a:\n    out: o\n    run: [ -f x ] && touch o", `quote the whole text`},
	{"a script at the margin", "tasks:\n  a:\n    out: o\n    run: |\n    touch o", `(indent the text below | or > by more than its key)`},
	{"a key too deep", "tasks:\n  a:\n   out: o\n    run: x", `(it is indented deeper than line 5, which has a value already: give both the same indentation)`},
	{"a key too shallow", "tasks:\n  a:\n      out: o\n    run: x", `it is indented like no key above it: see line 5`},
	{"a no-break space", "tasks:\n  a:\n    out: o\n    run:\u00a0touch o", `(line 6 has a no-break space (U+00A0)`},
	{"a list without its end", "tasks:\n  a: {in: [b, out: o}", `f:`},
	// Read as something else.
	{"a task at the margin", "tasks:\ntrain:\n  out: o\n  run: x", `f:4:1: unknown key "train" (indent it: tasks are below tasks:)`},
	{"an input at the margin", "inputs:\ndata: {file: x}", `f:4:1: unknown key "data" (indent it: inputs are below inputs:)`},
	{"no tasks below tasks", "tasks:\ntrain:\n  out: o\n  run: x", `tasks: want a mapping, not nothing (indent what belongs to it below it)`},
	{"keys beside their task", "tasks:\n  train:\n  out: o\n  run: x", `"run" is at the place of a task's name, and a key of tasks (indent it deeper than the name of its task)`},
	{"a key beside its task", "tasks:\n  train:\n    out: o\n  run: x", `f:6:3: "run" is at the place of a task's name`},
	{"a number as an input", "inputs: {k: 3}", `f:3:13: input k: want a mapping such as {file: data.csv}, not an integer (write {value: 3})`},
	{"a list as an input", "inputs: {k: [1, 2]}", `(write {value: [1, 2]})`},
	{"a boolean as an input", "inputs: {k: true}", `(write {value: true})`},
	{"a path as an input", "inputs: {k: data/a.csv}", `(write {file: data/a.csv})`},
	{"a folder as an input", "inputs: {k: data/}", `(write {dir: data/})`},
	{"a pattern as an input", "inputs: {k: 'data/*.csv'}", `(write {glob: "data/*.csv"})`},
	{"a word as an input", "inputs: {k: fast}", `(write {value: fast} for a text, or {file: fast})`},
	{"files as an input", "inputs: {k: [a.csv, b.csv]}", `each file is an input of its own, or all that match: {glob: "data/*.csv"}`},
	{"two files", "inputs: {k: {file: [a.csv, b.csv]}}", `file: want a string, not a list (an input has one; several are a dir: or a glob:`},
	{"a misspelt source alone", "inputs: {k: {fiel: a}}", `f:3:14: input k: unknown key "fiel" (did you mean "file"?)`},
	{"a home folder", "inputs: {k: {file: ~/a.csv}}", `input k: file "~/a.csv": ~ and variables are not replaced here`},
	{"a variable in a path", "inputs: {k: {file: $HOME/a.csv}}", `~ and variables are not replaced here`},
	{"inputs as a list", "inputs: [a.csv]", `inputs: want a mapping, not a list (write each under its name)`},
	{"outputs as a list", task("out: [a.csv, b.csv]"), `out: want a path or a mapping, not a list (write a name for each: {a: a.csv, b: b.csv})`},
	{"variables as a list", task("env: [A=b]"), `env: want a mapping of variables to strings, not a list (write {A: "b"})`},
	{"one variable", task("pass_env: HOME"), `want a list of variables, not a string (write [HOME])`},
	{"one label", task("labels: gpu"), `(write [gpu])`},
	{"one item", task("matrix: {k: 3}"), `matrix: k: want a list of strings, numbers or booleans, not an integer (write [3])`},
	{"a range", task("matrix: {k: 1..30}"), `matrix: k: a range of numbers is no list (write each number: [1, 2, …, 30])`},
	{"yes", task("may_fail: yes"), `may_fail: want true or false, not a string (write true)`},
	{"off", task("network: off"), `network: want true or false, not a string (write false)`},
	{"true in quotes", task("network: 'true'"), `(leave the quotes out)`},
	{"minutes", task("timeout: 5 minutes"), `timeout: "5 minutes" is not a duration such as 30m, 1h30m or a whole number of seconds (write 5m)`},
	{"half a duration", task("timeout: 1h30"), `(write 1h30m)`},
	{"a spaced size", task("resources: {memory: 8 GB}"), `(write 8GB)`},
	{"a small size", task("resources: {memory: 8gib}"), `(write 8GiB)`},
	{"a negative size", task("resources: {memory: -8G}"), `"-8G" is not a size such as 2GiB, 512MB or a whole number of bytes`},
	{"a room", task("room: close"), `room: "close" is neither open nor closed (did you mean "closed"?)`},
	{"a misspelt number of retries", task("retries: {mxa: 2}"), `f:5:15: task t: retries: unknown key "mxa" (did you mean "max"?)`},
	{"what happens to what is lost", task("on_lost: kil"), `"kil" is neither keep nor kill (did you mean "kill"?)`},
	{"a dollar", task("in: [$src]"), `"$src" cannot be the name of a variable (write the name alone: src)`},
	{"braces", task("in: [{src}]"), `(leave the braces out: src)`},
	{"a slash for a dot", task("in: [fit/model]"), `(an output of a task is fit.model; a file is declared under inputs)`},
	{"a hyphen", "inputs: {my-data: {file: x}}", `"my-data" is not an input name (a lower-case letter or '_', then letters, digits and '_'; write my_data)`},
	{"a space", "inputs: {My data: {file: x}}", `write my_data`},
}

func TestSyntaxMistakes(t *testing.T) {
	_, err := manifest.Parse("f", []byte("e3: 1\nname: p\n"+task("retries: {mxa: 2}")))
	if err != nil && strings.Contains(err.Error(), "is missing") {
		t.Errorf("got %v, want the misspelt key alone", err)
	}
	for _, m := range syntaxMistakes {
		t.Run(m.name, func(t *testing.T) {
			_, err := manifest.Parse("f", []byte("e3: 1\nname: p\n"+m.file))
			if err == nil || !strings.Contains(err.Error(), m.want) {
				t.Errorf("got\n%v\nwant in it\n%s", err, m.want)
			}
		})
	}
}

// A value that is not written is null, which hardly is what is meant; one that is written as null is.
func TestDoubtOfNoValue(t *testing.T) {
	d, err := manifest.Parse("f", []byte("e3: 1\nname: p\ninputs:\n  k: {value: }\n  j: {value: null}\ntasks: {t: {in: [k, j], out: o, run: 'cat \"$k\" \"$j\"'}}\n"))
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprint(manifest.Lint(d))
	if want := `[f:4:7: input k: nothing is written after value, so it is null; write value: "" for an empty text, or value: null]`; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// Warnings of files that can be read, and hardly mean what they say.
func TestDoubts(t *testing.T) {
	const head = "e3: 1\nname: p\ninputs: {src: {value: 1}}\n"
	for _, m := range []struct{ name, file, want string }{
		{"no tasks", "", `there are no tasks, so nothing runs`},
		{"braces in a script", "tasks: {t: {in: [src], out: o, run: 'cat {src} > o'}}", `has {src}, which bash takes as it is; write "$src"`},
		{"a variable in a list", "tasks: {t: {in: [src], out: o, run: [cp, $src, o]}}", `task t: run is a list, which no shell reads, so $src stays as it is; write {src}, or run: as one text`},
		{"a variable in a list in braces", "tasks: {t: {in: [src], out: o, run: [cp, '${src}', o]}}", `so ${src} stays as it is; write {src}`},
		{"an output in a list", "tasks: {t: {in: [src], out: o, run: [cp, '{src}', $out]}}", `so $out stays as it is; write {out}`},
		{"a home in env", "tasks: {t: {in: [src], out: o, run: 'cat \"$src\"', env: {A: $HOME}}}", `env: A is the text $HOME as it is`},
		{"an open quote", "tasks: {t: {in: [src], out: o, run: \"echo 'it's' > o; cat \\\"$src\\\"\"}}", `is no complete command`},
		{"a misspelt resource", "tasks: {t: {in: [src], out: o, run: 'cat \"$src\"', resources: {cpuu: 2}}}", `resources: cpuu is a resource of that name, which only --resource bounds (did you mean "cpu"?)`},
		{"a command as one argument", "tasks: {t: {in: [src], out: o, run: ['touch o']}}", `run is a list of one argument with spaces`},
		{"a misspelt variable", "tasks: {t: {in: [src], out: o, run: 'cat \"$srk\" > o'}}", `task t: line 1 of the script uses $srk, which is no variable of the task; did you mean $src?`},
		{"a misspelt variable of env", "tasks: {t: {in: [src], out: o, env: {MODEL: a}, run: 'cat \"$src\" \"${MODELL}\"'}}", `uses $MODELL, which is no variable of the task; did you mean $MODEL?`},
		{"typographic quotes", "tasks: {t: {in: [src], out: o, run: 'cat “$src” > o'}}", `has typographic quotes, which bash takes as letters`},
	} {
		t.Run(m.name, func(t *testing.T) {
			d, err := manifest.Parse("f", []byte(head+m.file))
			if err != nil {
				t.Fatal(err)
			}
			var all []string
			for _, w := range manifest.Lint(d) {
				all = append(all, w.String())
			}
			if !strings.Contains(strings.Join(all, "\n"), m.want) {
				t.Errorf("got\n%s\nwant in it\n%s", strings.Join(all, "\n"), m.want)
			}
		})
	}
	for _, right := range []string{
		"tasks: {t: {in: [src], out: o, run: 'srk=3; cat \"$src\" \"$srk\"'}}",
		"tasks: {t: {in: [src], out: o, run: 'while read -r srk; do echo \"$srk\"; done < \"$src\"'}}",
		"tasks: {t: {in: [src], out: o, run: 'cat \"$src\" \"${srk:-}\"'}}",
		"tasks: {t: {in: [src], out: o, pass_env: [SRK], run: 'cat \"$src\" \"$SRK\"'}}",
		"tasks: {t: {in: [src], out: o, run: [sh, -c, 'cat $src > $out']}}",
		"tasks: {t: {in: [src], out: o, run: 'echo \"“$src”\" > \"$out\"'}}",
		"tasks: {t: {in: [src], out: o, run: [awk, '{print $1}', '{src}', '{out}']}}",
	} {
		d, err := manifest.Parse("f", []byte(head+right))
		if err != nil {
			t.Fatal(err)
		}
		if w := manifest.Lint(d); len(w) > 0 {
			t.Errorf("%s: got %v, want no warning", right, w)
		}
	}
}

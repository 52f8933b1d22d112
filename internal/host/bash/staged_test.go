package bash_test

import (
	"strings"
	"testing"

	"e3/internal/host/bash"
)

// A file of the working directory is run where a script names it in the place of a command, and nowhere else.
func TestStaged(t *testing.T) {
	files := map[string]string{"prog": "sort", "my_tool": "my-tool.py"}
	for script, want := range map[string]string{
		`"$prog" < "$data" > "$out"`:        `./"$prog" < "$data" > "$out"`,
		`$prog x`:                           `./$prog x`,
		`${prog} x`:                         `./${prog} x`,
		`"${my_tool}" --x`:                  `./"${my_tool}" --x`,
		`sort x`:                            `./sort x`,
		`'sort' x; "sort" y`:                `./'sort' x; ./"sort" y`,
		`my-tool.py x | sort`:               `./my-tool.py x | ./sort`,
		`exec "$prog"`:                      `exec ./"$prog"`,
		`command sort`:                      `command ./sort`,
		`A=1 "$prog"`:                       `A=1 ./"$prog"`,
		`if ! "$prog"; then "$prog" -r; fi`: `if ! ./"$prog"; then ./"$prog" -r; fi`,
		`x=$("$prog" a)`:                    `x=$(./"$prog" a)`,
		"x=`sort a`":                        "x=`./sort a`",
		`time "$prog"`:                      `time ./"$prog"`,
		"cat <<END\n$(sort a)\nEND\n":       "cat <<END\n$(./sort a)\nEND\n",
		// Arguments, other names and what the script itself means.
		`wc "$prog"`:                          `wc "$prog"`,
		`python3 "$my_tool" sort`:             `python3 "$my_tool" sort`,
		`./sort; /usr/bin/sort; "$a"`:         `./sort; /usr/bin/sort; "$a"`,
		`xsort; sort2`:                        `xsort; sort2`,
		`prog=wc; "$prog"`:                    `prog=wc; "$prog"`,
		`for prog in a b; do $prog; done`:     `for prog in a b; do $prog; done`,
		`read -r prog; $prog`:                 `read -r prog; $prog`,
		`sort() { echo; }; sort`:              `sort() { echo; }; sort`,
		`"$prog"x; "${prog%t}"; "${prog[0]}"`: `"$prog"x; "${prog%t}"; "${prog[0]}"`,
		`echo "$prog`:                         `echo "$prog`, // does not parse
		`# sort`:                              `# sort`,
		``:                                    ``,
	} {
		if got := bash.Staged(script, files); got != want {
			t.Errorf("%s\n got %s\nwant %s", script, got, want)
		}
	}
	if got := bash.Staged("sort x", nil); got != "sort x" {
		t.Errorf("without files: %s", got)
	}
}

// A long script is no other than a short one; hostile nesting is left to bash.
func TestStagedLong(t *testing.T) {
	files := map[string]string{"prog": "sort"}
	long := strings.Repeat("echo a line of a long script # sort\n", 20_000)
	if got, want := bash.Staged(long+"sort x\n", files), long+"./sort x\n"; got != want {
		t.Errorf("a script of %d bytes ends in %q", len(long), got[len(got)-20:])
	}
	for _, nested := range []string{"(", "$(", "{ ", "if a; then ", "\"$("} {
		script := strings.Repeat(nested, 4<<20/len(nested)) + "sort"
		if got := bash.Staged(script, files); got != script {
			t.Errorf("%q, nested: changed to %d bytes", nested, len(got))
		}
	}
}

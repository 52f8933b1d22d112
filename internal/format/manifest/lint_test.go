package manifest_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"e3/internal/format/manifest"
	"e3/internal/testing/suite"
)

func TestExpand(t *testing.T) {
	lookup := func(name string) (string, bool) {
		text, ok := map[string]string{"a": "x y", "out": "{a}", "empty": ""}[name]
		return text, ok
	}
	for in, want := range map[string]string{
		"{a}": "x y", "--in={a}:{out}": "--in=x y:{a}", "{b}": "{b}", "{{a}}": "{x y}", "{a": "{a", "{}": "{}", "{ a }": "{ a }",
		`{"a": {a}}`: `{"a": x y}`, "{empty}": "", "{empty}{a}": "x y", "{a}{b}{a}": "x y{b}x y", "{print $1}": "{print $1}", "{A}": "{A}", "é{a}": "éx y",
	} {
		if got := manifest.Expand([]string{in}, lookup); len(got) != 1 || got[0] != want {
			t.Errorf("Expand(%q) = %q, want %q", in, got, want)
		}
	}
}

func lint(t *testing.T, text string) []string {
	t.Helper()
	d, err := manifest.Parse("f", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	var warnings []string
	for _, w := range manifest.Lint(d) {
		warnings = append(warnings, w.String())
	}
	return warnings
}

func TestLint(t *testing.T) {
	got := lint(t, `e3: 1
name: p
inputs:
  table: {value: 1}
  spare: {value: 2}
tasks:
  a: {in: [table], out: o, run: [x, "{tabel}", "{table}", "{other}", "{otu}"]}
  b:
    matrix: {depth: [1, 2]}
    in: [table]
    out: o
    run: |
      head $table > "$out"
      echo $depth $table
`)
	want := []string{
		"f:5:3: no task reads the input spare",
		"f:7:33: task a: {tabel} is passed on as it is; did you mean {table}?",
		"f:7:33: task a: {otu} is passed on as it is; did you mean {out}?",
		`f:12:10: task b: line 1 of the script uses $table outside of double quotes; write "$table"`,
		`f:12:10: task b: line 2 of the script uses $depth outside of double quotes; write "$depth"`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("warnings differ (-want +got):\n%s", diff)
	}
}

// Words in braces are no variables of a script: neither names nor what Snakemake fills in. Braces of awk, of bash and
// of text are left alone.
func TestLintBraces(t *testing.T) {
	got := lint(t, `e3: 1
name: p
inputs: {text: {value: 1}}
tasks:
  a: {in: [text], out: o, run: 'cat {text} "${text:-x}"{a,b} > {out}'}
  b: {in: [text], matrix: {k: [1]}, out: o, run: 'cat {input[0]} {wildcards.k} {other} > {output} && echo {k}'}
  c: {in: [text], out: o, run: "awk '{text}' \"{text}\" > \"$out\"; f() { text; }; f"}
`)
	want := []string{
		`f:5:32: task a: line 1 of the script has {text}, which bash takes as it is; write "$text"`,
		`f:5:32: task a: line 1 of the script has {out}, which bash takes as it is; write "$out"`,
		`f:6:50: task b: line 1 of the script has {input}, which bash takes as it is; write one of its variables, $text, $out, $k`,
		`f:6:50: task b: line 1 of the script has {wildcards.k}, which bash takes as it is; write "$k"`,
		`f:6:50: task b: line 1 of the script has {output}, which bash takes as it is; write one of its variables, $text, $out, $k`,
		`f:6:50: task b: line 1 of the script has {k}, which bash takes as it is; write "$k"`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("warnings differ (-want +got):\n%s", diff)
	}
}

// GitHub's expressions are no placeholders, wherever a run has them; in single quotes they are a text.
func TestLintExpressions(t *testing.T) {
	got := lint(t, `e3: 1
name: p
tasks:
  a: {matrix: {i: [1]}, out: o, run: 'echo "${{ matrix.i }}" > "$out"'}
  b: {matrix: {i: [1]}, out: o, run: ['echo', '${{matrix.i}}', '{out}']}
  c: {out: o, run: "echo '${{ matrix.i }}' > \"$out\""}
`)
	want := []string{
		`f:4:38: task a: run has ${{ matrix.i }}, which nothing here replaces; write "$i"`,
		`f:5:38: task b: run has ${{matrix.i}}, which nothing here replaces; write {i}`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("warnings differ (-want +got):\n%s", diff)
	}
}

// A value of several words, such as the options of a program, may be split; one word may get several.
func TestLintOptions(t *testing.T) {
	got := lint(t, `e3: 1
name: p
inputs:
  flags: {value: "-O2 -Wall"}
  level: {value: high}
tasks:
  a: {in: [flags, level], out: o, run: 'cc $flags $level > "$out"'}
`)
	want := []string{`f:7:40: task a: line 1 of the script uses $level outside of double quotes; write "$level"`}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("warnings differ (-want +got):\n%s", diff)
	}
}

// TestUnquoted lints scripts with a single input x.
func TestUnquoted(t *testing.T) {
	for script, warned := range map[string]bool{
		`cat $x`:                         true,
		`cat ${x}`:                       true,
		`cat ${x%.csv}`:                  true,
		`cat a"b"$x`:                     true,
		`for f in $x; do :; done`:        true,
		`y=1 cat $x`:                     true,
		"cat 'a' \\\n $x":                true,
		`echo "$(cat $x)"`:               true,
		"cat <<EOF\n$x\nEOF\ncat $x":     true,
		`cat "$x"`:                       false,
		`cat '$x'`:                       false,
		`cat \$x`:                        false,
		`y=$x`:                           false,
		`[[ $x == a ]]`:                  false,
		`(( $x > 1 ))`:                   false,
		`echo $(( $x + 1 ))`:             false,
		`echo "$(cat "$x")"`:             false,
		"# $x\ncat \"$x\"":               false,
		`echo ${#x}`:                     false,
		`cat <<< $x`:                     false,
		"cat <<EOF\n$x\nEOF\n":           false,
		"cat <<-'EOF'\n\t$x\n\tEOF\n":    false,
		"echo \"a\n$x\"":                 false,
		`echo "a \" $x"`:                 false,
		`cat $xy`:                        false,
		`echo 'unfinished $x`:            false,
		`echo "unfinished $x`:            false,
		`echo unfinished $( "`:           false,
		"cat <<":                         false,
		`a) ;; esac; cat "$x" )`:         false,
		`export PATH="$x:$PATH"; y="$x"`: false,
		"# it\"s\ncat $x":                true,
		"cat <<E\n\"\nE\ncat $x":         true,
		`echo "$[ $(cat $x) ]"`:          true,
		`echo "$y" \"$x`:                 true,
		`case $x in a) ;; esac`:          false,
		`case "a" in $x) ;; esac`:        false,
		`cat "${y:-"$x"}"`:               false,
		`cat "${y:-$x}"`:                 false,
		`cat ${y:-"$x"}`:                 false,
		`cat ${y:-$x}`:                   true,
		`cat ${x:-a}`:                    true,
		`cat ${x+"$x"}`:                  false,
		`cat ${y%$x}`:                    false,
		`cat $'\'$x'`:                    false,
		`cat $'a'$x`:                     true,
		`cat a=$x`:                       true,
		`export y=$x`:                    false,
		`export $x`:                      true,
		`y=(a $x)`:                       true,
		`y=$(cat $x)`:                    true,
		"y=`cat $x`":                     true,
		`cat <(cat $x)`:                  true,
		`cat < "$x" > $x`:                true,
		`echo $(( $(cat $x) ))`:          true,
		`f() { cat $x; }`:                true,
		"cat <<EOF\n$(cat $x)\nEOF\n":    true,
	} {
		text := fmt.Sprintf("e3: 1\nname: p\ninputs: {x: {value: 1}}\ntasks:\n  a: {in: [x], out: o, run: %q}\n", script)
		got := lint(t, text)
		if is := slices.ContainsFunc(got, func(w string) bool { return strings.Contains(w, "$x outside") }); is != warned {
			t.Errorf("script %q: warnings %q, want one: %v", script, got, warned)
		}
	}
}

// Nesting as deep as an argument of bash can hold does not exhaust the stack, and longer scripts are not parsed.
func TestLintDeepScripts(t *testing.T) {
	suite.WithoutRace(t)
	for _, open := range []string{"$(", "(", "{ ", "${a:-", "`\\", "if ", "$((", "[[ ( ", "a=(", "case $a in a) ", "\"$(", "<(", "! "} {
		for _, size := range []int{127 << 10, 1 << 20} {
			script := strings.Repeat(open, size/len(open))
			lint(t, fmt.Sprintf("e3: 1\nname: p\ninputs: {x: {value: 1}}\ntasks:\n  a: {in: [x], out: o, run: %q}\n", "$x "+script))
		}
	}
}

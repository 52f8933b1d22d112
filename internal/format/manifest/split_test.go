package manifest_test

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"e3/internal/format/manifest"
	"e3/internal/testing/suite"
)

// sameInPieces compares reading in pieces of different sizes with reading whole.
func sameInPieces(t interface {
	Helper()
	Fatalf(string, ...any)
}, data []byte) {
	t.Helper()
	want, wantErr := manifest.ParseSplit("f", data, math.MaxInt64, 0)
	for _, piece := range []int64{1, 60, 400} {
		got, gotErr := manifest.ParseSplit("f", data, 0, piece)
		if fmt.Sprint(gotErr) != fmt.Sprint(wantErr) {
			t.Fatalf("pieces of %d bytes: error\n%v\nwhole:\n%v\nfile:\n%s", piece, gotErr, wantErr, data)
		}
		if diff := cmp.Diff(want, got, ignoreText); diff != "" {
			t.Fatalf("pieces of %d bytes differ (-whole +pieces):\n%s\nfile:\n%s", piece, diff, data)
		}
	}
}

func TestPiecesOfCorpus(t *testing.T) {
	suite.WithoutRace(t)
	for _, pattern := range []string{"testdata/valid/*", "testdata/invalid/*.yaml"} {
		for _, data := range corpus(t, pattern) {
			sameInPieces(t, data)
			sameInPieces(t, bytes.ReplaceAll(data, []byte("\n"), []byte("\r\n")))
		}
	}
}

func TestPiecesAreUsed(t *testing.T) {
	data := largeYAML(300)
	pieces, ok := manifest.SplitsCleanly(data, 1000)
	if !ok || pieces < 20 {
		t.Errorf("a regular file of %d bytes was read in %d pieces, cleanly %v; want at least 20", len(data), pieces, ok)
	}
	sameInPieces(t, data)
	for name, odd := range map[string]string{
		"flow tasks":        "e3: 1\nname: p\ntasks: {\n  a: {out: x, run: [x]}\n}\n",
		"document marker":   "---\ne3: 1\nname: p\n",
		"directive":         "%YAML 1.2\n---\ne3: 1\nname: p\n",
		"indented":          "  e3: 1\n  name: p\n",
		"open quote":        "e3: 1\nname: p\ntasks:\n  a:\n    run: \"x\n  b: y\"\n    out: x\n",
		"anchor elsewhere":  "e3: 1\nname: p\ntasks:\n  a: {out: x, run: &r [x]}\n  b: {out: x, run: *r}\n",
		"sequence of tasks": "e3: 1\nname: p\ntasks:\n  - a\n",
	} {
		if _, ok := manifest.SplitsCleanly([]byte(odd), 1); ok {
			t.Errorf("%s: the file was read in pieces", name)
		}
		sameInPieces(t, []byte(odd))
	}
}

// TestPiecesProperty assembles files from regular and odd parts, and damages some.
func TestPiecesProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { sameInPieces(t, drawFile(t)) })
}

func drawFile(t *rapid.T) []byte {
	var lines []string
	add := func(text string) { lines = append(lines, strings.Split(strings.TrimSuffix(text, "\n"), "\n")...) }
	indent := rapid.SampledFrom([]string{"  ", " ", "    "}).Draw(t, "indent")
	tasks := rapid.SliceOfN(rapid.SampledFrom([]string{
		"NAME: {out: x, run: [x]}\n",
		"NAME:\n  out: x\n  run: |\n    echo a && echo b\n\n    # not a comment\n    tasks: here\n",
		"NAME:\n  out: x\n  run: >-\n    folded\n    text\n\n\n",
		"NAME:\n  out: x\n  run: |+\n    kept\n\n\n",
		"NAME:\n  out: x\n  run: \"quoted\n    over lines\n  key: like\"\n",
		"NAME:\n  out: x\n  run: 'single\n\n  other: \"line'\n",
		"NAME:\n  out: x\n  run: plain\n    over\n    lines\n",
		"NAME:\n  out: x\n  run: [x,\n    y,\n  z]\n",
		"# a comment\nNAME:\n# another at the left\n  out: x # trailing\n  run: [x]\n",
		"\"NAME\": {out: x, run: [x]}\n",
		"? NAME\n: {out: x, run: [x]}\n",
		"NAME: &a {out: x, run: [x]}\n",
		"NAME: *a\n",
		"NAME: {out: x, run: &r [y]}\n",
		"NAME: {out: x, run: *r}\n",
		"NAME:\n  out: x\n  run:\n  - x\n  - y\n",
		"NAME: {out: x, run: [x], foo: 1}\n",
		"NAME:\n\n",
	}), 0, 12).Draw(t, "tasks")
	add("e3: 1\n")
	if rapid.Bool().Draw(t, "description") {
		add("description: |\n  text\n  tasks:\n# comment\n")
	}
	if rapid.Bool().Draw(t, "name first") {
		add("name: p\n")
	}
	add(rapid.SampledFrom([]string{"tasks:\n", "tasks: # all\n", "tasks:\n\n# first\n", "\"tasks\":\n", "tasks: &t\n", "tasks: !!map\n"}).Draw(t, "key"))
	for i, task := range tasks {
		task = strings.ReplaceAll(task, "NAME", fmt.Sprintf("t%d", i%9))
		for line := range strings.SplitSeq(strings.TrimSuffix(task, "\n"), "\n") {
			if line != "" && !strings.HasPrefix(line, "# another") {
				line = indent + line
			}
			add(line + "\n")
		}
	}
	add(rapid.SampledFrom([]string{"", "inputs:\n  a: {value: 1}\n  b: {value: 2}\n", "tasks:\n  z: {out: x, run: [x]}\n", "inputs:\n", "}\n", "...\n"}).Draw(t, "end"))
	if !strings.Contains(strings.Join(lines, "\n"), "\nname:") {
		add("name: p\n")
	}
	if len(lines) > 0 && rapid.IntRange(0, 3).Draw(t, "damage") == 0 {
		i := rapid.IntRange(0, len(lines)-1).Draw(t, "line")
		lines[i] = rapid.SampledFrom([]string{"", "\"", "  x", " - y", "\tz: 1", "k: v", "  |", "  ]", "--- a", lines[i] + "\"", " " + lines[i], "\u2028"}).Draw(t, "with")
	}
	return []byte(strings.Join(lines, rapid.SampledFrom([]string{"\n", "\r\n"}).Draw(t, "break")))
}

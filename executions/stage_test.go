package executions_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"e3/internal/format/beast2"
	"e3/internal/format/manifest"
	"e3/internal/format/record"
	"e3/internal/format/value"
	"e3/objectstore"
	"e3/objectstore/tree"
)

// list prints every path below the working directory with its type and mode.
const list = `find . -mindepth 1 -printf '%P %y %m\n' | sort; echo x > out`

func putValue(t *testing.T, l *lab, v any) objectstore.Hash {
	t.Helper()
	data, err := value.Encode(v)
	if err != nil {
		t.Fatal(err)
	}
	return l.put(t, string(data))
}

// putTree stores a directory that holds the given files; a content of "→x" makes a link.
func putTree(t *testing.T, l *lab, files map[string]string) objectstore.Hash {
	t.Helper()
	dir := t.TempDir()
	for rel, content := range files {
		path := filepath.Join(dir, rel)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		perm := fs.FileMode(0o644)
		if strings.HasPrefix(content, "#!") {
			perm = 0o755
		}
		var err error
		if target, link := strings.CutPrefix(content, "→"); link {
			err = os.Symlink(target, path)
		} else {
			err = os.WriteFile(path, []byte(content), perm)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	h, _, err := tree.Put(t.Context(), l.objects, dir, tree.PutOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestStaging(t *testing.T) {
	l := newLab(t)
	task := script(list)
	task.Inputs = []record.Input{
		{Name: "sales", Path: "data/sales.csv", Kind: record.KindFile},
		{Name: "tool", Path: "bin/tool", Kind: record.KindExecutable},
		{Name: "src", Path: "src", Kind: record.KindDir},
		{Name: "horizon", Kind: record.KindValue},
		{Name: "grid", Path: ".e3-values/grid.json", Kind: record.KindValue},
	}
	task.Output.Entries[0].Path = "results/deep/out"
	task.Shell = strings.Replace(list, "> out", "> results/deep/out", 1)
	got := l.run(t, task,
		l.put(t, "a,b\n"), l.put(t, "#!/bin/sh\n"),
		putTree(t, l, map[string]string{"a.py": "a", "run.sh": "#!/bin/sh", "lib/b.py": "b", "link": "→lib/b.py"}),
		putValue(t, l, int64(12)), putValue(t, l, []any{int64(1)}))
	want := `.e3-values d 755
.e3-values/grid.json f 644
bin d 755
bin/tool f 755
data d 755
data/sales.csv f 644
results d 755
results/deep d 755
src d 755
src/a.py f 644
src/lib d 755
src/lib/b.py f 644
src/link l 777
src/run.sh f 755
`
	if got != want {
		t.Errorf("the working directory holds\n%swant\n%s", got, want)
	}
}

// Inputs may lie in one another's directories, and overlap where they agree.
func TestStagingOverlaps(t *testing.T) {
	l := newLab(t)
	task := script("cat src/a.py src/b.py src/lib/c.py; stat -c %a src/a.py; echo x > out")
	task.Inputs = []record.Input{
		{Name: "src", Path: "src", Kind: record.KindDir},
		{Name: "a", Path: "src/a.py", Kind: record.KindExecutable},
		{Name: "b", Path: "src/b.py", Kind: record.KindFile},
		{Name: "lib", Path: "src/lib", Kind: record.KindDir},
	}
	got := l.run(t, task,
		putTree(t, l, map[string]string{"a.py": "a\n", "lib/c.py": "c\n"}), l.put(t, "a\n"), l.put(t, "b\n"),
		putTree(t, l, map[string]string{"c.py": "c\n"}))
	if want := "a\nb\nc\n755\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	bad := l.request(task,
		putTree(t, l, map[string]string{"a.py": "other\n"}), l.put(t, "a\n"), l.put(t, "b\n"), putTree(t, l, nil))
	if res, err := l.Do(t.Context(), bad); err == nil {
		t.Errorf("two contents at one path: got %+v", res)
	}
}

// A task may change its inputs; the stored objects stay unchanged.
func TestInputsAreCopies(t *testing.T) {
	l := newLab(t)
	in, dir := l.put(t, "precious"), putTree(t, l, map[string]string{"f": "precious too"})
	task := script("echo broken > in; chmod 777 in; echo broken > d/f; rm -rf d; echo x > out")
	task.Inputs = []record.Input{{Name: "in", Path: "in", Kind: record.KindFile}, {Name: "d", Path: "d", Kind: record.KindDir}}
	l.run(t, task, in, dir)
	if got := l.content(t, in); got != "precious" {
		t.Errorf("the file is %q", got)
	}
	if got := l.content(t, l.tree(t, dir)[0].Hash); got != "precious too" {
		t.Errorf("the directory's file is %q", got)
	}
	for e, err := range l.objects.Walk(t.Context()) {
		if err == nil {
			err = l.objects.Verify(t.Context(), e.Hash)
		}
		if err != nil {
			t.Error(err)
		}
	}
}

// Scalars are passed as text, other values as the path of a JSON file. The declared type does not matter.
func TestValues(t *testing.T) {
	l := newLab(t)
	task := script(`printf '%s|' "$a" "$b" "$c" "$d" "$e" "$f"; cat "$l" "$m"; echo x > out`)
	var inputs []objectstore.Hash
	for _, v := range []struct {
		name, path string
		v          any
	}{
		{"a", "", int64(12)}, {"b", "", 0.5}, {"c", "", true}, {"d", "", nil}, {"e", "", "two\nlines $HOME `id`"},
		{"f", ".e3-values/f.json", "declared as a list"},
		{"l", ".e3-values/l.json", []any{int64(1), "x"}},
		{"m", "", manifest.Object{{Name: "b", Value: 1.0}, {Name: "a", Value: nil}}}, // declared as a scalar
	} {
		task.Inputs = append(task.Inputs, record.Input{Name: v.name, Path: v.path, Kind: record.KindValue})
		inputs = append(inputs, putValue(t, l, v.v))
	}
	want := "12|0.5|true|null|two\nlines $HOME `id`|declared as a list|" + `[1,"x"]` + "\n" + `{"b":1.0,"a":null}` + "\n"
	if got := l.run(t, task, inputs...); got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestValuesThatNoTaskCanBeGiven(t *testing.T) {
	l := newLab(t)
	task := script("echo x > out")
	task.Inputs = []record.Input{{Name: "v", Kind: record.KindValue}}
	nul, err := beast2.Encode(beast2.String, "a\x00b")
	if err != nil {
		t.Fatal(err)
	}
	loop := &beast2.List{}
	loop.Items = []beast2.Value{loop}
	cyclic, err := beast2.Encode(beast2.Array(beast2.Recursive(1)), loop)
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string]any{"a NUL": "a\x00b", "a number": int64(7), "a list": []any{"a"}} {
		variable := &record.Task{Argv: []string{"env"}, Inputs: []record.Input{{Name: "V", Kind: record.KindVariable}}, Output: script("").Output}
		if res, err := l.Do(t.Context(), l.request(variable, putValue(t, l, data))); err == nil {
			t.Errorf("%s as a variable: got %+v", name, res)
		}
	}
	for name, data := range map[string][]byte{"a NUL": nul, "a value that contains itself": cyclic, "bytes that are none": []byte("x")} {
		if res, err := l.Do(t.Context(), l.request(task, l.put(t, string(data)))); err == nil {
			t.Errorf("%s: got %+v", name, res)
		}
	}
}

// Only the declared names in braces are replaced, once.
func TestPlaceholders(t *testing.T) {
	l := newLab(t)
	l.env["SECRET"] = "hidden"
	task := &record.Task{
		Argv: []string{"bash", "-c", `printf '%s\n' "$@"; echo x > out`, "{in}",
			"{in}", "--x={in}:{n}", "{out}", "{depth}", "{PATH}", "{SECRET}", "{MODE}", "{unknown}", "{}", "{{in}}", "{ in }", "{in", "in}", "$in", "{a}{b}"},
		Env: []record.EnvVar{{Name: "depth", Value: "4"}},
		Inputs: []record.Input{
			{Name: "in", Path: "data/in.csv", Kind: record.KindFile}, {Name: "n", Kind: record.KindValue},
			{Name: "a", Kind: record.KindValue}, {Name: "b", Kind: record.KindValue}, {Name: "MODE", Kind: record.KindVariable}},
		Output: script("").Output,
		Passed: record.Passed{Secrets: []string{"SECRET"}},
	}
	req := l.request(task, l.put(t, "x"), putValue(t, l, int64(3)), putValue(t, l, "{b}"), putValue(t, l, "{out}"), putValue(t, l, "fast"))
	res := l.do(t, req)
	got := strings.Split(l.log(t, req, res.ExecutionID, "stdout.txt"), "\n")
	want := []string{"data/in.csv", "--x=data/in.csv:3", "out", "4", "{PATH}", "{SECRET}", "{MODE}", "{unknown}", "{}", "{data/in.csv}", "{ in }", "{in", "in}", "$in", "{b}{out}", ""}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

package items_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"e3/internal/format/items"
	"e3/internal/format/manifest"
)

// show prints a list: its columns, with | after those that name an item, and the items.
func show(l *items.List) string {
	var b strings.Builder
	for i, c := range l.Columns {
		if i == l.Names {
			b.WriteString("| ")
		}
		fmt.Fprintf(&b, "%q ", c)
	}
	for i := range l.Items {
		b.WriteString("/ ")
		for _, v := range l.Items[i] {
			fmt.Fprintf(&b, "%q ", v)
		}
		if f := l.File(i); f != "" {
			b.WriteString("@" + f + " ")
		}
	}
	return strings.TrimSpace(b.String())
}

func TestFile(t *testing.T) {
	for _, test := range []struct{ file, data, want string }{
		{"a.json", `["x", 2, 0.5, true]`, `"" / "x" / "2" / "0.5" / "true"`},
		{"a.json", `[]`, `""`},
		{"a.json", `{"a": 1, "b": {"w": 2, "v": [1]}}`, `"" | "value" "w" "v" / "a" "1" "" "" / "b" "" "2" "[1]"`},
		{"a.json", `[{"id": "a", "n": 1}, {"id": "b", "m": null}]`, `| "id" "n" "m" / "a" "1" "" / "b" "" ""`},
		{"a.YAML", "- no\n- 1:30\n- 0x10\n", `"" / "no" / "1:30" / "0x10"`},
		{"a.yaml", "- 3.9\n- 3.10\n- 007\n- True\n", `"" / "3.9" / "3.10" / "007" / "True"`},
		{"a.yml", "a: {x: 1}\nb: {x: 2}\n", `"" | "x" / "a" "1" / "b" "2"`},
		{"a.csv", "id, name\n1,\"a,b\"\r\n2,\n", `| "id" "name" / "1" "a,b" / "2" ""`},
		{"a.csv", "\ufeffid\nx\n", `| "id" / "x"`},
		{"a.csv", "id\n", `| "id"`},
		{"a.tsv", "id\tname\n1\ta \"b\" c\n", `| "id" "name" / "1" "a \"b\" c"`},
		{"a.txt", "x\n\n  y \nz", `"" / "x" / "y" / "z"`},
	} {
		l, err := items.File(test.file, []byte(test.data))
		if err != nil {
			t.Errorf("%s %q: %v", test.file, test.data, err)
			continue
		}
		if got := show(l); got != test.want {
			t.Errorf("%s %q\ngot  %s\nwant %s", test.file, test.data, got, test.want)
		}
	}
}

func TestFileRefuses(t *testing.T) {
	for _, test := range []struct{ file, data, want string }{
		{"a.json", `3`, "neither a list nor a mapping"},
		{"a.json", `[1, [2]]`, "line 1 of a.json: it is a list"},
		{"a.json", "[\n  1,\n  null\n]", "line 3 of a.json: it is null"},
		{"a.json", "[{\"a\": 1},\n\n2]", "line 3 of a.json: it is a single value, and the first element is a mapping"},
		{"a.json", "{\"a\": 1,\n\"b\": {\"\": 2}}", `line 2 of a.json: "b" has a value without a name`},
		{"a.json", "[\n1,\n2,\n]", "a.json:4:1: JSON: "},
		{"a.json", "[1,\n\"\"]", "line 2 of a.json: no name: the value is empty"},
		{"a.txt", "x\n\n  y\x00\n", "line 3 of a.txt: a value holds the character NUL"},
		{"a.json", `["a"`, "a.json:1:5: JSON: "},
		{"a.json", `[""]`, "line 1 of a.json: no name: the value is empty"},
		{"a.json", `["a\u0000"]`, "NUL"},
		{"a.json", "{a: 1}", "JSON: "},
		{"a.json", "[1] [2]", "text after the end"},
		{"a.yaml", "a: [", "a.yaml:2:"},
		{"a.yaml", "# c\n- a\n- b: 1\n", "line 3 of a.yaml: it is a mapping"},
		{"a.csv", "", "header"},
		{"s/a.csv", "a,b\n1,2\n1\n", "line 3 of s/a.csv has not as many values as the header has names"},
		{"a.csv", "\ufeffa,b\r\n\"1\r\n2\",2\r\n\r\n1,2,3\r\n", "line 5 of a.csv has not as many"},
		{"a.csv", "a,b\n\"1\n2\",2\n\"3,4\n", "line 4 of a.csv: in the row that begins here a quote"},
		{"a.csv", "a,b\n1,x \"2\"\n", "line 2 of a.csv: in the row that begins here a quote"},
		{"a.csv", "a,b\n\"1\n2\",2\n\n1,\x00\n", "line 5 of a.csv: a value holds the character NUL"},
		{"a.tsv", "a\tb\n1\t2\n1\t\x00\n", "line 3 of a.tsv: a value holds the character NUL"},
		{"a.csv", "a,a\n1,2\n", `two columns are named "a"`},
		{"a.csv", "a,\n1,2\n", "no name for column 2"},
		{"a.csv", "a\n\xff\n", "UTF-8"},
		{"a.bin", "x", `the ending ".bin" names no format`},
		{"a", "x", "names no format"},
	} {
		if l, err := items.File(test.file, []byte(test.data)); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s %q: %v, %v, want an error with %q", test.file, test.data, l, err, test.want)
		}
	}
}

func TestFolders(t *testing.T) {
	for _, test := range []struct {
		how  string
		list func() (*items.List, error)
		want string
	}{
		{"a folder", func() (*items.List, error) { return items.Folder([]string{"a.txt", "b/"}) }, `"" / "a.txt" @a.txt / "b" @b/`},
		{"a glob", func() (*items.List, error) { return items.Glob("raw/*.fq", []string{"a.fq", "b.c.fq"}) }, `"" / "a" @a.fq / "b.c" @b.c.fq`},
		{"a glob of folders", func() (*items.List, error) { return items.Glob("raw/**", []string{"a.fq", "x/b.fq"}) }, `"" / "a.fq" @a.fq / "x/b.fq" @x/b.fq`},
		{"a literal brace", func() (*items.List, error) { return items.Glob("{x}*", []string{"{x}1"}) }, `"" / "1" @{x}1`},
		{"names", func() (*items.List, error) {
			return items.Files("raw/{s}_{l}.fq", []string{"a_1.fq", "_2.fq", "b_c_2.fq"})
		}, `"s" "l" / "a" "1" @a_1.fq / "b_c" "2" @b_c_2.fq`},
	} {
		l, err := test.list()
		if err != nil {
			t.Errorf("%s: %v", test.how, err)
		} else if got := show(l); got != test.want {
			t.Errorf("%s\ngot  %s\nwant %s", test.how, got, test.want)
		}
	}
	if _, err := items.Glob("raw/*.fq", []string{".fq"}); err == nil || !strings.Contains(err.Error(), "raw/.fq has no name") {
		t.Errorf("a file without a name: %v", err)
	}
}

// Whatever the bytes are, reading them ends, and a list that is read has an object that reads back.
func FuzzFile(f *testing.F) {
	for _, data := range []string{`["a", 1]`, `{"a": {"b": 1}}`, `[{"a": 1}, {"b": [2]}]`, "a,b\n1,2\n", "a\tb\n1\t2\n", "- a\n- b\n", "a: {b: 1}\n", "x\ny\n"} {
		for k := range manifest.ListFormats {
			f.Add(byte(k), []byte(data))
		}
	}
	f.Fuzz(func(t *testing.T, format byte, data []byte) {
		l, err := items.File("list"+manifest.ListFormats[int(format)%len(manifest.ListFormats)], data)
		if err != nil {
			return
		}
		object := l.Encode()
		again, err := manifest.DecodeList(object)
		if err != nil {
			t.Fatalf("the object of a list that was read: %v\n%s", err, object)
		}
		if !bytes.Equal(again.Encode(), object) {
			t.Fatalf("another object: %s, not %s", again.Encode(), object)
		}
	})
}

// A hundred thousand files are one list.
func TestManyFiles(t *testing.T) {
	files := make([]string, 100_000)
	for i := range files {
		files[i] = fmt.Sprintf("s%d_L%d.fq", i/4, i%4)
	}
	l, err := items.Files("raw/{sample}_{lane}.fq", files)
	if err != nil || len(l.Items) != len(files) {
		t.Fatalf("%d items, %v", len(l.Items), err)
	}
	d, err := manifest.Parse("e3.yaml", []byte(`{e3: 1, name: p, inputs: {raw: {files: "raw/{sample}_{lane}.fq"}}, tasks: {
		align: {matrix: raw, in: {reads: "raw[sample,lane]"}, out: a, run: x},
		merge: {matrix: {sample: raw.sample}, in: {lanes: "align[sample,*]"}, out: m, run: x},
		all: {in: {merged: "merge[*]"}, out: all, run: x}}}`))
	if err != nil {
		t.Fatal(err)
	}
	if d, err = d.Expand(manifest.Lists{"raw": l}); err != nil || d.Pending() {
		t.Fatal(err, d.Families)
	}
	if n := len(d.Tasks); n != 125_001 {
		t.Errorf("%d tasks, want 125,001", n)
	}
}

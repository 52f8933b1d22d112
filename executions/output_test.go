package executions_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"e3/executions"
	"e3/internal/format/record"
	"e3/objectstore"
	"e3/objectstore/tree"
)

func single(path string, k record.Kind) record.Output {
	return record.Output{Entries: []record.OutputEntry{{Name: "out", Path: path, Kind: k}}}
}

// The error for a wrong output says what was expected, where, and what was found.
func TestWrongOutputs(t *testing.T) {
	l := newLab(t)
	for _, test := range []struct {
		name   string
		output record.Output
		text   string
		want   []string
	}{
		{"nothing", single("out", record.KindFile), "true", []string{"a file", `"out"`, "found nothing"}},
		{"directory for a file", single("out", record.KindFile), "mkdir out", []string{"a file", "a directory"}},
		{"file for a directory", single("d", record.KindDir), "rmdir d; echo x > d", []string{"a directory", "a file"}},
		{"no directory", single("d", record.KindDir), "rmdir d", []string{"a directory", "found nothing"}},
		{"link", single("out", record.KindFile), "echo x > real; ln -s real out", []string{"a file", "a symbolic link"}},
		{"link to nowhere", single("out", record.KindFile), "ln -s nowhere out", []string{"a symbolic link"}},
		{"link for a directory", single("d", record.KindDir), "rmdir d; ln -s /etc d", []string{"a directory", "a symbolic link"}},
		{"pipe", single("out", record.KindFile), "mkfifo out", []string{"a named pipe"}},
		{"parent is a link", single("a/out", record.KindFile), "rmdir a; ln -s /etc a", []string{`"a/out"`, "found a symbolic link on the way to it"}},
		{"grandparent is a link", single("a/b/passwd", record.KindFile), "rm -r a; mkdir x; ln -s / x/b; ln -s x a", []string{"found a symbolic link on the way to it"}},
		{"parent is a file", single("a/out", record.KindFile), "rmdir a; echo x > a", []string{"found nothing"}},
		{"link out of a directory", single("d", record.KindDir), "ln -s /etc/passwd d/l", []string{"a directory", `"l"`, "/etc/passwd"}},
		{"link up out of a directory", single("d", record.KindDir), "mkdir d/s; ln -s ../../x d/s/l", []string{`"s/l"`}},
		{"pipe in a directory", single("d", record.KindDir), "mkfifo d/p", []string{"a directory", "a named pipe", `"d/p"`}},
		{"second of two", record.Output{Multi: true, Entries: []record.OutputEntry{{Name: "a", Path: "a", Kind: record.KindFile}, {Name: "b", Path: "b", Kind: record.KindFile}}},
			"echo x > a", []string{"output b", "found nothing"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			task := &record.Task{Shell: test.text, Output: test.output}
			req := l.request(task)
			res := l.do(t, req)
			if res.State != record.Error || res.Reason != executions.ReasonOutput {
				t.Fatalf("got %+v, want an error about the output", res)
			}
			for _, want := range test.want {
				if !strings.Contains(res.Message, want) {
					t.Errorf("message is %q, want %q in it", res.Message, want)
				}
			}
		})
	}
}

func TestUnreadableOutputs(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("root may read everything; run as another user")
	}
	l := newLab(t)
	for name, task := range map[string]*record.Task{
		"file":                  {Shell: "echo x > out; chmod 000 out", Output: single("out", record.KindFile)},
		"folder of a file":      {Shell: "echo x > a/out; chmod 000 a", Output: single("a/out", record.KindFile)},
		"file in a directory":   {Shell: "echo x > d/f; chmod 000 d/f", Output: single("d", record.KindDir)},
		"folder in a directory": {Shell: "mkdir d/s; chmod 000 d/s", Output: single("d", record.KindDir)},
	} {
		if res := l.do(t, l.request(task)); res.Reason != executions.ReasonOutput || !strings.Contains(res.Message, "permission") {
			t.Errorf("%s: got %+v, want an error about the output", name, res)
		}
	}
}

func TestSingleFileOutput(t *testing.T) {
	l := newLab(t)
	for _, test := range []struct {
		name string
		kind record.Kind
		text string
	}{
		{"plain", record.KindFile, "printf x > out"},
		{"executable bit dropped", record.KindFile, "printf x > out; chmod +x out"},
		{"declared executable", record.KindExecutable, "printf x > out"},
		{"read-only", record.KindFile, "printf x > out; chmod 400 out"},
		{"hard links", record.KindFile, "printf x > out; ln out other"},
		{"hard link whose other name is gone", record.KindFile, "printf x > other; ln other out; rm other"},
	} {
		t.Run(test.name, func(t *testing.T) {
			res := l.do(t, l.request(&record.Task{Shell: test.text, Output: single("out", test.kind)}))
			if res.State != record.Success || res.Output != objectstore.Sum([]byte("x")) || res.Size != 1 {
				t.Errorf("got %+v, want the object of %q", res, "x")
			}
		})
	}
	empty := l.do(t, l.request(script(": > out")))
	if empty.State != record.Success || empty.Output != objectstore.Sum(nil) || empty.Size != 0 {
		t.Errorf("an empty file: %+v", empty)
	}
}

// The output is the file at the command's end. A process that the command leaves behind cannot change it.
func TestOutputIsFinal(t *testing.T) {
	l := newLab(t)
	res := l.do(t, l.request(script("printf one > out; (exec >> out; sleep 0.2; printf two) & printf ok >&2")))
	if res.State != record.Success {
		t.Fatalf("got %+v", res)
	}
	if got := l.content(t, res.Output); got != "one" {
		t.Errorf("output is %q", got)
	}
	if err := l.objects.Verify(t.Context(), res.Output); err != nil {
		t.Error(err)
	}
}

func TestDirectoryOutput(t *testing.T) {
	l := newLab(t)
	res := l.do(t, l.request(&record.Task{
		Shell:  "echo a > d/a; mkdir -p d/empty d/s; echo b > d/s/run; chmod +x d/s/run; ln -s s/run d/link",
		Output: single("d", record.KindDir),
	}))
	if res.State != record.Success {
		t.Fatalf("got %+v", res)
	}
	if got, want := show(t, l, res.Output), "a f 2\nempty/\nlink → s/run\ns/\ns/run x 2\n"; got != want {
		t.Errorf("the directory is\n%swant\n%s", got, want)
	}
	untouched := l.do(t, l.request(&record.Task{Shell: "true", Output: single("d", record.KindDir)}))
	if untouched.State != record.Success || len(l.tree(t, untouched.Output)) != 0 {
		t.Errorf("a directory that was left empty: %+v", untouched)
	}
}

// show lists a directory object.
func show(t *testing.T, l *lab, h objectstore.Hash) string {
	t.Helper()
	var b strings.Builder
	for _, e := range l.tree(t, h) {
		switch e.Kind {
		case tree.KindDir:
			fmt.Fprintf(&b, "%s/\n", e.Name)
			for line := range strings.Lines(show(t, l, e.Hash)) {
				fmt.Fprintf(&b, "%s/%s", e.Name, line)
			}
		case tree.KindLink:
			fmt.Fprintf(&b, "%s → %s\n", e.Name, e.Target)
		default:
			mode := "f"
			if e.Executable {
				mode = "x"
			}
			fmt.Fprintf(&b, "%s %s %d\n", e.Name, mode, e.Size)
		}
	}
	return b.String()
}

func TestSeveralOutputs(t *testing.T) {
	l := newLab(t)
	task := &record.Task{
		Shell: "echo m > out/model.pkl; echo '{}' > metrics.json; echo tool > tool; chmod +x tool; echo s > script; echo p > plots/p.png",
		Output: record.Output{Multi: true, Entries: []record.OutputEntry{
			{Name: "model", Path: "out/model.pkl", Kind: record.KindFile}, {Name: "metrics", Path: "metrics.json", Kind: record.KindFile},
			{Name: "tool", Path: "tool", Kind: record.KindFile}, {Name: "script", Path: "script", Kind: record.KindExecutable},
			{Name: "plots", Path: "plots", Kind: record.KindDir},
		}},
	}
	res := l.do(t, l.request(task))
	if res.State != record.Success {
		t.Fatalf("got %+v", res)
	}
	if got, want := show(t, l, res.Output), "metrics f 3\nmodel f 2\nplots/\nplots/p.png f 2\nscript x 2\ntool x 5\n"; got != want {
		t.Errorf("the outputs are\n%swant\n%s", got, want)
	}
	if size, err := l.objects.Stat(t.Context(), res.Output); err != nil || size != res.Size {
		t.Errorf("size is %d, want %d, %v", res.Size, size, err)
	}
	// An only output of several is still an entry in a directory.
	one := l.do(t, l.request(&record.Task{Shell: "echo x > f", Output: record.Output{Multi: true,
		Entries: []record.OutputEntry{{Name: "only", Path: "f", Kind: record.KindFile}}}}))
	if got := show(t, l, one.Output); one.State != record.Success || got != "only f 2\n" {
		t.Errorf("one of several: %+v\n%s", one, got)
	}
}

// Equal outputs have equal hashes, however they were made.
func TestOutputsAreDeterministic(t *testing.T) {
	l := newLab(t)
	var seen []objectstore.Hash
	for _, text := range []string{
		"echo 1 > d/a; echo 2 > d/b; ln -s a d/c",
		"ln -s a d/c; echo 2 > d/b; echo 1 > d/a; touch -d 2001-01-01 d/a d",
		"umask 077; echo 2 > d/b; echo 1 > d/a; chmod 444 d/a; ln -s a d/c; chmod 700 d",
	} {
		res := l.do(t, l.request(&record.Task{Shell: text, Output: single("d", record.KindDir)}))
		if res.State != record.Success {
			t.Fatalf("got %+v", res)
		}
		seen = append(seen, res.Output)
	}
	if seen[0] != seen[1] || seen[1] != seen[2] {
		t.Errorf("three ways to the same directory: %v", seen)
	}
}

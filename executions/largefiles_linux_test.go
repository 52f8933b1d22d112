//go:build amd64 || arm64

package executions_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"e3/executions"
	"e3/internal/format/record"
	"e3/internal/host/remains"
	"e3/internal/host/runner"
	"e3/objectstore"

	"golang.org/x/sys/unix"
)

// largeText is the content of a file that a closed room gets without a copy.
func largeText(first string) string {
	return first + "\n" + strings.Repeat("0123456789abcde\n", 1<<16) + "last\n"
}

// withLarge is a task in a closed room that reads a large file, a small one beside it, and a large program.
func withLarge(text, version string) *record.Task {
	task := &record.Task{Shell: text + "\necho x > data/out", Version: version, Output: single("data/out", record.KindFile), Inputs: []record.Input{
		{Name: "large", Path: "data/large", Kind: record.KindFile},
		{Name: "small", Path: "data/small", Kind: record.KindFile},
		{Name: "program", Path: "bin/program", Kind: record.KindExecutable},
	}}
	task.Room.Closed = true
	return task
}

func putLarge(t *testing.T, l *lab) []objectstore.Hash {
	t.Helper()
	return []objectstore.Hash{l.put(t, largeText("large")), l.put(t, "small\n"), l.put(t, "#!/bin/sh\necho program $1\nexit\n"+largeText(""))}
}

// copies are the kept copies of large files with such a name.
func copies(t *testing.T, l *lab, name string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(l.dir, "tmp", "*", "k*", "tree", "work", "*", name))
	if err != nil {
		t.Fatal(err)
	}
	return files
}

const lookAtLarge = `find . -printf '%P %y %m %n %s %l\n' | sort; find . -type f | sort | xargs sha256sum; bin/program run
	ls -A .. "$HOME" "$TMPDIR"; grep -c ' /e3 .*overlay' /proc/self/mountinfo`

// TestLargeFileIsClean: a command in a closed room finds large files as they were stored, at their paths, whatever commands
// before it did to theirs. No command makes another copy.
func TestLargeFileIsClean(t *testing.T) {
	l := newLab(t)
	in := putLarge(t, l)
	want := l.run(t, withLarge(lookAtLarge, "fresh"), in...)
	if !strings.HasSuffix(want, "\n1\n") {
		t.Fatalf("the files are not in a layer:\n%s", want)
	}
	small := withLarge("true", "small")
	for i, harm := range []string{
		`echo more >> "$large"; test "$(tail -1 "$large")" = more`,
		`sed -i s/large/LARGE/ "$large"; test "$(head -1 "$large")" = LARGE`,
		`printf LARGE 1<>"$large"; test "$(head -1 "$large")" = LARGE`,
		`rm "$large"; test ! -e "$large"`,
		`rm "$large"; mkdir "$large"; touch "$large/x"`,
		`rm -r bin; mkdir bin; test -z "$(ls bin)"`,
		`mv "$large" data/small; ln bin/program data/linked; test "$(head -1 data/small)" = large`,
		`mv bin other; mv other bin; mv "$large" ../home/x; mv ../home/x "$large"; test "$(head -1 "$large")" = large`,
		`gzip "$large"; gunzip "$large.gz"; : > bin/program`,
		`chmod 000 "$large" bin/program; chmod 000 bin`,
		`ln -sf /etc/passwd "$large"; touch -d 2001-01-01 bin/program; mkdir -p data/new/deep; chmod 0 data/new`,
	} {
		l.run(t, withLarge(harm, fmt.Sprint(i)), in...)
		for again := range 2 { // the second command may get the sandbox of the harmful one
			if got := l.run(t, withLarge(lookAtLarge, fmt.Sprint("after ", i, again)), in...); got != want {
				t.Fatalf("after %s a task finds\n%s\nwant\n%s", harm, got, want)
			}
		}
		small.Version = fmt.Sprint("small ", i)
		l.run(t, small, in[1], in[1], in[1])
		for _, folder := range sandboxFolders(t, l) {
			if n, err := unix.Llistxattr(folder, nil); err != nil || n > 0 {
				t.Errorf("after %s %s has attributes, %v", harm, folder, err)
			}
		}
	}
	for _, name := range []string{"large", "program"} {
		if files := copies(t, l, name); len(files) != 1 {
			t.Errorf("of %s there are the copies %q", name, files)
		}
	}
	open := withLarge(`head -1 "$large"; bin/program open`, "open")
	open.Room.Closed = false
	if got := l.run(t, open, in...); got != "large\nprogram open\n" {
		t.Errorf("a task in the open finds %q", got)
	}
}

// TestLargeFileTouched: a kept copy that something else has changed is made anew.
func TestLargeFileTouched(t *testing.T) {
	l := newLab(t)
	in := putLarge(t, l)
	l.run(t, withLarge("true", "1"), in...)
	for _, file := range copies(t, l, "large") {
		if err := os.WriteFile(file, []byte("harmed"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got := l.run(t, withLarge(`head -1 "$large"`, "2"), in...); got != "large\n" {
		t.Errorf("a task finds %q", got)
	}
}

// sandboxFolders are the folders that commands have used and others will use.
func sandboxFolders(t *testing.T, l *lab) []string {
	t.Helper()
	var all []string
	for _, part := range []string{"", "work", "work/data", "work/bin"} {
		folders, err := filepath.Glob(filepath.Join(l.dir, "tmp", "*", "w*", "room", part))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, folders...)
	}
	return all
}

// TestMarkedFolders: attributes that a command in the open sets on a folder hide no input of a later command in a closed room.
func TestMarkedFolders(t *testing.T) {
	l := newLab(t)
	in := putLarge(t, l)
	for i := range 40 { // more than there are sandboxes before they are used again
		if got := l.run(t, withLarge(`head -1 "$large"; bin/program here`, fmt.Sprint(i)), in...); got != "large\nprogram here\n" {
			t.Fatalf("a task finds %q", got)
		}
		for _, folder := range sandboxFolders(t, l) {
			if err := unix.Lsetxattr(folder, "user.overlay.opaque", []byte("y"), 0); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestLargeFileOfUnknownProgram: a program that the room does not have is tried twice, without bash and with it. Both rooms have the
// large files without copies, as have those of later commands.
func TestLargeFileOfUnknownProgram(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "outside"), []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	l := newLab(t, func(o *executions.Options) { o.Path = dir + string(os.PathListSeparator) + o.Path })
	if err := l.CheckBash(t.Context()); err != nil {
		t.Fatal(err)
	}
	in := putLarge(t, l)
	const layers = `grep -c ' /e3 .*overlay' /proc/self/mountinfo || true`
	for i := range 3 {
		unknown := withLarge("", fmt.Sprint(i))
		unknown.Shell = "outside x"
		if res := l.do(t, l.request(unknown, in...)); res.State != record.Failed || res.ExitCode != 127 {
			t.Fatalf("the program that only this machine has: %+v", res)
		}
		if got := l.run(t, withLarge(layers, fmt.Sprint(i)), in...); got != "1\n" {
			t.Fatalf("after it a task has %q layers", got)
		}
	}
}

// TestLargeFilesTogether: commands that run at once share the copies of large files, wait for one that is being made, and do
// not see what the others write.
func TestLargeFilesTogether(t *testing.T) {
	l := newLab(t)
	in := putLarge(t, l)
	var all sync.WaitGroup
	for i := range 6 {
		all.Go(func() {
			for k := range 3 {
				text := fmt.Sprintf(`echo %d >> "$large"; touch data/mine; test "$(tail -1 "$large")" = %[1]d; test "$(ls data | wc -l)" = 3`, i)
				req := l.request(withLarge(text, fmt.Sprint(i, k)), in...)
				if res, err := l.Do(t.Context(), req); err != nil || res.State != record.Success {
					t.Errorf("got %+v, %v", res, err)
				}
			}
		})
	}
	all.Wait()
	if files := copies(t, l, "large"); len(files) != 1 {
		t.Errorf("there are the copies %q", files)
	}
	if n := l.LayerUsers(); n != 0 {
		t.Errorf("%d commands use copies, though none runs", n)
	}
}

// TestLargeFilesApart: inputs that another declared path meets are copied, as are small ones.
func TestLargeFilesApart(t *testing.T) {
	l := newLab(t)
	h := l.put(t, largeText("large"))
	const look = `head -1 data/large; grep -c ' /e3 .*overlay' /proc/self/mountinfo || true`
	in := func(name, path string) record.Input {
		return record.Input{Name: name, Path: path, Kind: record.KindFile}
	}
	for name, task := range map[string]*record.Task{
		"an output":     {Output: single("data/large", record.KindFile), Inputs: []record.Input{in("large", "data/large")}},
		"its folder":    {Output: single("data", record.KindDir), Inputs: []record.Input{in("large", "data/large")}},
		"another input": {Output: single("out", record.KindFile), Inputs: []record.Input{in("large", "data/large"), in("same", "data/large")}},
	} {
		task.Shell, task.Room.Closed = look+"\ntouch out", true
		if got := l.run(t, task, []objectstore.Hash{h, h}[:len(task.Inputs)]...); got != "large\n0\n" {
			t.Errorf("with %s at the path: the task finds %q", name, got)
		}
	}
	task := &record.Task{Shell: look + "\nmv data/large moved", Output: single("moved", record.KindFile), Inputs: []record.Input{in("large", "data/large")}}
	task.Room.Closed = true
	req := l.request(task, h)
	if res := l.do(t, req); res.State != record.Success || res.Output != h {
		t.Errorf("an input that became the output: %+v", res)
	}
}

// TestKeptLargeFiles: a person who enters the folder of a failed command finds its large files as the command has left them, in the
// room and in the open.
func TestKeptLargeFiles(t *testing.T) {
	folders := remains.In(t.TempDir())
	l := newLab(t, func(o *executions.Options) { o.Kept = folders })
	in := append(putLarge(t, l), manyFiles(t, l, "first"))
	task := withLarge(`echo left >> "$large"; rm -r bin; echo new > many/sub/f7; rm many/sub/f8; exit 3`, "fails")
	task.Inputs = append(task.Inputs, record.Input{Name: "many", Path: "many", Kind: record.KindDir})
	req := l.request(task, in...)
	req.Name, req.Workspace = "fails", "ws"
	res := l.do(t, req)
	f := folders.Find(res.ExecutionID)
	if f == nil {
		t.Fatalf("the folder of %+v is not kept", res)
	}
	const want = "left\nsmall\nnew\n299\nmany/link\nbin, f8\n"
	const look = `cd "$1"; tail -1 data/large; cat data/small many/sub/f7; ls many/sub | wc -l; ls -d many/link; test -e bin || echo -n bin,; test -e many/sub/f8 || echo " f8"`
	for range 2 {
		v, err := l.VisitKept(t.Context(), req, f)
		if err != nil {
			t.Fatal(err)
		}
		if got := visitRoom(t, v, strings.Replace(look, `"$1"`, "/e3/work", 1)); got != want {
			t.Errorf("in the room there is %q, want %q", got, want)
		}
		if err := v.Leave(); err != nil {
			t.Error(err)
		}
	}
	v, err := l.VisitKept(t.Context(), req, f)
	if err == nil {
		err = v.Open(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	if got := shell(t, look, v.Dir); got != want {
		t.Errorf("in the open there is %q, want %q", got, want)
	}
	if err := v.Leave(); err != nil {
		t.Error(err)
	}
	folders.Clear("ws")
	if exists(f.Root) {
		t.Error("the folder is still there")
	}
}

// visitRoom runs a script in the closed room of a visit and returns what it prints.
func visitRoom(t *testing.T, v *executions.Visit, text string) string {
	t.Helper()
	out, err := os.CreateTemp(t.TempDir(), "out")
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	status, err := runner.Visit(v.Closed, []string{"bash", "-c", text}, v.Env, [3]*os.File{null, out, out}, nil)
	if err != nil || status != 0 {
		t.Errorf("the visitor's command ended with %#x, %v", status, err)
	}
	printed, err := os.ReadFile(out.Name())
	if err != nil {
		t.Fatal(err)
	}
	return string(printed)
}

// shell runs a script outside of any room and returns what it prints.
func shell(t *testing.T, text string, args ...string) string {
	t.Helper()
	out, err := exec.Command("bash", append([]string{"-c", text, "bash"}, args...)...).CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	return string(out)
}

// TestLargeFilesStay: of files that are too large to be kept, or too many, none stays on the disk.
func TestLargeFilesStay(t *testing.T) {
	l := newLab(t, keepHere(t))
	began := time.Now()
	for i := range 12 {
		task := withLarge("true", "")
		l.run(t, task, l.put(t, largeText(fmt.Sprint(i))), l.put(t, "small"), l.put(t, "#!/bin/sh\n"))
	}
	if files := copies(t, l, "large"); len(files) > 7 {
		t.Errorf("after 12 commands, in %v, there are the copies %q", time.Since(began), files)
	}
	if err := l.Rest(); err != nil {
		t.Fatal(err)
	}
	if files := copies(t, l, "large"); len(files) > 0 {
		t.Errorf("at the end there are the copies %q", files)
	}
}

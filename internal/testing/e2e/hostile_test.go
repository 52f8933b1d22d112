//go:build linux

package e2e

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"unicode"
	"unicode/utf8"

	"e3/executions"
	"e3/internal/format/record"
	"e3/objectstore/tree"
)

func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// A hostile is a task that does what it should not. It runs among innocents that read the same
// inputs.
type hostile struct {
	name    string
	out     string // as in the package file; "out.txt" unless given
	run     string // a script; or, beginning with "[", a list
	more    string // further keys of the task
	needs   string // a program
	nonRoot bool   // root may do everything, so become another user
	root    bool   // only root can do that

	state   record.State
	message string // of an error
	code    int    // of the start; by the state unless given
	want    func(t *testing.T, p *project, e *executions.Execution)
}

// innocents is how many of them there are.
const innocents = 3

const hostileGraph = `
e3: 1
name: hostile
inputs:
  a: {file: a.txt}
  d: {dir: data}
tasks:
  evil: {in: [a, d], out: %s, pass_env: [E2E_STATE], run: %s%s}
  innocent:
    matrix: {n: [1, 2, 3]}
    in: [a, d]
    out: innocent.txt
    run: 'test -z "$(ls -A "$HOME" "$TMPDIR" | grep -v ^/ | grep .)"; cat "$a" "$d"/one > "$out"'
`

// holds demands the content of a file output.
func holds(want string) func(*testing.T, *project, *executions.Execution) {
	return func(t *testing.T, p *project, e *executions.Execution) {
		t.Helper()
		if got := p.object(e.OutputHash); got != want {
			t.Errorf("the output holds %.100q, want %.100q", got, want)
		}
	}
}

// names demands the names in a directory output.
func names(want ...string) func(*testing.T, *project, *executions.Execution) {
	return func(t *testing.T, p *project, e *executions.Execution) {
		t.Helper()
		entries, err := tree.Decode([]byte(p.object(e.OutputHash)))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, entry := range entries {
			got = append(got, entry.Name)
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("the output has the names %q, want %q", got, want)
		}
	}
}

// prints demands what the log holds.
func prints(want string) func(*testing.T, *project, *executions.Execution) {
	return func(t *testing.T, p *project, e *executions.Execution) {
		t.Helper()
		if got := p.log(e, executions.Stdout); got != want {
			t.Errorf("the log is %.100q, want %.100q", got, want)
		}
	}
}

var hostiles = []hostile{
	// What outputs are called.
	{name: "spaces", out: `"my out put.txt"`, run: `'echo x > "$out"'`, state: record.Success, want: holds("x\n")},
	{name: "newline", out: `"a\nb.txt"`, run: `'echo x > "$out"'`, state: record.Success, want: holds("x\n")},
	{name: "unicode", out: `"größe/日本 🚀.txt"`, run: `'echo x > "$out"'`, state: record.Success, want: holds("x\n")},
	{name: "leading dash", out: `"-rf"`, run: `'echo x > "$out"'`, state: record.Success, want: holds("x\n")},
	{name: "escape sequence", out: `"\e[31mred\e[0m"`, run: `'echo x > "$out"'`, state: record.Success, want: holds("x\n")},
	{name: "escape sequence in a missing output", out: `"\e[31mred\r\e]0;title\a"`, run: `'true'`, state: record.Error, message: "found nothing"},
	{
		name: "odd names in a directory", out: "odd/", run: `'cd "$out"; touch -- "a b" "-rf" $''c\nd'' $''\e[31me'' "größe" "日本" "*" "..." ".hidden" "con" "a\\b"'`,
		state: record.Success, want: names("a b", "-rf", "c\nd", "\x1b[31me", "größe", "日本", "*", "...", ".hidden", "con", `a\b`),
	},
	{name: "a name that is not UTF-8", out: "odd/", run: `'touch "$out/"$''\xff\xfe'''`, state: record.Error, message: "not UTF-8"},

	// Links.
	{name: "links inside", out: "dir/", run: `'cd "$out"; mkdir s; echo x > s/f; ln -s s/f l; ln -s ../s/f s/m; ln -s nothing n'`, state: record.Success, want: names("s", "l", "n")},
	{name: "link upwards", out: "dir/", run: `'ln -s ../../../../../etc/passwd "$out/l"'`, state: record.Error, message: "outside the directory"},
	{name: "link upwards through another", out: "dir/", run: `'cd "$out"; mkdir -p a/b; ln -s a/b l; ln -s l/../../.. m'`, state: record.Error, message: "outside the directory"},
	{name: "absolute link", out: "dir/", run: `'ln -s /etc/passwd "$out/l"'`, state: record.Error, message: "only relative links"},
	{name: "absolute link into the store", out: "dir/", run: `'ln -s "$(cd "$E2E_STATE/../.e3/objects" && pwd)" "$out/l"'`, state: record.Error, message: "only relative links"},
	{name: "link in circles", out: "dir/", run: `'cd "$out"; ln -s b a; ln -s a b'`, state: record.Error, message: "links"},
	{name: "link as output", run: `'ln -s "$a" "$out"'`, state: record.Error, message: "a symbolic link"},
	{name: "link as directory output", out: "dir/", run: `'rmdir "$out"; ln -s /etc dir'`, state: record.Error, message: "a symbolic link"},
	{name: "link above the output", out: "sub/out.txt", run: `'rmdir sub; ln -s /etc sub; ln -s passwd out.txt'`, state: record.Error, message: "found a symbolic link on the way to it"},
	{name: "hard link of an input", run: `'ln "$a" "$out"'`, state: record.Success, want: holds("alpha\n")},
	{name: "hard link within a directory", out: "dir/", run: `'echo x > "$out/x"; ln "$out/x" "$out/y"; ln "$a" "$out/z"'`, state: record.Success, want: names("x", "y", "z")},
	{name: "hard link into the store", run: `'ln "$(find "$E2E_STATE/../.e3/objects" -type f | head -1)" "$out"'`, state: record.Success},

	// What is no file.
	{name: "pipe as output", run: `'mkfifo "$out"'`, state: record.Error, message: "found a named pipe"},
	{name: "pipe in a directory", out: "dir/", run: `'mkfifo "$out/pipe"'`, state: record.Error, message: "a named pipe"},
	{name: "socket as output", needs: "perl", run: `'perl -MSocket -e ''socket(S, AF_UNIX, SOCK_STREAM, 0); bind(S, pack_sockaddr_un($ENV{out})) or die $!'''`, state: record.Error, message: "found a socket"},
	{name: "device as output", root: true, run: `'mknod "$out" c 1 5'`, state: record.Error, message: "found a device"},
	{name: "device in a directory", root: true, out: "dir/", run: `'mknod "$out/zero" c 1 5'`, state: record.Error, message: "a device"},
	{name: "no output", run: `'true'`, state: record.Error, message: `expected a file at "out.txt", found nothing`},
	{name: "directory for a file", run: `'mkdir "$out"'`, state: record.Error, message: `expected a file at "out.txt", found a directory`},
	{name: "file for a directory", out: "dir/", run: `'rmdir "$out"; echo x > dir'`, state: record.Error, message: `expected a directory at "dir", found a file`},
	{name: "one of two outputs", out: "{x: x.txt, y: y.txt}", run: `'echo x > "$x"'`, state: record.Error, message: `output y: expected a file at "y.txt", found nothing`},
	{name: "too deep", out: "dir/", run: `'mkdir -p "$out/$(printf d/%.0s {1..300})"'`, state: record.Error, message: "deeper"},

	// Modes and owners.
	{name: "setuid", run: `'echo x > "$out"; chmod 6755 "$out"'`, state: record.Success, want: holds("x\n")},
	{name: "setuid in a directory", out: "dir/", run: `'cp "$a" "$out/x"; chmod 6777 "$out/x" "$out"'`, state: record.Success, want: names("x")},
	{name: "given away", root: true, run: `'echo x > "$out"; chown 65534:65534 "$out"'`, state: record.Success, want: ownObjects},
	{name: "given away in a directory", root: true, out: "dir/", run: `'echo x > "$out/x"; chown -R 65534:65534 "$out"'`, state: record.Success, want: ownObjects},
	{name: "unreadable output", nonRoot: true, run: `'echo x > "$out"; chmod 000 "$out"'`, state: record.Error, message: "no permission"},
	{name: "unreadable file in a directory", nonRoot: true, out: "dir/", run: `'echo x > "$out/x"; chmod 000 "$out/x"'`, state: record.Error, message: "no permission"},
	{name: "closed directory in a directory", nonRoot: true, out: "dir/", run: `'mkdir -p "$out/x/y"; chmod 000 "$out/x"'`, state: record.Error, message: "no permission"},
	{name: "closed output directory", nonRoot: true, out: "dir/", run: `'mkdir -p "$out/x/y"; chmod 000 "$out"'`, state: record.Error, message: "no permission"},
	{name: "closed directories left behind", nonRoot: true, run: `'cp "$a" "$out"; mkdir -p x/y/z; echo > x/y/f; chmod 000 x/y/z x/y x "$HOME"; mkdir "$TMPDIR/t"; chmod 000 "$TMPDIR/t" "$TMPDIR" .'`, state: record.Error, message: "no permission"},
	{name: "closed directories beside the output", nonRoot: true, run: `'cp "$a" "$out"; mkdir -p x/y/z; echo > x/y/f; chmod 000 x/y/z x/y x "$HOME"; mkdir "$TMPDIR/t"; chmod 000 "$TMPDIR/t" "$TMPDIR"'`, state: record.Success, want: holds("alpha\n")},

	// What it was given.
	{name: "deletes its inputs", run: `'rm -rf "$a" "$d"; echo x > "$out"'`, state: record.Success},
	{name: "rewrites its inputs", run: `'chmod -R u+w .; echo evil > "$a"; echo evil > "$d/one"; touch "$d/more"; echo x > "$out"'`, state: record.Success},
	{name: "gives its input back", run: `'mv "$a" "$out"'`, state: record.Success, want: holds("alpha\n")},
	{name: "deletes its directory", run: `'rm -rf "$PWD"'`, state: record.Error, message: "found another working directory"},
	{name: "deletes its home", run: `'rm -rf "$HOME" "$TMPDIR"; echo x > "$out"'`, state: record.Success},
	{name: "replaces its home", run: `'rmdir "$HOME" "$TMPDIR"; ln -s "$E2E_STATE" "$HOME"; echo > "$TMPDIR"; echo x > "$out"'`, state: record.Success},
	{name: "leaves things in its home", run: `'echo x > "$HOME/.profile"; mkdir -p "$TMPDIR/a/b"; echo x > "$out"'`, state: record.Success},
	{name: "replaces its directory", run: `'cd /; rm -rf "$OLDPWD"; ln -s "$E2E_STATE" "$OLDPWD"'`, state: record.Error, message: "found another working directory"},
	{name: "deletes its sandbox", run: `'cd ..; rm -rf -- *'`, state: record.Error, message: "found another working directory"},
	{name: "deletes its logs and stays", run: `'rm ../../std*; echo lost; sleep 0.4; echo x > "$out"'`, state: record.Success, want: prints("")},
	{name: "replaces its logs and stays", run: `'ln -sf /etc/passwd ../../stdout; ln -f "$a" ../../stderr; sleep 0.4; echo x > "$out"'`, state: record.Success, want: prints("")},
	{name: "deletes its sandbox and stays", run: `'cd ..; rm -rf -- *; sleep 0.5'`, state: record.Error, message: "found another working directory"},

	// What it leaves behind.
	{name: "background child", run: `'nohup sleep 4711.1 >/dev/null 2>&1 & echo x > "$out"'`, state: record.Success, want: noProcess("4711.1")},
	{name: "background child with its log", run: `'sleep 4711.2 & echo x > "$out"'`, state: record.Success, want: noProcess("4711.2")},
	{
		name:  "daemon that goes on writing",
		run:   `'echo x > "$out"; (setsid bash -c "while :; do echo more; echo more >&2; echo more >> $PWD/out.txt; : sleep4711.3; done" & ) ; sleep 0.1'`,
		state: record.Success, want: noProcess("sleep4711.3"),
	},
	{
		name:  "daemon without an environment",
		run:   `'echo x > "$out"; (env -i PATH="$PATH" setsid bash -c "while sleep 0.01; do echo more >> $PWD/out.txt; : sleep4711.4; done" >/dev/null 2>&1 & ) ; sleep 0.1'`,
		state: record.Success, want: noProcess("sleep4711.4"),
	},
	{name: "stopped child", run: `'sleep 4711.5 & kill -STOP $!; echo x > "$out"'`, state: record.Success, want: noProcess("4711.5")},
	{name: "child that ignores TERM", more: ", timeout: 1s", run: `'trap "" TERM; sleep 4711.6 & while :; do wait; done'`, state: record.Error, message: "timed out", code: 124, want: noProcess("4711.6")},
	{name: "stops itself", more: ", timeout: 1s", run: `'kill -STOP $$'`, state: record.Error, message: "timed out", code: 124},

	// How it ends.
	{name: "kills itself", run: `'kill -9 $$'`, state: record.Error, message: "killed by signal 9"},
	{name: "kills its group", run: `'kill -9 0'`, state: record.Error, message: "killed by signal 9"},
	{name: "aborts", run: `'ulimit -c 0; kill -ABRT $$'`, state: record.Error, message: "killed by signal 6"},
	{name: "kills its parent's group", run: `'kill -TERM -$PPID 2>/dev/null; echo x > "$out"'`, state: record.Success},
	{name: "fails", run: `'exit 77'`, state: record.Failed},
	{name: "missing program", run: `[no-such-program-anywhere, "{out}"]`, state: record.Error, message: "no-such-program-anywhere"},
	{name: "program that is a directory", run: `[/etc, "{out}"]`, state: record.Error, message: "cannot start"},
	{name: "program that is no program", run: `["{a}", "{out}"]`, state: record.Error, message: "cannot start"},
	{name: "huge environment", more: ", env: {BIG: \"" + strings.Repeat("x", 200_000) + "\"}", run: `'echo x > "$out"'`, state: record.Error, message: "too long"},

	// What it prints.
	{name: "closes its streams", run: `'exec >&- 2>&-; echo lost || true; echo x > "$out"'`, state: record.Success},
	{name: "binary log", run: `'printf "\\000\\377\\033[2J\\r\\n\\001"; echo x > "$out"'`, state: record.Success, want: prints("\x00\xff\x1b[2J\r\n\x01")},
	{name: "escape sequences and a failure", run: `'printf "\\033]0;title\\007\\033[2J\\033[31m\\302\\233\\000\\rover" >&2; exit 1'`, state: record.Failed},
	{name: "a line of a megabyte and a failure", run: `'head -c 1000000 /dev/zero | tr "\\0" x; exit 1'`, state: record.Failed},
	{name: "truncates its log", run: `'echo one; truncate -s 0 ../../stdout /proc/self/fd/1; echo two; echo x > "$out"'`, state: record.Success, want: prints("two\n")},
}

// noProcess demands that nothing of the task is left, and that its output does not change.
func noProcess(mark string) func(*testing.T, *project, *executions.Execution) {
	return func(t *testing.T, p *project, e *executions.Execution) {
		t.Helper()
		noStrays(t, p.dir, 0, mark)
		if e.State == record.Success {
			if got := p.object(e.OutputHash); !strings.HasPrefix(got, "x\n") {
				t.Errorf("the output is %.40q", got)
			}
		}
	}
}

// ownObjects demands that every object is ours: an owner can change it.
func ownObjects(t *testing.T, p *project, _ *executions.Execution) {
	t.Helper()
	objects, err := filepath.Glob(filepath.Join(p.repository(), "objects", "*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range objects {
		var st syscall.Stat_t
		if err := syscall.Lstat(path, &st); err != nil {
			t.Fatal(err)
		}
		if int(st.Uid) != os.Geteuid() {
			t.Errorf("the object %s belongs to user %d", path, st.Uid)
		}
	}
}

// TestHostileTasks runs tasks that mean harm: each ends as it should, the store stays whole,
// other tasks see what they were given, nothing is left running, and nothing that reaches the
// terminal can do more than be read.
func TestHostileTasks(t *testing.T) {
	for _, h := range hostiles {
		t.Run(strings.ReplaceAll(h.name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			h.try(t)
		})
	}
}

func (h *hostile) try(t *testing.T) {
	if h.needs != "" {
		if _, err := exec.LookPath(h.needs); err != nil {
			t.Skipf("install %s", h.needs)
		}
	}
	if h.root {
		needRoot(t)
	}
	out := h.out
	if out == "" {
		out = "out.txt"
	}
	p := newProject(t, map[string]string{"a.txt": "alpha\n", "data/one": "one\n", "e3.yaml": fmt.Sprintf(hostileGraph, out, h.run, h.more)})
	if h.nonRoot && os.Geteuid() == 0 {
		p.as(nobody)
	}
	code := h.code
	if code == 0 && h.state != record.Success {
		code = 1
	}
	// One after the other, so that they share a sandbox.
	r := p.e3("start", "-f", "e3.yaml", "-j", "1")
	if r.code != code {
		t.Errorf("exit code %d, want %d\n%s", r.code, code, r.text())
	}
	harmless(t, r.stdout)
	harmless(t, r.stderr)
	list := p.of("evil")
	if len(list) != 1 {
		t.Fatalf("it has %d executions, want 1\n%s", len(list), r.text())
	}
	e := list[0]
	if e.State != h.state || h.message != "" && !strings.Contains(e.Message, h.message) {
		t.Errorf("it ended as %v %q, want %v %q", e.State, e.Message, h.state, h.message)
	}
	if h.want != nil {
		h.want(t, p, e)
	}
	noStrays(t, p.dir, 0)
	for n := 1; n <= innocents; n++ {
		if got := p.output(fmt.Sprintf("innocent[%d]", n)); got != "alpha\none\n" {
			t.Errorf("another task made %q", got)
		}
	}
	check(t, p.repository())

	// Once more: what was answered is known, what was not is tried again and ends alike.
	before := rememberFinished(t, p.repository())
	again := p.e3("start", "-f", "e3.yaml", "-j", "1")
	if again.code != code {
		t.Errorf("the second start: exit code %d, want %d\n%s", again.code, code, again.text())
	}
	want := innocents + 1
	if h.state != record.Success {
		want++
	}
	if n := len(p.all()); n != want {
		t.Errorf("after the second start there are %d executions, want %d", n, want)
	}
	noStrays(t, p.dir, 0)
	check(t, p.repository())
	before.unchanged(t, p.repository())
}

// harmless demands that text can be shown on a terminal: it is UTF-8 without control characters.
func harmless(t testing.TB, text string) {
	t.Helper()
	for i, r := range text {
		if r == utf8.RuneError && text[i] != 0xef || unicode.IsControl(r) && r != '\n' && r != '\t' {
			t.Errorf("e3 wrote %q to the terminal", text[max(0, i-40):min(len(text), i+10)])
			return
		}
	}
}

// TestHostileNames runs tasks of odd labels.
func TestHostileNames(t *testing.T) {
	p := newProject(t, map[string]string{"e3.yaml": `
e3: 1
name: hostile
tasks:
  odd:
    matrix: {label: ["a b", "größe", "日本", "-rf", "🚀", "a:b", "x\"y'z", "$(reboot)", "` + "\u202egnp.txt" + `", "a\\b", "%2F", "~"]}
    out: out.txt
    run: 'printf "%s" "$label" > "$out"'
  gather: {in: {all: "odd[*]"}, out: names.txt, run: 'cd "$all"; for f in *; do test "$(cat -- "./$f").txt" = "$f"; echo ok; done > "$OLDPWD/$out"'}
`})
	r := p.e3("start", "-f", "e3.yaml")
	if r.code != 0 {
		t.Fatalf("exit code %d\n%s", r.code, r.text())
	}
	harmless(t, r.stdout)
	for _, c := range r.stdout {
		if unicode.Is(unicode.Bidi_Control, c) {
			t.Errorf("e3 wrote the bidirectional control %U to the terminal", c)
		}
	}
	if got, want := p.output("gather"), strings.Repeat("ok\n", 12); got != want {
		t.Errorf("output: %q", got)
	}
	check(t, p.repository())
}

// TestLongLog has a task print 100 MB to each stream: all of it is kept, in little memory.
func TestLongLog(t *testing.T) {
	const size = 100_000_000
	for _, fails := range []bool{false, true} {
		t.Run(map[bool]string{false: "success", true: "failure"}[fails], func(t *testing.T) {
			p := newProject(t, map[string]string{"e3.yaml": fmt.Sprintf(`
e3: 1
name: loud
tasks:
  loud: {out: out.txt, run: 'head -c %d /dev/zero | tr "\0" o & head -c %d /dev/zero | tr "\0" e >&2; wait; echo x > "$out"; exit %d'}
`, size, size, map[bool]int{false: 0, true: 1}[fails])})
			x := p.spawn("start", "-f", "e3.yaml")
			peak := peakMemory(x)
			r := x.wait()
			if want := map[bool]int{false: 0, true: 1}[fails]; r.code != want {
				t.Fatalf("exit code %d, want %d\n%s", r.code, want, r.text())
			}
			if len(r.stdout)+len(r.stderr) > 64<<10 {
				t.Errorf("e3 printed %d bytes", len(r.stdout)+len(r.stderr))
			}
			e := p.only("loud")
			for stream, c := range map[executions.Stream]string{executions.Stdout: "o", executions.Stderr: "e"} {
				if log := p.log(e, stream); len(log) != size || strings.Count(log, c) != size {
					t.Errorf("%s has %d bytes, want %d", stream, len(log), size)
				}
			}
			t.Logf("e3 had %d MB at most", peak>>20)
			if peak == 0 || peak > 150<<20 && !raceBuild {
				t.Errorf("e3 had %d MB, want at most 150", peak>>20)
			}
			check(t, p.repository())
		})
	}
}

// TestClosedScratchAfterKill kills e3 while a task has closed its directories: the next start
// must get rid of them.
func TestClosedScratchAfterKill(t *testing.T) {
	p := newProject(t, map[string]string{"e3.yaml": `
e3: 1
name: closed
tasks:
  closes:
    out: out.txt
    pass_env: [E2E_STATE]
    run: |
      echo x > "$out"
      test -e "$E2E_STATE/release" && exit
      mkdir -p x/y; touch x/y/z; chmod 000 x/y x "$HOME" "$TMPDIR" .. .
      echo go >> "$E2E_STATE/holding"
      sleep 4711
`})
	if os.Geteuid() == 0 {
		p.as(nobody)
	}
	x := p.spawn("start", "-f", "e3.yaml")
	p.holding(patience, 1)
	x.kill(false)
	noStrays(t, p.dir, x.cmd.Process.Pid)
	p.write("state/release", "")
	p.start(0)
	check(t, p.repository())
}

// TestHomeIsEmpty runs many short tasks in few sandboxes: each finds its HOME and TMPDIR empty,
// however fast they follow each other.
func TestHomeIsEmpty(t *testing.T) {
	n := 200
	if testing.Short() {
		n = 40
	}
	var items []string
	for i := range n {
		items = append(items, fmt.Sprint(i))
	}
	p := newProject(t, map[string]string{"e3.yaml": `
e3: 1
name: home
tasks:
  litter: {matrix: {n: [` + strings.Join(items, ", ") + `]}, out: out.txt, run: 'ls -A "$HOME" "$TMPDIR" | grep -v : | grep . && exit 9; touch "$HOME/h$n" "$TMPDIR/t$n"; echo "$n" > "$out"'}
`})
	if r := p.e3("start", "-f", "e3.yaml"); r.code != 0 {
		t.Errorf("exit code %d\n%s", r.code, r.text())
	}
	check(t, p.repository())
}

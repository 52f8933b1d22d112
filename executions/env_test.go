package executions_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"e3/executions"
	"e3/internal/format/record"
	"e3/objectstore"
)

// environment runs env and returns its entries, sorted. Values that differ from run to run are replaced by a word.
func environment(t *testing.T, l *lab, req *executions.Request) []string {
	t.Helper()
	var id string
	req.Started = func(s string, _ time.Time) { id = s }
	res := l.do(t, req)
	if res.State != record.Success {
		t.Fatalf("got %+v\n%s", res, l.log(t, req, res.ExecutionID, executions.Stderr))
	}
	var list []string
	for _, e := range strings.Split(strings.TrimSuffix(l.log(t, req, id, executions.Stdout), "\x00"), "\x00") {
		name, v, _ := strings.Cut(e, "=")
		switch {
		case name == "HOME" && strings.HasPrefix(v, l.dir) && strings.HasSuffix(v, "/home"):
			e = "HOME=(private)"
		case name == "TMPDIR" && strings.HasPrefix(v, l.dir) && strings.HasSuffix(v, "/tmp"):
			e = "TMPDIR=(private)"
		case name == "GIT_CEILING_DIRECTORIES" && strings.HasPrefix(v, l.dir) && strings.HasSuffix(v, "/room"):
			e = "GIT_CEILING_DIRECTORIES=(private)"
		case name == "E3_EXECUTION" && v == id:
			e = "E3_EXECUTION=(id)"
		}
		list = append(list, e)
	}
	slices.Sort(list)
	return list
}

// printEnv prints its environment without the help of a shell, which would add to it.
func printEnv() *record.Task {
	return &record.Task{Argv: []string{"env", "-0"}, Output: record.Output{Entries: []record.OutputEntry{{Name: "out", Path: "d", Kind: record.KindDir}}}}
}

var base = []string{"E3_EXECUTION=(id)", "GIT_CEILING_DIRECTORIES=(private)", "HOME=(private)", "LANG=C.UTF-8", "PATH=/usr/bin:/bin", "TMPDIR=(private)", "TZ=UTC", "out=d"}

func with(entries ...string) []string {
	list := append(slices.Clone(base), entries...)
	slices.Sort(list)
	return list
}

func TestEnvironment(t *testing.T) {
	t.Setenv("LEAK", "from the process that runs e3")
	l := newLab(t, func(o *executions.Options) { o.Path = "/usr/bin:/bin" })
	l.env["PASSED"], l.env["SECRET"], l.env["UNDECLARED"] = "p", "h1dden value", "u"
	for _, test := range []struct {
		name   string
		change func(*record.Task) []objectstore.Hash
		want   []string
	}{
		{"nothing declared", nil, base},
		{"declared", func(task *record.Task) []objectstore.Hash {
			task.Env = []record.EnvVar{{Name: "OMP_NUM_THREADS", Value: "2"}, {Name: "EMPTY", Value: ""}, {Name: "ODD", Value: "a=b\nc"}}
			return nil
		}, with("EMPTY=", "ODD=a=b\nc", "OMP_NUM_THREADS=2")},
		{"passed and secret", func(task *record.Task) []objectstore.Hash {
			task.Passed = record.Passed{Env: []string{"ABSENT", "PASSED"}, Secrets: []string{"SECRET"}}
			return nil
		}, with("PASSED=p", "SECRET=***")},
		{"variables", func(task *record.Task) []objectstore.Hash {
			task.Inputs = []record.Input{
				{Name: "PASSED", Kind: record.KindVariable}, {Name: "EMPTY", Kind: record.KindVariable}, {Name: "UNDECLARED", Kind: record.KindVariable},
			}
			return []objectstore.Hash{putValue(t, l, "as the run has it"), putValue(t, l, ""), putValue(t, l, nil)}
		}, with("PASSED=as the run has it", "EMPTY=")},
		{"inputs", func(task *record.Task) []objectstore.Hash {
			task.Inputs = []record.Input{{Name: "table", Path: "data/t.csv", Kind: record.KindFile}, {Name: "n", Kind: record.KindValue}}
			return []objectstore.Hash{l.put(t, "x"), putValue(t, l, int64(7))}
		}, with("table=data/t.csv", "n=7")},
		{"several outputs", func(task *record.Task) []objectstore.Hash {
			task.Output.Multi = true
			task.Output.Entries = []record.OutputEntry{{Name: "model", Path: "m", Kind: record.KindDir}, {Name: "plots", Path: "p", Kind: record.KindDir}}
			return nil
		}, slices.Sorted(slices.Values(append(slices.DeleteFunc(slices.Clone(base), func(s string) bool { return s == "out=d" }), "model=m", "plots=p")))},
	} {
		t.Run(test.name, func(t *testing.T) {
			task := printEnv()
			task.Version = test.name // so that each has a key of its own
			var inputs []objectstore.Hash
			if test.change != nil {
				inputs = test.change(task)
			}
			req := l.request(task, inputs...)
			if got := environment(t, l, req); !slices.Equal(got, test.want) {
				t.Errorf("got  %q\nwant %q", got, test.want)
			}
		})
	}
}

// A command does not start without a secret that it declares, because its result would answer processes that have the
// secret. Variables in pass_env are optional, an empty secret counts as set, and a hit needs no secret.
func TestSecretNotSet(t *testing.T) {
	l := newLab(t, func(o *executions.Options) { o.Worker = "me@host" })
	mark := filepath.Join(t.TempDir(), "ran")
	for _, test := range []struct {
		name    string
		passed  record.Passed
		job     string
		message string // "" of a success
	}{
		{"secret", record.Passed{Secrets: []string{"ABSENT"}}, "",
			"secret ABSENT is not set in the environment of e3 (me@host): set it, or take it from the task's secrets"},
		{"several", record.Passed{Secrets: []string{"ABSENT", "EMPTY", "GONE"}}, "",
			"secrets ABSENT, GONE are not set in the environment of e3 (me@host): set them, or take them from the task's secrets"},
		{"worker", record.Passed{Secrets: []string{"ABSENT"}}, "default/x",
			"secret ABSENT is not set in the environment of the worker me@host: set it, or take it from the task's secrets"},
		{"empty", record.Passed{Secrets: []string{"EMPTY"}}, "", ""},
		{"passed", record.Passed{Env: []string{"ABSENT"}}, "", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			l.env["EMPTY"] = ""
			task := script("touch " + mark + "; echo x > out")
			task.Version, task.Passed = test.name, test.passed
			req := l.request(task)
			req.Job.Ref = test.job
			started := 0
			req.Started = func(string, time.Time) { started++ }
			for range 2 { // it is no hit
				os.Remove(mark)
				res, err := l.Make(t.Context(), req, newID(t))
				if err != nil {
					t.Fatal(err)
				}
				if test.message == "" {
					if res.State != record.Success {
						t.Errorf("got %+v, want a success", res)
					}
					continue
				}
				if res.State != record.Error || res.Reason != executions.ReasonStart || res.Message != test.message {
					t.Errorf("got %v %q: %q, want %v %q: %q", res.State, res.Reason, res.Message, record.Error, executions.ReasonStart, test.message)
				}
				if exists(mark) || !res.Output.IsZero() {
					t.Errorf("the command ran: %+v", res)
				}
			}
			if started != 2 {
				t.Errorf("Started was called %d times, want 2", started)
			}
			a, err := l.Lookup(t.Context(), keyOf(req))
			if err != nil || (a.Hit != nil) != (test.message == "") {
				t.Errorf("the lookup found %+v, %v", a, err)
			}
		})
	}
	t.Run("hit", func(t *testing.T) {
		task := script("echo hit > out")
		task.Passed.Secrets = []string{"ABSENT"}
		req := l.request(task)
		l.env["ABSENT"] = ""
		l.do(t, req)
		delete(l.env, "ABSENT")
		if res := l.do(t, req); !res.Cached || res.State != record.Success {
			t.Errorf("got %+v, want the hit", res)
		}
	})
}

// A declared variable replaces the default of its name. No name appears twice, because programs differ in which
// duplicate they use.
func TestEnvironmentOverrides(t *testing.T) {
	l := newLab(t, func(o *executions.Options) { o.Path = "/usr/bin:/bin" })
	l.env["TZ"], l.env["LANG"], l.env["E3_EXECUTION"] = "Europe/Berlin", "de_DE.UTF-8", "another's"
	l.env["E3_STEP"] = "another's"
	task := printEnv()
	task.Env = []record.EnvVar{{Name: "LANG", Value: "fr_FR.UTF-8"}, {Name: "PATH", Value: "/bin:/usr/bin"}, {Name: "HOME", Value: "/nowhere"}}
	task.Passed.Env = []string{"E3_EXECUTION", "E3_STEP", "LANG", "TZ"}
	req := l.request(task)
	req.Step = "resume:b"
	got := environment(t, l, req)
	want := []string{"E3_EXECUTION=(id)", "E3_STEP=resume:b", "GIT_CEILING_DIRECTORIES=(private)", "HOME=/nowhere", "LANG=fr_FR.UTF-8", "PATH=/bin:/usr/bin", "TMPDIR=(private)", "TZ=Europe/Berlin", "out=d"}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// A task finds nothing of an earlier one in its directory, its HOME or its TMPDIR.
func TestSandboxIsClean(t *testing.T) {
	l := newLab(t)
	const look = `find . "$HOME" "$TMPDIR" -mindepth 1; stat -c '%a %F' . "$HOME" "$TMPDIR"; `
	const clean = "700 directory\n700 directory\n700 directory\n"
	for i, dirty := range []string{
		`echo x > "$HOME/.cache"`,
		`echo x > "$TMPDIR/t"`,
		`mkdir -p "$HOME/a/b"; echo x > "$HOME/a/b/c"`,
		`ln -s / "$TMPDIR/root"`,
		`chmod 000 "$HOME"`,
		`chmod 777 "$HOME" "$TMPDIR" .`,
		`rmdir "$HOME"; echo x > "$HOME"`,
		`rmdir "$HOME" "$TMPDIR"; ln -s /tmp "$HOME"`,
		`touch left; mkdir -p d/e; echo x > d/e/f; chmod 000 d/e`,
		`mkdir d; chmod 555 d .; chmod 755 .`,
		`echo x > "$HOME/a"; touch -d 2001-01-01 "$HOME/a" "$HOME"`,
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			for round := range 3 { // the first finds a new or renewed sandbox
				task := script(look + dirty + "; echo x > out")
				task.Version = fmt.Sprint(i, round)
				if got := l.run(t, task); got != clean {
					t.Fatalf("round %d: the sandbox is\n%swant\n%s", round, got, clean)
				}
			}
			if got := l.run(t, script(look+"echo x > out # after "+fmt.Sprint(i))); got != clean {
				t.Fatalf("after %s the sandbox is\n%swant\n%s", dirty, got, clean)
			}
		})
	}
}

// A file in HOME is found even if it was written in the same tick of the kernel's clock in which the directory was
// made.
func TestSandboxIsCleanAtOnce(t *testing.T) {
	l := newLab(t)
	for i := range 60 {
		task := &record.Task{
			Argv:    []string{"sh", "-c", `ls -A "$HOME" "$TMPDIR" | grep -v : ; echo x > $HOME/h; echo x > $TMPDIR/t; echo x > out`},
			Version: fmt.Sprint(i), Output: script("").Output,
		}
		if got := strings.TrimSpace(l.run(t, task)); got != "" {
			t.Fatalf("round %d finds %q", i, got)
		}
	}
}

// Cleaning up never follows a link that a command has put in place of a staged folder.
func TestSandboxLinks(t *testing.T) {
	l := newLab(t)
	outside := t.TempDir()
	file := filepath.Join(outside, "sub", "sales.csv")
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	touch(t, file)
	for _, text := range []string{
		"rm -r data; ln -s " + outside + " data",
		"rm -r data/sub; ln -s " + outside + "/sub data/sub",
		"cd ..; rm -r work; mkdir work; cd work; ln -s " + outside + " data; mkdir res",
		"rm -r res; ln -s " + outside + "/sub res; mkdir x",
	} {
		task := &record.Task{Shell: text + "; echo x > out", Output: single("out", record.KindFile),
			Inputs: []record.Input{{Name: "sales", Path: "data/sub/sales.csv", Kind: record.KindFile}}}
		task.Output.Multi = true
		task.Output.Entries = append(task.Output.Entries, record.OutputEntry{Name: "more", Path: "res/sales.csv", Kind: record.KindFile})
		l.do(t, l.request(task, l.put(t, "x")))
		if !exists(file) {
			t.Fatalf("after %s a file outside is gone", text)
		}
		if got := l.run(t, script("ls -A; echo x > out # after "+text)); got != "" {
			t.Fatalf("after %s the next task finds %q", text, got)
		}
	}
}

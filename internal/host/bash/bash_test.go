package bash_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"e3/internal/host/bash"
	"e3/internal/host/runner"

	"mvdan.cc/sh/v3/expand"
	"mvdan.cc/sh/v3/syntax"
)

func TestMain(m *testing.M) {
	runner.Main()
	os.Exit(m.Run())
}

func installed(t testing.TB) string {
	t.Helper()
	file, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("there is no bash: install it")
	}
	return file
}

// No word that the installed bash takes for a builtin or a keyword is a program.
func TestOwnWords(t *testing.T) {
	out, err := exec.Command(installed(t), "-c", "compgen -bk").Output()
	if err != nil {
		t.Skipf("this bash does not tell its builtins, install bash 5.2: %v", err)
	}
	for word := range strings.FieldsSeq(string(out)) {
		if bash.Parse(word+" x") != nil {
			t.Errorf("%s would be searched in PATH, but it is bash's own", word)
		}
	}
}

// All variables that the installed bash has by itself, and those that its manual gives a meaning, are special.
func TestSpecialVariables(t *testing.T) {
	cmd := exec.Command(installed(t), "-c", "compgen -v")
	cmd.Env = []string{"PATH=/usr/bin:/bin"}
	out, err := cmd.Output()
	if err != nil {
		t.Skipf("this bash does not tell its variables, install bash 5.2: %v", err)
	}
	names := append(strings.Fields(string(out)), "BASH_ENV", "BASH_FUNC_f%%", "LC_ALL", "LC_MESSAGES", "LANGUAGE", "POSIXLY_CORRECT",
		"SSH_CLIENT", "EXECIGNORE", "GLOBIGNORE", "ENV", "LD_PRELOAD", "x.y", "a-b", "", "1x")
	for _, name := range names {
		if name != "PATH" && !bash.Special(name) {
			t.Errorf("%s=… is taken for a variable that bash passes on", name)
		}
	}
	for _, name := range []string{"PATH", "HOME", "TMPDIR", "LANG", "TZ", "E3_EXECUTION", "a", "_a", "A1"} {
		if bash.Special(name) {
			t.Errorf("%s is special, so that no script could go without bash", name)
		}
	}
}

func TestBind(t *testing.T) {
	base := []string{"PATH=/usr/bin:/bin", "LANG=C.UTF-8", "HOME=/h", "a=x y", "e="}
	with := func(more ...string) []string { return append(slices.Clone(base), more...) }
	for _, test := range []struct {
		name, script string
		env          []string
		ok           bool
	}{
		{"plain", `cat "$a" "$e" >"$a"`, base, true},
		{"unset", `cat "$b"`, base, false},
		{"startup file", `cat`, with("BASH_ENV=/x"), false},
		{"function", `cat`, with("BASH_FUNC_cat%%=() { echo x; }"), false},
		{"old function", `cat`, with("cat=() { echo x; }"), false},
		{"posix", `cat`, with("POSIXLY_CORRECT=1"), false},
		{"locale", `cat`, with("LC_ALL=C"), false},
		{"other language", `cat`, []string{"PATH=/usr/bin:/bin", "LANG=de_DE.UTF-8"}, false},
		{"no language", `cat`, []string{"PATH=/usr/bin:/bin"}, false},
		{"no PATH", `cat`, []string{"LANG=C.UTF-8"}, false},
		{"relative PATH", `cat`, []string{"LANG=C.UTF-8", "PATH=/usr/bin:bin:/bin"}, false},
		{"empty entry", `cat`, []string{"LANG=C.UTF-8", "PATH=:/usr/bin:/bin"}, false},
		{"home in PATH", `cat`, []string{"LANG=C.UTF-8", "PATH=~/bin:/usr/bin:/bin"}, false},
		{"slash in PATH", `cat`, []string{"LANG=C.UTF-8", "PATH=/usr/bin/:/bin"}, false},
		{"own directory", `cat`, with("PWD=/"), false},
		{"name of no identifier", `cat`, with("a.b=1"), false},
		{"no name", `cat`, with("x"), false},
		{"text that bash marks", `cat "$c"`, with("c=a\x01"), false},
		{"the same, not used", `cat`, with("c=a\x01"), true},
		{"no UTF-8", `cat "$c"`, with("c=\xff"), false},
		{"empty file", `cat >"$e"`, base, false},
		{"absolute file", `cat >/tmp/x`, base, false},
		{"device", `cat >/dev/stdout`, base, false},
		{"null", `cat >/dev/null`, base, true},
		{"missing", `e3-no-such-program`, base, false},
		{"relative", `./no-such-program`, base, true}, // its start fails
	} {
		t.Run(test.name, func(t *testing.T) {
			c := bash.Parse(test.script)
			if c == nil {
				t.Fatal("the script does not parse")
			}
			if _, ok := c.Bind(test.env, "/w", runner.LookPath); ok != test.ok {
				t.Errorf("goes without bash: %v", ok)
			}
		})
	}
}

// A bash that does anything in another way is not known, and no script goes without it.
func TestChecker(t *testing.T) {
	real := installed(t)
	sup, err := runner.New(runner.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer sup.Close()
	if !sup.Redirects() {
		t.Skip("on this system all scripts go to bash: run it on Linux")
	}
	out, err := exec.Command(real, "-c", "echo ${BASH_VERSINFO[0]}.${BASH_VERSINFO[1]} $OSTYPE").Output()
	if err != nil {
		t.Fatal(err)
	}
	c := bash.NewChecker(sup, filepath.Dir(real))
	if err := c.Check(t.Context()); strings.TrimSpace(string(out)) == "5.2 linux-gnu" {
		if err != nil || !c.Known() {
			t.Errorf("the installed bash is not known: %v", err)
		}
	} else if err == nil {
		t.Errorf("bash %s is known", out)
	}
	for name, script := range map[string]string{
		"exits":          "exit 1",
		"prints nothing": "exit 0",
		"orders":         "shift 3; exec env -i PATH=/usr/bin:/bin bash -c \"$2\"",
		"adds":           "export E3_MORE=1; exec " + real + ` "$@"`,
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "bash"), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		if c := bash.NewChecker(sup, dir); c.Check(t.Context()) == nil || c.Known() {
			t.Errorf("a bash that %s is known", name)
		}
	}
	if c := bash.NewChecker(sup, t.TempDir()); c.Check(t.Context()) == nil {
		t.Error("a bash that is not there is known")
	}
	if c := bash.NewChecker(refusing{sup}, filepath.Dir(real)); !errors.Is(c.Check(t.Context()), errRefused) {
		t.Error("a bash that could not be asked is known")
	}
}

var errRefused = errors.New("refused")

type refusing struct{ *runner.Supervisor }

func (refusing) Run(context.Context, runner.Spec) (runner.Result, error) {
	return runner.Result{}, errRefused
}

// What Parse takes for one plain command, another parser takes for the same words and redirections, which expand to the
// same texts.
func FuzzParse(f *testing.F) {
	for _, script := range []string{
		`cat "$a" 'b c' >"$out" 2>&1`, "# note\n\ncat <in.txt >>x", `./tool "x\"y\\z" a''b "" --k="${a}" &>'a b'`, "cat \\\n  a 1>|b 0<c\n",
		`a=1 cat`, `cat a\ b`, `cat {a,b}`, `cat 2>&1>x`, `cat 12>x`, `cat x1>y`, `! cat`, `cat <<E`, `cat "a$"`, `cat "${a:-x}"`, "cat a\\\n\tb", `time cat`,
	} {
		f.Add(script)
	}
	env := []string{"PATH=/usr/bin:/bin", "LANG=C.UTF-8", "a=x y", "b=*", "out=o", "e=", "_x1=\"'"}
	config := &expand.Config{NoUnset: true, Env: expand.ListEnviron(env...)}
	f.Fuzz(func(t *testing.T, script string) {
		c := bash.Parse(script)
		if c == nil {
			return
		}
		file, err := syntax.NewParser().Parse(strings.NewReader(script), "")
		if err != nil {
			t.Fatalf("%q does not parse: %v", script, err)
		}
		if len(file.Stmts) != 1 {
			t.Fatalf("%q has %d statements", script, len(file.Stmts))
		}
		s := file.Stmts[0]
		call, ok := s.Cmd.(*syntax.CallExpr)
		if !ok || len(call.Assigns) > 0 || s.Negated || s.Background || s.Coprocess {
			t.Fatalf("%q is not one plain command: %T", script, s.Cmd)
		}
		p, ok := c.Bind(env, "/", runner.LookPath)
		if !ok {
			return // a variable or a program that is not there
		}
		argv, err := expand.Fields(config, call.Args...)
		if err != nil || !slices.Equal(argv, p.Argv) {
			t.Errorf("%q has the words %q, want %q (%v)", script, p.Argv, argv, err)
		}
		if got, want := p.Redirects, redirects(t, config, s.Redirs); !slices.Equal(got, want) {
			t.Errorf("%q has the redirections %+v, want %+v", script, got, want)
		}
	})
}

// redirects translates the redirections of the other parser.
func redirects(t *testing.T, config *expand.Config, list []*syntax.Redirect) (all []runner.Redirect) {
	t.Helper()
	for _, r := range list {
		path, err := expand.Literal(config, r.Word)
		if err != nil {
			t.Fatal(err)
		}
		fd := -1
		if r.N != nil {
			fd = int(r.N.Value[0] - '0')
		}
		output := fd
		if fd < 0 {
			output = 1
		}
		switch r.Op {
		case syntax.RdrIn:
			all = append(all, runner.Redirect{FD: max(fd, 0), Path: path, Mode: runner.Read})
		case syntax.RdrOut, syntax.RdrClob:
			all = append(all, runner.Redirect{FD: output, Path: path, Mode: runner.Truncate})
		case syntax.AppOut:
			all = append(all, runner.Redirect{FD: output, Path: path, Mode: runner.Append})
		case syntax.DplOut:
			all = append(all, runner.Redirect{FD: output, From: int(path[0] - '0')})
		case syntax.RdrAll:
			all = append(all, runner.Redirect{FD: 1, Path: path, Mode: runner.Truncate}, runner.Redirect{FD: 2, From: 1})
		case syntax.AppAll:
			all = append(all, runner.Redirect{FD: 1, Path: path, Mode: runner.Append}, runner.Redirect{FD: 2, From: 1})
		default:
			t.Fatalf("redirection %v", r.Op)
		}
	}
	return all
}

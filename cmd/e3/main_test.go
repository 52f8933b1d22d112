package main

import (
	"errors"
	"flag"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"e3/internal/host/runner"
	"e3/internal/testing/testimage"
	"e3/internal/testing/testserver"
)

func TestMain(m *testing.M) {
	runner.Main() // in the process that runs the tasks, this never returns
	// Scripts mostly wait for processes, and under -race for their last second.
	if err := flag.Set("test.parallel", "12"); err != nil {
		panic(err)
	}
	testscript.Main(m, map[string]func(){"e3": strictMain, "tamper": tamper})
}

// strictMain is main, but replies of unregistered types are errors.
func strictMain() {
	a := newApp()
	a.Check = a.checkAnswer
	process(a)
}

// TestScripts runs the scripts in testdata/script on each backend (E3_TEST_BACKENDS). In addition to the usual commands
// of testscript they have
//
//	newrepo                     e3 init, of the script's repository: $REPO
//	newrepo <name>              e3 init, of another one: $name
//	elapse <duration>           time passes for objects that are in S3: they are removed only when they are old
//	exits <code> <command> …    the command ends with this exit code
//	capture <name> <pattern>    sets a variable to what the pattern's group matches in stdout
//	lines <n> <pattern>         so many lines of stdout match
//	exec tamper …               damages a repository
//	image <form> <path> <motd>  writes an image with a shell: an archive, a layout, docker for what docker save wrote, or
//	                            push, to a registry
//	registry                    starts a registry: $REGISTRY
//	uv                          puts uv on the PATH
//	web …                       serves the folder www: $WEB (see web)
//	bucket put <file> <key>     puts a file into a bucket of S3
//
// and the conditions root (the user is root), busybox (such an image can be made), uv (it can be had), reflink (files of scripts can share blocks) and folder, shared and objects, of which exactly one is true. A repository
// is the folder . or <name>, or a shared one, which E3_REPO then names. In patterns, $SHOWN or $name_shown stands for
// its location in advice, and $PLACE or $name_place for its own name. $REFERENCE is the folder of the zips that the
// TypeScript e3 has written.
func TestScripts(t *testing.T) {
	if signal.Ignored(syscall.SIGHUP) { // by nohup: children inherit that, unless the signal is caught here
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	}
	for _, b := range backends(t) {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel() // with the other backends
			playScripts(t, b)
		})
	}
}

func playScripts(t *testing.T, b *backend) {
	zips, err := filepath.Abs("../../exportimport/testdata/reference")
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			env.Setenv("USER", "tester")
			env.Setenv("XDG_CONFIG_HOME", filepath.Join(env.WorkDir, ".config")) // keys of a script are not this machine's
			env.Setenv("REFERENCE", zips)
			// Under -race a process by default sleeps for a second when it exits.
			env.Setenv("GORACE", "atexit_sleep_ms=0 "+os.Getenv("GORACE"))
			for _, name := range []string{"NO_COLOR", "FORCE_COLOR"} {
				env.Setenv(name, "")
			}
			env.Values[websiteKey{}] = map[string]*website{}
			return b.setup(env)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"newrepo": b.newRepo, "elapse": elapse, "exits": exits, "capture": capture, "lines": countLines, "image": writeImage, "registry": startRegistry, "uv": putUV,
			"web": web, "bucket": bucket,
		},
		Condition: func(cond string) (bool, error) {
			switch cond {
			case "busybox":
				_, err := testimage.Busybox("")
				return err == nil, nil
			case "reflink":
				return reflinks(), nil
			case "uv":
				_, err := testserver.UV()
				if err != nil {
					t.Logf("no uv: %v", err)
				}
				return err == nil, nil
			}
			return b.is(cond)
		},
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
	})
}

// reflinks tells whether files in the folder of temporary files can share blocks.
func reflinks() bool {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		return false
	}
	defer os.RemoveAll(dir)
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	return os.WriteFile(a, make([]byte, 1<<20), 0o600) == nil && exec.Command("cp", "--reflink=always", a, b).Run() == nil
}

// TestEveryCommandHasAScript fails if a command has no script.
func TestEveryCommandHasAScript(t *testing.T) {
	files, err := filepath.Glob("testdata/script/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	var text strings.Builder
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		text.Write(data)
	}
	for _, cmd := range newRoot(newApp()).Commands() {
		if cmd.Runnable() && !strings.Contains(text.String(), "e3 "+cmd.Name()) {
			t.Errorf("no script calls e3 %s", cmd.Name())
		}
	}
}

// putUV puts the folder of uv on the PATH.
func putUV(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) > 0 {
		ts.Fatalf("usage: uv")
	}
	program, err := testserver.UV()
	ts.Check(err)
	ts.Setenv("PATH", filepath.Dir(program)+string(filepath.ListSeparator)+ts.Getenv("PATH"))
}

func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits <code> <command> …")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			ts.Fatalf("%s: %v", strings.Join(args[1:], " "), err)
		}
		got = exit.ExitCode()
	}
	if got != want {
		ts.Fatalf("%s: exit code %d, want %d", strings.Join(args[1:], " "), got, want)
	}
}

func capture(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: capture <name> <pattern>")
	}
	m := match(ts, args[1]).FindStringSubmatch(ts.ReadFile("stdout"))
	if len(m) != 2 {
		ts.Fatalf("%q has no match with one group in stdout", args[1])
	}
	ts.Setenv(args[0], m[1])
}

func countLines(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: lines <n> <pattern>")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	for line := range strings.Lines(ts.ReadFile("stdout")) {
		if match(ts, args[1]).MatchString(strings.TrimSuffix(line, "\n")) {
			got++
		}
	}
	if got != want {
		ts.Fatalf("%d lines of stdout match %q, want %d", got, args[1], want)
	}
}

func match(ts *testscript.TestScript, pattern string) *regexp.Regexp {
	re, err := regexp.Compile(pattern)
	ts.Check(err)
	return re
}

func writeImage(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: image archive|layout|docker <path> <text of /etc/motd>")
	}
	i, err := testimage.Busybox(args[2])
	ts.Check(err)
	switch args[0] {
	case "archive":
		ts.Check(testimage.WriteArchive(args[1], map[string]testimage.Image{"latest": i}))
	case "layout":
		ts.Check(testimage.WriteLayout(args[1], map[string]testimage.Image{"latest": i}))
	case "docker":
		ts.Check(testimage.WriteDocker(args[1], "box:latest", i))
	case "push":
		ts.Check(testimage.Push(args[1], i, true))
	default:
		ts.Fatalf("an image has no form %q", args[0])
	}
}

func startRegistry(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 0 {
		ts.Fatalf("usage: registry")
	}
	host, end := testimage.Registry()
	ts.Defer(end)
	ts.Setenv("REGISTRY", host)
}

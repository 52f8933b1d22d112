package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"e3/internal/insight/runview"
)

// A terminal is a pseudo terminal, and what was written to it.
type terminal struct {
	*os.File // for the program
	control  *os.File
	mu       sync.Mutex
	more     *sync.Cond // with mu; text has grown, or ended
	text     bytes.Buffer
	ended    bool
	read     sync.WaitGroup
}

func newTerminal(t *testing.T, columns uint16) *terminal {
	t.Helper()
	control, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	fd := int(control.Fd())
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: columns})
	}
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	term := &terminal{File: f, control: control}
	term.more = sync.NewCond(&term.mu)
	term.read.Go(func() {
		b := make([]byte, 4096)
		for {
			n, err := control.Read(b)
			term.mu.Lock()
			term.text.Write(b[:n])
			term.ended = err != nil
			term.more.Broadcast()
			term.mu.Unlock()
			if err != nil { // EIO once no process has the terminal open
				return
			}
		}
	})
	return term
}

// await returns once a text was written to the terminal, or the terminal is closed.
func (t *terminal) await(text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for !t.ended && !strings.Contains(sequences.ReplaceAllString(t.text.String(), ""), text) {
		t.more.Wait()
	}
}

// shown closes the terminal and returns what was written to it.
func (t *terminal) shown() string {
	t.Close()
	t.read.Wait()
	t.control.Close()
	return t.text.String()
}

// play runs a command line as a person at the terminal would.
func (t *terminal) play(env map[string]string, args ...string) int {
	a := newApp()
	a.Stdout, a.Stderr, a.stdin = t.File, t.File, t.File
	a.Getenv = func(name string) string { return env[name] }
	return run(context.Background(), args, a)
}

// project makes a folder with a package file.
func project(t *testing.T, text string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "e3.yaml"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

var sequences = regexp.MustCompile("\x1b\\[[?0-9;]*[a-zA-Z]")

// On a terminal a run of many tasks is one line: a bar, counts, what runs, and the time that is left. Lines above it tell
// of failures alone, and nothing of the bar is left at the end.
func TestProgressOnTerminal(t *testing.T) {
	var items []string
	for i := range 60 {
		items = append(items, fmt.Sprint(i))
	}
	dir := project(t, `e3: 1
name: many
tasks:
  fit:
    matrix: {n: [`+strings.Join(items, ", ")+`]}
    out: o
    run: 'sleep 0.05; test "$n" != 7; touch "$out"'
`)
	file := filepath.Join(dir, "e3.yaml")
	for _, env := range []map[string]string{{"TERM": "xterm"}, {"TERM": "xterm", "NO_COLOR": "1"}} {
		term := newTerminal(t, 100)
		if code := term.play(env, "start", "-f", file, "--force"); code != exitFailed {
			t.Errorf("exit code %d, want %d", code, exitFailed)
		}
		raw := term.shown()
		text := sequences.ReplaceAllString(raw, "")
		if !regexp.MustCompile(`\r\[=+> +\] \[\d+/60\] (1 failed; )?fit\[\d+\] 0s`).MatchString(text) {
			t.Errorf("there is no bar in %q", text)
		}
		if !regexp.MustCompile(`; (about \d+s|at least \d+s|less than 1s) left`).MatchString(text) {
			t.Errorf("no time left in %q", text)
		}
		var lines []string
		for line := range strings.SplitSeq(text, "\r\n") { // the bar is erased by what follows
			lines = append(lines, line[strings.LastIndexByte(line, '\r')+1:])
		}
		got := strings.Join(lines, "\n")
		if strings.Contains(got, "[done]") || strings.Contains(got, "[start]") || strings.Count(got, "[failed] fit[7] (exit code 1") != 1 {
			t.Errorf("above the bar there is\n%s", got)
		}
		if colored := strings.Contains(raw, "\x1b[31m"); colored != (env["NO_COLOR"] == "") {
			t.Errorf("with NO_COLOR=%q, colours are %t", env["NO_COLOR"], colored)
		}
	}
}

// The attempts of a task have a header on a terminal, with the greatest memory that each used.
func TestHistoryOnTerminal(t *testing.T) {
	dir := project(t, `e3: 1
name: demo
tasks:
  work:
    out: o
    run: 'touch "$out"'
`)
	env := map[string]string{"TERM": "xterm", "NO_COLOR": "1"}
	if code := newTerminal(t, 100).play(env, "start", "-f", filepath.Join(dir, "e3.yaml")); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	term := newTerminal(t, 100)
	if code := term.play(env, "history", filepath.Join(dir, ".e3"), "demo.work"); code != 0 {
		t.Errorf("exit code %d", code)
	}
	text := sequences.ReplaceAllString(term.shown(), "")
	if !regexp.MustCompile(`EXECUTION +STATUS +STARTED +TOOK +MEMORY +RUN\r\n\S+ +success .* [0-9.]+ [KM]iB  `).MatchString(text) {
		t.Errorf("got %q", text)
	}
}

// e3 shell hands its terminal to the shell.
func TestShellOnTerminal(t *testing.T) {
	dir := project(t, "e3: 1\nname: p\ntasks:\n  t: {out: o, run: 'echo made > \"$out\"; exit 4'}\n")
	location := filepath.Join(dir, ".e3")
	term := newTerminal(t, 100)
	env := map[string]string{"TERM": "xterm", "SHELL": "/bin/sh"}
	if code := term.play(env, "start", "-f", filepath.Join(dir, "e3.yaml")); code != exitFailed {
		t.Fatalf("exit code %d, want %d", code, exitFailed)
	}
	if _, err := term.control.WriteString("test -t 0 && echo is $TERM with `cat o`; ../command; exit $?\n"); err != nil {
		t.Fatal(err)
	}
	if code := term.play(env, "shell", location, "p.t"); code != 4 {
		t.Errorf("exit code %d, want that of the command", code)
	}
	if text := term.shown(); !strings.Contains(text, "is xterm with made\r\n") {
		t.Errorf("the shell had no terminal, or was elsewhere:\n%s", text)
	}
}

// start --propose --write asks at the terminal before it changes the package file: only "y" writes it.
func TestProposalOnTerminal(t *testing.T) {
	const before = "e3: 1\nname: p # stays\nroom: closed\ntasks:\n  t: {in: [], out: o, run: 'cat table.csv > \"$out\"'}\n"
	dir := project(t, before)
	file := filepath.Join(dir, "e3.yaml")
	if err := os.WriteFile(filepath.Join(dir, "table.csv"), []byte("1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		answer string
		writes bool
	}{{"", false}, {"n", false}, {"yes please", false}, {"y", true}} {
		term := newTerminal(t, 100)
		if _, err := term.control.WriteString(c.answer + "\n"); err != nil {
			t.Fatal(err)
		}
		code := term.play(map[string]string{"TERM": "xterm"}, "start", "-f", file, "--propose", "--write")
		text := term.shown()
		for _, want := range []string{"+  table_csv: {file: table.csv}\r\n", "Write e3.yaml? [y/N] "} {
			if !strings.Contains(text, want) {
				t.Errorf("after %q there is no %q in\n%s", c.answer, want, text)
			}
		}
		after, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if wrote := string(after) != before; wrote != c.writes || wrote && !strings.Contains(string(after), "name: p # stays") {
			t.Errorf("after %q, with exit code %d, the file is\n%s", c.answer, code, after)
		}
	}
	term := newTerminal(t, 100)
	if code := term.play(map[string]string{"TERM": "xterm"}, "start", "-f", file); code != 0 {
		t.Errorf("with what was proposed the start ends with %d:\n%s", code, term.shown())
		return
	}
	term.shown()
}

// Ctrl-C is answered at once, although commands have time to end.
func TestStoppingOnTerminal(t *testing.T) {
	term := newTerminal(t, 80)
	a := newApp()
	a.Stderr = term.File
	ctx, cancel := context.WithCancelCause(t.Context())
	end := sayStopping(ctx, a, 5*time.Second)
	cancel(errInterrupted)
	const want = "Stopping: commands have 5.0s to end; Ctrl-C again kills them"
	term.await(want)
	end()
	if got := term.shown(); !strings.Contains(got, want) {
		t.Errorf("it says %q", got)
	}
}

// A second Ctrl-C kills the commands, however long they may take to end. The run has a last line, and ends then.
func TestSecondInterruptOnTerminal(t *testing.T) {
	own := make(chan os.Signal, 1) // signals that e3 no longer wants do not end the test
	signal.Notify(own, os.Interrupt)
	defer signal.Stop(own)
	begun := filepath.Join(t.TempDir(), "begun")
	if err := unix.Mkfifo(begun, 0o600); err != nil {
		t.Fatal(err)
	}
	dir := project(t, fmt.Sprintf("e3: 1\nname: p\ntasks:\n  t: {out: o, run: 'trap \"\" TERM INT; echo > %s; while :; do sleep 600; done'}\n", begun))
	env := map[string]string{"TERM": "xterm", "NO_COLOR": "1"}
	term := newTerminal(t, 100)
	ended := make(chan int)
	go func() { ended <- term.play(env, "start", "-f", filepath.Join(dir, "e3.yaml"), "--grace", "1h") }()
	if _, err := os.ReadFile(begun); err != nil {
		t.Fatal(err)
	}
	interrupt := func() {
		if err := syscall.Kill(syscall.Getpid(), syscall.SIGINT); err != nil {
			t.Error(err)
		}
	}
	interrupt()
	term.await("Ctrl-C again kills them")
	killed := time.Now()
	again, code := time.NewTicker(oneSignal), -1
	defer again.Stop()
	for code < 0 {
		select {
		case <-again.C:
			interrupt()
		case code = <-ended:
		}
	}
	text := sequences.ReplaceAllString(term.shown(), "")
	if code != exitCancelled || !strings.Contains(text, "Killing the commands; ") ||
		!regexp.MustCompile(`Run \S+ cancelled \(0 cached, 0 executed.*\)\r\n`).MatchString(text) {
		t.Errorf("exit code %d, want %d; it says\n%s", code, exitCancelled, text)
	}
	var out bytes.Buffer
	a := newApp()
	a.Stdout = &out
	if code := run(t.Context(), []string{"run", filepath.Join(dir, ".e3"), "p", "--json"}, a); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	var answer runview.Run
	if err := json.Unmarshal(out.Bytes(), &answer); err != nil {
		t.Fatal(err)
	}
	if answer.Status != "cancelled" || answer.CompletedAt.Before(killed.Truncate(time.Millisecond)) {
		t.Errorf("the run is %s and ended at %v, want cancelled after %v", answer.Status, answer.CompletedAt, killed)
	}
}

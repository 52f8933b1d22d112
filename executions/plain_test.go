package executions_test

import (
	"context"
	_ "embed"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"e3/executions"
	"e3/internal/format/record"
	"e3/internal/host/bash"
	"e3/internal/host/runner"
	"e3/objectstore"
)

// bashOnly hides that the runner can redirect, so that all scripts go to bash.
type bashOnly struct{ executions.Runner }

// plainly counts the commands that went without bash, and those that bash then had to explain.
type plainly struct {
	*runner.Supervisor
	direct, refused atomic.Int64
}

func (c *plainly) Run(ctx context.Context, spec runner.Spec) (runner.Result, error) {
	res, err := c.Supervisor.Run(ctx, spec)
	if spec.Path != "" {
		c.direct.Add(1)
		if err != nil {
			c.refused.Add(1)
		}
	}
	return res, err
}

// pair runs scripts in two ways: as e3 does, and always by bash.
type pair struct {
	plain, bash *lab
	counted     *plainly
	inputs      [2][]objectstore.Hash
	secret      string // of the scripts; "": they have none
	job         executions.Job
}

// staged are the files in the sandbox of a pair's scripts.
var staged = []struct {
	name, path, content string
	kind                record.Kind
}{
	{"in", "in.txt", "hello\nworld\n", record.KindFile},
	{"sub", "sub/x", "x\n", record.KindFile},
	{"noexec", "noexec", "#!/bin/sh\necho no\n", record.KindFile},
	{"tool", "tool", "#!/bin/sh\nprintf '%s:' \"$0\"; printf '[%s]' \"$@\"; cat\n", record.KindExecutable},
	{"args", "sub/args", "#!/bin/sh\nprintf '[%s]' \"$@\"; cat >&2\n", record.KindExecutable},
	{"bare", "bare", "echo \"bare $0 $SHLVL $_ $PWD\" \"$@\"; echo err >&2\n", record.KindExecutable},
	{"nothing", "nothing", "", record.KindExecutable},
	{"broken", "broken", "#!/no/such/interpreter\n", record.KindExecutable},
	{"binary", "binary", "\x7fELF\x00\x01", record.KindExecutable},
	{"die", "die", "#!/bin/sh\necho dying; kill -\"$1\" \"$$\"; exec sleep 9\n", record.KindExecutable},
	{"leave", "leave", "#!/bin/sh\nexit \"$1\"\n", record.KindExecutable},
	{"show", "show", "#!/bin/sh\ntr '\\0' '\\n' </proc/$$/environ; tr '\\0' ' ' </proc/$$/cmdline\n", record.KindExecutable},
	{"fds", "fds", "#!/bin/sh\nfor f in 0 1 2; do readlink /proc/$$/fd/$f; grep flags /proc/$$/fdinfo/$f; done >fds.txt; ls /proc/$$/fd >>fds.txt; cat fds.txt; umask; stat -c %a out.txt\n", record.KindExecutable},
}

// variables are set for a pair's scripts.
var variables = []record.EnvVar{
	{Name: "a", Value: "1"}, {Name: "b", Value: "two  words *"}, {Name: "e", Value: ""}, {Name: "n", Value: "line\nbreak\n"},
	{Name: "u", Value: "ünï"}, {Name: "q", Value: "\"'$a\\`~{a,b}"},
	{Name: "t", Value: "~/x"}, {Name: "f", Value: "sub/x"}, {Name: "long_name_1", Value: "-n"},
}

func newPair(t *testing.T) *pair {
	t.Helper()
	p := &pair{}
	sup, err := supervisor()
	if err != nil {
		t.Fatal(err)
	}
	if !sup.Redirects() {
		t.Skip("on this system all scripts go to bash: run it on Linux")
	}
	p.counted = &plainly{Supervisor: sup}
	p.plain = newLabWith(t, p.counted)
	p.bash = newLabWith(t, bashOnly{sup})
	for i, l := range []*lab{p.plain, p.bash} {
		for _, s := range staged {
			p.inputs[i] = append(p.inputs[i], l.put(t, s.content))
		}
	}
	for i := 0; p.counted.direct.Load() == 0; i++ { // until this bash is known
		if i == 2000 {
			t.Skip("the installed bash is not the one that is known, so all scripts go to it: install bash 5.2")
		}
		p.plain.run(t, script(fmt.Sprintf("touch out %d", i)))
	}
	return p
}

func newLabWith(t *testing.T, run executions.Runner) *lab {
	t.Helper()
	l := newLab(t)
	l.Executor = executions.NewExecutor(executions.NewStore(l.records, l.objects), l.objects, l.records, run, executions.Options{
		Worker: "ann@lab", Version: "test", Path: os.Getenv("PATH"), Scratch: l.records.SessionDir, Now: time.Now, Grace: time.Second,
		Getenv:   func(name string) (string, bool) { v, ok := l.env[name]; return v, ok },
		Announce: time.Hour, // else the logs of a slow command lie elsewhere, and it can see that
	})
	return l
}

var (
	sessions = regexp.MustCompile(`(/[^ \n:]*)?/tmp/session-[^/ \n]+/w\d+`)
	ids      = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f-]{21}`)
	pids     = regexp.MustCompile(`(?m)^bash: line (\d+): +\d+ `)
	pipes    = regexp.MustCompile(`pipe:\[\d+\]`)
	inodes   = regexp.MustCompile(`(?m)^[^\n]*(objects|logs|executions)/[^\n]*$`)
)

// result is everything that shows of a script's end, without what differs from one execution to the next.
func (p *pair) result(t *testing.T, i int, text string) string {
	t.Helper()
	l := []*lab{p.plain, p.bash}[i]
	task := script(text)
	task.Env = variables
	task.Passed.Env = []string{"bad", "ctl"}
	l.env["bad"], l.env["ctl"] = "\xff\xc3", "\x01\x7f"
	task.Output.Entries[0].Path = "out.txt"
	for _, s := range staged {
		task.Inputs = append(task.Inputs, record.Input{Name: s.name, Path: s.path, Kind: s.kind})
	}
	if p.secret != "" {
		task.Passed.Secrets, l.env["secret"] = []string{"secret"}, p.secret
	}
	req := l.request(task, p.inputs[i]...)
	req.Job = p.job
	req.Policy = &record.Policy{Timeout: time.Minute}
	res := l.do(t, req)
	output := ""
	if res.State == record.Success {
		output = l.content(t, res.Output)
	}
	signal := ""
	if all := l.all(t, keyOf(req)); len(all) > 0 && all[0].Detail != nil {
		signal = all[0].Detail.Signal
	}
	shown := fmt.Sprintf("%v %q %q code %d signal %q\n--- output\n%s\n--- stdout\n%s\n--- stderr\n%s", res.State, res.Reason, res.Message,
		res.ExitCode, signal, output, l.log(t, req, res.ExecutionID, executions.Stdout), l.log(t, req, res.ExecutionID, executions.Stderr))
	shown = strings.ReplaceAll(shown, l.dir, "LAB")
	shown = sessions.ReplaceAllString(shown, "SANDBOX")
	shown = ids.ReplaceAllString(shown, "ID")
	shown = pipes.ReplaceAllString(shown, "PIPE")
	shown = inodes.ReplaceAllString(shown, "FILE")
	return pids.ReplaceAllString(shown, "bash: line $1: PID ")
}

// compare runs the script, and by bash alone too unless bash has run it in the first place. It reports whether the script
// went without bash; tried includes those that bash then had to explain.
func (p *pair) compare(t *testing.T, text string) (plain, tried bool) {
	t.Helper()
	direct, refused := p.counted.direct.Load(), p.counted.refused.Load()
	got := p.result(t, 0, text)
	direct, refused = p.counted.direct.Load()-direct, p.counted.refused.Load()-refused
	if direct == 0 {
		return false, false
	}
	if want := p.result(t, 1, text); got != want {
		t.Errorf("script %q ends as\n%s\n=== with bash as\n%s", text, got, want)
	}
	return refused == 0, true
}

//go:embed testdata/scripts.txt
var writtenScripts string

// Scripts that are written to find differences end as with bash, also with a newline behind them. Those behind a
// "%% plain" line in the file go without bash, and no others do.
func TestWrittenScripts(t *testing.T) {
	p := newPair(t)
	_, list, _ := strings.Cut(writtenScripts, "\n%%")
	scripts := 0
	for entry := range strings.SplitSeq(list, "\n%%") {
		scripts++
		if testing.Short() && scripts%2 == 0 {
			continue
		}
		head, text, _ := strings.Cut(entry, "\n")
		want := strings.TrimSpace(head) == "plain"
		if got, _ := p.compare(t, text); got != want {
			t.Errorf("script %q goes without bash: %v, want %v", text, got, want)
		}
		if !testing.Short() && want {
			if got, _ := p.compare(t, text+"\n"); !got {
				t.Errorf("script %q with a newline goes to bash", text)
			}
		}
	}
	if scripts < 400 {
		t.Errorf("%d scripts, want 400", scripts)
	}
}

// Every signal ends a command as with bash, whether bash would wait for it or not.
func TestPlainSignals(t *testing.T) {
	p := newPair(t)
	for signal := 1; signal <= 64; signal++ {
		if signal >= 17 && signal <= 23 || signal == 28 { // they do not end a process
			continue
		}
		if testing.Short() && signal > 15 && signal != 34 {
			continue
		}
		for _, form := range []string{"./die %d", "./die %d >out.txt", "\n\n./die %d \\\n  \"$b\" 'x\ny' 2>>err 0<in.txt 1>&2\n"} {
			text := fmt.Sprintf(form, signal)
			if plain, _ := p.compare(t, text); !plain {
				t.Errorf("script %q goes to bash", text)
			}
		}
	}
}

// Secrets are masked as with bash, also in the line that e3 writes in its place.
func TestPlainSecrets(t *testing.T) {
	p := newPair(t)
	p.secret = "correct horse"
	for _, text := range []string{
		`./tool "$secret" >out.txt`, `./tool "$secret"`, `./tool "$secret" >&2`, `sub/args "$secret" 2>&1 <in.txt`,
		`./die 9 "$secret" 'correct horse' >out.txt`, `./die 6 'correct horse'`,
	} {
		if plain, _ := p.compare(t, text); !plain {
			t.Errorf("script %q goes to bash", text)
		}
		if got := p.result(t, 0, text); strings.Contains(strings.SplitN(got, "--- stdout", 2)[1], p.secret) {
			t.Errorf("script %q logs the secret:\n%s", text, got)
		}
	}
}

// The command of a job keeps its bash: another process may have to say how it ended.
func TestJobKeepsBash(t *testing.T) {
	p := newPair(t)
	p.job = executions.Job{Identity: "job"}
	if _, tried := p.compare(t, `./show >out.txt`); tried {
		t.Error("it starts without bash")
	}
}

// Generated scripts end as with bash: 100 in the quick suite, else 5,000, which takes one to three minutes. Scripts that
// are not even parsed run one way only, and are not counted. E3_SCRIPTS_SEED and E3_SCRIPTS repeat a run.
func TestGeneratedScripts(t *testing.T) {
	seed, rounds := uint64(time.Now().UnixNano()), 5000
	if testing.Short() {
		rounds = 100
	}
	if s := os.Getenv("E3_SCRIPTS_SEED"); s != "" {
		seed, _ = strconv.ParseUint(s, 10, 64)
	}
	if n, err := strconv.Atoi(os.Getenv("E3_SCRIPTS")); err == nil {
		rounds = n
	}
	p := newPair(t)
	g := generator{rand.New(rand.NewPCG(seed, 1))}
	compared, plain := 0, 0
	for compared < rounds && !t.Failed() {
		text := g.script()
		if bash.Parse(text) == nil {
			continue
		}
		went, tried := p.compare(t, text)
		if went {
			plain++
		}
		if tried {
			compared++
		}
	}
	t.Logf("seed %d: %d scripts were compared, of which %d went without bash", seed, compared, plain)
	if plain < rounds/2 {
		t.Errorf("seed %d: only %d of %d scripts went without bash", seed, plain, compared)
	}
}

// generator makes scripts, most of them plain commands. None names a file outside of the sandbox, since a redirection may
// come before any word.
type generator struct{ *rand.Rand }

func (g generator) of(list ...string) string { return list[g.IntN(len(list))] }

func (g generator) chance(percent int) bool { return g.IntN(100) < percent }

func (g generator) script() string {
	var b strings.Builder
	if g.chance(8) {
		b.WriteString(g.of("\n", "# note\n", " \t", "  # it's \"$a\n\n", "\\\n", "\n \n"))
	}
	words := []string{g.of("cat", "cat", "cat", "env", "printenv", "./tool", "./tool", "sub/args", "sub/args", "./tool", "./show", "./bare", "./nothing", "./broken",
		"./binary", "./show", "./show", "./fds", "./noexec", "./missing", "missing", "./sub", "sub", "head", "wc", "sort", "touch", "ls",
		"./die", "./leave", "echo", "true", "false", "printf", "test", "tr", "sh", "basename", "if", "!", "a=1", "time", "[", "exec")}
	switch words[0] {
	case "./die":
		words = append(words, g.of("1", "2", "3", "6", "9", "11", "13", "15", "34"))
	case "./leave":
		words = append(words, g.of("0", "1", "2", "126", "127", "128", "255"))
	case "touch":
		words = append(words, "out.txt")
	}
	for range g.IntN(4) {
		words = append(words, g.word())
	}
	for range g.IntN(4) {
		at := g.IntN(len(words) + 1)
		words = append(words[:at:at], append([]string{g.redirect()}, words[at:]...)...)
	}
	if g.chance(60) {
		words = append(words, g.of(`>out.txt`, `> "$out"`, `>>"${out}"`, `1>| out.txt`, `&> 'out.txt'`, `2>"$out"`))
	}
	for i, w := range words {
		if i > 0 {
			b.WriteString(g.of(" ", " ", " ", "  ", "\t", " \\\n  "))
		}
		b.WriteString(w)
	}
	b.WriteString(g.of("", "", "\n", "\n", " ", " \n", "\n\n", ";", " # end", " \\\n"))
	text := b.String()
	for g.chance(15) && !strings.Contains(text, "/dev") && !strings.Contains(text, "/proc") { // a change of one character
		at := g.IntN(len(text) + 1)
		insert := g.of("\"", "'", "\\", "$", "`", " ", "\n", "&", "|", ";", "<", ">", "(", ")", "{", "}", "[", "]", "*", "?", "!", "~", "#",
			"=", "%", "@", "^", ",", ":", "1", "2", "x", "", "", "é", "\t", "\x01", "\x7f")
		drop := min(g.IntN(2), len(text)-at)
		text = text[:at] + insert + text[at+drop:]
	}
	return strings.ToValidUTF8(text, "")
}

func (g generator) word() string {
	var b strings.Builder
	for range 1 + g.IntN(3) {
		b.WriteString(g.of("in.txt", "x", "-n", "-1", "--long=v", "a=b", "%s", "@", ":", "a,b", "sub/x", "noexec", "+",
			"''", "'a b'", "'*'", "'$a'", "'\"'", "'\n'", "'é'", "'\\'",
			`""`, `"$a"`, `"${a}"`, `"$b"`, `"${b}x"`, `"$e"`, `"$n"`, `"$u"`, `"$q"`, `"$t"`, `"$f"`, `"$in"`, `"$long_name_1"`, `"x $a y"`, `"\$a \"\\"`, `"\n\t"`, `"a'b"`, `"é*?[]"`, `"~"`, `"!x"`,
			`"$a$b"`, `"$a-${u}_"`, "\"a\nb\""))
	}
	if g.chance(6) {
		b.WriteString(g.of(`$a`, `"$unset"`, `"$ctl"`, `"$bad"`, `*`, `?n.txt`, `{a,b}`, `~`, `$(echo x)`, "`echo x`", `"$1"`, `"$@"`, `"$HOME"`, `"$PWD"`,
			`"$PATH"`, `"$_"`, `"$SHLVL"`, `"$UID"`, `"${a:-x}"`, `"${#a}"`, `"$((1+1))"`, `$'a\n'`, `$"a"`, `\a`, `a\`, `=~`, `x=~/y`, `a:~`, `"$"`, `"$ "`, `[a]`, `!`, `#x`, `x#`))
	}
	return b.String()
}

func (g generator) redirect() string {
	if g.chance(25) {
		return g.of("2>&1", "1>&2", ">&2", "0>&1", ">&1", "2>&0", "1>&0")
	}
	if g.chance(10) {
		return g.of(">&-", "<&-", "3>x", "<<<x", "<<<\"$b\"", "<>x", "3<in.txt", ">&x", "2>&", "> *", "10>x", "{fd}>x", "<<E\nx\nE\n", "|cat", "&& true", "2>&1>x")
	}
	return g.of("<", "<", "0<", ">", ">>", "2>", "2>>", "&>", "&>>", ">|", "1>", "2>|") + g.of("", "", " ", "\t", " \\\n") +
		g.of("in.txt", "in.txt", `"$in"`, "err.txt", "err.txt", `"$a"`, `"$b"`, "sub", "sub/new", "missing/x", "''", "/dev/null", "/dev/stdout", "/dev/fd/1",
			"/dev/tcp/localhost/1", "../work/y", "./y", "'a b'", `"$e"`, `"$n"`, "tool", "$a", "x{1,2}", "/proc/nonexistent")
}

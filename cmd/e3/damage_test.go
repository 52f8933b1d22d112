package main

import (
	"archive/zip"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"e3/internal/testing/testserver"
)

// TestHarm damages a repository with a rich history at random places, case by case, and checks the rule of
// doc/design.md §13, "Verifying": either every command still prints the right results, or the fault is reported, and
// after "verify --repair" a start works.
//
// E3_HARM is the number of cases of each kind of repository, E3_HARM_SEED the seed, E3_HARM_KINDS the kinds, E3_HARM_ONLY a pattern
// for the names of targets. A failure names the case, which E3_HARM_CASE runs alone.
func TestHarm(t *testing.T) {
	setServerEnv(t)
	kinds := allBackends
	if testing.Short() {
		kinds = kinds[:1]
	}
	if list := os.Getenv("E3_HARM_KINDS"); list != "" {
		kinds = strings.Split(list, ",")
	}
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) { playHarm(t, kind) })
	}
}

func setServerEnv(t *testing.T) {
	for _, v := range testserver.Env() {
		name, value, _ := strings.Cut(v, "=")
		t.Setenv(name, value)
	}
}

// unsummed matches targets without a sum or witness, in which damage may not be detected: in tables, and local state of
// shared repositories; and what describes a kept folder, which a status shows. With E3_HARM_ALL=1 such damage fails the test
// too.
var unsummed = regexp.MustCompile(`^[A-Z.]+/| · |^\.(state|cache)/|^\.e3/tmp/failed-`)

func harmNumber(t *testing.T, name string, otherwise uint64) uint64 {
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

func playHarm(t *testing.T, kind string) {
	usual := uint64(334) // a thousand in all
	if testing.Short() {
		usual = 30
	}
	count, seed := harmNumber(t, "E3_HARM", usual), harmNumber(t, "E3_HARM_SEED", 1)
	only := regexp.MustCompile(os.Getenv("E3_HARM_ONLY"))
	s := newHarmStage(t, kind)
	classes := map[string][]target{}
	var names []string
	for _, g := range s.repo.targets() {
		if !only.MatchString(g.name) {
			continue
		}
		if classes[g.class] == nil {
			names = append(names, g.class)
		}
		classes[g.class] = append(classes[g.class], g)
	}
	slices.Sort(names)
	first, last := uint64(0), count
	if n := os.Getenv("E3_HARM_CASE"); n != "" {
		first = harmNumber(t, "E3_HARM_CASE", 0)
		last = first + 1
	}
	tally := map[verdict]int{}
	began := time.Now()
	for n := first; n < last; n++ {
		r := rand.New(rand.NewPCG(seed, n))
		class := classes[names[r.IntN(len(names))]]
		g := class[r.IntN(len(class))]
		s.repo.restore(t)
		how, err := g.harm(r)
		if err != nil {
			t.Fatalf("damage %s: %v", g.name, err)
		}
		c := s.judge(r)
		tally[c.verdict]++
		if c.verdict.bad() {
			fail := t.Errorf
			if unsummed.MatchString(g.name) && os.Getenv("E3_HARM_ALL") == "" {
				fail = t.Logf
			}
			fail("E3_HARM_KINDS=%s E3_HARM_SEED=%d E3_HARM_CASE=%d E3_HARM_ONLY=%q: %s\n%s: %s\n%s", kind, seed, n, os.Getenv("E3_HARM_ONLY"),
				c.verdict, g.name, how, strings.Join(c.told, "\n"))
		} else if first+1 == last {
			t.Logf("%s: %s: %s\n%s", g.name, how, c.verdict, strings.Join(c.told, "\n"))
		}
	}
	t.Logf("%s: %d cases of %d classes, seed %d, %v: %v", kind, last-first, len(names), seed, time.Since(began).Round(time.Second), tally)
}

// A verdict is the result of a case.
type verdict string

const (
	noHarm      verdict = "right answers throughout"
	toldAtOnce  verdict = "told by the command"
	toldByCheck verdict = "told by verify alone" // a wrong fact was printed; no wrong bytes
	wrongAnswer verdict = "WRONG: another answer, and no fault was told"
	untold      verdict = "UNTOLD: a command failed, and verify found nothing"
	stuck       verdict = "STUCK: no start after verify --repair"
	wrongAfter  verdict = "WRONG AFTER: other bytes after verify --repair and a start"
	lingering   verdict = "LINGERING: faults after verify --repair and a start"
)

func (v verdict) bad() bool { return v != noHarm && v != toldAtOnce && v != toldByCheck }

// A question is a command with the place of its output.
type question struct {
	args    []string
	deliver string // a file or folder
	bytes   bool   // stdout holds the bytes of a dataset
}

// harmQuestions are asked of each damaged repository. None changes it.
func harmQuestions(at, work string) []question {
	out := filepath.Join(work, "out")
	list := []question{
		{args: []string{"status", at, "demo", "--json"}}, {args: []string{"status", at, "other"}}, {args: []string{"list", at}}, {args: []string{"list", at, "demo"}},
		{args: []string{"workspace", "list", at}}, {args: []string{"package", "list", at}}, {args: []string{"history", at, "demo"}},
		{args: []string{"history", at, "demo.split"}}, {args: []string{"run", at, "demo"}}, {args: []string{"run", at, "other", "--json"}}, {args: []string{"run", at, "far"}},
		{args: []string{"logs", at, "demo.split"}, bytes: true}, {args: []string{"logs", at, "demo.long"}, bytes: true}, {args: []string{"logs", at, "demo.spill"}, bytes: true}, {args: []string{"logs", at, "other.bad"}, bytes: true},
		{args: []string{"logs", at, "far.far"}, bytes: true}, {args: []string{"logs", at, "demo.pages", "--list"}}, {args: []string{"why", at, "demo.report"}},
		{args: []string{"plan", at, "demo", "--json"}}, {args: []string{"plan", at, "far"}}, {args: []string{"events", at}}, {args: []string{"graph", at, "demo"}},
		{args: []string{"pin", "list", at}}, {args: []string{"settings", at}}, {args: []string{"queue", at}},
		{args: []string{"workspace", "export", at, "demo", out + ".zip", "--force"}, deliver: out + ".zip"},
	}
	for _, name := range []string{"demo.split.odd", "demo.report", "demo.values", "demo.rate", "demo.long", "demo.data", "far.far", "queued.job", "other.fine"} {
		list = append(list, question{args: []string{"get", at, name}, bytes: true})
	}
	return append(list, question{args: []string{"get", at, "demo.pages", "-o", out, "--force"}, deliver: out})
}

// newHarmStage makes a repository and runs every question once.
func newHarmStage(t *testing.T, kind string) *harmStage {
	work := t.TempDir()
	s := &harmStage{t: t, work: work, now: time.Now}
	s.repo, s.env = harmedKind(t, kind, work)
	s.history()
	at := time.Now()
	s.now = func() time.Time { return at }
	s.questions = harmQuestions(s.repo.location(), work)
	for _, q := range s.questions {
		s.right = append(s.right, s.ask(q))
	}
	s.repo.save(t)
	for i, q := range s.questions { // answers must be stable, and questions change nothing
		if got := s.ask(q); got != s.right[i] {
			t.Fatalf("%v answers %+v, then %+v", q.args, s.right[i], got)
		}
	}
	return s
}

// varying matches texts that differ each time, or depend on data that may be lost: durations.
var varying = regexp.MustCompile(`[0-9.]+ ?(ms|µs)\b|,"(lastMs":[0-9]+|key":"[0-9a-f/]+")|"expected":(null|\{[^}]*\})`)

// ask runs a question.
func (s *harmStage) ask(q question) answer {
	if q.deliver != "" {
		_ = os.RemoveAll(q.deliver)
	}
	a := s.e3(q.args...)
	if q.deliver != "" {
		a.bytes = contents(q.deliver)
		if strings.HasSuffix(q.deliver, ".zip") {
			a.bytes = zipContent(q.deliver)
		}
	}
	if !q.bytes {
		a.out = varying.ReplaceAllString(a.out, "")
	}
	return a
}

// zipContent summarizes the parts of an export that depend only on the state.
func zipContent(path string) string {
	z, err := zip.OpenReader(path)
	if err != nil {
		return "nothing"
	}
	defer z.Close()
	var b strings.Builder
	for _, f := range z.File {
		if f.Name == "provenance.beast2" || f.Name == "signature.json" {
			continue
		}
		r, err := f.Open()
		if err != nil {
			return err.Error()
		}
		data, err := io.ReadAll(r)
		fmt.Fprintf(&b, "%s=%q %v\n", f.Name, data, err)
		_ = r.Close()
	}
	return b.String()
}

// A judgement is the result of a case, with the output of commands.
type judgement struct {
	verdict
	told []string
}

func (j *judgement) say(format string, args ...any) {
	j.told = append(j.told, fmt.Sprintf(format, args...))
}

// judge runs every question in a damaged repository, and repairs it.
func (s *harmStage) judge(r *rand.Rand) judgement {
	j := judgement{verdict: noHarm}
	var f findings
	if r.IntN(2) == 0 { // try a start before the repair, too
		s.started(&j, &f)
	} else {
		s.asked(&j, &f)
	}
	check := s.e3("verify", s.repo.location())
	j.say("verify: %d %s", check.code, cmpText(check.out+check.err))
	tells := check.code != 0 || strings.Contains(check.out, "\nnote: ") || strings.HasPrefix(check.out, "note: ")
	switch {
	case check.code == -1 || check.interrupted || f.bytes || f.silent && !tells:
		j.verdict = wrongAnswer
	case f.failed && !tells:
		j.verdict = untold
	case f.silent:
		j.verdict = toldByCheck
	case f.told || tells:
		j.verdict = toldAtOnce
	}
	s.repaired(&j)
	return j
}

// findings are the results of the questions: a wrong answer without a warning, one with wrong bytes, a failed command,
// a reported fault.
type findings struct{ silent, bytes, failed, told bool }

// asked runs every question.
func (s *harmStage) asked(j *judgement, f *findings) {
	for i, q := range s.questions {
		got, right := s.ask(q), s.right[i]
		if got == right {
			continue
		}
		what := strings.Join(q.args[:1], " ") + " " + strings.Join(q.args[2:], " ")
		switch {
		case got.code == -1 || got.interrupted:
			f.bytes = true
			j.say("%s: %s", what, cmpText(got.err))
		case !tells(got, right):
			f.silent = true
			f.bytes = f.bytes || q.bytes || q.deliver != ""
			j.say("%s: exit code %d, silently other: %s", what, got.code, differ(got, right))
		default:
			f.failed = f.failed || got.code != right.code
			f.told = true
			j.say("%s: exit code %d: %s", what, got.code, cmpText(news(got, right)))
		}
	}
}

// started starts a damaged repository: its outputs must then be right, or errors.
func (s *harmStage) started(j *judgement, f *findings) {
	a := s.e3("start", s.repo.location(), "demo")
	if a.code != 0 {
		j.say("start first: %d %s", a.code, cmpText(a.out+a.err))
		f.failed, f.told = true, true
		f.bytes = a.code == -1 || a.interrupted
		return
	}
	for i, q := range s.questions {
		if q.args[0] != "get" {
			continue
		}
		got, right := s.ask(q), s.right[i]
		if got.code == 0 && (got.out != right.out || got.bytes != right.bytes) {
			j.say("start first, then %s: %s", strings.Join(q.args, " "), differ(got, right))
			f.bytes = true
		}
	}
}

// repaired repairs, starts and compares.
func (s *harmStage) repaired(j *judgement) {
	at := s.repo.location()
	fix := s.e3("verify", at, "--repair")
	j.say("repair: %d %s", fix.code, cmpText(fix.out+fix.err))
	if strings.Contains(fix.out, "init --take-over") { // verify advises this
		j.say("take over: %d", s.e3("init", "--take-over", at).code)
	}
	if strings.Contains(fix.out, "To be set or deployed again: demo.data") { // verify advises this too
		j.say("deploy: %d", s.e3("workspace", "deploy", at, "demo", filepath.Join(s.work, "e3.yaml")).code)
	}
	a := s.e3("start", at, "demo")
	if a.code != 0 || strings.Contains(fix.out, "set it again") {
		j.say("start: %d %s", a.code, cmpText(a.out+a.err))
		a = s.e3("start", "-f", filepath.Join(s.work, "e3.yaml"), at, "demo")
		j.say("start -f: %d %s", a.code, cmpText(a.out+a.err))
		b := s.e3("set", at, "demo.rate", "0.75") // the input that verify named as lost
		j.say("set: %d %s", b.code, cmpText(b.out+b.err))
		a = s.e3("start", at, "demo")
	}
	if b := s.e3("start", at, "other"); b.code != 1 || !strings.Contains(b.out, "bad") {
		j.say("start other: %d %s", b.code, cmpText(b.out+b.err))
		if b = s.e3("start", "-f", filepath.Join(s.work, "other/e3.yaml"), at, "other"); b.code != 1 {
			j.say("start -f other: %d %s", b.code, cmpText(b.out+b.err))
			a = b
		}
	}
	if a.code != 0 && !j.bad() {
		j.verdict = stuck
		return
	}
	for i, q := range s.questions {
		if q.args[0] != "get" || !strings.HasPrefix(q.args[2], "demo.") {
			continue
		}
		got, right := s.ask(q), s.right[i]
		if (got.code != 0 || got.out != right.out || got.bytes != right.bytes) && !j.bad() {
			j.verdict = wrongAfter
			j.say("then %s: exit code %d: %s", strings.Join(q.args, " "), got.code, differ(got, right))
		}
	}
	again := s.e3("verify", at, "--repair")
	if again.code != 0 && !j.bad() && !strings.Contains(again.out, "\n  advice: ") { // it has advice for the user
		j.verdict = lingering
		j.say("verify again: %d %s", again.code, cmpText(again.out+again.err))
	}
}

var faultWords = regexp.MustCompile(`(?i)damage|corrupt|missing|gone|lost|not be read|unreadable|malformed|not there|broken|no record|fault|not found|is no |rejected`)

// tells reports whether an answer reports a fault.
func tells(got, right answer) bool {
	if got.code != right.code && got.code != 0 {
		return strings.TrimSpace(got.err) != ""
	}
	return faultWords.MatchString(news(got, right))
}

// news returns the lines that only one of two answers has.
func news(got, right answer) string {
	var b strings.Builder
	for line := range strings.Lines(got.out + got.err) {
		if !strings.Contains(right.out+right.err, line) {
			b.WriteString(line)
		}
	}
	return b.String()
}

// differ shows the first difference of two answers.
func differ(got, right answer) string {
	for _, p := range [][2]string{{got.out, right.out}, {got.err, right.err}, {got.bytes, right.bytes}} {
		if p[0] == p[1] {
			continue
		}
		a, b := strings.SplitAfter(p[0], "\n"), strings.SplitAfter(p[1], "\n")
		for i := range max(len(a), len(b)) {
			x, y := "", ""
			if i < len(a) {
				x = a[i]
			}
			if i < len(b) {
				y = b[i]
			}
			if x != y {
				return fmt.Sprintf("line %d: %s, not %s", i+1, around(x, y), around(y, x))
			}
		}
	}
	return fmt.Sprintf("exit code %d, not %d", got.code, right.code)
}

// around is the part of a line around its difference from another.
func around(x, y string) string {
	i := 0
	for i < len(x) && i < len(y) && x[i] == y[i] {
		i++
	}
	return fmt.Sprintf("%.160q", x[max(0, i-40):])
}

func cmpText(s string) string {
	s = strings.TrimSpace(s)
	if len(s) > 900 {
		s = s[:900] + "…"
	}
	return s
}

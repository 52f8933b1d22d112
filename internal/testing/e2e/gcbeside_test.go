//go:build linux

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"e3/internal/testing/suite"
)

// besideGraph has a task that lasts until it is released, and one behind it that reads an input by itself, so that a
// run needs the input long after it began.
const besideGraph = `
e3: 1
name: beside
inputs:
  lib: {dir: lib}
  word: {file: word.txt}
  gate: {value: 0}
tasks:
  quick: {in: [word], out: quick.txt, run: 'echo "quick $(cat "$word")" > "$out"'}
  hold:
    in: [word, gate]
    out: hold.txt
    pass_env: [E2E_STATE]
    run: 'echo go >> "$E2E_STATE/holding"; until test -e "$E2E_STATE/release"; do sleep 0.01; done; cp "$word" "$out"'
  late: {in: [hold, lib, word], out: late.txt, run: 'cat "$lib"/1 "$lib"/d/2 "$hold" "$word" > "$out"'}
`

// besideProject has a workspace with a directory whose files fill some time, and two others to replace it.
func besideProject(t *testing.T, files int) *project {
	text := map[string]string{"e3.yaml": besideGraph, "word.txt": "first\n", "second.txt": "second\n", "third.txt": "third\n"}
	for _, lib := range []string{"lib", "other", "mine"} {
		for i := range files {
			name := fmt.Sprintf("%s/%d", lib, i)
			if i%2 == 0 {
				name = fmt.Sprintf("%s/d/%d", lib, i)
			}
			text[name] = strings.Repeat(fmt.Sprintf("%s %d\n", lib, i), 200)
		}
	}
	p := newProjectBelow(t, inMemory(), text)
	p.must("init")
	p.must("workspace", "create", ".", "beside")
	p.must("workspace", "deploy", ".", "beside", "e3.yaml")
	return p
}

// collects runs gc and returns how many objects it removed.
func (p *project) collects() int64 {
	p.t.Helper()
	var report struct{ Removed struct{ Objects int64 } }
	if err := json.Unmarshal([]byte(p.must("gc", ".", "--json").stdout), &report); err != nil {
		p.t.Fatal(err)
	}
	return report.Removed.Objects
}

// replaceInputs sets every input and follows with collections: what was there before has no name any more but
// in the memory of running processes.
func (p *project) replaceInputs() {
	p.t.Helper()
	p.must("set", ".", "beside.lib", "@other")
	p.must("set", ".", "beside.word", "@second.txt")
	for range 3 {
		p.collects()
	}
}

// fromSet has the workspace hold what no package holds, so that it is garbage once it is replaced.
func (p *project) fromSet() {
	p.t.Helper()
	p.write("mine/1", "set 1\n")
	p.write("mine/d/2", "set 2\n")
	p.must("set", ".", "beside.lib", "@mine")
	p.must("set", ".", "beside.word", "@third.txt")
}

// frozen runs e3, stops it at a moment, does something meanwhile, lets it go on and returns how it ended.
func (p *project) frozen(moment func() string, meanwhile func(), args ...string) result {
	p.t.Helper()
	x := p.spawn(args...)
	eventually(p.t, patience, fmt.Sprintf("e3 %q is under way", args), func() string {
		select {
		case <-x.ended:
			p.t.Fatalf("e3 %q ended before it was stopped\n%s", args, x.result().text())
		default:
		}
		return moment()
	})
	pid := x.cmd.Process.Pid
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		p.t.Fatal(err)
	}
	defer syscall.Kill(pid, syscall.SIGCONT) // where meanwhile ends the test
	meanwhile()
	syscall.Kill(pid, syscall.SIGCONT)
	return x.wait()
}

// appears waits for a path that a pattern matches.
func (p *project) appears(pattern string) func() string {
	return func() string {
		if found, _ := filepath.Glob(p.path(pattern)); len(found) == 0 {
			return pattern + " is not there"
		}
		return ""
	}
}

// TestGCBesideReaders has garbage collected while a process works on what has just become garbage: what they
// began with stays until they are done, and goes then.
func TestGCBesideReaders(t *testing.T) {
	suite.Thorough(t)
	const files = 3000
	t.Run("get", func(t *testing.T) {
		p := besideProject(t, files)
		p.fromSet()
		r := p.frozen(p.appears(".out.*.e3/*"), p.replaceInputs, "get", ".", "beside.lib", "-o", "out")
		if r.code != 0 {
			t.Fatalf("exit code %d\n%s", r.code, r.text())
		}
		was, err := readFolder(p.path("mine"))
		if err != nil {
			t.Fatal(err)
		}
		is, err := readFolder(p.path("out"))
		if err != nil || len(is) != len(was) {
			t.Fatalf("%d files, want %d: %v", len(is), len(was), err)
		}
		for path, text := range was {
			if got := is[p.path("out")+strings.TrimPrefix(path, p.path("mine"))]; got != text {
				t.Fatalf("%s is %.20q, want %.20q", path, got, text)
			}
		}
		if p.collects() == 0 {
			t.Error("what it held was not collected afterwards")
		}
		checkBut(t, p.repository(), tolerated{collected: true})
	})
	t.Run("start", func(t *testing.T) {
		p := besideProject(t, files)
		p.fromSet()
		x := p.spawn("start", ".", "beside", "--json")
		p.holding(patience, 1)
		p.replaceInputs()
		// Removed, and with it the last name of what the run works on.
		p.must("package", "build", ".", "e3.yaml", "--as", "else@1")
		p.must("package", "remove", ".", "else@1")
		p.collects()
		p.write("state/release", "")
		if r := x.wait(); r.code != 0 {
			t.Fatalf("exit code %d\n%s", r.code, r.text())
		}
		if got, want := p.must("get", ".", "beside.late").stdout, "set 1\nset 2\nthird\nthird\n"; got != want {
			t.Errorf("the run has made %q, want %q", got, want)
		}
		p.collects()
		checkBut(t, p.repository(), tolerated{collected: true})
		p.verified(p.repository())
		p.must("start", ".", "beside")
		if got := p.must("get", ".", "beside.late").stdout; !strings.HasSuffix(got, "second\nsecond\n") {
			t.Errorf("the next run has made %q", got)
		}
	})
	t.Run("start whose hit is pruned", func(t *testing.T) {
		p := besideProject(t, 10)
		p.write("state/release", "")
		for _, word := range []string{"third", "second"} {
			p.must("set", ".", "beside.word", "@"+word+".txt")
			p.must("start", ".", "beside")
		}
		old := p.of("quick")[0]
		if err := errors.Join(os.Remove(p.path("state/release")), os.Remove(p.path("state/holding"))); err != nil {
			t.Fatal(err)
		}
		p.must("set", ".", "beside.word", "@third.txt")
		p.must("set", ".", "beside.gate", "1")
		x := p.spawn("start", ".", "beside", "--json", "--publish", "final")
		p.holding(patience, 1)
		x.waitLine(`"type":"task.cached","task":"quick"`)
		p.must("set", ".", "beside.word", "@second.txt") // or else the hit is one of the next start too
		p.must("prune", ".", "--max-size", "1B")
		for range 2 {
			p.collects()
		}
		for _, e := range p.of("quick") {
			if e.ExecutionID == old.ExecutionID {
				t.Fatal("the hit was not pruned")
			}
		}
		p.write("state/release", "")
		if r := x.wait(); r.code != 0 {
			t.Fatalf("exit code %d\n%s", r.code, r.text())
		}
		if got := p.must("get", ".", "beside.quick").stdout; got != "quick third\n" {
			t.Errorf("the run has published %q", got)
		}
		p.collects()
		if got := p.must("get", ".", "beside.quick").stdout; got != "quick third\n" {
			t.Errorf("after a collection it is %q", got)
		}
		checkBut(t, p.repository(), tolerated{collected: true, pruning: true})
		p.verified(p.repository())
	})
	t.Run("unset", func(t *testing.T) {
		p := besideProject(t, 10)
		p.write("state/release", "")
		p.write("word.txt", "edited\n") // so that the package does not hold it
		p.write("lib/1", "edited 1\n")
		p.must("start", ".", "beside")
		p.replaceInputs()
		p.must("prune", ".", "--max-size", "1B")
		p.must("unset", ".", "beside.word")
		p.must("unset", ".", "beside.lib")
		if got := p.must("get", ".", "beside.word").stdout; got != "edited\n" {
			t.Errorf("the word is %q", got)
		}
		p.must("get", ".", "beside.lib", "-o", "out")
		if got := p.read("out/1"); got != "edited 1\n" {
			t.Errorf("lib/1 is %q", got)
		}
		checkBut(t, p.repository(), tolerated{collected: true, pruning: true})
		p.verified(p.repository())
	})
	t.Run("export", func(t *testing.T) {
		p := besideProject(t, files)
		p.fromSet()
		p.write("state/release", "")
		p.must("start", ".", "beside")
		r := p.frozen(p.appears(".e3/tmp/session-*/protect-*"), p.replaceInputs, "workspace", "export", ".", "beside", "out.zip")
		if r.code != 0 {
			t.Fatalf("exit code %d\n%s", r.code, r.text())
		}
		if _, err := wholeZip(p.path("out.zip")); err != nil {
			t.Fatal(err)
		}
		p.must("workspace", "import", ".", "out.zip", "again")
		if got := p.must("get", ".", "again.word").stdout; got != "third\n" {
			t.Errorf("the exported word is %q", got)
		}
		checkBut(t, p.repository(), tolerated{collected: true})
		p.verified(p.repository())
	})
	t.Run("import", func(t *testing.T) {
		from, p := besideProject(t, files), newProjectBelow(t, inMemory(), nil)
		from.write("state/release", "")
		from.must("start", ".", "beside")
		from.must("workspace", "export", ".", "beside", "out.zip")
		p.must("init")
		some := func() string {
			if found, _ := filepath.Glob(p.path(".e3/objects/*/*")); len(found) < 50 {
				return "few objects yet"
			}
			return ""
		}
		r := p.frozen(some, func() { p.collects() }, "workspace", "import", ".", from.path("out.zip"))
		if r.code != 0 {
			t.Fatalf("exit code %d\n%s", r.code, r.text())
		}
		if ran := p.must("start", ".", "beside", "--json").ran(t); len(ran) > 0 {
			t.Errorf("after the import %v ran", ran)
		}
		checkBut(t, p.repository(), tolerated{collected: true})
		p.verified(p.repository())
	})
	t.Run("set", func(t *testing.T) {
		p := besideProject(t, files)
		p.fromSet()
		before := p.objects()
		more := func() string {
			if p.objects() < before+50 {
				return "few objects yet"
			}
			return ""
		}
		r := p.frozen(more, func() {
			p.must("set", ".", "beside.word", "@second.txt")
			p.collects()
		}, "set", ".", "beside.lib", "@other")
		if r.code != 0 {
			t.Fatalf("exit code %d\n%s", r.code, r.text())
		}
		if got := p.must("get", ".", "beside.word").stdout; got != "second\n" {
			t.Errorf("the word is %q", got)
		}
		checkBut(t, p.repository(), tolerated{collected: true})
	})
}

// objects counts the objects of the repository.
func (p *project) objects() int {
	found, err := os.ReadDir(filepath.Join(p.repository(), "objects"))
	n := 0
	for _, shard := range found {
		list, _ := os.ReadDir(filepath.Join(p.repository(), "objects", shard.Name()))
		n += len(list)
	}
	if err != nil {
		p.t.Fatal(err)
	}
	return n
}

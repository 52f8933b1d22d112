// Package approval_test runs the example with the e3 program, and takes the decisions that its tasks wait for.
package approval_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	_ "e3/internal/repo" // for the cache of go test: what the program is made of
	"e3/internal/testing/built"
)

// project is a copy of the example.
type project struct {
	t       *testing.T
	dir     string
	program string
	bank    string // where its statements are
}

func newProject(t *testing.T) *project {
	t.Helper()
	for name, what := range map[string]string{"bash": "bash", "awk": "mawk or any other awk", "join": "coreutils"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("the example's tasks need %s; install %s", name, what)
		}
	}
	p := &project{t: t, dir: t.TempDir(), program: built.Program(t), bank: t.TempDir()}
	for _, name := range []string{"e3.yaml", "orders.csv"} {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		p.write(name, string(data))
	}
	return p
}

func (p *project) write(name, text string) {
	p.t.Helper()
	if !filepath.IsAbs(name) {
		name = filepath.Join(p.dir, name)
	}
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		p.t.Fatal(err)
	}
}

func (p *project) command(args ...string) *exec.Cmd {
	cmd := exec.Command(p.program, args...)
	cmd.Dir = p.dir
	cmd.Env = append(os.Environ(), "E3_REPO=", "BANK="+p.bank)
	return cmd
}

// e3 runs the program in the project's folder and returns what it prints.
func (p *project) e3(args ...string) string {
	p.t.Helper()
	out, err := p.command(args...).CombinedOutput()
	if err != nil {
		p.t.Fatalf("e3 %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// published waits until a run has published a dataset, and returns its content.
func (p *project) published(name string) string {
	p.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; {
		out, err := p.command("get", ".", name).Output()
		if err == nil {
			return string(out)
		}
		if time.Now().After(deadline) {
			p.t.Fatalf("%s is not published: %v", name, err)
		}
	}
}

// run is a start that has not ended.
type run struct {
	p      *project
	cmd    *exec.Cmd
	events *bufio.Scanner
	seen   strings.Builder
}

func (p *project) start() *run {
	p.t.Helper()
	cmd := p.command("start", "-f", "e3.yaml", "--json")
	out, err := cmd.StdoutPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = cmd.Process.Kill() }) // no harm to one that has ended
	return &run{p: p, cmd: cmd, events: bufio.NewScanner(out)}
}

// until waits for an event, such as "task.deferred send".
func (r *run) until(want string) {
	r.p.t.Helper()
	for r.events.Scan() {
		r.seen.WriteString(r.events.Text() + "\n")
		var e struct{ Type, Task string }
		if err := json.Unmarshal(r.events.Bytes(), &e); err != nil {
			r.p.t.Fatalf("e3 start printed %q: %v", r.events.Text(), err)
		}
		if e.Type+" "+e.Task == want {
			return
		}
	}
	r.p.t.Fatalf("the run ended without %q:\n%s", want, r.seen.String())
}

// end waits for the end and returns the exit code.
func (r *run) end() int {
	r.p.t.Helper()
	for r.events.Scan() {
		r.seen.WriteString(r.events.Text() + "\n")
	}
	err := r.cmd.Wait()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		return exit.ExitCode()
	case err != nil:
		r.p.t.Fatal(err)
	}
	return 0
}

func TestApproval(t *testing.T) {
	p := newProject(t)
	r := p.start()
	r.until("task.deferred send")
	const invoices = "Ada,104.50\nEdsger,379.50\nGrace,310.00\n"
	if got := p.published("invoices.invoices"); got != invoices {
		t.Errorf("the invoices are %q, want %q", got, invoices)
	}
	if got := p.e3("status", ".", "invoices"); !strings.Contains(got, "e3 approve . invoices.send") {
		t.Errorf("the status does not say what waits:\n%s", got)
	}
	p.e3("approve", ".", "invoices.send", "--note", "looks right")
	r.until("task.deferred settle")
	p.e3("approve", ".", "invoices.settle") // too early
	r.until("task.deferred settle")
	p.write(filepath.Join(p.bank, "statement.csv"), invoices)
	p.e3("approve", ".", "invoices.settle")
	if code := r.end(); code != 0 {
		t.Fatalf("the run ended with %d:\n%s", code, r.seen.String())
	}
	if got, want := p.e3("get", ".", "invoices.settle"), "Ada,104.50,104.50\nEdsger,379.50,379.50\nGrace,310.00,310.00\n"; got != want {
		t.Errorf("settled is %q, want %q", got, want)
	}

	again := p.start() // a cached answer needs no approval
	if code := again.end(); code != 0 || strings.Contains(again.seen.String(), "task.deferred") {
		t.Errorf("a second start ended with %d:\n%s", code, again.seen.String())
	}

	p.write("orders.csv", "customer,item,quantity,price\nAda,lamp,200,39.50\n")
	r = p.start()
	r.until("task.deferred send")
	p.e3("reject", ".", "invoices.send", "--note", "two hundred lamps?")
	r.until("task.failed send")
	if !strings.Contains(r.seen.String(), "two hundred lamps?") {
		t.Errorf("the failure does not say why:\n%s", r.seen.String())
	}
	if code := r.end(); code != 1 {
		t.Errorf("the rejected run ended with %d, want 1:\n%s", code, r.seen.String())
	}
}

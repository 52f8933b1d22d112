//go:build linux

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"e3/internal/events"
	"e3/internal/format/record"
)

// stubbornGraph has a task that ends at a sign, and others that do not want to.
const stubbornGraph = `
e3: 1
name: stub
inputs:
  mode: {value: meek}
tasks:
  quick: {out: q.txt, run: 'echo quick > "$out"'}
  waits:
    in: [quick, mode]
    out: w.txt
    pass_env: [E2E_STATE]
    run: |
      echo partial > "$out"
      case $mode in
      stubborn) trap '' TERM ;;
      litter) (setsid sleep 4712 >/dev/null 2>&1 &) ;;
      fails) exit 3 ;;
      esac
      echo "$$" >> "$E2E_STATE/begun"
      while ! [ -e "$E2E_STATE/go" ]; do sleep 0.05; done
      echo whole > "$out"
    retries: {max: 2, backoff: 1h}
  after: {in: [waits], out: a.txt, run: 'cp "$waits" "$out"'}
`

func stubborn(t testing.TB, mode string) *project {
	p := newProject(t, map[string]string{"e3.yaml": strings.Replace(stubbornGraph, "meek", mode, 1)})
	if r := p.e3("init"); r.code != 0 {
		t.Fatalf("init: exit code %d\n%s", r.code, r.text())
	}
	return p
}

// begin starts the workspace and waits until its command is at work.
func (p *project) begin(args ...string) *process {
	p.t.Helper()
	n := len(p.marks("begun"))
	x := p.spawn(append([]string{"start", "-f", "e3.yaml", "--json", "--grace", "300ms"}, args...)...)
	eventually(p.t, patience, "the command", func() string {
		if len(p.marks("begun")) > n {
			return ""
		}
		return "is not at work"
	})
	return x
}

// cancelled demands that a start ended as cancelled, and names a user.
func cancelled(t testing.TB, r result, reason string) {
	t.Helper()
	if r.code != 130 {
		t.Fatalf("exit code %d, want 130\n%s", r.code, r.text())
	}
	list := r.events(t)
	last := list[len(list)-1]
	if last.Type != events.RunCancelled || !strings.HasPrefix(last.Data.By, "tester@") || last.Data.Message != reason {
		t.Errorf("the last event is %s %+v", last.Type, last.Data)
	}
}

// cancelStatus is what a cancel with --json says.
func cancelStatus(t testing.TB, r result) string {
	t.Helper()
	var doc struct{ Status string }
	if err := json.Unmarshal([]byte(r.stdout), &doc); err != nil || r.code != 0 {
		t.Fatalf("cancel: exit code %d, %v\n%s", r.code, err, r.text())
	}
	return doc.Status
}

// A run that is cancelled from another process ends as by Ctrl-C, whatever its command thinks of that.
func TestCancel(t *testing.T) {
	for _, mode := range []string{"meek", "stubborn", "litter"} {
		t.Run(mode, func(t *testing.T) {
			p := stubborn(t, mode)
			x := p.begin()
			if got := cancelStatus(t, p.e3("cancel", ".", "stub", "--reason", "wrong input", "--json")); got != "cancelled" {
				t.Errorf("it is said to be %s", got)
			}
			cancelled(t, x.wait(), "wrong input")
			noStrays(t, p.dir, x.cmd.Process.Pid, "sleep 4712")
			e := p.only("waits")
			if e.State != record.Error || e.Message != "cancelled" || e.Detail.Reason != "cancelled" {
				t.Errorf("the execution is %v %q", e.State, e.Message)
			}
			if run := p.lastRun("stub"); run.State != record.RunCancelled || run.Summary != (record.Summary{Total: 3, Completed: 1, Failed: 1, Skipped: 1}) {
				t.Errorf("the run is %v with %+v", run.State, run.Summary)
			}
			if r := p.e3("get", ".", "stub.waits"); r.code == 0 || strings.Contains(r.stdout, "partial") {
				t.Errorf("the output that was not made is there:\n%s", r.text())
			}
			check(t, p.repository())
			p.write("state/go", "")
			wantRan(t, p.start(0), "after", "waits")
			check(t, p.repository())
		})
	}
}

// A task that waits an hour for its next attempt holds nothing up.
func TestCancelDuringBackoff(t *testing.T) {
	p := stubborn(t, "fails")
	x := p.spawn("start", "-f", "e3.yaml", "--json")
	x.waitLine("task.retry_scheduled")
	began := time.Now()
	if got := cancelStatus(t, p.e3("cancel", ".", "stub", "--json")); got != "cancelled" {
		t.Errorf("it is said to be %s", got)
	}
	r := x.wait()
	cancelled(t, r, "")
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("it took %v", took)
	}
	check(t, p.repository())
}

// Two concurrent cancels each report that the run is cancelled, or that nothing runs any more.
func TestCancelTwice(t *testing.T) {
	p := stubborn(t, "stubborn")
	x := p.begin()
	one, two := p.spawn("cancel", ".", "stub", "--json", "--reason", "one"), p.spawn("cancel", ".", "stub", "--json", "--reason", "two")
	for i, c := range []*process{one, two} {
		if got := cancelStatus(t, c.wait()); got != "cancelled" {
			t.Errorf("canceller %d was told: %s", i+1, got)
		}
	}
	r := x.wait()
	list := r.events(t)
	cancelled(t, r, list[len(list)-1].Data.Message)
	if got := cancelStatus(t, p.e3("cancel", ".", "stub", "--json")); got != "idle" {
		t.Errorf("afterwards: %s", got)
	}
	check(t, p.repository())
}

// A suspended start cannot answer: cancel says so and times out, and the start ends when it continues.
func TestCancelStopped(t *testing.T) {
	p := stubborn(t, "meek")
	x := p.begin()
	pid := x.cmd.Process.Pid
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	r := p.e3("cancel", ".", "stub", "--timeout", "1s")
	if r.code != 124 || !strings.Contains(r.stderr, fmt.Sprintf("process %d ", pid)) || !strings.Contains(r.stderr, "the request stands") {
		t.Errorf("exit code %d, want 124 and a word about process %d\n%s", r.code, pid, r.text())
	}
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	cancelled(t, x.wait(), "")
	if files, err := os.ReadDir(p.path(".e3/cancels")); err != nil || len(files) > 0 {
		t.Errorf("the request is left: %v, %v", files, err)
	}
	p.write("state/go", "")
	p.start(0)
	check(t, p.repository())
}

// A request to cancel a start that was killed stops no later start.
func TestCancelKilled(t *testing.T) {
	p := stubborn(t, "meek")
	x := p.begin()
	if err := syscall.Kill(x.cmd.Process.Pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	c := p.spawn("cancel", ".", "stub", "--json")
	eventually(t, patience, "the request", func() string {
		if _, err := os.Stat(p.path(".e3/cancels/stub.rec")); err != nil {
			return err.Error()
		}
		return ""
	})
	if r := p.e3("cancel", ".", "stub", "--no-wait"); r.code != 0 || !strings.HasPrefix(r.stdout, "Asked run ") {
		t.Errorf("exit code %d\n%s", r.code, r.text())
	}
	x.kill(false)
	if r := c.wait(); cancelStatus(t, r) != "interrupted" || !strings.Contains(r.stdout, `"closed":true`) {
		t.Errorf("the waiting cancel printed: %s, want that the run was interrupted and is closed", r.stdout)
	}
	if r := p.e3("run", ".", "stub"); !strings.Contains(r.stdout, "Status:    crashed") {
		t.Errorf("afterwards:\n%s", r.text())
	}
	p.write("state/go", "")
	p.start(0)
	check(t, p.repository())
}

// A workspace that is being run is removed by force, and not without.
func TestCancelToRemove(t *testing.T) {
	p := stubborn(t, "stubborn")
	x := p.begin()
	if r := p.e3("workspace", "remove", ".", "stub"); r.code != 11 || !strings.Contains(r.stderr, "--force") {
		t.Errorf("without force: exit code %d\n%s", r.code, r.text())
	}
	if r := p.e3("workspace", "remove", ".", "stub", "--force"); r.code != 0 {
		t.Fatalf("with force: exit code %d\n%s", r.code, r.text())
	}
	cancelled(t, x.wait(), "the workspace is being removed")
	for _, gone := range []string{"workspaces/stub.beast2", "dataflows/stub", "index/links/stub.rec", "index/proofs/stub.rec", "cancels/stub.rec"} {
		if files, err := os.ReadDir(p.path(".e3/" + gone)); err == nil && len(files) > 0 || err != nil && !os.IsNotExist(err) {
			t.Errorf("%s is left: %v", gone, err)
		}
	}
	check(t, p.repository())
	p.write("state/go", "")
	wantRan(t, p.start(0), "after", "waits") // what had ended is cached
	check(t, p.repository())
}

// Runs that are cancelled at any moment end whole, and the next start goes on.
func TestCancelAnywhere(t *testing.T) {
	rnd := random(t)
	for i := range max(killCount(t)/10, 3) {
		at := time.Duration(rnd.Int64N(int64(900 * time.Millisecond)))
		t.Run(fmt.Sprintf("%02d_%v", i, at), func(t *testing.T) {
			t.Parallel()
			p := killProject(t)
			if r := p.e3("init"); r.code != 0 {
				t.Fatalf("init: exit code %d\n%s", r.code, r.text())
			}
			x := p.spawn(killArgs...)
			select {
			case <-time.After(at):
			case <-x.ended:
			}
			c := p.e3("cancel", ".", "kill", "--json")
			r := x.wait()
			switch {
			case c.code == 2 && strings.Contains(c.stderr, "there is no workspace"), c.code == 11: // it was being deployed still
				if r.code != 0 {
					t.Errorf("the start: exit code %d\n%s", r.code, r.text())
				}
			default:
				want := map[string]int{"cancelled": 130, "not begun": 130, "completed": 0, "idle": 0}
				status := cancelStatus(t, c)
				if code, known := want[status]; !known || code != r.code {
					t.Errorf("cancel says %q, and the start has exit code %d\n%s", status, r.code, r.text())
				}
			}
			noStrays(t, p.dir, x.cmd.Process.Pid)
			check(t, p.repository())
			p.start(0)
			if got := p.object(p.finalOutput()); got != expectedReport(p) {
				t.Errorf("the report is\n%s", got)
			}
			check(t, p.repository())
		})
	}
}

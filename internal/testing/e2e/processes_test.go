//go:build linux

package e2e

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"e3/executions"
	"e3/internal/events"
	"e3/internal/format/record"
)

// crowd is how many processes meet.
const crowd = 8

// crowdGraph has a task that lasts until it is released, with others before and after it.
const crowdGraph = `
e3: 1
name: crowd
inputs:
  a: {file: a.txt}
tasks:
  before: {in: [a], out: before.txt, matrix: {n: [1, 2, 3]}, run: 'cp "$a" "$out"; echo "$n" >> "$out"'}
  hold:
    in: {from: "before[*]"}
    out: hold.txt
    pass_env: [E2E_STATE]
    run: |
      echo "holding"
      echo go >> "$E2E_STATE/holding"
      until test -e "$E2E_STATE/release"; do sleep 0.01; done
      cat "$from"/* > "$out"
  after: {in: [hold], out: after.txt, matrix: {n: [1, 2, 3]}, run: 'cp "$hold" "$out"; echo "$n" >> "$out"'}
`

const crowdTasks = 7

func crowdProject(t testing.TB) *project {
	return newProject(t, map[string]string{"e3.yaml": crowdGraph, "a.txt": "alpha\n"})
}

// holding waits until the held task has been started so many times.
func (p *project) holding(limit time.Duration, times int) {
	p.t.Helper()
	eventually(p.t, limit, "the held task runs", func() string {
		if n := len(p.marks("holding")); n != times {
			return fmt.Sprintf("started %d times, want %d", n, times)
		}
		return ""
	})
}

// TestOneWorkspace has eight processes start one workspace: one runs it, the others name that process
// and since when.
func TestOneWorkspace(t *testing.T) {
	for _, fresh := range []bool{true, false} {
		t.Run(map[bool]string{true: "fresh", false: "deployed"}[fresh], func(t *testing.T) {
			p := crowdProject(t)
			if !fresh {
				p.write("state/release", "")
				p.start(0)
				os.Remove(p.path("state/release"))
				os.Remove(p.path("state/holding"))
				p.write("a.txt", "edited\n")
			}
			began := time.Now().Truncate(time.Second)
			var all []*process
			for range crowd {
				all = append(all, p.spawn("start", "-f", "e3.yaml"))
			}
			p.holding(patience, 1)
			var winners []*process
			for len(all) > 1 {
				i := waitAny(t, all)
				r := all[i].wait()
				if r.code != 11 {
					t.Errorf("exit code %d, want 11\n%s", r.code, r.text())
				}
				isHeldBy(t, r.stderr, append(slices.Clone(all), winners...), began)
				winners = append(winners, all[i])
				all = slices.Delete(all, i, i+1)
			}
			p.write("state/release", "")
			if r := all[0].wait(); r.code != 0 {
				t.Fatalf("the winner: exit code %d\n%s", r.code, r.text())
			}
			p.holding(patience, 1)
			check(t, p.repository())
		})
	}
}

// waitAny returns the index of a process that has ended.
func waitAny(t testing.TB, all []*process) int {
	t.Helper()
	at := -1
	eventually(t, patience, "all but one process end", func() string {
		for i, x := range all {
			select {
			case <-x.ended:
				at = i
				return ""
			default:
			}
		}
		return fmt.Sprintf("%d are left", len(all))
	})
	return at
}

// isHeldBy demands that a message names one of the processes and a time since began.
func isHeldBy(t testing.TB, message string, holders []*process, began time.Time) {
	t.Helper()
	if !slices.ContainsFunc(holders, func(x *process) bool {
		return strings.Contains(message, fmt.Sprintf("pid=%d,", x.cmd.Process.Pid)) || strings.Contains(message, fmt.Sprintf("process %d", x.cmd.Process.Pid))
	}) {
		t.Errorf("the message does not say who holds the workspace: %s", message)
	}
	_, since, _ := strings.Cut(message, " since ")
	since = strings.TrimSpace(since)
	at, err := time.ParseInLocation(time.DateTime, since[:min(len(since), len(time.DateTime))], time.Local)
	if err != nil || at.Before(began) || at.After(time.Now()) {
		t.Errorf("the message does not say since when: %s", message)
	}
}

// TestSharedTasks has eight processes run the same tasks in workspaces of their own: each task
// runs once, and no reader waits.
func TestSharedTasks(t *testing.T) {
	p := crowdProject(t)
	var all []*process
	for i := range crowd {
		all = append(all, p.spawn("start", "-f", "e3.yaml", "--json", fmt.Sprintf("ws%d", i)))
	}
	for _, x := range all {
		x.waitLine(`"type":"task.marked_ready","task":"hold"`)
	}
	p.holding(patience, 1)
	p.readsWhileRunning(t)
	p.write("state/release", "")

	ran := map[string]int{}
	for i, x := range all {
		r := x.wait()
		if r.code != 0 {
			t.Fatalf("ws%d: exit code %d\n%s", i, r.code, r.text())
		}
		answered := 0
		for _, e := range r.events(t) {
			switch e.Type {
			case events.TaskStarted:
				ran[e.Task]++
			case events.TaskCached, events.TaskCompleted:
				answered++
			}
		}
		if answered != crowdTasks {
			t.Errorf("ws%d: %d tasks were answered, want %d", i, answered, crowdTasks)
		}
		if got := p.lastRun(fmt.Sprintf("ws%d", i)).Summary; got.Completed != crowdTasks {
			t.Errorf("ws%d: summary %+v", i, got)
		}
	}
	if len(ran) != crowdTasks {
		t.Errorf("these tasks ran: %v", ran)
	}
	for task, n := range ran {
		if n != 1 || len(p.of(task)) != 1 {
			t.Errorf("task %s ran %d times and has %d executions", task, n, len(p.of(task)))
		}
	}
	check(t, p.repository())
}

// readsWhileRunning reads what there is to read while runs are under way.
func (p *project) readsWhileRunning(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	r := p.open()
	defer r.Close()
	for i := range crowd {
		ws := fmt.Sprintf("ws%d", i)
		if s, err := r.Workspaces.State(ctx, ws); err != nil || !s.Deployed {
			t.Errorf("state of %s: %+v, %v", ws, s, err)
		}
		if busy, err := r.Workspaces.Busy(ctx, ws); err != nil || busy == nil {
			t.Errorf("holder of %s: %v, %v", ws, busy, err)
		}
		run, err := r.Workspaces.Runs.Run(ctx, ws, "")
		if err != nil {
			t.Errorf("run of %s: %v", ws, err)
			continue
		}
		if run.State != record.RunRunning {
			t.Errorf("run of %s: %v", ws, run.State)
		}
	}
	// It is on record at the latest 200 ms after its start, with its log.
	eventually(t, 2*time.Second, "the held task is on record", func() string {
		list := p.of("hold")
		if len(list) != 1 || list[0].State != record.Running {
			return fmt.Sprintf("%d executions", len(list))
		}
		if got := p.log(list[0], executions.Stdout); got != "holding\n" {
			return fmt.Sprintf("log %q", got)
		}
		return ""
	})
	if ctx.Err() != nil {
		t.Error("reading took more than two seconds")
	}
}

// TestWinnerKilled kills the process that runs a shared task: one of those that wait for it
// runs it within two seconds.
func TestWinnerKilled(t *testing.T) {
	p := crowdProject(t)
	all := map[string]*process{}
	for i := range crowd {
		ws := fmt.Sprintf("ws%d", i)
		all[ws] = p.spawn("start", "-f", "e3.yaml", "--json", ws)
	}
	for _, x := range all {
		x.waitLine(`"type":"task.marked_ready","task":"hold"`)
	}
	for killed := range 3 {
		p.holding(patience, killed+1)
		var running *executions.Execution
		eventually(t, patience, "the held task is on record", func() string {
			for _, e := range p.of("hold") {
				if e.State == record.Running {
					running = e
					return ""
				}
			}
			return "it is not"
		})
		winner := running.Detail.Workspace
		all[winner].kill(killed%2 == 0)
		p.holding(2*time.Second, killed+2)
		noStrays(t, "/nowhere", all[winner].cmd.Process.Pid)
		delete(all, winner)
	}
	p.write("state/release", "")
	for ws, x := range all {
		if r := x.wait(); r.code != 0 {
			t.Errorf("%s: exit code %d\n%s", ws, r.code, r.text())
		}
	}
	states := map[record.State]int{}
	for _, e := range p.of("hold") {
		states[e.State]++
		if e.State == record.Error && !strings.HasSuffix(e.Message, "no longer running (stale execution)") {
			t.Errorf("message of a dead execution: %q", e.Message)
		}
	}
	if states[record.Success] != 1 || states[record.Error] != 3 || len(states) != 2 {
		t.Errorf("executions of the held task: %v", states)
	}
	for i := range crowd { // the killed ones go on
		p.start(0, fmt.Sprintf("ws%d", i))
	}
	check(t, p.repository())
}

// TestSharedFailure has several processes wait for a task that fails: the failure is theirs
// too, and no process tries it again.
func TestSharedFailure(t *testing.T) {
	p := newProject(t, map[string]string{"a.txt": "alpha\n", "e3.yaml": strings.Replace(crowdGraph, `cat "$from"/* > "$out"`, "exit 3", 1)})
	var all []*process
	for i := range crowd {
		all = append(all, p.spawn("start", "-f", "e3.yaml", "--json", fmt.Sprintf("ws%d", i)))
	}
	for _, x := range all {
		x.waitLine(`"type":"task.marked_ready","task":"hold"`)
	}
	p.holding(patience, 1)
	// Only a process that found the claim held waits: being ready is not enough.
	p.busyWaiting(all)
	p.write("state/release", "")
	for i, x := range all {
		if r := x.wait(); r.code != 1 {
			t.Errorf("ws%d: exit code %d, want 1\n%s", i, r.code, r.text())
		}
	}
	if list := p.of("hold"); len(list) != 1 {
		t.Errorf("the task that fails has %d executions, want 1", len(list))
	}
	check(t, p.repository())
}

// busyWaiting waits until every process has slept and woken up a few times since it had
// something to wait for.
func (p *project) busyWaiting(all []*process) {
	p.t.Helper()
	before := make([]int64, len(all))
	for i, x := range all {
		before[i] = switches(x.cmd.Process.Pid)
	}
	eventually(p.t, patience, "the others wait", func() string {
		for i, x := range all {
			if switches(x.cmd.Process.Pid) < before[i]+20 {
				return fmt.Sprintf("process %d has not come round", x.cmd.Process.Pid)
			}
		}
		return ""
	})
}

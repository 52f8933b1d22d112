//go:build linux

package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"e3/executions"
	"e3/internal/format/record"
)

// moodGraph has a task whose result depends on what is passed and not hashed.
const moodGraph = `
e3: 1
name: mood
inputs:
  a: {file: a.txt}
tasks:
  moody: {in: [a], out: moody.txt, pass_env: [MOOD], run: 'echo "in a mood: ${MOOD:-fine}"; test "${MOOD:-fine}" = fine; { cat "$a"; echo moody; } > "$out"'}
  next: {in: [moody], out: next.txt, run: '{ cat "$moody"; echo next; } > "$out"'}
`

func moodProject(t testing.TB) *project {
	return newProject(t, map[string]string{"e3.yaml": moodGraph, "a.txt": "alpha\n"})
}

// mood sets what is passed to the tasks.
func (p *project) mood(mood string) {
	p.env = slices.DeleteFunc(p.env, func(s string) bool { return len(s) > 5 && s[:5] == "MOOD=" })
	p.env = append(p.env, "MOOD="+mood)
}

func states(list []*executions.Execution) []record.State {
	var states []record.State
	for _, e := range list {
		states = append(states, e.State)
	}
	return states
}

func wantStates(t testing.TB, list []*executions.Execution, want ...record.State) {
	t.Helper()
	if got := states(list); !slices.Equal(got, want) {
		t.Fatalf("executions: %v, want %v", got, want)
	}
}

// wantRan demands which tasks a start has run.
func wantRan(t testing.TB, r result, want ...string) {
	t.Helper()
	if got := r.ran(t); !slices.Equal(got, want) {
		t.Fatalf("these tasks ran: %v, want %v", got, want)
	}
}

// TestHistoryRules checks what answers a question that was asked before.
func TestHistoryRules(t *testing.T) {
	t.Run("a_later_failure_does_not_hide_a_success", func(t *testing.T) {
		p := moodProject(t)
		p.mood("fine")
		p.start(0)
		p.mood("bad")
		p.start(1, "--force")
		wantStates(t, p.of("moody"), record.Success, record.Failed)
		for _, ws := range []string{"mood", "other"} {
			wantRan(t, p.start(0, ws))
		}
		wantStates(t, p.of("moody"), record.Success, record.Failed)
		check(t, p.repository())
	})
	t.Run("a_failure_in_one_workspace_is_tried_again_in_another", func(t *testing.T) {
		p := moodProject(t)
		p.mood("bad")
		p.start(1)
		p.start(1, "other")
		wantStates(t, p.of("moody"), record.Failed, record.Failed)
		p.mood("fine")
		wantRan(t, p.start(0), "moody", "next")
		wantRan(t, p.start(0, "other"))
		wantStates(t, p.of("moody"), record.Failed, record.Failed, record.Success)
		check(t, p.repository())
	})
	t.Run("a_forced_run_appends", func(t *testing.T) {
		p := moodProject(t)
		p.mood("fine")
		p.start(0)
		for range 2 {
			before := rememberFinished(t, p.repository())
			wantRan(t, p.start(0, "--force"), "moody", "next")
			before.unchanged(t, p.repository())
		}
		wantStates(t, p.of("moody"), record.Success, record.Success, record.Success)
		last := p.of("moody")[2].ExecutionID
		for task := range p.lastRun("mood").Tasks.All() {
			if task.Task == "moody" && task.ExecutionID != last {
				t.Errorf("the run names the execution %s, want the latest, %s", task.ExecutionID, last)
			}
		}
		wantRan(t, p.start(0))
		check(t, p.repository())
	})
	t.Run("a_success_whose_object_is_gone_is_a_miss", func(t *testing.T) {
		for _, ws := range []string{"mood", "other"} { // with and without a proof of the last run
			p := moodProject(t)
			p.start(0)
			p.removeObject(p.only("moody").OutputHash)
			wantRan(t, p.start(0, ws), "moody") // what is made again is what next has read
			wantStates(t, p.of("moody"), record.Success, record.Success)
			wantRan(t, p.start(0, ws))
			check(t, p.repository())
		}
	})
	t.Run("an_object_inside_an_output_is_gone", func(t *testing.T) {
		for _, graph := range []string{
			"e3: 1\nname: mood\ntasks:\n  pair: {out: {l: l.txt, r: r.txt}, run: 'echo left > \"$l\"; echo right > \"$r\"'}\n",
			"e3: 1\nname: mood\ntasks:\n  pair: {out: pair/, run: 'echo left > \"$out/l\"; echo right > \"$out/r\"'}\n",
		} {
			p := newProject(t, map[string]string{"e3.yaml": graph})
			p.start(0)
			p.removeObject(hashOf("left\n"))
			// Something needs it now: it is made again, or e3 says that it is gone.
			p.write("e3.yaml", graph+"  use: {in: [pair], out: use.txt, run: 'cat \"$pair\"/* > \"$out\"'}\n")
			if r := p.e3("start", "-f", "e3.yaml"); r.code != 12 && r.code != 0 {
				t.Errorf("exit code %d, want 12 or 0\n%s", r.code, r.text())
			}
			p.start(0, "--force")
			check(t, p.repository())
		}
	})
	t.Run("a_malformed_record_is_a_miss", func(t *testing.T) {
		for name, damage := range map[string]string{"cut": "\x89East", "empty": "", "other": "not a record at all"} {
			p := moodProject(t)
			p.start(0)
			e := p.only("moody")
			path := filepath.Join(p.repository(), "executions", e.Key.Task.String(), e.Key.Inputs.String(), e.ExecutionID, "status.beast2")
			if err := os.WriteFile(path, []byte(damage), 0o644); err != nil {
				t.Fatal(err)
			}
			r := p.start(0, "other")
			if got := r.ran(t); !slices.Equal(got, []string{"moody"}) {
				t.Errorf("%s: these tasks ran: %v, want moody", name, got)
			}
			p.start(0, "--force") // whose run names the malformed one
			checkTorn(t, p.repository())
		}
	})
}

// removeObject deletes an object by hand.
func (p *project) removeObject(hash string) {
	p.t.Helper()
	if err := os.Remove(filepath.Join(p.repository(), "objects", hash[:2], hash[2:])); err != nil {
		p.t.Fatal(err)
	}
}

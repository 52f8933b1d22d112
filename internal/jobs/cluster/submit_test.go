package cluster

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"e3/internal/format/record"
	"e3/internal/jobs/dispatch"
	"e3/internal/jobs/queue"
)

func newJob(id string, policy record.Policy, labels ...string) *job {
	return &job{Job: queue.Job{ID: id, Queue: "slurm", Workspace: "dev", Task: "task-" + id, Policy: policy, Labels: labels}}
}

// demanding is a scheduler that is asked for cores.
type demanding struct{ Scheduler }

func (demanding) Demands(j *queue.Job) ([]string, error) {
	if j.Policy.CPU < 0 {
		return nil, errors.New("fewer than none")
	}
	return []string{fmt.Sprint(j.Policy.CPU)}, nil
}

func TestBatches(t *testing.T) {
	var jobs []*job
	for i := range 7 {
		jobs = append(jobs, newJob(fmt.Sprint(i), record.Policy{CPU: float64(1 + i%2)}))
	}
	bad := newJob("bad", record.Policy{CPU: -1})
	refused := map[string]string{}
	s := &Submitter{scheduler: demanding{}, jobs: map[string]*job{}, submissions: map[string]*submission{},
		report: func(g dispatch.Gone) { refused[g.ID] = g.Message }}
	subs := s.batches(append(jobs, bad), 3)
	var got []string
	for _, x := range subs {
		line := strings.Join(x.Demands, " ") + ":"
		for i, j := range x.jobs {
			if j.of != x || j.index != i {
				t.Errorf("job %s is number %d of another", j.ID, j.index)
			}
			line += " " + j.ID
		}
		got = append(got, line)
	}
	want := []string{"1: 0 2 4", "2: 1 3 5", "1: 6"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if len(refused) != 1 || refused["bad"] == "" {
		t.Errorf("refused: got %v, want the one that asks for less than nothing", refused)
	}
}

func TestName(t *testing.T) {
	tests := map[string][]string{
		"e3:dev.train":                 {"train"},
		"e3:dev.train[":                {"train[1]", "train[20]"},
		"e3:dev.":                      {"a", "b"},
		"e3:dev.a_b_c_d__x__JobState_": {"a b\nc=d|%x\"\\JobState="},
	}
	for want, tasks := range tests {
		x := &submission{}
		for _, task := range tasks {
			x.add(&job{Job: queue.Job{Workspace: "dev", Task: task}})
		}
		if got := x.name(); got != want {
			t.Errorf("%q: got %q, want %q", tasks, got, want)
		}
	}
	long := &submission{}
	long.add(&job{Job: queue.Job{Workspace: "dev", Task: strings.Repeat("é", 500)}})
	if got := long.name(); len(got) != maxName {
		t.Errorf("a long name has %d bytes, want %d", len(got), maxName)
	}
}

// The script must call e3 with its arguments intact, whatever they contain, and must have no options for a scheduler.
func TestScript(t *testing.T) {
	dir := t.TempDir()
	echo := filepath.Join(dir, "say 'it'")
	if err := os.WriteFile(echo, []byte("#!/bin/sh\nprintf '%s\\0' \"$@\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		word := rapid.StringMatching("([a-z]|[ '\"\\\\$`\n#;&|*~]|\\$\\(id\\)|\n#SBATCH --wrap=x\n|é){0,12}")
		o := &Options{Program: echo, Repo: word.Draw(t, "repo"), Worker: []string{word.Draw(t, "argument")}}
		x := &submission{Batch: Batch{Token: "t"}}
		for i := range rapid.IntRange(1, 3).Draw(t, "jobs") {
			x.add(&job{Job: queue.Job{ID: fmt.Sprint(i) + word.Draw(t, "id"), Queue: "q", Task: word.Draw(t, "task"), Workspace: "w"}})
		}
		script := x.script(o, "INDEX")
		for i, line := range strings.Split(script, "\n") {
			if i == 0 && line == "#!/bin/sh" {
				continue
			}
			if !strings.HasPrefix(line, "set ") {
				t.Fatalf("the first command is %q: schedulers read options up to there", line)
			}
			break
		}
		for i, j := range x.jobs {
			cmd := exec.Command("sh", "-s")
			cmd.Stdin = strings.NewReader(script)
			cmd.Env = []string{fmt.Sprintf("INDEX=%d", i)}
			out, err := cmd.Output()
			want := strings.Join([]string{"worker", o.Repo, "--job", j.Ref(), o.Worker[0], ""}, "\x00")
			if err != nil || string(out) != want {
				t.Fatalf("got %q, %v, want %q", out, err, want)
			}
		}
	})
}

func TestWords(t *testing.T) {
	tests := map[string][]string{
		"":                                nil,
		" --qos=high  -p long ":           {"--qos=high", "-p", "long"},
		`--comment='a b' --x="it's" '' y`: {"--comment=a b", "--x=it's", "", "y"},
	}
	for line, want := range tests {
		if got, err := Words(line); err != nil || !slices.Equal(got, want) {
			t.Errorf("Words(%q): got %q, %v, want %q", line, got, err, want)
		}
	}
	if got, err := Words("a 'b"); err == nil {
		t.Errorf("Words of a quote that is not closed: got %q, want an error", got)
	}
}

func TestLogs(t *testing.T) {
	o := &Options{Logs: t.TempDir()}
	if got := o.readLog("t", 0); got != "" {
		t.Errorf("a log that is not there: got %q", got)
	}
	text := strings.Repeat("an earlier line\n", 1000) + "one\n\n  two\xff\nsh: e3: not found\n"
	if err := os.WriteFile(o.log("t", 0), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, want := o.readLog("t", 0), "an earlier line; an earlier line; one; two\uFFFD; sh: e3: not found"; got != want {
		t.Errorf("the end of a log: got %q, want %q", got, want)
	}
	o.dropLog("t", 0)
	if got := o.readLog("t", 0); got != "" {
		t.Errorf("a log that was dropped: got %q", got)
	}
}

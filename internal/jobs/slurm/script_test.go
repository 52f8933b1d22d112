package slurm

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"e3/internal/format/record"
	"e3/internal/host/modes"
	"e3/internal/jobs/queue"
)

func newJob(id string, policy record.Policy, labels ...string) *job {
	return &job{Job: queue.Job{ID: id, Queue: "slurm", Workspace: "dev", Task: "task-" + id, Policy: policy, Labels: labels}}
}

func TestDemands(t *testing.T) {
	o := &Options{Resources: map[string]string{"gpu": "gpu:a100", "db": ""}}
	tests := []struct {
		name string
		job  *job
		want string // arguments of sbatch; an error if it starts with !
	}{
		{"nothing", newJob("a", record.Policy{}), "--cpus-per-task=1"},
		{"half a core", newJob("a", record.Policy{CPU: 0.5}), "--cpus-per-task=1"},
		{"cores and a bit", newJob("a", record.Policy{CPU: 2.25}), "--cpus-per-task=3"},
		{"memory, and what e3 needs", newJob("a", record.Policy{Memory: 1<<30 + 1}), "--cpus-per-task=1 --mem=1089M"},
		{"all memory there is", newJob("a", record.Policy{Memory: 1<<63 - 1}), "--cpus-per-task=1 --mem=2147483647M"},
		{"a second", newJob("a", record.Policy{Timeout: time.Second}), "--cpus-per-task=1 --time=6"},
		{"for ever", newJob("a", record.Policy{Timeout: 1<<63 - 1}), "--cpus-per-task=1 --time=153722868"},
		{"resources", newJob("a", record.Policy{Resources: []record.Amount{{Name: "tape", Value: 1.5}, {Name: "gpu", Value: 2}, {Name: "db", Value: 1}}}),
			"--cpus-per-task=1 --gres=gpu:a100:2,tape:2"},
		{"labels", newJob("a", record.Policy{}, "ssd", "big", "ssd"), "--cpus-per-task=1 --constraint=big&ssd"},
		{"a label that is an expression", newJob("a", record.Policy{}, "big|small"), "!label"},
		{"a label that is an option", newJob("a", record.Policy{}, "--wrap"), "!label"},
		{"a resource that is two", newJob("a", record.Policy{Resources: []record.Amount{{Name: "gpu:1,tape", Value: 1}}}), "!resource"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			args, err := o.demands(&test.job.Job)
			if want, ok := strings.CutPrefix(test.want, "!"); ok {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("got %v, %v, want an error about the %s", args, err, want)
				}
				return
			}
			if got := strings.Join(args, " "); err != nil || got != test.want {
				t.Errorf("got %q, %v, want %q", got, err, test.want)
			}
		})
	}
}

func TestGroups(t *testing.T) {
	var jobs []*job
	for i := range 7 {
		jobs = append(jobs, newJob(fmt.Sprint(i), record.Policy{CPU: float64(1 + i%2)}))
	}
	bad := newJob("bad", record.Policy{}, "a b")
	subs, refused := (&Options{}).groups(append(jobs, bad), 3)
	var got []string
	for _, x := range subs {
		line := strings.Join(x.args, " ") + ":"
		for i, j := range x.jobs {
			if j.of != x || j.index != i {
				t.Errorf("job %s is number %d of another", j.ID, j.index)
			}
			line += " " + j.ID
		}
		got = append(got, line)
	}
	want := []string{"--cpus-per-task=1: 0 2 4", "--cpus-per-task=2: 1 3 5", "--cpus-per-task=1: 6"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if len(refused) != 1 || refused[bad] == nil {
		t.Errorf("refused: got %v, want the one with an invalid label", refused)
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

// The script must call e3 with its arguments intact, whatever they contain, and must have no options for sbatch.
func TestScript(t *testing.T) {
	dir := t.TempDir()
	echo := filepath.Join(dir, "say 'it'")
	if err := os.WriteFile(echo, []byte("#!/bin/sh\nprintf '%s\\0' \"$@\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		word := rapid.StringMatching("([a-z]|[ '\"\\\\$`\n#;&|*~]|\\$\\(id\\)|\n#SBATCH --wrap=x\n|é){0,12}")
		o := &Options{Program: echo, Repo: word.Draw(t, "repo"), Worker: []string{word.Draw(t, "argument")}}
		x := &submission{token: "t"}
		for i := range rapid.IntRange(1, 3).Draw(t, "jobs") {
			x.add(&job{Job: queue.Job{ID: fmt.Sprint(i) + word.Draw(t, "id"), Queue: "q", Task: word.Draw(t, "task"), Workspace: "w"}})
		}
		script := x.script(o, nil)
		for i, line := range strings.Split(script, "\n") {
			if i == 0 && line == "#!/bin/sh" {
				continue
			}
			if !strings.HasPrefix(line, "set ") {
				t.Fatalf("the first command is %q: sbatch reads options up to there", line)
			}
			break
		}
		for i, j := range x.jobs {
			cmd := exec.Command("sh", "-s")
			cmd.Stdin = strings.NewReader(script)
			cmd.Env = []string{fmt.Sprintf("SLURM_ARRAY_TASK_ID=%d", i)}
			out, err := cmd.Output()
			want := strings.Join([]string{"worker", o.Repo, "--job", j.Ref(), o.Worker[0], ""}, "\x00")
			if err != nil || string(out) != want {
				t.Fatalf("got %q, %v, want %q", out, err, want)
			}
		}
	})
}

func TestSplitArgs(t *testing.T) {
	tests := map[string][]string{
		"":                                nil,
		" --qos=high  -p long ":           {"--qos=high", "-p", "long"},
		`--comment='a b' --x="it's" '' y`: {"--comment=a b", "--x=it's", "", "y"},
	}
	for line, want := range tests {
		if got, err := SplitArgs(line); err != nil || !slices.Equal(got, want) {
			t.Errorf("SplitArgs(%q): got %q, %v, want %q", line, got, err, want)
		}
	}
	if got, err := SplitArgs("a 'b"); err == nil {
		t.Errorf("SplitArgs of a quote that is not closed: got %q, want an error", got)
	}
}

func TestValidArgs(t *testing.T) {
	for arg, want := range map[string]bool{
		"--partition=long": true, "-plong": true, "--exclusive": true, "--array=1": false, "-a1": false, "--wrap=x": false, "--comment": false,
		"-o": false, "-ox": false, "--": false, "-W": false, "--overcommit": true,
	} {
		if err := validArgs([]string{arg}); (err == nil) != want {
			t.Errorf("validArgs(%q): got %v, want valid %t", arg, err, want)
		}
	}
}

func TestCleanEnv(t *testing.T) {
	got := cleanEnv([]string{"PATH=/bin", "SLURM_CONF=x", "SLURM_JOB_ID=1", "SLURM_MEM_PER_NODE=1", "SQUEUE_FORMAT=x", "SBATCH_ACCOUNT=a", "SBATCH_WAIT=1", "E3_REPO=r"})
	want := []string{"PATH=/bin", "SLURM_CONF=x", "SBATCH_ACCOUNT=a", "E3_REPO=r"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestLines(t *testing.T) {
	var got []string
	l := &lines{visit: func(s string) { got = append(got, s) }}
	for _, part := range []string{"a", "b\nc", "\n\nd", strings.Repeat("x", 2*maxLine) + "\ne"} {
		l.Write([]byte(part))
	}
	l.end()
	want := []string{"ab", "c", "d" + strings.Repeat("x", maxLine-1), "e"}
	if !slices.Equal(got, want) {
		t.Errorf("got %.200q, want %.200q", got, want)
	}
}

func TestLogs(t *testing.T) {
	parent := t.TempDir()
	now := time.Now()
	l, err := openLogs(parent, modes.Modes{}, now)
	if err != nil {
		t.Fatal(err)
	}
	if got := l.read("t", 0); got != "" {
		t.Errorf("a log that is not there: got %q", got)
	}
	text := strings.Repeat("an earlier line\n", 1000) + "one\n\n  two\xff\nsh: e3: not found\n"
	if err := os.WriteFile(l.path("t", 0), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, want := l.read("t", 0), "an earlier line; an earlier line; one; two�; sh: e3: not found"; got != want {
		t.Errorf("the end of a log: got %q, want %q", got, want)
	}
	if _, err := openLogs(parent, modes.Modes{}, now.Add(logsKept/2)); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(l.dir); err != nil {
		t.Errorf("the folder of another submitter, which may be at work: %v", err)
	}
	if _, err := openLogs(parent, modes.Modes{}, now.Add(2*logsKept)); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(l.dir); err == nil {
		t.Error("an old folder is still there")
	}
}

package profile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"e3/internal/format/record"
	"e3/internal/jobs/cluster"
	"e3/internal/jobs/queue"
)

func newJob(id string, policy record.Policy, labels ...string) queue.Job {
	return queue.Job{ID: id, Queue: "slurm", Workspace: "dev", Task: "task-" + id, Policy: policy, Labels: labels}
}

func TestDemands(t *testing.T) {
	s := answers(t, Options{Resources: map[string]string{"gpu": "gpu:a100", "db": ""}})
	tests := []struct {
		name string
		job  queue.Job
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
			args, err := s.Demands(&test.job)
			if want, ok := strings.CutPrefix(test.want, "!"); ok {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("got %v, %v, want an error about the %s", args, err, want)
				}
				return
			}
			const before, after = "--job-name=… ", " --comment=e3 …"
			got := strings.TrimSuffix(strings.Join(args, " "), after)
			if got = got[strings.Index(got, before)+len(before):]; err != nil || got != test.want {
				t.Errorf("got %q, %v, want %q", got, err, test.want)
			}
		})
	}
}

func TestValidArgs(t *testing.T) {
	for arg, want := range map[string]bool{
		"--partition=long": true, "-plong": true, "--exclusive": true, "--array=1": false, "-a1": false, "--wrap=x": false, "--comment": false,
		"-o": false, "-ox": false, "--": false, "-W": false, "--overcommit": true,
	} {
		if got := !slurm(t).matches("reserved", arg); got != want {
			t.Errorf("argument %q: allowed %t, want %t", arg, got, want)
		}
	}
}

func TestCleanEnv(t *testing.T) {
	got := answers(t, Options{Env: []string{"PATH=/bin", "SLURM_CONF=x", "SLURM_JOB_ID=1", "SLURM_MEM_PER_NODE=1", "SQUEUE_FORMAT=x", "SBATCH_ACCOUNT=a", "SBATCH_WAIT=1", "E3_REPO=r"}}).c.Env
	got = got[max(0, len(got)-4):]
	want := []string{"PATH=/bin", "SLURM_CONF=x", "SBATCH_ACCOUNT=a", "E3_REPO=r"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// answers makes Slurm's commands print files of testdata, which Slurm 22.05 printed for jobs of all kinds, one of them not e3's.
func answers(t testing.TB, o Options) *Scheduler {
	t.Helper()
	bin := t.TempDir()
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for name, script := range map[string]string{
		"sbatch": "cat", "scancel": "exit 0", "squeue": "cat '" + here + "/testdata/squeue.txt'",
		"scontrol": `case "$*" in *config*) ;; *) cat '` + here + "/testdata/scontrol.txt' ;; esac",
	} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	o.Env = append(os.Environ(), o.Env...)
	s, err := slurm(t).Scheduler(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func slurm(t testing.TB) *Profile {
	t.Helper()
	text, err := Shipped.ReadFile("profiles/slurm.yaml")
	if err != nil {
		t.Fatal(err)
	}
	p, err := Decode("slurm", "slurm.yaml", text)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// line is what was read of a job.
func line(l cluster.Listed) string {
	return fmt.Sprintf("%s %d %s %d %s %s/%s/%s/%s", l.ID, l.Index, l.Token, l.State, l.Node, l.Said, l.Held, l.Reason, l.How)
}

func TestList(t *testing.T) {
	var got []string
	if err := answers(t, Options{}).List(t.Context(), func(l cluster.Listed) { got = append(got, line(l)) }); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"1 1 TOKENA 3 n2 CANCELLED None//cancelled/was cancelled",
		"2 0 TOKENB 2 n2 FAILED NonZeroExitCode//lost/has failed",
		"3 0 TOKENC 2 n2 FAILED NonZeroExitCode//lost/has failed",
		"4 0 TOKEND 2 n2 FAILED JobLaunchFailure//lost/has failed",
		"7 0 TOKENF 3  FAILED BadConstraints//cannot start/was refused: FAILED BadConstraints",
		"1 2 TOKENA 0  PENDING Priority///",
		"1 3 TOKENA 0  PENDING Priority///",
		"4 1 TOKEND 0  PENDING Priority///",
		"8 0 TOKENG 0  PENDING Resources///",
		"9 0 TOKENH 0  PENDING BeginTime///",
		"9 1 TOKENH 0  PENDING BeginTime///",
		"9 2 TOKENH 0  PENDING BeginTime///",
		"6 0 TOKENE 0  PENDING JobHeldUser/PENDING JobHeldUser//",
		"1 0 TOKENA 0 n1 RUNNING None///",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestExplain(t *testing.T) {
	var got []string
	if err := answers(t, Options{}).Explain(t.Context(), "1", "", func(l cluster.Listed) { got = append(got, line(l)) }); err != nil {
		t.Fatal(err)
	}
	want := []string{ // without pending tasks that share a line, which squeue lists
		" 1  3 n2 CANCELLED None//cancelled/was cancelled",
		" 0  0 n1 RUNNING None///",
		" 0  3 n2 FAILED NonZeroExitCode//lost/failed: e3 worker exited with code 3",
		" 0  3 n2 FAILED NonZeroExitCode//cannot start/could not start e3 on its node",
		" 1  0  PENDING Priority///",
		" 0  3 n2 FAILED JobLaunchFailure//lost/was ended by signal 9",
		" 0  0 n2 RUNNING None///", // one whose name lies, which none of ours can
		" 0  0  PENDING JobHeldUser/PENDING JobHeldUser//",
		" 0  3  FAILED BadConstraints//cannot start/was refused: FAILED BadConstraints",
		" 0  0  PENDING Resources///",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// Kinds of what Slurm says of a job: its state, and the reason.
func TestKind(t *testing.T) {
	p := slurm(t)
	for said, want := range map[string]string{
		"CANCELLED None": "cancelled", "CANCELLED by 7": "cancelled", "TIMEOUT TimeLimit": "timeout", "DEADLINE None": "timeout", "OUT_OF_MEMORY OutOfMemory": "oom",
		"NODE_FAIL None": "lost", "PREEMPTED None": "lost", "COMPLETED None": "done", "FAILED NonZeroExitCode": "failed", "FAILED+STAGE_OUT None": "failed",
		"COMPLETING None": "ending", "PENDING None": "", "RUNNING None": "", "REQUEUED": "", "SUSPENDED": "",
		"PENDING BadConstraints": "held", "PENDING PartitionTimeLimit": "held", "PENDING JobHeldUser": "held", "PENDING launch_failed_requeued_held": "held",
		"PENDING QOSMaxMemoryPerJob": "held", "PENDING AssocMaxCpuPerJobLimit": "held", "PENDING Priority": "", "PENDING Resources": "",
		"PENDING QOSMaxJobsPerUserLimit": "", "PENDING BeginTime": "",
	} {
		if got := p.Kind(said); got != want {
			t.Errorf("%s: got %q, want %q", said, got, want)
		}
	}
}

func TestSubmit(t *testing.T) {
	s := answers(t, Options{})
	for script, want := range map[string]string{"12\n": "12", "12;cluster\n": "12", "be kind\n 13\n": "13", "": "", "Submitted batch job 12\n": "", "-1": ""} {
		id, err := s.Submit(t.Context(), &cluster.Batch{Token: "t", Name: "e3:dev.a b", Script: script, Jobs: []queue.Job{{}}})
		if id != want || want == "" && !errors.Is(err, cluster.ErrTemporary) {
			t.Errorf("sbatch printed %q: got %q, %v, want %q", script, id, err, want)
		}
	}
}

//go:build linux

package profile_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"e3/internal/jobs/cluster"
	"e3/internal/jobs/dispatch"
	"e3/internal/jobs/profile"
	"e3/internal/jobs/queue"
	"e3/internal/testing/suite"
)

// One task of an array has failed, another is no longer listed, and two are pending: scontrol shows both in one line,
// or names only some of them. A task that is not listed is given up only after the next poll also asked for it, and a
// listed one never.
func TestSomeOfAnArray(t *testing.T) {
	suite.Thorough(t)
	for _, shown := range []string{"2-3", "..."} {
		t.Run(shown, func(t *testing.T) {
			bin := t.TempDir()
			comment, polls := filepath.Join(bin, "comment"), filepath.Join(bin, "polls")
			for name, script := range map[string]string{
				"sbatch": `cat >/dev/null
for a; do case "$a" in --comment=*) echo "${a#--comment=}" >` + comment + `;; esac; done
echo 10`,
				"squeue": `echo >>` + polls + `
c=$(cat ` + comment + `)
echo "11|10|0|FAILED|n1|NonZeroExitCode|$c"
echo "10|10|2|PENDING||Resources|$c"
echo "10|10|3|PENDING||Resources|$c"`,
				"scontrol": `case "$*" in *config*) echo "MaxArraySize = 1001"; exit 0;; esac
echo "JobId=11 ArrayJobId=10 ArrayTaskId=0 JobName=e3:t JobState=FAILED Reason=NonZeroExitCode ExitCode=3:0 BatchHost=n1"
echo "JobId=10 ArrayJobId=10 ArrayTaskId=` + shown + ` JobName=e3:t JobState=PENDING Reason=Resources ExitCode=0:0"`,
				"scancel": `exit 0`,
			} {
				if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
			scheduler, err := slurm(t).Scheduler(profile.Options{Env: os.Environ()})
			if err != nil {
				t.Fatal(err)
			}
			s := cluster.New(scheduler, cluster.Options{Program: "e3", Repo: "r", Warn: func(string) {}})
			defer s.Close()
			count := func() int {
				said, _ := os.ReadFile(polls)
				return bytes.Count(said, []byte("\n"))
			}
			var mu sync.Mutex
			var got []dispatch.Gone
			s.Gone(func(g dispatch.Gone) {
				mu.Lock()
				defer mu.Unlock()
				if got = append(got, g); g.ID == "missing" && count() < 2 {
					t.Error("what is not listed was given up after one poll, want two")
				}
			})
			var jobs []queue.Job
			for _, id := range []string{"failed", "missing", "waits.1", "waits.2"} {
				jobs = append(jobs, queue.Job{ID: id, Queue: "slurm", Workspace: "dev", Task: "t"})
			}
			if err := s.Submit(t.Context(), jobs); err != nil {
				t.Fatal(err)
			}
			gone := func() int {
				mu.Lock()
				defer mu.Unlock()
				return len(got)
			}
			for last := time.Now().Add(limit); time.Now().Before(last) && gone() < 2; {
				time.Sleep(20 * time.Millisecond)
			}
			for more := count() + 2; count() < more; { // none of the others is gone after that
				time.Sleep(20 * time.Millisecond)
			}
			mu.Lock()
			defer mu.Unlock()
			var ids []string
			for _, g := range got {
				ids = append(ids, g.ID)
			}
			if !slices.Equal(ids, []string{"failed", "missing"}) {
				t.Errorf("gone are %q, want none that waits: %+v", ids, got)
			}
			if len(got) > 0 && !strings.Contains(got[0].Message, "exited with code 3") {
				t.Errorf("of the failed one is said %q", got[0].Message)
			}
		})
	}
}

//go:build linux

package worker_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"e3/internal/jobs/queue"
	"e3/internal/jobs/worker"
)

// A worker that stands still for longer than its lease has lost its jobs. Another worker of the host gets its command, or
// the end of it, from the supervisor, so the command does not run twice; and the first worker, once it goes on, changes
// nothing.
func TestStandsStill(t *testing.T) {
	for _, name := range []string{"ended before", "ends later", "given up elsewhere"} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			t.Setenv(victimLease, time.Second.String())
			l, pid, _ := r.victimProcess()
			first := r.until(l.Job, func(j *queue.Job) bool { return !j.Started.IsZero() }).Execution
			stop(t, pid)
			if name != "ends later" {
				r.letGo(l)
			}
			if name == "given up elsewhere" {
				r.givenUpElsewhere(l, first, time.Millisecond)
			}
			w := r.work(time.Second, worker.Options{})
			r.waitFor("the command is adopted", func() bool { return w.count(worker.JobAdopted, "left") > 0 })
			if name == "ends later" {
				signal(t, pid, syscall.SIGCONT)
				r.letGo(l)
			}
			j := r.ended(l.Job)
			begun, err := os.ReadFile(filepath.Join(l.dir, "begun"))
			r.must(err)
			if j.Status != queue.Succeeded || strings.Count(string(begun), "\n") != 1 {
				t.Errorf("the job is %s after %d attempts, lost %+v, begun by %q; want a success of one command", j.Status, j.Attempts, j.Lost, begun)
			}
			if name != "ends later" {
				signal(t, pid, syscall.SIGCONT)
			}
			r.ended(r.enqueue(`touch "$out"`, nil)) // by any of them
			if after := r.ended(l.Job); after.Outcome.ExecutionID != j.Outcome.ExecutionID || r.result(after).OutputHash != r.result(j).OutputHash {
				t.Errorf("the job has another end: %+v, and had %+v", after.Outcome, j.Outcome)
			}
		})
	}
}

// stop stops a process in a moment in which it has no lock of records: all others would wait until it goes on.
func stop(t *testing.T, pid int) {
	t.Helper()
	for {
		signal(t, pid, syscall.SIGSTOP)
		for !stands(t, pid) {
			<-time.After(time.Millisecond)
		}
		if !locksRecords(t, pid) {
			return
		}
		signal(t, pid, syscall.SIGCONT)
		<-time.After(time.Millisecond)
	}
}

// stands tells whether all threads of a process are stopped.
func stands(t *testing.T, pid int) bool {
	t.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil || len(threads) == 0 {
		t.Fatalf("process %d has no threads: %v", pid, err)
	}
	for _, path := range threads {
		text, err := os.ReadFile(path)
		if at := strings.LastIndex(string(text), ") "); err == nil && !strings.HasPrefix(string(text)[at+2:], "T") {
			return false
		}
	}
	return true
}

// locksRecords tells whether a process has the lock of a shard of records.
func locksRecords(t *testing.T, pid int) bool {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		target, err := os.Readlink(path)
		if err != nil || !strings.Contains(target, "/locks/records/") {
			continue
		}
		info, err := os.ReadFile(strings.Replace(path, "/fd/", "/fdinfo/", 1))
		if err == nil && strings.Contains(string(info), "\nlock:") {
			return true
		}
	}
	return false
}

func signal(t *testing.T, pid int, s syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(pid, s); err != nil {
		t.Fatal(err)
	}
}

//go:build linux

package e2e

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"e3/internal/testing/suite"
)

// stoodStill is longer than the four fifths of a lease for which a start in a folder, which has the default of 15 s, relies on a renewal.
const stoodStill = 13 * time.Second

// The process of the run is suspended for longer than its lease. In a folder nothing was lost by that: its job is cancelled, and
// the run is told. Elsewhere its session was lost, and it goes on with another one.
func (s *clusterSite) standsStill(t *testing.T) {
	l := s.long(t, "still")
	job := l.begun(1)
	syscall.Kill(l.x.cmd.Process.Pid, syscall.SIGSTOP) // as Ctrl-Z does, and a laptop that sleeps
	time.Sleep(stoodStill)
	syscall.Kill(l.x.cmd.Process.Pid, syscall.SIGCONT)
	if s.store != nil {
		l.succeeds(1)
		return
	}
	s.cluster.Cancel(job)
	r := s.ends(t, l.x, 1)
	if failure := r.failed(t, "long"); !strings.Contains(failure, "Slurm's job "+job) || !strings.Contains(failure, "cancelled") {
		t.Errorf("the task has failed by %q, want a word about Slurm's job %s", failure, job)
	}
	s.once(t, l.p, r)
}

// The same with workers in a folder: what is approved goes on, and what is cancelled ends, though its worker is gone
// and only the run looks after it.
func TestStartStandsStill(t *testing.T) {
	suite.Thorough(t)
	t.Parallel()
	f := newFleet(t, "folder", fleetLease, 1, map[string]string{"e3.yaml": marking(fleetGraph + askedTask)})
	a := f.machines[0]
	w := a.worker()
	x := f.atLong(a)
	f.announced()
	a.stop(x)
	time.Sleep(stoodStill)
	a.wake(x)
	if r := a.e3("approve", "w.asked"); r.code != 0 {
		t.Fatalf("approve: exit code %d\n%s", r.code, r.text())
	}
	f.begins("asked", 1)
	w.kill(true)
	syscall.Kill(x.pid(), syscall.SIGINT)
	if !x.endsIn(20 * time.Second) {
		t.Fatalf("it has not ended 20 s after it was told to\n%s", x.result().text())
	}
	if r := x.result(); r.code != 130 || strings.Contains(r.stderr, "was told to end") {
		t.Errorf("exit code %d, want 130 and no word of a job that goes on\n%s", r.code, r.text())
	}
}

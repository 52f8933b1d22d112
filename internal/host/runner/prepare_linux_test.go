package runner_test

import "testing"

// A supervising process that was prepared serves the runs that follow, and ends with its client.
func TestPrepare(t *testing.T) {
	s := newSupervisor(t)
	s.Prepare()
	s.Prepare()
	first := output(t, s, shell(t, "echo $PPID", t.TempDir()))
	s.Prepare()
	if second := output(t, s, shell(t, "echo $PPID", t.TempDir())); second != first {
		t.Errorf("two commands have the supervisors %q and %q", first, second)
	}
	s = newSupervisor(t)
	s.Prepare()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Run(t.Context(), shell(t, "true", t.TempDir())); !isClosed(err) {
		t.Errorf("run after Close: %v, want ErrClosed", err)
	}
}

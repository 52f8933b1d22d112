package testserver_test

import (
	"strings"
	"testing"

	"e3/internal/testing/suite"
	"e3/internal/testing/testserver"
)

func TestSlurm(t *testing.T) {
	suite.Thorough(t)
	s := testserver.NewSlurm(t, testserver.SlurmNodes())
	if got := strings.TrimSpace(s.Run("srun", "--constraint=small", "hostname")); got != "n2" {
		t.Errorf("hostname on the node with feature small: got %q, want n2", got)
	}
	s.StopController()
	s.StartController()
	if got := strings.TrimSpace(s.Run("srun", "--gres=tape:1", "hostname")); got != "n1" {
		t.Errorf("hostname on the node with a tape after a restart of the controller: got %q, want n1", got)
	}
}

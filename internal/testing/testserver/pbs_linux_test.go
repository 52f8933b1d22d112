package testserver_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"e3/internal/testing/suite"
	"e3/internal/testing/testserver"
)

func TestPBS(t *testing.T) {
	suite.Thorough(t)
	p := testserver.NewPBS(t, testserver.SlurmNodes())
	script := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(script, []byte("#!/bin/sh\nexec sleep 100\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	id := strings.TrimSpace(p.Run("qsub", "-V", "-N", "long", "-j", "oe", "-o", "/dev/null", "-l", "nodes=1:ppn=2,mem=100mb", script))
	if list := p.Run("qstat"); !strings.Contains(list, id+" ") || !strings.Contains(list, "long ") {
		t.Errorf("qstat says\n%s, want job %s named long", list, id)
	}
	p.Run("qdel", id)
}

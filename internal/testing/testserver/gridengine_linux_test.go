package testserver_test

import (
	"strings"
	"testing"
	"time"

	"e3/internal/testing/suite"
	"e3/internal/testing/testserver"
)

func TestGridEngine(t *testing.T) {
	suite.Thorough(t)
	began := time.Now()
	g := testserver.NewGridEngine(t, 4, "n1", "n2")
	t.Logf("started in %v", time.Since(began))
	submit := func(args ...string) string {
		t.Helper()
		return strings.TrimSpace(g.Run("qsub", append(strings.Fields("-terse -o /dev/null -j y -b y"), args...)...))
	}
	over := func() {
		t.Helper()
		began := time.Now()
		for len(g.Jobs()) > 0 {
			if time.Since(began) > time.Minute {
				t.Fatalf("jobs do not end: %+v\n%s\n%s", g.Jobs(), g.Run("qstat", "-f"), g.Logs())
			}
			time.Sleep(100 * time.Millisecond)
		}
		t.Logf("jobs ended in %v", time.Since(began))
	}
	submit("-pe", "smp", "2", "true")
	over()
	id := submit("-N", "long", "sleep", "100")
	if jobs := g.Jobs(); len(jobs) != 1 || jobs[0].ID != id || jobs[0].Name != "long" {
		t.Errorf("jobs are %+v, want that of id %s", jobs, id)
	}
	g.StopController()
	g.StartController()
	g.Cancel(id)
	submit("-N", "afterwards", "true")
	over()
}

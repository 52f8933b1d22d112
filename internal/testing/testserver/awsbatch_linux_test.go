package testserver_test

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"e3/internal/testing/suite"
	"e3/internal/testing/testserver"
)

func TestAWSBatch(t *testing.T) {
	suite.Thorough(t)
	began := time.Now()
	b := testserver.NewAWSBatch(t, nil, 2)
	t.Logf("started in %v", time.Since(began))
	file := filepath.Join(t.TempDir(), "file")
	submit := func(name, script string) string {
		t.Helper()
		return strings.TrimSpace(b.Run("aws", "batch", "submit-job", "--job-name", name, "--job-queue", "main", "--job-definition", "e3", "--query", "jobId", "--output", "text",
			"--container-overrides", `{"command": ["sh", "-c", "`+script+`"]}`))
	}
	long := submit("long", "sleep 100")
	submit("good", "echo $E2E_JOB > "+file)
	bad := submit("bad", "exit 3")
	b.Cancel(long)
	for began := time.Now(); len(b.Jobs()) > 0; {
		if time.Since(began) > time.Minute {
			t.Fatalf("jobs do not end: %+v", b.Jobs())
		}
	}
	list := b.Run("aws", "batch", "list-jobs", "--job-queue", "main", "--filters", "name=JOB_NAME,values=*", "--query", "jobSummaryList[].[jobId,status,container.exitCode]", "--output", "text")
	for _, want := range []string{long + "\tFAILED\t137\n", bad + "\tFAILED\t3\n", "\tSUCCEEDED\t0\n"} {
		if !strings.Contains(list, want) {
			t.Errorf("jobs are\n%s, want %q", list, want)
		}
	}
}

package testserver_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"e3/internal/testing/suite"
	"e3/internal/testing/testserver"
)

const kubernetesJob = `{"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "NAME"}, "spec": {"backoffLimit": 0, "activeDeadlineSeconds": 60,
	"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "worker", "image": "none", "command": ["sh", "-c", "SCRIPT"]}]}}}}`

func TestKubernetes(t *testing.T) {
	suite.Thorough(t)
	began := time.Now()
	k := testserver.NewKubernetes(t, nil, 4, "n1", "n2")
	t.Logf("started in %v", time.Since(began))
	submit := func(name, script string) {
		t.Helper()
		cmd := exec.Command("kubectl", "apply", "-f", "-")
		cmd.Env = append(os.Environ(), k.Env()...)
		cmd.Stdin = strings.NewReader(strings.NewReplacer("NAME", name, "SCRIPT", script).Replace(kubernetesJob))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("kubectl apply: %v %s", err, out)
		}
	}
	becomes := func(name, want string) {
		t.Helper()
		began := time.Now()
		for {
			got := k.Run("kubectl", "get", "job", name, `-o=jsonpath={range .status.conditions[?(@.status=="True")]}{.type}:{.reason} {end}`)
			if strings.Contains(got, want) {
				return
			}
			if time.Since(began) > time.Minute {
				t.Fatalf("job %s is %q, want %s\n%s", name, got, want, k.Logs())
			}
			time.Sleep(100 * time.Millisecond)
		}
	}
	submit("good", "exit 0")
	becomes("good", "Complete:")
	submit("bad", "exit 3")
	becomes("bad", "Failed:BackoffLimitExceeded")
	if got := k.Run("kubectl", "get", "pods", "-l", "job-name=bad", "-o=jsonpath={.items[*].status.containerStatuses[0].state.terminated.exitCode}"); got != "3" {
		t.Errorf("the pod's exit code is %q, want 3", got)
	}
	submit("long", "exec sleep 100")
	k.StopController()
	k.StartController()
	submit("good2", "exit 0")
	becomes("good2", "Complete:")
	k.Crash("n1")
	k.Crash("n2")
	becomes("long", "FailureTarget:")
	if jobs := k.Jobs(); len(jobs) > 0 {
		t.Errorf("jobs go on: %+v", jobs)
	}
}

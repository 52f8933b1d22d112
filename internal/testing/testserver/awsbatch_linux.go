package testserver

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

//go:embed batchjobs.py
var batchJobs string

//go:embed awscommand.py
var awsCommand string

// motoPackages are PyPI's: the service, and the command.
var motoPackages = []string{"moto[server,batch]==5.2.5", "awscli==1.46.3"}

var pipMoto = &installable{
	name:    "moto",
	program: "bin/aws",
	limit:   15 * time.Minute,
	command: func(ctx context.Context, dir string) (*exec.Cmd, error) {
		if os.Getenv("E3_TEST_INSTALL") == "" { // not where $CI is set: it takes longer than tests may
			return nil, errors.New("they are not installed")
		}
		python, err := exec.LookPath("python3")
		if err != nil {
			return nil, err
		}
		return exec.CommandContext(ctx, python, append([]string{"-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target=" + dir}, motoPackages...)...), nil
	},
}

// An AWSBatch is moto's AWS Batch, with a queue "main" and a job definition "e3". Its containers are processes of this machine, which get no
// variables but those that begin with E2E_ or E3_, and the job's.
type AWSBatch struct {
	*site
	port int
}

// NewAWSBatch starts a service that executes so many jobs at a time. Containers have the variables env. Its programs are what pip
// installs where $E3_TEST_INSTALL is set.
func NewAWSBatch(tb TB, env []string, jobs int) *AWSBatch {
	tb.Helper()
	needRoot(tb, "AWS Batch")
	program, err := pipMoto.install()
	if err != nil {
		tb.Skipf("no AWS Batch: %v (set E3_TEST_INSTALL=1, which has pip install %s)", err, strings.Join(motoPackages, " "))
	}
	b := &AWSBatch{}
	b.site = newSite(tb, "AWS Batch", func(s *site) error {
		b.site = s
		return b.begin(filepath.Dir(filepath.Dir(program)), jobs, env)
	})
	return b
}

func (b *AWSBatch) begin(folder string, jobs int, env []string) error {
	ports, err := freePorts(1)
	if err != nil {
		return err
	}
	b.port = ports[0]
	b.env = append(Env(), fmt.Sprintf("AWS_ENDPOINT_URL_BATCH=http://127.0.0.1:%d", b.port), fmt.Sprintf("AWS_ENDPOINT_URL_IAM=http://127.0.0.1:%d", b.port),
		"AWS_DEFAULT_REGION="+Region, "PATH="+b.path("bin")+":"+os.Getenv("PATH"))
	found, err := exec.Command("python3", "-c", "import sys; print(sys.executable)").Output() // the program itself, where python3 is a script that looks for it
	if err != nil {
		return err
	}
	python := strings.TrimSpace(string(found))
	aws := fmt.Sprintf(`#!%s -ISs
import socket, sys
c = socket.socket(socket.AF_UNIX)
c.connect(%q)
socket.send_fds(c, ["\0".join(sys.argv[1:]).encode()], [0, 1, 2])
sys.exit(int(c.recv(16) or 1))
`, python, b.path("aws.socket"))
	if err := errors.Join(os.Mkdir(b.path("log"), 0o755), os.Mkdir(b.path("bin"), 0o755), os.WriteFile(b.path("bin", "aws"), []byte(aws), 0o755),
		os.WriteFile(b.path("batchjobs.py"), []byte(batchJobs), 0o644), os.WriteFile(b.path("awscommand.py"), []byte(awsCommand), 0o644)); err != nil {
		return err
	}
	// To the command, and in moto, these are errors if they are empty.
	plain := []string{"env", "-u", "AWS_CA_BUNDLE", "-u", "AWS_PROFILE", python}
	if err := b.start("aws", slices.Concat(b.env, []string{"PYTHONPATH=" + folder}), append(plain, b.path("awscommand.py"), b.path("aws.socket"))...); err != nil {
		return err
	}
	if err := b.until("aws", func() bool { _, err := os.Stat(b.path("aws.socket")); return err == nil }); err != nil {
		return err
	}
	server := append(plain, b.path("batchjobs.py"), fmt.Sprint(jobs), "--host=127.0.0.1", fmt.Sprintf("--port=%d", b.port))
	if err := b.start("moto", slices.Concat(b.env, []string{"PYTHONPATH=" + folder}, env), server...); err != nil {
		return err
	}
	if err := b.processes["moto"].answers(fmt.Sprintf("http://127.0.0.1:%d/moto-api/data.json", b.port)); err != nil {
		return err
	}
	for _, args := range [][]string{
		{"iam", "create-role", "--role-name", "e3", "--assume-role-policy-document", "{}"},
		{"batch", "create-compute-environment", "--compute-environment-name", "nodes", "--type", "UNMANAGED", "--state", "ENABLED", "--service-role", "arn:aws:iam::123456789012:role/e3"},
		{"batch", "create-job-queue", "--job-queue-name", "main", "--state", "ENABLED", "--priority", "1", "--compute-environment-order", "order=1,computeEnvironment=nodes"},
		{"batch", "register-job-definition", "--job-definition-name", "e3", "--type", "container", "--container-properties",
			`{"image": "none", "resourceRequirements": [{"type": "VCPU", "value": "1"}, {"type": "MEMORY", "value": "512"}], "command": ["true"]}`},
	} {
		if _, err := b.output("aws", args...); err != nil {
			return err
		}
	}
	return nil
}

// On is the service for a part of the test.
func (b *AWSBatch) On(tb TB) Cluster {
	part := *b.site
	part.tb = tb
	return &AWSBatch{&part, b.port}
}

// Jobs lists the jobs that are not over. Which wait for their turn it does not tell.
func (b *AWSBatch) Jobs() (jobs []Job) {
	b.tb.Helper()
	out := b.Run("aws", "batch", "list-jobs", "--job-queue", "main", "--filters", "name=JOB_NAME,values=*", "--query", "jobSummaryList[].[jobId,status,jobName]", "--output", "text")
	for line := range strings.Lines(out) {
		if words := strings.Fields(line); words[1] != "SUCCEEDED" && words[1] != "FAILED" {
			jobs = append(jobs, Job{ID: words[0], Name: words[2], Running: words[1] == "RUNNING"})
		}
	}
	return jobs
}

// Cancel is terminate-job.
func (b *AWSBatch) Cancel(id string) {
	b.tb.Helper()
	b.Run("aws", "batch", "terminate-job", "--job-id", id, "--reason", "by hand")
}

// StopController has the service not answer, as what it knows is in its memory alone.
func (b *AWSBatch) StopController() {
	b.tb.Helper()
	b.signal("moto", 0, syscall.SIGSTOP)
}

// StartController ends that.
func (b *AWSBatch) StartController() {
	b.tb.Helper()
	b.signal("moto", 0, syscall.SIGCONT)
}

package testserver

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// podGrace is how long a container may go on after it was told to end. In a cluster it is half a minute.
const podGrace = 5 * time.Second

// A podRunner stands in for the controller of Jobs, the scheduler, and the kubelets: for each Job that the API server has it creates
// one pod, executes its container's command in namespaces of its own when a node has room, and tells the status of both. It
// knows no second attempt: backoffLimit must be 0.
type podRunner struct {
	client *http.Client
	url    string
	env    []string
	stop   context.CancelFunc
	wait   sync.WaitGroup

	mu    sync.Mutex
	room  map[string]int  // of a node: how many pods it still takes
	pods  map[string]*pod // by the uid of their jobs; those that are over are kept, as their jobs are
	moved chan struct{}   // closed and replaced when a node has more room
}

// A pod is a Job's.
type pod struct {
	job  kubeJob
	name string
	end  context.CancelCauseFunc

	mu      sync.Mutex
	node    string
	running bool
	over    bool
}

// Why a pod ended before its command did.
var (
	errPodDeleted  = errors.New("its job was deleted")
	errPodDeadline = errors.New("its job's deadline is over")
	errPodNode     = errors.New("its node is gone")
)

// A kubeMeta is what all objects have.
type kubeMeta struct {
	Name            string            `json:"name"`
	UID             string            `json:"uid,omitempty"`
	ResourceVersion string            `json:"resourceVersion,omitempty"`
	Labels          map[string]string `json:"labels,omitempty"`
}

// A kubeJob is what matters of a Job here.
type kubeJob struct {
	Metadata kubeMeta `json:"metadata"`
	Spec     struct {
		ActiveDeadlineSeconds int64 `json:"activeDeadlineSeconds"`
		Template              struct {
			Metadata kubeMeta       `json:"metadata"`
			Spec     map[string]any `json:"spec"`
		} `json:"template"`
	} `json:"spec"`
	Status struct {
		Conditions []struct{ Type string } `json:"conditions"`
	} `json:"status"`
}

const (
	kubeJobs = "/apis/batch/v1/namespaces/default/jobs"
	kubePods = "/api/v1/namespaces/default/pods"
)

func newPodRunner(client *http.Client, url string, env []string, pods int, nodes []string) *podRunner {
	ctx, stop := context.WithCancel(context.Background())
	r := &podRunner{client: client, url: url, env: env, stop: stop, room: make(map[string]int), pods: make(map[string]*pod), moved: make(chan struct{})}
	for _, node := range nodes {
		r.room[node] = pods
	}
	r.wait.Go(func() { r.follow(ctx) })
	return r
}

// end ends all pods.
func (r *podRunner) end() {
	r.stop()
	r.wait.Wait()
}

// follow executes what the API server has, also after that was away.
func (r *podRunner) follow(ctx context.Context) {
	for ctx.Err() == nil {
		if err := r.watch(ctx); err != nil {
			pause(ctx)
		}
	}
}

func pause(ctx context.Context) {
	select {
	case <-time.After(100 * time.Millisecond):
	case <-ctx.Done():
	}
}

// watch lists the jobs, and then sees what becomes of them.
func (r *podRunner) watch(ctx context.Context) error {
	var list struct {
		Metadata kubeMeta  `json:"metadata"`
		Items    []kubeJob `json:"items"`
	}
	if err := r.call(ctx, http.MethodGet, kubeJobs, nil, &list); err != nil {
		return err
	}
	there := make(map[string]bool)
	for _, job := range list.Items {
		there[job.Metadata.UID] = true
		r.begin(ctx, job)
	}
	r.mu.Lock()
	for uid, p := range r.pods {
		if !there[uid] {
			p.end(errPodDeleted)
		}
	}
	r.mu.Unlock()
	body, err := r.open(ctx, http.MethodGet, kubeJobs+"?watch=1&resourceVersion="+list.Metadata.ResourceVersion, nil)
	if err != nil {
		return err
	}
	defer body.Close()
	for d := json.NewDecoder(body); ; {
		var event struct {
			Type   string
			Object kubeJob
		}
		if err := d.Decode(&event); err != nil {
			return err
		}
		switch event.Type {
		case "ADDED":
			r.begin(ctx, event.Object)
		case "DELETED":
			r.mu.Lock()
			if p := r.pods[event.Object.Metadata.UID]; p != nil {
				p.end(errPodDeleted)
			}
			r.mu.Unlock()
		}
	}
}

// begin makes a pod for a new job.
func (r *podRunner) begin(ctx context.Context, job kubeJob) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pods[job.Metadata.UID] != nil || len(job.Status.Conditions) > 0 {
		return
	}
	ctx, end := context.WithCancelCause(ctx)
	p := &pod{job: job, name: job.Metadata.Name + "-pod", end: end}
	r.pods[job.Metadata.UID] = p
	r.wait.Go(func() {
		defer end(nil)
		r.execute(ctx, p)
	})
}

// execute is the life of a pod.
func (r *podRunner) execute(ctx context.Context, p *pod) {
	defer func() {
		p.mu.Lock()
		p.over, p.running = true, false
		p.mu.Unlock()
	}()
	outer := context.WithoutCancel(ctx)
	began := time.Now()
	if limit := p.job.Spec.ActiveDeadlineSeconds; limit > 0 {
		timer := time.AfterFunc(time.Duration(limit)*time.Second, func() { p.end(errPodDeadline) })
		defer timer.Stop()
	}
	spec := p.job.Spec.Template.Spec
	err := r.insist(ctx, http.MethodPost, kubePods, map[string]any{"apiVersion": "v1", "kind": "Pod", "spec": spec,
		"metadata": kubeMeta{Name: p.name, Labels: p.labels()}})
	if err == nil {
		err = r.status(ctx, kubeJobs, p.job.Metadata.Name, map[string]any{"startTime": stamp(began), "active": 1, "ready": 0})
	}
	node := ""
	if err == nil {
		node, err = r.take(ctx, p)
	}
	code := 0
	if err == nil {
		p.mu.Lock()
		p.node, p.running = node, true
		p.mu.Unlock()
		r.status(ctx, kubePods, p.name, map[string]any{"phase": "Running", "startTime": stamp(time.Now()), "conditions": scheduled("True", "", "")})
		r.status(ctx, kubeJobs, p.job.Metadata.Name, map[string]any{"ready": 1})
		code = r.contain(ctx, p)
		r.give(node)
		err = context.Cause(ctx)
	}
	p.mu.Lock()
	p.over, p.running = true, false
	p.mu.Unlock()
	if errors.Is(err, context.Canceled) { // the test ends
		return
	}
	if errors.Is(err, errPodDeleted) {
		r.insist(outer, http.MethodDelete, kubePods+"/"+p.name, map[string]any{"gracePeriodSeconds": 0})
		return
	}
	r.conclude(outer, p, code, err)
}

// conclude tells how a pod ended that was not deleted.
func (r *podRunner) conclude(ctx context.Context, p *pod, code int, err error) {
	ended := stamp(time.Now())
	condition := func(which, reason string) map[string]any {
		return map[string]any{"type": which, "status": "True", "reason": reason, "message": reason, "lastProbeTime": ended, "lastTransitionTime": ended}
	}
	state := func(phase, reason, message string) map[string]any {
		status := map[string]any{"phase": phase, "containerStatuses": []any{map[string]any{"name": "worker", "image": "e3", "imageID": "e3", "ready": false, "restartCount": 0,
			"state": map[string]any{"terminated": map[string]any{"exitCode": code, "reason": reason, "finishedAt": ended}}}}}
		if message != "" {
			status["reason"] = message
		}
		return status
	}
	job := map[string]any{"active": 0, "ready": 0}
	failed := "BackoffLimitExceeded"
	switch {
	case err == nil && code == 0:
		r.status(ctx, kubePods, p.name, state("Succeeded", "Completed", ""))
		job["succeeded"], job["completionTime"] = 1, ended
		job["conditions"] = []any{condition("SuccessCriteriaMet", "CompletionsReached"), condition("Complete", "CompletionsReached")}
		r.status(ctx, kubeJobs, p.job.Metadata.Name, job)
		return
	case errors.Is(err, errPodNode): // no kubelet tells the end of the pod, for which the job's waits
		r.status(ctx, kubePods, p.name, map[string]any{"reason": "NodeLost"})
		r.status(ctx, kubeJobs, p.job.Metadata.Name, map[string]any{"conditions": []any{condition("FailureTarget", failed)}})
		return
	case errors.Is(err, errPodDeadline):
		failed = "DeadlineExceeded"
		r.status(ctx, kubePods, p.name, state("Failed", "Error", failed))
	default:
		r.status(ctx, kubePods, p.name, state("Failed", "Error", ""))
	}
	job["failed"] = 1
	job["conditions"] = []any{condition("FailureTarget", failed), condition("Failed", failed)}
	r.status(ctx, kubeJobs, p.job.Metadata.Name, job)
}

// contain runs a pod's command, on a host of its name, and tells its exit code.
func (r *podRunner) contain(ctx context.Context, p *pod) int {
	containers, _ := p.job.Spec.Template.Spec["containers"].([]any)
	if len(containers) == 0 {
		return 127
	}
	container, _ := containers[0].(map[string]any)
	if container["image"] == missingImage {
		waiting := map[string]any{"reason": "ImagePullBackOff", "message": `Back-off pulling image "missing"`}
		r.status(ctx, kubePods, p.name, map[string]any{"phase": "Pending", "containerStatuses": []any{map[string]any{"name": "worker", "image": missingImage, "imageID": "", "ready": false,
			"restartCount": 0, "state": map[string]any{"waiting": waiting}}}})
		<-ctx.Done()
		return 1
	}
	var words []string
	for _, part := range []string{"command", "args"} {
		list, _ := container[part].([]any)
		for _, word := range list {
			words = append(words, fmt.Sprint(word))
		}
	}
	env := append([]string{"PATH=" + os.Getenv("PATH"), "E2E_JOB=" + p.job.Metadata.Name, "HOSTNAME=" + p.name}, r.env...)
	list, _ := container["env"].([]any)
	for _, v := range list {
		if v, ok := v.(map[string]any); ok {
			env = append(env, fmt.Sprintf("%v=%v", v["name"], cmp.Or(v["value"], any(""))))
		}
	}
	words = namespaced(p.name, words...)
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Env, cmd.Dir = env, "/"
	c, err := startCommand(cmd)
	if err != nil {
		return 127
	}
	select {
	case <-c.ended:
	case <-ctx.Done():
		if cause := context.Cause(ctx); errors.Is(cause, errPodDeleted) || errors.Is(cause, errPodDeadline) {
			c.terminate()
			select {
			case <-c.ended:
			case <-time.After(podGrace):
			}
		}
		c.stop()
	}
	if status := cmd.ProcessState.Sys().(syscall.WaitStatus); status.Signaled() {
		return 128 + int(status.Signal())
	}
	return cmd.ProcessState.ExitCode()
}

// terminate tells the first process in the namespaces of a process to end.
func (p *process) terminate() {
	children, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", p.cmd.Process.Pid, p.cmd.Process.Pid))
	var pid int
	if _, err := fmt.Sscan(string(children), &pid); err == nil {
		syscall.Kill(pid, syscall.SIGTERM)
	}
}

// labels are those of the pod.
func (p *pod) labels() map[string]string {
	labels := maps.Clone(p.job.Spec.Template.Metadata.Labels)
	if labels == nil {
		labels = make(map[string]string)
	}
	labels["job-name"], labels["batch.kubernetes.io/job-name"] = p.job.Metadata.Name, p.job.Metadata.Name
	return labels
}

// missingImage is the name of an image that no registry has.
const missingImage = "missing"

// take waits until a node has room. No node has labels.
func (r *podRunner) take(ctx context.Context, p *pod) (string, error) {
	selector, _ := p.job.Spec.Template.Spec["nodeSelector"].(map[string]any)
	told := ""
	for {
		r.mu.Lock()
		moved, nodes := r.moved, len(r.room)
		best := ""
		for node, room := range r.room {
			if room > 0 && (best == "" || room > r.room[best] || room == r.room[best] && node < best) {
				best = node
			}
		}
		why := "Insufficient cpu"
		if len(selector) > 0 {
			best, why = "", "node(s) didn't match Pod's node affinity/selector"
		}
		if best != "" {
			r.room[best]--
		}
		r.mu.Unlock()
		if best != "" {
			return best, nil
		}
		if told != why {
			told = why
			r.status(ctx, kubePods, p.name, map[string]any{"conditions": scheduled("False", "Unschedulable", fmt.Sprintf("0/%[1]d nodes are available: %[1]d %[2]s.", nodes, why))})
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	}
}

// scheduled are the conditions of a pod that has, or has no node.
func scheduled(status, reason, message string) []any {
	return []any{map[string]any{"type": "PodScheduled", "status": status, "reason": reason, "message": message, "lastTransitionTime": stamp(time.Now())}}
}

func (r *podRunner) give(node string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, there := r.room[node]; there {
		r.room[node]++
	}
	close(r.moved)
	r.moved = make(chan struct{})
}

// crash ends a node with all that runs there.
func (r *podRunner) crash(node string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.room, node)
	for _, p := range r.pods {
		p.mu.Lock()
		if p.node == node && p.running {
			p.end(errPodNode)
		}
		p.mu.Unlock()
	}
}

// jobs lists the jobs that are not over.
func (r *podRunner) jobs() (jobs []Job) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.pods {
		p.mu.Lock()
		if !p.over {
			jobs = append(jobs, Job{ID: p.job.Metadata.Name, Name: p.job.Metadata.Name, Node: p.node, Running: p.running})
		}
		p.mu.Unlock()
	}
	slices.SortFunc(jobs, func(a, b Job) int { return strings.Compare(a.ID, b.ID) })
	return jobs
}

// stamp is a time as the API has it.
func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// status patches the status of an object. One that is gone has none.
func (r *podRunner) status(ctx context.Context, kind, name string, status map[string]any) error {
	return r.insist(ctx, http.MethodPatch, kind+"/"+name+"/status", map[string]any{"status": status})
}

// insist makes a call until the API server has answered it.
func (r *podRunner) insist(ctx context.Context, method, path string, body any) error {
	for {
		err := r.call(ctx, method, path, body, nil)
		var refused *kubeRefusal
		if err == nil || errors.As(err, &refused) && refused.status < 500 && refused.status != http.StatusTooManyRequests || ctx.Err() != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if refused != nil && refused.status != http.StatusNotFound && refused.status != http.StatusConflict {
				fmt.Fprintln(os.Stderr, "Kubernetes's stand-in:", err)
			}
			return nil
		}
		pause(ctx)
	}
}

// A kubeRefusal is an answer that is none of success.
type kubeRefusal struct {
	status int
	text   string
}

func (e *kubeRefusal) Error() string { return fmt.Sprintf("status %d: %s", e.status, e.text) }

func (r *podRunner) call(ctx context.Context, method, path string, body, answer any) error {
	stream, err := r.open(ctx, method, path, body)
	if err != nil {
		return err
	}
	defer stream.Close()
	if answer == nil {
		_, err := io.Copy(io.Discard, stream)
		return err
	}
	return json.NewDecoder(stream).Decode(answer)
}

func (r *podRunner) open(ctx context.Context, method, path string, body any) (io.ReadCloser, error) {
	data, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, method, r.url+path, bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+kubernetesToken)
	req.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		req.Header.Set("Content-Type", "application/merge-patch+json")
	}
	resp, err := r.client.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode/100 != 2 {
		defer resp.Body.Close()
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 2<<10))
		return nil, &kubeRefusal{resp.StatusCode, string(text)}
	}
	return resp.Body, nil
}

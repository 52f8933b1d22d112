package worker_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"e3/internal/jobs/queue"
	"e3/internal/jobs/worker"
)

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	res, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(body)
}

func TestMetrics(t *testing.T) {
	r := newRig(t)
	m := worker.NewMetrics()
	s, err := worker.ServeMetrics(t.Context(), m, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	w := r.work(0, worker.Options{Metrics: m})
	good, bad := r.enqueue(`touch "$out"`, nil), r.enqueue(`exit 2`, nil)
	asks := r.enqueue(`exit 75`, func(j *queue.Job) { j.Policy.Suspend = 75 })
	other := r.enqueue(`true`, func(j *queue.Job) { j.Policy.Labels = []string{"none"} })
	r.ended(good)
	r.ended(bad)
	r.ended(asks)
	close(w.drain)
	if err := w.end(); err != nil {
		t.Fatal(err)
	}
	code, text := get(t, "http://"+s.Addr+"/metrics")
	if code != http.StatusOK {
		t.Errorf("code %d: %s", code, text)
	}
	for _, line := range []string{
		`e3_queue_depth{queue="` + other.Queue + `"} 1`, "e3_queue_running 0", "e3_attempts_total 3", "e3_jobs_suspended_total 1", "e3_jobs_succeeded_total 1",
		`e3_jobs_failed_total{reason="exit"} 1`, "e3_lease_losses_total 0", "e3_adoptions_total 0", "e3_job_wait_seconds_count 3",
	} {
		if !strings.Contains("\n"+text, "\n"+line+"\n") {
			t.Errorf("there is no line %q in\n%s", line, text)
		}
	}
	if strings.Contains(text, `reason="suspended"`) {
		t.Errorf("a command that waits for a person is counted as a failure:\n%s", text)
	}
	// The worker's counters are reported even if the store does not answer.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var counted strings.Builder
	if err := m.Write(ctx, &counted); err != nil || strings.Contains(counted.String(), "e3_queue_depth") || !strings.Contains(counted.String(), "e3_attempts_total 3\n") {
		t.Errorf("without a store: got %v\n%s", err, counted.String())
	}
	if code, text := get(t, "http://"+s.Addr+"/healthz"); code != http.StatusOK || text != "ok\n" {
		t.Errorf("/healthz: %d %q", code, text)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func TestMetricsAddress(t *testing.T) {
	for _, tt := range []struct{ addr, host string }{{"0", "127.0.0.1:"}, {":0", "127.0.0.1:"}, {"[::1]:0", "[::1]:"}} {
		s, err := worker.ServeMetrics(t.Context(), worker.NewMetrics(), tt.addr)
		if err != nil {
			if tt.addr == "[::1]:0" {
				t.Logf("no IPv6 here: %v", err)
				continue
			}
			t.Errorf("%s: %v", tt.addr, err)
			continue
		}
		if !strings.HasPrefix(s.Addr, tt.host) {
			t.Errorf("%s listens at %s", tt.addr, s.Addr)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	for _, addr := range []string{"", "nowhere", "1.2.3.4", "host:http", "70000", ":70000"} {
		if s, err := worker.ServeMetrics(t.Context(), worker.NewMetrics(), addr); err == nil {
			s.Close()
			t.Errorf("%q is taken for an address", addr)
		}
	}
}

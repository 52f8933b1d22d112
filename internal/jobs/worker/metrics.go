package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/VictoriaMetrics/metrics"
)

// Metrics are a worker's counters, for Prometheus. They are safe for concurrent use.
type Metrics struct {
	set       *metrics.Set
	running   atomic.Int64
	wait      *metrics.Summary
	attempts  *metrics.Counter
	succeeded *metrics.Counter
	suspended *metrics.Counter // commands that wait for approval; not failures
	losses    *metrics.Counter
	adoptions *metrics.Counter
	depth     atomic.Pointer[func(context.Context) (map[string]int, error)]
}

// NewMetrics returns counters at zero.
func NewMetrics() *Metrics {
	m := &Metrics{set: metrics.NewSet()}
	m.set.NewGauge("e3_queue_running", func() float64 { return float64(m.running.Load()) })
	m.wait = m.set.NewSummary("e3_job_wait_seconds")
	m.attempts = m.set.NewCounter("e3_attempts_total")
	m.succeeded = m.set.NewCounter("e3_jobs_succeeded_total")
	m.suspended = m.set.NewCounter("e3_jobs_suspended_total")
	m.losses = m.set.NewCounter("e3_lease_losses_total")
	m.adoptions = m.set.NewCounter("e3_adoptions_total")
	return m
}

// Running is the number of jobs that the worker runs.
func (m *Metrics) Running() int64 { return m.running.Load() }

// failed counts a failed job. Reasons come from this program, so there are few.
func (m *Metrics) failed(reason string) {
	m.set.GetOrCreateCounter(fmt.Sprintf("e3_jobs_failed_total{reason=%q}", reason)).Inc()
}

// Write writes all metrics in the text format of Prometheus. It reads the queues' depths anew, and omits them if the
// store cannot be reached.
func (m *Metrics) Write(ctx context.Context, w io.Writer) error {
	if depth := m.depth.Load(); depth != nil {
		depths, err := (*depth)(ctx)
		if err != nil {
			depths = nil
		}
		for _, queue := range slices.Sorted(maps.Keys(depths)) {
			if _, err := fmt.Fprintf(w, "e3_queue_depth{queue=%q} %d\n", queue, depths[queue]); err != nil {
				return err
			}
		}
	}
	m.set.WritePrometheus(w)
	return nil
}

// depthPatience bounds the wait for the store. It must be shorter than a client's timeout, which would lose all other
// metrics.
const depthPatience = 2 * time.Second

// A MetricsServer serves /metrics and /healthz.
type MetricsServer struct {
	Addr   string // where it listens
	server *http.Server
	done   chan error
	close  func() error
}

// ServeMetrics listens at an address: "host:port", or a port on this machine's loopback.
func ServeMetrics(ctx context.Context, m *Metrics, addr string) (*MetricsServer, error) {
	addr, err := metricsAddr(addr)
	if err != nil {
		return nil, err
	}
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("serve metrics: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") })
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), depthPatience)
		defer cancel()
		var text strings.Builder
		if err := m.Write(ctx, &text); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		_, _ = io.WriteString(w, text.String())
	})
	s := &MetricsServer{
		Addr: l.Addr().String(), done: make(chan error, 1),
		server: &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10},
	}
	s.close = sync.OnceValue(s.shutdown)
	go func() { s.done <- s.server.Serve(l) }()
	return s, nil
}

// Close ends the server after the requests in progress, for which it waits two seconds. Closing again does nothing.
func (s *MetricsServer) Close() error { return s.close() }

func (s *MetricsServer) shutdown() error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	err := s.server.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		err = s.server.Close()
	}
	if served := <-s.done; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}

// metricsAddr completes an address: the default host is the loopback.
func metricsAddr(addr string) (string, error) {
	if _, err := strconv.ParseUint(addr, 10, 16); err == nil {
		addr = ":" + addr
	}
	host, port, err := net.SplitHostPort(addr)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return "", fmt.Errorf("metrics address %q: want a port, or host:port", addr)
	}
	if host == "" {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port), nil
}

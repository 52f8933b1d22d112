package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"e3/internal/repo"
	"e3/internal/testing/suite"
	"e3/internal/testing/testserver"
)

// onCutOff makes a shared repository behind a proxy, and returns a runner of commands on it. A lease lasts for two seconds.
func onCutOff(t *testing.T) (p *testserver.Proxy, location string, e3 func(stderr io.Writer, args ...string) int) {
	for _, v := range testserver.Env() {
		name, value, _ := strings.Cut(v, "=")
		t.Setenv(name, value)
	}
	dir := t.TempDir()
	t.Setenv(repo.CacheDirVariable, filepath.Join(dir, "cache"))
	t.Setenv(repo.StateDirVariable, filepath.Join(dir, "state"))
	p = testserver.NewProxy(t, testserver.Minidyn(t))
	location = "dynamodb://e3-lost/main?lease=2s&region=" + testserver.Region + "&endpoint=" + p.URL() +
		"&bucket=e3-lost&s3-endpoint=" + testserver.GoFakeS3At(t, time.Now)
	e3 = func(stderr io.Writer, args ...string) int {
		a := newApp()
		a.Stdout, a.Stderr = io.Discard, stderr
		return run(t.Context(), args, a)
	}
	var stderr bytes.Buffer
	if code := e3(&stderr, "init", location); code != 0 {
		t.Fatalf("init: exit code %d: %s", code, &stderr)
	}
	return p, location, e3
}

// A command that runs no tasks ends with its lease, and says why it could not renew it.
func TestLostLeaseSaysWhy(t *testing.T) {
	suite.Thorough(t)
	p, location, e3 := onCutOff(t)
	var stderr bytes.Buffer
	p.Faults(1, testserver.Rule{Fault: testserver.DropBefore, Skip: 12}) // the session has begun by then
	code := e3(&stderr, "gc", location)
	if code != exitBusy || !strings.Contains(stderr.String(), "; the last try to renew the lease failed: ") {
		t.Errorf("exit code %d, want %d, and that the message says why: %s", code, exitBusy, &stderr)
	}
}

// A start that the store does not answer says why it waits, and goes on when the store answers.
func TestStartTellsOfOutage(t *testing.T) {
	suite.Thorough(t)
	p, location, e3 := onCutOff(t)
	dir := t.TempDir()
	began, end := filepath.Join(dir, "began"), filepath.Join(dir, "end")
	file := filepath.Join(dir, "e3.yaml")
	text := "e3: 1\nname: demo\ntasks:\n  long: {out: x, run: 'touch " + began + " x; until [ -e " + end + " ]; do sleep 0.02; done'}\n"
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	told := &teller{text: "No answer from the store for ", then: func() {
		p.Restore()
		_ = os.WriteFile(end, nil, 0o644)
	}}
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		for {
			if _, err := os.Stat(began); err == nil {
				p.Refuse()
				return
			}
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	}()
	code := e3(told, "start", "-f", file, location)
	for _, part := range []string{"Waiting for it; tasks go on", "The store answers again, after "} {
		if code != 0 || !strings.Contains(told.String(), part) {
			t.Errorf("exit code %d, want 0, and %q in: %s", code, part, told)
		}
	}
}

// A teller collects what is printed, and acts once when text is in it.
type teller struct {
	mu   sync.Mutex
	all  bytes.Buffer
	text string
	then func()
}

func (w *teller) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all.Write(p)
	if w.then != nil && strings.Contains(w.all.String(), w.text) {
		w.then()
		w.then = nil
	}
	return len(p), nil
}

func (w *teller) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.all.String()
}

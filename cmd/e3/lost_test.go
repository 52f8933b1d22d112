package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"e3/internal/repo"
	"e3/internal/testing/suite"
	"e3/internal/testing/testserver"
)

// TestLostLeaseSaysWhy: a run that ends because the store was unreachable says why it could not renew its lease.
func TestLostLeaseSaysWhy(t *testing.T) {
	suite.Thorough(t)
	for _, v := range testserver.Env() {
		name, value, _ := strings.Cut(v, "=")
		t.Setenv(name, value)
	}
	dir := t.TempDir()
	t.Setenv(repo.CacheDirVariable, filepath.Join(dir, "cache"))
	t.Setenv(repo.StateDirVariable, filepath.Join(dir, "state"))
	p := testserver.NewProxy(t, testserver.Minidyn(t))
	location := "dynamodb://e3-lost/main?lease=2s&region=" + testserver.Region + "&endpoint=" + p.URL() +
		"&bucket=e3-lost&s3-endpoint=" + testserver.GoFakeS3At(t, time.Now)
	began := filepath.Join(dir, "began")
	file := filepath.Join(dir, "e3.yaml")
	text := "e3: 1\nname: demo\ntasks:\n  long: {out: x, run: 'touch " + began + "; sleep 60'}\n"
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	e3 := func(stderr io.Writer, args ...string) int {
		a := newApp()
		a.Stdout, a.Stderr = io.Discard, stderr
		return run(t.Context(), args, a)
	}
	var stderr bytes.Buffer
	if code := e3(&stderr, "init", location); code != 0 {
		t.Fatalf("init: exit code %d: %s", code, &stderr)
	}
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
	code := e3(&stderr, "start", "-f", file, location)
	if code != exitBusy || !strings.Contains(stderr.String(), "; the last try to renew the lease failed: ") {
		t.Errorf("exit code %d, want %d, and that the message says why: %s", code, exitBusy, &stderr)
	}
	t.Log(&stderr)
}

package main

import (
	"bufio"
	"context"
	"io"
	"strings"
	"testing"

	"e3/internal/repo"
)

// The printed lines are enough to make a shared repository.
func TestServe(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	r, w := io.Pipe()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		serve(ctx, w)
	}()
	defer func() {
		stop()
		<-ended
	}()
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		name, value, ok := strings.Cut(strings.TrimPrefix(lines.Text(), "export "), "=")
		if !ok {
			t.Fatalf("%q is no variable", lines.Text())
		}
		value = strings.Trim(value, "'")
		t.Setenv(name, value)
		if name != "TEAM" {
			continue
		}
		if _, err := repo.Init(ctx, value, repo.InitOptions{}); err != nil {
			t.Error(err)
		}
		return
	}
	t.Fatal("no location was printed")
}

// Serve runs the servers of the tests that speak DynamoDB and S3 until it is interrupted, so that a shared repository can be
// tried on one machine (README.md). They keep everything in memory, and let everything that reaches them do everything. It prints
// what a shell has to source:
//
//	go run ./internal/testing/testserver/serve > ~/team.env
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/url"
	"os"
	"os/signal"
	"syscall"

	"e3/internal/testing/testserver"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	log.SetFlags(0)
	serve(ctx, os.Stdout)
}

// serve writes the variables of clients to out, and serves until ctx is done.
func serve(ctx context.Context, out io.Writer) {
	var s servers
	defer s.end()
	servers := url.Values{"endpoint": {testserver.Minidyn(&s)}, "s3-endpoint": {testserver.GoFakeS3(&s)}, "bucket": {"acme-e3"}}
	for _, variable := range testserver.Env() {
		fmt.Fprintf(out, "export %s\n", variable)
	}
	fmt.Fprintf(out, "export TEAM='dynamodb://acme/forecast?%s'\n", servers.Encode())
	log.Print("DynamoDB and S3 are served, from memory, until Ctrl-C")
	<-ctx.Done()
}

// servers is what servers need of a test.
type servers struct{ cleanups []func() }

func (*servers) Helper()                           {}
func (*servers) Logf(format string, args ...any)   { log.Printf(format, args...) }
func (*servers) Fatalf(format string, args ...any) { log.Fatalf(format, args...) }
func (*servers) Skipf(format string, args ...any)  { log.Fatalf(format, args...) }
func (*servers) TempDir() string                   { return os.TempDir() }
func (s *servers) Cleanup(f func())                { s.cleanups = append(s.cleanups, f) }

func (s *servers) end() {
	for _, f := range s.cleanups {
		f()
	}
}

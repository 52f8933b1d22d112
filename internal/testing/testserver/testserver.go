// Package testserver runs servers that speak DynamoDB and S3, and schedulers of clusters, for tests and measurements, and puts a
// faulty network in front of servers.
//
// [Minidyn] and [GoFakeS3] run in this process and are always there. [Dynalite] and [VersityGW] are programs: where they
// are missing and cannot be installed, the test is skipped and says what to install. Each call starts a server of its own, which
// ends with the test; tests that share one use tables and buckets of different names ([Name]).
//
// A [Cluster] is a real scheduler with nodes, all on this machine: [Slurm], Slurm with PBS's words ([NewPBS]), [GridEngine], [Kubernetes], whose
// API server is real and whose nodes are ours, and [AWSBatch], which is moto's.
//
// A [Proxy] in front of a server counts requests and makes them fail in the ways that networks and services do.
package testserver

import (
	"crypto/rand"
	"encoding/hex"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
)

// The credentials that all servers take, and the region that they are in.
const (
	AccessKey = "access"
	SecretKey = "secretsecret"
	Region    = "us-east-1"
)

// TB is what the servers need of a test or benchmark. [testing.TB] has it.
type TB interface {
	Helper()
	Logf(format string, args ...any)
	Fatalf(format string, args ...any)
	Skipf(format string, args ...any)
	Cleanup(func())
	TempDir() string
}

// Config is the configuration of a client of any of the servers, but for the endpoint.
func Config() aws.Config {
	return aws.Config{
		Region:      Region,
		Credentials: credentials.NewStaticCredentialsProvider(AccessKey, SecretKey, ""),
	}
}

// Env is what [Config] says, as environment variables for a program that finds its configuration by the usual chain. The
// machine's own configuration plays no part in it.
func Env() []string {
	return []string{
		"AWS_ACCESS_KEY_ID=" + AccessKey,
		"AWS_SECRET_ACCESS_KEY=" + SecretKey,
		"AWS_SESSION_TOKEN=",
		"AWS_REGION=" + Region,
		"AWS_PROFILE=",
		"AWS_CA_BUNDLE=", // besides, to read it takes longer than many a request
		"AWS_CONFIG_FILE=" + os.DevNull,
		"AWS_SHARED_CREDENTIALS_FILE=" + os.DevNull,
		"AWS_EC2_METADATA_DISABLED=true",
	}
}

// Name returns a name for a table or bucket that nothing else has.
func Name() string {
	var id [10]byte
	rand.Read(id[:])
	return "e3-" + hex.EncodeToString(id[:])
}

// GoFakeS3 starts an S3 server in this process and returns its URL. It accepts a wrong SHA-256 and ignores conditions on
// CompleteMultipartUpload.
func GoFakeS3(tb TB) string {
	tb.Helper()
	return GoFakeS3At(tb, time.Now)
}

// GoFakeS3At is [GoFakeS3] with a clock of its own: it dates answers and objects by it.
func GoFakeS3At(tb TB, now func() time.Time) string {
	tb.Helper()
	faker := gofakes3.New(s3mem.New(s3mem.WithTimeSource(clock(now))),
		gofakes3.WithTimeSource(clock(now)), gofakes3.WithTimeSkewLimit(0), gofakes3.WithLogger(gofakes3.DiscardLog()))
	handler := faker.Server()
	return serve(tb, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Date", now().UTC().Format(http.TimeFormat))
		handler.ServeHTTP(w, r)
	}))
}

func serve(tb TB, handler http.Handler) string {
	s := httptest.NewUnstartedServer(handler)
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // they have much to say where a proxy breaks connections
	s.Start()
	tb.Cleanup(s.Close)
	return s.URL
}

// clock is the time as gofakes3 wants it: the name of the zone reaches its answers.
type clock func() time.Time

func (c clock) Now() time.Time                  { return c().In(time.FixedZone("GMT", 0)) }
func (c clock) Since(t time.Time) time.Duration { return c().Sub(t) }

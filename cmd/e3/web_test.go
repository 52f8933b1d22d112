package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/rogpeppe/go-internal/testscript"

	"e3/internal/testing/suite"
	"e3/internal/testing/testserver"
)

// website serves the folder www of a script, with the sums of files as their tags.
type website struct {
	dir, address string
	server       *http.Server

	mu            sync.Mutex
	cut, hold     int64 // the next body of cutOf breaks after so many bytes, that of holdOf stops; 0: it does not
	cutOf, holdOf string
	held          chan struct{} // closed once a body has stopped
	log           strings.Builder
}

type websiteKey struct{}

// web is the command web of scripts:
//
//	web start            serves the folder www at $WEB, also again
//	web stop             breaks all connections, and answers no more
//	web cut <path> <n>   the next body of that file breaks after n bytes
//	web hold <path> <n>  the next body of that file stops after n bytes
//	web held             waits until it has
//	web asked <file>     writes into a file what was asked since the last time, a line each: path, range, status
func web(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: web start|stop|cut|hold|held|asked")
	}
	sites := ts.Value(websiteKey{}).(map[string]*website)
	s := sites["web"]
	if s == nil {
		s = &website{dir: ts.MkAbs("www"), address: "127.0.0.1:0"}
		sites["web"] = s
		ts.Defer(s.stop)
	}
	switch args[0] {
	case "start":
		ts.Check(s.start())
		ts.Setenv("WEB", "http://"+s.address)
	case "stop":
		s.stop()
	case "held":
		select {
		case <-s.held:
		case <-time.After(suite.Stuck):
			ts.Fatalf("no body has stopped within %v", suite.Stuck)
		}
	case "asked":
		s.mu.Lock()
		text := s.log.String()
		s.log.Reset()
		s.mu.Unlock()
		ts.Check(os.WriteFile(ts.MkAbs(args[1]), []byte(text), 0o644))
	case "cut", "hold":
		n, err := strconv.ParseInt(args[2], 10, 64)
		ts.Check(err)
		s.mu.Lock()
		defer s.mu.Unlock()
		if args[0] == "cut" {
			s.cutOf, s.cut = args[1], n
		} else {
			s.holdOf, s.hold, s.held = args[1], n, make(chan struct{})
		}
	default:
		ts.Fatalf("usage: web start|stop|cut|hold|held|asked")
	}
}

func (s *website) start() error {
	l, err := net.Listen("tcp", s.address)
	if err != nil {
		return err
	}
	s.address = l.Addr().String()
	s.server = &http.Server{Handler: s}
	go func() { _ = s.server.Serve(l) }()
	return nil
}

func (s *website) stop() {
	if s.server != nil {
		s.server.Close()
	}
}

func (s *website) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body := &meteredBody{ResponseWriter: w, ctx: r.Context(), cut: -1, hold: -1, status: http.StatusOK}
	s.mu.Lock()
	if s.cut > 0 && s.cutOf == r.URL.Path {
		body.cut, s.cut = s.cut, 0
	}
	if s.hold > 0 && s.holdOf == r.URL.Path {
		body.hold, body.held, s.hold = s.hold, s.held, 0
	}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		fmt.Fprintf(&s.log, "%s %s %d\n", r.URL.Path, r.Header.Get("Range"), body.status)
	}()
	if name, password, _ := r.BasicAuth(); strings.HasPrefix(r.URL.Path, "/private/") && (name != "me" || password != "secret") {
		body.WriteHeader(http.StatusUnauthorized)
		return
	}
	data, err := os.ReadFile(filepath.Join(s.dir, filepath.FromSlash(r.URL.Path)))
	if err != nil {
		http.NotFound(body, r)
		return
	}
	w.Header().Set("ETag", fmt.Sprintf("\"%x\"", sha256.Sum256(data)))
	http.ServeContent(body, r, "", time.Time{}, strings.NewReader(string(data)))
}

// meteredBody breaks or stops a body, and notes its status.
type meteredBody struct {
	http.ResponseWriter
	ctx       context.Context
	cut, hold int64 // bytes until then; -1: never
	held      chan struct{}
	status    int
}

func (b *meteredBody) WriteHeader(code int) {
	b.status = code
	b.ResponseWriter.WriteHeader(code)
}

func (b *meteredBody) Write(p []byte) (n int, err error) {
	for len(p) > 0 && err == nil {
		some := p
		for _, left := range []int64{b.cut, b.hold} {
			if left >= 0 && int64(len(some)) > left {
				some = some[:left]
			}
		}
		k := 0
		k, err = b.ResponseWriter.Write(some)
		n, p = n+k, p[k:]
		if b.cut >= 0 {
			b.cut -= int64(k)
		}
		if b.hold >= 0 {
			b.hold -= int64(k)
		}
		switch {
		case b.cut == 0:
			b.ResponseWriter.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		case b.hold == 0:
			b.ResponseWriter.(http.Flusher).Flush()
			close(b.held)
			<-b.ctx.Done()
			panic(http.ErrAbortHandler)
		}
	}
	return n, err
}

// bucket is the command bucket of scripts: bucket put <file> <key> puts a file into the bucket data of a server of S3, of
// which programs learn by AWS_ENDPOINT_URL.
func bucket(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 || args[0] != "put" {
		ts.Fatalf("usage: bucket put <file> <key>")
	}
	url := ts.Getenv("AWS_ENDPOINT_URL")
	cfg := testserver.Config()
	if url == "" {
		url = testserver.GoFakeS3(scriptTB{ts})
		ts.Setenv("AWS_ENDPOINT_URL", url)
		for _, v := range testserver.Env() {
			name, value, _ := strings.Cut(v, "=")
			ts.Setenv(name, value)
		}
	}
	client := s3.NewFromConfig(cfg, func(o *s3.Options) {
		o.BaseEndpoint, o.UsePathStyle = aws.String(url), true
	})
	_, _ = client.CreateBucket(context.Background(), &s3.CreateBucketInput{Bucket: aws.String("data")}) // it may be there
	_, err := client.PutObject(context.Background(), &s3.PutObjectInput{
		Bucket: aws.String("data"), Key: aws.String(args[2]), Body: strings.NewReader(ts.ReadFile(args[1])),
	})
	ts.Check(err)
}

// scriptTB is a script as a server of tests needs it.
type scriptTB struct{ *testscript.TestScript }

func (scriptTB) Helper()                            {}
func (s scriptTB) Skipf(format string, args ...any) { s.Fatalf(format, args...) }
func (s scriptTB) Cleanup(do func())                { s.Defer(do) }
func (s scriptTB) TempDir() string                  { return s.MkAbs(".tmp") }

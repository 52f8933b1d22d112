package s3_test

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"

	"e3/internal/testing/testserver"
	"e3/objectstore/s3"
)

// Over TLS too, a body is signed by its SHA-256 and sent without trailers, which many servers do not support.
func TestBodiesAreSigned(t *testing.T) {
	gate := testserver.GoFakeS3(t)
	to, err := url.Parse(gate)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	bodies := 0
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut && r.ContentLength > 0 {
			mu.Lock()
			bodies++
			mu.Unlock()
			for header, want := range map[string]int{"X-Amz-Content-Sha256": 64, "X-Amz-Checksum-Sha256": 44} {
				if got := r.Header.Get(header); len(got) != want || strings.Contains(got, "UNSIGNED") || strings.Contains(got, "STREAMING") {
					t.Errorf("%s: got %s %q, want a SHA-256", r.URL, header, got)
				}
			}
			if got := r.Header.Get("Content-Encoding") + r.Header.Get("X-Amz-Trailer"); got != "" {
				t.Errorf("%s: got the encoding %q, want none", r.URL, got)
			}
			if r.ProtoMajor != 1 {
				t.Errorf("%s: got %s, want HTTP/1.1", r.URL, r.Proto)
			}
		}
		(&httputil.ReverseProxy{Rewrite: func(p *httputil.ProxyRequest) { p.SetURL(to) }}).ServeHTTP(w, r)
	})
	for _, secure := range []bool{false, true} {
		o := options("")
		o.PartSize = 100_000
		server := httptest.NewUnstartedServer(handler)
		server.EnableHTTP2 = true
		if secure {
			server.StartTLS()
			roots := x509.NewCertPool()
			roots.AddCert(server.Certificate())
			o.Config.HTTPClient = awshttp.NewBuildableClient().WithTransportOptions(func(tr *http.Transport) {
				tr.TLSClientConfig = &tls.Config{RootCAs: roots}
			})
		} else {
			server.Start()
		}
		defer server.Close()
		o.Endpoint = server.URL
		bodies = 0
		b := create(t, o)
		everything(t, b)
		if bodies < 10 {
			t.Errorf("%d bodies were sent, want those of everything", bodies)
		}
	}
}

// The caller's own client is used unchanged.
func TestOwnClient(t *testing.T) {
	o := options(testserver.GoFakeS3(t))
	requests := 0
	o.Config.HTTPClient = clientFunc(func(r *http.Request) (*http.Response, error) {
		requests++
		return http.DefaultClient.Do(r)
	})
	b := create(t, o)
	r, err := b.Open(t.Context(), put(t, b, []byte("data")))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if got, err := io.ReadAll(r); string(got) != "data" || err != nil || requests == 0 {
		t.Errorf("got %q, %v with %d requests; want %q", got, err, requests, "data")
	}
}

type clientFunc func(*http.Request) (*http.Response, error)

func (f clientFunc) Do(r *http.Request) (*http.Response, error) { return f(r) }

// TestTrying: while no attempt is answered, or the server cannot serve any, the reason is reported from 2 s on.
func TestTrying(t *testing.T) {
	refused := error(&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED})
	t.Run("no answer", func(t *testing.T) { trying(t, nil, refused, syscall.ECONNREFUSED.Error()) })
	t.Run("faults", func(t *testing.T) {
		trying(t, &http.Response{StatusCode: 503, Status: "503 Slow Down", Header: http.Header{}, Body: http.NoBody}, nil, "503")
	})
}

// trying asks a server that first answers so, for two seconds. told is what is reported.
func trying(t *testing.T, answer *http.Response, failure error, want string) {
	var told []error
	down := true
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		o := options("http://127.0.0.1:1")
		o.Backoff, o.Attempts = time.Second, 20
		o.Config.HTTPClient = clientFunc(func(*http.Request) (*http.Response, error) {
			if down {
				return answer, failure
			}
			return &http.Response{StatusCode: 200, Header: http.Header{"Date": {time.Now().Format(http.TimeFormat)}}, Body: http.NoBody}, nil
		})
		o.Trying = func(err error) {
			told = append(told, err)
			if since := time.Since(began); since < 2*time.Second {
				t.Errorf("told after %v, want after 2 s at the earliest", since)
			}
			down = false
		}
		if _, err := s3.Open(o).Now(t.Context()); err != nil {
			t.Error(err)
		}
	})
	if len(told) != 1 || !strings.Contains(told[0].Error(), want) {
		t.Errorf("told %v, want %q once", told, want)
	}
}

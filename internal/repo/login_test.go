package repo

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"e3/internal/testing/testserver"
	"e3/refstore"
)

// gate is in front of both services. Once it has a key that has expired, it refuses what that key has signed, as AWS does.
type gate struct {
	t       *testing.T
	mu      sync.Mutex
	expired string
	refused map[string]chan struct{} // by service or method, closed with the first refusal
}

func (g *gate) before(target string) string {
	to, err := url.Parse(target)
	if err != nil {
		g.t.Fatal(err)
	}
	forward := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !g.refuses(r) {
			forward.ServeHTTP(w, r)
			return
		}
		body := `<Error><Code>ExpiredToken</Code><Message>The provided token has expired.</Message></Error>`
		if r.Header.Get("X-Amz-Target") != "" {
			w.Header().Set("Content-Type", "application/x-amz-json-1.0")
			body = `{"__type":"com.amazon.coral.service#ExpiredTokenException","message":"The security token included in the request is expired"}`
		}
		w.WriteHeader(http.StatusBadRequest)
		if r.Method != http.MethodHead {
			fmt.Fprint(w, body)
		}
	}))
	g.t.Cleanup(s.Close)
	return s.URL
}

func (g *gate) refuses(r *http.Request) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.expired == "" || !strings.Contains(r.Header.Get("Authorization"), "Credential="+g.expired+"/") {
		return false
	}
	kind := r.Method
	if r.Header.Get("X-Amz-Target") != "" {
		kind = "dynamodb"
	}
	if c, ok := g.refused[kind]; ok {
		close(c)
		delete(g.refused, kind)
	}
	return true
}

func (g *gate) expire(key string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.expired = key
}

func (g *gate) watch(refused map[string]chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.refused = refused
}

// A command that waits for stores waits for credentials that have expired under it as well, and takes the new ones that another
// program has written meanwhile. Any other command fails at once.
func TestExpiredCredentials(t *testing.T) {
	credentials(t)
	file := filepath.Join(t.TempDir(), "credentials")
	logIn := func(key string) {
		if err := os.WriteFile(file, []byte("[default]\naws_access_key_id = "+key+"\naws_secret_access_key = secret\naws_session_token = token\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	logIn("OLDKEY")
	t.Setenv("AWS_ACCESS_KEY_ID", "")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", file)
	ctx := t.Context()
	g := &gate{t: t}
	location := shared("a", g.before(testserver.Minidyn(t)), g.before(testserver.GoFakeS3(t)), "one")
	if _, err := Init(ctx, location, InitOptions{}); err != nil {
		t.Fatal(err)
	}
	open := func(o Options) *summedShared {
		records := visit(t, location, o).Records.(*summedShared)
		if _, err := records.Session(ctx); err != nil {
			t.Fatal(err)
		}
		return records
	}
	waits, fails := open(Options{Outlast: time.Hour, Lease: 5 * time.Minute}), open(Options{Lease: 5 * time.Minute})
	g.expire("OLDKEY")

	requests := map[string]func(s *summedShared) error{
		"a record": func(s *summedShared) error {
			_, err := s.Put(ctx, refstore.Record{Key: refstore.Key{Partition: "INDEX/other", Sort: "x"}, Value: []byte("value")})
			return err
		},
		"a blob":   func(s *summedShared) error { return s.objects.PutBlob(ctx, "records/x", []byte("data")) },
		"the time": func(s *summedShared) error { _, err := s.objects.Now(ctx); return err },
	}
	for name, request := range requests {
		if err := request(fails); err == nil || !strings.Contains(err.Error(), "credentials") {
			t.Errorf("%s, without patience: got %v, want advice about credentials", name, err)
		}
	}
	put, head, dynamo := make(chan struct{}), make(chan struct{}), make(chan struct{})
	g.watch(map[string]chan struct{}{"PUT": put, "HEAD": head, "dynamodb": dynamo})
	var all sync.WaitGroup
	for name, request := range requests {
		all.Go(func() {
			if err := request(waits); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	for _, refused := range []chan struct{}{put, head, dynamo} {
		<-refused
	}
	logIn("NEWKEY")
	all.Wait()
}

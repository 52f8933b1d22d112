package repo

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"e3/internal/testing/testserver"
	"e3/refstore"
	"e3/refstore/lease"
)

// withoutUploads is a server that says how a list of unfinished uploads fails, and for everything else asks another.
func withoutUploads(t *testing.T, target string, status int, code string) string {
	t.Helper()
	to, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	forward := httputil.NewSingleHostReverseProxy(to)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet || !r.URL.Query().Has("uploads") {
			forward.ServeHTTP(w, r)
			return
		}
		w.WriteHeader(status)
		io.WriteString(w, "<Error><Code>"+code+"</Code><Message>said the test</Message></Error>")
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// Without the right to list unfinished uploads, a collection names the right and continues. If the list fails
// otherwise, claims of the dead go nevertheless.
func TestLeftoversWithoutUploads(t *testing.T) {
	for name, row := range map[string]struct {
		status int
		code   string
		fails  bool
	}{
		"not allowed": {http.StatusForbidden, "AccessDenied", false}, "broken": {http.StatusBadRequest, "InvalidRequest", true},
	} {
		t.Run(name, func(t *testing.T) {
			credentials(t)
			tables, objects, ctx := testserver.Minidyn(t), withoutUploads(t, testserver.GoFakeS3(t), row.status, row.code), t.Context()
			table, folder := shared("a", tables, objects, "one"), filepath.Join(t.TempDir(), DirName)
			if _, err := Init(ctx, table, InitOptions{}); err != nil {
				t.Fatal(err)
			}
			if _, err := Init(ctx, folder, InitOptions{Objects: "s3://one/place?region=us-east-1&endpoint=" + objects}); err != nil {
				t.Fatal(err)
			}
			claims := func(r *Repo) (n int) {
				t.Helper()
				for _, err := range r.Records.List(ctx, refstore.Query{Partition: lease.Kind + "/claims/01"}) {
					if err != nil {
						t.Fatal(err)
					}
					n++
				}
				return n
			}
			for _, location := range []string{table, folder} {
				dead := visit(t, location, Options{Lease: 5 * time.Minute})
				if _, err := dead.Records.TryClaim(ctx, [32]byte{1}, nil); err != nil {
					t.Fatal(err)
				}
				if location == table {
					if n := claims(dead); n != 1 {
						t.Fatalf("there are %d claims, want 1", n)
					}
					endSessions(t, dead.Records)
				}
				var warned []error
				r := visit(t, location, Options{Lease: 5 * time.Minute, Warn: func(err error) { warned = append(warned, err) }})
				_, err := r.Records.RemoveLeftovers(ctx, time.Now())
				switch {
				case row.fails:
					if err == nil || !strings.Contains(err.Error(), "InvalidRequest") || len(warned) > 0 {
						t.Errorf("%s: got error %v, warned of %v, want the server's error", location, err, warned)
					}
				case err != nil || len(warned) != 1 || !strings.Contains(warned[0].Error(), "s3:ListBucketMultipartUploads"):
					t.Errorf("%s: got error %v, warned of %v, want one warning that names the right", location, err, warned)
				}
				if location != table {
					continue
				}
				if n := claims(r); n != 0 {
					t.Errorf("%s: left are %d claims of the dead", location, n)
				}
			}
		})
	}
}

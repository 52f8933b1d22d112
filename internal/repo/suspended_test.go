package repo

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"e3/internal/testing/testserver"
	"e3/objectstore/s3"
	"e3/refstore"
)

// strict is a server in front of another that refuses what was signed more than five minutes ago, in the words of both services.
func strict(t *testing.T, target string, now func() time.Time) string {
	t.Helper()
	to, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	forward := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) },
		ModifyResponse: func(r *http.Response) error {
			r.Header.Set("Date", now().UTC().Format(http.TimeFormat))
			return nil
		},
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		date, err := time.Parse("20060102T150405Z", r.Header.Get("X-Amz-Date"))
		if err == nil && now().Sub(date) < 5*time.Minute {
			forward.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Date", now().UTC().Format(http.TimeFormat))
		if r.Header.Get("X-Amz-Target") != "" {
			w.Header().Set("Content-Type", "application/x-amz-json-1.0")
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprint(w, `{"__type":"InvalidSignatureException","message":"Signature expired"}`)
			return
		}
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w, `<Error><Code>RequestTimeTooSkewed</Code></Error>`)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// standStill has two hours pass of which the lease's clock of a machine knows nothing; whether its session dies in them is told.
func standStill(t *testing.T, machine refstore.Lessee, other *Repo, ahead *atomic.Int64, dies bool) {
	t.Helper()
	if dies {
		endSessions(t, other.Records)
	}
	ahead.Store(int64(2 * time.Hour))
	if err := machine.Held(); err != nil {
		t.Fatalf("its clock has stood still: %v", err)
	}
}

// A virtual machine is suspended for two hours, and no clock of its goes on meanwhile: the lease's says that it has just been renewed. What it
// writes or deletes when it goes on is refused for its date, and may be dated anew only if the session lives.
func TestSuspendedMachine(t *testing.T) {
	credentials(t)
	key := refstore.Key{Partition: "INDEX/other", Sort: "x"}
	for _, dead := range []bool{true, false} {
		for _, what := range []string{"write", "deletion"} {
			t.Run(fmt.Sprintf("%s, dead %v", what, dead), func(t *testing.T) {
				ctx := t.Context()
				var ahead atomic.Int64
				now := func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
				location := shared("a", strict(t, testserver.Minidyn(t), now), strict(t, testserver.GoFakeS3(t), now), "one")
				if _, err := Init(ctx, location, InitOptions{}); err != nil {
					t.Fatal(err)
				}
				suspended, other := visit(t, location, Options{Lease: 5 * time.Minute}), visit(t, location, Options{Lease: 5 * time.Minute})
				records := suspended.Records.(*summedShared)
				if _, err := records.Session(ctx); err != nil {
					t.Fatal(err)
				}
				if err := records.objects.PutBlob(ctx, "records/x", []byte("data")); err != nil {
					t.Fatal(err)
				}
				standStill(t, records, other, &ahead, dead)

				var err error
				there := func() bool { // what was to be written, or deleted
					_, err := other.Records.Get(ctx, key)
					return err == nil
				}
				if what == "write" {
					_, err = records.Put(ctx, refstore.Record{Key: key, Value: []byte("late")})
				} else {
					err = records.objects.(*s3.Bucket).DeleteBlob(ctx, "records/x")
					there = func() bool {
						r, err := other.Records.(*summedShared).objects.OpenBlob(ctx, "records/x", 0)
						if err == nil {
							r.Close()
						}
						return err != nil
					}
				}
				if done := there(); errors.Is(err, refstore.ErrLost) != dead || done == dead {
					t.Errorf("got error %v, done %v", err, done)
				}
			})
		}
	}
}

// A machine sleeps for two hours beside a folder with objects in S3, and its lease's clock with it: what it writes when it wakes up names
// objects that may have been collected, unless its session lives.
func TestSleepOverFolder(t *testing.T) {
	credentials(t)
	key := refstore.Key{Partition: "INDEX/other", Sort: "x"}
	for _, dead := range []bool{true, false} {
		t.Run(fmt.Sprintf("dead %v", dead), func(t *testing.T) {
			ctx := t.Context()
			var ahead atomic.Int64
			now := func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
			location := filepath.Join(t.TempDir(), DirName)
			if _, err := Init(ctx, location, InitOptions{Objects: "s3://one/place?region=us-east-1&endpoint=" + testserver.GoFakeS3(t)}); err != nil {
				t.Fatal(err)
			}
			sleeper, other := visit(t, location, Options{Now: now}), visit(t, location, Options{})
			records := sleeper.Records.(*summedBeside)
			if _, err := records.SessionBegan(ctx); err != nil {
				t.Fatal(err)
			}
			if _, err := records.Put(ctx, refstore.Record{Key: key, Value: []byte("before")}); err != nil {
				t.Fatal(err)
			}
			standStill(t, records, other, &ahead, dead)
			key.Sort = "y"
			_, err := records.Put(ctx, refstore.Record{Key: key, Value: []byte("late")})
			_, absent := other.Records.Get(ctx, key)
			if errors.Is(err, refstore.ErrLost) != dead || (absent != nil) != dead {
				t.Errorf("got error %v, and of the record %v", err, absent)
			}
		})
	}
}

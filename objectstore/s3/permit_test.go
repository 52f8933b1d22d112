package s3_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"e3/internal/testing/testserver"
	"e3/objectstore"
	"e3/objectstore/s3"
)

// A process that has lost its lease sends no further deletion, not even a retry; its other requests continue.
func TestPermit(t *testing.T) {
	each(t, func(t *testing.T, o s3.Options) {
		lost := errors.New("lost")
		proxy := testserver.NewProxy(t, o.Endpoint)
		o.Endpoint = proxy.URL()
		var refuse atomic.Bool
		asked := 0
		o.Permit = func(context.Context, time.Time) error {
			if asked++; refuse.Load() || asked > 1 { // the second attempt
				return lost
			}
			return nil
		}
		b := s3.Open(o)
		h, err := b.PutBytes(t.Context(), []byte("x"))
		if err != nil || asked > 0 {
			t.Fatalf("put: %v, asked %d times", err, asked)
		}
		proxy.Faults(1, testserver.Rule{Op: "DeleteObjects", Fault: testserver.Fail, Times: 1})
		if err := b.Delete(t.Context(), []objectstore.Hash{h}); !errors.Is(err, lost) || asked != 2 {
			t.Errorf("delete: got %v, asked %d times, want what Permit says of the second attempt", err, asked)
		}
		proxy.Faults(1)
		refuse.Store(true)
		if err := b.DeleteBlob(t.Context(), "records/a"); !errors.Is(err, lost) {
			t.Errorf("delete a blob: got %v, want what Permit says", err)
		}
		if _, err := b.Stat(t.Context(), h); err != nil {
			t.Errorf("the object: %v", err)
		}
	})
}

// answered returns options of a bucket whose requests f answers with a status and an error's code, in a bubble of
// testing/synctest. The server's clock is ahead by *late.
func answered(late *time.Duration, f func(r *http.Request) (status int, code string, err error)) s3.Options {
	o := options("http://s3.test")
	o.Patience = time.Minute
	o.Config.HTTPClient = clientFunc(func(r *http.Request) (*http.Response, error) {
		status, code, err := f(r)
		if err != nil {
			return nil, err
		}
		w := httptest.NewRecorder()
		w.Header().Set("Date", time.Now().Add(*late).UTC().Format(http.TimeFormat))
		w.WriteHeader(status)
		if code != "" {
			io.WriteString(w, "<Error><Code>"+code+"</Code></Error>")
		}
		return w.Result(), nil
	})
	return o
}

// dated is the date that a request is signed with.
func dated(t *testing.T, r *http.Request) time.Time {
	date, err := time.Parse("20060102T150405Z", r.Header.Get("X-Amz-Date"))
	if err != nil {
		t.Error(err)
	}
	return date
}

// TestSignedAnew: a deletion that the server has refused as too old is sent again with a date that Permit gets.
func TestSignedAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var late time.Duration // by which the machine's clock is late, after a suspension
		deleted := 0
		o := answered(&late, func(r *http.Request) (int, string, error) {
			if time.Now().Add(late).Sub(dated(t, r)) > 15*time.Minute {
				return http.StatusForbidden, "RequestTimeTooSkewed", nil
			}
			if r.Method == http.MethodDelete {
				deleted++
				return http.StatusNoContent, "", nil
			}
			return http.StatusOK, "", nil
		})
		lost := errors.New("lost")
		o.Permit = func(_ context.Context, signed time.Time) error {
			if signed.After(time.Now().Add(time.Minute)) {
				return lost
			}
			return nil
		}
		b := s3.Open(o)
		if err := b.DeleteBlob(t.Context(), "records/a"); err != nil || deleted != 1 {
			t.Fatalf("before: %v, %d deletions", err, deleted)
		}
		late, deleted = 2*time.Hour, 0
		for _, what := range []string{"at first", "once the time is known"} {
			if err := b.DeleteBlob(t.Context(), "records/b"); !errors.Is(err, lost) || deleted != 0 {
				t.Errorf("after, %s: got %v, %d deletions, want what Permit says of one two hours later", what, err, deleted)
			}
		}
	})
}

// TestWrongClock: the first request of a machine may be a HEAD, whose refusal does not mention a wrong clock.
func TestWrongClock(t *testing.T) {
	for _, late := range []time.Duration{2 * time.Hour, -2 * time.Hour} {
		for what, ask := range map[string]func(context.Context, *s3.Bucket) error{
			"the time": func(ctx context.Context, b *s3.Bucket) error { _, err := b.Now(ctx); return err },
			"an object": func(ctx context.Context, b *s3.Bucket) error {
				_, err := b.Stat(ctx, objectstore.Sum([]byte("x")))
				if errors.Is(err, objectstore.ErrNotFound) {
					return nil
				}
				return err
			},
		} {
			t.Run(what+" by a clock that is off by "+late.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					o := answered(&late, func(r *http.Request) (int, string, error) {
						switch off := time.Now().Add(late).Sub(dated(t, r)).Abs(); {
						case off > 15*time.Minute:
							return http.StatusForbidden, "", nil
						case strings.Contains(r.URL.Path, "/objects/"):
							return http.StatusNotFound, "", nil
						}
						return http.StatusOK, "", nil
					})
					if err := ask(t.Context(), s3.Open(o)); err != nil {
						t.Error(err)
					}
				})
			})
		}
	}
}

// TestDateAfterSlowUpload: the duration of an upload must not affect the estimated clock. A deletion dated ahead would
// be accepted for longer than other processes wait.
func TestDateAfterSlowUpload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ahead time.Duration
		o := answered(new(time.Duration), func(r *http.Request) (int, string, error) {
			ahead = time.Until(dated(t, r))
			switch r.Method {
			case http.MethodPut: // over a slow connection
				for b := make([]byte, 1); ; time.Sleep(30 * time.Second) {
					if _, err := r.Body.Read(b); err != nil {
						return http.StatusOK, "", nil
					}
				}
			case http.MethodDelete:
				return http.StatusNoContent, "", nil
			}
			return http.StatusOK, "", nil
		})
		b := s3.Open(o)
		if _, err := b.PutBytes(t.Context(), make([]byte, 20)); err != nil {
			t.Fatal(err)
		}
		if err := b.DeleteBlob(t.Context(), "records/a"); err != nil || ahead > time.Second {
			t.Errorf("delete: %v, signed as of %v from now, want now", err, ahead)
		}
	})
}

// TestUnknownName: an unknown host name ends a request at once, unless its server has answered before.
func TestUnknownName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries, unknown := 0, 0 // number of requests with this fault
		b := s3.Open(answered(new(time.Duration), func(*http.Request) (int, string, error) {
			if tries++; tries <= unknown {
				return 0, "", &net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host", Name: "s3.test", IsNotFound: true}}
			}
			return http.StatusOK, "", nil
		}))
		now := func(times int) (int, error) {
			tries, unknown = 0, times
			_, err := b.Now(t.Context())
			return tries, err
		}
		if tries, err := now(3); tries != 1 || err == nil {
			t.Errorf("at first: got %v after %d tries, want an error after one", err, tries)
		}
		if _, err := now(0); err != nil {
			t.Fatal(err)
		}
		if tries, err := now(3); tries != 4 || err != nil {
			t.Errorf("after an answer: got %v after %d tries, want the fourth to succeed", err, tries)
		}
	})
}

package dynamo_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"e3/internal/testing/testserver"
	"e3/refstore"
	"e3/refstore/dynamo"
)

// client is an HTTP client with answers of a test.
type client func(*http.Request) (*http.Response, error)

func (c client) Do(r *http.Request) (*http.Response, error) { return c(r) }

// reply is an answer of DynamoDB with the given date.
func reply(status int, body string, date time.Time) *http.Response {
	w := httptest.NewRecorder()
	w.Header().Set("Content-Type", "application/x-amz-json-1.0")
	w.Header().Set("Date", date.UTC().Format(http.TimeFormat))
	w.WriteHeader(status)
	io.WriteString(w, body)
	return w.Result()
}

// answered returns options of a store whose requests f answers, by operation, in a bubble of testing/synctest.
func answered(f func(op string, r *http.Request) (*http.Response, error)) dynamo.Options {
	o := dynamo.Options{Config: testserver.Config(), Endpoint: "http://dynamodb.test", Table: "table", Repository: "repository", Blobs: newBlobs()}
	o.Config.HTTPClient = client(func(r *http.Request) (*http.Response, error) {
		_, op, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
		return f(op, r)
	})
	return o
}

// TestSignedAnew: a write that the server has refused as too old is sent again with a date that Permit gets, whichever
// request has shown the right time.
func TestSignedAnew(t *testing.T) {
	record := refstore.Record{Key: refstore.Key{Partition: "WORKSPACE", Sort: "a"}}
	for _, first := range []string{"the write", "a read"} {
		t.Run(first+" is told", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var late time.Duration // by which the machine's clock is late, after a suspension
				taken := 0
				o := answered(func(op string, r *http.Request) (*http.Response, error) {
					now := time.Now().Add(late)
					if date, err := time.Parse("20060102T150405Z", r.Header.Get("X-Amz-Date")); err != nil || now.Sub(date) > 5*time.Minute {
						return reply(400, `{"__type":"InvalidSignatureException","message":"Signature expired"}`, now), nil
					}
					if op == "PutItem" {
						taken++
					}
					return reply(200, `{}`, now), nil
				})
				lost := errors.New("lost")
				var asked []time.Duration
				o.Permit = func(_ context.Context, _ string, signed time.Time) error {
					ahead := time.Until(signed).Round(time.Minute)
					asked = append(asked, ahead)
					if ahead > 0 {
						return lost
					}
					return nil
				}
				s := open(t, o)
				if _, err := s.Put(t.Context(), record); err != nil || taken != 1 {
					t.Fatalf("before: %v, %d writes", err, taken)
				}
				late, taken = 2*time.Hour, 0
				if first == "a read" {
					if _, err := s.Get(t.Context(), record.Key); !errors.Is(err, refstore.ErrNotFound) {
						t.Fatal(err)
					}
				}
				if _, err := s.Put(t.Context(), record); !errors.Is(err, lost) || taken != 0 {
					t.Errorf("after: got %v, %d writes, want what Permit says of one two hours later; it was asked for %v", err, taken, asked)
				}
			})
		})
	}
}

// TestCreateTableThatIsNotKnownYet: a table that was just made counts as being created while DescribeTable does not
// find it.
func TestCreateTableThatIsNotKnownYet(t *testing.T) {
	for _, c := range []struct {
		name    string
		another bool // another process makes the table at the same time
		unknown int  // number of answers that do not know it
		want    string
	}{
		{name: "once", unknown: 1},
		{name: "for some time", unknown: 10},
		{name: "another's", another: true, unknown: 1},
		{name: "for ever", unknown: 1 << 30, want: "still being created"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				made, since := false, 0
				o := answered(func(op string, r *http.Request) (*http.Response, error) {
					switch op {
					case "CreateTable":
						made = true
						if c.another {
							return reply(400, `{"__type":"ResourceInUseException"}`, time.Now()), nil
						}
						return reply(200, `{"TableDescription":{"TableStatus":"CREATING"}}`, time.Now()), nil
					case "DescribeTable":
						if made {
							since++
						}
						if !made || since <= c.unknown {
							return reply(400, `{"__type":"ResourceNotFoundException","message":"no such table"}`, time.Now()), nil
						}
						return reply(200, `{"Table":{"TableStatus":"`+map[bool]string{true: "CREATING", false: "ACTIVE"}[since == c.unknown+1]+`",
							"KeySchema":[{"AttributeName":"PK","KeyType":"HASH"},{"AttributeName":"SK","KeyType":"RANGE"}]}}`, time.Now()), nil
					}
					return reply(400, `{"__type":"UnknownOperationException"}`, time.Now()), nil
				})
				got, err := dynamo.CreateTable(t.Context(), o)
				if c.want == "" && (err != nil || got.Created == c.another) {
					t.Errorf("got %+v, %v, want it made here: %v", got, err, !c.another)
				}
				if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
					t.Errorf("got error %v, want one that says %q", err, c.want)
				}
			})
		})
	}
}

// TestUnknownName: an unknown host name ends a request at once, unless its server has answered before.
func TestUnknownName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		unknown := 0 // number of requests with this fault
		o := answered(func(string, *http.Request) (*http.Response, error) {
			if unknown--; unknown >= 0 {
				return nil, &net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host", Name: "dynamodb.test", IsNotFound: true}}
			}
			return reply(200, `{}`, time.Now()), nil
		})
		s := open(t, o)
		get := func() (tries int, err error) {
			unknown = 3
			_, err = s.Get(t.Context(), execution)
			return min(3-unknown, 4), err
		}
		if tries, err := get(); tries != 1 || err == nil || errors.Is(err, refstore.ErrNotFound) {
			t.Errorf("at first: got %v after %d tries, want an error after one", err, tries)
		}
		unknown = 0
		if _, err := s.Get(t.Context(), execution); !errors.Is(err, refstore.ErrNotFound) {
			t.Fatal(err)
		}
		if tries, err := get(); tries != 4 || !errors.Is(err, refstore.ErrNotFound) {
			t.Errorf("after an answer: got %v after %d tries, want that of the fourth", err, tries)
		}
	})
}

package s3_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"
	"golang.org/x/sync/errgroup"

	"e3/internal/testing/suite"
	"e3/internal/testing/testserver"
	"e3/objectstore"
	"e3/objectstore/s3"
)

// inShard puts n small objects of a shard and returns their names in order.
func inShard(t *testing.T, b *s3.Bucket, shard byte, n int) []objectstore.Hash {
	t.Helper()
	var hs []objectstore.Hash
	var g errgroup.Group
	g.SetLimit(8)
	for i := uint64(0); len(hs) < n; i++ {
		data := binary.BigEndian.AppendUint64(nil, i)
		if h := objectstore.Sum(data); h[0] == shard {
			hs = append(hs, h)
			g.Go(func() error {
				_, err := b.PutBytes(t.Context(), data)
				return err
			})
		}
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(hs, objectstore.Hash.Compare)
	return hs
}

func list(t *testing.T, b *s3.Bucket, shard byte) []objectstore.Hash {
	t.Helper()
	var hs []objectstore.Hash
	for e, err := range b.List(t.Context(), shard) {
		if err != nil {
			t.Fatalf("List: %v", err)
		}
		hs = append(hs, e.Hash)
		if e.Size != 8 || time.Since(e.Time).Abs() > time.Hour {
			t.Errorf("List: got %+v, want 8 bytes and a time of now", e)
		}
	}
	return hs
}

func TestList(t *testing.T) {
	each(t, func(t *testing.T, o s3.Options) {
		o.PageSize = 3
		b := s3.Open(o)
		if got := list(t, b, 0x42); len(got) != 0 {
			t.Errorf("an empty shard: got %v, want nothing", got)
		}
		want := inShard(t, b, 0x42, 10)
		inShard(t, b, 0x43, 2)
		client := plain(o)
		text := want[0].String()
		for _, key := range []string{
			"objects/42/short", "objects/42/" + strings.ToUpper(text[2:]), "objects/42/" + text[2:] + "0",
			"objects/42/" + strings.Repeat("g", 62), "objects/42/sub/" + text[2:], "objects/42/" + strings.Repeat("é", 31), "objects/42a/" + text[2:],
		} {
			key = o.Prefix + "/" + key
			if _, err := client.PutObject(t.Context(), &awss3.PutObjectInput{Bucket: &o.Bucket, Key: &key, Body: strings.NewReader("other")}); err != nil {
				t.Fatalf("put %q: %v", key, err)
			}
		}
		if got := list(t, b, 0x42); !slices.Equal(got, want) {
			t.Errorf("got %v\nwant %v", got, want)
		}
		n := 0
		for range b.List(t.Context(), 0x42) {
			if n++; n == 2 {
				break
			}
		}
		if n != 2 {
			t.Errorf("a list that was broken off yielded %d, want 2", n)
		}
	})
}

func TestListOfManyPages(t *testing.T) {
	o := options(testserver.GoFakeS3(t))
	b := create(t, o)
	want := inShard(t, b, 7, 1005)
	if got := list(t, b, 7); !slices.Equal(got, want) {
		t.Errorf("got %d names, want the %d that were put", len(got), len(want))
	}
	if err := b.Delete(t.Context(), want); err != nil {
		t.Errorf("Delete: %v", err)
	}
	if got := list(t, b, 7); len(got) != 0 {
		t.Errorf("%d are left, want none", len(got))
	}
}

func TestPrefixesAreApart(t *testing.T) {
	each(t, func(t *testing.T, o s3.Options) {
		b := s3.Open(o)
		h := put(t, b, []byte("data"))
		o.Prefix += "2"
		other := s3.Open(o)
		absent(t, other, h)
		put(t, other, []byte("data"))
		if err := other.Delete(t.Context(), []objectstore.Hash{h}); err != nil {
			t.Error(err)
		}
		check(t, b, h, []byte("data"))
		o.Prefix = ""
		root := s3.Open(o)
		absent(t, root, h)
		put(t, root, []byte("data"))
		check(t, root, h, []byte("data"))
	})
}

func TestDelete(t *testing.T) {
	each(t, func(t *testing.T, o s3.Options) {
		proxy := testserver.NewProxy(t, o.Endpoint)
		o.Endpoint, o.PageSize = proxy.URL(), 10
		b := s3.Open(o)
		hs := inShard(t, b, 1, 25)
		kept := inShard(t, b, 2, 1)
		hs = append(hs, objectstore.Sum([]byte("absent")))
		if err := b.Delete(t.Context(), hs); err != nil {
			t.Fatalf("Delete: %v", err)
		}
		if n := proxy.Calls()["DeleteObjects"]; n != 3 {
			t.Errorf("%d requests to delete 26 objects by 10, want 3", n)
		}
		if got := list(t, b, 1); len(got) != 0 {
			t.Errorf("%d objects are left, want none", len(got))
		}
		if got := list(t, b, 2); !slices.Equal(got, kept) {
			t.Errorf("got %v in another shard, want %v", got, kept)
		}
		if err := b.Delete(t.Context(), nil); err != nil {
			t.Errorf("Delete of nothing: %v", err)
		}
	})
}

func TestDeleteOneByOne(t *testing.T) {
	o := options(testserver.GoFakeS3(t))
	hs := inShard(t, create(t, o), 1, 12)
	o.Endpoint = tamper(t, o.Endpoint, func(w http.ResponseWriter, r *http.Request) bool {
		return r.Method == http.MethodPost && refuse(w, r, http.StatusNotImplemented, "NotImplemented")
	})
	b := s3.Open(o)
	if err := b.Delete(t.Context(), append(hs, objectstore.Sum([]byte("absent")))); err != nil {
		t.Errorf("Delete: %v", err)
	}
	if got := list(t, b, 1); len(got) != 0 {
		t.Errorf("%d objects are left, want none", len(got))
	}
}

// A deletion without an answer may still take effect, whatever the results of later attempts are.
func TestDeleteUnanswered(t *testing.T) {
	for _, way := range []string{"DeleteObjects", "DeleteObject"} {
		for _, row := range []struct {
			fault testserver.Fault
			late  bool
		}{
			{testserver.Throttle, false}, {testserver.Fail, false},
			{testserver.DropBefore, true}, {testserver.DropAfter, true}, {testserver.Hang, true},
		} {
			t.Run(way+" "+row.fault.String(), func(t *testing.T) {
				t.Parallel()
				o := options(testserver.GoFakeS3(t))
				o.Patience, o.Attempts = 200*time.Millisecond, 3
				create(t, o)
				proxy := testserver.NewProxy(t, o.Endpoint)
				o.Endpoint = proxy.URL()
				if way == "DeleteObject" {
					o.Endpoint = tamper(t, o.Endpoint, func(w http.ResponseWriter, r *http.Request) bool {
						return r.Method == http.MethodPost && refuse(w, r, http.StatusNotImplemented, "NotImplemented")
					})
				}
				b := s3.Open(o)
				h := put(t, b, []byte("data"))
				proxy.Faults(1, testserver.Rule{Op: way, Fault: row.fault, Times: 1})
				err := b.Delete(t.Context(), []objectstore.Hash{h})
				if late := errors.Is(err, objectstore.ErrUnanswered); late != row.late || !late && err != nil {
					t.Errorf("Delete: got %v, want ErrUnanswered: %v", err, row.late)
				}
				if n := proxy.Calls()[way]; n != 2 {
					t.Errorf("%d requests, want 2", n)
				}
				absent(t, b, h)
				if row.fault == testserver.Hang { // the deletion takes effect late
					put(t, b, []byte("data"))
					proxy.Release()
					gone := func() bool { _, err := b.Stat(t.Context(), h); return errors.Is(err, objectstore.ErrNotFound) }
					for deadline := time.Now().Add(suite.Stuck); !gone(); {
						if time.Now().After(deadline) {
							t.Fatal("the first try did not arrive")
						}
					}
				}
			})
		}
	}
}

// Without the permission to delete, the error says so, and that nothing will be removed later, whichever request the
// server takes.
func TestDeleteRefused(t *testing.T) {
	for _, way := range []string{"DeleteObjects", "DeleteObject"} {
		t.Run(way, func(t *testing.T) {
			o, _ := faulty(t)
			h := put(t, s3.Open(o), []byte("data"))
			o.Endpoint = tamper(t, o.Endpoint, func(w http.ResponseWriter, r *http.Request) bool {
				if r.Method == http.MethodPost && way == "DeleteObject" {
					return refuse(w, r, http.StatusNotImplemented, "NotImplemented")
				}
				return (r.Method == http.MethodPost || r.Method == http.MethodDelete) && refuse(w, r, http.StatusForbidden, "AccessDenied")
			})
			b := s3.Open(o)
			if err := b.Delete(t.Context(), []objectstore.Hash{h}); !errors.Is(err, objectstore.ErrRefused) || !strings.Contains(err.Error(), "AccessDenied") {
				t.Errorf("got %v, want ErrRefused with what the server said", err)
			}
			check(t, b, h, []byte("data"))
		})
	}
}

// If no attempt succeeds, the error is that of the last one, and no key is reported as removed.
func TestDeleteNeverAnswered(t *testing.T) {
	o, proxy := faulty(t)
	o.Attempts = 3
	b := s3.Open(o)
	h := put(t, b, []byte("data"))
	proxy.Faults(1, testserver.Rule{Op: "DeleteObjects", Fault: testserver.DropBefore})
	if err := b.Delete(t.Context(), []objectstore.Hash{h}); err == nil || errors.Is(err, objectstore.ErrUnanswered) || errors.Is(err, objectstore.ErrRefused) {
		t.Errorf("Delete: got %v, want an error that says nothing of having removed it, or not", err)
	}
	if n := proxy.Calls()["DeleteObjects"]; n != 3 {
		t.Errorf("%d requests, want 3", n)
	}
	// A request that was never sent needs no answer.
	o.Endpoint = "http://127.0.0.1:1"
	if err := s3.Open(o).Delete(t.Context(), []objectstore.Hash{h}); err == nil || errors.Is(err, objectstore.ErrUnanswered) {
		t.Errorf("Delete where nobody listens: got %v, want an error", err)
	}
}

func TestDeleteErrors(t *testing.T) {
	o := options(testserver.GoFakeS3(t))
	hs := inShard(t, create(t, o), 1, 9)
	key := func(h objectstore.Hash) string {
		return o.Prefix + "/objects/" + h.String()[:2] + "/" + h.String()[2:]
	}
	var busy atomic.Int32
	o.Endpoint = tamper(t, o.Endpoint, func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPost {
			return false
		}
		body, _ := io.ReadAll(r.Body)
		io.WriteString(w, "<DeleteResult>")
		for i, h := range hs {
			switch {
			case !strings.Contains(string(body), key(h)):
			case i == 0 && busy.Add(1) < 3:
				fmt.Fprintf(w, "<Error><Key>%s</Key><Code>SlowDown</Code><Message>later</Message></Error>", key(h))
			case i == 1:
				fmt.Fprintf(w, "<Error><Key>%s</Key><Code>NoSuchKey</Code></Error>", key(h))
			case i > 1:
				fmt.Fprintf(w, "<Error><Key>%s</Key><Code>AccessDenied</Code><Message>no\x7f</Message></Error>", key(h))
			}
		}
		io.WriteString(w, "</DeleteResult>")
		return true
	})
	err := s3.Open(o).Delete(t.Context(), hs)
	failure := (*s3.Error)(nil)
	if !errors.As(err, &failure) || failure.Code != "AccessDenied" || failure.Key != key(hs[2]) {
		t.Fatalf("got %v, want AccessDenied of %s", err, key(hs[2]))
	}
	if text := err.Error(); strings.Count(text, "AccessDenied") != 5 || !strings.Contains(text, "and 2 more") || strings.Contains(text, "\x7f") {
		t.Errorf("got %q, want five of seven failures, printable", text)
	}
	if busy.Load() != 3 {
		t.Errorf("the object that the server had no time for was deleted %d times, want 3", busy.Load())
	}
}

func TestNow(t *testing.T) {
	each(t, func(t *testing.T, o s3.Options) {
		o.Endpoint = tamperBoth(t, o.Endpoint, nil, func(r *http.Response) error {
			r.Header.Set("Date", time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat))
			return nil
		})
		now, err := s3.Open(o).Now(t.Context())
		if off := time.Since(now) - time.Hour; err != nil || off.Abs() > 5*time.Second {
			t.Errorf("got %v, %v; want an hour ago", now, err)
		}
		o.Bucket = testserver.Name()
		if _, err := s3.Open(o).Now(t.Context()); err == nil || !strings.Contains(err.Error(), "NoSuchBucket") {
			t.Errorf("without a bucket: got %v, want NoSuchBucket", err)
		}
	})
}

package s3_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"

	"e3/internal/testing/testserver"
	"e3/objectstore"
	"e3/objectstore/s3"
)

// faulty returns a bucket behind a proxy.
func faulty(t *testing.T) (s3.Options, *testserver.Proxy) {
	t.Helper()
	o := servers["gofakes3"](t)
	create(t, o)
	proxy := testserver.NewProxy(t, o.Endpoint)
	o.Endpoint = proxy.URL()
	return o, proxy
}

// plain is a client of the SDK, for checks that a Bucket does not offer.
func plain(o s3.Options) *awss3.Client {
	return awss3.NewFromConfig(o.Config, func(c *awss3.Options) {
		c.BaseEndpoint, c.UsePathStyle = &o.Endpoint, true
	})
}

func unfinished(t *testing.T, o s3.Options) int {
	t.Helper()
	out, err := plain(o).ListMultipartUploads(t.Context(), &awss3.ListMultipartUploadsInput{Bucket: &o.Bucket})
	if api := smithy.APIError(nil); errors.As(err, &api) && api.ErrorCode() == "NoSuchUpload" {
		return 0 // gofakes3's answer if there never was one
	}
	if err != nil {
		t.Fatal(err)
	}
	return len(out.Uploads)
}

// everything uses all operations and checks what they do.
func everything(t *testing.T, b *s3.Bucket) {
	t.Helper()
	ctx := t.Context()
	for i, size := range []int{0, 100_000, 700_000} {
		data := random(size, uint64(i))
		h := put(t, b, data)
		check(t, b, h, data)
		found := false
		for e, err := range b.List(ctx, h[0]) {
			if err != nil {
				t.Errorf("List: %v", err)
			}
			found = found || e.Hash == h
		}
		if !found {
			t.Errorf("List does not name %s", h)
		}
		if err := b.Delete(ctx, []objectstore.Hash{h}); err != nil && !errors.Is(err, objectstore.ErrUnanswered) {
			t.Errorf("Delete: %v", err)
		}
		absent(t, b, h)
	}
	if err := b.PutBlob(ctx, "records/1", random(100_000, 9)); err != nil {
		t.Errorf("PutBlob: %v", err)
	}
	r, err := b.OpenBlob(ctx, "records/1", 10)
	if err != nil {
		t.Fatalf("OpenBlob: %v", err)
	}
	defer r.Close()
	if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, random(100_000, 9)[10:]) {
		t.Errorf("blob: got %d bytes, %v; want 99990", len(got), err)
	}
	if err := b.DeleteBlob(ctx, "records/1"); err != nil {
		t.Errorf("DeleteBlob: %v", err)
	}
	if _, err := b.Now(ctx); err != nil {
		t.Errorf("Now: %v", err)
	}
}

func TestFaults(t *testing.T) {
	ops := []string{
		"PutObject", "GetObject", "HeadObject", "DeleteObject", "DeleteObjects", "ListObjects", "HeadBucket",
		"CreateMultipartUpload", "UploadPart", "CompleteMultipartUpload",
	}
	faults := []testserver.Fault{testserver.Throttle, testserver.Fail, testserver.DropBefore, testserver.DropAfter, testserver.DropWithin}
	for _, op := range ops {
		t.Run(op, func(t *testing.T) {
			t.Parallel()
			o, proxy := faulty(t)
			b := s3.Open(o)
			for _, fault := range faults {
				proxy.Reset()
				proxy.Faults(1, testserver.Rule{Op: op, Fault: fault, Times: 3})
				everything(t, b)
				if n := proxy.Struck()[fault]; n != 3 {
					t.Errorf("%v struck %d requests, want 3", fault, n)
				}
				if t.Failed() {
					t.Fatalf("with the fault %q", fault)
				}
			}
			proxy.Faults(1)
			// Uploads that were begun and lost are found later.
			if _, err := b.RemoveUploads(t.Context(), time.Now().Add(time.Hour)); err != nil {
				t.Error(err)
			}
			if n := unfinished(t, o); n != 0 {
				t.Errorf("%d uploads are unfinished, want none", n)
			}
		})
	}
}

func TestPutWhoseAnswerIsLostIsNotSentAgain(t *testing.T) {
	for _, size := range []int{1000, 700_000} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			o, proxy := faulty(t)
			proxy.Faults(1,
				testserver.Rule{Op: "PutObject", Fault: testserver.DropAfter, Times: 1},
				testserver.Rule{Op: "CompleteMultipartUpload", Fault: testserver.DropAfter, Times: 1})
			h := put(t, s3.Open(o), random(size, 1))
			calls := proxy.Calls()
			if calls["PutObject"] > 1 || calls["UploadPart"] > 4 {
				t.Errorf("got the calls %v, want none again that sends data", calls)
			}
			check(t, s3.Open(o), h, random(size, 1))
		})
	}
}

func TestFailedPutLeavesNothing(t *testing.T) {
	data := random(700_000, 1)
	h := objectstore.Sum(data)
	for _, op := range []string{"PutObject", "UploadPart", "CompleteMultipartUpload"} {
		t.Run(op, func(t *testing.T) {
			o, proxy := faulty(t)
			o.Attempts = 2
			if op == "PutObject" {
				o.PartSize = 1 << 20
			}
			proxy.Faults(1, testserver.Rule{Op: op, Fault: testserver.Fail})
			_, err := s3.Open(o).Put(t.Context(), h, bytes.NewReader(data), int64(len(data)))
			failure := (*s3.Error)(nil)
			if !errors.As(err, &failure) || failure.Code != "InternalError" || failure.Status != 500 {
				t.Errorf("Put: got %v, want an InternalError", err)
			}
			if err != nil && (!strings.Contains(err.Error(), o.Bucket) || !strings.Contains(err.Error(), h.String()[2:])) {
				t.Errorf("the error %q does not name bucket and key", err)
			}
			proxy.Faults(1)
			absent(t, s3.Open(o), h)
			if n := unfinished(t, o); n != 0 {
				t.Errorf("%d uploads are unfinished, want none", n)
			}
		})
	}
}

func TestCancelledPutLeavesNothing(t *testing.T) {
	o := options(testserver.GoFakeS3(t))
	o.PartSize = 100_000
	create(t, o)
	ctx, cancel := context.WithCancel(t.Context())
	o.Endpoint = tamper(t, o.Endpoint, func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Query().Get("partNumber") == "3" {
			cancel()
		}
		return false
	})
	data := random(700_000, 1)
	h := objectstore.Sum(data)
	if _, err := s3.Open(o).Put(ctx, h, bytes.NewReader(data), int64(len(data))); !errors.Is(err, context.Canceled) {
		t.Errorf("Put: got %v, want %v", err, context.Canceled)
	}
	absent(t, s3.Open(o), h)
	if n := unfinished(t, o); n != 0 {
		t.Errorf("%d uploads are unfinished, want none", n)
	}
}

// A failingReader has fewer bytes than its size says.
type failingReader struct {
	from int64
	err  error
}

func (r failingReader) ReadAt(p []byte, off int64) (int, error) {
	if n := r.from - off; n < int64(len(p)) {
		return int(max(n, 0)), r.err
	}
	return len(p), nil
}

func TestPutOfWhatCannotBeRead(t *testing.T) {
	cause := errors.New("the disk is on fire")
	for _, tt := range []struct {
		name string
		r    failingReader
		size int64
		want error
	}{
		{"small fails", failingReader{10, cause}, 1000, cause},
		{"small is short", failingReader{10, io.EOF}, 1000, io.ErrUnexpectedEOF},
		{"medium fails at the end", failingReader{199_999, cause}, 200_000, cause},
		{"large fails", failingReader{500_000, cause}, 700_000, cause},
		{"large is short", failingReader{500_000, io.EOF}, 700_000, io.ErrUnexpectedEOF},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o, proxy := faulty(t)
			h := objectstore.Sum([]byte(tt.name))
			_, err := s3.Open(o).Put(t.Context(), h, tt.r, tt.size)
			if !errors.Is(err, tt.want) || err != nil && !strings.Contains(err.Error(), h.String()) {
				t.Errorf("got %v, want %v of the object %s", err, tt.want, h)
			}
			if calls := proxy.Calls(); calls["PutObject"] > 1 || calls["CompleteMultipartUpload"] > 0 {
				t.Errorf("got the calls %v, want no second attempt", calls)
			}
			absent(t, s3.Open(o), h)
			if n := unfinished(t, o); n != 0 {
				t.Errorf("%d uploads are unfinished, want none", n)
			}
		})
	}
}

func TestReadsGoOnWhereTheyBroke(t *testing.T) {
	o, proxy := faulty(t)
	o.PartSize = 400_000
	b := s3.Open(o)
	data := random(1_500_000, 1)
	h := put(t, b, data)
	proxy.Reset()
	proxy.Faults(1, testserver.Rule{Op: "GetObject", Fault: testserver.DropWithin, Times: 4})
	got, err := open(t.Context(), b, h)
	if err != nil || !bytes.Equal(got, data) {
		t.Errorf("Open: got %d bytes, %v; want %d", len(got), err, len(data))
	}
	if n := proxy.Calls()["GetObject"]; n != 5 {
		t.Errorf("Open: %d requests, want 5", n)
	}
	proxy.Faults(1, testserver.Rule{Op: "GetObject", Fault: testserver.DropWithin, Probability: 0.5})
	var m memory
	size, err := b.Fetch(t.Context(), h, &m)
	if err != nil || size != int64(len(data)) || !bytes.Equal(m.data, data) {
		t.Errorf("Fetch: got size %d and %d bytes, %v; want %d", size, len(m.data), err, len(data))
	}
}

func TestReadsWithoutProgressEnd(t *testing.T) {
	o := options(testserver.GoFakeS3(t))
	o.Attempts = 4
	b := create(t, o)
	h := put(t, b, random(1000, 1))
	requests := 0
	o.Endpoint = tamper(t, o.Endpoint, func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodGet {
			return false
		}
		requests++
		w.Header().Set("Content-Length", "1000")
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	})
	_, err := open(t.Context(), s3.Open(o), h)
	if !errors.Is(err, io.ErrUnexpectedEOF) || requests != 4 {
		t.Errorf("got %v after %d requests, want %v after 4", err, requests, io.ErrUnexpectedEOF)
	}
}

func TestStalls(t *testing.T) {
	gate := testserver.GoFakeS3(t)
	data := random(1_000_000, 1)
	h := objectstore.Sum(data)
	// Each of these answers up to some point, and then stalls.
	silence := func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	}
	for _, tt := range []struct {
		name string
		hang func(w http.ResponseWriter, r *http.Request)
		call func(b *s3.Bucket) error
	}{
		{"no answer", silence, func(b *s3.Bucket) error {
			_, err := b.Stat(t.Context(), h)
			return err
		}},
		{"no answer to a put", silence, func(b *s3.Bucket) error {
			return b.PutBlob(t.Context(), "a", data)
		}},
		{"half a body", func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Range") == "" {
				w.Header().Set("Content-Length", "1000000")
				w.Write(data[:500_000])
				w.(http.Flusher).Flush()
			}
			<-r.Context().Done()
		}, func(b *s3.Bucket) error {
			_, err := open(t.Context(), b, h)
			return err
		}},
		{"half a list", func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, "<ListBucketResult><IsTruncated>")
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}, func(b *s3.Bucket) error {
			for _, err := range b.List(t.Context(), 1) {
				return err
			}
			return nil
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := options(gate)
			o.Attempts, o.Patience = 2, 50*time.Millisecond
			o.Endpoint = tamper(t, gate, func(w http.ResponseWriter, r *http.Request) bool {
				tt.hang(w, r)
				return true
			})
			err := tt.call(s3.Open(o))
			if stall := (*s3.StallError)(nil); !errors.As(err, &stall) || stall.After != o.Patience {
				t.Errorf("got %v, want a StallError", err)
			}
		})
	}
}

// A server that accepts connections and reads nothing stalls the sending of a body.
func TestUploadStalls(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			defer c.Close()
		}
	}()
	o := options("http://" + l.Addr().String())
	o.Attempts, o.Patience = 1, 100*time.Millisecond
	err = s3.Open(o).PutBlob(t.Context(), "a", random(30<<20, 1))
	if stall := (*s3.StallError)(nil); !errors.As(err, &stall) {
		t.Errorf("got %v, want a StallError", err)
	}
}

// A slow reader does not count as a slow server.
func TestSlowReaderIsNoStall(t *testing.T) {
	o := options(testserver.GoFakeS3(t))
	o.Patience = 200 * time.Millisecond
	b := create(t, o)
	data := random(3_000_000, 1)
	h := put(t, b, data)
	r, err := b.Open(t.Context(), h)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	late := time.NewTimer(3 * o.Patience)
	<-late.C
	if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, data) {
		t.Errorf("got %d bytes, %v; want %d", len(got), err, len(data))
	}
}

func TestHangIsTriedAgain(t *testing.T) {
	o, proxy := faulty(t)
	o.Patience = 300 * time.Millisecond
	proxy.Faults(1, testserver.Rule{Op: "UploadPart", Fault: testserver.Hang, Times: 1})
	data := random(700_000, 1)
	h := put(t, s3.Open(o), data)
	proxy.Release()
	check(t, s3.Open(o), h, data)
}

func TestConflictIsTriedAgain(t *testing.T) {
	gate := testserver.GoFakeS3(t)
	for _, size := range []int{1000, 700_000} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			o := options(gate)
			o.PartSize = 200_000
			create(t, o)
			conflicts := 2
			o.Endpoint = tamper(t, gate, func(w http.ResponseWriter, r *http.Request) bool {
				if r.Header.Get("If-None-Match") == "" || conflicts == 0 {
					return false
				}
				conflicts--
				io.Copy(io.Discard, r.Body)
				return refuse(w, r, http.StatusConflict, "ConditionalRequestConflict")
			})
			data := random(size, 1)
			created, err := s3.Open(o).Put(t.Context(), objectstore.Sum(data), bytes.NewReader(data), int64(size))
			if err != nil || !created || conflicts != 0 {
				t.Errorf("got %v, %v with %d conflicts to come, want it created", created, err, conflicts)
			}
			check(t, s3.Open(o), objectstore.Sum(data), data)
		})
	}
}

func TestThrottlingForEver(t *testing.T) {
	o, proxy := faulty(t)
	o.Attempts = 3
	proxy.Faults(1, testserver.Rule{Fault: testserver.Throttle})
	_, err := open(t.Context(), s3.Open(o), objectstore.Sum(nil))
	failure := (*s3.Error)(nil)
	if !errors.As(err, &failure) || failure.Code != "SlowDown" || failure.Advice == "" {
		t.Errorf("got %v, want SlowDown and what to do", err)
	}
	if n := proxy.Calls()["GetObject"]; n != 3 {
		t.Errorf("%d requests, want 3", n)
	}
}

func TestRemoveUploads(t *testing.T) {
	each(t, func(t *testing.T, o s3.Options) {
		client := plain(o)
		var keys []string
		for i := range 5 {
			h := objectstore.Sum([]byte{byte(i)}).String()
			key := o.Prefix + "/objects/" + h[:2] + "/" + h[2:]
			keys = append(keys, key)
			if _, err := client.CreateMultipartUpload(t.Context(), &awss3.CreateMultipartUploadInput{Bucket: &o.Bucket, Key: &key}); err != nil {
				t.Fatal(err)
			}
		}
		other := "elsewhere/" + keys[0]
		if _, err := client.CreateMultipartUpload(t.Context(), &awss3.CreateMultipartUploadInput{Bucket: &o.Bucket, Key: &other}); err != nil {
			t.Fatal(err)
		}
		o.PageSize = 2
		b := s3.Open(o)
		if n, err := b.RemoveUploads(t.Context(), time.Now().Add(-time.Hour)); n != 0 || err != nil {
			t.Errorf("before they began: removed %d, %v; want none", n, err)
		}
		if n, err := b.RemoveUploads(t.Context(), time.Now().Add(time.Hour)); n != 5 || err != nil {
			t.Errorf("removed %d, %v; want 5", n, err)
		}
		out, err := client.ListMultipartUploads(t.Context(), &awss3.ListMultipartUploadsInput{Bucket: &o.Bucket})
		if err != nil {
			t.Fatal(err)
		}
		var left []string
		for _, u := range out.Uploads {
			left = append(left, aws.ToString(u.Key))
		}
		if !slices.Equal(left, []string{other}) {
			t.Errorf("left are %q, want %q", left, other)
		}
	})
}

func TestWeather(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			o, proxy := faulty(t)
			o.Attempts = 20 // with a third of all requests failing, ten attempts sometimes are too few
			proxy.Faults(seed, testserver.Weather(rand.New(rand.NewPCG(seed, 1)), 0.3, 20*time.Millisecond)...)
			everything(t, s3.Open(o))
		})
	}
}

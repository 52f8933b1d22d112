package s3_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"e3/internal/testing/testserver"
	"e3/objectstore"
	"e3/objectstore/s3"
)

// answers returns a bucket of a server that always gives the same answer.
func answers(t *testing.T, answer func(w http.ResponseWriter, r *http.Request)) *s3.Bucket {
	t.Helper()
	o := options("")
	o.Attempts, o.PartSize = 2, 1000
	o.Endpoint = tamper(t, "http://127.0.0.1:1", func(w http.ResponseWriter, r *http.Request) bool {
		answer(w, r)
		return true
	})
	return s3.Open(o)
}

// ranged answers a request with n bytes, and declares them as the given part of the object.
func ranged(part string, n int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Range", part)
		w.WriteHeader(http.StatusPartialContent)
		w.Write(make([]byte, n))
	}
}

func TestHostileReads(t *testing.T) {
	h := objectstore.Sum(nil)
	for _, tt := range []struct {
		name   string
		answer func(w http.ResponseWriter, r *http.Request)
	}{
		{"truncated", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "500")
			w.Write(make([]byte, 499))
		}},
		{"no length", func(w http.ResponseWriter, r *http.Request) {
			w.(http.Flusher).Flush()
			w.Write(make([]byte, 10))
		}},
		{"another range", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Range", "bytes 5-14/2000")
			w.WriteHeader(http.StatusPartialContent)
			w.Write(make([]byte, 10))
			// For the request without a range, the answer looks like all of an object of 10 bytes.
		}},
		{"a range that is too short", ranged("bytes 0-9/2000", 10)},
		{"a range that is none", ranged("bytes 0-9/*", 10)},
		{"a size beyond all bounds", ranged("bytes 0-999/9223372036854775807", 1000)},
		{"a size that is not true", ranged("bytes 0-999/4000000000000000000", 1000)},
		{"a redirect", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Location", "http://127.0.0.1:1/")
			w.WriteHeader(http.StatusFound)
		}},
		{"an error that is no XML", func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusBadRequest)
			io.WriteString(w, "\x1b[31mno")
		}},
		{"nothing", func(w http.ResponseWriter, r *http.Request) { panic(http.ErrAbortHandler) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := answers(t, tt.answer)
			var m memory
			if n, err := b.Fetch(t.Context(), h, &m); err == nil {
				t.Errorf("Fetch of %d bytes succeeded", n)
			} else if strings.ContainsRune(err.Error(), '\x1b') || errors.Is(err, objectstore.ErrNotFound) {
				t.Errorf("Fetch: got %q", err)
			}
			if len(m.data) > 10_000 {
				t.Errorf("Fetch wrote %d bytes", len(m.data))
			}
		})
	}
}

// An object that grows during a read does not match its name.
func TestChangedWhileRead(t *testing.T) {
	o := options(testserver.GoFakeS3(t))
	b := create(t, o)
	h := put(t, b, random(1_000_000, 1))
	first := true
	o.Endpoint = tamper(t, o.Endpoint, func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodGet {
			return false
		}
		if !first {
			return refuse(w, r, http.StatusPreconditionFailed, "PreconditionFailed")
		}
		first = false
		w.Header().Set("Content-Length", "1000000")
		w.Header().Set("ETag", `"1"`)
		w.Write(make([]byte, 1000))
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	})
	got, err := open(t.Context(), s3.Open(o), h)
	if failure := (*s3.Error)(nil); !errors.As(err, &failure) || failure.Status != http.StatusPreconditionFailed {
		t.Errorf("got %d bytes, %v; want a failed precondition", len(got), err)
	}
}

// A server without ranges can be read, but a broken connection cannot be resumed.
func TestNoRanges(t *testing.T) {
	o := options(testserver.GoFakeS3(t))
	o.PartSize = 100_000
	b := create(t, o)
	data := random(350_000, 1)
	h := put(t, b, data)
	requests := 0
	o.Endpoint = tamper(t, o.Endpoint, func(w http.ResponseWriter, r *http.Request) bool {
		r.Header.Del("Range")
		if r.Method == http.MethodGet {
			requests++
		}
		return false
	})
	check(t, s3.Open(o), h, data)
	if requests != 2 {
		t.Errorf("%d requests to read it twice, want 2", requests)
	}
	if r, err := s3.Open(o).Open(t.Context(), h); err != nil {
		t.Error(err)
	} else {
		r.Close()
	}
}

// A fullDisk fails every write.
type fullDisk struct{}

var errFull = errors.New("no space left")

func (fullDisk) WriteAt([]byte, int64) (int, error) { return 0, errFull }

func TestFetchToWhatCannotBeWritten(t *testing.T) {
	o, proxy := faulty(t)
	b := s3.Open(o)
	h := put(t, b, random(1_500_000, 1))
	proxy.Reset()
	if _, err := b.Fetch(t.Context(), h, fullDisk{}); !errors.Is(err, errFull) {
		t.Errorf("got %v, want %v", err, errFull)
	}
	if n := proxy.Calls()["GetObject"]; n > 8 {
		t.Errorf("%d requests, want no part twice", n)
	}
}

func TestHostileLists(t *testing.T) {
	page := func(rest string) func(w http.ResponseWriter, r *http.Request) {
		return func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintf(w, `<ListBucketResult>%s</ListBucketResult>`, rest)
		}
	}
	for _, tt := range []struct {
		name   string
		answer func(w http.ResponseWriter, r *http.Request)
		fails  bool
	}{
		{"more without a token", page(`<IsTruncated>true</IsTruncated>`), true},
		{"the same token for ever", page(`<IsTruncated>true</IsTruncated><NextContinuationToken>a</NextContinuationToken>`), true},
		{"no XML", func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "nonsense") }, false},
		{"cut off", func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "<ListBucketResult><Contents><Key>a") }, true},
		{"entries without anything", page(`<Contents></Contents><Contents><Key>a</Key></Contents><Contents><Size>1</Size></Contents>`), false},
		{"a negative size", page(`<Contents><Key>a</Key><Size>-1</Size></Contents>`), false},
		{"a size that is no number", page(`<Contents><Key>a</Key><Size>1e99</Size></Contents>`), true},
		{"an encoding that is none", page(`<EncodingType>url</EncodingType><Contents><Key>%zz</Key><Size>1</Size></Contents>`), false},
		{"another prefix", page(`<Contents><Key>elsewhere</Key><Size>1</Size></Contents>`), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := answers(t, tt.answer)
			var failure error
			for e, err := range b.List(t.Context(), 0) {
				if err == nil {
					t.Errorf("got %+v, want no object", e)
				}
				failure = err
			}
			if (failure != nil) != tt.fails {
				t.Errorf("got %v, want a failure: %v", failure, tt.fails)
			}
		})
	}
}

func TestHostileUploads(t *testing.T) {
	b := answers(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodHead {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		io.WriteString(w, `<InitiateMultipartUploadResult></InitiateMultipartUploadResult>`)
	})
	data := make([]byte, 5000)
	if _, err := b.Put(t.Context(), objectstore.Sum(data), bytes.NewReader(data), 5000); err == nil || !strings.Contains(err.Error(), "no id") {
		t.Errorf("an upload without an id: got %v", err)
	}
	b = answers(t, func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, `<ListMultipartUploadsResult><IsTruncated>true</IsTruncated></ListMultipartUploadsResult>`)
	})
	if _, err := b.RemoveUploads(t.Context(), time.Now()); err == nil || !strings.Contains(err.Error(), "where to go on") {
		t.Errorf("uploads without an end: got %v", err)
	}
}

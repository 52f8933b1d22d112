package s3_test

import (
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/credentials"
	"golang.org/x/sync/errgroup"

	"e3/internal/testing/suite"
	"e3/internal/testing/testserver"
	"e3/objectstore"
	"e3/objectstore/s3"
)

func TestCreate(t *testing.T) {
	each(t, func(t *testing.T, o s3.Options) { // which has called Create
		b := create(t, o)
		for blob, err := range b.ListBlobs(t.Context(), "") {
			t.Errorf("after Create there is %v, %v; want nothing", blob, err)
		}
	})
}

func TestCreateRefuses(t *testing.T) {
	gate := testserver.GoFakeS3(t)
	bucketRequest := func(r *http.Request) bool { return strings.Count(strings.Trim(r.URL.Path, "/"), "/") == 0 }
	for _, tt := range []struct {
		name   string
		change func(*s3.Options)
		answer func(w http.ResponseWriter, r *http.Request) bool
		want   []string
	}{
		{"no credentials", func(o *s3.Options) { o.Config.Credentials = nil }, nil, []string{"no credentials", "AWS_PROFILE"}},
		{"empty credentials", func(o *s3.Options) {
			o.Config.Credentials = credentials.NewStaticCredentialsProvider("", "", "")
		}, nil, []string{"no credentials", "AWS_PROFILE"}},
		{"no region", func(o *s3.Options) { o.Config.Region, o.Endpoint = "", "" }, nil, []string{"AWS_REGION"}},
		{"no bucket", func(o *s3.Options) { o.Bucket = "" }, nil, []string{"no bucket"}},
		{"a bad prefix", func(o *s3.Options) { o.Prefix = "a/../b" }, nil, []string{`"a/../b"`}},
		{"denied", nil, func(w http.ResponseWriter, r *http.Request) bool {
			return refuse(w, r, http.StatusForbidden, "AccessDenied")
		}, []string{"s3:ListBucket ", "s3:ListBucketMultipartUploads", "s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload"}},
		{"no such bucket, and it may not be made", nil, func(w http.ResponseWriter, r *http.Request) bool {
			return r.Method == http.MethodPut && bucketRequest(r) && refuse(w, r, http.StatusForbidden, "AccessDenied")
		}, []string{"create s3://", "AccessDenied", "said the test", "request 17", "credentials need s3:CreateBucket", "s3:ListBucket "}},
		{"a bucket of somebody else", nil, func(w http.ResponseWriter, r *http.Request) bool {
			return r.Method == http.MethodPut && bucketRequest(r) && refuse(w, r, http.StatusConflict, "BucketAlreadyExists")
		}, []string{"BucketAlreadyExists"}},
		{"another region", nil, func(w http.ResponseWriter, r *http.Request) bool {
			w.Header().Set("X-Amz-Bucket-Region", "eu-north-1")
			return refuse(w, r, http.StatusMovedPermanently, "PermanentRedirect")
		}, []string{`"eu-north-1"`, "AWS_REGION"}},
		{"conditions are ignored", nil, func(w http.ResponseWriter, r *http.Request) bool {
			r.Header.Del("If-None-Match")
			return false
		}, []string{s3.ErrUnconditional.Error()}},
		{"conditions are not implemented", nil, func(w http.ResponseWriter, r *http.Request) bool {
			return r.Header.Get("If-None-Match") != "" && refuse(w, r, http.StatusNotImplemented, "NotImplemented")
		}, []string{"NotImplemented"}},
		{"what is absent is forbidden", nil, func(w http.ResponseWriter, r *http.Request) bool {
			absent := r.Method == http.MethodHead && !bucketRequest(r) || r.URL.Query().Has("prefix")
			return absent && refuse(w, r, http.StatusForbidden, "AccessDenied")
		}, []string{"s3:ListBucket"}},
		{"other bytes come back", nil, func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodGet {
				w.Write([]byte("nonsense"))
				return true
			}
			return false
		}, []string{"not those that were put"}},
		{"not S3", nil, func(w http.ResponseWriter, r *http.Request) bool {
			w.Write([]byte("<html>welcome</html>"))
			return true
		}, []string{"nothing was put there"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := options(gate)
			o.Attempts = 2
			if tt.answer != nil {
				o.Endpoint = tamper(t, gate, tt.answer)
			}
			if tt.change != nil {
				tt.change(&o)
			}
			_, err := s3.Open(o).Create(t.Context())
			if err == nil {
				t.Fatal("it succeeded")
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("got %q, want it to have %q", err, want)
				}
			}
		})
	}
}

func TestWrongSecret(t *testing.T) {
	o := servers["versitygw"](t) // gofakes3 accepts any
	o.Config.Credentials = credentials.NewStaticCredentialsProvider(testserver.AccessKey, "wrong", "")
	err := s3.Open(o).PutBlob(t.Context(), "a", nil)
	failure := (*s3.Error)(nil)
	if !errors.As(err, &failure) || failure.Code != "SignatureDoesNotMatch" || !strings.Contains(failure.Advice, "credentials") {
		t.Errorf("got %v, want SignatureDoesNotMatch and what to do", err)
	}
}

func TestNoServer(t *testing.T) {
	o := options("http://127.0.0.1:1")
	o.Attempts = 3
	suite.Soon(t, 10*time.Second, func() time.Duration {
		began := time.Now()
		_, err := s3.Open(o).Stat(t.Context(), objectstore.Sum(nil))
		if err == nil || !strings.Contains(err.Error(), "connection refused, in 3 attempts") || !strings.Contains(err.Error(), o.Bucket) {
			t.Errorf("got %v, want a refused connection", err)
		}
		return time.Since(began)
	})
}

func TestNoCredentials(t *testing.T) {
	o := options("http://127.0.0.1:1")
	o.Config.Credentials = credentials.NewStaticCredentialsProvider("", "", "")
	_, err := s3.Open(o).Stat(t.Context(), objectstore.Sum(nil))
	if err == nil || !strings.Contains(err.Error(), "AWS_PROFILE") {
		t.Errorf("got %v, want what to do", err)
	}
}

// TestCreateTogether creates one bucket from several goroutines: all but one get the answer that it is taken.
func TestCreateTogether(t *testing.T) {
	o := options(testserver.GoFakeS3(t))
	o.Bucket = testserver.Name()
	var g errgroup.Group
	var made atomic.Int32
	for range 8 {
		g.Go(func() error {
			created, err := s3.Open(o).Create(t.Context())
			if created {
				made.Add(1)
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
	if n := made.Load(); n != 1 {
		t.Errorf("%d of them have made it, want 1", n)
	}
}

func TestNoSuchBucket(t *testing.T) {
	o := options(testserver.GoFakeS3(t))
	o.Attempts = 2
	_, err := open(t.Context(), s3.Open(o), objectstore.Sum(nil))
	if err == nil || errors.Is(err, objectstore.ErrNotFound) || !strings.Contains(err.Error(), "NoSuchBucket") {
		t.Errorf("got %v, want NoSuchBucket and no absent object", err)
	}
}

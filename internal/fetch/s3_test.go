package fetch_test

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"e3/internal/fetch"
	"e3/internal/testing/testserver"
)

// newBucket makes a bucket, with versions, that this process finds by the settings of the AWS tools.
func newBucket(t *testing.T, through func(url string) string) (name string, put func(key string, content []byte) (version string)) {
	url := testserver.GoFakeS3(t)
	for _, v := range testserver.Env() {
		name, value, _ := strings.Cut(v, "=")
		t.Setenv(name, value)
	}
	t.Setenv("AWS_ENDPOINT_URL", through(url))
	client := s3.NewFromConfig(testserver.Config(), func(o *s3.Options) { o.BaseEndpoint, o.UsePathStyle = &url, true })
	name = testserver.Name()
	if _, err := client.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: &name}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.PutBucketVersioning(t.Context(), &s3.PutBucketVersioningInput{Bucket: &name,
		VersioningConfiguration: &types.VersioningConfiguration{Status: types.BucketVersioningStatusEnabled}}); err != nil {
		t.Fatal(err)
	}
	return name, func(key string, content []byte) string {
		out, err := client.PutObject(t.Context(), &s3.PutObjectInput{Bucket: &name, Key: &key, Body: bytes.NewReader(content)})
		if err != nil {
			t.Fatal(err)
		}
		return aws.ToString(out.VersionId)
	}
}

func directly(url string) string { return url }

func TestObject(t *testing.T) {
	name, put := newBucket(t, directly)
	l := newLab(t)
	url := "s3://" + name + "/a key/with ?+%20.csv"
	first := put("a key/with ?+%20.csv", []byte("one"))
	known := l.mustGet(url, fetch.Known{}, []byte("one"))
	if again := l.mustGet(url, known, []byte("one")); again != known {
		t.Errorf("known is %v, want %v", again, known)
	}
	put("a key/with ?+%20.csv", []byte("two"))
	l.mustGet(url, known, []byte("two"))
	l.mustGet(url+"?versionId="+first, fetch.Known{}, []byte("one"))
	if _, err := l.get("s3://"+name+"/none", fetch.Known{}, ""); err == nil || !strings.Contains(err.Error(), "S3 says NoSuchKey (404)") {
		t.Errorf("a missing key: %v", err)
	}
	if _, err := l.get("s3://no"+name+"/none", fetch.Known{}, ""); err == nil || !strings.Contains(err.Error(), "S3 says NoSuchBucket (404)") {
		t.Errorf("a missing bucket: %v", err)
	}
}

// A version that this machine has needs no request.
func TestVersionIsAskedOnce(t *testing.T) {
	name, put := newBucket(t, directly)
	l := newLab(t)
	url := "s3://" + name + "/x?versionId=" + put("x", []byte("one"))
	l.mustGet(url, fetch.Known{}, []byte("one"))
	l.Offline = true
	l.mustGet(url, fetch.Known{}, []byte("one"))
}

// A fetch of an object goes on where an earlier one was stopped.
func TestObjectResumed(t *testing.T) {
	content := data(4<<20, 1)
	name, put := newBucket(t, directly)
	put("x", content)
	l := newLab(t)
	url := "s3://" + name + "/x"
	ctx, cancel := context.WithCancel(t.Context())
	l.Watch = func(string) (func(int64, int64), func()) {
		return func(done, _ int64) {
			if done >= 1<<20 {
				cancel()
			}
		}, func() {}
	}
	_, err := l.Get(ctx, &fetch.Request{URL: url, Has: func(string) bool { return false },
		Take: func(context.Context, *os.Root, string) (string, error) { return "", errors.New("taken") }})
	if !errors.Is(err, context.Canceled) || l.left() < 1<<20 {
		t.Fatalf("the fetch ended with %v, and %d bytes are here", err, l.left())
	}
	before, first := l.left(), int64(0)
	l.Watch = func(string) (func(int64, int64), func()) {
		return func(done, total int64) {
			if first == 0 {
				first = done
			}
		}, func() {}
	}
	l.mustGet(url, fetch.Known{}, content)
	if first <= before && before < int64(len(content)) { // where all of it came before the cancel took effect, there is no more
		t.Errorf("progress begins with %d, and %d were here", first, before)
	}
}

// A public bucket needs no credentials.
func TestWithoutCredentials(t *testing.T) {
	name, put := newBucket(t, directly)
	put("x", []byte("public"))
	for _, v := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"} {
		t.Setenv(v, "")
	}
	newLab(t).mustGet("s3://"+name+"/x", fetch.Known{}, []byte("public"))
}

// A bucket may be in another region than the settings say: S3 says in which.
func TestOtherRegion(t *testing.T) {
	name, put := newBucket(t, directly)
	put("x", []byte("far"))
	var asked []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, region := range []string{"us-east-1", "eu-west-1"} {
			if strings.Contains(r.Header.Get("Authorization"), "/"+region+"/s3/") {
				asked = append(asked, region)
			}
		}
		w.Header().Set("X-Amz-Bucket-Region", "eu-west-1")
		if asked[len(asked)-1] != "eu-west-1" {
			w.WriteHeader(http.StatusMovedPermanently)
			_, _ = w.Write([]byte("<Error><Code>PermanentRedirect</Code></Error>"))
			return
		}
		_, _ = w.Write([]byte("far"))
	}))
	defer s.Close()
	t.Setenv("AWS_ENDPOINT_URL", s.URL)
	l := newLab(t)
	l.mustGet("s3://"+name+"/x", fetch.Known{}, []byte("far"))
	l.mustGet("s3://"+name+"/y", fetch.Known{}, []byte("far"))
	if got := strings.Join(asked, " "); got != "us-east-1 eu-west-1 eu-west-1" {
		t.Errorf("asked were %s", got)
	}
}

func TestRefusalsOfS3(t *testing.T) {
	newBucket(t, directly)
	for _, c := range []struct {
		code        int
		key         string // of the account
		body, want  string
		unreachable bool
	}{
		{http.StatusForbidden, "", "<Error><Code>AccessDenied</Code></Error>", "S3 says AccessDenied (403); there are no credentials", false},
		{http.StatusForbidden, "x", "<Error><Code>AccessDenied</Code></Error>", "S3 says AccessDenied (403) to the credentials of the AWS tools", false},
		{http.StatusServiceUnavailable, "x", "<Error><Code>SlowDown</Code></Error>", "the server is out of reach: S3 says SlowDown (503)", true},
	} {
		n := 0
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			n++
			w.WriteHeader(c.code)
			_, _ = w.Write([]byte(c.body))
		}))
		t.Setenv("AWS_ENDPOINT_URL", s.URL)
		t.Setenv("AWS_ACCESS_KEY_ID", c.key)
		t.Setenv("AWS_SECRET_ACCESS_KEY", c.key)
		l := newLab(t)
		l.Attempts = 3
		_, err := l.get("s3://bucket/x", fetch.Known{}, "")
		if err == nil || !strings.Contains(err.Error(), c.want) || errors.Is(err, fetch.ErrUnreachable) != c.unreachable {
			t.Errorf("%d: %v, want %q", c.code, err, c.want)
		}
		if want := map[bool]int{false: 1, true: 3}[c.unreachable]; n != want {
			t.Errorf("%d: %d requests, want %d", c.code, n, want)
		}
		s.Close()
	}
}

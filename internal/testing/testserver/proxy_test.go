package testserver_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	dynamotypes "github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	s3types "github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/google/go-cmp/cmp"

	"e3/internal/testing/suite"
	"e3/internal/testing/testserver"
)

func once(o *dynamodb.Options) { o.RetryMaxAttempts = 1 }

// soon tries again without much of a pause.
func soon() aws.Retryer { return retry.AddWithMaxBackoffDelay(retry.NewStandard(), time.Millisecond) }

// A table behind a proxy, with a client that tries once and another that goes around the proxy.
type setup struct {
	proxy  *testserver.Proxy
	client *dynamodb.Client
	direct *dynamodb.Client
	table  string
}

func newSetup(t *testing.T) setup {
	t.Helper()
	server := testserver.Minidyn(t)
	p := testserver.NewProxy(t, server)
	s := setup{proxy: p, client: dynamoClient(p.URL(), once), direct: dynamoClient(server)}
	s.table = createTable(t, s.direct)
	return s
}

// eventually waits until what it is given holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), suite.Stuck)
	defer cancel()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("does not happen: %s", what)
		}
	}
}

func TestFaults(t *testing.T) {
	for _, test := range []struct {
		fault   testserver.Fault
		code    string // of the error, "" for a broken connection
		fine    bool   // no error
		happens bool
	}{
		{fault: testserver.None, fine: true, happens: true},
		{fault: testserver.Throttle, code: "ProvisionedThroughputExceededException"},
		{fault: testserver.Fail, code: "InternalServerError"},
		{fault: testserver.DropBefore},
		{fault: testserver.DropAfter, happens: true},
		{fault: testserver.DropWithin, happens: true},
		{fault: testserver.DelayBefore, fine: true, happens: true},
		{fault: testserver.DelayAfter, fine: true, happens: true},
	} {
		t.Run(test.fault.String(), func(t *testing.T) {
			s := newSetup(t)
			const delay = 30 * time.Millisecond
			s.proxy.Faults(1, testserver.Rule{Op: "PutItem", Times: 1, Fault: test.fault, Delay: delay})
			began := time.Now()
			err := putItem(t.Context(), s.client, s.table, "k")
			took := time.Since(began)
			if (err == nil) != test.fine || code(err) != test.code {
				t.Errorf("put: %v; want code %q", err, test.code)
			}
			if got := hasItem(t, s.direct, s.table, "k"); got != test.happens {
				t.Errorf("it happened: %v; want %v", got, test.happens)
			}
			if (test.fault == testserver.DelayBefore || test.fault == testserver.DelayAfter) && took < delay {
				t.Errorf("took %v; want at least %v", took, delay)
			}
			if err := putItem(t.Context(), s.client, s.table, "other"); err != nil {
				t.Errorf("the rule strikes a second time: %v", err)
			}
			if want := map[string]int{"PutItem": 2}; !maps.Equal(s.proxy.Calls(), want) {
				t.Errorf("calls: %v; want %v", s.proxy.Calls(), want)
			}
			if got := s.proxy.Struck()[test.fault]; got != 1 {
				t.Errorf("struck %d requests; want 1", got)
			}
			s.proxy.Reset()
			if calls, struck := s.proxy.Calls(), s.proxy.Struck(); len(calls)+len(struck) != 0 {
				t.Errorf("after Reset: %v, %v", calls, struck)
			}
		})
	}
}

// The SDK takes the errors for what they are and tries again.
func TestFaultsAreRetried(t *testing.T) {
	s := newSetup(t)
	c := dynamoClient(s.proxy.URL(), func(o *dynamodb.Options) { o.Retryer = soon() })
	s.proxy.Faults(1,
		testserver.Rule{Op: "PutItem", Times: 1, Fault: testserver.Throttle},
		testserver.Rule{Op: "PutItem", Times: 1, Fault: testserver.Fail})
	if err := putItem(t.Context(), c, s.table, "k"); err != nil {
		t.Error(err)
	}
	url := testserver.GoFakeS3(t)
	p := testserver.NewProxy(t, url)
	p.Faults(1,
		testserver.Rule{Op: "PutObject", Times: 1, Fault: testserver.Throttle},
		testserver.Rule{Op: "HeadObject", Times: 1, Fault: testserver.Fail})
	b, bucket, key := s3Client(p.URL(), func(o *s3.Options) { o.Retryer = soon() }), testserver.Name(), "k"
	if _, err := b.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: &bucket}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.PutObject(t.Context(), &s3.PutObjectInput{Bucket: &bucket, Key: &key, Body: strings.NewReader("x")}); err != nil {
		t.Error(err)
	}
	if _, err := b.HeadObject(t.Context(), &s3.HeadObjectInput{Bucket: &bucket, Key: &key}); err != nil {
		t.Error(err)
	}
	if want := map[string]int{"CreateBucket": 1, "PutObject": 2, "HeadObject": 2}; !maps.Equal(p.Calls(), want) {
		t.Errorf("calls: %v; want %v", p.Calls(), want)
	}
}

// What hangs takes effect once it is released, though its sender has given up.
func TestHang(t *testing.T) {
	s := newSetup(t)
	s.proxy.Faults(1, testserver.Rule{Op: "PutItem", Times: 1, Fault: testserver.Hang})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- putItem(ctx, s.client, s.table, "k") }()
	eventually(t, "the request hangs", func() bool { return s.proxy.Struck()[testserver.Hang] == 1 })
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("put: %v; want %v", err, context.Canceled)
	}
	if hasItem(t, s.direct, s.table, "k") {
		t.Error("it happened while it hung")
	}
	s.proxy.Release()
	eventually(t, "the late put", func() bool { return hasItem(t, s.direct, s.table, "k") })
}

func TestCut(t *testing.T) {
	s := newSetup(t)
	if err := putItem(t.Context(), s.client, s.table, "before"); err != nil {
		t.Fatal(err)
	}
	s.proxy.Cut()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := putItem(ctx, s.client, s.table, "cut"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("put while cut: %v; want %v", err, context.DeadlineExceeded)
	}
	waiting := make(chan error, 1)
	go func() { waiting <- putItem(t.Context(), s.client, s.table, "waiting") }()
	eventually(t, "a third request", func() bool { return s.proxy.Calls()["PutItem"] == 3 })
	s.proxy.Restore()
	if err := <-waiting; err == nil {
		t.Error("what was sent while cut was answered")
	}
	s.proxy.Refuse()
	if err := putItem(t.Context(), s.client, s.table, "refused"); err == nil || code(err) != "" {
		t.Errorf("put while refusing: %v; want a broken connection", err)
	}
	s.proxy.Restore()
	if err := putItem(t.Context(), s.client, s.table, "after"); err != nil {
		t.Errorf("put after Restore: %v", err)
	}
	for key, want := range map[string]bool{"before": true, "cut": false, "waiting": false, "refused": false, "after": true} {
		if got := hasItem(t, s.direct, s.table, key); got != want {
			t.Errorf("put %q happened: %v; want %v", key, got, want)
		}
	}
}

// A cut loses the answers to what has been forwarded.
func TestCutLosesAnswers(t *testing.T) {
	arrived, answer := make(chan bool), make(chan bool)
	slow := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		arrived <- true
		<-answer
		io.WriteString(w, "answer")
	}))
	defer slow.Close()
	p := testserver.NewProxy(t, slow.URL)
	for _, test := range []struct {
		name string
		cut  func()
		want error
	}{
		{"silent", p.Cut, context.DeadlineExceeded},
		{"refusing", p.Refuse, io.EOF},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		done := make(chan error, 1)
		go func() {
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.URL(), strings.NewReader("question"))
			if err == nil {
				var resp *http.Response
				if resp, err = http.DefaultClient.Do(req); err == nil {
					resp.Body.Close()
				}
			}
			done <- err
		}()
		<-arrived
		test.cut()
		answer <- true
		if err := <-done; !errors.Is(err, test.want) {
			t.Errorf("%s: %v; want %v", test.name, err, test.want)
		}
		cancel()
		p.Restore()
	}
}

func TestDropWithinTearsBodies(t *testing.T) {
	content := bytes.Repeat([]byte("x"), 1<<20)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
	}))
	defer server.Close()
	p := testserver.NewProxy(t, server.URL)
	p.Faults(1, testserver.Rule{Op: "GetObject", Fault: testserver.DropWithin})
	resp, err := http.Get(p.URL() + "/bucket/key")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if !errors.Is(err, io.ErrUnexpectedEOF) || len(got) != len(content)/2 {
		t.Errorf("read %d bytes, %v; want %d and %v", len(got), err, len(content)/2, io.ErrUnexpectedEOF)
	}
}

func TestRules(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	strikes := func(p *testserver.Proxy) (pattern string) {
		t.Helper()
		for range 40 {
			resp, err := http.Head(p.URL() + "/bucket/key")
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			pattern += map[int]string{http.StatusNotFound: ".", http.StatusServiceUnavailable: "T", http.StatusInternalServerError: "F"}[resp.StatusCode]
		}
		return pattern
	}
	p := testserver.NewProxy(t, server.URL)
	chance := []testserver.Rule{
		{Op: "PutObject", Fault: testserver.Fail},
		{Op: "HeadObject", Probability: 0.3, Fault: testserver.Throttle},
		{Probability: 0.3, Fault: testserver.Fail},
	}
	p.Faults(7, chance...)
	first := strikes(p)
	p.Faults(7, chance...)
	if again := strikes(p); again != first {
		t.Errorf("one seed, two schedules:\n%s\n%s", first, again)
	}
	p.Faults(8, chance...)
	if other := strikes(p); other == first {
		t.Errorf("two seeds, one schedule: %s", other)
	}
	for _, kind := range []string{".", "T", "F"} {
		if n := strings.Count(first, kind); n < 3 {
			t.Errorf("%q occurs %d times in %s", kind, n, first)
		}
	}
	p.Faults(1, testserver.Rule{Skip: 2, Times: 3, Fault: testserver.Fail})
	if got, want := strikes(p), "..FFF"+strings.Repeat(".", 35); got != want {
		t.Errorf("skip and times: %s; want %s", got, want)
	}
}

func TestWeather(t *testing.T) {
	draw := func(seed uint64) []testserver.Rule {
		return testserver.Weather(rand.New(rand.NewPCG(seed, 0)), 0.5, time.Second)
	}
	seen := map[testserver.Fault]bool{}
	for seed := range uint64(200) {
		rules := draw(seed)
		if again := draw(seed); !cmp.Equal(rules, again) {
			t.Fatalf("one seed, two schedules: %v and %v", rules, again)
		}
		var sum float64
		for _, r := range rules {
			seen[r.Fault] = true
			sum += r.Probability
			if r.Probability <= 0 || r.Delay < 0 || r.Delay > time.Second {
				t.Errorf("seed %d: %+v", seed, r)
			}
		}
		if sum > 0.5 {
			t.Errorf("seed %d: %v strikes more than half", seed, rules)
		}
	}
	if len(seen) != 7 {
		t.Errorf("faults drawn: %v; want all but None and Hang", seen)
	}
}

func TestOperations(t *testing.T) {
	p := testserver.NewProxy(t, testserver.GoFakeS3(t))
	c, bucket, ctx := s3Client(p.URL()), testserver.Name(), t.Context()
	check := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
	}
	key := aws.String("a/b")
	check(c.CreateBucket(ctx, &s3.CreateBucketInput{Bucket: &bucket}))
	check(c.HeadBucket(ctx, &s3.HeadBucketInput{Bucket: &bucket}))
	check(c.PutObject(ctx, &s3.PutObjectInput{Bucket: &bucket, Key: key, Body: strings.NewReader("x")}))
	check(c.HeadObject(ctx, &s3.HeadObjectInput{Bucket: &bucket, Key: key}))
	check(c.GetObject(ctx, &s3.GetObjectInput{Bucket: &bucket, Key: key}))
	check(c.ListObjectsV2(ctx, &s3.ListObjectsV2Input{Bucket: &bucket}))
	check(c.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &bucket, Key: key}))
	check(c.DeleteObjects(ctx, &s3.DeleteObjectsInput{Bucket: &bucket, Delete: &s3types.Delete{Objects: []s3types.ObjectIdentifier{{Key: key}}}}))
	up, err := c.CreateMultipartUpload(ctx, &s3.CreateMultipartUploadInput{Bucket: &bucket, Key: key})
	if err != nil {
		t.Fatal(err)
	}
	part, err := c.UploadPart(ctx, &s3.UploadPartInput{Bucket: &bucket, Key: key, UploadId: up.UploadId, PartNumber: aws.Int32(1), Body: strings.NewReader("x")})
	if err != nil {
		t.Fatal(err)
	}
	check(c.CompleteMultipartUpload(ctx, &s3.CompleteMultipartUploadInput{
		Bucket: &bucket, Key: key, UploadId: up.UploadId,
		MultipartUpload: &s3types.CompletedMultipartUpload{Parts: []s3types.CompletedPart{{PartNumber: aws.Int32(1), ETag: part.ETag}}},
	}))
	want := map[string]int{
		"CreateBucket": 1, "HeadBucket": 1, "PutObject": 1, "HeadObject": 1, "GetObject": 1, "ListObjects": 1, "DeleteObject": 1,
		"DeleteObjects": 1, "CreateMultipartUpload": 1, "UploadPart": 1, "CompleteMultipartUpload": 1,
	}
	if diff := cmp.Diff(want, p.Calls()); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}

func TestUnits(t *testing.T) {
	p := testserver.NewProxy(t, testserver.Dynalite(t))
	c := dynamoClient(p.URL())
	table := createTable(t, c)
	if _, err := c.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: &table, Item: map[string]dynamotypes.AttributeValue{
		"PK": &dynamotypes.AttributeValueMemberS{Value: "k"}, "value": &dynamotypes.AttributeValueMemberB{Value: make([]byte, 2500)},
	}}); err != nil {
		t.Fatal(err)
	}
	if got := p.Units(); got != 3 { // one for each KiB begun
		t.Errorf("a write of 2.5 KB: %v units; want 3", got)
	}
	p.Reset()
	for _, consistent := range []bool{true, false} {
		if _, err := c.BatchGetItem(t.Context(), &dynamodb.BatchGetItemInput{RequestItems: map[string]dynamotypes.KeysAndAttributes{table: {
			Keys: []map[string]dynamotypes.AttributeValue{{"PK": &dynamotypes.AttributeValueMemberS{Value: "k"}}}, ConsistentRead: &consistent,
		}}}); err != nil {
			t.Fatal(err)
		}
	}
	if got := p.Units(); got != 1.5 {
		t.Errorf("a consistent and another read: %v units; want 1.5", got)
	}
}

// What is streamed through in both directions stays what it is, and hanging or failing requests leave nothing behind that
// would keep the test from ending.
func TestConcurrently(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		w.Write(body)
	}))
	defer server.Close()
	p := testserver.NewProxy(t, server.URL)
	random := rand.New(rand.NewPCG(1, 1))
	p.Faults(1, append(testserver.Weather(random, 0.5, time.Millisecond), testserver.Rule{Probability: 0.01, Fault: testserver.Hang})...)
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for n := range 30 {
				content := strings.Repeat("x", n*1000)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				req, err := http.NewRequestWithContext(ctx, http.MethodPut, p.URL()+"/b/k", iotest.HalfReader(strings.NewReader(content)))
				if err != nil {
					t.Error(err)
				}
				if resp, err := http.DefaultClient.Do(req); err == nil {
					got, err := io.ReadAll(resp.Body)
					resp.Body.Close()
					if err == nil && resp.StatusCode == http.StatusOK && string(got) != content {
						t.Errorf("sent %d bytes, got %d others", len(content), len(got))
					}
				}
				cancel()
			}
		})
	}
	group.Wait()
	// A connection that broke while it was idle takes a request with it that has not been sent.
	if got := p.Calls()["PutObject"]; got < 8*30/2 || got > 8*30 {
		t.Errorf("counted %d requests; want %d or a little less", got, 8*30)
	}
}

package s3_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/config"

	"e3/internal/testing/testserver"
	"e3/objectstore"
	"e3/objectstore/s3"
)

// servers are the servers for the tests. $E3_TEST_S3_ENDPOINT adds one, with the credentials and the region of the
// SDK's usual chain, and $E3_TEST_S3_BUCKET names a bucket there, if the tests cannot make one.
var servers = map[string]func(testing.TB) s3.Options{
	"gofakes3": func(tb testing.TB) s3.Options {
		o := options(testserver.GoFakeS3(tb))
		o.PartSize = 200_000 // it accepts parts of any size
		return o
	},
	"versitygw": func(tb testing.TB) s3.Options {
		return options(testserver.VersityGW(tb))
	},
	"endpoint": func(tb testing.TB) s3.Options {
		endpoint := os.Getenv("E3_TEST_S3_ENDPOINT")
		if endpoint == "" {
			tb.Skip("set E3_TEST_S3_ENDPOINT to the URL of a server to run over it")
		}
		o := options(endpoint)
		c, err := config.LoadDefaultConfig(tb.Context())
		if err != nil {
			tb.Fatal(err)
		}
		o.Config = c
		if bucket := os.Getenv("E3_TEST_S3_BUCKET"); bucket != "" {
			o.Bucket = bucket
		}
		return o
	},
}

// partSize is the smallest size of parts that most servers accept.
const partSize = 5 << 20

// options returns options for quick failures and several parts.
func options(endpoint string) s3.Options {
	return s3.Options{
		Config:    testserver.Config(),
		Endpoint:  endpoint,
		Bucket:    testserver.Name(),
		Prefix:    "team/" + testserver.Name(),
		PathStyle: true,
		PartSize:  partSize,
		Backoff:   time.Millisecond,
		Patience:  20 * time.Second,
	}
}

// each runs a test for every server, with an existing bucket.
func each(t *testing.T, f func(t *testing.T, o s3.Options)) {
	for name, server := range servers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := server(t)
			create(t, o)
			f(t, o)
		})
	}
}

func create(t *testing.T, o s3.Options) *s3.Bucket {
	t.Helper()
	b := s3.Open(o)
	if _, err := b.Create(t.Context()); err != nil {
		t.Fatalf("Create: %v", err)
	}
	return b
}

// random returns bytes that are the same for the same seed.
func random(size int, seed uint64) []byte {
	var key [32]byte
	key[0], key[1] = byte(seed), byte(seed>>8)
	data := make([]byte, size)
	rand.NewChaCha8(key).Read(data)
	return data
}

// A memory receives fetched bytes.
type memory struct {
	mu   sync.Mutex
	data []byte
}

func (m *memory) WriteAt(p []byte, off int64) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if need := int(off) + len(p); need > len(m.data) {
		m.data = append(m.data, make([]byte, need-len(m.data))...)
	}
	return copy(m.data[off:], p), nil
}

func put(t *testing.T, b *s3.Bucket, data []byte) objectstore.Hash {
	t.Helper()
	h := objectstore.Sum(data)
	if _, err := b.Put(t.Context(), h, bytes.NewReader(data), int64(len(data))); err != nil {
		t.Fatalf("Put of %d bytes: %v", len(data), err)
	}
	return h
}

func open(ctx context.Context, b *s3.Bucket, h objectstore.Hash) ([]byte, error) {
	r, err := b.Open(ctx, h)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(r)
}

// check reads an object by Open and by Fetch.
func check(t *testing.T, b *s3.Bucket, h objectstore.Hash, want []byte) {
	t.Helper()
	got, err := open(t.Context(), b, h)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("Open: got %d bytes, %v; want the %d that were put", len(got), err, len(want))
	}
	var m memory
	size, err := b.Fetch(t.Context(), h, &m)
	if err != nil || size != int64(len(want)) || !bytes.Equal(m.data, want) {
		t.Errorf("Fetch: got size %d and %d bytes, %v; want the %d that were put", size, len(m.data), err, len(want))
	}
	e, err := b.Stat(t.Context(), h)
	if err != nil || e.Hash != h || e.Size != int64(len(want)) || e.Time.IsZero() {
		t.Errorf("Stat: got %+v, %v; want %s with %d bytes and a time", e, err, h, len(want))
	}
}

func absent(t *testing.T, b *s3.Bucket, h objectstore.Hash) {
	t.Helper()
	if _, err := b.Stat(t.Context(), h); !errors.Is(err, objectstore.ErrNotFound) {
		t.Errorf("Stat of what is absent: got %v, want %v", err, objectstore.ErrNotFound)
	}
	if _, err := b.Open(t.Context(), h); !errors.Is(err, objectstore.ErrNotFound) {
		t.Errorf("Open of what is absent: got %v, want %v", err, objectstore.ErrNotFound)
	}
	if _, err := b.Fetch(t.Context(), h, new(memory)); !errors.Is(err, objectstore.ErrNotFound) {
		t.Errorf("Fetch of what is absent: got %v, want %v", err, objectstore.ErrNotFound)
	}
}

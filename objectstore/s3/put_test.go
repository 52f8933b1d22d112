package s3_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"e3/objectstore"
	"e3/objectstore/s3"
)

func TestPut(t *testing.T) {
	each(t, func(t *testing.T, o s3.Options) {
		b := s3.Open(o)
		part := int(o.PartSize)
		for i, size := range []int{0, 1, 100_000, part - 1, part, part + 1, 2 * part, 3*part + 7} {
			t.Run(fmt.Sprint(size), func(t *testing.T) {
				data := random(size, uint64(i))
				h := objectstore.Sum(data)
				absent(t, b, h)
				for _, want := range []bool{true, false} {
					created, err := b.Put(t.Context(), h, bytes.NewReader(data), int64(size))
					if err != nil || created != want {
						t.Fatalf("Put: got %v, %v; want %v", created, err, want)
					}
				}
				check(t, b, h, data)
			})
		}
	})
}

func TestPutBytes(t *testing.T) {
	each(t, func(t *testing.T, o s3.Options) {
		b := s3.Open(o)
		data := []byte("content")
		for range 2 {
			h, err := b.PutBytes(t.Context(), data)
			if err != nil || h != objectstore.Sum(data) {
				t.Fatalf("PutBytes: got %s, %v; want %s", h, err, objectstore.Sum(data))
			}
		}
		check(t, b, objectstore.Sum(data), data)
	})
}

// Wrong content under an object's name is detected by the server's hash, if it keeps one, and replaced; right content
// may be replaced too.
func TestReplace(t *testing.T) {
	each(t, func(t *testing.T, o s3.Options) {
		b := s3.Open(o)
		for _, size := range []int64{0, 1000, o.PartSize + 1} {
			data, other := random(int(size), 1), random(int(size)+1, 2)
			h := objectstore.Sum(data)
			key := o.Prefix + "/objects/" + h.String()[:2] + "/" + h.String()[2:]
			client := awss3.NewFromConfig(o.Config, func(c *awss3.Options) {
				c.BaseEndpoint, c.UsePathStyle = &o.Endpoint, o.PathStyle
			})
			_, err := client.PutObject(t.Context(), &awss3.PutObjectInput{
				Bucket: &o.Bucket, Key: &key, Body: bytes.NewReader(other), ChecksumAlgorithm: types.ChecksumAlgorithmSha256,
			})
			if err != nil {
				t.Fatal(err)
			}
			e, err := b.Stat(t.Context(), h)
			if err != nil || e.Size != size+1 {
				t.Errorf("%d bytes: got %+v, %v; want the size of the other", size, e, err)
			}
			if e.Hash != h && e.Hash != objectstore.Sum(other) {
				t.Errorf("%d bytes: the server says that it holds %s", size, e.Hash)
			}
			if e.Hash == h && size <= o.PartSize && !strings.HasSuffix(t.Name(), "/gofakes3") { // this server keeps none
				t.Errorf("%d bytes: the server does not say that it holds something else", size)
			}
			for range 2 {
				if err := b.Replace(t.Context(), h, bytes.NewReader(data), size); err != nil {
					t.Fatal(err)
				}
				if got, err := open(t.Context(), b, h); err != nil || !bytes.Equal(got, data) {
					t.Errorf("%d bytes, replaced: got %d, %v", size, len(got), err)
				}
				// After a multipart upload, gofakes3 keeps the sum of the previous object.
				e, err := b.Stat(t.Context(), h)
				if err != nil || e.Size != size || e.Hash != h && e.Hash != objectstore.Sum(other) {
					t.Errorf("%d bytes, replaced: got %+v, %v", size, e, err)
				}
			}
		}
	})
}

func TestPutRace(t *testing.T) {
	each(t, func(t *testing.T, o s3.Options) {
		for _, size := range []int64{1000, o.PartSize + 1} {
			data := random(int(size), 1)
			h := objectstore.Sum(data)
			var wg sync.WaitGroup
			created, errs := make([]bool, 16), make([]error, 16)
			for i := range created {
				wg.Go(func() {
					created[i], errs[i] = s3.Open(o).Put(t.Context(), h, bytes.NewReader(data), size)
				})
			}
			wg.Wait()
			n := 0
			for i := range created {
				if errs[i] != nil {
					t.Errorf("putter %d: %v", i, errs[i])
				}
				if created[i] {
					n++
				}
			}
			// gofakes3 ignores conditions on multipart uploads.
			loose := size > o.PartSize && strings.HasSuffix(t.Name(), "/gofakes3")
			if n != 1 && !(loose && n > 0) {
				t.Errorf("%d of 16 putters created the object of %d bytes, want 1", n, size)
			}
			check(t, s3.Open(o), h, data)
		}
	})
}

func TestPutWrongBytes(t *testing.T) {
	o := servers["versitygw"](t) // gofakes3 does not check checksums
	b := create(t, o)
	h := objectstore.Sum([]byte("right"))
	_, err := b.Put(t.Context(), h, bytes.NewReader([]byte("wrong")), 5)
	corrupt := (*objectstore.CorruptError)(nil)
	if !errors.As(err, &corrupt) || corrupt.Want != h || corrupt.Got != objectstore.Sum([]byte("wrong")) {
		t.Errorf("Put of other bytes: got %v, want a CorruptError", err)
	}
	absent(t, b, h)
}

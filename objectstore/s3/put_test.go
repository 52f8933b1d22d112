package s3_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

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
			// gofakes3 takes no notice of conditions on multipart uploads.
			loose := size > o.PartSize && strings.HasSuffix(t.Name(), "/gofakes3")
			if n != 1 && !(loose && n > 0) {
				t.Errorf("%d of 16 putters created the object of %d bytes, want 1", n, size)
			}
			check(t, s3.Open(o), h, data)
		}
	})
}

func TestPutWrongBytes(t *testing.T) {
	o := servers["versitygw"](t) // gofakes3 does not look at checksums
	b := create(t, o)
	h := objectstore.Sum([]byte("right"))
	_, err := b.Put(t.Context(), h, bytes.NewReader([]byte("wrong")), 5)
	corrupt := (*objectstore.CorruptError)(nil)
	if !errors.As(err, &corrupt) || corrupt.Want != h || corrupt.Got != objectstore.Sum([]byte("wrong")) {
		t.Errorf("Put of other bytes: got %v, want a CorruptError", err)
	}
	absent(t, b, h)
}

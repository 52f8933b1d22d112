package cached_test

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"e3/internal/testing/testserver"
	"e3/objectstore"
	"e3/objectstore/cached"
	"e3/objectstore/s3"
)

// BenchmarkUpload puts a large file, with the cache and without.
func BenchmarkUpload(b *testing.B) {
	const size = 128 << 20
	ctx := b.Context()
	endpoint := testserver.GoFakeS3(b)
	path := filepath.Join(b.TempDir(), "f")
	content := random(1, size)
	for _, through := range []bool{false, true} {
		name := "plain"
		if through {
			name = "cached"
		}
		b.Run(name, func(b *testing.B) {
			b.SetBytes(size)
			bucket := s3.Open(s3.Options{Config: testserver.Config(), Endpoint: endpoint, Bucket: testserver.Name(), PathStyle: true})
			if _, err := bucket.Create(ctx); err != nil {
				b.Fatal(err)
			}
			local, err := objectstore.OpenDir(b.TempDir(), objectstore.Options{})
			if err != nil {
				b.Fatal(err)
			}
			s, err := cached.Open(cached.Options{Local: local, Remote: bucket, Guard: newPact().begin()})
			if err != nil {
				b.Fatal(err)
			}
			n := byte(0)
			for b.Loop() {
				b.StopTimer()
				n++
				content[0] = n
				if err := os.WriteFile(path, content, 0o666); err != nil {
					b.Fatal(err)
				}
				h := objectstore.Sum(content)
				f, err := os.Open(path)
				if err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
				if through {
					_, err = s.Put(ctx, io.MultiReader(f))
				} else {
					_, err = bucket.Put(ctx, h, f, size)
				}
				if err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				f.Close()
				if err := bucket.Delete(ctx, []objectstore.Hash{h}); err != nil {
					b.Fatal(err)
				}
				if err := local.Delete(ctx, h); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
		})
	}
}

// BenchmarkKnown puts an object that this process has put before.
func BenchmarkKnown(b *testing.B) {
	s := open(b, newFar(), newPact(), nil)
	content := random(1, 1000)
	mustPut(b, s, content)
	for b.Loop() {
		if _, err := s.PutBytes(b.Context(), content); err != nil {
			b.Fatal(err)
		}
	}
}

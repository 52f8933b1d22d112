package cached_test

import (
	"testing"

	"e3/internal/testing/testserver"
	"e3/objectstore"
	"e3/objectstore/cached"
	"e3/objectstore/objectstoretest"
	"e3/objectstore/s3"
)

func TestConformance(t *testing.T) {
	for _, c := range objectstoretest.Cases() {
		t.Run(c.Name, func(t *testing.T) {
			if err := c.Run(t.Context(), open(t, newFar(), newPact(), nil)); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestConformanceTiny runs with a tiny cache.
func TestConformanceTiny(t *testing.T) {
	for _, c := range objectstoretest.Cases() {
		t.Run(c.Name, func(t *testing.T) {
			s := open(t, newFar(), newPact(), func(o *cached.Options) { o.MaxBytes = 64 << 10 })
			if err := c.Run(t.Context(), s); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestConformanceS3(t *testing.T) {
	endpoint := testserver.GoFakeS3(t)
	for _, c := range objectstoretest.Cases() {
		t.Run(c.Name, func(t *testing.T) {
			bucket := s3.Open(s3.Options{
				Config: testserver.Config(), Endpoint: endpoint, Bucket: testserver.Name(), Prefix: "team", PathStyle: true,
			})
			if _, err := bucket.Create(t.Context()); err != nil {
				t.Fatal(err)
			}
			local, err := objectstore.OpenDir(t.TempDir(), objectstore.Options{})
			if err != nil {
				t.Fatal(err)
			}
			s, err := cached.Open(cached.Options{Local: local, Remote: bucket, Guard: newPact().begin()})
			if err != nil {
				t.Fatal(err)
			}
			if err := c.Run(t.Context(), s); err != nil {
				t.Error(err)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

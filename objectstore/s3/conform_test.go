package s3_test

import (
	"net/http"
	"slices"
	"testing"

	"e3/internal/testing/testserver"
	"e3/objectstore/s3"
)

// unmet returns the names of the demands that a server does not meet.
func unmet(t *testing.T, b *s3.Bucket) (names []string) {
	t.Helper()
	for _, d := range b.Demands() {
		if err := d.Meets(t.Context()); err != nil {
			t.Logf("%s: %v", d.Name, err)
			names = append(names, d.Name)
		}
	}
	return names
}

func TestDemands(t *testing.T) {
	lacks := map[string][]string{"gofakes3": {"bytes that differ from their SHA-256 are refused", "an upload in parts creates a name only once"}}
	each(t, func(t *testing.T, o s3.Options) {
		b := create(t, o)
		want := []string(nil)
		for name, of := range lacks {
			if t.Name() == "TestDemands/"+name {
				want = of
			}
		}
		if got := unmet(t, b); !slices.Equal(got, want) {
			t.Errorf("it does not meet %q, want %q", got, want)
		}
		if err := b.Empty(t.Context()); err != nil {
			t.Fatal(err)
		}
		for blob, err := range b.ListBlobs(t.Context(), "") {
			t.Errorf("after Empty there is %v, %v; want nothing", blob, err)
		}
	})
}

// Servers that do less than they should are found out.
func TestDemandsFindFaults(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(r *http.Request)
		want   string
	}{
		{"conditions are ignored", func(r *http.Request) { r.Header.Del("If-None-Match") }, "one of many creators of a name wins"},
		{"ranges are ignored", func(r *http.Request) { r.Header.Del("Range") }, "a read may begin anywhere"},
		{"pages have no end", func(r *http.Request) {
			q := r.URL.Query()
			q.Del("continuation-token")
			r.URL.RawQuery = q.Encode()
		}, "lists of several pages are complete and in order"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			o := options(testserver.GoFakeS3(t))
			create(t, o)
			o.Endpoint = tamper(t, o.Endpoint, func(_ http.ResponseWriter, r *http.Request) bool {
				tt.change(r)
				return false
			})
			if got := unmet(t, s3.Open(o)); !slices.Contains(got, tt.want) {
				t.Errorf("it does not meet %q, want %q among them", got, tt.want)
			}
		})
	}
}

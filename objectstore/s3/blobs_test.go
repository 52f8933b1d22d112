package s3_test

import (
	"bytes"
	"errors"
	"io"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"e3/internal/testing/testserver"
	"e3/objectstore"
	"e3/objectstore/s3"
)

func TestBlobs(t *testing.T) {
	each(t, func(t *testing.T, o s3.Options) {
		o.PageSize = 2
		b, ctx := s3.Open(o), t.Context()
		read := func(name string, offset int64) (string, error) {
			r, err := b.OpenBlob(ctx, name, offset)
			if err != nil {
				return "", err
			}
			defer r.Close()
			data, err := io.ReadAll(r)
			return string(data), err
		}
		if _, err := read("records/1", 0); !errors.Is(err, objectstore.ErrNotFound) {
			t.Errorf("an absent blob: got %v, want %v", err, objectstore.ErrNotFound)
		}
		if _, err := read("records/1", 5); !errors.Is(err, objectstore.ErrNotFound) {
			t.Errorf("an absent blob from 5 on: got %v, want %v", err, objectstore.ErrNotFound)
		}
		names := []string{"records/1", "records/2", "records/a b+c%2F", "records/é", "streams/x/1", "streams/x/2"}
		for _, name := range names {
			if err := b.PutBlob(ctx, name, []byte("content of "+name)); err != nil {
				t.Fatalf("PutBlob %s: %v", name, err)
			}
		}
		if err := b.PutBlob(ctx, "streams/empty", nil); err != nil {
			t.Fatal(err)
		}
		put(t, b, []byte("an object"))
		for _, tt := range []struct {
			name   string
			offset int64
			want   string
		}{
			{"records/1", 0, "content of records/1"},
			{"records/a b+c%2F", 11, "records/a b+c%2F"},
			{"records/1", 19, "1"},
			{"records/1", 20, ""},
			{"records/1", 21, ""},
			{"records/1", math.MaxInt64, ""},
			{"streams/empty", 0, ""},
			{"streams/empty", 1, ""},
		} {
			if got, err := read(tt.name, tt.offset); err != nil || got != tt.want {
				t.Errorf("%s from %d on: got %q, %v; want %q", tt.name, tt.offset, got, err, tt.want)
			}
		}
		if err := b.PutBlob(ctx, "records/1", []byte("new")); err != nil {
			t.Errorf("PutBlob again: %v", err)
		}
		if got, err := read("records/1", 0); err != nil || got != "new" {
			t.Errorf("what was put again: got %q, %v; want %q", got, err, "new")
		}
		for _, tt := range []struct {
			prefix string
			want   []string
		}{
			{"records/", names[:4]},
			{"rec", names[:4]},
			{"streams/x/", names[4:]},
			{"streams/x/2", names[5:]},
			{"none/", nil},
			{"", slices.Sorted(slices.Values(append([]string{"streams/empty"}, names...)))},
		} {
			var got []string
			for blob, err := range b.ListBlobs(ctx, tt.prefix) {
				if err != nil {
					t.Fatalf("ListBlobs %q: %v", tt.prefix, err)
				}
				if blob.Time.IsZero() || time.Since(blob.Time).Abs() > time.Hour || blob.Name == "records/2" && blob.Size != 20 {
					t.Errorf("ListBlobs: got %+v, want a time of now and the size", blob)
				}
				got = append(got, blob.Name)
			}
			slices.Sort(got) // servers that keep files may list in another order
			if want := slices.Sorted(slices.Values(tt.want)); !slices.Equal(got, want) {
				t.Errorf("ListBlobs %q: got %q, want %q", tt.prefix, got, want)
			}
		}
		for range 2 {
			if err := b.DeleteBlob(ctx, "records/1"); err != nil {
				t.Errorf("DeleteBlob: %v", err)
			}
		}
		if _, err := read("records/1", 0); !errors.Is(err, objectstore.ErrNotFound) {
			t.Errorf("a deleted blob: got %v, want %v", err, objectstore.ErrNotFound)
		}
	})
}

func TestCreateBlob(t *testing.T) {
	each(t, func(t *testing.T, o s3.Options) {
		b, ctx := s3.Open(o), t.Context()
		for _, tt := range []struct {
			name, text string
			want       bool
		}{{"repository.json", "first", true}, {"repository.json", "second", false}, {"other.json", "third", true}} {
			if created, err := b.CreateBlob(ctx, tt.name, []byte(tt.text)); err != nil || created != tt.want {
				t.Errorf("create %s: got %v, %v; want %v", tt.name, created, err, tt.want)
			}
		}
		r, err := b.OpenBlob(ctx, "repository.json", 0)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		if got, err := io.ReadAll(r); string(got) != "first" || err != nil {
			t.Errorf("the blob that was created first: got %q, %v; want %q", got, err, "first")
		}
	})
}

func TestBlobNames(t *testing.T) {
	// No server listens there, so the name must be refused before a request.
	b := s3.Open(options("http://127.0.0.1:1"))
	for _, name := range []string{
		"", ".", "..", "/a", "a/", "a//b", "a/../b", "../b", "a/.", "objects", "objects/a", "a\x00", "a\nb", "a\xff", strings.Repeat("a", 513),
	} {
		if err := b.PutBlob(t.Context(), name, nil); err == nil || errors.As(err, new(*s3.Error)) {
			t.Errorf("PutBlob %q: got %v, want a refusal of the name", name, err)
		}
		if _, err := b.OpenBlob(t.Context(), name, 0); err == nil || errors.As(err, new(*s3.Error)) {
			t.Errorf("OpenBlob %q: got %v, want a refusal of the name", name, err)
		}
		if err := b.DeleteBlob(t.Context(), name); err == nil || errors.As(err, new(*s3.Error)) {
			t.Errorf("DeleteBlob %q: got %v, want a refusal of the name", name, err)
		}
	}
	for _, prefix := range []string{"/", "/a", "../", "a//", "objects/", "a/../"} {
		for _, err := range b.ListBlobs(t.Context(), prefix) {
			if err == nil || errors.As(err, new(*s3.Error)) {
				t.Errorf("ListBlobs %q: got %v, want a refusal of the prefix", prefix, err)
			}
		}
	}
	if _, err := b.OpenBlob(t.Context(), "a", -1); err == nil {
		t.Error("OpenBlob at -1 succeeded")
	}
}

func TestLargeBlob(t *testing.T) {
	o := options(testserver.GoFakeS3(t))
	b := create(t, o)
	data := random(3*partSize, 1)
	if err := b.PutBlob(t.Context(), "large", data); err != nil {
		t.Fatal(err)
	}
	r, err := b.OpenBlob(t.Context(), "large", 1)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, data[1:]) {
		t.Errorf("got %d bytes, %v; want %d", len(got), err, len(data)-1)
	}
}

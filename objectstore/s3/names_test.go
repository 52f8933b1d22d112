package s3_test

import (
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"pgregory.net/rapid"

	"e3/objectstore"
	"e3/objectstore/s3"
)

func TestKey(t *testing.T) {
	h := objectstore.Sum(nil)
	for _, tt := range []struct{ prefix, want string }{
		{"", "objects/e3/b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
		{"a/b", "a/b/objects/e3/b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
		{"/a/", "a/objects/e3/b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
	} {
		if got := s3.Open(s3.Options{Prefix: tt.prefix}).Key(h); got != tt.want {
			t.Errorf("with the prefix %q: got %q, want %q", tt.prefix, got, tt.want)
		}
	}
}

func TestCheck(t *testing.T) {
	for _, tt := range []struct {
		bucket, prefix string
		ok             bool
	}{
		{"bucket", "", true},
		{"bucket", "a", true},
		{"bucket", "/a/b c/", true},
		{"bucket", "/", true},
		{"bucket", strings.Repeat("a", 511), true},
		{"bucket", strings.Repeat("a", 512), false},
		{"", "a", false},
		{"a/b", "", false},
		{"a b", "", false},
		{"bucket", "a//b", false},
		{"bucket", "..", false},
		{"bucket", ".", false},
		{"bucket", "a/../b", false},
		{"bucket", "a\nb", false},
		{"bucket", "a\xffb", false},
	} {
		err := s3.Options{Bucket: tt.bucket, Prefix: tt.prefix}.Check()
		if (err == nil) != tt.ok {
			t.Errorf("bucket %q, prefix %.20q: got %v, want it fine: %v", tt.bucket, tt.prefix, err, tt.ok)
		}
	}
}

func TestSizeOfParts(t *testing.T) {
	b := s3.Open(s3.Options{})
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.Int64Range(1, 50<<40).Draw(t, "size")
		part := b.SizeOfParts(size)
		if n := (size + part - 1) / part; n > 10_000 || part < 16<<20 {
			t.Errorf("%d bytes in %d parts of %d; want at most 10000 of at least 16 MiB", size, n, part)
		}
	})
}

func FuzzParseContentRange(f *testing.F) {
	for _, s := range []string{"bytes 0-9/100", "bytes 0-0/1", "bytes 5-4/10", "bytes 0-9/*", "bytes */10", "bytes 0-9/5", "0-9/10", "bytes -1-9/10", "bytes 0-4611686018427387903/4611686018427387904"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		from, to, size, ok := s3.ParseContentRange(s)
		if !ok {
			return
		}
		if from < 0 || to <= from || size < to {
			t.Errorf("%q: got %d to %d of %d", s, from, to, size)
		}
		again := fmt.Sprintf("bytes %d-%d/%d", from, to-1, size)
		if f, u, n, ok := s3.ParseContentRange(again); !ok || f != from || u != to || n != size {
			t.Errorf("%q is %q, which is %d to %d of %d", s, again, f, u, n)
		}
	})
}

func FuzzParseKey(f *testing.F) {
	f.Add(byte(0xe3), "b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855")
	f.Add(byte(0xe3), "B0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855")
	f.Add(byte(0), "")
	b := s3.Open(s3.Options{})
	f.Fuzz(func(t *testing.T, shard byte, rest string) {
		h, ok := s3.ParseKey(shard, rest)
		if !ok {
			return
		}
		if want := fmt.Sprintf("objects/%02x/%s", shard, rest); b.Key(h) != want {
			t.Errorf("%q is %s, whose key is %q", want, h, b.Key(h))
		}
	})
}

func FuzzCheckBlobName(f *testing.F) {
	for _, s := range []string{"records/1", "objects/1", "..", "a/../b", "a\x00", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if s3.CheckBlobName(name) != nil {
			return
		}
		if !fs.ValidPath(name) || !utf8.ValidString(name) || strings.HasPrefix(name, "objects/") || strings.ContainsFunc(name, unicode.IsControl) || len(name) > 512 {
			t.Errorf("%q is taken for a name", name)
		}
	})
}

func FuzzPrintable(f *testing.F) {
	f.Add("said\x1b[31m\xff")
	f.Add(strings.Repeat("é", 400))
	f.Fuzz(func(t *testing.T, s string) {
		got := s3.Printable(s)
		if !utf8.ValidString(got) || len(got) > 510 && len(s) < 500 || strings.ContainsFunc(got, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("%q is shown as %q", s, got)
		}
	})
}

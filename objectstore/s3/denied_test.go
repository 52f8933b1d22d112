package s3_test

import (
	"errors"
	"io/fs"
	"strings"
	"testing"
	"time"

	"e3/internal/testing/testserver"
	"e3/objectstore"
	"e3/objectstore/s3"
)

// With credentials for one prefix only, an absent key is reported as forbidden. A list distinguishes the two, and a
// blob below the prefix gives the time.
func TestOnePrefix(t *testing.T) {
	ctx := t.Context()
	proxy := testserver.NewProxy(t, testserver.GoFakeS3(t))
	open := func() *s3.Bucket {
		return s3.Open(s3.Options{Config: testserver.Config(), Endpoint: proxy.URL(), Bucket: "one-prefix", Prefix: "mine", PathStyle: true, Dated: "known.json"})
	}
	if _, err := open().Create(ctx); err != nil {
		t.Fatal(err)
	}
	there, err := open().PutBytes(ctx, []byte("there"))
	if err != nil {
		t.Fatal(err)
	}
	readable := true
	proxy.Admit(func(a testserver.Access) bool {
		switch a.Action {
		case "s3:ListBucket":
			prefix := a.Context["s3:prefix"]
			return len(prefix) == 1 && strings.HasPrefix(prefix[0], "mine/")
		case "s3:GetObject":
			return readable
		}
		return false
	})
	b, absent := open(), objectstore.Sum([]byte("absent"))
	if _, err := b.Open(ctx, absent); !errors.Is(err, objectstore.ErrNotFound) {
		t.Errorf("open an absent object: %v", err)
	}
	if _, err := b.Stat(ctx, absent); !errors.Is(err, objectstore.ErrNotFound) {
		t.Errorf("look for an absent object: %v", err)
	}
	if now, err := b.Now(ctx); err != nil || time.Since(now).Abs() > time.Minute {
		t.Errorf("the time: %v, %v", now, err)
	}
	if err := b.PutBlob(ctx, "known.json", []byte("{}")); !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), "s3:PutObject") {
		t.Errorf("a put: %v", err)
	}
	readable = false
	proxy.Reset()
	var refused *s3.Error
	if _, err := b.Open(ctx, there); !errors.Is(err, fs.ErrPermission) || errors.Is(err, objectstore.ErrNotFound) || !errors.As(err, &refused) || refused.Right != "s3:GetObject" {
		t.Errorf("open a forbidden object: %v", err)
	}
	if calls := proxy.Calls(); calls["GetObject"] != 1 || calls["ListObjects"] != 1 {
		t.Errorf("a forbidden object takes %v", calls)
	}
}

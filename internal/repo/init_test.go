package repo

import (
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"e3/internal/testserver"
)

// credentials are those of the test servers.
func credentials(t *testing.T) {
	t.Helper()
	for _, pair := range testserver.Env() {
		name, value, _ := strings.Cut(pair, "=")
		t.Setenv(name, value)
	}
}

func shared(name, dynamo, s3, bucket string) string {
	query := url.Values{"region": {"us-east-1"}, "endpoint": {dynamo}, "s3-endpoint": {s3}, "bucket": {bucket}}
	return "dynamodb://team/" + name + "?" + query.Encode()
}

// Two repositories of one name, in tables of two servers, must not share a place: one's gc would remove the other's objects.
func TestInitElsewhere(t *testing.T) {
	credentials(t)
	here, there, s3, ctx := testserver.Minidyn(t), testserver.Minidyn(t), testserver.GoFakeS3(t), t.Context()
	if _, err := Init(ctx, shared("a", here, s3, "one"), ""); err != nil {
		t.Fatal(err)
	}
	_, err := Init(ctx, shared("a", there, s3, "one"), "")
	if !errors.Is(err, ErrExists) || !strings.Contains(err.Error(), here) {
		t.Errorf("the same place for a repository on another server: got error %v, want an ErrExists that names %s", err, here)
	}
}

func TestInitAgain(t *testing.T) {
	credentials(t)
	dynamo, s3, ctx := testserver.Minidyn(t), testserver.GoFakeS3(t), t.Context()
	if _, err := Init(ctx, shared("a", dynamo, s3, "one"), ""); err != nil {
		t.Fatal(err)
	}
	if _, err := Init(ctx, shared("a", dynamo, s3, "two"), ""); !errors.Is(err, ErrExists) {
		t.Errorf("again, with another bucket: got error %v, want ErrExists", err)
	}
	_, err := Open(ctx, shared("b", dynamo, s3, "two"), Options{Getenv: os.Getenv})
	if want := "e3 init 'dynamodb://team/b?region=us-east-1&endpoint=" + dynamo + "&bucket=<bucket>'"; !errors.Is(err, ErrNoRepository) || !strings.Contains(err.Error(), want) {
		t.Errorf("open one that is not there: got error %v, want an ErrNoRepository that says %s", err, want)
	}
}

// Of many that make a folder's repository at one place, one does.
func TestInitTogether(t *testing.T) {
	credentials(t)
	location, dir := "s3://one/place?region=us-east-1&endpoint="+testserver.GoFakeS3(t), t.TempDir()
	errs := make([]error, 8)
	var all sync.WaitGroup
	for i := range errs {
		all.Go(func() { _, errs[i] = Init(t.Context(), filepath.Join(dir, string(rune('a'+i))), location) })
	}
	all.Wait()
	made := 0
	for _, err := range errs {
		switch {
		case err == nil:
			made++
		case !errors.Is(err, ErrExists):
			t.Errorf("got error %v, want ErrExists", err)
		}
	}
	if made != 1 {
		t.Errorf("got %d repositories at one place, want 1", made)
	}
}

// A table that was restored under another name says the same of itself as the first: what only that one names must not be collected.
func TestOwnsObjects(t *testing.T) {
	credentials(t)
	dynamo, s3, ctx := testserver.Minidyn(t), testserver.GoFakeS3(t), t.Context()
	open := func(name string) *Repo {
		r, err := Open(ctx, shared(name, dynamo, s3, "one"), Options{Getenv: func(name string) string {
			if name == CacheSizeVariable {
				return ""
			}
			return t.TempDir()
		}, Settle: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { r.Close() })
		return r
	}
	for _, name := range []string{"first", "copy"} {
		if _, err := Init(ctx, shared(name, dynamo, s3, "one"), ""); err != nil {
			t.Fatal(err)
		}
	}
	first, restored := open("first"), open("copy")
	if err := first.OwnsObjects(ctx); err != nil {
		t.Errorf("the first: %v", err)
	}
	theirs, err := first.Records.Get(ctx, formatKey)
	if err != nil {
		t.Fatal(err)
	}
	ours, err := restored.Records.Get(ctx, formatKey)
	if err != nil {
		t.Fatal(err)
	}
	theirs.Version = ours.Version
	if _, err := restored.Records.Put(ctx, theirs); err != nil {
		t.Fatal(err)
	}
	if err := open("copy").OwnsObjects(ctx); err == nil || !strings.Contains(err.Error(), `those of "dynamodb://team/first"`) {
		t.Errorf("the one that says the same: got error %v, want one that names the first", err)
	}
	if err := first.place.bucket.DeleteBlob(ctx, ownerBlob); err != nil {
		t.Fatal(err)
	}
	if err := first.OwnsObjects(ctx); err == nil || !strings.Contains(err.Error(), ownerBlob) {
		t.Errorf("without word of whose they are: got error %v, want one that names %s", err, ownerBlob)
	}
}

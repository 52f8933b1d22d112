package repo

import (
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"e3/internal/testing/testserver"
	"e3/objectstore"
	"e3/refstore"
)

// TestObjectsInFolder: two machines, on one of which the folder is mounted elsewhere, share the objects; a collection of the
// first removes what no session relies on; and the folder is the repository's own.
func TestObjectsInFolder(t *testing.T) {
	ctx := t.Context()
	u, err := url.Parse(testserver.Postgres(t))
	if err != nil {
		t.Fatal(err)
	}
	u.Path += "/forecast"
	reach := u.String()
	base := filepath.Join(t.TempDir(), "objects")
	location := reach + "&objects=" + url.QueryEscape(base)
	if _, err := Init(ctx, location, InitOptions{}); err == nil || !strings.Contains(err.Error(), "is its file system mounted here?") {
		t.Errorf("init where nothing is mounted: got error %v, want one that asks for the mount", err)
	}
	if err := os.Mkdir(base, 0o770); err != nil {
		t.Fatal(err)
	}
	made, err := Init(ctx, location, InitOptions{})
	if err != nil {
		t.Fatal(err)
	}
	below := filepath.Join(base, strings.Trim(u.Path, "/"))
	if made.Objects != below || made.Bucket != "" || len(made.Advice) != 1 {
		t.Errorf("made %+v, want its objects at %s and one advice", made, below)
	}
	if _, err := Init(ctx, location, InitOptions{}); !errors.Is(err, ErrExists) {
		t.Errorf("init again: got error %v, want ErrExists", err)
	}

	elsewhere := filepath.Join(t.TempDir(), "nfs")
	if err := os.Symlink(base, elsewhere); err != nil {
		t.Fatal(err)
	}
	open := func(location string) *Repo {
		dir := t.TempDir()
		r, err := Open(ctx, location, Options{Settle: time.Second, Getenv: func(name string) string {
			return map[string]string{CacheDirVariable: dir + "/cache", StateDirVariable: dir + "/state"}[name]
		}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { r.Close() })
		return r
	}
	a, b := open(reach), open(reach+"&objects="+url.QueryEscape(elsewhere))
	for _, r := range []*Repo{a, b} {
		if err := r.OwnsObjects(ctx); err != nil {
			t.Errorf("its objects: %v", err)
		}
	}
	h, err := a.Objects.PutBytes(ctx, []byte("content"))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := objectstore.ReadAll(ctx, b.Objects, h, 10); string(got) != "content" || err != nil {
		t.Errorf("the other machine reads %q, %v, want the content", got, err)
	}

	// Another repository may not have its objects in the same place, nor this one in a bucket.
	other := strings.Replace(location, "/forecast?", "/other?", 1) + "&prefix=" + url.QueryEscape(strings.Trim(u.Path, "/"))
	if _, err := Init(ctx, other, InitOptions{}); !errors.Is(err, ErrExists) || !strings.Contains(err.Error(), below) {
		t.Errorf("init of another in its place: got error %v, want ErrExists that names the place", err)
	}
	if _, err := Open(ctx, reach+"&bucket=one", Options{Getenv: os.Getenv}); err == nil || !strings.Contains(err.Error(), "its objects are at "+below) {
		t.Errorf("open with a bucket: got error %v, want one that names the folder", err)
	}
	wrong := t.TempDir() // has another's objects, or none
	if err := open(reach + "&objects=" + url.QueryEscape(wrong)).OwnsObjects(ctx); err == nil {
		t.Error("another folder counts as its own")
	}

	// Removals need the lease of the collector, by the folder's clock.
	now, err := a.Records.(refstore.SessionClock).SessionNow(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if e, err := a.place.objects.Stat(ctx, h); err != nil || e.Time.After(now) {
		t.Errorf("the object is of %v, %v, want not after the session's %v", e.Time, err, now)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if err := b.Objects.SweepShard(ctx, h[0], now.Add(time.Hour), func(objectstore.Hash) bool { return false }, func(objectstore.Entry) {}); err != nil {
		t.Error(err)
	}
	if _, err := b.place.objects.Stat(ctx, h); !errors.Is(err, objectstore.ErrNotFound) {
		t.Errorf("look at what a sweep has removed: got error %v, want ErrNotFound", err)
	}
}

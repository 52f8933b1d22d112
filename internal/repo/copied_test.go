package repo

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"e3/internal/testing/testserver"
	"e3/objectstore"
	"e3/objectstore/s3"
)

// twins makes a repository with objects in S3 that has one object, and a copy of it, and returns the locations of
// both.
type twins func(t *testing.T, s3 string) (first, second string)

var kinds = map[string]twins{
	"table": func(t *testing.T, s3 string) (first, second string) {
		here := testserver.Minidyn(t)
		first = shared("a", here, s3, "one")
		if _, err := Init(t.Context(), first, InitOptions{}); err != nil {
			t.Fatal(err)
		}
		restore(t, client(here), client(here), "team", "restored")
		return first, strings.Replace(first, "//team/", "//restored/", 1)
	},
	"table on another server": func(t *testing.T, s3 string) (first, second string) {
		here, there := testserver.Minidyn(t), testserver.Minidyn(t)
		first = shared("a", here, s3, "one")
		if _, err := Init(t.Context(), first, InitOptions{}); err != nil {
			t.Fatal(err)
		}
		restore(t, client(here), client(there), "team", "team")
		return first, shared("a", there, s3, "one")
	},
	"folder": func(t *testing.T, s3 string) (first, second string) {
		dir := t.TempDir()
		first, second = filepath.Join(dir, DirName), filepath.Join(dir, "copy")
		if _, err := Init(t.Context(), first, InitOptions{Objects: "s3://one/place?region=us-east-1&endpoint=" + s3}); err != nil {
			t.Fatal(err)
		}
		if err := os.CopyFS(second, os.DirFS(first)); err != nil {
			t.Fatal(err)
		}
		return first, second
	},
}

// The original's gc would remove the objects of a copy unnoticed. So a copy is read-only until it is told that the
// objects are its own. From then on the original is read-only.
func TestCopyWritesNothing(t *testing.T) {
	for kind, make := range kinds {
		t.Run(kind, func(t *testing.T) {
			credentials(t)
			ctx := t.Context()
			one, two := make(t, testserver.GoFakeS3(t))
			first := visit(t, one, Options{})
			h, err := first.Objects.PutBytes(ctx, []byte("the first's"))
			if err != nil {
				t.Fatal(err)
			}
			refused := func(r *Repo, whose string) {
				t.Helper()
				for what, call := range map[string]func() error{
					"put":     func() error { _, err := r.Objects.PutBytes(ctx, []byte("the copy's")); return err },
					"rely on": func() error { _, err := r.Objects.Refresh(ctx, h); return err },
					"delete":  func() error { return r.Objects.Delete(ctx, h) }, // as verify --repair does
					"delete what is old": func() error {
						_, err := r.Objects.DeleteBefore(ctx, h, time.Now().Add(time.Hour))
						return err
					},
					"collect": func() error { return r.OwnsObjects(ctx) },
				} {
					if err := call(); !errors.Is(err, errNotOurs) || !strings.Contains(err.Error(), whose) || !strings.Contains(err.Error(), r.takeCommand()) {
						t.Errorf("%s: got error %v, want one that names %s and says %s", what, err, whose, r.takeCommand())
					}
				}
				for e, err := range r.Objects.Walk(ctx) {
					if err != nil || e.Hash == objectstore.Sum([]byte("the copy's")) {
						t.Errorf("there is %v, error %v", e.Hash, err)
					}
				}
				if b, err := r.Objects.ReadAll(ctx, h, 100); string(b) != "the first's" {
					t.Errorf("read: got %q, error %v", b, err)
				}
			}
			allowed := func(r *Repo) {
				t.Helper()
				if _, err := r.Objects.PutBytes(ctx, []byte("new")); err != nil {
					t.Errorf("put: %v", err)
				}
				if err := r.OwnsObjects(ctx); err != nil {
					t.Errorf("collect: %v", err)
				}
			}
			copied, running := visit(t, two, Options{}), visit(t, two, Options{})
			refused(copied, first.owner().Of)
			refused(running, first.owner().Of)
			if _, from, err := copied.TakeObjects(ctx, false); err != nil || from != first.owner().Of {
				t.Fatalf("take them: got %q, error %v, want that they were those of %s", from, err, first.owner().Of)
			}
			allowed(copied)
			allowed(running) // a worker, which was refused a job before
			allowed(visit(t, two, Options{}))
			refused(visit(t, one, Options{}), copied.owner().Of)

			if kind == "table" { // has another location, which is compared in any case
				return
			}
			if _, _, err := copied.TakeObjects(ctx, true); err != nil {
				t.Fatal(err)
			}
			allowed(visit(t, one, Options{}))
			allowed(visit(t, two, Options{}))
		})
	}
}

// owner is what the repository says as whose the objects are.
func (r *Repo) owner() owner {
	if r.place.shared != "" {
		return owner{Of: r.place.shared}
	}
	return ownerOfFolder(r.place.root)
}

// Where it is not known whose the objects are they can be taken as well.
func TestTakeObjectsOfNobody(t *testing.T) {
	credentials(t)
	root, ctx := filepath.Join(t.TempDir(), DirName), t.Context()
	if _, err := Init(ctx, root, InitOptions{Objects: "s3://one/place?region=us-east-1&endpoint=" + testserver.GoFakeS3(t)}); err != nil {
		t.Fatal(err)
	}
	r := visit(t, root, Options{})
	if err := r.place.bucket().DeleteBlob(ctx, ownerBlob); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Objects.PutBytes(ctx, []byte("data")); !errors.Is(err, errNotOurs) || !strings.Contains(err.Error(), r.takeCommand()) {
		t.Errorf("put: got error %v, want one that says %s", err, r.takeCommand())
	}
	if at, from, err := r.TakeObjects(ctx, false); at != "s3://one/place" || from != "" || err != nil {
		t.Errorf("take them: got %q from %q, error %v, want s3://one/place from none", at, from, err)
	}
	if _, err := visit(t, root, Options{}).Objects.PutBytes(ctx, []byte("data")); err != nil {
		t.Errorf("put: %v", err)
	}
	inside := filepath.Join(t.TempDir(), DirName)
	if _, err := Create(inside); err != nil {
		t.Fatal(err)
	}
	if _, _, err := visit(t, inside, Options{}).TakeObjects(ctx, false); !errors.Is(err, errNothingElsewhere) {
		t.Errorf("take those in a folder: got error %v, want %v", err, errNothingElsewhere)
	}
}

// A process asks once whose the objects are, when it first writes, and reading asks nothing.
func TestAsksOnceWhoseTheyAre(t *testing.T) {
	credentials(t)
	tables, objects, ctx := testserver.NewProxy(t, testserver.Minidyn(t)), testserver.NewProxy(t, testserver.GoFakeS3(t)), t.Context()
	location := shared("a", tables.URL(), objects.URL(), "one")
	if _, err := Init(ctx, location, InitOptions{}); err != nil {
		t.Fatal(err)
	}
	r := visit(t, location, Options{})
	tables.Reset()
	objects.Reset()
	asked := func(want int) {
		t.Helper()
		if n, m := objects.Calls()["GetObject"], tables.Calls()["DescribeTable"]; n != want || m != want {
			t.Errorf("%d GetObject and %d DescribeTable, want %d of each", n, m, want)
		}
	}
	for h, err := range r.Objects.Walk(ctx) {
		t.Fatal(h, err)
	}
	if missing, err := r.Objects.Missing(ctx, []objectstore.Hash{objectstore.Sum(nil)}); len(missing) != 1 || err != nil {
		t.Fatal(missing, err)
	}
	asked(0)
	objects.Faults(1, testserver.Rule{Op: "GetObject", Fault: testserver.Fail, Times: 1})
	// Each has an object of its own: a writer that finds the copy of another's in the cache reads that object in S3.
	var g sync.WaitGroup
	for i := range 20 {
		g.Go(func() {
			if _, err := r.Objects.PutBytes(ctx, fmt.Append(nil, i)); err != nil {
				t.Error(err)
			}
		})
	}
	g.Wait()
	if objects.Struck()[testserver.Fail] != 1 {
		t.Error("the first try did not fail")
	}
	if n, m := objects.Calls()["GetObject"], tables.Calls()["DescribeTable"]; n != 2 || m != 1 { // one was tried again
		t.Errorf("%d GetObject and %d DescribeTable by 20 writers, want 2 and 1", n, m)
	}
}

// bucket is the place, as far as it is in S3.
func (p *place) bucket() *s3.Bucket { return p.objects.(*s3.Bucket) }

package packages_test

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"e3/internal/format/record"
	"e3/internal/human"
	"e3/internal/packages"
	"e3/internal/repo"
	"e3/objectstore"
	"e3/refstore"
)

func newRepo(t *testing.T) *repo.Repo {
	t.Helper()
	root, err := repo.Create(filepath.Join(t.TempDir(), repo.DirName))
	if err != nil {
		t.Fatal(err)
	}
	r, err := repo.Open(t.Context(), root, repo.Options{Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return r
}

func ref(name, version, content string) packages.Ref {
	return packages.Ref{Name: name, Version: version, Hash: objectstore.Sum([]byte(content)).String()}
}

func TestRegister(t *testing.T) {
	r := newRepo(t)
	register := r.Workspaces.Packages
	for _, r := range []packages.Ref{ref("b", "1.9.0", "x"), ref("b", "1.10.0", "y"), ref("b", "1.2.0", "z"), ref("a", "1", "x")} {
		if err := register.Add(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		if err := register.Add(t.Context(), r); err != nil {
			t.Errorf("the same again: %v", err)
		}
	}
	if err := register.Add(t.Context(), ref("b", "1.9.0", "other")); !errors.Is(err, packages.ErrExists) || !strings.Contains(err.Error(), "b@1.9.0") {
		t.Errorf("other content under the name: %v", err)
	}
	for _, test := range []struct{ name, version, want string }{
		{"b", "", "b@1.10.0"}, {"b", "1.9.0", "b@1.9.0"}, {"a", "", "a@1"},
	} {
		if got, err := register.Find(t.Context(), test.name, test.version); err != nil || got.String() != test.want {
			t.Errorf("Find(%q, %q) is %v, %v, want %s", test.name, test.version, got, err, test.want)
		}
	}
	var unknown *human.UnknownError
	if _, err := register.Find(t.Context(), "b", "2"); !errors.As(err, &unknown) || unknown.Name != "b@2" || !slices.Contains(unknown.Known, "b@1.10.0") {
		t.Errorf("an unknown version: %v", err)
	}
	if _, err := register.Find(t.Context(), "c", ""); !errors.As(err, &unknown) || !slices.Equal(unknown.Known, []string{"a", "b"}) {
		t.Errorf("an unknown package: %v", err)
	}
	if gone, err := register.Remove(t.Context(), "b", "1.10.0"); err != nil || gone.String() != "b@1.10.0" {
		t.Errorf("removed %v, %v", gone, err)
	}
	if got, err := register.Find(t.Context(), "b", ""); err != nil || got.String() != "b@1.9.0" {
		t.Errorf("the latest is %v, %v then", got, err)
	}
	all, err := register.List(t.Context())
	if err != nil || len(all) != 3 {
		t.Errorf("List returns %v, %v", all, err)
	}
	// The register is text that people and the reference read.
	rec, err := r.Records.Get(t.Context(), refstore.Key{Partition: "PACKAGE", Sort: "a/1"})
	if want := ref("a", "1", "x").Hash + "\n"; err != nil || string(rec.Value) != want {
		t.Errorf("the register says %q, %v, want %q", rec.Value, err, want)
	}
}

func TestDamagedRegister(t *testing.T) {
	r := newRepo(t)
	register := r.Workspaces.Packages
	if _, err := r.Records.Put(t.Context(), refstore.Record{Key: refstore.Key{Partition: "PACKAGE", Sort: "a/1"}, Value: []byte("oops")}); err != nil {
		t.Fatal(err)
	}
	if _, err := register.List(t.Context()); err == nil || !strings.Contains(err.Error(), "a/1") {
		t.Errorf("error is %v, want one that names the record", err)
	}
}

// The meaning of a name does not depend on packages that exports have added to the register.
func TestSnapshotsAreNotMeant(t *testing.T) {
	r := newRepo(t)
	register := r.Workspaces.Packages
	add := func(pkg record.Package) packages.Ref {
		t.Helper()
		h, err := r.Objects.PutBytes(t.Context(), pkg.Encode())
		r := packages.Ref{Name: pkg.Name, Version: pkg.Version, Hash: h.String()}
		if err == nil {
			err = register.Add(t.Context(), r)
		}
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	input := func(text string) []record.PackageInput {
		return []record.PackageInput{{Name: "x", Default: record.Leaf{Kind: record.LeafValue, Hash: objectstore.Sum([]byte(text)).String()}}}
	}
	release := record.Package{Name: "q", Version: "1.0.0+12345678", Inputs: input("a")}
	snapshot := record.Package{Name: "q", Version: "2.0.0", Inputs: input("b")}
	snapshot.Version = packages.SnapshotVersion(&snapshot)
	gone := ref("q", "3.0.0+01234567", "never stored")
	if err := register.Add(t.Context(), gone); err != nil {
		t.Fatal(err)
	}
	refs := map[packages.Ref]bool{add(release): false, add(snapshot): true, gone: true}
	for r, want := range refs {
		if is, err := register.IsSnapshot(t.Context(), r); err != nil || is != want {
			t.Errorf("%s is a snapshot: %v, %v, want %v", r, is, err, want)
		}
	}
	if got, err := register.Find(t.Context(), "q", ""); err != nil || got.Version != release.Version {
		t.Errorf("q is %v, %v, want the release", got, err)
	}
	again := snapshot
	again.Inputs = input("c")
	if again.Version = packages.SnapshotVersion(&again); !strings.HasPrefix(again.Version, "2.0.0+") || again.Version == snapshot.Version {
		t.Errorf("the snapshot of a snapshot is %s", again.Version)
	}
}

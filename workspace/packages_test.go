package workspace_test

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"e3/internal/format/record"
	"e3/objectstore"
	"e3/refstore"
	"e3/workspace"
)

func ref(name, version, content string) workspace.PackageRef {
	return workspace.PackageRef{Name: name, Version: version, Hash: objectstore.Sum([]byte(content)).String()}
}

func TestRegister(t *testing.T) {
	p := newPlace(t)
	for _, r := range []workspace.PackageRef{ref("b", "1.9.0", "x"), ref("b", "1.10.0", "y"), ref("b", "1.2.0", "z"), ref("a", "1", "x")} {
		if err := p.ws.Register(p.ctx, r); err != nil {
			t.Fatal(err)
		}
		if err := p.ws.Register(p.ctx, r); err != nil {
			t.Errorf("the same again: %v", err)
		}
	}
	if err := p.ws.Register(p.ctx, ref("b", "1.9.0", "other")); !errors.Is(err, workspace.ErrExists) || !strings.Contains(err.Error(), "b@1.9.0") {
		t.Errorf("other content under the name: %v", err)
	}
	for _, test := range []struct{ name, version, want string }{
		{"b", "", "b@1.10.0"}, {"b", "1.9.0", "b@1.9.0"}, {"a", "", "a@1"},
	} {
		if got, err := p.ws.Package(p.ctx, test.name, test.version); err != nil || got.String() != test.want {
			t.Errorf("Package(%q, %q) is %v, %v, want %s", test.name, test.version, got, err, test.want)
		}
	}
	var unknown *workspace.UnknownError
	if _, err := p.ws.Package(p.ctx, "b", "2"); !errors.As(err, &unknown) || unknown.Name != "b@2" || !slices.Contains(unknown.Known, "b@1.10.0") {
		t.Errorf("an unknown version: %v", err)
	}
	if _, err := p.ws.Package(p.ctx, "c", ""); !errors.As(err, &unknown) || !slices.Equal(unknown.Known, []string{"a", "b"}) {
		t.Errorf("an unknown package: %v", err)
	}
	if gone, err := p.ws.RemovePackage(p.ctx, "b", "1.10.0"); err != nil || gone.String() != "b@1.10.0" {
		t.Errorf("removed %v, %v", gone, err)
	}
	if got, err := p.ws.Package(p.ctx, "b", ""); err != nil || got.String() != "b@1.9.0" {
		t.Errorf("the latest is %v, %v then", got, err)
	}
	all, err := p.ws.Packages(p.ctx)
	if err != nil || len(all) != 3 {
		t.Errorf("Packages lists %v, %v", all, err)
	}
	// The register is text that people and the reference read.
	rec, err := p.repo.Records.Get(p.ctx, refstore.Key{Partition: "PACKAGE", Sort: "a/1"})
	if want := ref("a", "1", "x").Hash + "\n"; err != nil || string(rec.Value) != want {
		t.Errorf("the register says %q, %v, want %q", rec.Value, err, want)
	}
}

func TestDamagedRegister(t *testing.T) {
	p := newPlace(t)
	if _, err := p.repo.Records.Put(p.ctx, refstore.Record{Key: refstore.Key{Partition: "PACKAGE", Sort: "a/1"}, Value: []byte("oops")}); err != nil {
		t.Fatal(err)
	}
	if _, err := p.ws.Packages(p.ctx); err == nil || !strings.Contains(err.Error(), "a/1") {
		t.Errorf("error is %v, want one that names the record", err)
	}
}

// A workspace that was deployed from a registered package follows no file.
func TestDeployRegistered(t *testing.T) {
	p := newPlace(t)
	p.write("a.txt", "a")
	p.write("b.txt", "b")
	p.deploy(twoInputs)
	s, err := p.ws.State(p.ctx, "w")
	if err != nil {
		t.Fatal(err)
	}
	r := workspace.PackageRef{Name: "p", Version: "1", Hash: s.PackageHash}
	if err := p.ws.Register(p.ctx, r); err != nil {
		t.Fatal(err)
	}
	if err := p.ws.Deploy(p.ctx, "w", r); err != nil {
		t.Fatal(err)
	}
	if file, err := p.ws.LinkedTo(p.ctx, "w"); file != "" || err != nil {
		t.Errorf("it follows %q, %v", file, err)
	}
	p.write("a.txt", "edited")
	p.write("e3.yaml", "nonsense")
	p.start()
	if got := p.read("t"); got != "ab" {
		t.Errorf("the output is %q, want that of the package", got)
	}
	if _, err := p.ws.RemovePackage(p.ctx, "p", ""); err != nil {
		t.Fatal(err)
	}
	p.start(func(o *workspace.StartOptions) { o.Force = true }) // it keeps what it has
	if err := p.ws.Deploy(p.ctx, "w", ref("p", "2", "never stored")); !errors.Is(err, objectstore.ErrNotFound) {
		t.Errorf("a package that is not there: %v", err)
	}
	if err := p.ws.Deploy(p.ctx, "absent", r); !errors.Is(err, workspace.ErrNotFound) {
		t.Errorf("in an unknown workspace: %v", err)
	}
}

// A file that is built and registered as a package is what a deploy of the file gives.
func TestBuildIsDeterministic(t *testing.T) {
	p := newPlace(t)
	p.write("a.txt", "a")
	p.write("b.txt", "b")
	p.deploy(twoInputs)
	s, err := p.ws.State(p.ctx, "w")
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		built, err := p.ws.Build(p.ctx, filepath.Join(p.dir, "e3.yaml"), nil)
		if err != nil || built.Hash != s.PackageHash {
			t.Errorf("built %v, %v, want %s", built.Hash, err, s.PackageHash)
		}
	}
}

// What a name means does not depend on what exports have left in the register.
func TestSnapshotsAreNotMeant(t *testing.T) {
	p := newPlace(t)
	register := func(pkg record.Package) workspace.PackageRef {
		t.Helper()
		h, err := p.repo.Objects.PutBytes(p.ctx, pkg.Encode())
		r := workspace.PackageRef{Name: pkg.Name, Version: pkg.Version, Hash: h.String()}
		if err == nil {
			err = p.ws.Register(p.ctx, r)
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
	snapshot.Version = workspace.SnapshotVersion(&snapshot)
	gone := ref("q", "3.0.0+01234567", "never stored")
	if err := p.ws.Register(p.ctx, gone); err != nil {
		t.Fatal(err)
	}
	refs := map[workspace.PackageRef]bool{register(release): false, register(snapshot): true, gone: true}
	for r, want := range refs {
		if is, err := p.ws.IsSnapshot(p.ctx, r); err != nil || is != want {
			t.Errorf("%s is a snapshot: %v, %v, want %v", r, is, err, want)
		}
	}
	if got, err := p.ws.Package(p.ctx, "q", ""); err != nil || got.Version != release.Version {
		t.Errorf("q is %v, %v, want the release", got, err)
	}
	again := snapshot
	again.Inputs = input("c")
	if again.Version = workspace.SnapshotVersion(&again); !strings.HasPrefix(again.Version, "2.0.0+") || again.Version == snapshot.Version {
		t.Errorf("the snapshot of a snapshot is %s", again.Version)
	}
}

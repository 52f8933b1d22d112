package workspace_test

import (
	"errors"
	"path/filepath"
	"testing"

	"e3/objectstore"
	"e3/workspace"
)

func ref(name, version, content string) workspace.PackageRef {
	return workspace.PackageRef{Name: name, Version: version, Hash: objectstore.Sum([]byte(content)).String()}
}

// A workspace deployed from a registered package follows no file.
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
	if err := p.ws.Packages.Add(p.ctx, r); err != nil {
		t.Fatal(err)
	}
	if err := p.ws.Deployer.Deploy(p.ctx, "w", r); err != nil {
		t.Fatal(err)
	}
	if file, err := p.ws.Deployer.LinkedTo(p.ctx, "w"); file != "" || err != nil {
		t.Errorf("it follows %q, %v", file, err)
	}
	p.write("a.txt", "edited")
	p.write("e3.yaml", "nonsense")
	p.start()
	if got := p.read("t"); got != "ab" {
		t.Errorf("the output is %q, want that of the package", got)
	}
	if _, err := p.ws.Packages.Remove(p.ctx, "p", ""); err != nil {
		t.Fatal(err)
	}
	p.start(func(o *workspace.StartOptions) { o.Force = true }) // the workspace keeps its package
	if err := p.ws.Deployer.Deploy(p.ctx, "w", ref("p", "2", "never stored")); !errors.Is(err, objectstore.ErrNotFound) {
		t.Errorf("a package that is not there: %v", err)
	}
	if err := p.ws.Deployer.Deploy(p.ctx, "absent", r); !errors.Is(err, workspace.ErrNotFound) {
		t.Errorf("in an unknown workspace: %v", err)
	}
}

// Building and registering a file gives the same package as deploying the file.
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
		built, err := p.ws.Deployer.Build(p.ctx, filepath.Join(p.dir, "e3.yaml"), nil)
		if err != nil || built.Hash != s.PackageHash {
			t.Errorf("built %v, %v, want %s", built.Hash, err, s.PackageHash)
		}
	}
}

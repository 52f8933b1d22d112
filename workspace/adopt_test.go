package workspace_test

import (
	"context"
	"errors"
	"slices"
	"syscall"
	"testing"

	"e3/internal/repo"
	"e3/refstore"
	"e3/workspace"
)

// A fillingDisk has space for a number of records.
type fillingDisk struct {
	workspace.Records
	space int
}

func (d *fillingDisk) write() error {
	if d.space == 0 {
		return syscall.ENOSPC
	}
	d.space--
	return nil
}

func (d *fillingDisk) Put(ctx context.Context, r refstore.Record) (refstore.Version, error) {
	if err := d.write(); err != nil {
		return "", err
	}
	return d.Records.Put(ctx, r)
}

func (d *fillingDisk) PutSync(ctx context.Context, r refstore.Record) (refstore.Version, error) {
	if err := d.write(); err != nil {
		return "", err
	}
	return d.Records.PutSync(ctx, r)
}

// workspacesOn returns the workspaces of a repository whose disk has space for a number of records.
func workspacesOn(r *repo.Repo, space int) *workspace.Workspaces {
	stores := r.Workspaces.Stores
	disk := &fillingDisk{stores.Records, space}
	stores.Records, stores.Local, stores.Derived = disk, disk, nil
	return workspace.New(stores)
}

// At whichever write the disk becomes full: a failed adoption leaves no workspace, and its leftovers do not affect a
// later workspace of that name.
func TestAdoptFullDisk(t *testing.T) {
	p := newPlace(t)
	p.write("a.txt", "a")
	p.write("b.txt", "b")
	p.deploy(twoInputs)
	p.set("a", "set")
	state, err := p.ws.State(p.ctx, "w")
	if err != nil {
		t.Fatal(err)
	}
	writes := 0
	for ; ; writes++ {
		err := workspacesOn(p.repo, writes).Deployer.Adopt(p.ctx, "adopted", &state.WorkspaceState)
		if err == nil {
			break
		}
		if !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("after %d writes: %v", writes, err)
		}
		if _, err := p.ws.State(p.ctx, "adopted"); !errors.Is(err, workspace.ErrNotFound) {
			t.Fatalf("after %d writes the adoption failed, and the workspace is: %v", writes, err)
		}
		ref := workspace.PackageRef{Name: state.PackageName, Version: state.PackageVersion, Hash: state.PackageHash}
		if err := p.ws.Create(p.ctx, "adopted"); err != nil {
			t.Fatal(err)
		}
		if err := p.ws.Deployer.Deploy(p.ctx, "adopted", ref); err != nil {
			t.Fatal(err)
		}
		if got := setInputs(p, "adopted"); len(got) > 0 {
			t.Errorf("after %d writes the adoption failed, and  a later workspace of that name has the set inputs %v", writes, got)
		}
		if err := p.ws.Cleaner.Remove(p.ctx, "adopted"); err != nil {
			t.Fatal(err)
		}
	}
	if writes < 2 {
		t.Errorf("the adoption took %d writes; at least the link and the state were expected", writes)
	}
	if got := setInputs(p, "adopted"); !slices.Equal(got, []string{"a"}) {
		t.Errorf("the adopted workspace has the set inputs %v, want a", got)
	}
	if file, err := p.ws.Deployer.LinkedTo(p.ctx, "adopted"); file != "" || err != nil {
		t.Errorf("the adopted workspace follows %q, %v", file, err)
	}
}

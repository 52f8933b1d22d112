package gc_test

import (
	"context"
	"iter"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"e3/gc"
	"e3/internal/repo"
	"e3/internal/testing/suite"
	"e3/refstore"
	"e3/workspace"
)

// paused is a record store with hooks at steps of a collection: before the first listing of a partition, and before the
// second listing of sessions, which reads the protected names.
type paused struct {
	gc.Records
	listing    map[string]func() // before a partition is listed for the first time
	protecting func()
	looks      int
}

func (p *paused) List(ctx context.Context, q refstore.Query) iter.Seq2[refstore.Record, error] {
	if f := p.listing[q.Partition]; f != nil {
		delete(p.listing, q.Partition)
		f()
	}
	return p.Records.List(ctx, q)
}

func (p *paused) LiveSessions(ctx context.Context) ([]refstore.SessionInfo, error) {
	if p.looks++; p.looks == 2 && p.protecting != nil {
		p.protecting()
	}
	return p.Records.LiveSessions(ctx)
}

// visitor begins another process in the repository.
func (h *house) visitor() *house {
	h.Helper()
	r, err := repo.Open(context.Background(), h.root, repo.Options{Version: "test"})
	h.must(err)
	return &house{tester: h.tester, root: h.root, dir: h.dir, Repo: r}
}

// register registers the package of a file with these lines.
func (h *house) register(lines ...string) workspace.PackageRef {
	h.Helper()
	h.write("e3.yaml", "e3: 1\nname: p\n"+strings.Join(lines, "\n")+"\n")
	built, err := h.Workspaces.Deployer.Build(h.Context(), filepath.Join(h.dir, "e3.yaml"), nil)
	h.must(err)
	ref := workspace.PackageRef{Name: built.Package.Name, Version: built.Package.Version, Hash: built.Hash}
	h.must(h.Workspaces.Packages.Add(h.Context(), ref))
	return ref
}

// After the collection has read the executions and before it reads the workspaces, a task is run for the first time and
// its package is then replaced. The task object must stay, because the record of the execution names it.
func TestCollectBesideAFirstRun(t *testing.T) {
	h := newHouse(t, t.TempDir())
	ref := h.register("tasks:", "  one: {out: o, run: make o one}")
	h.must(h.Workspaces.Create(t.Context(), "w"))
	h.must(h.Workspaces.Deployer.Deploy(t.Context(), "w", ref)) // not the file, since a start would store the task again
	_, err := h.Workspaces.Packages.Remove(t.Context(), ref.Name, ref.Version)
	h.must(err)
	h.again()
	s := h.stores()
	s.Records = &paused{Records: h.Records, listing: map[string]func(){"PIN": func() {
		other := h.visitor()
		other.start("w")
		other.deploy("w", "tasks:", "  one: {out: o, run: make o two}")
		h.must(other.Close())
	}}}
	_, err = gc.Collect(t.Context(), s, gc.Options{})
	h.must(err)
	h.check()
}

// A package moves from the register to a workspace between the collection's reads of the two.
func TestCollectBesideAMove(t *testing.T) {
	h := newHouse(t, t.TempDir())
	h.project("x")
	ref := h.register(inputs, "tasks:", "  one: {in: [file], out: o, run: make o one}")
	h.must(h.Workspaces.Create(t.Context(), "w"))
	h.again()

	looked, deployed := make(chan struct{}), make(chan struct{})
	var collector sync.WaitGroup
	collect := sync.OnceFunc(func() {
		// Deploy has seen the package in the register, and is about to name it.
		_, err := h.visitor().Workspaces.Packages.Remove(t.Context(), ref.Name, ref.Version)
		h.must(err)
		collector.Go(func() {
			s := h.stores()
			s.Records = &paused{Records: h.Records, protecting: func() {
				close(looked)
				<-deployed
			}}
			if _, err := gc.Collect(t.Context(), s, gc.Options{}); err != nil {
				t.Error(err)
			}
		})
		select {
		case <-looked:
		case <-time.After(suite.Stuck):
			t.Error("the collection does not ask for what is protected")
		}
	})
	other := h.visitor()
	ws := workspace.New(workspace.Stores{
		Records: &naming{other.Records, collect}, Locks: other.Records, Objects: other.Objects, Local: other.Records,
		Sessions: other.Records, Now: time.Now, Holder: other.Workspaces.Holder, Sweep: other.Workspaces.Sweep,
	})
	err := ws.Deployer.Deploy(t.Context(), "w", ref)
	h.must(other.Close())
	close(deployed)
	collector.Wait()
	h.must(err)
	h.check()
}

// naming calls the function before each write of a workspace's state.
type naming struct {
	workspace.Records
	before func()
}

func (n *naming) PutSync(ctx context.Context, r refstore.Record) (refstore.Version, error) {
	if r.Key.Partition == "WORKSPACE" {
		n.before()
	}
	return n.Records.PutSync(ctx, r)
}

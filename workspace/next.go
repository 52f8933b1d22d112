package workspace

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"sync"

	"e3/internal/format/record"
	"e3/objectstore"
)

// Next is what the next start of a workspace would run on, without anything being stored.
type Next struct {
	Workspace   string
	State       *State
	Package     *record.Package
	PackageHash string
	Inputs      record.Node
	Outputs     record.Node // what the workspace holds now
	File        string      // the package file that it follows, "" without one
	Edited      bool        // the file says something else than what is deployed
	Faults      []error     // why the package file or its inputs cannot be taken in
	// Objects reads the objects of the repository, and those that the start would store before it looks anything up,
	// as far as they fit in memory: task objects, values and directory objects do. What is put there is kept in memory too.
	Objects NextObjects

	preview *preview
}

// NextObjects is a store that writes nothing to the repository.
type NextObjects interface {
	objectstore.Store
	// Stat returns the size of an object in bytes, or objectstore.ErrNotFound.
	Stat(ctx context.Context, h objectstore.Hash) (int64, error)
}

// Next follows the package file of a workspace and its linked inputs as a start does.
func (w *Planner) Next(ctx context.Context, ws string) (next *Next, err error) {
	err = w.states.steady(ctx, ws, func(s *State) (err error) {
		next, err = w.nextOf(ctx, ws, s)
		return err
	})
	return next, err
}

func (w *Planner) nextOf(ctx context.Context, ws string, s *State) (*Next, error) {
	if !s.Deployed {
		return nil, fmt.Errorf("workspace %s: %w", ws, ErrNotDeployed)
	}
	objects := newKeeping(w.states.Objects)
	p, t, err := w.previewStart(ctx, ws, s, objects)
	if err != nil {
		return nil, err
	}
	return &Next{
		Workspace: ws, State: s, Package: p.pkg, PackageHash: p.pkgHash, Inputs: p.inputs, Outputs: t.tasks, preview: p,
		File: p.file, Edited: p.edited, Faults: p.faults, Objects: objects,
	}, nil
}

// PlanNext tells what that start would do with these options. Unlike Plan it goes by what is deployed where the package file or its
// inputs cannot be taken in.
func (w *Planner) PlanNext(ctx context.Context, n *Next, o PlanOptions) (*Plan, error) {
	return w.plan(ctx, n.Workspace, n.preview, n.Objects, &o)
}

// What a keeping store holds at most: in all, and of one object. keptEntry is what an object counts beside its bytes.
const (
	keptBytes = 64 << 20
	keptOne   = 4 << 20
	keptEntry = 128
)

// keeping is a store that names what is put, and keeps it in memory as long as there is room; of what is large it keeps the size.
type keeping struct {
	hashOnly

	mu   sync.Mutex
	kept map[objectstore.Hash]keptObject
	room int64
}

type keptObject struct {
	size int64
	data []byte // nil where only the size was kept
}

func newKeeping(objects Objects) *keeping {
	return &keeping{hashOnly: hashOnly{objects}, kept: map[objectstore.Hash]keptObject{}, room: keptBytes}
}

// Put implements objectstore.Store.
func (s *keeping) Put(_ context.Context, r io.Reader) (objectstore.Info, error) {
	h := objectstore.NewHasher()
	var b bytes.Buffer
	n, err := io.Copy(io.MultiWriter(h, &atMost{&b, keptOne}), r)
	info := objectstore.Info{Hash: h.Hash(), Size: n}
	if err != nil {
		return info, err
	}
	k := keptObject{size: n}
	if n <= keptOne {
		k.data = append([]byte{}, b.Bytes()...)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.kept[info.Hash]; ok {
		return info, nil
	}
	if int64(len(k.data))+keptEntry > s.room {
		k.data = nil
	}
	if s.room >= keptEntry {
		s.room -= keptEntry + int64(len(k.data))
		s.kept[info.Hash] = k
	}
	return info, nil
}

// atMost drops what is beyond a number of bytes.
type atMost struct {
	b    *bytes.Buffer
	most int
}

func (w *atMost) Write(p []byte) (int, error) {
	w.b.Write(p[:min(len(p), max(0, w.most-w.b.Len()))])
	return len(p), nil
}

// PutBytes is Put.
func (s *keeping) PutBytes(ctx context.Context, b []byte) (objectstore.Hash, error) {
	info, err := s.Put(ctx, bytes.NewReader(b))
	return info.Hash, err
}

func (s *keeping) get(h objectstore.Hash) (keptObject, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k, ok := s.kept[h]
	return k, ok
}

// stores tells whether the start would store an object before it looks anything up.
func (s *keeping) stores(h objectstore.Hash) bool {
	_, ok := s.get(h)
	return ok
}

// Open implements objectstore.Store.
func (s *keeping) Open(ctx context.Context, h objectstore.Hash) (io.ReadCloser, error) {
	if k, ok := s.get(h); ok && k.data != nil {
		return io.NopCloser(bytes.NewReader(k.data)), nil
	}
	return s.hashOnly.Open(ctx, h)
}

// ReadAll reads as the store does best.
func (s *keeping) ReadAll(ctx context.Context, h objectstore.Hash, limit int64) ([]byte, error) {
	if k, ok := s.get(h); ok && k.data != nil {
		if int64(len(k.data)) > limit {
			return nil, &objectstore.TooLargeError{Hash: h, Limit: limit}
		}
		return k.data, nil
	}
	return s.hashOnly.ReadAll(ctx, h, limit)
}

// Stat returns the size of an object, also of one that only a start would store.
func (s *keeping) Stat(ctx context.Context, h objectstore.Hash) (int64, error) {
	if k, ok := s.get(h); ok {
		return k.size, nil
	}
	return s.hashOnly.Stat(ctx, h)
}

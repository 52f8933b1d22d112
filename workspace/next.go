package workspace

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"

	"e3/dataflow"
	"e3/dataflow/graph"
	"e3/dataflow/plan"
	"e3/objectstore"
)

// Next evaluates the package file and the linked inputs of a workspace as a start would.
func (w *Planner) Next(ctx context.Context, ws string) (next *plan.Next, err error) {
	err = w.states.steady(ctx, ws, func(s *State) (err error) {
		next, err = w.nextOf(ctx, ws, s)
		return err
	})
	return next, err
}

func (w *Planner) nextOf(ctx context.Context, ws string, s *State) (*plan.Next, error) {
	if !s.Deployed {
		return nil, fmt.Errorf("workspace %s: %w", ws, ErrNotDeployed)
	}
	objects := newKeeping(w.states.Objects)
	p, t, err := w.previewStart(ctx, ws, s, objects)
	if err != nil {
		return nil, err
	}
	next := &nextPlanner{w, ws, p, objects}
	return &plan.Next{
		Workspace: ws, Package: p.pkg, PackageHash: p.pkgHash, Inputs: p.inputs, Outputs: t.tasks,
		File: p.file, Edited: p.edited, Faults: p.faults, Objects: objects, Planner: next,
	}, nil
}

// nextPlanner is the plan.Planner of a workspace's next start.
type nextPlanner struct {
	w       *Planner
	ws      string
	next    *preview
	objects plan.Objects
}

// Plan implements plan.Planner.
func (n *nextPlanner) Plan(ctx context.Context, filter string) (*plan.Plan, error) {
	p, err := n.w.plan(ctx, n.ws, n.next, n.objects, &PlanOptions{Filter: filter, Concurrency: 1})
	if err != nil {
		return nil, err
	}
	return p.Planned, nil
}

// Results implements plan.Planner.
func (n *nextPlanner) Results(ctx context.Context) ([]plan.Result, error) {
	g, err := graph.New(n.next.pkg)
	if err != nil {
		return nil, err
	}
	opts := dataflow.Options{Inputs: n.next.inputs, Lookups: n.w.states.Lookups}
	proof, _, err := n.w.proofs.peek(ctx, n.ws)
	if err == nil && proof != nil {
		opts.Baseline, err = n.w.proofs.baseline(ctx, proof, n.next.pkgHash, n.next.pkg)
	}
	if err != nil {
		return nil, err
	}
	found, err := dataflow.Results(ctx, g, n.objects, n.w.states.executions().WithObjects(n.objects), &opts)
	if err != nil {
		return nil, fmt.Errorf("workspace %s: %w", n.ws, err)
	}
	list := make([]plan.Result, len(found))
	for i := range found {
		list[i] = plan.Result{ExecutionID: found[i].ExecutionID, Produced: plan.Produced{Output: found[i].Output, Size: found[i].Size}}
	}
	return list, nil
}

// Reads implements plan.Planner.
func (n *nextPlanner) Reads(ctx context.Context, g *graph.Graph, i int32, produced func(d int32) (plan.Produced, bool)) ([]objectstore.Hash, bool, error) {
	return dataflow.Reads(ctx, g, n.objects, n.next.inputs, i, produced)
}

// Limits of a keeping store in bytes: in total, and for one object. keptEntry is the cost of an object besides its
// bytes.
const (
	keptBytes = 128 << 20
	keptOne   = 4 << 20
	keptEntry = 128
	glanced   = 16 << 20 // bytes of files that are read at a glance
	opening   = 16 << 10 // what opening a file counts for among them
)

// keeping is a store that hashes what is put. It keeps the bytes in memory while there is room; of a large file, only the
// size.
type keeping struct {
	hashOnly
	glance *atomic.Int64 // bytes of files that may still be read; nil: any number

	mu   sync.Mutex
	kept map[objectstore.Hash]keptObject
	room int64
}

type keptObject struct {
	size int64
	data []byte // nil if only the size was kept
}

func newKeeping(objects Objects) *keeping {
	return &keeping{hashOnly: hashOnly{objects}, kept: map[objectstore.Hash]keptObject{}, room: keptBytes}
}

// copying has the buffers through which content is hashed.
var copying = sync.Pool{New: func() any { return new([32 << 10]byte) }}

// Put implements objectstore.Store.
func (s *keeping) Put(_ context.Context, r io.Reader) (objectstore.Info, error) {
	h := objectstore.NewHasher()
	var b bytes.Buffer
	buf := copying.Get().(*[32 << 10]byte)
	defer copying.Put(buf)
	n, err := io.CopyBuffer(io.MultiWriter(h, &atMost{&b, keptOne}), struct{ io.Reader }{r}, buf[:]) // a file would bring a buffer of its own
	info := objectstore.Info{Hash: h.Hash(), Size: n}
	if err != nil {
		return info, err
	}
	var data []byte
	if n <= keptOne {
		data = b.Bytes()
	}
	s.keep(info, data)
	return info, nil
}

// glancing returns a store that reads files only as long as that is quick.
func glancing(objects Objects) *keeping {
	s := newKeeping(objects)
	s.glance = new(atomic.Int64)
	s.glance.Store(glanced)
	return s
}

// PutFile stores a file. At a glance, a file for which there is no time has the hash of its name and stat, and no
// content: nothing may depend on it.
func (s *keeping) PutFile(ctx context.Context, f *os.File, o objectstore.FileOptions) (objectstore.Info, error) {
	if s.glance != nil {
		if info, err := f.Stat(); err == nil && info.Mode().IsRegular() && s.glance.Add(-info.Size()-opening) < 0 {
			return objectstore.Info{Hash: objectstore.Sum(fmt.Append(nil, f.Name(), info.Size(), info.ModTime().UnixNano())), Size: info.Size()}, nil
		}
	}
	return objectstore.PutFile(ctx, struct{ objectstore.Store }{s}, f, o)
}

// keep notes an object. data, which is nil or all of it, is copied if there is room.
func (s *keeping) keep(info objectstore.Info, data []byte) {
	k := keptObject{size: info.Size}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.kept[info.Hash]; ok {
		return
	}
	if data != nil && int64(len(data))+keptEntry <= s.room {
		k.data = append([]byte{}, data...)
	}
	if s.room >= keptEntry {
		s.room -= keptEntry + int64(len(k.data))
		s.kept[info.Hash] = k
	}
}

// atMost keeps the first bytes of a stream, and drops the rest.
type atMost struct {
	b    *bytes.Buffer
	most int
}

func (w *atMost) Write(p []byte) (int, error) {
	w.b.Write(p[:min(len(p), max(0, w.most-w.b.Len()))])
	return len(p), nil
}

// PutBytes is Put for an object that is in memory, such as a directory: it is kept however large it is.
func (s *keeping) PutBytes(_ context.Context, b []byte) (objectstore.Hash, error) {
	info := objectstore.Info{Hash: objectstore.Sum(b), Size: int64(len(b))}
	if b == nil {
		b = []byte{}
	}
	s.keep(info, b)
	return info.Hash, nil
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

// ReadAll reads an object in the store's most efficient way.
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

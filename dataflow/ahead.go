package dataflow

import (
	"context"
	"sync"

	"e3/internal/format/record"
	"e3/objectstore"
	"e3/objectstore/tree"
)

// fetcher is an object store that is far away and keeps copies here.
type fetcher interface {
	// FetchCopy makes a copy of an object unless there is one.
	FetchCopy(ctx context.Context, h objectstore.Hash) error
}

// ahead fetches the inputs of tasks that wait for their turn, while others run: a command's resources are not taken
// while its inputs come over the network. A failed fetch has no consequence: the task that reads the object fetches it
// again, and reports what is wrong. The scheduler's goroutine owns it.
type ahead struct {
	fetcher
	most    int // bounds the waiting tasks whose inputs are fetched
	fetched map[int32]bool
	room    chan struct{}
	ctx     context.Context
	cancel  context.CancelFunc
	work    sync.WaitGroup
}

// Bounds of fetching ahead.
const (
	aheadOfEach = 2       // waiting tasks for each running one
	aheadBytes  = 1 << 30 // bytes of a task's file inputs: larger ones might fill the cache
	aheadFiles  = 1000    // files in a task's directories
)

// newAhead returns nil if there is nothing to fetch, or if other machines read the inputs.
func newAhead(ctx context.Context, objects objectstore.Store, opts *Options) *ahead {
	f, ok := objects.(fetcher)
	if !ok || opts.Outstanding > 0 {
		return nil
	}
	a := &ahead{fetcher: f, most: aheadOfEach * max(opts.Concurrency, 1), fetched: map[int32]bool{}}
	a.room = make(chan struct{}, a.most)
	a.ctx, a.cancel = context.WithCancel(ctx)
	return a
}

// begin begins to fetch the inputs of the first tasks that are ready.
func (a *ahead) begin(s *scheduler) {
	if a == nil || s.stopping {
		return
	}
	for _, i := range s.ready.tasks[:min(a.most, len(s.ready.tasks))] { // a heap: its beginning holds the best, if not in order
		if a.fetched[i] || s.states[i].upstream > 0 || s.results[i].State != Pending {
			continue
		}
		select {
		case a.room <- struct{}{}:
		default:
			return
		}
		a.fetched[i] = true
		entries := s.reads(i)
		a.work.Go(func() {
			defer func() { <-a.room }()
			a.fetch(entries)
		})
	}
}

// close ends the fetches that are under way.
func (a *ahead) close() {
	if a != nil {
		a.cancel()
		a.work.Wait()
	}
}

// reads lists the objects that a task reads whole and that are found without reading a directory.
func (r *reader) reads(i int32) (list []tree.Entry) {
	output := func(task, entry string) {
		if e, err := r.output(task, ""); err == nil && entry == "" && !e.Hash.IsZero() {
			list = append(list, e)
		}
	}
	for _, w := range r.g.Package.Tasks[i].Wiring {
		switch w.Kind {
		case record.WireInput:
			if w.Entry != "" {
				continue
			}
			leaf, _ := r.opts.Inputs.Get(w.Name)
			if h, err := objectstore.ParseHash(leaf.Hash); err == nil {
				e := tree.Entry{Kind: tree.KindFile, Hash: h, Size: leaf.Size}
				if leaf.Kind == record.LeafDir {
					e.Kind = tree.KindDir
				}
				list = append(list, e)
			}
		case record.WireOutput:
			output(w.Name, w.Entry)
		default:
			for _, it := range w.Items {
				if it.Input != "" {
					continue
				}
				output(it.Task, it.Entry)
			}
		}
	}
	return list
}

// fetch fetches files and the files of directories, as far as the bounds allow.
func (a *ahead) fetch(list []tree.Entry) {
	bytes, files := int64(aheadBytes), aheadFiles
	for len(list) > 0 && files > 0 && a.ctx.Err() == nil {
		e := list[0]
		list = list[1:]
		files--
		if bytes -= max(e.Size, 0); bytes < 0 {
			return
		}
		switch e.Kind {
		case tree.KindDir:
			entries, err := tree.Read(a.ctx, a.objects(), e.Hash)
			if err != nil {
				return
			}
			list = append(list, entries...)
		case tree.KindFile:
			if a.FetchCopy(a.ctx, e.Hash) != nil {
				return
			}
		}
	}
}

// objects is the remote store.
func (a *ahead) objects() objectstore.Store { return a.fetcher.(objectstore.Store) }

package postgres

import (
	"context"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5"

	"e3/refstore"
)

// gathered are gets that wait for a statement. A process that looks up thousands of records at a time makes a statement
// for many of them, over few connections.
type gathered struct {
	store *Store

	mu      sync.Mutex
	waiting []*get
	running int
}

const (
	gatherers = 2   // statements at a time
	mostGets  = 512 // gets in a statement
)

// get is one read; row is nil if there is no record.
type get struct {
	key    refstore.Key
	fields []string
	done   chan struct{}
	row    *row
	err    error
}

func (g *gathered) get(ctx context.Context, key refstore.Key, fields []string) (*row, error) {
	one := &get{key: key, fields: fields, done: make(chan struct{})}
	g.mu.Lock()
	g.waiting = append(g.waiting, one)
	if g.running < gatherers {
		g.running++
		go g.run()
	}
	g.mu.Unlock()
	select {
	case <-one.done:
		return one.row, one.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// run makes statements until no get waits.
func (g *gathered) run() {
	for {
		g.mu.Lock()
		batch := g.take()
		if batch == nil {
			g.running--
		}
		g.mu.Unlock()
		if batch == nil {
			return
		}
		err := g.store.read(context.Background(), batch) // Patience bounds it
		for _, one := range batch {
			one.err = err
			close(one.done)
		}
	}
}

// take returns gets that ask for the same fields as the first, under mu.
func (g *gathered) take() (batch []*get) {
	left := g.waiting[:0:0]
	for _, one := range g.waiting {
		if len(batch) == 0 || len(batch) < mostGets && slices.Equal(one.fields, batch[0].fields) {
			batch = append(batch, one)
		} else {
			left = append(left, one)
		}
	}
	g.waiting = left
	return batch
}

// read reads the rows of gets that ask for the same fields.
func (s *Store) read(ctx context.Context, batch []*get) error {
	partitions, sorts := make([][]byte, len(batch)), make([][]byte, len(batch))
	for i, one := range batch {
		partitions[i], sorts[i] = []byte(one.key.Partition), []byte(one.key.Sort)
	}
	type found struct {
		i int
		row
	}
	got, err := rows(ctx, s, "get", `SELECT k.i, version, coalesce(replaced, ''), value, `+fieldsOf("$4")+`
		FROM unnest($2::bytea[], $3::bytea[]) WITH ORDINALITY AS k(p, s, i)
		JOIN e3.records r ON r.repository = $1 AND r.partition = k.p AND r.sort = k.s`,
		[]any{s.o.Repository, partitions, sorts, names(batch[0].fields)},
		func(r pgx.CollectableRow) (f found, err error) {
			return f, r.Scan(&f.i, &f.version, &f.replaced, &f.value, &f.fields)
		})
	for i := range got {
		batch[got[i].i-1].row = &got[i].row
	}
	return err
}

package postgres

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5"
)

// gathered are reads that wait for a statement. A process that looks up thousands of tasks at a time makes a statement for
// many of them, over few connections.
type gathered struct {
	store *Store

	mu      sync.Mutex
	waiting []*read
	running int
}

const (
	gatherers = 2   // statements at a time
	mostReads = 512 // reads in a statement
)

// read is the read of a record or, if size is set, of the first rows of a partition.
type read struct {
	partition, sort      string
	size                 int
	descending, keysOnly bool
	fields               []string

	done chan struct{}
	rows []row
	err  error
}

// like reports whether one statement can serve both reads.
func (r *read) like(s *read) bool {
	return r.size == s.size && r.descending == s.descending && r.keysOnly == s.keysOnly && slices.Equal(r.fields, s.fields)
}

func (g *gathered) do(ctx context.Context, r *read) ([]row, error) {
	r.done = make(chan struct{})
	g.mu.Lock()
	g.waiting = append(g.waiting, r)
	if g.running < gatherers {
		g.running++
		go g.run()
	}
	g.mu.Unlock()
	select {
	case <-r.done:
		return r.rows, r.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// run makes statements until no read waits.
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
		for _, r := range batch {
			r.err = err
			close(r.done)
		}
	}
}

// take returns reads that are like the first, under mu.
func (g *gathered) take() (batch []*read) {
	left := g.waiting[:0:0]
	for _, r := range g.waiting {
		if len(batch) == 0 || len(batch) < mostReads && r.like(batch[0]) {
			batch = append(batch, r)
		} else {
			left = append(left, r)
		}
	}
	g.waiting = left
	return batch
}

// read makes the statement of reads that are alike.
func (s *Store) read(ctx context.Context, batch []*read) error {
	first := batch[0]
	partitions, sorts := make([][]byte, len(batch)), make([][]byte, len(batch))
	for i, r := range batch {
		partitions[i], sorts[i] = []byte(r.partition), []byte(r.sort)
	}
	columns, where, direction, operation := allColumns("$4"), "r.sort = k.s", "", "get"
	if first.keysOnly {
		columns = "r.sort, '', '', ''::bytea, $4::bytea[]"
	}
	if first.size > 0 {
		if first.descending {
			direction = "DESC"
		}
		where, operation = fmt.Sprintf("k.s = ''::bytea ORDER BY r.sort %s LIMIT %d", direction, first.size), "list"
	}
	type found struct {
		i int
		row
	}
	got, err := rows(ctx, s, operation, `SELECT k.i, r.* FROM unnest($2::bytea[], $3::bytea[]) WITH ORDINALITY AS k(p, s, i)
		CROSS JOIN LATERAL (SELECT `+columns+` FROM e3.records r WHERE r.repository = $1 AND r.partition = k.p AND `+where+`) r ORDER BY k.i, r.sort `+direction,
		[]any{s.o.Repository, partitions, sorts, names(first.fields)},
		func(r pgx.CollectableRow) (f found, err error) {
			return f, r.Scan(&f.i, &f.sort, &f.version, &f.replaced, &f.value, &f.fields)
		})
	for _, f := range got {
		batch[f.i-1].rows = append(batch[f.i-1].rows, f.row)
	}
	return err
}

// allColumns are those of the row r, with the fields whose names are a parameter.
func allColumns(parameter string) string {
	return "r.sort, r.version, coalesce(r.replaced, ''), r.value, " + fieldsOf(parameter)
}

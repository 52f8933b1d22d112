package postgres

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
)

// lines carry statements to the server, each in a transaction of its own. Statements that come at the same moment go together,
// in one round trip; so do those that come while a line is busy. Another line, which is a connection, is only opened for a
// statement that has waited for some time, or for many: opening one takes longer than most statements.
type lines struct {
	store *Store

	mu      sync.Mutex
	waiting []*call
	running int
}

const (
	together  = 8                     // statements in a round trip
	impatient = 10 * time.Millisecond // how long a statement waits for a line before another is opened
	// A statement that a connection executes this often is prepared from then on, as planning takes as long as executing.
	repeats = 4
)

// call is a statement that waits for its answer.
type call struct {
	ctx  context.Context
	text string
	args []any
	tell string               // a notification that is sent behind it; none if empty
	read func(pgx.Rows) error // reads the answer
	done chan struct{}
	err  error
}

// collect makes a statement and reads its rows. The types of its parameters are those of the arguments, and all data is
// binary, so the server need not be asked for them before.
func collect[T any](ctx context.Context, s *Store, text string, args []any, scan pgx.RowToFunc[T]) ([]T, error) {
	return collectAnd(ctx, s, "", text, args, scan)
}

// collectAnd is collect with a notification behind it, in the same round trip. It is sent also if the statement fails.
func collectAnd[T any](ctx context.Context, s *Store, tell, text string, args []any, scan pgx.RowToFunc[T]) ([]T, error) {
	var out []T
	c := &call{ctx: ctx, text: text, args: args, tell: tell, done: make(chan struct{})}
	c.read = func(r pgx.Rows) (err error) {
		out, err = pgx.CollectRows(r, scan)
		return err
	}
	s.lines.add(c)
	select {
	case <-c.done:
		return out, c.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (l *lines) add(c *call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting = append(l.waiting, c)
	if l.running == 0 || len(l.waiting) > together {
		l.open()
		return
	}
	time.AfterFunc(impatient, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if slices.Contains(l.waiting, c) {
			l.open()
		}
	})
}

// open opens a line, under mu, unless there are as many as may be.
func (l *lines) open() {
	if l.running < l.store.o.Conns {
		l.running++
		go l.run()
	}
}

// run sends statements until none waits.
func (l *lines) run() {
	for {
		runtime.Gosched() // calls of other goroutines that begin at this moment go along
		l.mu.Lock()
		n := min(len(l.waiting), together)
		batch := slices.Clone(l.waiting[:n])
		l.waiting = slices.Delete(l.waiting, 0, n)
		if n == 0 {
			l.running--
		}
		l.mu.Unlock()
		if n == 0 {
			return
		}
		if batch = slices.DeleteFunc(batch, func(c *call) bool { return c.ctx.Err() != nil }); len(batch) > 0 {
			l.send(batch)
		}
	}
}

// send sends statements in one round trip, and reads the answers. Behind a pooler each has a round trip of its own.
func (l *lines) send(batch []*call) {
	ctx, cancel := context.WithTimeout(context.Background(), l.store.o.Attempt)
	defer cancel()
	conn, err := l.store.pool.Acquire(ctx)
	if err != nil {
		for _, c := range batch {
			c.err = err
			close(c.done)
		}
		return
	}
	defer conn.Release()
	for len(batch) > 0 {
		some := batch
		if l.store.pooled.Load() {
			some = batch[:1]
		}
		l.pipe(ctx, conn, some)
		batch = batch[len(some):]
	}
}

func (l *lines) pipe(ctx context.Context, conn *pgxpool.Conn, batch []*call) {
	types, pg := conn.Conn().TypeMap(), conn.Conn().PgConn()
	p := pg.StartPipeline(ctx)
	defer p.Close()
	var build pgx.ExtendedQueryBuilder
	for _, c := range batch {
		d := &pgconn.StatementDescription{}
		for _, a := range c.args {
			t, _ := types.TypeForValue(a) // nothing else is passed than what has one
			d.ParamOIDs = append(d.ParamOIDs, t.OID)
		}
		if err := build.Build(types, d, c.args); err != nil {
			c.err = fmt.Errorf("%w: %w", errNotSent, err)
			continue
		}
		if name := l.prepared(pg, p, c.text, d.ParamOIDs); name != "" {
			p.SendQueryPrepared(name, build.ParamValues, build.ParamFormats, []int16{pgx.BinaryFormatCode})
		} else {
			p.SendQueryParams(c.text, build.ParamValues, d.ParamOIDs, build.ParamFormats, []int16{pgx.BinaryFormatCode})
		}
		p.SendPipelineSync()
		if c.tell != "" {
			p.SendQueryParams(notify, [][]byte{[]byte(l.store.channel()), []byte(c.tell)}, nil, nil, nil)
			p.SendPipelineSync()
		}
	}
	broken := p.Flush()
	for _, c := range batch {
		l.answer(p, c, types, &broken)
		close(c.done)
	}
}

// answer reads the answer to a statement, unless the connection is broken.
func (l *lines) answer(p *pgconn.Pipeline, c *call, types *pgtype.Map, broken *error) {
	if c.err != nil { // it was not sent
		return
	}
	syncs := 1
	if c.tell != "" {
		syncs = 2
	}
	for *broken == nil && syncs > 0 {
		result, err := p.GetResults()
		telling := c.tell != "" && syncs == 1 // what cannot be told is found later
		var refused *pgconn.PgError
		switch r := result.(type) {
		case *pgconn.ResultReader:
			if telling {
				_, _ = r.Close()
			} else {
				err = c.read(pgx.RowsFromResultReader(types, r))
			}
		case *pgconn.PipelineSync:
			syncs--
		case nil:
			if err == nil {
				err = errors.New("the answer ended early")
			}
			if !errors.As(err, &refused) {
				*broken = err
			}
		}
		if c.err == nil && !telling {
			c.err = err
		}
	}
	if *broken != nil {
		c.err = *broken
	}
}

// prepared returns the name of a statement that is prepared on a connection, after it has sent that it is to be, "" if it is
// not often used.
func (l *lines) prepared(pg *pgconn.PgConn, p *pgconn.Pipeline, text string, types []uint32) (name string) {
	if l.store.pooled.Load() {
		return ""
	}
	key := "e3 " + text
	if name, ok := pg.CustomData()[key].(string); ok {
		return name
	}
	n, _ := pg.CustomData()["e3 uses "+text].(int)
	pg.CustomData()["e3 uses "+text] = n + 1
	if n < repeats {
		return ""
	}
	name = fmt.Sprint("e3_", len(pg.CustomData()))
	p.SendPrepare(name, text, types)
	pg.CustomData()[key] = name
	return name
}

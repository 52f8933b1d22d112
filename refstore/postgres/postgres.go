// Package postgres is a [refstore.Store] in a PostgreSQL database, with streams and watches. It needs one schema with
// three tables, which [Init] makes, and no extension. doc/format.md describes the rows.
//
// # Writing
//
// A record is one row, and so is the head of a stream; a stream's bytes are rows of their own. Each write is one
// statement with a condition, under READ COMMITTED, and each statement concerns the rows of one record or one stream.
// So a statement sees a state that was committed, and its condition is evaluated again on the latest row after it
// waited for another writer: no anomaly of that level can be seen. A row has a version that its writer chooses at random,
// so no version recurs, and the version that it replaced. A write whose answer was lost is tried again. If the first try
// took effect, the condition of the second fails, and the row shows it. After two more writes the outcome cannot be
// found out: [refstore.ErrInDoubt]. A try without an answer may also arrive late. Then its condition fails, with one
// exception: a creation recreates a record that has been deleted. [Store.Create] reports whether this can happen.
//
// # Fences
//
// A statement of a process with a session ([Options.Permit]) has another condition: the session's row says that it is
// alive, and stays locked in share mode until the statement's transaction has ended. To mark the session dead is to
// update that row. So the mark waits for the statements that are under way, and later ones do nothing: once a session is
// dead, none of its writes takes effect any more, without any clock.
//
// # Faults
//
// After a broken connection, a restart, a failover or a lack of connections, a statement is tried again with exponential
// backoff and full jitter, within the context and [Options.Patience].
package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"e3/refstore"
)

var (
	// ErrNoDatabase reports that the database does not exist.
	ErrNoDatabase = errors.New("the database does not exist")
	// ErrNoSchema reports that the database has no tables of e3, or that this user may not see them.
	ErrNoSchema = errors.New("the database has no schema e3")
)

// Options are the location of a repository and the parameters of its use. A zero duration means the default, which
// stands at the end of the field's comment.
type Options struct {
	// Address is the database's, as libpq reads it: postgres://user@host:port,host2:port2/database?sslmode=…, or host=… user=….
	// What it leaves out comes from the PG… variables, the password file and the service file.
	Address    string
	Repository string // bound to each statement: 1 to 64 of [A-Za-z0-9_.-], the first none of ".-"
	Conns      int    // most connections, one for notifications apart; 8

	Attempt  time.Duration // timeout of one try; 10 s
	Patience time.Duration // time for which a statement is tried; 2 min
	Backoff  time.Duration // longest pause before the second try, doubled before each further one; 50 ms
	// Poll is how often a watch or a follower looks without being told: where no notifications arrive; 1 s. Where they
	// do, it is ten times as long, since a writer may die before it tells.
	Poll time.Duration

	// Permit, which may be nil, decides whether a try of a write may be sent, by the partition of the records or streams.
	// It returns the session whose row fences the write, "" for none (see "Fences" above). An error that wraps
	// [refstore.ErrSuspended] is waited out.
	Permit func(ctx context.Context, partition string) (session string, err error)
	// Trying, which may be nil, is called before a retry once the request has lasted 2 s. Several goroutines may call it at
	// once. It must not block.
	Trying func(error)
	// Warn, which may be nil, is told of a server that does not keep what it has answered.
	Warn func(error)
	// Observe, which may be nil, is called after each try with the time that it took, even a failed one. Several goroutines may call
	// it at once.
	Observe func(operation string, took time.Duration, err error)
}

// Store is one repository in a database. It is safe for concurrent use, by any number of processes. Close it.
type Store struct {
	o        Options
	pool     *pgxpool.Pool
	name     string      // of the database and its hosts, for errors
	heard    atomic.Bool // the server has answered at least once
	pooled   atomic.Bool // something between this process and the server shares connections
	volatile sync.Once   // for Options.Warn

	lines lines
	reads gathered
	hub   hub
}

var (
	_ refstore.Durable = (*Store)(nil)
	_ refstore.Streams = (*Store)(nil)
	_ refstore.Watcher = (*Store)(nil)
	_ refstore.Tailer  = (*Store)(nil)
)

// ValidRepository reports whether name is valid as the name of a repository.
func ValidRepository(name string) bool {
	return len(name) >= 1 && len(name) <= 64 && name[0] != '.' && name[0] != '-' && !strings.ContainsFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '_' && r != '.' && r != '-'
	})
}

// Open returns a store. It makes no connection: if the schema does not exist, the first call returns [ErrNoSchema]. An
// invalid name or address is an ErrInvalid.
func Open(o Options) (*Store, error) {
	if !ValidRepository(o.Repository) {
		return nil, fmt.Errorf("repository name %.100q: %w: 1 to 64 letters, digits, '_', '.' and '-', not beginning with '.' or '-'", o.Repository, refstore.ErrInvalid)
	}
	return open(o)
}

// open also serves Init, which needs no repository.
func open(o Options) (*Store, error) {
	setDefault(&o.Attempt, 10*time.Second)
	setDefault(&o.Patience, 2*time.Minute)
	setDefault(&o.Backoff, 50*time.Millisecond)
	setDefault(&o.Poll, time.Second)
	if o.Conns <= 0 {
		o.Conns = 8
	}
	config, err := pgxpool.ParseConfig(o.Address)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", refstore.ErrInvalid, err)
	}
	s := &Store{o: o, name: config.ConnConfig.Database + " on " + config.ConnConfig.Host}
	config.MaxConns = int32(o.Conns)
	config.MinConns, config.MinIdleConns = 0, 0
	config.MaxConnIdleTime = time.Minute
	config.ConnConfig.ConnectTimeout = o.Attempt
	if config.ConnConfig.RuntimeParams["application_name"] == "" {
		config.ConnConfig.RuntimeParams["application_name"] = "e3"
	}
	config.AfterConnect = s.connected
	config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec // named statements do not work behind a pooler
	if s.pool, err = pgxpool.NewWithConfig(context.Background(), config); err != nil {
		return nil, fmt.Errorf("%w: %w", refstore.ErrInvalid, err)
	}
	s.lines.store, s.reads.store, s.hub.store = s, s, s
	s.hub.hurry = make(chan struct{}, 1)
	return s, nil
}

func setDefault(d *time.Duration, value time.Duration) {
	if *d <= 0 {
		*d = value
	}
}

// connected looks at a new connection: what is between here and the server, and whether the server keeps what it answers.
func (s *Store) connected(ctx context.Context, c *pgx.Conn) error {
	var pooled, volatile, lossy bool
	// Behind a pooler, settings would be made for others.
	err := c.QueryRow(ctx, `SELECT shared, current_setting('fsync') = 'off', current_setting('synchronous_commit') = 'off', CASE WHEN NOT shared THEN
			set_config('synchronous_commit', CASE current_setting('synchronous_commit') WHEN 'off' THEN 'on' ELSE current_setting('synchronous_commit') END, false)
			|| set_config('statement_timeout', $2, false) || set_config('idle_in_transaction_session_timeout', $2, false) END
		FROM (SELECT pg_backend_pid() <> $1::bigint AS shared) AS s`, int64(c.PgConn().PID()), fmt.Sprint(s.o.Attempt.Milliseconds())).Scan(&pooled, &volatile, &lossy, nil)
	if err != nil {
		return err
	}
	if pooled {
		s.pooled.Store(true)
	}
	if volatile && s.o.Warn != nil {
		s.volatile.Do(func() {
			s.o.Warn(fmt.Errorf("database %s: fsync is off: it can lose everything with its machine", s.name))
		})
	}
	if pooled && lossy {
		return fmt.Errorf("synchronous_commit is off: an answered write can be lost; turn it on for this user: ALTER ROLE … SET synchronous_commit = on")
	}
	return nil
}

// PutSync is Put: a write that the server has answered survives its end.
func (s *Store) PutSync(ctx context.Context, r refstore.Record) (refstore.Version, error) {
	return s.Put(ctx, r)
}

// Sync does nothing: writes that the server has answered survive its end.
func (s *Store) Sync(ctx context.Context) error { return ctx.Err() }

// Close tells others of the last writes and closes the connections. Calls that are under way fail.
func (s *Store) Close() error {
	s.hub.close()
	s.pool.Close()
	return nil
}

// Identity tells databases of the same name apart: the server's number and that of the database in it. A restored dump
// has another; a replica that takes over has the same.
func (s *Store) Identity(ctx context.Context) (string, error) {
	id, err := rows(ctx, s, "identity", "SELECT system_identifier::text || '/' || (SELECT oid FROM pg_database WHERE datname = current_database()) FROM pg_control_system()", nil, pgx.RowTo[string])
	if err != nil {
		return "", err
	}
	return id[0], nil
}

// The following say how the store is used at its best.

// StreamPace is the time for which callers should gather data between appends, since each append is a transaction.
func (s *Store) StreamPace() time.Duration { return 100 * time.Millisecond }

// ShortLogs returns false: a log in a field of its execution's record is read from there.
func (s *Store) ShortLogs() bool { return false }

// Index returns nil: records are listed by themselves, and so are executions by their ids.
func (s *Store) Index() refstore.Index { return nil }

// RemoveLeftovers has nothing to remove: each write is whole or has not happened.
func (s *Store) RemoveLeftovers(ctx context.Context, _ time.Time) (int, error) { return 0, ctx.Err() }

package postgres

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"e3/refstore"
)

// row is the state of a record's row.
type row struct {
	sort, value       []byte
	version, replaced string
	fields            [][]byte // of the names asked for; nil where there is none
}

func (r *row) record(key refstore.Key, fields []string) refstore.Record {
	rec := refstore.Record{Key: key, Value: r.value, Version: refstore.Version(r.version)}
	for i, name := range fields {
		if i < len(r.fields) && r.fields[i] != nil {
			rec.Fields = append(rec.Fields, refstore.Field{Name: name, Value: r.fields[i]})
		}
	}
	return rec
}

// fieldsOf reads the fields of the row r whose names are a parameter.
func fieldsOf(parameter string) string {
	return "(SELECT array_agg(r.contents[array_position(r.names, n)] ORDER BY i) FROM unnest(" + parameter + "::bytea[]) WITH ORDINALITY AS a(n, i))"
}

func names(fields []string) [][]byte {
	out := make([][]byte, len(fields))
	for i, f := range fields {
		out[i] = []byte(f)
	}
	return out
}

// Get implements [refstore.Store]. Gets that come while others are under way share a statement.
func (s *Store) Get(ctx context.Context, key refstore.Key, fields ...string) (refstore.Record, error) {
	if err := check(ctx, key.Validate()); err != nil {
		return refstore.Record{}, err
	}
	r, err := s.get(ctx, key, fields)
	if err != nil {
		return refstore.Record{}, fmt.Errorf("get %q: %w", key, err)
	}
	return r.record(key, fields), nil
}

func (s *Store) get(ctx context.Context, key refstore.Key, fields []string) (*row, error) {
	if v, ok := listing(key.Partition); ok {
		for name, err := range s.listed(ctx, v, refstore.Query{Prefix: key.Sort}) {
			if err != nil {
				return nil, err
			}
			if name == key.Sort {
				return &row{version: standing}, nil
			}
			break
		}
		return nil, refstore.ErrNotFound
	}
	rows, err := s.reads.do(ctx, &read{partition: key.Partition, sort: key.Sort, fields: fields})
	if err == nil && len(rows) == 0 {
		err = refstore.ErrNotFound
	}
	if err != nil {
		return nil, err
	}
	return &rows[0], nil
}

// fence is the part of a statement that begins each write, after its other parameters: the session's row if the session is
// alive, locked so that it stays alive until the write has ended. Without a session it is always there.
func fence(session string, args []any) (string, []any) {
	if session == "" {
		return "WITH fence AS (SELECT 1)", args
	}
	return fmt.Sprintf(`WITH fence AS (SELECT 1 FROM e3.records WHERE repository = $1 AND partition = 'LEASE/sessions'::bytea AND sort = $%d
		AND convert_from(value, 'UTF8')::json->>'state' = 'alive' FOR SHARE)`, len(args)+1), append(args, []byte(session))
}

// written makes a write whose last part, w, returns a row for each row written, and returns their number. $1 is the repository.
func (s *Store) written(ctx context.Context, operation, partition, write string, args ...any) (n int, doubt bool, err error) {
	return s.writtenTo(ctx, operation, []string{partition}, write, args...)
}

// writtenTo is written for a write of several partitions.
func (s *Store) writtenTo(ctx context.Context, operation string, partitions []string, write string, args ...any) (n int, doubt bool, err error) {
	args = append([]any{s.o.Repository}, args...)
	hurry := s.hub.hurries(operation, partitions)
	n, doubt, err = do(ctx, s, operation, partitions[0], func(ctx context.Context, session string) (int, error) {
		begin, args := fence(session, args)
		counts, err := collectAnd(ctx, s, hurry, begin+", "+write+" SELECT (SELECT count(*) FROM fence), (SELECT count(*) FROM w)", args, func(r pgx.CollectableRow) (counts [2]int, err error) {
			return counts, r.Scan(&counts[0], &counts[1])
		})
		if err != nil {
			return 0, err
		}
		if counts[0][0] == 0 {
			err = fmt.Errorf("%w: session %s: %w", errFenced, session, refstore.ErrLost)
		}
		return counts[0][1], err
	})
	if err == nil && n > 0 || doubt {
		for _, partition := range partitions {
			s.hub.changed(operation, partition, hurry != "" && err == nil)
		}
	}
	return n, doubt, err
}

const (
	insertRecord = `w AS (INSERT INTO e3.records (repository, partition, sort, version, value, names, contents)
		SELECT $1, $2, $3, $4, $5, $6::bytea[], $7::bytea[] WHERE EXISTS (SELECT FROM fence) ON CONFLICT DO NOTHING RETURNING 1)`
	updateRecord = `w AS (UPDATE e3.records SET version = $4, replaced = version, value = $5
		WHERE repository = $1 AND partition = $2 AND sort = $3 AND version = $6 AND EXISTS (SELECT FROM fence) RETURNING 1)`
	updateFields = `w AS (UPDATE e3.records r SET version = $4, replaced = version, value = $5,
			names = $7::bytea[] || ARRAY(SELECT n FROM unnest(r.names, r.contents) WITH ORDINALITY AS f(n, c, i) WHERE n <> ALL ($7::bytea[]) ORDER BY i),
			contents = $8::bytea[] || ARRAY(SELECT c FROM unnest(r.names, r.contents) WITH ORDINALITY AS f(n, c, i) WHERE n <> ALL ($7::bytea[]) ORDER BY i)
		WHERE repository = $1 AND partition = $2 AND sort = $3 AND version = $6 AND EXISTS (SELECT FROM fence) RETURNING 1)`
	deleteRecord = `w AS (DELETE FROM e3.records
		WHERE repository = $1 AND partition = $2 AND sort = $3 AND version = $4 AND EXISTS (SELECT FROM fence) RETURNING 1)`
)

// Put implements [refstore.Store]. It is atomic over value and fields.
func (s *Store) Put(ctx context.Context, r refstore.Record) (refstore.Version, error) {
	v, _, err := s.Create(ctx, r)
	return v, err
}

// Create is Put of a record that must not exist. late says that a try without an answer may still arrive: if the record
// has been deleted by then, the try creates it again, with the same version. (A late try of any other write finds another
// version, and has no effect.)
func (s *Store) Create(ctx context.Context, r refstore.Record) (v refstore.Version, late bool, err error) {
	if err = check(ctx, r.Validate()); err == nil {
		err = writable(r.Key)
	}
	if err != nil {
		return refstore.Absent, false, err
	}
	version := newVersion()
	names, contents := make([][]byte, len(r.Fields)), make([][]byte, len(r.Fields))
	for i, f := range r.Fields {
		names[i], contents[i] = []byte(f.Name), present(f.Value)
	}
	args := []any{[]byte(r.Key.Partition), []byte(r.Key.Sort), version, present(r.Value)}
	write := insertRecord
	switch {
	case r.Version == refstore.Absent:
		args = append(args, names, contents)
	case len(r.Fields) == 0:
		write, args = updateRecord, append(args, string(r.Version))
	default:
		write, args = updateFields, append(args, string(r.Version), names, contents)
	}
	n, late, err := s.written(ctx, "put", r.Key.Partition, write, args...)
	if err == nil && n == 0 {
		if err = refstore.ErrConflict; late {
			err = s.settle(ctx, r.Key, version, string(r.Version))
		}
	}
	if err != nil {
		return refstore.Absent, late, fmt.Errorf("put %q: %w", r.Key, err)
	}
	return refstore.Version(version), late, nil
}

// present is data that is not taken for NULL.
func present(data []byte) []byte {
	if data == nil {
		return []byte{}
	}
	return data
}

// settle finds out whether a write of version in place of another took effect, after a try without an answer: nil if it
// did, ErrConflict if not.
func (s *Store) settle(ctx context.Context, key refstore.Key, version, replaces string) error {
	r, err := s.get(ctx, key, nil)
	switch {
	case err != nil && !errors.Is(err, refstore.ErrNotFound):
		return err
	case r != nil && (r.version == version || r.replaced == version):
		return nil
	case r != nil && r.replaced == replaces && replaces != string(refstore.Absent):
		return refstore.ErrConflict
	}
	return refstore.ErrInDoubt
}

// Delete implements [refstore.Store]. If an answer was lost, and the retry finds no record, that counts as success.
func (s *Store) Delete(ctx context.Context, key refstore.Key, v refstore.Version) error {
	err := check(ctx, key.Validate())
	if err == nil {
		err = writable(key)
	}
	if err != nil {
		return err
	}
	n, doubt, err := s.written(ctx, "delete", key.Partition, deleteRecord, []byte(key.Partition), []byte(key.Sort), string(v))
	if err == nil && n == 0 {
		var there *row
		there, err = s.get(ctx, key, nil)
		switch {
		case errors.Is(err, refstore.ErrNotFound) && doubt:
			err = nil
		case err != nil:
		case there.version == string(v) && !doubt:
			// A policy may hide the row from deletions, or another process was in between.
			err = s.denied("delete", key.Partition, s.failed("delete", &pgconn.PgError{Severity: "ERROR", Code: "42501", Message: "a policy keeps the row"}))
		case !doubt || there.replaced == string(v):
			err = refstore.ErrConflict
		default:
			err = refstore.ErrInDoubt
		}
	}
	if err != nil {
		return fmt.Errorf("delete %q: %w", key, err)
	}
	return nil
}

// WriteBatch puts records, whatever was there, and deletes others, in one statement. It is for records without fields.
func (s *Store) WriteBatch(ctx context.Context, puts []refstore.Record, gone []refstore.Key) error {
	switch n := len(puts) + len(gone); {
	case n == 0:
		return nil
	case n > refstore.MaxBatch:
		return fmt.Errorf("write %d records at once: %w", n, refstore.ErrInvalid)
	}
	var partitions, sorts, values [][]byte
	var versions []string
	var touched []string
	for _, r := range puts {
		err := check(ctx, r.Validate())
		if err == nil {
			err = writable(r.Key)
		}
		if err == nil && len(r.Fields) > 0 {
			err = errors.ErrUnsupported
		}
		if err != nil {
			return fmt.Errorf("put %q among others: %w", r.Key, err)
		}
		partitions, sorts = append(partitions, []byte(r.Key.Partition)), append(sorts, []byte(r.Key.Sort))
		values, versions = append(values, present(r.Value)), append(versions, newVersion())
		touched = append(touched, r.Key.Partition)
	}
	var gonePartitions, goneSorts [][]byte
	for _, key := range gone {
		err := check(ctx, key.Validate())
		if err == nil {
			err = writable(key)
		}
		if err != nil {
			return fmt.Errorf("delete %q among others: %w", key, err)
		}
		gonePartitions, goneSorts = append(gonePartitions, []byte(key.Partition)), append(goneSorts, []byte(key.Sort))
		touched = append(touched, key.Partition)
	}
	slices.Sort(touched)
	_, _, err := s.writtenTo(ctx, "put", slices.Compact(touched), `
		p AS (INSERT INTO e3.records AS r (repository, partition, sort, version, value, names, contents)
			SELECT $1, p, s, v, d, '{}', '{}' FROM unnest($2::bytea[], $3::bytea[], $4::text[], $5::bytea[]) AS k(p, s, v, d)
			WHERE EXISTS (SELECT FROM fence) ORDER BY p, s
			ON CONFLICT (repository, partition, sort) DO UPDATE SET version = excluded.version, replaced = r.version,
				value = excluded.value, names = '{}', contents = '{}' RETURNING 1),
		d AS (DELETE FROM e3.records USING unnest($6::bytea[], $7::bytea[]) AS k(p, s)
			WHERE repository = $1 AND partition = p AND sort = s AND EXISTS (SELECT FROM fence) RETURNING 1),
		w AS (SELECT FROM p UNION ALL SELECT FROM d)`, partitions, sorts, versions, values, gonePartitions, goneSorts)
	if err != nil {
		return fmt.Errorf("write %d records at once: %w", len(puts)+len(gone), err)
	}
	return nil
}

// ReadBatch returns the values of those of some records that are there, in one statement.
func (s *Store) ReadBatch(ctx context.Context, keys []refstore.Key) (records []refstore.Record, err error) {
	if len(keys) == 0 || len(keys) > refstore.MaxReads {
		return nil, fmt.Errorf("read %d records at once: %w", len(keys), refstore.ErrInvalid)
	}
	batch := make([]*read, len(keys))
	for i, key := range keys {
		if err := check(ctx, key.Validate()); err != nil {
			return nil, fmt.Errorf("read %q among others: %w", key, err)
		}
		batch[i] = &read{partition: key.Partition, sort: key.Sort}
	}
	if err := s.read(ctx, batch); err != nil {
		return nil, fmt.Errorf("read %d records at once: %w", len(keys), err)
	}
	for i, r := range batch {
		if len(r.rows) > 0 {
			records = append(records, r.rows[0].record(keys[i], nil))
		}
	}
	return records, nil
}

// Pages of a list without a limit: most readers stop after the newest record.
var pages = [...]int{16, 256, 1024}

// List implements [refstore.Store].
func (s *Store) List(ctx context.Context, q refstore.Query) iter.Seq2[refstore.Record, error] {
	return func(yield func(refstore.Record, error) bool) {
		fail := func(err error) { yield(refstore.Record{}, fmt.Errorf("list %q: %w", q.Partition, err)) }
		if err := check(ctx, q.Validate()); err != nil {
			yield(refstore.Record{}, err)
			return
		}
		if v, ok := listing(q.Partition); ok {
			for name, err := range s.listed(ctx, v, q) {
				if err != nil {
					fail(err)
					return
				}
				if !yield(refstore.Record{Key: refstore.Key{Partition: q.Partition, Sort: name}, Version: standing}, nil) {
					return
				}
			}
			return
		}
		for r, err := range s.list(ctx, "e3.records", q) {
			if err != nil {
				fail(err)
				return
			}
			if !yield(r, nil) {
				return
			}
		}
	}
}

// list yields the rows of a table as q says, page after page.
func (s *Store) list(ctx context.Context, table string, q refstore.Query) iter.Seq2[refstore.Record, error] {
	return func(yield func(refstore.Record, error) bool) {
		for left, page := q.Limit, 0; ; page++ {
			size := pages[min(page, len(pages)-1)]
			if q.KeysOnly {
				size = pages[len(pages)-1]
			}
			if q.Limit > 0 {
				size = min(left, pages[len(pages)-1])
			}
			rows, err := s.page(ctx, table, q, size)
			if err != nil {
				yield(refstore.Record{}, err)
				return
			}
			for i := range rows {
				key := refstore.Key{Partition: q.Partition, Sort: string(rows[i].sort)}
				r := refstore.Record{Key: key}
				if !q.KeysOnly {
					r = rows[i].record(key, q.Fields)
				}
				if !yield(r, nil) {
					return
				}
				q.After = key.Sort
			}
			if left -= len(rows); len(rows) < size || q.Limit > 0 && left <= 0 {
				return
			}
		}
	}
}

// page reads the next rows of a partition as q says, at most limit.
func (s *Store) page(ctx context.Context, table string, q refstore.Query, limit int) ([]row, error) {
	if q.Prefix == "" && q.After == "" && table == "e3.records" {
		return s.reads.do(ctx, &read{partition: q.Partition, size: limit, descending: q.Descending, keysOnly: q.KeysOnly, fields: q.Fields})
	}
	columns := "sort"
	args := []any{s.o.Repository, []byte(q.Partition)}
	if !q.KeysOnly {
		args = append(args, names(q.Fields))
		columns = allColumns("$3")
	}
	where := "repository = $1 AND partition = $2"
	bound := func(operator string, value string) {
		if value != "" {
			args = append(args, []byte(value))
			where += fmt.Sprintf(" AND sort %s $%d", operator, len(args))
		}
	}
	bound(">=", q.Prefix)
	bound("<", beyond(q.Prefix))
	direction := ""
	if q.Descending {
		direction = " DESC"
		bound("<", q.After)
	} else {
		bound(">", q.After)
	}
	args = append(args, limit)
	text := fmt.Sprintf("SELECT %s FROM %s r WHERE %s ORDER BY sort%s LIMIT $%d", columns, table, where, direction, len(args))
	return rows(ctx, s, "list", text, args, func(r pgx.CollectableRow) (out row, err error) {
		if q.KeysOnly {
			return out, r.Scan(&out.sort)
		}
		return out, r.Scan(&out.sort, &out.version, &out.replaced, &out.value, &out.fields)
	})
}

// rows reads all rows of a query.
func rows[T any](ctx context.Context, s *Store, operation, text string, args []any, scan pgx.RowToFunc[T]) ([]T, error) {
	out, _, err := do(ctx, s, operation, "", func(ctx context.Context, _ string) ([]T, error) {
		return collect(ctx, s, text, args, scan)
	})
	return out, err
}

// beyond is the smallest name behind all names with a prefix, "" if there is none.
func beyond(prefix string) string {
	b := bytes.TrimRight([]byte(prefix), "\xff")
	if len(b) == 0 {
		return ""
	}
	b[len(b)-1]++
	return string(b)
}

package postgres

import (
	"context"
	_ "embed"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Schema are the statements that make the schema e3 in a database. They change nothing that exists. An administrator
// may run them in place of [Init], and give others rights (doc/rights).
//
//go:embed schema.sql
var Schema string

// Init makes the schema in the database that o names, unless it exists. created reports whether this call made it. It ignores
// Repository of o: any number of repositories share a schema.
func Init(ctx context.Context, o Options) (created bool, err error) {
	s, err := open(o)
	if err != nil {
		return false, err
	}
	defer s.pool.Close()
	created, _, err = do(ctx, s, "make the schema", "", func(ctx context.Context, _ string) (bool, error) {
		// One at a time: of two that make a schema, one would fail.
		return created, pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
			var there bool
			if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock(hashtext('e3 schema'))"); err != nil {
				return err
			}
			if err := tx.QueryRow(ctx, "SELECT to_regclass('e3.chunks') IS NOT NULL").Scan(&there); err != nil || there {
				return err
			}
			_, err := tx.Exec(ctx, Schema, pgx.QueryExecModeSimpleProtocol)
			created = err == nil
			return err
		})
	})
	if err != nil {
		return false, fmt.Errorf("make the schema e3: %w", err)
	}
	return created, nil
}

// Drop removes all that the repository has in the database.
func (s *Store) Drop(ctx context.Context) error {
	_, _, err := do(ctx, s, "drop the repository", "", func(ctx context.Context, _ string) (struct{}, error) {
		_, err := s.pool.Exec(ctx, `WITH r AS (DELETE FROM e3.records WHERE repository = $1), s AS (DELETE FROM e3.streams WHERE repository = $1)
			DELETE FROM e3.chunks WHERE repository = $1`, s.o.Repository)
		return struct{}{}, err
	})
	return err
}

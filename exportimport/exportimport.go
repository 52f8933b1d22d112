// Package exportimport takes results from one repository to another in a zip. The zip holds the package, the datasets
// and the latest run of a workspace, with the executions of its results. So a start on the other side has only hits.
//
// A zip is a function of what it exports: two exports of one state differ at most in their last three entries, which
// name the exporter. An import checks everything that it can before it writes anything, stores objects before records
// that refer to them, and can be interrupted and repeated at any point (doc/design.md, "Taking results elsewhere";
// doc/format.md, "The zip").
package exportimport

import (
	"context"
	"errors"
	"fmt"
	"time"

	"e3/executions"
	"e3/internal/format/record"
	"e3/internal/human"
	"e3/objectstore"
	"e3/refstore"
	"e3/workspace"
)

// Records are the stores of a repository's records and streams.
type Records interface {
	refstore.Durable
	refstore.Streams
	refstore.Sessions
	// Sync makes everything written before durable.
	Sync(ctx context.Context) error
}

// Objects is the object store of a repository.
type Objects interface {
	objectstore.Store
	// Stat returns the size of an object in bytes, or objectstore.ErrNotFound.
	Stat(ctx context.Context, h objectstore.Hash) (int64, error)
	// Refresh protects an object that is about to be named without being put, and reports whether it exists.
	Refresh(ctx context.Context, h objectstore.Hash) (bool, error)
}

// A Repository is the source or the destination of results.
type Repository struct {
	Records    Records
	Objects    Objects
	Locks      refstore.Locker
	Workspaces *workspace.Workspaces
	Executions *executions.Store
	Curator    *executions.Curator
	Now        func() time.Time
	User       string // user@host, for provenance
	Location   string // of the repository, for provenance
	Version    string // of e3, for provenance
}

// ErrIntegrity is wrapped if a zip, or content to be exported, does not match its hashes or records.
var ErrIntegrity = errors.New("integrity")

// A ZipError says why a zip is refused. Nothing visible has changed.
type ZipError struct {
	Entry string // "" if the zip as a whole is at fault
	Err   error
}

// Error has the same form as the errors of zipfile.
func (e *ZipError) Error() string {
	if e.Entry == "" {
		return fmt.Sprintf("zip file refused: %v", e.Err)
	}
	return fmt.Sprintf("zip file refused: entry %q: %v", shorten(e.Entry), e.Err)
}

// Unwrap also makes errors.Is(err, ErrIntegrity) true.
func (e *ZipError) Unwrap() []error { return []error{ErrIntegrity, e.Err} }

func refused(entry, format string, args ...any) error {
	return &ZipError{Entry: entry, Err: fmt.Errorf(format, args...)}
}

// shorten shortens a name for a message.
func shorten(s string) string { return human.Truncate(s, 160) }

func eventsKey(ws, id string) refstore.Key {
	return refstore.Key{Partition: "EVENTS/" + ws, Sort: id}
}

// when is the time of the last change to the exported state of a workspace.
func when(s *record.WorkspaceState, run *record.Run) time.Time {
	at := s.RootUpdatedAt
	for _, t := range []time.Time{s.DeployedAt, completed(run)} {
		if t.After(at) {
			at = t
		}
	}
	return at
}

func completed(run *record.Run) time.Time {
	if run == nil {
		return time.Time{}
	}
	return run.CompletedAt
}

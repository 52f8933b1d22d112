package postgres

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"e3/internal/backoff"
	"e3/refstore"
)

// newVersion draws a version, or another unique name: 128 random bits.
func newVersion() string {
	var id [16]byte
	rand.Read(id[:]) // never fails
	return base64.RawURLEncoding.EncodeToString(id[:])
}

// fate tells what a failed try of a statement means.
type fate int

const (
	final   fate = iota // another try would fail too
	refused             // it had no effect; another try may succeed
	unknown             // it may have taken effect
)

// judge classifies the error of a statement that this process did not cancel. heard says that the server has answered
// before: then an unknown host name is a temporary failure, not a wrong address.
func judge(err error, heard bool) fate {
	var answer *pgconn.PgError
	if errors.As(err, &answer) {
		switch code := answer.Code; {
		case code == "57P01", code == "57P02", code == "40003": // the server is shut down: perhaps after the commit
			return unknown
		case code == "53100": // the disk is full
			return final
		case strings.HasPrefix(code, "53"), // connections, memory
			strings.HasPrefix(code, "40"),                                      // deadlocks, serialization
			code == "55P03", code == "57014", code == "57P03", code == "57P05", // timeouts, starting up
			code == "25006",                  // no longer the primary, see dead
			code == "26000", code == "08P01", // what a pooler says of statements and connections that are gone
			code == "0A000" && strings.Contains(answer.Message, "cached plan"):
			return refused
		case strings.HasPrefix(code, "08"):
			return unknown
		}
		return final
	}
	var dns *net.DNSError
	if errors.As(err, &dns) && dns.IsNotFound && !heard {
		return final
	}
	var connect *pgconn.ConnectError
	if errors.As(err, &connect) {
		var network net.Error
		var number syscall.Errno
		if errors.As(err, &network) || errors.As(err, &number) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || strings.Contains(err.Error(), "not primary") || strings.Contains(err.Error(), "read only connection") {
			return refused
		}
		return final // TLS, a password that is missing
	}
	if pgconn.SafeToRetry(err) {
		return refused
	}
	return unknown
}

// quiet is the time for which a statement is tried without a call of Options.Trying.
const quiet = 2 * time.Second

// unheard is the patience with a server that has never answered. It is short, so that a wrong address is reported soon.
const unheard = 10 * time.Second

// maxBackoff is the longest pause between two tries.
const maxBackoff = 5 * time.Second

// do makes a request until it succeeds or fails for good. It is a write if partition is not empty: then the request gets
// the session that fences it. doubt reports that a try without an answer may have taken effect, whatever the result is. The
// error names the database.
func do[Out any](ctx context.Context, s *Store, operation, partition string, request func(ctx context.Context, session string) (Out, error)) (out Out, doubt bool, err error) {
	begin := time.Now()
	var before error // error of the last try
	for try := 1; ; try++ {
		if ctx.Err() != nil {
			if before != nil {
				return out, doubt, fmt.Errorf("%w; the last try: %w", context.Cause(ctx), before)
			}
			return out, doubt, context.Cause(ctx)
		}
		var why fate
		if out, err = attempt(ctx, s, operation, partition, request); err == nil {
			s.heard.Store(true)
			return out, doubt, nil
		}
		switch why = judge(err, s.heard.Load()); {
		case errors.Is(err, errFenced), errors.Is(err, refstore.ErrSuspended): // Permit waits for another session, or says that it is lost
			why = refused
		case errors.Is(err, errNotSent):
			why = final
		}
		doubt = doubt || why == unknown
		if ctx.Err() != nil {
			return out, doubt, s.failed(operation, fmt.Errorf("%w: %w", context.Cause(ctx), err))
		}
		if answer := (*pgconn.PgError)(nil); errors.As(err, &answer) {
			s.heard.Store(true)
			if answer.Code == "25006" { // this is a standby now, or a server that was one from the start
				if s.standby() {
					why = final
				}
				s.pool.Reset()
			}
		}
		if why == final {
			return out, doubt, s.denied(operation, partition, s.failed(operation, err))
		}
		pause := backoff.Pause(s.o.Backoff, maxBackoff, try)
		patience := s.o.Patience
		if !s.heard.Load() {
			patience = min(patience, unheard)
		}
		if spent := time.Since(begin); spent+pause > patience {
			return out, doubt, s.failed(operation, fmt.Errorf("gave up after %v, at try %d: %w", spent.Round(time.Millisecond), try, err))
		}
		if s.o.Trying != nil && time.Since(begin) >= quiet {
			s.o.Trying(s.failed(operation, err))
		}
		before = err
		_ = backoff.Wait(ctx, pause) // the loop begins with a look at ctx
	}
}

var (
	errNotSent = errors.New("not sent")     // by Options.Permit
	errFenced  = errors.New("not executed") // as the session was not alive
)

// attempt makes one try, within Options.Attempt.
func attempt[Out any](ctx context.Context, s *Store, operation, partition string, request func(ctx context.Context, session string) (Out, error)) (out Out, err error) {
	session := ""
	if partition != "" && s.o.Permit != nil {
		if session, err = s.o.Permit(ctx, partition); err != nil {
			return out, fmt.Errorf("%w: %w", errNotSent, err)
		}
	}
	one, cancel := context.WithTimeout(ctx, s.o.Attempt)
	defer cancel()
	began := time.Now()
	out, err = request(one, session)
	if s.o.Observe != nil {
		s.o.Observe(operation, time.Since(began), err)
	}
	if err != nil && one.Err() != nil && ctx.Err() == nil {
		err = fmt.Errorf("no answer within %v: %w", s.o.Attempt, err)
	}
	return out, err
}

// standby reports whether the address names one server, whatever it is: then that it cannot be written is no passing state.
func (s *Store) standby() bool {
	c := s.pool.Config().ConnConfig
	return c.ValidateConnect == nil
}

// A DeniedError is a statement that the user's rights do not allow. It is an [fs.ErrPermission].
type DeniedError struct {
	Operation string // what was to be done, as in "put"
	Database  string
	Partition string // the partition to be written; "" for a read
	Err       error
}

func (e *DeniedError) Error() string { return e.Err.Error() }

// Unwrap returns the failed statement.
func (e *DeniedError) Unwrap() error { return e.Err }

// Is makes it an [fs.ErrPermission].
func (e *DeniedError) Is(target error) bool { return target == fs.ErrPermission }

func (s *Store) denied(operation, partition string, err error) error {
	var answer *pgconn.PgError
	if errors.As(err, &answer) && (answer.Code == "42501" || answer.Code == "25006") {
		return &DeniedError{Operation: operation, Database: s.name, Partition: partition, Err: err}
	}
	return err
}

// failed adds the operation and the database to an error.
func (s *Store) failed(operation string, err error) error {
	var answer *pgconn.PgError
	if errors.As(err, &answer) {
		switch answer.Code {
		case "3D000":
			return fmt.Errorf("database %s: %w (%s)", s.name, ErrNoDatabase, answer.Message)
		case "3F000", "42P01":
			return fmt.Errorf("database %s: %w (%s)", s.name, ErrNoSchema, answer.Message)
		case "53100":
			err = fmt.Errorf("%w: %w", syscall.ENOSPC, err)
		case "53300":
			err = fmt.Errorf("%w; raise max_connections, or put a pooler in front of it", err)
		case "25006":
			err = fmt.Errorf("%w: %w; it is a standby, or this user may only read", refstore.ErrReadOnly, err)
		}
	}
	return fmt.Errorf("database %s: %s: %w", s.name, operation, err)
}

// check returns the first reason against an operation: an ended context or an invalid argument.
func check(ctx context.Context, invalid error) error {
	if invalid != nil {
		return invalid
	}
	return ctx.Err()
}

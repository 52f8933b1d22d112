// Package settings keeps the settings of a repository, such as whose exports it imports. They are one record, which
// every process reads when it needs it and changes by compare-and-swap. The user's signing key is a file beside it.
package settings

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"e3/internal/format/moment"
	"e3/internal/format/notation"
	"e3/internal/format/signature"
	"e3/refstore"
)

// key is the key of the record.
func key() refstore.Key { return refstore.Key{Partition: "SETTINGS", Sort: "repository"} }

// Settings of a repository. The zero value has the settings of a new repository.
type Settings struct {
	RequireSigned bool // only exports with a trusted signature are imported
	TrustedKeys   []TrustedKey
	// EventsRetention is the time for which events of ended runs are kept: a duration like "90d", or "never" to remove
	// none. "" is DefaultRetention.
	EventsRetention string
	// Room is the room of tasks whose own declaration and package file name none: open or closed. "" is open.
	Room string
	// Runs says where the tasks of runs are executed, and Workspaces the same for single workspaces.
	Runs       Runs
	Workspaces map[string]Runs

	unknown []member // a newer e3's settings
}

// Runs says where tasks are executed; an empty field is not set.
type Runs struct {
	Executor string // Local, Workers, or the name of a scheduler
	Queue    string // where workers find tasks that name no queue themselves

	others []member
}

// Executors of tasks.
const (
	Local   = "local"   // the process of the run
	Workers = "workers" // e3 worker
)

// Executors are the names of executors without a scheduler.
func Executors() []string { return []string{Local, Workers} }

// check reports invalid values.
func (r *Runs) check() error {
	switch {
	case strings.Contains(r.Executor, "/"):
		return fmt.Errorf("%q is a file, whose commands would run as each user of the repository: only --executor names one; a setting has the name of a shipped profile, or of one in each user's own folder (e3 executor list)", r.Executor)
	case r.Executor != "" && !notation.ValidName(r.Executor):
		return fmt.Errorf("%q cannot be the name of an executor", r.Executor)
	case r.Queue != "" && !notation.ValidName(r.Queue):
		return fmt.Errorf("%q cannot be the name of a queue", r.Queue)
	}
	return nil
}

// RunsOf returns where the tasks of a workspace are executed: the workspace's setting, else the repository's, else
// Local.
func (s *Settings) RunsOf(workspace string) Runs {
	own := s.Workspaces[workspace]
	return Runs{Executor: cmp.Or(own.Executor, s.Runs.Executor, Local), Queue: cmp.Or(own.Queue, s.Runs.Queue)}
}

// Choose decides where the tasks of a workspace are executed. The command line's choice, said, wins over the
// settings, which get reads. Their queue is one of workers, or of the scheduler that they name. If the settings are damaged, Choose ignores them and returns a [DamagedError] beside a
// valid choice.
func Choose(ctx context.Context, get func(context.Context) (*Settings, error), workspace string, said Runs) (Runs, error) {
	if said.Executor != "" && (said.Executor != Workers || said.Queue != "") {
		return said, nil
	}
	s, err := get(ctx)
	var damaged *DamagedError
	switch {
	case errors.As(err, &damaged):
		s = &Settings{}
	case err != nil:
		return said, err
	}
	set := s.RunsOf(workspace)
	return Runs{Executor: cmp.Or(said.Executor, set.Executor), Queue: cmp.Or(said.Queue, set.Queue)}, err
}

// SetRuns changes where the tasks of a workspace are executed, or with "" of all workspaces without a setting of
// their own.
func (s *Settings) SetRuns(workspace string, change func(*Runs)) error {
	r := s.Runs
	if workspace != "" {
		if !notation.ValidName(workspace) {
			return fmt.Errorf("%q cannot be the name of a workspace", workspace)
		}
		r = s.Workspaces[workspace]
	}
	change(&r)
	if err := r.check(); err != nil {
		return err
	}
	switch {
	case workspace == "":
		s.Runs = r
	case r.Executor == "" && r.Queue == "" && len(r.others) == 0:
		delete(s.Workspaces, workspace)
	default:
		if s.Workspaces == nil {
			s.Workspaces = map[string]Runs{}
		}
		s.Workspaces[workspace] = r
	}
	return nil
}

// DefaultRetention is the default of EventsRetention; Never keeps events for ever.
const (
	DefaultRetention = "90d"
	Never            = "never"
)

// ParseRetention parses an EventsRetention; the result 0 means for ever.
func ParseRetention(text string) (time.Duration, error) {
	if text == Never {
		return 0, nil
	}
	d, err := notation.DurationOf(text)
	switch {
	case err != nil:
		return 0, fmt.Errorf("want %q, or a duration like 90d: %w", Never, err)
	case d == 0:
		return 0, fmt.Errorf("want %q, or a duration like 90d, not %q", Never, text)
	}
	return d, nil
}

// KeepEvents returns the time for which events are kept; 0 means for ever.
func (s *Settings) KeepEvents() time.Duration {
	d, err := ParseRetention(cmp.Or(s.EventsRetention, DefaultRetention))
	if err != nil {
		return 0 // an unreadable setting removes nothing
	}
	return d
}

// TrustedKey is a key whose signatures count. Within a repository, names and keys are unique.
type TrustedKey struct {
	Name    string // its name in this repository
	Key     signature.PublicKey
	AddedBy string // user@host
	AddedAt time.Time

	others []member
}

// A KeyRow is a trusted key as answers show it.
type KeyRow struct {
	Name        string      `json:"name"` // in this repository
	Key         string      `json:"key"`
	Fingerprint string      `json:"fingerprint"`
	AddedBy     string      `json:"addedBy"` // user@host
	AddedAt     moment.Time `json:"addedAt"`
}

// Row is the row of a key.
func (k *TrustedKey) Row() KeyRow {
	return KeyRow{k.Name, k.Key.String(), k.Key.Fingerprint(), k.AddedBy, moment.At(k.AddedAt)}
}

// KeyRows are the trusted keys of a repository in an answer.
type KeyRows struct {
	TrustedKeys []KeyRow `json:"trustedKeys"`
}

// KeyRows are the trusted keys.
func (s *Settings) KeyRows() KeyRows {
	rows := KeyRows{make([]KeyRow, len(s.TrustedKeys))}
	for i := range s.TrustedKeys {
		rows.TrustedKeys[i] = s.TrustedKeys[i].Row()
	}
	return rows
}

// Get reads the settings of a repository.
func Get(ctx context.Context, store refstore.Store) (*Settings, error) {
	s, _, err := read(ctx, store)
	return s, err
}

func read(ctx context.Context, store refstore.Store) (*Settings, refstore.Version, error) {
	rec, err := store.Get(ctx, key())
	if errors.Is(err, refstore.ErrNotFound) {
		return &Settings{}, refstore.Absent, nil
	}
	if errors.Is(err, refstore.ErrDamaged) {
		return nil, "", &DamagedError{err}
	}
	if err != nil {
		return nil, "", fmt.Errorf("read the repository's settings: %w", err)
	}
	s, err := Decode(rec.Value)
	if err != nil {
		return nil, "", &DamagedError{err}
	}
	return s, rec.Version, nil
}

// A DamagedError says that the record cannot be read.
type DamagedError struct{ Err error }

func (e *DamagedError) Error() string {
	return fmt.Sprintf("read the repository's settings: %v", e.Err)
}

// Unwrap returns the reason.
func (e *DamagedError) Unwrap() error { return e.Err }

// Update changes the settings of a repository. change may be called again after a conflict; its error ends the update
// and is returned unchanged. Everything that change does not touch is kept, including members unknown to this version
// of e3.
func Update(ctx context.Context, store refstore.Store, change func(*Settings) error) (*Settings, error) {
	for {
		s, version, err := read(ctx, store)
		if err != nil {
			return nil, err
		}
		before := string(s.Encode())
		if err := change(s); err != nil {
			return nil, err
		}
		value := s.Encode()
		if string(value) == before {
			return s, nil
		}
		_, err = store.Put(ctx, refstore.Record{Key: key(), Value: value, Version: version})
		if errors.Is(err, refstore.ErrConflict) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("write the repository's settings: %w", err)
		}
		return s, nil
	}
}

// Errors of [Settings.Trust].
var (
	ErrNameTaken = errors.New("another trusted key has this name")
	ErrTrusted   = errors.New("the key is trusted already")
)

// CheckKeyName returns an error if a name is not allowed for a trusted key.
func CheckKeyName(name string) error {
	if _, err := signature.ParsePublicKey(name); err == nil {
		return errors.New("the name of a key cannot be a key") // Distrust accepts either
	}
	return signature.CheckName(name)
}

// NameFor returns a free name for a key: "key-" and as much of the beginning of its fingerprint as needed.
func (s *Settings) NameFor(k signature.PublicKey) string {
	digits := strings.ReplaceAll(k.Fingerprint(), " ", "")
	for n := 8; ; n += 4 {
		name := "key-" + digits[:min(n, len(digits))]
		i := slices.IndexFunc(s.TrustedKeys, func(t TrustedKey) bool { return t.Name == name && t.Key != k })
		if i < 0 || n >= len(digits) {
			return name
		}
	}
}

// Trust adds a key. ErrNameTaken, ErrTrusted.
func (s *Settings) Trust(k TrustedKey) error {
	if err := CheckKeyName(k.Name); err != nil {
		return err
	}
	for i := range s.TrustedKeys {
		switch old := &s.TrustedKeys[i]; {
		case old.Key == k.Key:
			return fmt.Errorf("%w, as %q", ErrTrusted, old.Name)
		case old.Name == k.Name:
			return fmt.Errorf("%w: %q is %s", ErrNameTaken, old.Name, old.Key)
		}
	}
	s.TrustedKeys = append(s.TrustedKeys, k)
	return nil
}

// Distrust removes the key with this name, or this text, and returns it. It reports whether there was one.
func (s *Settings) Distrust(nameOrKey string) (TrustedKey, bool) {
	i := slices.IndexFunc(s.TrustedKeys, func(k TrustedKey) bool { return k.Name == nameOrKey || k.Key.String() == nameOrKey })
	if i < 0 {
		return TrustedKey{}, false
	}
	k := s.TrustedKeys[i]
	s.TrustedKeys = slices.Delete(slices.Clone(s.TrustedKeys), i, i+1)
	return k, true
}

// Trusted returns the trusted entry of a key.
func (s *Settings) Trusted(k signature.PublicKey) (TrustedKey, bool) {
	i := slices.IndexFunc(s.TrustedKeys, func(t TrustedKey) bool { return t.Key == k })
	if i < 0 {
		return TrustedKey{}, false
	}
	return s.TrustedKeys[i], true
}

package lease

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"e3/internal/host/process"
	"e3/internal/human"
	"e3/refstore"
)

// Records are JSON, so that people can read them in the table:
//
//	LEASE/sessions · <session id>          sessionRecord
//	LEASE/protected · <session id>/<n>     a large set of protected names, one a line
//	LEASE/relied · <session id>/<n>        names that the session relies on, 32 bytes each
//	LEASE/locks · <name>                   lockRecord
//	LEASE/claims/<2 hex> · <64 hex>        claimRecord
//	LEASE/epoch · gc                       epochRecord
//	LEASE/condemned · <2 hex>              condemnedRecord
//
// Session ids are UUIDv7 and never recur. A session's record is there before anything names the session, and only the
// session itself, or a sweep long after its death, removes it. So a hold whose session has no record is free.
const (
	// Kind is the prefix of every partition of this package, before a slash.
	Kind = "LEASE"

	sessionsPartition  = "LEASE/sessions"
	protectedPartition = "LEASE/protected"
	reliedPartition    = "LEASE/relied"
	locksPartition     = "LEASE/locks"
	claimsPartition    = "LEASE/claims/"
	condemnedPartition = "LEASE/condemned"
)

var epochKey = refstore.Key{Partition: "LEASE/epoch", Sort: "gc"}

func sessionKey(id string) refstore.Key {
	return refstore.Key{Partition: sessionsPartition, Sort: id}
}

// part is the key of a session's n-th additional record. Numbers have one width, so that they list in order.
func part(partition, session string, n uint64) refstore.Key {
	return refstore.Key{Partition: partition, Sort: fmt.Sprintf("%s/%010d", session, n)}
}

func lockKey(name string) refstore.Key { return refstore.Key{Partition: locksPartition, Sort: name} }

func claimKey(key [32]byte) refstore.Key {
	text := hex.EncodeToString(key[:])
	return refstore.Key{Partition: claimsPartition + text[:2], Sort: text}
}

func condemnedKey(shard byte) refstore.Key {
	return refstore.Key{Partition: condemnedPartition, Sort: hex.EncodeToString([]byte{shard})}
}

// The states of a session.
const (
	alive = "alive" // by its record; it may have died since
	dead  = "dead"  // its lease had run out, as another process or the session itself found
	ended = "ended" // it ended during a collection, which still needs the names that it relied on
)

// sessionRecord describes a session. While it is alive, other processes write it only to mark it dead.
type sessionRecord struct {
	Owner     ownerRecord  `json:"owner"`
	Began     int64        `json:"began"` // by the objects' clock, nanoseconds since 1970
	TTL       int64        `json:"ttl"`   // milliseconds
	Beat      uint64       `json:"beat"`  // counts this record's writes
	At        int64        `json:"at"`    // when it was written, by the session's own clock, nanoseconds since 1970: for display only
	State     string       `json:"state"`
	Death     *deathRecord `json:"death,omitempty"`
	Epoch     uint64       `json:"epoch,omitempty"`     // the last collection that it answered
	Protected []byte       `json:"protected,omitempty"` // small sets, one name a line
	Large     []uint64     `json:"large,omitempty"`     // numbers of its records of large protected sets
	Parts     uint64       `json:"parts,omitempty"`     // number of parts of relied names
	Relied    []byte       `json:"relied,omitempty"`    // relied names that are not in a part yet, 32 bytes each
}

// deathRecord says when and how a session was found dead.
type deathRecord struct {
	By   string `json:"by"`
	At   int64  `json:"at,omitempty"`   // by the objects' clock, nanoseconds since 1970; 0 if unknown
	Gone bool   `json:"gone,omitempty"` // its process was seen to be gone: its requests arrive soon, or never
	// Closed says that the session has stopped itself; its process may continue.
	Closed bool `json:"closed,omitempty"`
}

type ownerRecord struct {
	Host         string `json:"host,omitempty"`
	Boot         string `json:"boot,omitempty"`
	PIDNamespace string `json:"pidns,omitempty"`
	PID          int    `json:"pid,omitempty"`
	Start        uint64 `json:"start,omitempty"`
	Words        string `json:"words,omitempty"`
}

func (o ownerRecord) process() process.ID {
	return process.ID{PID: o.PID, StartTime: o.Start, BootID: o.Boot, PIDNamespace: o.PIDNamespace, Host: o.Host}
}

// words describe the owner for display.
func (o ownerRecord) words() string {
	switch {
	case o.Words != "":
		return shorten(o.Words)
	case o.PID != 0:
		return fmt.Sprintf("process %d on %s", o.PID, shorten(o.Host))
	}
	return "a process"
}

// shorten cuts a text that another process wrote.
func shorten(s string) string { return human.Truncate(s, 300) }

// maxTTL bounds the TTL that a session may ask of its observers.
const maxTTL = 10 * time.Minute

func (r *sessionRecord) ttl() time.Duration {
	return time.Duration(min(r.TTL, maxTTL.Milliseconds())) * time.Millisecond
}

func (r *sessionRecord) validate() error {
	switch {
	case r.State != alive && r.State != dead && r.State != ended:
		return fmt.Errorf("state %.40q", r.State)
	case (r.State == dead) != (r.Death != nil):
		return errors.New("a session is dead if and only if its death is recorded")
	case r.TTL <= 0:
		return fmt.Errorf("a lease of %d ms", r.TTL)
	case len(r.Relied)%32 != 0:
		return fmt.Errorf("names of %d bytes, which is no multiple of 32", len(r.Relied))
	case r.Parts > maxParts:
		return fmt.Errorf("%d parts", r.Parts)
	}
	return validLines(r.Protected)
}

// maxParts bounds the number of names that a hostile session makes others read: 8 billion.
const maxParts = 1 << 20

// validLines checks a set of names, each of which ends with a line feed.
func validLines(text []byte) error {
	if len(text) > 0 && text[len(text)-1] != '\n' || bytes.Contains(text, []byte("\n\n")) || bytes.HasPrefix(text, []byte("\n")) || bytes.IndexByte(text, 0) >= 0 {
		return errors.New("protected names are not one a line")
	}
	return nil
}

// lockRecord is a lock that is held.
type lockRecord struct {
	Shared  bool   `json:"shared,omitempty"`
	Holders []hold `json:"holders"`
}

// hold is one hold of a lock or claim. Nonces distinguish the holds of a session. Before joins the texts of the
// holders that have died since the last release, latest first, by line feeds. Each successor gets all of them, since a
// new holder may die before it has handled them.
type hold struct {
	Session string `json:"session"`
	Nonce   uint64 `json:"nonce"`
	Text    []byte `json:"text,omitempty"`
	Before  []byte `json:"before,omitempty"`
}

// text is never nil.
func (h hold) text() []byte { return append([]byte{}, h.Text...) }

// before is nil if the lock or claim was free when it was taken.
func (h hold) before() []byte {
	if len(h.Before) == 0 {
		return nil
	}
	return h.Before
}

// chain is the text that this holder's successor gets.
func (h hold) chain() []byte {
	if len(h.Before) == 0 {
		return h.text()
	}
	return slices.Concat(h.Text, []byte("\n"), h.Before)
}

func (h hold) validate() error {
	return validSession(h.Session)
}

func validSession(id string) error {
	if err := sessionKey(id).Validate(); err != nil || len(id) > maxSessionID {
		return fmt.Errorf("session id %.60q", id)
	}
	return nil
}

const maxSessionID = 64

// noSession stands in place of a session id; no UUID is equal to it. A hold of noSession is free, and the next holder
// gets its text.
const noSession = "nobody"

func (r *lockRecord) validate() error {
	if len(r.Holders) == 0 || !r.Shared && len(r.Holders) > 1 {
		return fmt.Errorf("%d holders", len(r.Holders))
	}
	for _, h := range r.Holders {
		if err := h.validate(); err != nil {
			return err
		}
	}
	return nil
}

// without returns the record without one hold, or nil if no hold remains.
func (r *lockRecord) without(of func(session string) bool, nonce uint64) (rest *lockRecord, was bool) {
	i := slices.IndexFunc(r.Holders, func(h hold) bool { return of(h.Session) && h.Nonce == nonce })
	switch {
	case i < 0:
		return r, false
	case len(r.Holders) == 1:
		return nil, true
	}
	return &lockRecord{Shared: r.Shared, Holders: slices.Concat(r.Holders[:i], r.Holders[i+1:])}, true
}

// claimRecord is a claim that is held.
type claimRecord struct{ hold }

// epochRecord says whether a collection is in progress.
type epochRecord struct {
	Number  uint64 `json:"number"`            // grows with each collection
	Session string `json:"session,omitempty"` // the collector; "" if there is none
}

func (r *epochRecord) validate() error {
	if r.Number > 1<<62 {
		return fmt.Errorf("collection number %d", r.Number)
	}
	if r.Session == "" {
		return nil
	}
	return validSession(r.Session)
}

// condemnedRecord lists the objects of one shard that a collector is about to delete.
type condemnedRecord struct {
	Session string `json:"session"`
	Nonce   uint64 `json:"nonce"`
	Names   []byte `json:"names"` // 32 bytes each
}

func (r *condemnedRecord) validate() error {
	if len(r.Names)%32 != 0 {
		return fmt.Errorf("names of %d bytes, which is no multiple of 32", len(r.Names))
	}
	return validSession(r.Session)
}

// has reports whether a name is on the list.
func (r *condemnedRecord) has(name [32]byte) bool {
	for names := range slices.Chunk(r.Names, 32) {
		if [32]byte(names) == name {
			return true
		}
	}
	return false
}

// maxRecord bounds the size of a record to decode. The largest are condemned lists.
const maxRecord = 64 << 20

// decode reads a record strictly: a process that does not understand all of it must not judge the holds of others.
func decode(r refstore.Record, into interface{ validate() error }) error {
	fail := func(err error) error {
		return fmt.Errorf("record %q is not what this version of e3 writes: %w", r.Key, err)
	}
	if len(r.Value) > maxRecord {
		return fail(fmt.Errorf("%d bytes", len(r.Value)))
	}
	d := json.NewDecoder(bytes.NewReader(r.Value))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return fail(err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return fail(errors.New("more follows"))
	}
	if err := into.validate(); err != nil {
		return fail(err)
	}
	return nil
}

// encode never fails: the records hold numbers, strings and bytes.
func encode(r any) []byte {
	data, err := json.Marshal(r)
	if err != nil {
		panic("lease: " + err.Error())
	}
	return data
}

// partNumber returns the session and the number in the sort key of a part.
func partNumber(sort string) (session string, n uint64, ok bool) {
	session, number, ok := strings.Cut(sort, "/")
	n, err := strconv.ParseUint(number, 10, 64)
	return session, n, ok && err == nil
}

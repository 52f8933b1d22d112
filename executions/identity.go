// Package executions keeps every execution of a task, finds the one that answers a request, and makes a new one if
// there is none.
//
// An execution is one attempt of one task on given inputs, under (taskHash, inputsHash, executionId). A cache hit is
// the latest success whose output still exists (seed 003, "Cache Lookup"). Records are append-only, with two
// exceptions: an import of the same execution can replace a failure by a success, and a success can be rejected.
package executions

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"e3/objectstore"
)

// Key identifies a computation: this task on these inputs.
type Key struct {
	Task   objectstore.Hash // of the task object
	Inputs objectstore.Hash // InputsHash of its inputs
}

// NewKey returns the key of a task on the given inputs, in declared order.
func NewKey(task objectstore.Hash, inputs []objectstore.Hash) Key {
	return Key{Task: task, Inputs: InputsHash(inputs)}
}

func (k Key) String() string { return k.Task.String() + "/" + k.Inputs.String() }

// ParseKey reads what String returns.
func ParseKey(s string) (Key, bool) {
	task, inputs, _ := strings.Cut(s, "/")
	t, err := objectstore.ParseHash(task)
	if err != nil {
		return Key{}, false
	}
	i, err := objectstore.ParseHash(inputs)
	return Key{Task: t, Inputs: i}, err == nil
}

// claim is the id of the claim for single flight on the key.
func (k Key) claim() [32]byte {
	return sha256.Sum256([]byte("e3 claim key\x00" + k.String()))
}

// executionClaim is the claim that a running execution holds while it lives.
func executionClaim(id string) [32]byte {
	return sha256.Sum256([]byte("e3 claim execution\x00" + id))
}

// pruneClaim is the claim of the process that prunes a task: it may drop only tombstones that it wrote.
func pruneClaim(task objectstore.Hash) [32]byte {
	return sha256.Sum256([]byte("e3 claim prune\x00" + task.String()))
}

// InputsHash is the SHA-256 of the hex hashes joined by one zero byte, in declared order, as in the reference.
func InputsHash(inputs []objectstore.Hash) objectstore.Hash {
	var buf [8 * 65]byte
	b := buf[:0]
	for i, h := range inputs {
		if i > 0 {
			b = append(b, 0)
		}
		b = append(b, h.String()...)
	}
	return objectstore.Sum(b)
}

// NewID returns a fresh UUIDv7. Ids made by one process strictly increase. Ids of different machines are ordered by
// their clocks: the greatest is the latest.
func NewID() (string, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return "", fmt.Errorf("make execution id: %w", err)
	}
	return id.String(), nil
}

// NewIDAfter returns a fresh UUIDv7 that is greater than after, which may be "". If the clock that made after is ahead,
// the new id takes the time and counter of after plus one, with fresh random bits. So a new execution is always the
// latest of its key; its record has the real start time.
func NewIDAfter(after string) (string, error) {
	id, err := NewID()
	if err != nil || id > after {
		return id, err
	}
	next, err := uuid.Parse(after)
	if err != nil {
		return "", fmt.Errorf("make an execution id after %q: %w", after, err)
	}
	random := uuid.MustParse(id) // its last eight bytes are random
	copy(next[8:], random[8:])
	// The 48 bits of the time and the 12 after the version are one number.
	n := binary.BigEndian.Uint64(next[:8])
	n = n>>16<<12 | n&0xfff
	if n++; n>>60 != 0 {
		return "", fmt.Errorf("make an execution id after %s: there is none; prune that execution", after)
	}
	binary.BigEndian.PutUint64(next[:8], n>>12<<16|7<<12|n&0xfff)
	return next.String(), nil
}

// ParseID checks that s is a UUIDv7 in its canonical lower-case form and returns its time of creation, to the
// millisecond.
func ParseID(s string) (time.Time, error) {
	id, err := uuid.Parse(s)
	if err != nil || id.Version() != 7 || id.Variant() != uuid.RFC4122 || id.String() != s {
		return time.Time{}, fmt.Errorf("%q is not a UUIDv7", s)
	}
	sec, nsec := id.Time().UnixTime()
	return time.Unix(sec, nsec).UTC().Truncate(time.Millisecond), nil
}

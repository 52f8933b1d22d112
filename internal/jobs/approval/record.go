package approval

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"

	"e3/refstore"
)

// Blocks are JSON records, so that a person who looks into a table can read them:
//
//	APPROVAL/<workspace> · <task>/<half of the key's SHA-256>    record
//
// The record is the latest block of the task on that content. Events of runs and the journal report earlier ones.

// ErrMalformed reports a record in another form than this version of e3 writes.
var ErrMalformed = errors.New("malformed block")

// Partition holds the blocks of a workspace.
func Partition(ws string) string { return partition(ws) }

func partition(ws string) string { return "APPROVAL/" + ws }

// prefix is the prefix of a task's sort keys; "" for all tasks.
func prefix(task string) string {
	if task == "" {
		return ""
	}
	return task + "/"
}

// RecordKey is the key of the record of a task on a content.
func RecordKey(ws, task, key string) refstore.Key {
	sum := sha256.Sum256([]byte(key))
	return refstore.Key{Partition: partition(ws), Sort: prefix(task) + hex.EncodeToString(sum[:16])}
}

func (b *Block) key() refstore.Key { return RecordKey(b.Workspace, b.Task, b.Key) }

// ownerOf returns what the key of a record says.
func ownerOf(key refstore.Key) (ws, task string) {
	ws = strings.TrimPrefix(key.Partition, partition(""))
	if i := strings.LastIndexByte(key.Sort, '/'); i >= 0 {
		return ws, key.Sort[:i]
	}
	return ws, key.Sort
}

// Bounds of a record, in bytes.
const (
	maxRecord = 64 << 10
	maxName   = 200 // of keys, runs, steps and executions
	maxBy     = 300

	// MaxNote is the length of the longest note that is kept whole.
	MaxNote = 4 << 10
)

// shorten shortens a text to most bytes.
func shorten(s string, most int) string {
	s = strings.ToValidUTF8(s, "�")
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most-len("…")], "") + "…"
	}
	return s
}

func (b *Block) validate() error {
	id, err := uuid.Parse(b.ID)
	if err != nil || id.Version() != 7 || id.String() != b.ID {
		return fmt.Errorf("its id %.60q is no UUIDv7", b.ID)
	}
	switch {
	case b.Workspace == "" || b.Run == "" || b.Task == "" || b.Key == "":
		return fmt.Errorf("it is of workspace %.60q, run %.60q, task %.60q, key %.60q", b.Workspace, b.Run, b.Task, b.Key)
	case b.Type != Review && b.Type != Suspend:
		return fmt.Errorf("type %.40q", b.Type)
	case b.Status != Pending && b.Status != Approved && b.Status != Rejected && b.Status != Closed:
		return fmt.Errorf("status %.40q", b.Status)
	case b.Status != Pending && b.At.IsZero():
		return errors.New("the time of its decision is missing")
	case b.Untold < 0:
		return fmt.Errorf("its journal number is %d", b.Untold)
	case !b.Acted.IsZero() && !b.decided():
		return errors.New("a run has acted on a decision that does not exist")
	}
	for _, text := range []string{b.Key, b.Run, b.Step, b.Execution, b.Latest} {
		if len(text) > maxName {
			return errors.New("a text in it is too long")
		}
	}
	if len(b.By) > maxBy || len(b.Note) > MaxNote {
		return errors.New("a text in it is too long")
	}
	for _, text := range []string{b.Key, b.Run, b.Step, b.Execution, b.Latest, b.By, b.Note} {
		if !utf8.ValidString(text) {
			return errors.New("a text in it is no UTF-8")
		}
	}
	return nil
}

// encode never fails: the record holds texts, and times that were made or decoded.
func (b *Block) encode() []byte {
	data, err := json.Marshal(b)
	if err != nil {
		panic("block: " + err.Error())
	}
	return data
}

// Decode reads a record strictly: a process that does not understand all of it must not decide. ErrMalformed.
func Decode(rec refstore.Record) (Block, error) {
	fail := func(err error) (Block, error) {
		return Block{}, fmt.Errorf("%w: record %.200q is not what this version of e3 writes: %w", ErrMalformed, rec.Key, err)
	}
	if len(rec.Value) > maxRecord {
		return fail(fmt.Errorf("%d bytes", len(rec.Value)))
	}
	d := json.NewDecoder(bytes.NewReader(rec.Value))
	d.DisallowUnknownFields()
	var b Block
	if err := d.Decode(&b); err != nil {
		return fail(err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return fail(errors.New("more follows"))
	}
	b.Workspace, b.Task = ownerOf(rec.Key)
	if b.Workspace == "" || b.key() != rec.Key {
		return fail(errors.New("its key is not that of a block"))
	}
	if err := b.validate(); err != nil {
		return fail(err)
	}
	return b, nil
}

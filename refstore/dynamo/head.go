package dynamo

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"e3/refstore"
)

// Attributes of a head, beside attrVersion and attrReplaced.
const (
	attrStream = "i" // S: chosen at random when the stream is created; a later stream of this key has another
	attrSize   = "n" // N: bytes
	attrSealed = "x" // BOOL
	attrCuts   = "g" // N: number of cuts
	attrCutTo  = "c" // N: its size after the last cut
	attrParts  = "p" // B: partSize bytes for each part
	attrTail   = "t" // B: the bytes after the last part
)

// maxTail bounds the bytes in a head; a longer tail becomes a part.
const maxTail = 8 << 10

// maxPart bounds a part: no append is longer, and no merge.
const maxPart = 1 << 30

// head is the item of a stream. A head and its slices must not be changed once it is in use.
type head struct {
	version  string
	replaced string
	stream   string
	size     int64
	sealed   bool
	cuts     int64
	cutTo    int64
	parts    []streamPart
	tail     []byte
	damage   error // the damage, if there is any; size then counts the remaining parts and the tail
}

// streamPart is a run of a stream's bytes that lies in a blob.
type streamPart struct {
	id   [16]byte
	size int64 // number of valid bytes of the blob; a cut reduces it
}

// newPart chooses a random name for a part.
func newPart(size int64) streamPart {
	p := streamPart{size: size}
	rand.Read(p.id[:]) // never fails
	return p
}

// partSize is the size of a part's entry in the head: its id, and its size, big-endian.
const partSize = 16 + 8

func (p streamPart) name() string { return base64.RawURLEncoding.EncodeToString(p.id[:]) }

// blobs returns the full names of parts.
func blobNames(k itemKey, parts []streamPart) []string {
	folder := blobFolder(streamBlobs, k)
	names := make([]string, len(parts))
	for i, p := range parts {
		names[i] = folder + p.name()
	}
	return names
}

// inParts is the number of bytes in parts.
func (h *head) inParts() int64 { return h.size - int64(len(h.tail)) }

func (h *head) item(k itemKey) attributes {
	item := k.attributes()
	item[attrVersion] = &types.AttributeValueMemberS{Value: h.version}
	item[attrStream] = &types.AttributeValueMemberS{Value: h.stream}
	item[attrSize] = number(h.size)
	if h.replaced != "" {
		item[attrReplaced] = &types.AttributeValueMemberS{Value: h.replaced}
	}
	if h.sealed {
		item[attrSealed] = &types.AttributeValueMemberBOOL{Value: true}
	}
	if h.cuts > 0 {
		item[attrCuts], item[attrCutTo] = number(h.cuts), number(h.cutTo)
	}
	if len(h.parts) > 0 {
		table := make([]byte, 0, len(h.parts)*partSize)
		for _, p := range h.parts {
			table = append(table, p.id[:]...)
			table = binary.BigEndian.AppendUint64(table, uint64(p.size))
		}
		item[attrParts] = &types.AttributeValueMemberB{Value: table}
	}
	if len(h.tail) > 0 {
		item[attrTail] = &types.AttributeValueMemberB{Value: h.tail}
	}
	return item
}

func number(n int64) types.AttributeValue {
	return &types.AttributeValueMemberN{Value: strconv.FormatInt(n, 10)}
}

// decodeHead reads an untrusted head. Of a damaged head it keeps the parts and the tail that exist.
func (s *table) decodeHead(k itemKey, item attributes) *head {
	d := s.decode(k, item)
	h := &head{
		version: d.version(), replaced: d.text(attrReplaced), stream: d.text(attrStream), size: d.number(attrSize),
		sealed: d.flag(attrSealed), cuts: d.number(attrCuts), cutTo: d.number(attrCutTo), tail: d.bytes(attrTail),
	}
	table := d.bytes(attrParts)
	if len(table)%partSize != 0 {
		d.fail("its table of parts has %d bytes", len(table))
	}
	for ; len(table) >= partSize; table = table[partSize:] {
		p := streamPart{id: [16]byte(table), size: int64(binary.BigEndian.Uint64(table[16:]))}
		if p.size <= 0 || p.size > maxPart {
			d.fail("a part of it has %d bytes", p.size)
			continue
		}
		h.parts = append(h.parts, p)
	}
	if there := total(h.parts) + int64(len(h.tail)); there != h.size {
		d.fail("its parts and its tail have %d bytes, not %d", there, h.size)
		h.size = there
	}
	if d.err != nil {
		h.damage = fmt.Errorf("the stream is %w: %w", refstore.ErrDamaged, d.err)
	}
	return h
}

// readHead returns the head of a stream, nil if there is none.
func (s *table) readHead(ctx context.Context, k itemKey) (*head, error) {
	item, err := s.getItem(ctx, k, "", nil)
	if err != nil || item == nil {
		return nil, err
	}
	return s.decodeHead(k, item), nil
}

// shortLog reports whether a stream may be a field of an execution's record. Short logs have this form.
func shortLog(sort string) bool { return sort == "stdout.txt" || sort == "stderr.txt" }

// ShortLogs returns true: a log in a field of its execution's record can be read as a stream.
func (s *Store) ShortLogs() bool { return true }

// lookAt is readHead, and also finds streams that are fields of a record: the short logs of an execution.
func (s *Store) lookAt(ctx context.Context, key refstore.Key) (*head, error) {
	h, err := s.table.readHead(ctx, s.table.streamKey(key))
	if h != nil || err != nil || !shortLog(key.Sort) {
		return h, err
	}
	execution, ok := loggedBy(key.Partition)
	if !ok {
		return nil, nil
	}
	r, err := s.Get(ctx, execution, key.Sort)
	if errors.Is(err, refstore.ErrDamaged) {
		return &head{version: string(r.Version), stream: "field", sealed: true, damage: err}, nil
	}
	if err != nil {
		return nil, absent(err)
	}
	text, ok := r.Field(key.Sort)
	if !ok {
		return nil, nil
	}
	// The field is written once, with the outcome, so it is complete.
	return &head{version: string(r.Version), stream: "field", size: int64(len(text)), sealed: true, tail: text}, nil
}

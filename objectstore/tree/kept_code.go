package tree

import (
	"encoding/binary"
	"errors"
	"hash/crc32"

	"e3/objectstore"
)

// keptMagic begins an encoded Kept.
const keptMagic = "e3kept\x00\x02"

var keptSums = crc32.MakeTable(crc32.Castagnoli)

// errKept says that bytes are not a Kept of this version.
var errKept = errors.New("not a description of a checkout")

// Encode returns what DecodeKept reads. The bytes are useful only together with the checkout itself.
func (k *Kept) Encode() []byte {
	b := append(make([]byte, 0, 64+96*k.usage.Files), keptMagic...)
	b = k.root.encode(b)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, keptSums))
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// encode appends a folder: its directory object, and its entries.
func (e *keptEntry) encode(b []byte) []byte {
	b = binary.AppendUvarint(append(b, e.Hash[:]...), uint64(len(e.entries)))
	for i := range e.entries {
		b = e.entries[i].encodeIn(b)
	}
	return b
}

// The flags of an entry, above its kind.
const (
	keptExecutable = 1 << 4
	keptDoubtful   = 1 << 5
)

func (e *keptEntry) encodeIn(b []byte) []byte {
	flags := byte(e.Kind)
	if e.Executable {
		flags |= keptExecutable
	}
	if e.doubtful {
		flags |= keptDoubtful
	}
	b = appendText(append(b, flags), e.Name)
	switch e.Kind {
	case KindDir:
		return e.encode(b)
	case KindLink:
		return appendText(b, e.Target)
	}
	b = binary.AppendUvarint(append(b, e.Hash[:]...), uint64(e.Size))
	b = binary.AppendUvarint(b, uint64(e.space))
	for _, n := range []uint64{e.stamp.inode, uint64(e.stamp.mtime), uint64(e.stamp.ctime)} {
		b = binary.LittleEndian.AppendUint64(b, n)
	}
	return b
}

// DecodeKept reads what Encode has written.
func DecodeKept(b []byte) (*Kept, error) {
	body := len(b) - crc32.Size
	if body < len(keptMagic) || string(b[:len(keptMagic)]) != keptMagic || binary.LittleEndian.Uint32(b[body:]) != crc32.Checksum(b[:body], keptSums) {
		return nil, errKept
	}
	d := &keptDecoder{rest: b[len(keptMagic):body]}
	k := &Kept{root: keptEntry{Entry: Entry{Kind: KindDir}}}
	d.folder(&k.root, 0)
	if d.bad || len(d.rest) > 0 {
		return nil, errKept
	}
	k.count()
	return k, nil
}

// keptDecoder reads from rest; once bad, it reads zeros.
type keptDecoder struct {
	rest []byte
	bad  bool
}

func (d *keptDecoder) take(n uint64) []byte {
	if d.bad || n > uint64(len(d.rest)) {
		d.bad = true
		return nil
	}
	head := d.rest[:n]
	d.rest = d.rest[n:]
	return head
}

func (d *keptDecoder) number() uint64 {
	v, n := binary.Uvarint(d.rest)
	if d.bad || n <= 0 {
		d.bad = true
		return 0
	}
	d.rest = d.rest[n:]
	return v
}

func (d *keptDecoder) fixed() uint64 {
	if b := d.take(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

func (d *keptDecoder) text() string { return string(d.take(d.number())) }

func (d *keptDecoder) hash() (h objectstore.Hash) {
	copy(h[:], d.take(uint64(len(h))))
	return h
}

func (d *keptDecoder) folder(to *keptEntry, depth int) {
	to.Hash = d.hash()
	n := d.number()
	if depth > MaxDepth+1 || n > uint64(len(d.rest)) {
		d.bad = true
	}
	if d.bad {
		return
	}
	to.entries = make([]keptEntry, n)
	for i := range to.entries {
		if !d.bad {
			d.entry(&to.entries[i], depth)
		}
	}
}

func (d *keptDecoder) entry(to *keptEntry, depth int) {
	if flags := d.take(1); flags != nil {
		to.Kind, to.Executable, to.doubtful = Kind(flags[0]&0xf), flags[0]&keptExecutable != 0, flags[0]&keptDoubtful != 0
	}
	to.Name = d.text()
	switch to.Kind {
	case KindDir:
		d.folder(to, depth+1)
	case KindLink:
		to.Target = d.text()
	case KindFile:
		to.Hash, to.Size, to.space = d.hash(), int64(d.number()), int64(d.number())
		to.stamp = fileStamp{inode: d.fixed(), mtime: int64(d.fixed()), ctime: int64(d.fixed())}
	default:
		d.bad = true
	}
}

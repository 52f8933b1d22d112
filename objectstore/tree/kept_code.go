package tree

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"maps"
	"slices"
)

// keptMagic begins an encoded Kept.
const keptMagic = "e3kept\x00\x01"

var keptSums = crc32.MakeTable(crc32.Castagnoli)

// errKept says that bytes are not a Kept of this version.
var errKept = errors.New("not a description of a checkout")

// Encode returns what DecodeKept reads. The bytes are useful only together with the checkout itself.
func (k *Kept) Encode() []byte {
	b := append(make([]byte, 0, 64+96*k.usage.Files), keptMagic...)
	b = k.folder.encode(b)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, keptSums))
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func (f *keptFolder) encode(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(len(f.files)))
	for name, file := range f.files {
		b = append(appendText(b, name), file.hash[:]...)
		b = binary.AppendUvarint(b, uint64(file.size))
		b = binary.AppendUvarint(b, uint64(file.space))
		flags := byte(0)
		if file.executable {
			flags |= 1
		}
		if file.doubtful {
			flags |= 2
		}
		b = append(b, flags)
		for _, n := range []uint64{file.stamp.inode, uint64(file.stamp.mtime), uint64(file.stamp.ctime)} {
			b = binary.LittleEndian.AppendUint64(b, n)
		}
	}
	b = binary.AppendUvarint(b, uint64(len(f.links)))
	for name, target := range f.links {
		b = appendText(appendText(b, name), target)
	}
	b = binary.AppendUvarint(b, uint64(len(f.folders)))
	for _, name := range slices.Sorted(maps.Keys(f.folders)) {
		b = f.folders[name].encode(appendText(b, name))
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
	k := &Kept{folder: *d.folder(0)}
	if d.bad || len(d.rest) > 0 {
		return nil, errKept
	}
	k.count(&k.folder)
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

func (d *keptDecoder) folder(depth int) *keptFolder {
	f := newKeptFolder()
	if depth > MaxDepth+1 {
		d.bad = true
	}
	for n := d.number(); n > 0 && !d.bad; n-- {
		name := d.text()
		var file keptFile
		copy(file.hash[:], d.take(uint64(len(file.hash))))
		file.size, file.space = int64(d.number()), int64(d.number())
		if flags := d.take(1); flags != nil {
			file.executable, file.doubtful = flags[0]&1 != 0, flags[0]&2 != 0
		}
		file.stamp = fileStamp{inode: d.fixed(), mtime: int64(d.fixed()), ctime: int64(d.fixed())}
		f.files[name] = file
	}
	for n := d.number(); n > 0 && !d.bad; n-- {
		name := d.text()
		f.links[name] = d.text()
	}
	for n := d.number(); n > 0 && !d.bad; n-- {
		name := d.text()
		f.folders[name] = d.folder(depth + 1)
	}
	return f
}

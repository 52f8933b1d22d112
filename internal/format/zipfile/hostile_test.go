package zipfile_test

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"hash/crc32"
	"math"
	"strings"
	"testing"

	"e3/internal/format/zipfile"
)

var le = binary.LittleEndian

// header has the common fields of the local and the central header of an entry.
type header struct {
	sig              uint32
	flags, method    uint16
	crc              uint32
	compressed, size uint32
	name             string
	extra            []byte
}

func (h *header) append(b []byte, central *part) []byte {
	b = le.AppendUint32(b, h.sig)
	if central != nil {
		b = le.AppendUint16(b, central.madeBy)
	}
	b = le.AppendUint16(b, 20)
	b = le.AppendUint16(b, h.flags)
	b = le.AppendUint16(b, h.method)
	b = le.AppendUint32(b, 0x21<<16)
	b = le.AppendUint32(b, h.crc)
	b = le.AppendUint32(b, h.compressed)
	b = le.AppendUint32(b, h.size)
	b = le.AppendUint16(b, uint16(len(h.name)))
	b = le.AppendUint16(b, uint16(len(h.extra)))
	if central != nil {
		b = le.AppendUint16(b, uint16(len(central.comment)))
		b = le.AppendUint16(b, central.disk)
		b = le.AppendUint16(b, 0)
		b = le.AppendUint32(b, central.attributes)
		b = le.AppendUint32(b, central.offset)
	}
	b = append(b, h.name...)
	b = append(b, h.extra...)
	if central != nil {
		b = append(b, central.comment...)
	}
	return b
}

// part is an entry of a hand-made archive, with every field that can be forged.
type part struct {
	local, central header
	data           []byte
	madeBy, disk   uint16
	attributes     uint32
	offset         uint32 // set before the forgeries
	comment        string
}

func newPart(name string, method uint16, content []byte) *part {
	data := content
	if method == zipfile.Deflated {
		var b bytes.Buffer
		w, _ := flate.NewWriter(&b, 9)
		w.Write(content)
		w.Close()
		data = b.Bytes()
	}
	h := header{0x04034b50, 0, method, crc32.ChecksumIEEE(content), uint32(len(data)), uint32(len(content)), name, nil}
	p := &part{local: h, central: h, data: data, madeBy: 3<<8 | 20, attributes: 0o100644 << 16}
	p.central.sig = 0x02014b50
	return p
}

// both applies f to the local and the central header.
func (p *part) both(f func(*header)) {
	f(&p.local)
	f(&p.central)
}

func (p *part) rename(name string) { p.both(func(h *header) { h.name = name }) }

// forged is a hand-made archive.
type forged struct {
	parts []*part
	// lie forges fields. It is called when the offsets are known, before the headers are written.
	lie func(*forged)

	prefix, gap []byte // before the entries, before the directory
	end64       bool
	// end is called with the end records (all of them) before they are appended.
	end func(b []byte) []byte
	// done is called with the complete archive.
	done func(b []byte) []byte
}

func (f *forged) bytes() []byte {
	b := bytes.Clone(f.prefix)
	for _, p := range f.parts {
		p.offset = uint32(len(b))
		b = append(p.local.append(b, nil), p.data...)
	}
	if f.lie != nil { // it must not change lengths
		f.lie(f)
		b = bytes.Clone(f.prefix)
		for _, p := range f.parts {
			b = append(p.local.append(b, nil), p.data...)
		}
	}
	b = append(b, f.gap...)
	start := len(b)
	for _, p := range f.parts {
		b = p.central.append(b, p)
	}
	end := endRecords(len(f.parts), start, len(b)-start, f.end64)
	if f.end != nil {
		end = f.end(end)
	}
	b = append(b, end...)
	if f.done != nil {
		b = f.done(b)
	}
	return b
}

func endRecords(entries, offset, size int, wide bool) []byte {
	var b []byte
	at := offset + size
	if wide {
		b = le.AppendUint32(b, 0x06064b50)
		b = le.AppendUint64(b, 44)
		b = le.AppendUint32(b, 45<<16|45)
		b = le.AppendUint64(b, 0)
		b = le.AppendUint64(b, uint64(entries))
		b = le.AppendUint64(b, uint64(entries))
		b = le.AppendUint64(b, uint64(size))
		b = le.AppendUint64(b, uint64(offset))
		b = le.AppendUint32(b, 0x07064b50)
		b = le.AppendUint32(b, 0)
		b = le.AppendUint64(b, uint64(at))
		b = le.AppendUint32(b, 1)
		entries, offset, size = math.MaxUint16, math.MaxUint32, math.MaxUint32
	}
	b = le.AppendUint32(b, 0x06054b50)
	b = le.AppendUint32(b, 0)
	b = le.AppendUint16(b, uint16(entries))
	b = le.AppendUint16(b, uint16(entries))
	b = le.AppendUint32(b, uint32(size))
	b = le.AppendUint32(b, uint32(offset))
	return le.AppendUint16(b, 0)
}

// zip64 is an extra field with 64-bit values.
func zip64(values ...uint64) []byte {
	b := le.AppendUint16(nil, 1)
	b = le.AppendUint16(b, uint16(8*len(values)))
	for _, v := range values {
		b = le.AppendUint64(b, v)
	}
	return b
}

// two returns an archive of a stored and a deflated entry.
func two() *forged {
	return &forged{parts: []*part{
		newPart("a", zipfile.Stored, []byte("hello")),
		newPart("dir/b", zipfile.Deflated, text(300)),
	}}
}

// forge makes an archive of two entries with one fault.
func forge(wrong func(f *forged)) []byte {
	f := two()
	wrong(f)
	return f.bytes()
}

// A hostileCase is an archive that must be refused, and a part of the error.
type hostileCase struct {
	name string
	data []byte
	want string
}

func hostileCases() []hostileCase {
	plain := two().bytes()
	named := func(name string) []byte {
		return forge(func(f *forged) { f.parts[1].rename(name) })
	}
	// at changes bytes of the end records.
	at := func(wide bool, off int, value ...byte) []byte {
		return forge(func(f *forged) {
			f.end64 = wide
			f.end = func(b []byte) []byte { copy(b[off:], value); return b }
		})
	}
	b := func(change func(p *part)) []byte { return forge(func(f *forged) { change(f.parts[1]) }) }
	lie := func(tell func(f *forged)) []byte { return forge(func(f *forged) { f.lie = tell }) }
	bomb := newPart("bomb", zipfile.Deflated, make([]byte, 1<<20))
	return []hostileCase{
		// The archive.
		{"empty", nil, "it has 0 bytes"},
		{"no zip", text(1000), "it is no zip archive"},
		{"cut in the end record", plain[:len(plain)-1], "it is no zip archive, or its end is cut off"},
		{"cut in the directory", plain[:len(plain)-40], "it is no zip archive, or its end is cut off"},
		{"beginning cut off", plain[10:], "its directory is said to be at"},
		{"something before", append([]byte("#!/bin/sh\n"), plain...), "its directory is said to be at"},
		{"something behind", append(bytes.Clone(plain), "more"...), "its end behind the directory has not the declared length"},
		{"comment cut off", at(false, 20, 5), "its end behind the directory has not the declared length"},
		{"two ends", forge(func(f *forged) {
			f.end = func(b []byte) []byte {
				b[20] = 22
				return append(b, endRecords(0, 0, 0, false)...)
			}
		}), "it has two ends"},
		{"an end within a comment", forge(func(f *forged) {
			f.end = func(b []byte) []byte {
				b[20] = 25
				return append(append(b, endRecords(0, 0, 0, false)...), "abc"...)
			}
		}), "its end behind the directory has not the declared length"},
		{"gap before the end", forge(func(f *forged) {
			f.end = func(b []byte) []byte { return append(make([]byte, 9), b...) }
		}), "its directory is said to be at"},
		{"several disks", at(false, 4, 1), "several disks"},
		{"entries on other disks", at(false, 8, 1, 0, 2, 0), "several disks"},
		{"more entries declared", at(false, 8, 3, 0, 3, 0), "its directory is said to have 3 entries in"},
		{"fewer entries declared", at(false, 8, 1, 0, 1, 0), "its directory is longer than its entries"},
		{"many entries declared", at(true, 24, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255), "beyond 2^63"},
		{"directory beyond the end", at(false, 16, 255, 255, 255, 127), "its directory is said to be at"},
		{"something else in the directory", b(func(p *part) { p.central.sig++ }), "something else than entries"},
		{"last entry cut off", forge(func(f *forged) {
			f.lie = func(*forged) {}
			f.parts = append(f.parts, newPart("c", zipfile.Stored, nil))
			f.end = func(b []byte) []byte {
				le.PutUint32(b[12:], le.Uint32(b[12:])-1) // the directory loses its last byte
				return b
			}
			f.done = func(b []byte) []byte { return append(b[:len(b)-23], b[len(b)-22:]...) }
		}), "its directory ends within an entry"},

		// zip64.
		{"no zip64 end", at(false, 16, 255, 255, 255, 255), "its zip64 end record is missing"},
		{"zip64 end elsewhere", at(true, 56+8, 1), "its zip64 end record is not where it is said to be"},
		{"zip64 end far away", at(true, 56+8, 255, 255, 255, 255, 255, 255, 255, 255), "its zip64 end record is not where it is said to be"},
		{"zip64 end of another length", at(true, 4, 45), "its zip64 end record is not where it is said to be"},
		{"zip64 disks", at(true, 56+16, 2), "several disks"},
		{"zip64 directory on another disk", at(true, 20, 1), "several disks"},
		{"two counts", at(true, 56+20+8, 7, 0, 7, 0), "its two end records disagree"},
		{"two offsets", at(true, 56+20+16, 7, 0, 0, 0), "its two end records disagree"},
		{"two sizes", at(true, 56+20+12, 7, 0, 0, 0), "its two end records disagree"},
		{"size without zip64", b(func(p *part) { p.central.size = math.MaxUint32 }), "its zip64 field is missing"},
		{"offset without zip64", lie(func(f *forged) { f.parts[1].offset = math.MaxUint32 }), "its zip64 field is missing"},
		{"short zip64", b(func(p *part) {
			p.central.size, p.central.compressed, p.central.extra = math.MaxUint32, math.MaxUint32, zip64(300)
		}), "its zip64 field is missing or too short"},
		{"two zip64", b(func(p *part) {
			p.central.size, p.central.extra = math.MaxUint32, append(zip64(300), zip64(301)...)
		}), "two zip64 fields"},
		{"negative size", b(func(p *part) {
			p.central.size, p.central.extra = math.MaxUint32, zip64(math.MaxUint64)
		}), "above 2^63"},
		{"size of exabytes", b(func(p *part) {
			p.central.size, p.central.extra = math.MaxUint32, zip64(math.MaxInt64)
		}), "cannot become so many"},
		{"offset of exabytes", lie(func(f *forged) {
			f.parts[1].offset, f.parts[1].central.extra = math.MaxUint32, zip64(math.MaxInt64-10)
		}), "outside of the entries"},
		{"compressed exabytes", b(func(p *part) {
			p.central.compressed, p.central.extra = math.MaxUint32, zip64(math.MaxInt64)
		}), "overlaps the directory"},
		{"sum of sizes", forge(func(f *forged) {
			for _, p := range f.parts {
				p.both(func(h *header) {
					h.method, h.compressed, h.size, h.extra = 8, math.MaxUint32, math.MaxUint32, zip64(math.MaxInt64, math.MaxInt64)
				})
			}
		}), "overlaps the directory"},
		{"disk in zip64", b(func(p *part) { p.disk = math.MaxUint16 }), "its zip64 field is missing"},
		{"extra cut off", b(func(p *part) { p.central.extra = []byte{1, 0, 9, 0, 1} }), "an extra field is cut off"},
		{"extra of three bytes", b(func(p *part) { p.central.extra = []byte{1, 2, 3} }), "an extra field is cut off"},
		{"local zip64 lies", b(func(p *part) {
			p.local.size, p.local.compressed, p.local.extra = math.MaxUint32, math.MaxUint32, zip64(300, 1)
		}), "its header says 300 bytes (1 compressed"},
		{"local zip64 missing", b(func(p *part) { p.local.size = math.MaxUint32 }), "in its header, its zip64 field is missing"},

		// Names.
		{"no name", named(""), "it has no name"},
		{"absolute", named("/etc/passwd"), "its name is absolute"},
		{"up", named("../../etc/passwd"), `its name has the segment ".."`},
		{"up within", named("objects/../../x"), `its name has the segment ".."`},
		{"up at the end", named("objects/.."), `its name has the segment ".."`},
		{"up as a directory", named("objects/../"), `its name has the segment ".."`},
		{"dot", named("./x"), `its name has the segment "."`},
		{"empty segment", named("a//b"), "its name has an empty segment"},
		{"slash", named("/"), "its name is absolute"},
		{"two slashes at the end", named("a//"), "its name has an empty segment"},
		{"backslash", named(`..\x`), "its name contains a backslash"},
		{"NUL", named("a\x00.txt"), "its name contains a NUL"},
		{"drive", named("C:x"), "its name begins with a drive letter"},
		{"not UTF-8", named("a\xff"), "its name is not UTF-8"},
		{"surrogate", named("a\xed\xa0\x80"), "its name is not UTF-8"},
		{"long", named(strings.Repeat("a", 513)), "its name has 513 bytes"},
		{"longest", named(strings.Repeat("a", 65535)), "its name has 65535 bytes"},
		{"duplicate", named("a"), "there is more than one entry of this name"},

		// Kinds of entries.
		{"encrypted", b(func(p *part) { p.both(func(h *header) { h.flags = 1 }) }), "it is encrypted"},
		{"strongly encrypted", b(func(p *part) { p.both(func(h *header) { h.flags = 1 << 6 }) }), "it is encrypted"},
		{"masked", b(func(p *part) { p.both(func(h *header) { h.flags = 1 << 13 }) }), "it is encrypted"},
		{"patch", b(func(p *part) { p.both(func(h *header) { h.flags = 1 << 5 }) }), "its flags are 0x0020"},
		{"encrypted by its header", b(func(p *part) { p.local.flags = 1 }), "it is encrypted"},
		{"method", b(func(p *part) { p.both(func(h *header) { h.method = 14 }) }), "it is compressed by method 14"},
		{"on another disk", b(func(p *part) { p.disk = 1 }), "it is on another disk"},
		{"symlink", b(func(p *part) { p.attributes = 0o120777 << 16 }), "it is a link or a special file"},
		{"device", b(func(p *part) { p.attributes = 0o060600 << 16 }), "it is a link or a special file"},
		{"symlink made elsewhere", b(func(p *part) { p.madeBy, p.attributes = 20, 0o120777<<16 }), "it is a link or a special file"},
		{"directory with a file's name", b(func(p *part) { p.attributes = 0o040755 << 16 }), "marked as a directory"},
		{"DOS directory with a file's name", b(func(p *part) { p.madeBy, p.attributes = 20, 0x10 }), "marked as a directory"},
		{"file with a directory's name", named("dir/"), "marked as a file"},
		{"volume label", b(func(p *part) { p.madeBy, p.attributes = 20, 8 }), "volume label"},
		{"directory with content", b(func(p *part) {
			p.rename("dir/")
			p.attributes = 0o040755 << 16
		}), "a directory with content"},

		// Headers that disagree.
		{"other name", b(func(p *part) { p.local.name = "dir/c" }), "its header has another name"},
		{"longer name", b(func(p *part) { p.local.name = "dir/bb" }), "its header has another name"},
		{"other method", b(func(p *part) { p.local.method = 0 }), "its header has method 0"},
		{"other size", b(func(p *part) { p.local.size++ }), "its header says 301 bytes"},
		{"other compressed size", b(func(p *part) { p.local.compressed-- }), "its header says 300 bytes"},
		{"other CRC", b(func(p *part) { p.local.crc++ }), "its header says 300 bytes"},
		{"descriptor in one", b(func(p *part) { p.local.flags = 8 }), "disagree about a data descriptor"},
		{"descriptor with other sizes", b(func(p *part) {
			p.both(func(h *header) { h.flags = 8 })
			p.local.size++
		}), "its header says 301 bytes"},
		{"no header", b(func(p *part) { p.local.sig = 0 }), "there is no header at"},
		{"offset elsewhere", lie(func(f *forged) { f.parts[1].offset++ }), "there is no header at"},
		{"offset in the directory", lie(func(f *forged) { f.parts[1].offset = 400 }), "outside of the entries"},

		// Places.
		{"same place", lie(func(f *forged) {
			f.parts[1].offset = 0
			f.parts[1].central = f.parts[0].central
		}), "overlaps another entry at 0"},
		{"within another", forge(func(f *forged) {
			inner := newPart("inner", zipfile.Stored, []byte("x"))
			data := append(inner.local.append(nil, nil), inner.data...)
			outer := newPart("outer", zipfile.Stored, data)
			f.parts = []*part{outer, inner}
			f.lie = func(f *forged) { inner.offset = outer.offset + 30 + 5 }
		}), "overlaps another entry at 0"},
		{"descriptor overlaps", forge(func(f *forged) { f.parts[0].both(func(h *header) { h.flags = 8 }) }), "overlaps another entry at 0"},
		{"content in the directory", b(func(p *part) {
			p.both(func(h *header) { h.compressed += 60 })
		}), "overlaps the directory"},
		{"header in the directory", b(func(p *part) { p.local.extra = nil; p.local.name = ""; p.data = nil }), "outside of the entries"},

		// Sizes and content.
		{"stored with two sizes", forge(func(f *forged) {
			f.parts[0].both(func(h *header) { h.size++ })
		}), "it is stored in 5 bytes but declares 6"},
		{"bomb that says so", b(func(p *part) {
			p.both(func(h *header) { h.size = 1 << 30 })
		}), "cannot become so many"},
		{"bomb that does not", forge(func(f *forged) {
			bomb.both(func(h *header) { h.size = 1000 })
			f.parts = append(f.parts, bomb)
		}), "it has more than the declared 1000 bytes"},
		{"bomb that claims to be empty", forge(func(f *forged) {
			empty := newPart("bomb", zipfile.Deflated, make([]byte, 1<<20))
			empty.both(func(h *header) { h.size, h.crc = 0, 0 })
			f.parts = append(f.parts, empty)
		}), "it has more than the declared 0 bytes"},
		{"deflated to nothing", b(func(p *part) {
			p.data = nil
			p.both(func(h *header) { h.compressed, h.size, h.crc = 0, 0, 0 })
		}), "none deflates to fewer than 2"},
		{"fewer bytes", b(func(p *part) { p.both(func(h *header) { h.size++ }) }), "it ends 1 bytes before the declared 301"},
		{"more bytes", b(func(p *part) { p.both(func(h *header) { h.size-- }) }), "it has more than the declared 299 bytes"},
		{"wrong CRC", b(func(p *part) { p.both(func(h *header) { h.crc++ }) }), "its CRC is"},
		{"wrong CRC of what is stored", forge(func(f *forged) {
			f.parts[0].both(func(h *header) { h.crc = 0 })
		}), "its CRC is 3610a686 and should be 00000000"},
		{"damaged", b(func(p *part) { p.data = bytes.Repeat([]byte{255}, len(p.data)) }), "its compressed data are damaged"},
		{"compressed data cut off", b(func(p *part) {
			p.data = p.data[:20]
			p.both(func(h *header) { h.compressed = 20 })
		}), "its compressed data are damaged: unexpected EOF"},
		{"compressed data cut off at the end", b(func(p *part) {
			p.data = p.data[:len(p.data)-1]
			p.both(func(h *header) { h.compressed-- })
		}), "its compressed data are damaged: unexpected EOF"},
		{"something behind compressed data", b(func(p *part) {
			p.data = append(p.data, 0)
			p.both(func(h *header) { h.compressed++ })
		}), "its compressed data end before"},
	}
}

func TestHostileArchives(t *testing.T) {
	if got, err := readAll(two().bytes(), zipfile.Limits{}); err != nil || len(got) != 2 {
		t.Fatalf("with nothing wrong: got %d entries, error %v", len(got), err)
	}
	for _, tt := range hostileCases() {
		t.Run(tt.name, func(t *testing.T) {
			_, err := readAll(tt.data, zipfile.Limits{})
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("got error %v\nwant one with %q", err, tt.want)
			}
			if !refused(err) {
				t.Errorf("got %T, want a FormatError", err)
			}
			if len(err.Error()) > 1500 || strings.ContainsAny(err.Error(), "\x00\n") {
				t.Errorf("the error is not fit for a terminal: %q", err)
			}
		})
	}
}

// Every prefix of an archive, and every archive with one byte changed, is refused or yields the declared sizes and
// sums.
func TestDamagedArchives(t *testing.T) {
	f := two()
	f.end64 = true
	whole := f.bytes()
	for n := range whole {
		if _, err := readAll(whole[:n], zipfile.Limits{}); !refused(err) {
			t.Errorf("cut off after %d of %d bytes: got error %v, want a FormatError", n, len(whole), err)
		}
	}
	for i := range whole {
		for _, bit := range []byte{1, 0x80, 0xff} {
			data := bytes.Clone(whole)
			data[i] ^= bit
			files, err := readAll(data, zipfile.Limits{})
			if err != nil && !refused(err) {
				t.Errorf("byte %d changed: got error %v, want a FormatError", i, err)
			}
			if err == nil && (len(files) != 2 || !bytes.Equal(files[0].content, []byte("hello")) || !bytes.Equal(files[1].content, text(300))) {
				t.Errorf("byte %d changed: got other content without an error", i)
			}
		}
	}
}

package zipfile

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
)

// Records of the format: their signatures, and their lengths without the variable parts.
const (
	localSig   = 0x04034b50
	centralSig = 0x02014b50
	endSig     = 0x06054b50
	end64Sig   = 0x06064b50
	locatorSig = 0x07064b50

	localLen      = 30
	centralLen    = 46
	endLen        = 22
	end64Len      = 56
	locatorLen    = 20
	descriptorLen = 12 // least length

	zip64ID = 1 // id of the extra field with 64-bit values
)

// General purpose bits.
const (
	flagDescriptor = 1 << 3
	flagUTF8       = 1 << 11
	// flagsKnown are the allowed bits: these two, and the effort of deflate. Other bits mean encryption or patches, or
	// have no meaning yet.
	flagsKnown = flagDescriptor | flagUTF8 | 1<<1 | 1<<2
)

// Values that all written entries have in common.
const (
	versionPlain = 20       // can be read by anything that inflates
	versionZip64 = 45       // needs zip64
	madeByUnix   = 3 << 8   // made by Unix, so that programs use the mode
	dosTime      = 0        // midnight
	dosDate      = 1<<5 | 1 // 1980-01-01, the format's zero
	modeFile     = 0o100644
)

// Type bits of a Unix mode.
const (
	modeType      = 0o170000
	modeRegular   = 0o100000
	modeDirectory = 0o040000
)

var le = binary.LittleEndian

// zip64Slack is the margin below 4 GiB within which an announced size is not written in 32 bits, since compressed
// blocks can be a little longer than their content.
const zip64Slack = 16 << 20

// localHeaderLen returns the length of the header that appendLocal makes.
func localHeaderLen(name string, zip64 bool) int64 {
	n := localLen + len(name)
	if zip64 {
		n += 4 + 16
	}
	return int64(n)
}

// appendLocal appends the local header of e.
func appendLocal(b []byte, e *Entry, zip64 bool) []byte {
	version, extra := uint16(versionPlain), uint16(0)
	size, compressed := uint32(e.Size), uint32(e.CompressedSize)
	if zip64 {
		version, extra = versionZip64, 4+16
		size, compressed = math.MaxUint32, math.MaxUint32
	}
	b = le.AppendUint32(b, localSig)
	b = le.AppendUint16(b, version)
	b = le.AppendUint16(b, flagUTF8)
	b = le.AppendUint16(b, e.Method)
	b = le.AppendUint16(b, dosTime)
	b = le.AppendUint16(b, dosDate)
	b = le.AppendUint32(b, e.CRC)
	b = le.AppendUint32(b, compressed)
	b = le.AppendUint32(b, size)
	b = le.AppendUint16(b, uint16(len(e.Name)))
	b = le.AppendUint16(b, extra)
	b = append(b, e.Name...)
	if zip64 {
		b = le.AppendUint16(b, zip64ID)
		b = le.AppendUint16(b, 16)
		b = le.AppendUint64(b, uint64(e.Size))
		b = le.AppendUint64(b, uint64(e.CompressedSize))
	}
	return b
}

// appendCentral appends the entry of e in the central directory.
func appendCentral(b []byte, e *Entry) []byte {
	var extra [4 + 24]byte
	x := extra[:4]
	// low returns v, or moves it to the extra field.
	low := func(v int64) uint32 {
		if v < math.MaxUint32 {
			return uint32(v)
		}
		x = le.AppendUint64(x, uint64(v))
		return math.MaxUint32
	}
	size := low(e.Size)
	compressed := low(e.CompressedSize)
	offset := low(e.Offset)
	version := uint16(versionPlain)
	if len(x) > 4 {
		version = versionZip64
		le.PutUint16(x, zip64ID)
		le.PutUint16(x[2:], uint16(len(x)-4))
	} else {
		x = nil
	}
	b = le.AppendUint32(b, centralSig)
	b = le.AppendUint16(b, madeByUnix|version)
	b = le.AppendUint16(b, version)
	b = le.AppendUint16(b, flagUTF8)
	b = le.AppendUint16(b, e.Method)
	b = le.AppendUint16(b, dosTime)
	b = le.AppendUint16(b, dosDate)
	b = le.AppendUint32(b, e.CRC)
	b = le.AppendUint32(b, compressed)
	b = le.AppendUint32(b, size)
	b = le.AppendUint16(b, uint16(len(e.Name)))
	b = le.AppendUint16(b, uint16(len(x)))
	b = le.AppendUint16(b, 0)            // comment
	b = le.AppendUint16(b, 0)            // disk
	b = le.AppendUint16(b, 0)            // internal attributes
	b = le.AppendUint32(b, modeFile<<16) // external attributes
	b = le.AppendUint32(b, offset)
	b = append(b, e.Name...)
	return append(b, x...)
}

// A directory is the place of the central directory.
type directory struct {
	entries      int64
	offset, size int64
}

// appendEnd appends the records that close an archive whose directory is d.
func appendEnd(b []byte, d directory) []byte {
	if d.entries >= math.MaxUint16 || d.offset >= math.MaxUint32 || d.size >= math.MaxUint32 {
		b = le.AppendUint32(b, end64Sig)
		b = le.AppendUint64(b, end64Len-12)
		b = le.AppendUint16(b, madeByUnix|versionZip64)
		b = le.AppendUint16(b, versionZip64)
		b = le.AppendUint32(b, 0) // this disk
		b = le.AppendUint32(b, 0) // the directory's disk
		b = le.AppendUint64(b, uint64(d.entries))
		b = le.AppendUint64(b, uint64(d.entries))
		b = le.AppendUint64(b, uint64(d.size))
		b = le.AppendUint64(b, uint64(d.offset))

		b = le.AppendUint32(b, locatorSig)
		b = le.AppendUint32(b, 0)
		b = le.AppendUint64(b, uint64(d.offset+d.size))
		b = le.AppendUint32(b, 1) // disks
	}
	entries := uint16(min(d.entries, math.MaxUint16))
	b = le.AppendUint32(b, endSig)
	b = le.AppendUint16(b, 0)
	b = le.AppendUint16(b, 0)
	b = le.AppendUint16(b, entries)
	b = le.AppendUint16(b, entries)
	b = le.AppendUint32(b, uint32(min(d.size, math.MaxUint32)))
	b = le.AppendUint32(b, uint32(min(d.offset, math.MaxUint32)))
	return le.AppendUint16(b, 0) // comment
}

// readCentral reads the next entry of the directory and makes the checks that need no other part of the archive. It
// uses buf for the variable part. io.EOF means that r ends at the end of an entry.
func readCentral(r io.Reader, buf *[]byte) (e Entry, length int64, err error) {
	var h [centralLen]byte
	if _, err := io.ReadFull(r, h[:]); err != nil {
		if err == io.ErrUnexpectedEOF {
			err = &FormatError{"", "its directory ends within an entry"}
		}
		return Entry{}, 0, err
	}
	if le.Uint32(h[:]) != centralSig {
		return Entry{}, 0, &FormatError{"", "its directory contains something else than entries"}
	}
	nameLen, extraLen, commentLen := int(le.Uint16(h[28:])), int(le.Uint16(h[30:])), int(le.Uint16(h[32:]))
	n := nameLen + extraLen + commentLen
	if cap(*buf) < n {
		*buf = make([]byte, n)
	}
	b := (*buf)[:n]
	if _, err := io.ReadFull(r, b); err != nil {
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			err = &FormatError{"", "its directory ends within an entry"}
		}
		return Entry{}, 0, err
	}
	madeBy, attributes := le.Uint16(h[4:])>>8, le.Uint32(h[38:])
	e = Entry{
		Name:   string(b[:nameLen]),
		Flags:  le.Uint16(h[8:]),
		Method: le.Uint16(h[10:]),
		CRC:    le.Uint32(h[16:]),
		Mode:   attributes >> 16,
	}
	refuse := func(reason string) (Entry, int64, error) { return Entry{}, 0, &FormatError{e.Name, reason} }
	if reason := nameFault(e.Name); reason != "" {
		return refuse(reason)
	}
	wide := wideValues{
		size: le.Uint32(h[24:]), compressed: le.Uint32(h[20:]),
		offset: le.Uint32(h[42:]), disk: le.Uint16(h[34:]),
	}
	if reason := wide.read(b[nameLen : nameLen+extraLen]); reason != "" {
		return refuse(reason)
	}
	if wide.Disk != 0 {
		return refuse("it is on another disk")
	}
	e.Size, e.CompressedSize, e.Offset = wide.Size, wide.Compressed, wide.Offset
	if reason := methodFault(e.Flags, e.Method); reason != "" {
		return refuse(reason)
	}
	if reason := modeFault(&e, madeBy, attributes); reason != "" {
		return refuse(reason)
	}
	if reason := sizeFault(&e); reason != "" {
		return refuse(reason)
	}
	return e, int64(centralLen + n), nil
}

func methodFault(flags, method uint16) string {
	switch {
	case flags&(1<<0|1<<6|1<<13) != 0:
		return "it is encrypted"
	case flags&^flagsKnown != 0:
		return fmt.Sprintf("its flags are %#04x, of which %#04x are not supported", flags, flags&^flagsKnown)
	case method != Stored && method != Deflated:
		return fmt.Sprintf("it is compressed by method %d; only stored (0) and deflated (8) are supported", method)
	}
	return ""
}

// modeFault refuses entries that are neither a regular file nor a directory, and entries that some programs treat as a
// file and others as a directory.
func modeFault(e *Entry, madeBy uint16, attributes uint32) string {
	const dosLabel, dosDirectory = 0x08, 0x10
	const unix, darwin = 3, 19
	typ := e.Mode & modeType
	switch {
	case typ != 0 && typ != modeRegular && typ != modeDirectory:
		return fmt.Sprintf("it is a link or a special file (mode %o)", e.Mode)
	case typ == modeDirectory && !e.IsDir(), attributes&dosDirectory != 0 && !e.IsDir():
		return "it is marked as a directory, but its name does not end in a slash"
	case typ == modeRegular && e.IsDir():
		return "it is marked as a file, but its name ends in a slash"
	case attributes&dosLabel != 0:
		return "it is a volume label"
	}
	if madeBy != unix && madeBy != darwin {
		e.Mode = 0
	}
	return ""
}

// sizeFault refuses impossible sizes.
func sizeFault(e *Entry) string {
	// A match of deflate has at most 258 bytes and takes at least two bits.
	const mostDeflate = 1032
	switch {
	case e.IsDir() && e.Size != 0:
		return "it is a directory with content"
	case e.Method == Stored && e.CompressedSize != e.Size:
		return fmt.Sprintf("it is stored in %d bytes but declares %d", e.CompressedSize, e.Size)
	case e.Method == Deflated && e.CompressedSize < 2:
		return fmt.Sprintf("it is deflated to %d bytes, and none deflates to fewer than 2", e.CompressedSize)
	case e.Size/mostDeflate > e.CompressedSize:
		return fmt.Sprintf("it declares %d bytes, and %d deflated ones cannot become so many", e.Size, e.CompressedSize)
	}
	return ""
}

// wideValues are the values that an extra field can widen.
type wideValues struct {
	size, compressed, offset uint32
	disk                     uint16

	Size, Compressed, Offset int64
	Disk                     uint32
}

// read reads the wide values from the extra field, and returns what is wrong with it. The extra field has, in this
// order, the values whose narrow form is all ones. Other parts of the extra field are ignored.
func (v *wideValues) read(extra []byte) string {
	var wide []byte
	found := false
	for len(extra) > 0 {
		if len(extra) < 4 || len(extra)-4 < int(le.Uint16(extra[2:])) {
			return "an extra field is cut off"
		}
		id, n := le.Uint16(extra), int(le.Uint16(extra[2:]))
		if id == zip64ID {
			if found {
				return "it has two zip64 fields"
			}
			found, wide = true, extra[4:4+n]
		}
		extra = extra[4+n:]
	}
	fault := ""
	take := func(low uint32) int64 {
		switch {
		case low != math.MaxUint32:
			return int64(low)
		case len(wide) < 8:
			fault = "its zip64 field is missing or too short"
			return 0
		}
		w := le.Uint64(wide)
		wide = wide[8:]
		if w > math.MaxInt64 {
			fault = "a size or offset is above 2^63"
			return 0
		}
		return int64(w)
	}
	v.Size = take(v.size)
	v.Compressed = take(v.compressed)
	v.Offset = take(v.offset)
	v.Disk = uint32(v.disk)
	if fault == "" && v.disk == math.MaxUint16 {
		if len(wide) < 4 {
			return "its zip64 field is missing or too short"
		}
		v.Disk = le.Uint32(wide)
	}
	return fault
}

// Package zipfile writes and reads zip archives of any size in constant memory.
//
// A Writer compresses blocks of fixed size in parallel, across entries and within a large entry. The bytes of the
// archive depend only on the entries, because times, attributes and block sizes are fixed. A Reader trusts nothing:
// Open refuses an archive that different programs could understand differently, and content is checked as it is
// read.
//
// Both support only the part of the format that e3 needs: regular files, stored or deflated, in one unencrypted file,
// with zip64 where sizes, offsets or counts need it.
package zipfile

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// MaxName is the length of the longest name of an entry, in bytes.
const MaxName = 512

// Methods of compression.
const (
	Stored   uint16 = 0
	Deflated uint16 = 8
)

// An Entry describes one member of an archive, from the central directory.
type Entry struct {
	Name           string // name; of a directory with a slash at its end
	Method         uint16 // Stored or Deflated
	Flags          uint16 // the format's general purpose bits
	CRC            uint32 // CRC-32 (IEEE) of the content
	CompressedSize int64  // bytes of the content in the archive
	Size           int64  // bytes of the content that OpenEntry yields
	Offset         int64  // offset of the local header
	Mode           uint32 // the Unix mode with its type bits, 0 if the archive has none
	Position       int64  // place in the directory, for Reader.At
}

// IsDir reports whether the entry is a directory, which has no content.
func (e *Entry) IsDir() bool { return strings.HasSuffix(e.Name, "/") }

// ErrSize is in the chain of the error of a Writer whose reader yielded more or fewer bytes
// than were announced for the entry.
var ErrSize = errors.New("the content has not the announced size")

// A FormatError reports why an archive, or one entry of it, is refused.
type FormatError struct {
	Name   string // name of the entry; "" for the archive itself
	Reason string
}

func (e *FormatError) Error() string {
	if e.Name == "" {
		return "zip file refused: " + e.Reason
	}
	return fmt.Sprintf("zip file refused: entry %s: %s", quote(e.Name), e.Reason)
}

// A LimitError names the one of a Reader's Limits that an archive exceeds.
type LimitError struct {
	Name string // name of the entry; "" for the archive itself
	What string // "entries", or "bytes"
	Got  int64  // the archive has at least this many
	Max  int64
}

func (e *LimitError) Error() string {
	if e.Name == "" {
		return fmt.Sprintf("zip file refused: it declares %d %s, and at most %d are allowed", e.Got, e.What, e.Max)
	}
	return fmt.Sprintf("zip file refused: entry %s: it declares %d %s, and at most %d are allowed", quote(e.Name), e.Got, e.What, e.Max)
}

// quote makes a hostile name printable, and short enough for a line.
func quote(name string) string {
	const most = 200
	if len(name) > most {
		return fmt.Sprintf("%q…", name[:most])
	}
	return fmt.Sprintf("%q", name)
}

// CheckName returns a FormatError unless name is allowed in archives: relative, with slashes, and without any part that
// could lead out of the target folder on any file system. The name of a directory ends in a slash.
func CheckName(name string) error {
	if reason := nameFault(name); reason != "" {
		return &FormatError{name, reason}
	}
	return nil
}

func nameFault(name string) string {
	switch {
	case name == "":
		return "it has no name"
	case len(name) > MaxName:
		return fmt.Sprintf("its name has %d bytes, and at most %d are allowed", len(name), MaxName)
	case !utf8.ValidString(name):
		return "its name is not UTF-8"
	case strings.IndexByte(name, 0) >= 0:
		return "its name contains a NUL"
	case strings.IndexByte(name, '\\') >= 0:
		return "its name contains a backslash"
	case name[0] == '/':
		return "its name is absolute"
	case len(name) > 1 && name[1] == ':' && (name[0]|0x20 >= 'a' && name[0]|0x20 <= 'z'):
		return "its name begins with a drive letter"
	}
	for segment := range strings.SplitSeq(strings.TrimSuffix(name, "/"), "/") {
		switch segment {
		case "":
			return "its name has an empty segment"
		case ".", "..":
			return fmt.Sprintf("its name has the segment %q", segment)
		}
	}
	return ""
}

package checked

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"e3/refstore"
)

// A trailer is a line after the content, so that records of text stay readable:
//
//	<content> "\ne3sum" {" " entry} " " <8 hex> "\n"
//
// The hex is the CRC-32C of key, field, content and entries. It detects every damage within four bytes, and all other
// damage except for one case in four thousand million. It does not protect against attackers: a process that can write
// records can write sums. The key is part of it, so that the bytes of one record in the place of another count as
// damage.
const tag = "\ne3sum"

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// sumOf is the sum of bytes at a record's field; "" is the value.
func sumOf(key refstore.Key, field string, parts ...[]byte) uint32 {
	place := make([]byte, 0, len(key.Partition)+len(key.Sort)+len(field)+3)
	for _, name := range []string{key.Partition, key.Sort, field} {
		place = append(append(place, name...), 0)
	}
	sum := crc32.Update(0, castagnoli, place)
	for _, p := range parts {
		sum = crc32.Update(sum, castagnoli, p)
	}
	return sum
}

// seal is the content of a trailer: the sums of bytes beside it in the same record.
type seal struct {
	// sums has the allowed sums of the value "" and of fields. If a crash can occur between two writes, two sums are
	// allowed: of the old bytes and of the new ones.
	sums map[string][]uint32
	// has lists the fields that exist and have a trailer of their own.
	has map[string]bool
	// bare means that the field with the trailer exists only for the trailer, and is not part of the record.
	bare bool
}

func newSeal() seal { return seal{sums: map[string][]uint32{}, has: map[string]bool{}} }

// allows reports whether a field may have these bytes.
func (s seal) allows(key refstore.Key, field string, data []byte) bool {
	return slices.Contains(s.sums[field], sumOf(key, field, data))
}

// entries writes the seal as text, each entry after a space.
func (s seal) entries() []byte {
	var b []byte
	if s.bare {
		b = append(b, " -"...)
	}
	for _, name := range slices.Sorted(maps.Keys(s.sums)) {
		b = append(append(append(b, ' '), url.QueryEscape(name)...), '=')
		for i, sum := range s.sums[name] {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(b, digits(sum)...)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.has)) {
		b = append(append(b, " +"...), url.QueryEscape(name)...)
	}
	return b
}

func digits(sum uint32) string { return fmt.Sprintf("%08x", sum) }

// enclose adds the trailer to content.
func enclose(key refstore.Key, field string, content []byte, s seal) []byte {
	entries := s.entries()
	out := make([]byte, 0, len(content)+len(tag)+len(entries)+len(" 01234567\n"))
	out = append(append(append(out, content...), tag...), entries...)
	return append(append(append(out, ' '), digits(sumOf(key, field, content, entries))...), '\n')
}

// disclose removes the trailer. Its error describes the damage.
func disclose(key refstore.Key, field string, data []byte) (content []byte, s seal, err error) {
	at := bytes.LastIndex(data, []byte(tag))
	if at < 0 {
		return nil, s, fmt.Errorf("its sum is missing")
	}
	content, line := data[:at:at], data[at+len(tag):]
	end := len(line) - len(" 01234567\n")
	if end < 0 || string(line[end:]) != " "+digits(sumOf(key, field, content, line[:end]))+"\n" {
		return nil, s, fmt.Errorf("it does not have its sum")
	}
	s, err = parseEntries(string(line[:end]))
	return content, s, err
}

// parseEntries reads what entries writes. It ignores other entries, which a newer e3 may write.
func parseEntries(text string) (seal, error) {
	s := newSeal()
	for _, entry := range strings.Fields(text) {
		if entry == "-" {
			s.bare = true
			continue
		}
		name, sums, some := strings.Cut(entry, "=")
		name, own := strings.CutPrefix(name, "+")
		name, err := url.QueryUnescape(name)
		if err != nil || own == some {
			return s, fmt.Errorf("its sum has the entry %q", entry)
		}
		if own {
			s.has[name] = true
			continue
		}
		for text := range strings.SplitSeq(sums, ",") {
			sum, err := strconv.ParseUint(text, 16, 32)
			if err != nil {
				return s, fmt.Errorf("its sum has the entry %q", entry)
			}
			s.sums[name] = append(s.sums[name], uint32(sum))
		}
	}
	return s, nil
}

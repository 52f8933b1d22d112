package events

import (
	"bytes"
	"strings"
	"unicode/utf8"
)

// A sieve drops lines that cannot match before they are parsed. A line of JSON holds a text literally or with an
// escape, so the sieve keeps all lines with the text or with a backslash. nil keeps all lines.
type sieve struct {
	any [][]byte // a line is kept if it contains one of these
	// next is, for each text, the offset in the stream before which the text does not occur.
	next []int64
	// tasks, if not nil, also keeps the lines of these tasks, however many. The cost is that every line is inspected.
	tasks map[string]bool
}

// newSieve returns a sieve for lines with one of the texts; nil if the bytes of a line cannot decide.
func newSieve(texts ...string) *sieve {
	s := &sieve{any: [][]byte{{'\\'}}, next: make([]int64, len(texts)+1)}
	for _, t := range texts {
		// Bytes that are not UTF-8 read as U+FFFD.
		if strings.Trim(t, `"`) == "" || !utf8.ValidString(t) || strings.ContainsRune(t, utf8.RuneError) {
			return nil
		}
		s.any = append(s.any, []byte(t))
	}
	return s
}

// keeps reports whether a line is kept.
func (s *sieve) keeps(line []byte) bool {
	if s == nil {
		return true
	}
	for _, text := range s.any {
		if bytes.Contains(line, text) {
			return true
		}
	}
	return s.tasks != nil && s.keepsTask(line)
}

// keepsTask reports whether a line may belong to one of the tasks. A line whose name is not in e3's form may belong
// to any.
func (s *sieve) keepsTask(line []byte) bool {
	said := false
	for rest := line; ; said = true {
		i := bytes.Index(rest, taskName)
		if i < 0 {
			break
		}
		rest = rest[i+len(taskName):]
		name, plain := bytes.CutPrefix(rest, colonQuote)
		end := bytes.IndexByte(name, '"')
		if !plain || end < 0 || s.tasks[string(name[:end])] || !utf8.Valid(name[:end]) {
			return true
		}
	}
	return !said || bytes.IndexByte(line, '\\') >= 0
}

var (
	taskName   = []byte(`"task"`)
	colonQuote = []byte(`:"`)
)

// find returns the bounds of the first kept line in complete lines that begin at an offset of the stream. If there is
// none, both are the end. Offsets only grow.
func (s *sieve) find(whole []byte, off int64) (from, to int) {
	at := 0
	if s != nil {
		if at = s.first(whole, off); at == len(whole) {
			return at, at
		}
	}
	return bytes.LastIndexByte(whole[:at], '\n') + 1, at + bytes.IndexByte(whole[at:], '\n') + 1
}

// first returns where the first of the texts begins, the length of whole if there is none. It searches no byte twice
// for the same text.
func (s *sieve) first(whole []byte, off int64) int {
	if s.tasks != nil {
		for at := 0; at < len(whole); {
			end := at + bytes.IndexByte(whole[at:], '\n') + 1
			if s.keeps(whole[at:end]) {
				return at
			}
			at = end
		}
		return len(whole)
	}
	end := off + int64(len(whole))
	first := end
	for i, text := range s.any {
		if s.next[i] <= off {
			if k := bytes.Index(whole, text); k >= 0 {
				s.next[i] = off + int64(k)
			} else {
				s.next[i] = end
			}
		}
		first = min(first, s.next[i])
	}
	return int(first - off)
}

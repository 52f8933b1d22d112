package events

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"unicode/utf8"

	"e3/refstore"
)

// maxLine bounds a line, as imports do. A longer line is damage, so no log can make a reader hold more.
const maxLine = 1 << 20

// chunk is how much of a log is read at a time.
const chunk = 256 << 10

var errLongLine = errors.New("the line has more than 1 MiB")

// lines cuts a stream into complete lines. Bytes after the last newline are a torn tail, not a line.
type lines struct {
	r    io.ReadCloser
	open func(off int64) (io.ReadCloser, error)
	buf  []byte
	part []byte // of buf: not yet consumed
	off  int64  // of part in the stream
	eof  bool
	// mayBeCut opens the stream again where a chunk ends with a part of a line, and reads that once more with the rest, so
	// that no line joins bytes from before a cut and after it.
	mayBeCut bool
}

// openLines opens a stream at an offset. It reads with buf, which the caller may use again afterwards; it may be nil.
func openLines(ctx context.Context, streams refstore.Streams, key refstore.Key, off int64, buf []byte) (*lines, error) {
	l := &lines{off: off, open: func(off int64) (io.ReadCloser, error) { return streams.Open(ctx, key, off) }}
	var err error
	if l.r, err = l.open(off); err != nil {
		return nil, err
	}
	if cap(buf) == 0 {
		buf = make([]byte, chunk)
	}
	l.buf = buf[:cap(buf)]
	return l, nil
}

// Close closes the stream. An error would mean nothing, as it was only read.
func (l *lines) Close() { l.r.Close() }

// next returns the next line that the sieve keeps, with its newline, and where it ends in the stream. The line is
// valid until the next call. io.EOF after the last one; errLongLine for a line that is too long.
func (l *lines) next(s *sieve) (line []byte, end int64, err error) {
	for {
		whole := bytes.LastIndexByte(l.part, '\n') + 1
		if whole > 0 {
			from, to := s.find(l.part[:whole], l.off)
			line = l.part[from:to]
			l.take(to)
			if len(line) > 0 {
				return line, l.off, nil
			}
			continue
		}
		if l.eof {
			return nil, l.off, io.EOF
		}
		if len(l.part) >= maxLine {
			return nil, l.off, l.skip()
		}
		if err := l.fill(); err != nil {
			return nil, l.off, err
		}
	}
}

func (l *lines) take(n int) {
	l.part = l.part[n:]
	l.off += int64(n)
}

// fill reads more after the unconsumed bytes.
func (l *lines) fill() error {
	n := copy(l.buf, l.part)
	if n == len(l.buf) {
		l.buf = append(l.buf, make([]byte, min(len(l.buf), maxLine-n))...)
	}
	had := 0
	if l.mayBeCut && n > 0 {
		r, err := l.open(l.off)
		if err != nil {
			return err
		}
		l.r.Close()
		l.r, had, n = r, n, 0
	}
	before := max(n, had)
	for empty := 0; ; {
		k, err := l.r.Read(l.buf[n:])
		n += k
		l.part = l.buf[:n]
		switch {
		case err == io.EOF:
			l.eof = true
			return nil
		case err != nil:
			return err
		case n > before:
			return nil
		case k > 0:
			continue
		}
		if empty++; empty > 100 {
			return io.ErrNoProgress
		}
	}
}

// skip skips a line that is too long. Without a newline, such a line at the end of the stream is a torn tail.
func (l *lines) skip() error {
	for {
		if i := bytes.IndexByte(l.part, '\n'); i >= 0 {
			l.take(i + 1)
			return errLongLine
		}
		l.take(len(l.part))
		if l.eof {
			return io.EOF
		}
		if err := l.fill(); err != nil {
			return err
		}
	}
}

// A sieve drops lines that cannot match before they are parsed. A line of JSON holds a text literally or with an
// escape, so the sieve keeps all lines with the text or with a backslash. nil keeps all lines.
type sieve struct {
	any [][]byte // a line is kept if it contains one of these
	// next is, for each text, the offset in the stream before which the text does not occur.
	next []int64
	// tasks, if not nil, replaces any: names of tasks, however many. The cost is that every line is inspected.
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
	if s.tasks != nil {
		return s.keepsTask(line)
	}
	for _, text := range s.any {
		if bytes.Contains(line, text) {
			return true
		}
	}
	return false
}

// keepsTask reports whether a line may belong to one of the tasks. A line without a name in e3's form may.
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
			if s.keepsTask(whole[at:end]) {
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

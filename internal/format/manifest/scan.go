package manifest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"
)

const (
	byteOrderMark = "\ufeff"
	utf8Only      = "the file must be UTF-8 text"
)

// An overview is the result of one pass over the bytes of a file.
type overview struct {
	bom       bool         // a byte order mark begins the file
	first     rune         // the first character that is not white space, 0 if there is none
	oddBreaks bool         // the file has line breaks other than LF and CR LF, which the YAML library counts
	fault     *syntaxError // text that neither YAML nor JSON allows; nil: there is none
}

// scan reads the whole file. Its errors are read errors.
func scan(file io.ReaderAt) (overview, error) {
	var o overview
	pos := Pos{1, 1}
	in := bufio.NewReaderSize(io.NewSectionReader(file, 0, MaxFileSize), 64<<10)
	for at := 0; ; at++ {
		r, size, err := in.ReadRune()
		switch {
		case errors.Is(err, io.EOF):
			return o, nil
		case err != nil:
			return o, err
		case r == utf8.RuneError && size == 1:
			in.UnreadRune() // cannot fail directly after ReadRune
			c, _ := in.ReadByte()
			o.fault = &syntaxError{pos, fmt.Sprintf("byte 0x%02x is not UTF-8", c), utf8Only}
			return o, nil
		case r < 0x20 && r != '\t' && r != '\n' && r != '\r':
			o.fault = &syntaxError{pos, fmt.Sprintf("control character 0x%02x", r), utf8Only}
			return o, nil
		case r == '\ufeff' && at == 0:
			o.bom = true
			continue
		case r == '\u0085' || r == '\u2028' || r == '\u2029':
			o.oddBreaks = true
		case r == '\r':
			if next, err := in.Peek(1); err != nil || next[0] != '\n' {
				o.oddBreaks = true
			}
		}
		if o.first == 0 && r != ' ' && r != '\t' && r != '\n' && r != '\r' {
			o.first = r
		}
		if pos.Column++; r == '\n' {
			pos = Pos{pos.Line + 1, 1}
		}
	}
}

// A lineScanner goes through the lines of a file.
type lineScanner struct {
	in    *bufio.Reader
	text  []byte // the current line with its line feed, never empty; only the beginning of a very long line
	cut   bool   // text is only the beginning of the line
	start int64  // offset of the line
	end   int64
	line  int32 // lines before the current one
	begun bool
	err   error // error of reading
}

func newLineScanner(file *io.SectionReader) *lineScanner {
	return &lineScanner{in: bufio.NewReaderSize(io.NewSectionReader(file, 0, file.Size()), 64<<10)}
}

func (l *lineScanner) next() bool {
	if l.begun {
		l.line++
	}
	l.begun, l.start, l.cut = true, l.end, false
	text, err := l.in.ReadSlice('\n')
	l.text = append(l.text[:0], text...)
	l.end += int64(len(text))
	for errors.Is(err, bufio.ErrBufferFull) {
		l.cut = true
		text, err = l.in.ReadSlice('\n')
		l.end += int64(len(text))
	}
	if err != nil && !errors.Is(err, io.EOF) {
		l.err = err
		return false
	}
	return len(l.text) > 0
}

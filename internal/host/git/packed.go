package git

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strings"
)

// maxPacked bounds what is read of packed-refs, and scanned is the size up to which it is read from one end to the
// other. A larger file is halved until a part of that size is left.
const (
	maxPacked = 64 << 20
	scanned   = 16 << 10
)

// lookUp finds a reference in packed-refs: lines "<commit> <reference>", each perhaps followed by "^<commit>" for a
// tag. It returns "" if there is none. git sorts the lines by reference, and says so in the first line.
func lookUp(f io.ReaderAt, size int64, ref string) (string, error) {
	from, until := int64(0), size
	if sorted, err := isSorted(f); err != nil {
		return "", err
	} else if sorted {
		if from, until, err = narrow(f, size, ref); err != nil {
			return "", err
		}
	}
	if until-from > maxPacked {
		return "", errors.New("packed-refs is not sorted, and too long to read")
	}
	lines := bufio.NewScanner(io.NewSectionReader(f, from, until-from))
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		if id, name, ok := strings.Cut(lines.Text(), " "); ok && name == ref {
			return id, nil
		}
	}
	return "", lines.Err()
}

func isSorted(f io.ReaderAt) (bool, error) {
	var b [256]byte
	n, err := f.ReadAt(b[:], 0)
	if err != nil && err != io.EOF {
		return false, err
	}
	head, _, _ := bytes.Cut(b[:n], []byte("\n"))
	return bytes.HasPrefix(head, []byte("#")) && bytes.Contains(append(head, ' '), []byte(" sorted ")), nil
}

// narrow returns a part of sorted lines, of about scanned bytes, that has the line of a reference if the file has it.
func narrow(f io.ReaderAt, size int64, ref string) (from, until int64, err error) {
	until = size
	block := make([]byte, maxLine)
	for until-from > scanned {
		mid := from + (until-from)/2
		n, err := f.ReadAt(block, mid)
		if err != nil && err != io.EOF {
			return 0, 0, err
		}
		at, name := nextRef(block[:n])
		switch {
		case name == nil:
			return 0, 0, errors.New("packed-refs has a line without an end")
		case string(name) <= ref:
			from = mid + int64(at)
		default:
			until = mid + int64(at)
		}
	}
	return from, until, nil
}

// nextRef finds the first whole line with a reference in a block that begins anywhere: where it is, and the reference's
// name; nil if there is none.
func nextRef(block []byte) (at int, name []byte) {
	for {
		end := bytes.IndexByte(block[at:], '\n')
		if end < 0 {
			return 0, nil
		}
		at += end + 1
		line, _, whole := bytes.Cut(block[at:], []byte("\n"))
		if _, name, ok := bytes.Cut(line, []byte(" ")); ok && whole {
			return at, name
		}
	}
}

package exportimport

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"hash/maphash"
	"io"
	"slices"
	"strings"

	"e3/internal/format/signature"
	"e3/internal/format/zipfile"
	"e3/internal/human"
	"e3/objectstore"
)

// lines is a list of sums in any order, 8 bytes for each line: a hash of the line with a secret seed.
type lines struct {
	seed maphash.Seed
	list []uint64
	line []byte // reused
}

func newLines() *lines { return &lines{seed: maphash.MakeSeed()} }

func (l *lines) add(name string, content objectstore.Hash) {
	l.line = signature.AppendLine(l.line[:0], name, content)
	l.list = append(l.list, maphash.Bytes(l.seed, l.line))
}

func (l *lines) has(line []byte) bool {
	_, found := slices.BinarySearch(l.list, maphash.Bytes(l.seed, line))
	return found
}

// maxSumsLine bounds a line of the list of sums: a mark, a sum, two spaces, a name with each byte escaped, a line
// feed.
const maxSumsLine = 1 + hashText + 2 + 2*zipfile.MaxName + 1

// compareSums refuses a zip unless its list of sums has exactly the lines of its entries. Their order does not
// matter, so that a zip that another program repacked is accepted.
func (m *importer) compareSums(ctx context.Context, sums *zipfile.Entry, have *lines) error {
	listed := &lines{seed: have.seed}
	err := m.eachSum(ctx, sums, func(line []byte) error {
		if len(listed.list) > len(have.list) {
			return errEnough
		}
		listed.list = append(listed.list, maphash.Bytes(have.seed, line))
		return nil
	})
	if err != nil && !errors.Is(err, errEnough) {
		return err
	}
	slices.Sort(have.list)
	slices.Sort(listed.list)
	if slices.Equal(have.list, listed.list) {
		return nil
	}
	return m.explainSums(ctx, sums, have, listed)
}

// errEnough ends the reading of a list of sums with too many lines.
var errEnough = errors.New("enough lines")

// explainSums says which entry of a zip contradicts its list of sums.
func (m *importer) explainSums(ctx context.Context, sums *zipfile.Entry, have, listed *lines) error {
	err := m.list(ctx, func(e *zipfile.Entry, content objectstore.Hash) error {
		line := signature.AppendLine(nil, e.Name, content)
		if e.IsDir() || e.Name == sumsEntry || listed.has(line) {
			return nil
		}
		if was := m.sumOf(ctx, sums, line[bytes.IndexByte(line, ' '):]); was != "" {
			return refused(e.Name, "its content hashes to %s, and %s says %s: it is damaged", content, sumsEntry, human.Line(shorten(was)))
		}
		return refused(e.Name, "%s does not list it", sumsEntry)
	})
	if err != nil {
		return err
	}
	left := len(listed.list)
	err = m.eachSum(ctx, sums, func(line []byte) error {
		if left--; left < 0 {
			return errEnough
		}
		if have.has(line) {
			return nil
		}
		return refused(sumsEntry, "it lists what is not in the zip: %q", shorten(strings.TrimSuffix(string(line), "\n")))
	})
	if err != nil && !errors.Is(err, errEnough) {
		return err
	}
	return refused(sumsEntry, "it does not list each entry once")
}

// sumOf returns the listed sum of a name; "" if there is none. rest is the part of the name's line behind the sum.
func (m *importer) sumOf(ctx context.Context, sums *zipfile.Entry, rest []byte) string {
	found := ""
	err := m.eachSum(ctx, sums, func(line []byte) error {
		if sum, ok := bytes.CutSuffix(line, rest); ok && found == "" {
			found = string(bytes.TrimPrefix(sum, []byte{'\\'}))
		}
		return nil
	})
	if err != nil {
		return "" // it was readable before, so the zip has changed; the caller reports the entry
	}
	return found
}

// eachSum yields the lines of the list of sums, with their ends.
func (m *importer) eachSum(ctx context.Context, sums *zipfile.Entry, yield func(line []byte) error) error {
	r, err := m.open(*sums)
	if err != nil {
		return err
	}
	defer r.Close()
	b := bufio.NewReaderSize(r, maxSumsLine)
	for n := 1; ; n++ {
		line, err := b.ReadSlice('\n')
		switch {
		case errors.Is(err, io.EOF) && len(line) == 0:
			return nil
		case errors.Is(err, io.EOF):
			return refused(sumsEntry, "its last line is cut off")
		case errors.Is(err, bufio.ErrBufferFull):
			return refused(sumsEntry, "line %d has more than %d bytes", n, maxSumsLine)
		case err != nil:
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := yield(line); err != nil {
			return err
		}
	}
}

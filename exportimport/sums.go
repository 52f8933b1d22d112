package exportimport

import (
	"errors"
	"hash/maphash"
	"io"
	"strings"
	"sync"

	"e3/internal/format/zipfile"
)

// errChanged reports a zip that was written to during the import, so that earlier checks are void.
var errChanged = errors.New("the zip has changed while it was read")

// sums makes sure that an entry is the same whenever it is read. The zip is read several times, and the imported
// bytes must be the bytes that were checked and are signed. It takes some 40 bytes for each entry. The seed is
// secret, so nobody can craft other content with the same sum. Objects need no sum: each time they must hash to their
// names. It is safe for concurrent use.
type sums struct {
	seed maphash.Seed

	mu      sync.Mutex
	entries map[int64]uint64 // by the position of the entry in the zip
	closed  bool             // no new entries may be read any more
}

func newSums() *sums { return &sums{seed: maphash.MakeSeed(), entries: map[int64]uint64{}} }

// close makes meet refuse every entry that was not read before.
func (s *sums) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
}

// meet notes the sum of an entry that was read to its end, or compares it with an earlier one.
func (s *sums) meet(e *zipfile.Entry, sum uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	was, known := s.entries[e.Offset]
	if known && was != sum || !known && s.closed {
		return refused(e.Name, "%w", errChanged)
	}
	s.entries[e.Offset] = sum
	return nil
}

// of returns the noted sum of an entry, and the sum of content under the entry's name.
func (s *sums) of(e *zipfile.Entry, content io.Reader) (entry, sum uint64, err error) {
	h := s.hash(e)
	_, err = io.Copy(h, content)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.entries[e.Offset], h.Sum64(), err
}

func (s *sums) hash(e *zipfile.Entry) *maphash.Hash {
	h := new(maphash.Hash)
	h.SetSeed(s.seed)
	h.WriteString(e.Name + "\x00") // never fails
	return h
}

// reader sums an entry while it is read. If the entry has changed, the last Read returns errChanged in place of io.EOF.
func (s *sums) reader(e zipfile.Entry, r io.ReadCloser) io.ReadCloser {
	if strings.HasPrefix(e.Name, "objects/") {
		return r
	}
	return &summing{ReadCloser: r, sums: s, entry: e, hash: s.hash(&e)}
}

type summing struct {
	io.ReadCloser
	sums  *sums
	entry zipfile.Entry
	hash  *maphash.Hash
}

func (r *summing) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	r.hash.Write(p[:n]) // never fails
	if err == io.EOF {
		if fault := r.sums.meet(&r.entry, r.hash.Sum64()); fault != nil {
			return n, fault
		}
	}
	return n, err
}

package exportimport

import (
	"errors"
	"hash/maphash"
	"io"
)

// errChanged reports a zip that was written to while it was imported: what was checked is not what is there.
var errChanged = errors.New("the zip has changed while it was read")

// sums remember the executions of a zip as they were when they were checked, 8 bytes for a record with what lies beside it and
// 8 for each log, in the order of the zip. They are read again when they are taken in, and must be the same. The seed is
// known to nobody, so nobody can make other content for a sum.
type sums struct {
	seed  maphash.Seed
	list  []uint64
	known bool // all of them are in the list
}

// place is where the next sum goes, given how many there were.
func (s *sums) place(n *int) int {
	*n++
	if !s.known {
		s.list = append(s.list, 0)
	}
	return *n - 1
}

// expect puts a sum in its place, or compares it with the one that is there.
func (s *sums) expect(place int, sum uint64) error {
	if !s.known {
		s.list[place] = sum
	} else if place >= len(s.list) || s.list[place] != sum {
		return errChanged
	}
	return nil
}

// summing sums what is read, and asks what that means at the end: an error is what the last Read returns.
type summing struct {
	io.ReadCloser
	hash maphash.Hash
	end  func(sum uint64) error
}

func (s *sums) reader(r io.ReadCloser, end func(sum uint64) error) io.ReadCloser {
	t := &summing{ReadCloser: r, end: end}
	t.hash.SetSeed(s.seed)
	return t
}

func (r *summing) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	r.hash.Write(p[:n]) // never fails
	if err == io.EOF {
		if fault := r.end(r.hash.Sum64()); fault != nil {
			return n, fault
		}
	}
	return n, err
}

package record

import (
	"fmt"

	"e3/internal/format/codec"
)

// ResultsPlan is what a package file says about results: the folder in which each start leaves them, and of what. It
// never leaves the machine.
type ResultsPlan struct {
	Dir string   // relative to the package file, with slashes; "": none
	Of  []string // names and patterns; none: the outputs that no task reads
}

// Results is what a machine knows of a folder in which it has left results: enough to tell later which files still are
// as they were written. It never leaves the machine.
type Results struct {
	Files []ResultFile
	Sets  []ResultSet
}

// ResultSet is a selection of outputs that was left in a folder, and what it was made from.
type ResultSet struct {
	Name   string // the selection
	Source string // hashes of the package and the tree; "": something was kept back, so the next time looks again
}

// ResultFile is a file, link or empty folder that was left in a folder.
type ResultFile struct {
	Path string // in the folder, with slashes
	Set  string // the selection that it belongs to
	Kind ResultKind
	Stat FileStat // as it was after it was written; zero if unknown
	Hash [32]byte // of the content, or of a link's target
	// Next is the content that a write at work is about to put there, nil if none is. After a crash, the file has one of
	// the two.
	Next []byte
}

// ResultKind is the kind of a result. The values are the numbers on disk.
type ResultKind int

// The kinds of results.
const (
	ResultFileKind ResultKind = iota
	ResultExecutable
	ResultLink
	ResultFolder // an empty one
	resultKinds
)

var (
	resultsPlanCodec = codec.New[ResultsPlan]("results plan")
	resultsCodec     = codec.New[Results]("results")
)

// Encode returns the bytes of the plan.
func (p *ResultsPlan) Encode() []byte { return resultsPlanCodec.Encode(p, 128) }

// DecodeResultsPlan reads a plan.
func DecodeResultsPlan(data []byte) (*ResultsPlan, error) { return resultsPlanCodec.Decode(data) }

// Encode returns the bytes of the results.
func (s *Results) Encode() []byte { return resultsCodec.Encode(s, 256+160*len(s.Files)) }

// DecodeResults reads results.
func DecodeResults(data []byte) (*Results, error) { return resultsCodec.Decode(data) }

// Check refuses an unknown kind, and the next content if it is no hash.
func (f *ResultFile) Check() error {
	switch {
	case f.Kind < 0 || f.Kind >= resultKinds:
		return fmt.Errorf("kind %d of a result is unknown", f.Kind)
	case len(f.Next) != 0 && len(f.Next) != len(f.Hash):
		return fmt.Errorf("hash of %d bytes", len(f.Next))
	}
	return nil
}

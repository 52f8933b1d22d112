package record

import (
	"fmt"

	"e3/internal/format/codec"
)

// ResultsPlan is a package file's declaration of results: the folder in which each start leaves them, and the selected
// outputs. It never leaves the machine.
type ResultsPlan struct {
	Dir string   // relative to the package file, with slashes; "": none
	Of  []string // names and patterns; empty: the outputs that no task reads, in place all
	// GitIgnore says that files .gitignore name what is left in place.
	GitIgnore bool
}

// Results is a machine's record of a folder in which it has left results. It tells later which of the files are
// unchanged. It never leaves the machine.
type Results struct {
	Files   []ResultFile
	Sets    []ResultSet
	Ignored []IgnoredLine
}

// IgnoredLine is a line that was added to the file .gitignore of a folder.
type IgnoredLine struct {
	Folder string // in the folder of the results; "." for itself
	Line   string
}

// ResultSet is a selection of outputs that was left in a folder, and the source of these files.
type ResultSet struct {
	Name   string // the selection
	Source string // hashes of the package and the tree; "": a file was held back, so the next start compares again
}

// ResultFile is a file, link or empty folder that was left in a folder.
type ResultFile struct {
	Path string // in the folder, with slashes
	Set  string // the selection to which it belongs
	Kind ResultKind
	Stat FileStat // state after it was written; zero if unknown
	Hash [32]byte // hash of the content, or of a link's target
	// Next is the content that a write in progress is about to put there; nil if there is no such write. After a crash,
	// the file has the old or this content.
	Next []byte
}

// ResultKind is the kind of a result. The values are the numbers on disk.
type ResultKind int

// The kinds of results.
const (
	ResultFileKind ResultKind = iota
	ResultExecutable
	ResultLink
	ResultFolder // an empty folder
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

// Check refuses an unknown kind, and a next content that is no hash.
func (f *ResultFile) Check() error {
	switch {
	case f.Kind < 0 || f.Kind >= resultKinds:
		return fmt.Errorf("kind %d of a result is unknown", f.Kind)
	case len(f.Next) != 0 && len(f.Next) != len(f.Hash):
		return fmt.Errorf("hash of %d bytes", len(f.Next))
	}
	return nil
}

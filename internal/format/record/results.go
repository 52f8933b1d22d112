package record

import "e3/internal/format/beast2"

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
	resultsPlanSchema = newSchema("results plan", func() beast2.Type {
		return beast2.Struct(beast2.F("dir", beast2.String), beast2.F("of", beast2.Array(beast2.String)))
	})
	resultsSchema = newSchema("results", func() beast2.Type {
		str, integer := beast2.String, beast2.Integer
		return beast2.Struct(
			beast2.F("files", beast2.Array(beast2.Struct(beast2.F("path", str), beast2.F("set", str), beast2.F("kind", integer),
				beast2.F("stat", fileStatType()), beast2.F("hash", beast2.Blob), beast2.F("next", beast2.Blob)))),
			beast2.F("sets", beast2.Array(beast2.Struct(beast2.F("name", str), beast2.F("source", str)))))
	})
)

// Encode returns the bytes of the plan.
func (p *ResultsPlan) Encode() []byte {
	return appendStrings(beast2.AppendString(resultsPlanSchema.begin(128), p.Dir), p.Of)
}

// DecodeResultsPlan reads a plan.
func DecodeResultsPlan(data []byte) (*ResultsPlan, error) {
	r, err := resultsPlanSchema.open(data)
	if err != nil {
		return nil, err
	}
	p := &ResultsPlan{Dir: r.String(), Of: readStrings(r)}
	return p, resultsPlanSchema.done(r)
}

// Encode returns the bytes of the results.
func (s *Results) Encode() []byte {
	b := resultsSchema.begin(256 + 160*len(s.Files))
	b = beast2.AppendVarint(beast2.AppendInline(b), uint64(len(s.Files)))
	for i := range s.Files {
		f := &s.Files[i]
		b = beast2.AppendString(beast2.AppendString(b, f.Path), f.Set)
		b = appendFileStat(beast2.AppendInteger(b, int64(f.Kind)), f.Stat)
		b = beast2.AppendBlob(beast2.AppendBlob(b, f.Hash[:]), f.Next)
	}
	b = beast2.AppendVarint(beast2.AppendInline(b), uint64(len(s.Sets)))
	for _, set := range s.Sets {
		b = beast2.AppendString(beast2.AppendString(b, set.Name), set.Source)
	}
	return b
}

// DecodeResults reads results.
func DecodeResults(data []byte) (*Results, error) {
	r, err := resultsSchema.open(data)
	if err != nil {
		return nil, err
	}
	s := &Results{}
	r.Inline()
	s.Files = make([]ResultFile, r.Count(8))
	for i := range s.Files {
		f := &s.Files[i]
		f.Path, f.Set = r.String(), r.String()
		at := r.Offset()
		if f.Kind = ResultKind(r.Integer()); f.Kind < 0 || f.Kind >= resultKinds {
			r.Failf(at, "kind %d of a result is unknown", f.Kind)
		}
		f.Stat = readFileStat(r)
		at = r.Offset()
		if h := r.Blob(); len(h) == len(f.Hash) {
			copy(f.Hash[:], h)
		} else {
			r.Failf(at, "hash of %d bytes", len(h))
		}
		at = r.Offset()
		if h := r.Blob(); len(h) == len(f.Hash) {
			f.Next = append([]byte(nil), h...)
		} else if len(h) != 0 {
			r.Failf(at, "hash of %d bytes", len(h))
		}
	}
	r.Inline()
	s.Sets = make([]ResultSet, r.Count(2))
	for i := range s.Sets {
		s.Sets[i] = ResultSet{Name: r.String(), Source: r.String()}
	}
	return s, resultsSchema.done(r)
}

package record

import (
	"time"

	"e3/internal/format/beast2"
)

// Link is a machine's record of a workspace that was deployed from a package file. It holds the place of the file and
// the state of its inputs when they were last read, so that only changed files are read again. It never leaves the
// machine.
type Link struct {
	// Home is the folder of the repository when the link was written. File is relative to it, or the absolute path of
	// a package file outside. Links of machines that share a repository have no home.
	Home    string
	Room    string // the room, given outside of the file, with which Package was built; "" if none was
	Images  string // what the references to images of the file led to: a line for each; "" without images
	File    string
	Stat    FileStat
	Package string   // hash of the package object built from it
	Set     []string // inputs that "e3 set" has unlinked
	Inputs  []LinkInput
}

// LinkInput is one linked input. Values are part of the package file itself and
// are not linked.
type LinkInput struct {
	Name     string
	Source   InputSource
	Location string // relative to the package file: path or pattern
	Leaf     Leaf   // the dataset that was stored
	Files    []LinkFile

	// Linked folders and hidden files that a pattern leaves out, for people. They are not stored; each scan finds them.
	Passed, Hidden []string
}

// LinkFile is a file of an input: Path is relative to the package file for FromFile, to the
// input's directory otherwise.
type LinkFile struct {
	Path       string
	Stat       FileStat
	Hash       [32]byte
	Executable bool
}

// FileStat identifies the state of a file: an unchanged file has the same.
type FileStat struct {
	Size       int64
	ModTime    int64 // ns
	ChangeTime int64 // ns
	Inode      int64
	// Seen is the time at which the content was read, ns. A later change within the same tick of the file system's
	// clock would not change the times, so these are evidence only if they are older than Seen (host/stamp).
	Seen int64
}

func fileStatType() beast2.Type {
	integer := beast2.Integer
	return beast2.Struct(beast2.F("size", integer), beast2.F("mtimeNs", integer), beast2.F("ctimeNs", integer),
		beast2.F("inode", integer), beast2.F("seenNs", integer))
}

var linkSchema = newSchema("link", func() beast2.Type {
	str := beast2.String
	file := beast2.Struct(beast2.F("path", str), beast2.F("stat", fileStatType()), beast2.F("hash", beast2.Blob),
		beast2.F("executable", beast2.Boolean))
	return beast2.Struct(
		beast2.F("home", str),
		beast2.F("room", str),
		beast2.F("images", str),
		beast2.F("file", str),
		beast2.F("stat", fileStatType()),
		beast2.F("package", str),
		beast2.F("set", beast2.Array(str)),
		beast2.F("inputs", beast2.Array(beast2.Struct(
			beast2.F("name", str),
			beast2.F("source", sourceType()),
			beast2.F("location", str),
			beast2.F("leaf", leafType()),
			beast2.F("files", beast2.Array(file))))))
})

func appendFileStat(b []byte, s FileStat) []byte {
	for _, n := range [...]int64{s.Size, s.ModTime, s.ChangeTime, s.Inode, s.Seen} {
		b = beast2.AppendInteger(b, n)
	}
	return b
}

func readFileStat(r *beast2.Reader) FileStat {
	return FileStat{Size: r.Integer(), ModTime: r.Integer(), ChangeTime: r.Integer(), Inode: r.Integer(), Seen: r.Integer()}
}

// Encode returns the bytes of the link.
func (l *Link) Encode() []byte {
	b := linkSchema.begin(256 + 160*len(l.Inputs))
	for _, s := range []string{l.Home, l.Room, l.Images, l.File} {
		b = beast2.AppendString(b, s)
	}
	b = appendStrings(beast2.AppendString(appendFileStat(b, l.Stat), l.Package), l.Set)
	b = beast2.AppendVarint(beast2.AppendInline(b), uint64(len(l.Inputs)))
	for i := range l.Inputs {
		in := &l.Inputs[i]
		b = beast2.AppendString(b, in.Name)
		b = beast2.AppendVarint(b, uint64(in.Source))
		b = beast2.AppendString(b, in.Location)
		b = appendLeaf(b, in.Leaf)
		b = beast2.AppendVarint(beast2.AppendInline(b), uint64(len(in.Files)))
		for j := range in.Files {
			f := &in.Files[j]
			b = appendFileStat(beast2.AppendString(b, f.Path), f.Stat)
			b = beast2.AppendBoolean(beast2.AppendBlob(b, f.Hash[:]), f.Executable)
		}
	}
	return b
}

// DecodeLink reads a link.
func DecodeLink(data []byte) (*Link, error) {
	r, err := linkSchema.open(data)
	if err != nil {
		return nil, err
	}
	l := &Link{
		Home: r.String(), Room: r.String(), Images: r.String(), File: r.String(), Stat: readFileStat(r), Package: r.String(),
		Set: readStrings(r),
	}
	r.Inline()
	l.Inputs = make([]LinkInput, r.Count(4))
	for i := range l.Inputs {
		in := &l.Inputs[i]
		in.Name, in.Source, in.Location, in.Leaf = r.String(), InputSource(r.Tag(sources)), r.String(), readLeaf(r)
		r.Inline()
		in.Files = make([]LinkFile, r.Count(8))
		for j := range in.Files {
			f := &in.Files[j]
			f.Path, f.Stat = r.String(), readFileStat(r)
			at := r.Offset()
			if h := r.Blob(); len(h) == len(f.Hash) {
				copy(f.Hash[:], h)
			} else {
				r.Failf(at, "hash of %d bytes", len(h))
			}
			f.Executable = r.Boolean()
		}
	}
	return l, linkSchema.done(r)
}

// Proof is the evidence that the results of a completed run are valid: the repository's generation did not change while
// it was made, and every object that it names was present.
type Proof struct {
	RunID      string
	Package    string // hash of the package object
	Inputs     string // hash of the inputs node
	Tasks      string // hash of the tasks node
	Generation string
	Shards     []int64 // mtime of each object folder, then of the folder of executions, ns, when what lies in them was last checked
	CheckedAt  int64   // ns
	Durable    bool    // its objects and records would survive power loss

	// Signature is set where executions must be signed. It is that of a process that has found the results, and covers
	// them; the remaining fields come from the latest run.
	Signature *Signature
}

var proofSchema = newSchema("proof", func() beast2.Type {
	str := beast2.String
	return beast2.Struct(beast2.F("runId", str), beast2.F("package", str), beast2.F("inputs", str), beast2.F("tasks", str),
		beast2.F("generation", str), beast2.F("shards", beast2.Array(beast2.Integer)), beast2.F("checkedAtNs", beast2.Integer),
		beast2.F("durable", beast2.Boolean), beast2.F("signature", beast2.Option(signatureType())))
})

// Encode returns the bytes of the proof.
func (p *Proof) Encode() []byte {
	b := proofSchema.begin(512 + 10*len(p.Shards))
	for _, s := range []string{p.RunID, p.Package, p.Inputs, p.Tasks, p.Generation} {
		b = beast2.AppendString(b, s)
	}
	b = beast2.AppendVarint(beast2.AppendInline(b), uint64(len(p.Shards)))
	for _, t := range p.Shards {
		b = beast2.AppendInteger(b, t)
	}
	b = beast2.AppendBoolean(beast2.AppendInteger(b, p.CheckedAt), p.Durable)
	if p.Signature == nil {
		return append(b, 0)
	}
	return p.Signature.append(append(b, 1))
}

// DecodeProof reads a proof.
func DecodeProof(data []byte) (*Proof, error) {
	r, err := proofSchema.open(data)
	if err != nil {
		return nil, err
	}
	p := &Proof{RunID: r.String(), Package: r.String(), Inputs: r.String(), Tasks: r.String(), Generation: r.String()}
	r.Inline()
	p.Shards = make([]int64, r.Count(1))
	for i := range p.Shards {
		p.Shards[i] = r.Integer()
	}
	p.CheckedAt, p.Durable = r.Integer(), r.Boolean()
	if r.Tag(2) == 1 {
		s := readSignature(r)
		p.Signature = &s
	}
	return p, proofSchema.done(r)
}

// Durations holds the latest duration of each task. The scheduler uses them for estimates.
type Durations map[string]time.Duration

var durationsSchema = newSchema("durations", func() beast2.Type { return beast2.Dict(beast2.String, beast2.Integer) })

// Encode returns the bytes of the durations, given the names in the order to write.
func (d Durations) Encode(names []string) []byte {
	b := durationsSchema.begin(16 + 24*len(names))
	b = beast2.AppendVarint(beast2.AppendInline(b), uint64(len(names)))
	for _, name := range names {
		b = beast2.AppendInteger(beast2.AppendString(b, name), d[name].Milliseconds())
	}
	return b
}

// DecodeDurations reads durations.
func DecodeDurations(data []byte) (Durations, error) {
	r, err := durationsSchema.open(data)
	if err != nil {
		return nil, err
	}
	r.Inline()
	n := r.Count(2)
	d := make(Durations, n)
	for i := 0; i < n && r.Err() == nil; i++ {
		name := r.String()
		d[name] = readMillis(r)
	}
	return d, durationsSchema.done(r)
}

package record

import (
	"math"
	"time"

	"e3/internal/format/beast2"
	"e3/internal/format/codec"
)

// Link is a machine's record of a workspace that was deployed from a package file. It holds the place of the file and
// the state of its inputs when they were last read, so that only changed files are read again. It never leaves the
// machine.
type Link struct {
	// Home is the folder of the repository when the link was written. File is relative to it, or the absolute path of
	// a package file outside. Links of machines that share a repository have no home.
	Home    string
	Room    string // the room with which Package was built, if it was given outside of the file; else ""
	Images  string // the results of the file's references to images, a line for each; "" without images
	File    string
	Stat    FileStat
	Package string   // hash of the package object built from the file
	Set     []string // inputs that "e3 set" has unlinked
	Inputs  []LinkInput
}

// LinkInput is one linked input. Values are part of the package file itself and
// are not linked.
type LinkInput struct {
	Name     string
	Source   InputSource
	Location string   // relative to the package file: path or pattern; or a URL
	Columns  []string // of a sheet: the columns that hold paths
	Except   []string // patterns of files that a directory or pattern leaves out; see manifest.Except
	Leaf     Leaf     // the stored dataset
	Files    []LinkFile
	Folder   []byte // of a directory: what tree.Follow remembers of it, instead of Files
	Sum      string // of a URL: the SHA-256 that the package file demands; ""
	Seen     string // of a URL: what the server said of Leaf's content, see package fetch

	// Linked folders and hidden files that a pattern leaves out, and what is left out as usual, for people. They are not
	// stored; each scan finds them.
	Passed, Hidden, Usual []string `beast2:"-"`
}

// LinkFile is a file of an input: Path is relative to the package file for FromFile, otherwise to the directory that the
// files become.
type LinkFile struct {
	Path       string
	Stat       FileStat
	Hash       [32]byte
	Executable bool
}

// FileStat identifies the state of a file: it stays the same while the file is unchanged.
type FileStat struct {
	Size       int64
	ModTime    int64 `beast2:"mtimeNs"`
	ChangeTime int64 `beast2:"ctimeNs"`
	Inode      int64
	// Seen is the time at which the content was read, ns. A later change within the same tick of the file system's
	// clock would leave the times as they are. So the times are evidence only if they are older than Seen (host/stamp).
	Seen int64 `beast2:"seenNs"`
}

var linkCodec = codec.New[Link]("link")

// Encode returns the bytes of the link.
func (l *Link) Encode() []byte {
	room := 256 + 160*len(l.Inputs)
	for i := range l.Inputs {
		room += len(l.Inputs[i].Folder)
	}
	return linkCodec.Encode(l, room)
}

// DecodeLink reads a link.
func DecodeLink(data []byte) (*Link, error) { return linkCodec.Decode(data) }

// Proof is the evidence that the answers of a run are valid: the repository's generation did not change while it was
// made, and every object that it names was present.
type Proof struct {
	RunID      string
	Package    string // hash of the package object
	Inputs     string // hash of the inputs node
	Tasks      string // hash of the tasks node
	Generation string
	// Partial says that the run has no answer for some tasks of the package. The others are those of the run's record,
	// except those in Open: what the record names of these is a failure, or proves nothing.
	Partial bool
	Open    []string
	// mtimes, in ns, of the object folders, then of the folder of executions, at the latest check of their contents
	Shards    []int64
	CheckedAt int64 `beast2:"checkedAtNs"`
	Durable   bool  // its objects and records survive power loss

	// Signature is set where executions must be signed. It covers the results, and belongs to a process that has found
	// them; the remaining fields come from the latest run.
	Signature *Signature
}

var proofCodec = codec.New[Proof]("proof")

// Encode returns the bytes of the proof.
func (p *Proof) Encode() []byte { return proofCodec.Encode(p, 512+10*len(p.Shards)+32*len(p.Open)) }

// DecodeProof reads a proof.
func DecodeProof(data []byte) (*Proof, error) { return proofCodec.Decode(data) }

// Durations holds the latest duration of each task. The scheduler uses them for estimates.
type Durations map[string]time.Duration

var durationsCodec = codec.New[ordered]("durations")

// ordered are durations with the order of their names.
type ordered struct {
	durations Durations
	names     []string
}

func (o *ordered) BeastType() beast2.Type { return beast2.Dict(beast2.String, beast2.Integer) }

func (o *ordered) AppendBeast(b []byte) []byte {
	b = beast2.AppendVarint(beast2.AppendInline(b), uint64(len(o.names)))
	for _, name := range o.names {
		b = beast2.AppendInteger(beast2.AppendString(b, name), o.durations[name].Milliseconds())
	}
	return b
}

func (o *ordered) ReadBeast(r *codec.Reader) {
	r.Inline()
	n := r.Count(2)
	o.durations = make(Durations, n)
	for i := 0; i < n && r.Err() == nil; i++ {
		name := r.String()
		o.durations[name] = time.Duration(readBetween(r, "duration", 0, math.MaxInt64/int64(time.Millisecond))) * time.Millisecond
	}
}

// Encode returns the bytes of the durations, given the names in the order to write.
func (d Durations) Encode(names []string) []byte {
	return durationsCodec.Encode(&ordered{d, names}, 16+24*len(names))
}

// DecodeDurations reads durations.
func DecodeDurations(data []byte) (Durations, error) {
	o, err := durationsCodec.Decode(data)
	if o == nil {
		return nil, err
	}
	return o.durations, err
}

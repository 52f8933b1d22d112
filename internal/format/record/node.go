package record

import (
	"fmt"
	"slices"
	"strings"

	"e3/internal/format/beast2"
	"e3/internal/format/codec"
)

// LeafKind is the kind of an entry in a workspace's tree. The values are the case tags on disk.
type LeafKind int

// The kinds of entries of a workspace node.
const (
	LeafDir        LeafKind = iota // a directory dataset: hash of its directory object
	LeafFile                       // a file dataset
	LeafNode                       // an inner node of the workspace's own tree
	LeafUnassigned                 // declared, holds nothing yet
	LeafValue                      // a value dataset: hash of its beast2 object
)

func (k LeafKind) String() string {
	switch k {
	case LeafDir:
		return "directory"
	case LeafFile:
		return "file"
	case LeafNode:
		return "node"
	case LeafUnassigned:
		return "unassigned"
	case LeafValue:
		return "value"
	}
	return fmt.Sprintf("leaf kind(%d)", int(k))
}

// MarshalText gives the kind its word in answers.
func (k LeafKind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// Leaf is one entry of a workspace node: a dataset, an inner node or nothing yet.
type Leaf struct {
	Kind       LeafKind `json:"kind"`
	Hash       string   `json:"hash,omitempty"`       // absent: unassigned
	Size       int64    `json:"-"`                    // LeafFile
	Executable bool     `json:"executable,omitempty"` // of a file
}

// NodeEntry is a named Leaf.
type NodeEntry struct {
	Name string
	Leaf
}

// Node is one level of a workspace's tree, in key order. The root has the entries
// "inputs" and "tasks"; below them the leaves have the package's names.
type Node []NodeEntry

// Get finds a name by binary search.
func (n Node) Get(name string) (Leaf, bool) {
	i, ok := n.find(name)
	if !ok {
		return Leaf{}, false
	}
	return n[i].Leaf, true
}

func (n Node) find(name string) (int, bool) {
	return slices.BinarySearchFunc(n, name, func(e NodeEntry, s string) int { return beast2.CompareStrings(e.Name, s) })
}

// Set replaces or inserts an entry and returns the node; it may change n in place.
func (n Node) Set(name string, leaf Leaf) Node {
	i, ok := n.find(name)
	if ok {
		n[i].Leaf = leaf
		return n
	}
	return slices.Insert(n, i, NodeEntry{Name: name, Leaf: leaf})
}

// Sort puts entries that were appended in any order into key order.
func (n Node) Sort() {
	slices.SortFunc(n, func(a, b NodeEntry) int { return beast2.CompareStrings(a.Name, b.Name) })
}

// BeastType, AppendBeast and ReadBeast make a Leaf part of a record.
func (l *Leaf) BeastType() beast2.Type {
	return beast2.Variant(
		beast2.F("dir", beast2.String),
		beast2.F("file", beast2.Struct(
			beast2.F("hash", beast2.String), beast2.F("size", beast2.Integer), beast2.F("executable", beast2.Boolean))),
		beast2.F("node", beast2.String),
		beast2.F("unassigned", beast2.Null),
		beast2.F("value", beast2.String))
}

func (l *Leaf) AppendBeast(b []byte) []byte {
	b = beast2.AppendVarint(b, uint64(l.Kind))
	switch l.Kind {
	case LeafUnassigned:
		return b
	case LeafFile:
		b = beast2.AppendInteger(beast2.AppendString(b, l.Hash), l.Size)
		return beast2.AppendBoolean(b, l.Executable)
	}
	return beast2.AppendString(b, l.Hash)
}

func (l *Leaf) ReadBeast(r *codec.Reader) {
	l.Kind = LeafKind(r.Tag(5))
	if l.Kind == LeafUnassigned {
		return
	}
	at := r.Offset()
	l.Hash = r.String()
	if !isHash(l.Hash) {
		r.Failf(at, "%q is not an object hash", l.Hash)
	}
	if l.Kind == LeafFile {
		l.Size, l.Executable = r.Integer(), r.Boolean()
	}
}

func isHash(s string) bool {
	return len(s) == 64 && strings.Trim(s, "0123456789abcdef") == ""
}

var nodes = codec.New[Node]("workspace node")

// BeastType, AppendBeast and ReadBeast make a Node a record. Names out of key order are refused.
func (n *Node) BeastType() beast2.Type { return beast2.Dict(beast2.String, new(Leaf).BeastType()) }

func (n *Node) AppendBeast(b []byte) []byte {
	b = beast2.AppendVarint(beast2.AppendInline(b), uint64(len(*n)))
	for i := range *n {
		e := &(*n)[i]
		b = e.AppendBeast(beast2.AppendString(b, e.Name))
	}
	return b
}

func (n *Node) ReadBeast(r *codec.Reader) {
	r.Inline()
	count := r.Count(2)
	*n = make(Node, 0, count)
	eachEntry(r, count, func(e *NodeEntry) { *n = append(*n, *e) })
}

// Encode returns the bytes of the node object.
func (n Node) Encode() []byte { return nodes.Encode(&n, 16+96*len(n)) }

// DecodeNode reads a node object.
func DecodeNode(data []byte) (Node, error) {
	n, err := nodes.Decode(data)
	if n == nil {
		return nil, err
	}
	return *n, err
}

// EachEntry is DecodeNode for callers that need no Node, which can take fifteen times its bytes in memory. On an error
// it has called visit for the entries before the fault.
func EachEntry(data []byte, visit func(*NodeEntry)) error {
	r, err := nodes.Open(data)
	if err != nil {
		return err
	}
	r.Inline()
	eachEntry(r, r.Count(2), visit)
	return nodes.Done(r)
}

func eachEntry(r *codec.Reader, count int, visit func(*NodeEntry)) {
	last := ""
	for i := range count {
		at := r.Offset()
		e := NodeEntry{Name: r.String()}
		e.ReadBeast(r)
		if i > 0 && beast2.CompareStrings(last, e.Name) >= 0 {
			r.Failf(at, "name %q is out of order", e.Name)
		}
		if r.Err() != nil {
			return
		}
		visit(&e)
		last = e.Name
	}
}

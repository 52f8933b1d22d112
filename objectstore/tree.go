package objectstore

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"e3/internal/format/beast2"
	"e3/internal/format/digest"
)

// A Tree is one level of a directory: its entries in beast2 key order (beast2.CompareStrings). It is stored as a
// directory object; its subdirectories are objects of their own, and an empty directory is an object without entries.
type Tree []TreeEntry

// EntryKind says what a TreeEntry is. The values are the case tags of the directory object.
type EntryKind uint8

const (
	KindDir  EntryKind = iota // a directory: Hash names its Tree
	KindFile                  // a file: Hash, Size, Executable
	KindLink                  // a symbolic link: Target
	kinds
)

// A TreeEntry is one name in a Tree.
type TreeEntry struct {
	Name       string
	Kind       EntryKind
	Hash       Hash   // of a file's bytes or a directory's Tree
	Size       int64  // of a file
	Executable bool   // of a file
	Target     string // of a link: relative, with slashes
}

// treeHeader opens every directory object: the magic and the schema of
//
//	Dict<String, Variant{dir: String, file: Struct{hash: String, size: Integer, executable: Boolean}, link: String}>
//
// by the type tags Dict 5, String 14, Variant 16, Struct 15, Integer 8, Boolean 3. A list of
// fields or cases is a marker 0, a count, then names with types.
const treeHeader = beast2.Magic +
	"\x05\x0e" +
	"\x10\x00\x03" +
	"\x03dir\x0e" +
	"\x04file\x0f\x00\x03" + "\x04hash\x0e" + "\x04size\x08" + "\x0aexecutable\x03" +
	"\x04link\x0e"

const (
	// MaxTreeBytes bounds one directory object: some two million entries.
	MaxTreeBytes = 256 << 20
	// MaxTreeDepth bounds the nesting of directories.
	MaxTreeDepth = 256
	// maxName bounds an entry's name, as every file system does.
	maxName = 1 << 10
	// maxTarget bounds a link's target, as PATH_MAX does.
	maxTarget = 4095
)

// A TreeError reports an entry of a directory that violates the rules of trees.
type TreeError struct {
	Path string // within the tree; "." is its root
	Msg  string
}

func (e *TreeError) Error() string { return fmt.Sprintf("directory entry %q: %s", e.Path, e.Msg) }

// Find returns the entry called name.
func (t Tree) Find(name string) (TreeEntry, bool) {
	i, ok := slices.BinarySearchFunc(t, name, func(e TreeEntry, name string) int {
		return beast2.CompareStrings(e.Name, name)
	})
	if !ok {
		return TreeEntry{}, false
	}
	return t[i], true
}

// check returns what is wrong with an entry by itself, or "".
func (e *TreeEntry) check() string {
	if msg := checkName(e.Name); msg != "" {
		return msg
	}
	switch e.Kind {
	case KindDir:
	case KindFile:
		if e.Size < 0 {
			return "the size is negative"
		}
	case KindLink:
		return checkTarget(e.Target)
	default:
		return fmt.Sprintf("kind %d is unknown", e.Kind)
	}
	return ""
}

func checkName(name string) string {
	switch {
	case name == "":
		return "the name is empty"
	case name == "." || name == "..":
		return "the name is reserved"
	case len(name) > maxName:
		return "the name is too long"
	case strings.IndexByte(name, '/') >= 0:
		return "the name contains a slash"
	case strings.IndexByte(name, 0) >= 0:
		return "the name contains NUL"
	case !utf8.ValidString(name):
		return "the name is not UTF-8"
	}
	return ""
}

// checkTarget returns what is wrong with a link's target, wherever the link is. Whether the target leaves the tree
// depends on the link's place; links checks that.
func checkTarget(target string) string {
	switch {
	case target == "":
		return "the link has no target"
	case len(target) > maxTarget:
		return "the link's target is too long"
	case target[0] == '/':
		return fmt.Sprintf("the link points to %q; only relative links inside the directory can be stored", target)
	case strings.IndexByte(target, 0) >= 0:
		return "the link's target contains NUL"
	case !utf8.ValidString(target):
		return fmt.Sprintf("the link's target %q is not UTF-8", target)
	}
	return ""
}

// EncodeTree returns the directory object of t, whose entries must be valid and in order;
// Sort puts them in order.
func EncodeTree(t Tree) ([]byte, error) {
	size := len(treeHeader) + 12
	for i := range t {
		size += len(t[i].Name) + len(t[i].Target) + digest.TextLen + 16
	}
	b := make([]byte, 0, size)
	b = append(b, treeHeader...)
	b = beast2.AppendInline(b)
	b = beast2.AppendVarint(b, uint64(len(t)))
	for i := range t {
		e := &t[i]
		msg := e.check()
		if msg == "" && i > 0 && beast2.CompareStrings(t[i-1].Name, e.Name) >= 0 {
			msg = fmt.Sprintf("the name does not come after %q", t[i-1].Name)
		}
		if msg != "" {
			return nil, &TreeError{Path: e.Name, Msg: msg}
		}
		b = beast2.AppendString(b, e.Name)
		b = beast2.AppendVarint(b, uint64(e.Kind))
		switch e.Kind {
		case KindDir:
			b = appendHash(b, e.Hash)
		case KindFile:
			b = appendHash(b, e.Hash)
			b = beast2.AppendInteger(b, e.Size)
			b = beast2.AppendBoolean(b, e.Executable)
		case KindLink:
			b = beast2.AppendString(b, e.Target)
		}
	}
	if len(b) > MaxTreeBytes {
		return nil, &TreeError{Path: ".", Msg: fmt.Sprintf("%d entries are too many for one directory", len(t))}
	}
	return b, nil
}

func appendHash(b []byte, h Hash) []byte {
	b = beast2.AppendVarint(b, digest.TextLen)
	b, _ = h.AppendText(b)
	return b
}

// Sort puts the entries in the order that EncodeTree requires.
func (t Tree) Sort() {
	slices.SortFunc(t, func(a, b TreeEntry) int { return beast2.CompareStrings(a.Name, b.Name) })
}

// DecodeTree reads a directory object. It accepts exactly what EncodeTree returns; anything else is an error that
// wraps a *beast2.SyntaxError with the offset. It does not check that links stay inside a tree of several levels;
// code that follows them does, such as CheckoutTree.
func DecodeTree(data []byte) (Tree, error) {
	var t Tree
	err := decodeTree(data, func(n int) { t = make(Tree, 0, n) }, func(e *TreeEntry) { t = append(t, *e) })
	if err != nil {
		return nil, err
	}
	return t, nil
}

// EachEntry is DecodeTree without a Tree in memory: a directory may have millions of entries. Before an error, it has
// called visit for the entries before the error's offset.
func EachEntry(data []byte, visit func(*TreeEntry)) error {
	return decodeTree(data, func(int) {}, visit)
}

// decodeTree calls begin with the number of entries and then visit for each one.
func decodeTree(data []byte, begin func(n int), visit func(*TreeEntry)) error {
	if len(data) > MaxTreeBytes {
		return fmt.Errorf("decode directory object: %d bytes are more than %d", len(data), MaxTreeBytes)
	}
	r := beast2.NewReader(data, 0)
	if !strings.HasPrefix(string(data[:min(len(data), len(treeHeader))]), treeHeader) {
		r.Failf(commonPrefix(data, treeHeader), "not a directory object: the header differs")
	} else {
		r = beast2.NewReader(data, len(treeHeader))
	}
	r.Inline()
	// The shortest entry is a link: a name and a target of one byte each.
	n := r.Count(5)
	begin(n)
	last := ""
	for i := range n {
		at := r.Offset()
		e := TreeEntry{Name: r.String(), Kind: EntryKind(r.Tag(int(kinds)))}
		switch e.Kind {
		case KindDir:
			e.Hash = readHash(r)
		case KindFile:
			e.Hash = readHash(r)
			e.Size = r.Integer()
			e.Executable = r.Boolean()
		case KindLink:
			e.Target = r.String()
		}
		if r.Err() == nil {
			if msg := e.check(); msg != "" {
				r.Failf(at, "entry %q: %s", e.Name, msg)
			} else if i > 0 && beast2.CompareStrings(last, e.Name) >= 0 {
				r.Failf(at, "entry %q is out of order", e.Name)
			}
		}
		if r.Err() != nil {
			break
		}
		visit(&e)
		last = e.Name
	}
	if err := r.Done(); err != nil {
		return fmt.Errorf("decode directory object: %w", err)
	}
	return nil
}

// commonPrefix returns the length of the common prefix of data and want.
func commonPrefix(data []byte, want string) int {
	n := 0
	for n < len(data) && n < len(want) && data[n] == want[n] {
		n++
	}
	return n
}

func readHash(r *beast2.Reader) Hash {
	at := r.Offset()
	text := r.String()
	if r.Err() != nil {
		return Hash{}
	}
	h, err := ParseHash(text)
	if err != nil {
		r.Failf(at, "%s", err)
	}
	return h
}

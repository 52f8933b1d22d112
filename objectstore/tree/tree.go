// Package tree keeps directories of files in an objectstore.Store: each level of a directory is an object of its own, a
// directory object, that names the files and the directories in it. [Put] stores a directory, [Checkout] writes one out, and
// [Walk], [Lookup] and [Diff] read it. doc/format.md has the bytes.
package tree

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"e3/internal/format/beast2"
	"e3/internal/format/digest"
	"e3/objectstore"
)

// Entries are one level of a directory, in beast2 key order (beast2.CompareStrings). They are stored as a directory
// object; subdirectories are objects of their own, and an empty directory is an object without entries.
type Entries []Entry

// Kind says what an Entry is. The values are the case tags of the directory object.
type Kind uint8

const (
	KindDir  Kind = iota // a directory: Hash names its directory object
	KindFile             // a file: Hash, Size, Executable
	KindLink             // a symbolic link: Target
	kinds
)

// A Entry is one name in a directory.
type Entry struct {
	Name       string
	Kind       Kind
	Hash       objectstore.Hash // hash of a file's bytes or of a directory object
	Size       int64            // of a file
	Executable bool             // of a file
	Target     string           // target of a link: relative, with slashes
}

// header opens every directory object: the magic and the schema of
//
//	Dict<String, Variant{dir: String, file: Struct{hash: String, size: Integer, executable: Boolean}, link: String}>
//
// by the type tags Dict 5, String 14, Variant 16, Struct 15, Integer 8, Boolean 3. A list of
// fields or cases is a marker 0, a count, then names with types.
const header = beast2.Magic +
	"\x05\x0e" +
	"\x10\x00\x03" +
	"\x03dir\x0e" +
	"\x04file\x0f\x00\x03" + "\x04hash\x0e" + "\x04size\x08" + "\x0aexecutable\x03" +
	"\x04link\x0e"

const (
	// MaxBytes bounds one directory object: some two million entries.
	MaxBytes = 256 << 20
	// MaxDepth bounds the nesting of directories.
	MaxDepth = 256
	// maxName bounds an entry's name, as every file system does.
	maxName = 1 << 10
	// maxTarget bounds a link's target, as PATH_MAX does.
	maxTarget = 4095
)

// An Error reports an entry of a directory that violates the rules of trees.
type Error struct {
	Path string // within the tree; "." is its root
	Msg  string
	Link bool // the fault is the target of the entry, a symbolic link
}

func (e *Error) Error() string { return fmt.Sprintf("directory entry %q: %s", e.Path, e.Msg) }

// Find returns the entry called name.
func (t Entries) Find(name string) (Entry, bool) {
	i, ok := slices.BinarySearchFunc(t, name, func(e Entry, name string) int {
		return beast2.CompareStrings(e.Name, name)
	})
	if !ok {
		return Entry{}, false
	}
	return t[i], true
}

// check returns what is wrong with an entry by itself, or "".
func (e *Entry) check() string {
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

// checkTarget returns what is wrong with a link's target in any place. Whether the target leaves the tree depends on
// the link's place; links checks that.
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

// Encode returns the directory object of t, whose entries must be valid and in order;
// Sort puts them in order.
func Encode(t Entries) ([]byte, error) {
	size := len(header) + 12
	for i := range t {
		size += len(t[i].Name) + len(t[i].Target) + digest.TextLen + 16
	}
	b := make([]byte, 0, size)
	b = append(b, header...)
	b = beast2.AppendInline(b)
	b = beast2.AppendVarint(b, uint64(len(t)))
	for i := range t {
		e := &t[i]
		msg := e.check()
		if msg == "" && i > 0 && beast2.CompareStrings(t[i-1].Name, e.Name) >= 0 {
			msg = fmt.Sprintf("the name does not come after %q", t[i-1].Name)
		}
		if msg != "" {
			return nil, &Error{Path: e.Name, Msg: msg}
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
	if len(b) > MaxBytes {
		return nil, &Error{Path: ".", Msg: fmt.Sprintf("%d entries are too many for one directory", len(t))}
	}
	return b, nil
}

func appendHash(b []byte, h objectstore.Hash) []byte {
	b = beast2.AppendVarint(b, digest.TextLen)
	b, _ = h.AppendText(b)
	return b
}

// Sort puts the entries in the order that Encode requires.
func (t Entries) Sort() {
	slices.SortFunc(t, func(a, b Entry) int { return beast2.CompareStrings(a.Name, b.Name) })
}

// Decode reads a directory object. It accepts exactly what Encode returns; anything else is an error that
// wraps a *beast2.SyntaxError with the offset. It does not check that links stay inside a tree of several levels;
// code that follows them does, such as Checkout.
func Decode(data []byte) (Entries, error) {
	var t Entries
	err := decode(data, func(n int) { t = make(Entries, 0, n) }, func(e *Entry) { t = append(t, *e) })
	if err != nil {
		return nil, err
	}
	return t, nil
}

// EachEntry is Decode without Entries in memory: a directory may have millions of entries. Before an error, it has
// called visit for the entries before the error's offset.
func EachEntry(data []byte, visit func(*Entry)) error {
	return decode(data, func(int) {}, visit)
}

// decode calls begin with the number of entries, and then visit for each entry.
func decode(data []byte, begin func(n int), visit func(*Entry)) error {
	if len(data) > MaxBytes {
		return fmt.Errorf("decode directory object: %d bytes are more than %d", len(data), MaxBytes)
	}
	r := beast2.NewReader(data, 0)
	if !strings.HasPrefix(string(data[:min(len(data), len(header))]), header) {
		r.Failf(commonPrefix(data, header), "not a directory object: the header differs")
	} else {
		r = beast2.NewReader(data, len(header))
	}
	r.Inline()
	// The shortest entry is a link: a name and a target of one byte each.
	n := r.Count(5)
	begin(n)
	last := ""
	for i := range n {
		at := r.Offset()
		e := Entry{Name: r.String(), Kind: Kind(r.Tag(int(kinds)))}
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

func readHash(r *beast2.Reader) objectstore.Hash {
	at := r.Offset()
	text := r.Blob()
	if r.Err() != nil {
		return objectstore.Hash{}
	}
	var h objectstore.Hash
	if err := h.UnmarshalText(text); err != nil {
		r.Failf(at, "%s", err)
	}
	return h
}

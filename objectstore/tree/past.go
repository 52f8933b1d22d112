package tree

import (
	"context"
	"encoding/binary"

	"e3/internal/format/beast2"
	"e3/internal/host/beneath"
	"e3/internal/host/stamp"
	"e3/objectstore"
)

// A Past is the state of a directory as an earlier Follow left it.
//
// Its memory is the memory of the root: the hash of the directory object, then its entries in tree order. An entry is a
// byte with its kind, its name, and of a file a keptInput, of a link the target, of a directory its memory. Texts and
// memories have their length, a varint, before them. Nothing in it is trusted to have this form.
type Past struct {
	Memory []byte // nil if the directory was never stored
	Seen   int64  // the present time, in nanoseconds since 1970
	// Trusts, if set, is asked whether a file's content may be referred to although nobody reads it again. Without it,
	// the memory vouches that the files are in the store.
	Trusts func(objectstore.Hash) bool
}

// Follow is Put for a directory that is stored again and again: a file that looks as it did is not read again, and a
// directory in which nothing differs is not made again. It returns the memory for the next time too, which is that of past
// if nothing differs.
func Follow(ctx context.Context, s objectstore.Store, dir string, past Past, o PutOptions) (objectstore.Hash, []byte, Stats, error) {
	root, err := openRoot(dir)
	if err != nil {
		return objectstore.Hash{}, nil, Stats{}, err
	}
	top, stats, err := put(ctx, s, root, o, &past)
	if err != nil {
		return objectstore.Hash{}, nil, Stats{}, err
	}
	return top.hash, top.memory, stats, nil
}

// A pastEntry is an entry in a memory.
type pastEntry struct {
	kind Kind
	name []byte // nil: there is no such entry
	body []byte // a keptInput, a target, or a memory
	all  []byte
}

// inputLen is the length of a keptInput: the hash, a byte that says whether the file is executable, and five numbers: size,
// inode, the times of content and status, and the time when they were seen.
const inputLen = len(objectstore.Hash{}) + 1 + 5*8

// pastEntries returns the entries of a memory.
func pastEntries(memory []byte) []byte {
	return memory[min(len(memory), len(objectstore.Hash{})):]
}

// nextPast splits the first entry off entries. After the last entry, or at bytes that are none, it returns one without a
// name.
func nextPast(entries []byte) (e pastEntry, rest []byte) {
	if len(entries) == 0 {
		return pastEntry{}, nil
	}
	e.kind, rest = Kind(entries[0]), entries[1:]
	if e.name, rest = pastText(rest); len(e.name) == 0 {
		return pastEntry{}, nil
	}
	switch {
	case e.kind != KindFile:
		if e.body, rest = pastText(rest); e.body == nil {
			return pastEntry{}, nil
		}
	case len(rest) < inputLen:
		return pastEntry{}, nil
	default:
		e.body, rest = rest[:inputLen:inputLen], rest[inputLen:]
	}
	e.all = entries[: len(entries)-len(rest) : len(entries)-len(rest)]
	return e, rest
}

// pastText splits a text with its length off b; the text is nil if b does not begin with one.
func pastText(b []byte) (text, rest []byte) {
	n, width := binary.Uvarint(b)
	if width <= 0 || n > uint64(len(b)-width) {
		return nil, nil
	}
	end := width + int(n)
	return b[width:end:end], b[end:]
}

// A pastCursor finds entries in a memory by names in tree order.
type pastCursor struct {
	at      pastEntry
	rest    []byte
	skipped bool // an entry was not asked for
}

func cursorOf(memory []byte) pastCursor {
	at, rest := nextPast(pastEntries(memory))
	return pastCursor{at: at, rest: rest}
}

func (c *pastCursor) find(name string) (found pastEntry) {
	for c.at.name != nil {
		same := string(c.at.name) == name
		if !same && beast2.CompareStrings(string(c.at.name), name) > 0 {
			break
		}
		if same {
			found = c.at
		}
		c.skipped = c.skipped || !same
		if c.at, c.rest = nextPast(c.rest); same {
			break
		}
	}
	return found
}

// whole tells whether every entry was found.
func (c *pastCursor) whole() bool { return !c.skipped && c.at.name == nil }

// proves returns the content that a file still has, if a keptInput proves that. now is its present stamp.
func (p *Past) proves(input []byte, now *beneath.Stamp) (objectstore.Info, bool) {
	info := objectstore.Info{Size: now.Size}
	flags := input[copy(info.Hash[:], input):]
	number := func(i int) int64 { return int64(binary.LittleEndian.Uint64(flags[1+8*i:])) }
	ok := now.Mode.IsRegular() && (flags[0] != 0) == executable(now.Mode) &&
		number(0) == now.Size && number(1) == int64(now.Inode) && number(2) == now.Modified && number(3) == now.Changed &&
		stamp.Settled(number(4), now.Modified, now.Changed) && (p.Trusts == nil || p.Trusts(info.Hash))
	return info, ok
}

// appendPast appends a new entry. A directory's body is its memory.
func (p *Past) appendPast(b []byte, e *Entry, at fileStamp, memory []byte) []byte {
	b = appendText(append(b, byte(e.Kind)), e.Name)
	switch e.Kind {
	case KindDir:
		b = append(binary.AppendUvarint(b, uint64(len(memory))), memory...)
	case KindLink:
		b = appendText(b, e.Target)
	case KindFile:
		b = append(b, e.Hash[:]...)
		if e.Executable {
			b = append(b, 1)
		} else {
			b = append(b, 0)
		}
		for _, n := range []int64{e.Size, int64(at.inode), at.mtime, at.ctime, p.Seen} {
			b = binary.LittleEndian.AppendUint64(b, uint64(n))
		}
	}
	return b
}

// remember makes d's memory, given that d is stored. Files that were not read again keep theirs.
func (p *putter) remember(d *putDir) {
	room := len(d.hash) + len(d.before)
	for i := range d.entries {
		if e := &d.entries[i]; d.before == nil || d.read != nil && d.read[i] != (fileStamp{}) {
			room += len(e.Name) + len(e.Target) + inputLen + 8
		}
	}
	for _, sub := range d.subs {
		room += len(sub.memory) + 8
	}
	b := append(make([]byte, 0, room), d.hash[:]...)
	was, subs := cursorOf(d.before), d.subs
	for i := range d.entries {
		e := &d.entries[i]
		before := was.find(e.Name)
		var at fileStamp
		if d.read != nil {
			at = d.read[i]
		}
		switch {
		case e.Kind == KindDir:
			b = p.past.appendPast(b, e, at, subs[0].memory)
			subs = subs[1:]
		case e.Kind == KindFile && at == fileStamp{}:
			b = append(b, before.all...)
		default:
			b = p.past.appendPast(b, e, at, nil)
		}
	}
	d.memory = b
}

// unchanged takes over the directory object of a directory in which nothing differs, unless the object is gone.
func (p *putter) unchanged(d *putDir) bool {
	if p.past == nil || p.past.Trusts != nil || d.before == nil || d.differs.Load() {
		return false
	}
	var hash objectstore.Hash
	if copy(hash[:], d.before) < len(hash) {
		return false
	}
	gone, err := p.store.Missing(p.ctx, []objectstore.Hash{hash})
	if err != nil || len(gone) > 0 {
		return false
	}
	d.hash, d.memory = hash, d.before
	return true
}

// readAt notes the stamp of the i-th entry of d, a file that was read.
func (d *putDir) readAt(i int, at fileStamp) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.read == nil {
		d.read = make([]fileStamp, len(d.entries))
	}
	d.read[i] = at
	d.differs.Store(true)
}

// at is the path of an entry of d.
func (d *putDir) at(name string) string {
	if d.rel == "" {
		return name
	}
	return d.rel + "/" + name
}

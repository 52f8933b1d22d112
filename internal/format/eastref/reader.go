package eastref

import (
	"fmt"

	"e3/internal/format/beast2"
	"e3/internal/format/digest"
	"e3/internal/format/record"
)

// A reader reads values whose containers may be backreferences: the reference writes a container that occurs again as
// the distance to its first occurrence.
type reader struct {
	*beast2.Reader
	seen  map[int]shape // the containers by the position of their content
	depth int
}

// A shape is a type of container in packages, tasks and trees. A backreference must lead to a container of its own
// shape.
type shape uint8

const (
	tasksDict shape = iota + 1
	structureDict
	typeList   // Array<EastType>, inputs of a function
	memberList // Array<Struct{name, type}>, fields or cases
	pathList   // Array<TreePath>
	pathArray  // TreePath
	childList  // in a schema: the fields of a tree
	caseList   // in a schema: the cases of a DatasetRef
)

func newReader(data []byte, off int) *reader {
	return &reader{Reader: beast2.NewReader(data, off), seen: map[int]shape{}}
}

// farthest is greater than every distance of a backreference in an object that fits into memory.
const farthest = 1<<31 - 1

// container reads the marker of a container. It returns the position of its content, and whether the content follows.
// Content that does not follow was read before.
func (r *reader) container(s shape) (at int, follows bool) {
	marker := r.Offset()
	back := r.Tag(farthest)
	if r.Err() != nil {
		return 0, false
	}
	if back == 0 {
		if r.many(len(r.seen)); r.Err() != nil {
			return 0, false
		}
		r.seen[r.Offset()] = s
		return r.Offset(), true
	}
	if r.seen[marker-back] != s {
		r.Failf(marker, "backreference to %d bytes before hits no container of its type", back)
	}
	return marker - back, false
}

// maxParts is the greatest number of tasks, inputs, children or containers of an object. Real objects have some
// hundreds. In memory a part can take a hundred times its bytes.
const maxParts = 1 << 18

// many refuses an object with too many parts of a kind.
func (r *reader) many(n int) {
	if n >= maxParts && r.Err() == nil {
		r.Failf(r.Offset(), "it has more than %d parts of a kind", maxParts)
	}
}

// maxDepth is the greatest depth of nested types, as in the beast2 package.
const maxDepth = 1 << 15

// enter goes one level down and reports whether reading can continue.
func (r *reader) enter() bool {
	if r.depth++; r.depth > maxDepth {
		r.Failf(r.Offset(), "types nest deeper than %d", maxDepth)
	}
	return r.Err() == nil
}

func (r *reader) hash() digest.Hash {
	at := r.Offset()
	text := r.String()
	if r.Err() != nil {
		return digest.Hash{}
	}
	h, err := digest.Parse(text)
	if err != nil {
		r.Failf(at, "%v", err)
	}
	return h
}

// path reads a TreePath.
func (r *reader) path(known map[int][]string) []string {
	at, follows := r.container(pathArray)
	if !follows {
		return known[at]
	}
	p := []string{}
	for range r.Count(2) {
		r.Tag(1)
		name := r.String()
		if r.Err() != nil {
			break
		}
		p = append(p, name)
		r.many(len(p))
	}
	known[at] = p
	return p
}

// structure skips a Structure, which lists the datasets and their types.
func (r *reader) structure() {
	if !r.enter() {
		return
	}
	if r.Tag(2) != 0 {
		r.eastType()
	} else if _, follows := r.container(structureDict); follows {
		for range r.Count(2) {
			r.SkipString()
			r.structure()
			if r.Err() != nil {
				break
			}
		}
	}
	r.depth--
}

// eastType skips a type.
func (r *reader) eastType() {
	if !r.enter() {
		return
	}
	switch beast2.Kind(r.Tag(int(beast2.KindVariant) + 1)) {
	case beast2.KindArray, beast2.KindRef, beast2.KindSet:
		if r.Err() == nil { // after a fault every tag is read as the first kind
			r.eastType()
		}
	case beast2.KindDict:
		r.eastType()
		r.eastType()
	case beast2.KindFunction, beast2.KindAsyncFunction:
		if _, follows := r.container(typeList); follows {
			for range r.Count(1) {
				if r.eastType(); r.Err() != nil {
					break
				}
			}
		}
		r.eastType()
	case beast2.KindRecursive:
		r.Integer()
	case beast2.KindStruct, beast2.KindVariant:
		if _, follows := r.container(memberList); follows {
			for range r.Count(2) {
				r.SkipString()
				if r.eastType(); r.Err() != nil {
					break
				}
			}
		}
	}
	r.depth--
}

// refCases are the cases of a DatasetRef, in the order of their tags.
var refCases = [...]struct {
	name string
	kind beast2.Kind
}{{"null", beast2.KindNull}, {"tree", beast2.KindString}, {"unassigned", beast2.KindNull}, {"value", beast2.KindString}}

// treeSchema reads the type of a tree after the tag of a Struct: the names of its children. If a Struct has a field
// that is no reference, the object is of another type. Backreferences in a schema refer to containers of the same
// schema.
func (r *reader) treeSchema() ([]Entry, error) {
	r.container(childList)
	n := r.Count(3)
	entries := make([]Entry, 0, min(n, r.Remaining()/shortestChild+1, maxParts))
	seen := make(map[string]bool, cap(entries))
	for range n {
		at := r.Offset()
		name := r.String()
		if seen[name] {
			r.Failf(at, "name %q is there twice", name)
		}
		isRef := r.datasetRef()
		if r.Err() != nil {
			return nil, fmt.Errorf("tree: %w", r.Err())
		}
		if !isRef {
			return nil, fmt.Errorf("tree: %w", record.ErrType)
		}
		seen[name] = true
		entries = append(entries, Entry{Name: name})
		r.many(len(entries))
	}
	if r.Err() != nil {
		return nil, fmt.Errorf("tree: %w", r.Err())
	}
	clear(r.seen)
	return entries, nil
}

// shortestChild is the least size of a child in bytes: its name, and its type with a backreference for the cases.
const shortestChild = 1 + 1 + 1

// datasetRef reports whether the type that follows is DatasetRef.
func (r *reader) datasetRef() bool {
	if beast2.Kind(r.Tag(int(beast2.KindVariant)+1)) != beast2.KindVariant {
		return false
	}
	if _, follows := r.container(caseList); !follows {
		return r.Err() == nil
	}
	if r.Count(2) != len(refCases) {
		return false
	}
	for _, c := range refCases {
		if r.String() != c.name || beast2.Kind(r.Tag(int(beast2.KindVariant)+1)) != c.kind {
			return false
		}
	}
	return true
}

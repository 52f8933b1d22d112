// Package eastref reads the objects that only the TypeScript reference writes: its packages, its tasks and the trees
// of its workspaces. They are read, never written: the tasks hold East code, which cannot be run here.
//
// An object has no name of its own; its header identifies it. Packages and tasks are Structs of one type each. A tree
// is a Struct with one field, a reference, for each of its children. So the type of a tree depends on the number and
// the names of its children. If an object may also be a record of e3, ask package record first: an object with a type
// of e3 does not come from the reference.
//
// Decoding is strict: bytes that the reference would not have written are an error, and an object of another type is
// [record.ErrType]. Any input gives a result or an error, in memory bounded by its length.
package eastref

import (
	"bytes"
	"fmt"
	"sync"

	"e3/internal/format/beast2"
	"e3/internal/format/digest"
	"e3/internal/format/record"
)

// Package is the part of a PackageObject that e3 uses. Its name and version are in the register, not in the object.
type Package struct {
	Tasks []PackageTask // in the order of the object
	Root  digest.Hash
}

// PackageTask is a task by its name.
type PackageTask struct {
	Name string
	Task digest.Hash // hash of the task object
}

// Task is a TaskObject.
type Task struct {
	Command digest.Hash // an East function that makes the command line
	Inputs  [][]string  // paths of its inputs in the tree
	Output  []string    // path of its output in the tree
}

// Kind is the kind of an entry in a tree. The values are the case tags on disk.
type Kind int

// The kinds of entries of a tree.
const (
	Null       Kind = iota // a dataset whose value is null, without an object
	Tree                   // a subtree
	Unassigned             // a dataset that holds nothing yet
	Value                  // a dataset: a beast2 value of any type, or any bytes that a task left as its output
)

func (k Kind) String() string {
	switch k {
	case Null:
		return "null"
	case Tree:
		return "tree"
	case Unassigned:
		return "unassigned"
	case Value:
		return "value"
	}
	return fmt.Sprintf("kind(%d)", int(k))
}

// Entry is a child of a tree.
type Entry struct {
	Name string
	Kind Kind
	Hash digest.Hash // hash of a Tree or a Value
}

// schema is the type of an object, and the bytes at the beginning of such objects, made on first use.
type schema struct {
	name   string
	header func() []byte
}

func newSchema(name string, typ func() beast2.Type) schema {
	return schema{name, sync.OnceValue(func() []byte { return beast2.Header(typ()) })}
}

func treePath() beast2.Type {
	return beast2.Array(beast2.Variant(beast2.F("field", beast2.String)))
}

// eastType is the type of types. Its recursion numbers count only the constructors within it.
func eastType() beast2.Type {
	self, up2, up3 := beast2.Recursive(1), beast2.Recursive(2), beast2.Recursive(3)
	signature := func() beast2.Type {
		return beast2.Struct(beast2.F("inputs", beast2.Array(up3)), beast2.F("output", up2))
	}
	members := func() beast2.Type {
		return beast2.Array(beast2.Struct(beast2.F("name", beast2.String), beast2.F("type", up3)))
	}
	return beast2.Variant(
		beast2.F("Array", self), beast2.F("AsyncFunction", signature()), beast2.F("Blob", beast2.Null), beast2.F("Boolean", beast2.Null),
		beast2.F("DateTime", beast2.Null), beast2.F("Dict", beast2.Struct(beast2.F("key", up2), beast2.F("value", up2))),
		beast2.F("Float", beast2.Null), beast2.F("Function", signature()), beast2.F("Integer", beast2.Null), beast2.F("Never", beast2.Null),
		beast2.F("Null", beast2.Null), beast2.F("Recursive", beast2.Integer), beast2.F("Ref", self), beast2.F("Set", self),
		beast2.F("String", beast2.Null), beast2.F("Struct", members()), beast2.F("Variant", members()))
}

var (
	packageSchema = newSchema("PackageObject", func() beast2.Type {
		structure := beast2.Variant(
			beast2.F("struct", beast2.Dict(beast2.String, beast2.Recursive(2))),
			beast2.F("value", eastType()))
		return beast2.Struct(
			beast2.F("tasks", beast2.Dict(beast2.String, beast2.String)),
			beast2.F("data", beast2.Struct(beast2.F("structure", structure), beast2.F("value", beast2.String))))
	})
	taskSchema = newSchema("TaskObject", func() beast2.Type {
		return beast2.Struct(
			beast2.F("commandIr", beast2.String), beast2.F("inputs", beast2.Array(treePath())), beast2.F("output", treePath()))
	})
)

// open checks the header of an object and returns a reader at the value.
func (s schema) open(data []byte) (*reader, error) {
	h := s.header()
	if !bytes.HasPrefix(data, h) {
		return nil, fmt.Errorf("%s: %w", s.name, record.ErrType)
	}
	return newReader(data, len(h)), nil
}

func (s schema) done(r *reader) error {
	if err := r.Done(); err != nil {
		return fmt.Errorf("%s: %w", s.name, err)
	}
	return nil
}

// PackageHeader is the greatest number of leading bytes that IsPackage needs.
const PackageHeader = 1024

// IsPackage reports whether an object is a PackageObject, from its leading bytes.
func IsPackage(data []byte) bool { return bytes.HasPrefix(data, packageSchema.header()) }

// IsTask reports whether an object is a TaskObject, from its leading bytes.
func IsTask(data []byte) bool { return bytes.HasPrefix(data, taskSchema.header()) }

// DecodePackage reads a PackageObject. It skips the types of its datasets, because each dataset states its own.
func DecodePackage(data []byte) (*Package, error) {
	r, err := packageSchema.open(data)
	if err != nil {
		return nil, err
	}
	p := &Package{}
	r.container(tasksDict)
	at, n := r.Offset(), r.Count(2)
	if n > 0 {
		p.Tasks = make([]PackageTask, 0, min(n, r.Remaining()/shortestTask, maxParts))
	}
	seen := make(map[string]bool, cap(p.Tasks))
	for range n {
		t := PackageTask{Name: r.String(), Task: r.hash()}
		if seen[t.Name] {
			r.Failf(at, "task %q is there twice", t.Name)
		}
		if r.Err() != nil {
			break
		}
		seen[t.Name] = true
		p.Tasks = append(p.Tasks, t)
		r.many(len(p.Tasks))
	}
	r.structure()
	p.Root = r.hash()
	if err := packageSchema.done(r); err != nil {
		return nil, err
	}
	return p, nil
}

// shortestTask is the least size of a task in bytes: the length of its name, the length of a hash and the hash.
const shortestTask = 1 + 1 + 64

// DecodeTask reads a TaskObject.
func DecodeTask(data []byte) (*Task, error) {
	r, err := taskSchema.open(data)
	if err != nil {
		return nil, err
	}
	t := &Task{Command: r.hash()}
	paths := map[int][]string{} // by their place, for repeated containers
	r.container(pathList)
	for range r.Count(1) {
		p := r.path(paths)
		if r.Err() != nil {
			break
		}
		t.Inputs = append(t.Inputs, p)
		r.many(len(t.Inputs))
	}
	t.Output = r.path(paths)
	if err := taskSchema.done(r); err != nil {
		return nil, err
	}
	return t, nil
}

// DecodeTree reads a tree object: its children, in its order. An object without children is a tree too.
func DecodeTree(data []byte) ([]Entry, error) {
	opening := append([]byte(beast2.Magic), byte(beast2.KindStruct))
	if !bytes.HasPrefix(data, opening) {
		return nil, fmt.Errorf("tree: %w", record.ErrType)
	}
	r := newReader(data, len(opening))
	entries, err := r.treeSchema()
	if err != nil {
		return nil, err
	}
	for i := range entries {
		e := &entries[i]
		if e.Kind = Kind(r.Tag(4)); e.Kind == Tree || e.Kind == Value {
			e.Hash = r.hash()
		}
	}
	if err := r.Done(); err != nil {
		return nil, fmt.Errorf("tree: %w", err)
	}
	return entries, nil
}

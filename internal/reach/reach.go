// Package reach knows what each kind of reference refers to and the roots of a repository, and follows references.
// Collecting, verifying, pruning and exporting all use it, so that none of them can forget a kind.
//
// An object has no kind; a reference has one ([Ref]). [Refs] are the references in one object. [References],
// [Tombstones] and [Protected] are the roots of a repository, each with its [Owner]; [Roots] are all of them. A
// [Walker] follows roots in parallel, reads each object once, and collects them in a [Set].
//
// Objects of the TypeScript reference have a header of their own. They may occur as packages, as tasks, and as trees
// in the place of nodes.
package reach

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"e3/internal/format/eastref"
	"e3/internal/format/image"
	"e3/internal/format/record"
	"e3/objectstore"
	"e3/objectstore/tree"
)

// A Kind defines the way in which the object of a reference is read and followed.
type Kind uint8

// The kinds of references.
const (
	File      Kind = iota // bytes that refer to nothing: the content of a file, a value, code of the reference
	Dir                   // a directory object, with everything below it
	Node                  // a node of a workspace's tree, or a tree object of the reference, with everything below it
	Task                  // a task object
	Package               // a a package object, with its tasks and its default datasets
	FileOrDir             // an output of unknown kind: it is followed if it reads as a directory
	Dirs                  // a directory object and the directories below it, without the content of files
	Nodes                 // a node and the nodes below it, without the datasets
	Image                 // the manifest of an image, with its configuration and its layers
	kinds
)

var kindNames = [kinds]string{"file", "dir", "node", "task", "package", "file-or-dir", "dirs", "nodes", "image"}

func (k Kind) String() string {
	if k < kinds {
		return kindNames[k]
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// words names the object in messages.
func (k Kind) words() string {
	return [...]string{"content", "directory object", "tree node", "task object", "package object", "output", "directory object", "tree node", "manifest of an image"}[k]
}

// A Ref is a reference to an object.
type Ref struct {
	Kind Kind
	Hash objectstore.Hash
}

// String is the name under which a session protects the object and everything below it: "dir 4f0c…".
func (r Ref) String() string { return r.Kind.String() + " " + r.Hash.String() }

// ParseRef reads what String returns.
func ParseRef(s string) (Ref, error) {
	name, hash, _ := strings.Cut(s, " ")
	for k, want := range kindNames {
		if name == want {
			h, err := objectstore.ParseHash(hash)
			if err != nil {
				return Ref{}, fmt.Errorf("reference %.80q: %w", s, err)
			}
			return Ref{Kind: Kind(k), Hash: h}, nil
		}
	}
	return Ref{}, fmt.Errorf("reference %.80q is of no kind that this version knows", s)
}

// A MalformedError says that an object exists, but is not what a reference expects: its bytes do not match its name,
// they do not decode, or the directory is invalid (DirChecker).
type MalformedError struct {
	Ref Ref
	Err error
}

func (e *MalformedError) Error() string {
	var malformed *tree.Error
	if errors.As(e.Err, &malformed) {
		return fmt.Sprintf("%s %s is not in order: %v", e.Ref.Kind.words(), e.Ref.Hash, e.Err)
	}
	return fmt.Sprintf("%s %s cannot be read: %v", e.Ref.Kind.words(), e.Ref.Hash, e.Err)
}

func (e *MalformedError) Unwrap() error { return e.Err }

// A Child is a reference in an object.
type Child struct {
	Ref
	Name string // of the file, dataset or task, in the object
	Weak bool   // the object may be missing: an image can be pulled again
	size int64  // a file's size according to a directory; -1 for all else
}

// child is a reference to an object of which no size is known.
func child(k Kind, h objectstore.Hash, name string) Child {
	return Child{Ref: Ref{k, h}, Name: name, size: -1}
}

// Refs returns the references in the object of r, in the order of the object. An absent object is
// objectstore.ErrNotFound, wrong content is a *MalformedError, and any other error is the store's.
func Refs(ctx context.Context, s objectstore.Store, r Ref) ([]Child, error) {
	var children []Child
	err := each(ctx, s, r, func(c Child) { children = append(children, c) })
	if err != nil {
		return nil, err
	}
	return children, nil
}

// each yields the references in an object. It may have yielded some when it fails.
func each(ctx context.Context, s objectstore.Store, r Ref, yield func(Child)) error {
	var read func(data []byte, k Kind, yield func(Child)) error
	switch r.Kind {
	case Dir, Dirs, FileOrDir:
		read = eachInDir
	case Node, Nodes:
		read = eachInNode
	case Task:
		read = eachInTask
	case Package:
		read = eachInPackage
	case Image:
		read = eachInImage
	default:
		return nil
	}
	if r.Kind == FileOrDir {
		if yes, err := beginsLikeDir(ctx, s, r.Hash); err != nil || !yes {
			return err
		}
	}
	data, err := objectstore.ReadAll(ctx, s, r.Hash, limit(r.Kind))
	var large *objectstore.TooLargeError
	switch {
	case errors.As(err, &large) && r.Kind == FileOrDir:
		return nil // no directory is that large
	case damaged(err):
		return &MalformedError{Ref: r, Err: err}
	case err != nil:
		return err
	}
	if err := read(data, r.Kind, yield); err != nil && r.Kind != FileOrDir {
		return &MalformedError{Ref: r, Err: err}
	}
	return nil
}

// beginsLikeDir reads the first bytes of an object, which may be a file of any size.
func beginsLikeDir(ctx context.Context, s objectstore.Store, h objectstore.Hash) (bool, error) {
	empty, err := tree.Encode(nil)
	if err != nil {
		return false, err
	}
	header := empty[:len(empty)-2] // all but the marker and the count
	r, err := s.Open(ctx, h)
	if err != nil {
		return false, err
	}
	defer r.Close() // nothing was written
	begin := make([]byte, len(header))
	n, err := io.ReadFull(r, begin)
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return false, nil
	case err != nil && !damaged(err): // report a damaged short file at once; nothing follows from its content
		return false, fmt.Errorf("read object %s: %w", h, err)
	}
	return bytes.Equal(begin[:n], header), nil
}

func limit(k Kind) int64 {
	switch k {
	case Task:
		return record.MaxTask
	case Package:
		return record.MaxPackage
	case Node, Nodes:
		return record.MaxNode
	case Image:
		return image.MaxManifest
	}
	return tree.MaxBytes
}

func eachInDir(data []byte, k Kind, yield func(Child)) error {
	below := Dir
	if k == Dirs {
		below = Dirs
	}
	return tree.EachEntry(data, func(e *tree.Entry) {
		switch {
		case e.Kind == tree.KindDir:
			yield(child(below, e.Hash, e.Name))
		case e.Kind == tree.KindFile && k != Dirs:
			yield(Child{Ref: Ref{File, e.Hash}, Name: e.Name, size: e.Size})
		}
	})
}

func eachInNode(data []byte, k Kind, yield func(Child)) error {
	var fault error
	err := record.EachEntry(data, func(e *record.NodeEntry) {
		if fault == nil {
			fault = leaf(e.Name, &e.Leaf, k, yield)
		}
	})
	if errors.Is(err, record.ErrType) {
		return eachInReferenceTree(data, k, yield)
	}
	return errors.Join(err, fault)
}

// leaf yields the references of an entry of a node, or of a package's default.
func leaf(name string, l *record.Leaf, k Kind, yield func(Child)) error {
	if l.Kind == record.LeafUnassigned {
		return nil
	}
	below := File
	switch l.Kind {
	case record.LeafNode:
		if below = Node; k == Nodes {
			below = Nodes
		}
	case record.LeafDir:
		below = Dir
	}
	if k == Nodes && below != Nodes {
		return nil
	}
	h, err := objectstore.ParseHash(l.Hash)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	yield(child(below, h, name))
	return nil
}

// eachInReferenceTree yields the references of a tree object of the reference.
func eachInReferenceTree(data []byte, k Kind, yield func(Child)) error {
	entries, err := eastref.DecodeTree(data)
	if err != nil {
		return err
	}
	for _, e := range entries {
		switch {
		case e.Kind == eastref.Tree:
			yield(child(k, e.Hash, e.Name))
		case e.Kind == eastref.Value && k != Nodes:
			yield(child(File, e.Hash, e.Name))
		}
	}
	return nil
}

func eachInTask(data []byte, _ Kind, yield func(Child)) error {
	if !eastref.IsTask(data) {
		task, err := record.DecodeTask(data)
		if err != nil || task.Image == "" {
			return err
		}
		h, err := objectstore.ParseHash(task.Image)
		if err == nil {
			yield(Child{Ref: Ref{Image, h}, Name: "image", Weak: true, size: -1})
		}
		return err
	}
	task, err := eastref.DecodeTask(data)
	if err != nil {
		return err
	}
	yield(child(File, task.Command, "command"))
	return nil
}

// eachInImage yields the configuration and the layers.
func eachInImage(data []byte, _ Kind, yield func(Child)) error {
	m, err := image.DecodeManifest(data)
	if err != nil {
		return err
	}
	for i, h := range m.Hashes() {
		yield(child(File, h, fmt.Sprintf("layer %d", i)))
	}
	return nil
}

func eachInPackage(data []byte, _ Kind, yield func(Child)) error {
	if eastref.IsPackage(data) {
		return eachInReferencePackage(data, yield)
	}
	pkg, err := record.DecodePackage(data)
	if err != nil {
		return err
	}
	for i := range pkg.Tasks {
		t := &pkg.Tasks[i]
		h, err := objectstore.ParseHash(t.Task)
		if err != nil {
			return fmt.Errorf("task %s: %w", t.Name, err)
		}
		yield(child(Task, h, t.Name))
	}
	for i := range pkg.Inputs {
		if err := leaf(pkg.Inputs[i].Name, &pkg.Inputs[i].Default, Package, yield); err != nil {
			return err
		}
	}
	for _, hash := range pkg.Sources() {
		h, err := objectstore.ParseHash(hash)
		if err != nil {
			return fmt.Errorf("definition or list of items: %w", err)
		}
		yield(child(File, h, "items"))
	}
	return nil
}

func eachInReferencePackage(data []byte, yield func(Child)) error {
	pkg, err := eastref.DecodePackage(data)
	if err != nil {
		return err
	}
	for _, t := range pkg.Tasks {
		yield(child(Task, t.Task, t.Name))
	}
	yield(child(Node, pkg.Root, "data"))
	return nil
}

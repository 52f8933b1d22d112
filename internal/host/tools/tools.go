// Package tools finds the programs that tasks name, and reads the files that decide their behaviour: the program, the
// interpreter of a script, and the libraries that a program links. It does not see what a program loads while it runs:
// modules of an interpreter, plug-ins, other programs that it starts.
package tools

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// ErrNotFound says that no program of that name is on the PATH.
var ErrNotFound = errors.New("not found on the PATH")

// The roles of a file.
const (
	program     = "program"
	interpreter = "interpreter" // of a script, or the loader of a program
	library     = "library"
)

// A Part is one file that decides what a program does. Path is the file's path on this machine; Text does not have it.
type Part struct {
	Role, Name, Path string
	Hash             string // SHA-256 of its content; "": no file of this name was found
}

// maxParts bounds the files of one program. The largest programs of a distribution link some 300 libraries.
const maxParts = 4096

// maxScripts bounds a chain of scripts that interpret each other. Linux allows five.
const maxScripts = 8

// A Finder finds programs. It is safe for concurrent use, and reads nothing before the first one.
type Finder struct {
	path, cache string

	mu     sync.Mutex
	memory *memory  // nil: it was not read
	dirs   []string // folders of libraries, once read
}

// New returns a Finder that searches the absolute folders of a PATH. Hashes of files are remembered in a file of folder cache;
// "" remembers nothing.
func New(path, cache string) *Finder { return &Finder{path: path, cache: cache} }

// Find returns the parts of a program as it is now, in an order that does not depend on the machine. Files that have not
// changed are not read again. Errors wrap [ErrNotFound] or come from the file system.
func (f *Finder) Find(name string) ([]Part, error) {
	return f.collect(func(c *closure) error {
		path, err := f.look(name)
		if err == nil {
			err = c.program(program, name, path, 0)
		}
		if err != nil && path != "" {
			err = fmt.Errorf("program %s (%s): %w", name, path, err)
		}
		return err
	})
}

// Around returns the parts of a program without its own file, which may lie anywhere: the files of this machine that
// interpret or load it. hash is the SHA-256 of the program's file; open opens it if its facts are not remembered. A
// missing part is in the result, without a hash. An interpreter with a relative path is left out: it is a file of the
// program's folder.
func (f *Finder) Around(name, hash string, open func() (io.ReadCloser, error)) ([]Part, error) {
	return f.collect(func(c *closure) error {
		facts, err := f.memory.content(hash, open)
		if err == nil {
			c.absent = true
			err = c.around(facts, "", 0)
		}
		if err != nil {
			err = fmt.Errorf("program %s: %w", name, err)
		}
		return err
	})
}

// collect returns the parts that find adds to a closure.
func (f *Finder) collect(find func(*closure) error) ([]Part, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.memory == nil {
		f.memory = newMemory(f.cache)
	}
	defer f.memory.save() // after a failure the next process reads the files again
	c := closure{f: f, seen: map[string]bool{}}
	if err := find(&c); err != nil {
		return nil, err
	}
	slices.SortFunc(c.parts, func(a, b Part) int {
		return cmp.Or(strings.Compare(a.Role, b.Role), strings.Compare(a.Name, b.Name), strings.Compare(a.Hash, b.Hash))
	})
	return c.parts, nil
}

// look finds a program as a shell does. A name with a slash is not found.
func (f *Finder) look(name string) (string, error) {
	for _, dir := range filepath.SplitList(f.path) {
		if !filepath.IsAbs(dir) {
			continue // the folder of a command is not that of e3
		}
		path := filepath.Join(dir, name)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && executable(info) {
			return path, nil
		}
	}
	return "", fmt.Errorf("program %s: %w", name, ErrNotFound)
}

// Text is what enters a key: a line for each part, without folders. Equal programs have equal texts on all machines.
// record.ToolChanges compares two.
func Text(parts []Part) string {
	var b strings.Builder
	for _, p := range parts {
		fmt.Fprintf(&b, "%s %s %s\n", p.Role, p.Name, cmp.Or(p.Hash, "missing"))
	}
	return b.String()
}

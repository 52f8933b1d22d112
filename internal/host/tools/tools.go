// Package tools finds the programs that tasks name, and reads what decides their behaviour: the program's bytes, the
// interpreter of a script, and the libraries that a program links. It does not see what a program loads while it runs:
// modules of an interpreter, plug-ins, other programs that it starts.
package tools

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
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

// A Part is one file that decides what a program does. Path is where this machine has it; it is not in Text.
type Part struct {
	Role, Name, Path string
	Hash             string // SHA-256 of its content; "": no file of this name was found
}

// maxParts bounds the files of one program. The largest programs of a distribution link some 300 libraries.
const maxParts = 4096

// maxScripts bounds a chain of scripts that interpret each other. Linux allows five.
const maxScripts = 8

// A Finder finds programs. It is safe for concurrent use.
type Finder struct {
	path   string // PATH: absolute folders
	memory *memory

	mu   sync.Mutex
	dirs []string // of libraries, once read
}

// New returns a Finder that searches the folders of a PATH. Hashes of files are remembered in a file of folder cache;
// "" remembers nothing.
func New(path, cache string) *Finder {
	return &Finder{path: path, memory: newMemory(cache)}
}

// Find returns the parts of a program as it is now, in an order that does not depend on the machine. Files that have not
// changed are not read again. Errors wrap [ErrNotFound] or come from the file system.
func (f *Finder) Find(name string) ([]Part, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	path, err := f.look(name)
	if err != nil {
		return nil, err
	}
	c := closure{f: f, seen: map[string]bool{}}
	if err := c.program(program, name, path, 0); err != nil {
		return nil, fmt.Errorf("program %s (%s): %w", name, path, err)
	}
	slices.SortFunc(c.parts, func(a, b Part) int {
		return cmp.Or(strings.Compare(a.Role, b.Role), strings.Compare(a.Name, b.Name), strings.Compare(a.Hash, b.Hash))
	})
	return c.parts, nil
}

// Close keeps what was read for the next process. A failure costs it a second read, so none is reported.
func (f *Finder) Close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.memory.save()
}

// look finds a program as a shell does. Names with a slash are none.
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

// A closure collects the parts of one program.
type closure struct {
	f     *Finder
	parts []Part
	seen  map[string]bool // by role, name and path
}

func (c *closure) add(role, name, path, hash string) (again bool, err error) {
	id := role + "\x00" + name + "\x00" + path
	if c.seen[id] {
		return true, nil
	}
	if len(c.parts) == maxParts {
		return false, fmt.Errorf("it has more than %d files", maxParts)
	}
	c.seen[id] = true
	c.parts = append(c.parts, Part{Role: role, Name: name, Path: path, Hash: hash})
	return false, nil
}

// program adds a program with its interpreter or libraries.
func (c *closure) program(role, name, path string, depth int) error {
	facts, err := c.f.memory.read(path)
	if err != nil {
		return err
	}
	again, err := c.add(role, name, path, facts.Hash)
	if again || err != nil {
		return err
	}
	if len(facts.Interpreter) > 0 {
		return c.script(facts.Interpreter, depth)
	}
	return c.linked(facts, path, facts.RPath)
}

// script adds the interpreter of a script. "env NAME" is looked up on the PATH, and is a part itself.
func (c *closure) script(words []string, depth int) error {
	if depth == maxScripts {
		return fmt.Errorf("scripts interpret each other, more than %d", maxScripts)
	}
	path := words[0]
	if err := c.program(interpreter, filepath.Base(path), path, depth+1); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("its interpreter is missing: %w", err)
		}
		return err
	}
	name := ofEnv(words)
	if name == "" {
		return nil
	}
	path, err := c.f.look(name)
	if filepath.IsAbs(name) {
		path, err = name, nil
	}
	if err != nil {
		return fmt.Errorf("its interpreter: %w", err)
	}
	return c.program(interpreter, filepath.Base(name), path, depth+1)
}

// ofEnv is the program that "env" starts, "" for another interpreter. Linux passes the words after the interpreter as
// one argument, which env -S splits.
func ofEnv(words []string) string {
	if filepath.Base(words[0]) != "env" {
		return ""
	}
	for _, word := range words[1:] {
		if strings.HasPrefix(word, "-") || strings.Contains(word, "=") {
			continue
		}
		return word
	}
	return ""
}

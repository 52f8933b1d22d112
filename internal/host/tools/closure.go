package tools

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
)

// A closure collects the parts of one program.
type closure struct {
	f      *Finder
	parts  []Part
	seen   map[string]bool // by role, name and path
	absent bool            // a missing interpreter is a part, and no error
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
	return c.around(facts, path, depth)
}

// around adds the interpreter or the libraries of a file. path is "" if no other file lies beside this one.
func (c *closure) around(facts *facts, path string, depth int) error {
	if len(facts.Interpreter) > 0 {
		return c.script(facts.Interpreter, depth)
	}
	return c.linked(facts, path, facts.RPath)
}

// script adds the interpreter of a script. For "env NAME", NAME is looked up on the PATH, and env itself is a part.
func (c *closure) script(words []string, depth int) error {
	if depth == maxScripts {
		return fmt.Errorf("scripts interpret each other, more than %d", maxScripts)
	}
	if err := c.interpreter(filepath.Base(words[0]), words[0], depth); err != nil {
		return err
	}
	name := ofEnv(words)
	switch {
	case name == "":
		return nil
	case filepath.IsAbs(name):
		return c.interpreter(filepath.Base(name), name, depth)
	case filepath.Base(name) != name:
		return nil // relative to the folder of the command
	}
	path, err := c.f.look(name)
	if err != nil && c.absent {
		_, err = c.add(interpreter, name, "", "")
		return err
	}
	if err != nil {
		return fmt.Errorf("its interpreter: %w", err)
	}
	return c.interpreter(name, path, depth)
}

// interpreter adds the program at a path as an interpreter.
func (c *closure) interpreter(name, path string, depth int) error {
	err := c.program(interpreter, name, path, depth+1)
	switch {
	case !errors.Is(err, fs.ErrNotExist):
		return err
	case c.absent:
		_, err = c.add(interpreter, name, "", "")
		return err
	}
	return fmt.Errorf("its interpreter is missing: %w", err)
}

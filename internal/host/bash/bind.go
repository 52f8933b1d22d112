package bash

import (
	"cmp"
	"slices"
	"strings"
	"unicode/utf8"

	"e3/internal/host/runner"
)

// A Process describes the process that bash would start for a command.
type Process struct {
	Path      string // path of the file
	Argv, Env []string
	Redirects []runner.Redirect

	command *Command
}

// language is the only value of LANG under which the texts and the characters of bash are known.
const language = "C.UTF-8"

// Bind returns what bash would execute for c in the folder dir, an absolute path without links, with the environment
// env, in which no name occurs twice. find is runner.LookPath, or Look of a runner.Finder. Bind returns false if the
// process is not known for certain: then bash has to run the script.
func (c *Command) Bind(env []string, dir string, find func(command, dir string, env []string) (string, error)) (*Process, bool) {
	variables, ok := environment(env)
	if !ok {
		return nil, false
	}
	p := &Process{Argv: make([]string, len(c.words)), command: c}
	for i := range c.words {
		if p.Argv[i], ok = c.words[i].expand(variables); !ok {
			return nil, false
		}
	}
	for i := range c.redirects {
		if p.Redirects, ok = c.redirects[i].appendTo(p.Redirects, variables); !ok {
			return nil, false
		}
	}
	path, err := find(p.Argv[0], dir, env)
	if err != nil {
		return nil, false
	}
	p.Path = path
	p.Env = exported(env, dir, path, c.forked())
	return p, true
}

// forked reports whether bash would run c as a child process. Otherwise bash would execute c in its own process.
func (c *Command) forked() bool { return len(c.redirects) > 0 }

// lookup returns the value of a variable.
type lookup func(name string) (string, bool)

// environment returns the variables of env, or false if bash would do more with a variable than pass it on.
func environment(env []string) (lookup, bool) {
	known := false
	for _, e := range env {
		name, value, ok := strings.Cut(e, "=")
		switch {
		case !ok || Special(name) || strings.HasPrefix(value, "()"):
			return nil, false
		case name == "LANG":
			known = value == language
		case name == "PATH" && !plainPath(value):
			return nil, false
		}
	}
	return func(name string) (string, bool) {
		for _, e := range env {
			if len(e) > len(name) && e[len(name)] == '=' && e[:len(name)] == name {
				return e[len(name)+1:], true
			}
		}
		return "", false
	}, known && len(env) < buckets
}

// plainPath reports whether all entries of a PATH are absolute, in the form in which bash puts the name of a command
// behind them.
func plainPath(path string) bool {
	for entry := range strings.SplitSeq(path, ":") {
		if len(entry) < 2 || entry[0] != '/' || entry[len(entry)-1] == '/' {
			return false
		}
	}
	return true
}

// expand returns the text of a word. A variable that is not set ends bash.
func (w *word) expand(variables lookup) (string, bool) {
	if len(w.parts) == 1 && !w.parts[0].variable {
		return w.parts[0].text, true
	}
	var b strings.Builder
	for _, part := range w.parts {
		text := part.text
		if part.variable {
			value, ok := variables(part.text)
			if !ok || strings.ContainsAny(value, "\x01\x7f") || !utf8.ValidString(value) {
				return "", false
			}
			text = value
		}
		b.WriteString(text)
	}
	return b.String(), true
}

// appendTo adds the redirection to a list. Files outside of the working directory are left to bash, which treats some
// of them specially, such as /dev/tcp.
func (r *redirect) appendTo(list []runner.Redirect, variables lookup) ([]runner.Redirect, bool) {
	if r.from >= 0 {
		return append(list, runner.Redirect{FD: r.fd, From: r.from}), true
	}
	path, ok := r.target.expand(variables)
	if !ok || path == "" || path[0] == '/' && path != "/dev/null" {
		return nil, false
	}
	mode := runner.Truncate
	switch r.operator {
	case "<":
		mode = runner.Read
	case ">>", "&>>":
		mode = runner.Append
	}
	if r.fd >= 0 {
		return append(list, runner.Redirect{FD: r.fd, Path: path, Mode: mode}), true
	}
	return append(list, runner.Redirect{FD: 1, Path: path, Mode: mode}, runner.Redirect{FD: 2, From: 1}), true
}

// buckets is the size of bash's table of variables, whose order commands see in their environment.
const buckets = 1024

// exported returns the environment of a command: the variables that bash was given and those that it adds, in bash's
// order. This is the order of the hash table; within a bucket the latest variable comes first, and "_" is the last of
// all.
func exported(env []string, dir, path string, forked bool) []string {
	type variable struct {
		bucket, age uint32
		entry       string
	}
	level := "0" // bash takes back its own level when it gives up its place
	if forked {
		level = "1"
	}
	variables := make([]variable, 0, len(env)+2)
	add := func(name, entry string) {
		variables = append(variables, variable{hash(name) % buckets, uint32(len(variables)), entry})
	}
	for _, e := range env {
		add(e[:strings.IndexByte(e, '=')], e)
	}
	add("PWD", "PWD="+dir)
	add("SHLVL", "SHLVL="+level)
	slices.SortFunc(variables, func(a, b variable) int {
		if a.bucket != b.bucket {
			return cmp.Compare(a.bucket, b.bucket)
		}
		return cmp.Compare(b.age, a.age)
	})
	list := make([]string, 0, len(variables)+1)
	for i := range variables {
		list = append(list, variables[i].entry)
	}
	return append(list, "_="+path)
}

// hash is the function of bash's hash tables, FNV-1.
func hash(s string) uint32 {
	h := uint32(2166136261)
	for i := range len(s) {
		h *= 16777619
		h ^= uint32(int8(s[i]))
	}
	return h
}

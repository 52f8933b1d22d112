// Package trace tells which files a command opens, and which missing files it tries to open or looks for.
//
// A seccomp filter hands to a tracer each system call of the command, and of all processes that it starts, that opens
// or tests a path. The tracer is a thread of this process; it reads the path and lets the call go on. All other calls
// run at full speed. Debuggers work on a traced command, because nothing is attached to it.
//
// The path is read while the caller waits, but another thread of it may change that memory before the kernel reads it
// again. So findings are advice for people, never a reason to trust a result.
package trace

import (
	"cmp"
	"errors"
	"io/fs"
	"strconv"
	"strings"
)

// A Look says what to look for.
type Look struct {
	// Work is the working directory as the command names it. Inputs lists paths below it, files or folders; opening one
	// of them, or something in it, is a Read.
	Work   string
	Inputs []string

	// Project lists the names of one folder of this machine, absolute and clean: with links and without. A file of the
	// project is recognized by its path there and, because commands use relative paths, by the same path below Work.
	Project []string

	// Others are further paths below Work whose absence is worth a Missing.
	Others []string

	// Outputs lists paths below Work that the command makes: neither they nor files in them are findings.
	Outputs []string

	// Looks says to trace tests of existence, too (Sought), which are more frequent than opens.
	Looks bool

	// Report is a file of this machine, to which findings are appended as they are made.
	Report string
}

// A Kind tells findings apart.
type Kind byte

// The kinds of findings.
const (
	Read    Kind = 'r' // an entry of Look.Inputs
	File    Kind = 'f' // a file of the project that is not in Work
	Folder  Kind = 'd' // a folder of the project that is not in Work: listed or entered
	Missing Kind = 'm' // an entry of Look.Others that is not in Work
	// a File, Folder or Missing whose existence was tested in vain; if it was also opened, there is another finding
	Sought Kind = 's'
)

// A Finding is a path that a command has opened or tried to open for reading, or has looked for: relative to Look.Work or
// Look.Project.
type Finding struct {
	Kind Kind
	Path string
}

// MostFindings bounds the findings of one command. More are not reported.
const MostFindings = 4096

// mostSought bounds the number of Sought findings, so that they leave room for others.
const mostSought = MostFindings / 8

// ErrUnavailable is wrapped if this system cannot trace.
var ErrUnavailable = errors.New("this machine cannot trace commands")

// Compare orders findings by kind, then by path.
func (f Finding) Compare(other Finding) int {
	return cmp.Or(cmp.Compare(f.Kind, other.Kind), cmp.Compare(f.Path, other.Path))
}

// Append adds the line of a report.
func (f Finding) Append(b []byte) []byte {
	b = append(b, byte(f.Kind), ' ')
	return append(strconv.AppendQuote(b, f.Path), '\n')
}

// Parse reads a report. It skips incomplete lines and, as a record may come from another user, paths that lead out of
// their folder.
func Parse(report string) []Finding {
	var list []Finding
	for line := range strings.Lines(report) {
		kind, quoted, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		path, err := strconv.Unquote(quoted)
		if !ok || err != nil || len(kind) != 1 || !strings.HasSuffix(line, "\n") || len(list) == MostFindings {
			continue
		}
		switch k := Kind(kind[0]); k {
		case Read, File, Folder, Missing, Sought:
			if fs.ValidPath(path) {
				list = append(list, Finding{k, path})
			}
		}
	}
	return list
}

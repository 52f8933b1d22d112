// Package manifest reads the package file, e3.yaml: a strict, plain-data description of inputs and tasks.
//
// Parse and ParseFile turn YAML 1.2 (core schema) or JSON into a complete Definition: matrices are expanded,
// references resolved to indices, staged paths computed and checked. A faulty file gives Errors: all faults found,
// each with its position and, if possible, a suggestion. Only ParseFile reads files. The package knows
// nothing of stores or executions. A Definition is safe for concurrent use by those that only read it.
//
// # References
//
// A task names its inputs under "in": as a list, where the last part of each source is its local name, or as a mapping
// from local names to sources. A source is one of
//
//	sales                     an input of the package
//	params.train.rate         one value of an input that is a file of parameters
//	clean                     the output of a task; of a task with several outputs, a directory of them all
//	train.model               one of several outputs
//	train[4]                  one item of a matrix task (several dimensions: train[depth=4,lr=0.1])
//	train[*]                  every item: a directory with one entry per item, named by its label
//	train[depth=4,lr=*]       some of the items, likewise
//	features[region]          the item with the same value as this item of the task's own dimension "region"
//
// Brackets and entry combine: train[*].metrics. With several dimensions each must be selected, by "dimension=value" or
// by the bare name of a dimension that both tasks have; a lone "*" selects all items. A value in brackets that names
// one of the task's own dimensions always means the task's own item. If the word is also an item of the target, it is
// refused as ambiguous.
//
// # Staging
//
// TaskInput.Path is the path of an input in the task's directory:
//
//   - Project files, directories and globs keep their path relative to the package file. A glob is a directory at its
//     fixed prefix.
//   - The output of another task has the path that is declared there.
//   - A fan-in, and the directory of a task with several outputs, have the local input name.
//   - A value that is not a scalar is a JSON file under .e3-values.
//
// No two inputs and outputs of a task may have the same path or lie inside one another, with one exception: the folder
// of a glob may hold other inputs, and several globs may share it. A project file or directory in it may match the
// pattern too, because both copies come from the same place. Staging must accept such overlap if the content is equal,
// and refuse it otherwise. An output may lie in the folder of a glob unless the pattern matches its path.
package manifest

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
)

// FileName is the usual name of the package file.
const FileName = "e3.yaml"

// DefaultVersion is the version of a package whose file gives none.
const DefaultVersion = "0.0.0"

// Limits of a package file. They are far above real use and keep a hostile file from exhausting memory.
const (
	MaxFileSize = 256 << 20 // bytes of one package file
	MaxTasks    = 1_000_000 // tasks after matrix expansion
	MaxLabel    = 128       // bytes of a matrix label, the text in brackets

	maxDepth      = 64        // nesting of lists and mappings
	maxDimensions = 8         // dimensions of one matrix
	maxAliasNodes = 1_000_000 // nodes made by aliases, in one file
	maxFanInItems = 4_000_000 // members of all distinct fan-ins together
	maxGlobs      = 1_000     // inputs of one task that are globs
)

// A splitting decides when and how YAML is parsed in pieces. Tests make it small.
type splitting struct {
	threshold int64 // files larger than this are split
	piece     int64 // least bytes of one piece but the last
}

func usualSplitting() splitting { return splitting{threshold: 1 << 20, piece: 64 << 10} }

// Parse reads the package file in data. The name appears in errors and in Definition.File; it is not opened. Input that
// begins with "{" is read as JSON, or as a YAML flow mapping if it is not valid JSON; any other input is YAML. A faulty
// file gives an error of type Errors.
func Parse(name string, data []byte) (*Definition, error) {
	return parse(name, section(data), usualSplitting(), nil)
}

// An OpenError says that a package file cannot be opened or read. Its text is the text of Err.
type OpenError struct{ Err error }

func (e *OpenError) Error() string { return e.Err.Error() }

func (e *OpenError) Unwrap() error { return e.Err }

// ParseFile reads the package file at path. Faults of its content give an error of type Errors; a failure to read
// gives the operating system's error. A large regular file is read piece by piece.
func ParseFile(path string) (*Definition, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, &OpenError{fmt.Errorf("open package file: %w", err)}
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, &OpenError{fmt.Errorf("open package file: %w", err)}
	}
	if st.IsDir() {
		return nil, &OpenError{fmt.Errorf("package file %s: %w; name the file in it, as %s", path, syscall.EISDIR, filepath.Join(path, FileName))}
	}
	if st.Mode().IsRegular() {
		return parse(path, io.NewSectionReader(f, 0, st.Size()), usualSplitting(), nil)
	}
	data, err := io.ReadAll(io.LimitReader(f, MaxFileSize+1))
	if err != nil {
		return nil, &OpenError{fmt.Errorf("read package file: %w", err)}
	}
	return Parse(path, data)
}

// MayNameRooms reports whether the package file at path may say in which rooms or images tasks run. It does not parse the file:
// without the words of these keys, and without the escapes that could spell them, it cannot. It is true if in doubt.
func MayNameRooms(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return true
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() || st.Size() > MaxFileSize {
		return true
	}
	const longest = len("image")
	buf := make([]byte, 64<<10)
	for kept := 0; ; {
		n, err := f.Read(buf[kept:])
		part := buf[:kept+n]
		if bytes.Contains(part, []byte("room")) || bytes.Contains(part, []byte("image")) || bytes.IndexByte(part, '\\') >= 0 {
			return true
		}
		if err != nil {
			return err != io.EOF
		}
		kept = copy(buf, part[max(0, len(part)-longest+1):]) // a word may lie across two reads
	}
}

func parse(name string, file *io.SectionReader, split splitting, lists Lists) (*Definition, error) {
	report := &collector{file: name}
	if file.Size() > MaxFileSize {
		report.add(Pos{1, 1}, "", "the file is larger than %d MiB", MaxFileSize>>20)
		return nil, report.result()
	}
	look, err := scan(file)
	if err != nil {
		return nil, &OpenError{fmt.Errorf("read package file: %w", err)}
	}
	if look.fault != nil {
		return nil, report.end(look.fault)
	}
	if look.bom {
		file = io.NewSectionReader(file, int64(len(byteOrderMark)), file.Size()-int64(len(byteOrderMark)))
	}
	d, fault, err := read(name, file, look, split, lists)
	switch {
	case err != nil:
		return nil, &OpenError{fmt.Errorf("read package file: %w", err)}
	case fault != nil:
		return nil, d.report.end(fault)
	}
	d.finish()
	if err := d.report.result(); err != nil {
		return nil, err
	}
	if d.grows {
		if d.def.text, err = whole(file); err != nil {
			return nil, &OpenError{fmt.Errorf("read package file: %w", err)}
		}
	}
	return d.def, nil
}

// read feeds the file into a decoder with the first reader that accepts it. A reader that fails midway leaves its
// decoder in an incomplete state, so each reader starts with a new one.
func read(name string, file *io.SectionReader, look overview, split splitting, lists Lists) (*decoder, *syntaxError, error) {
	if look.first == '{' {
		d := newDecoder(name, lists)
		fault := readJSON(io.NewSectionReader(file, 0, file.Size()), d)
		if fault == nil {
			return d, nil, nil
		}
		data, err := whole(file)
		if err != nil {
			return nil, nil, err
		}
		if flow := newDecoder(name, lists); readYAML(data, flow) == nil {
			return flow, nil, nil
		}
		return d, fault, nil
	}
	if file.Size() > split.threshold && !look.oddBreaks {
		d := newDecoder(name, lists)
		if ok, err := readPieces(file, split.piece, d); ok || err != nil {
			return d, nil, err
		}
	}
	data, err := whole(file)
	if err != nil {
		return nil, nil, err
	}
	d := newDecoder(name, lists)
	return d, readYAML(data, d), nil
}

func section(data []byte) *io.SectionReader {
	return io.NewSectionReader(bytes.NewReader(data), 0, int64(len(data)))
}

func whole(file *io.SectionReader) ([]byte, error) {
	data := make([]byte, file.Size())
	_, err := io.ReadFull(io.NewSectionReader(file, 0, file.Size()), data)
	return data, err
}

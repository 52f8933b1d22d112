package record

import (
	"fmt"
	"slices"
	"strings"
	"unsafe"

	"e3/internal/format/beast2"
	"e3/internal/format/codec"
)

// Package is the package object: the tasks, their wiring and policy, and the inputs with their default datasets. Only
// it holds names and wiring, so renaming a task or moving an input changes no task hash.
type Package struct {
	Name        string
	Version     string
	Description string
	Inputs      []PackageInput `beast2:",dict"` // in declared order
	Tasks       []PackageTask  `beast2:",dict"` // in declared order, matrices expanded
	// The other fields are for packages with items that the file does not write out.
	Definition string          // hash of the definition; "" if all items are in the file
	Lists      []PackageList   // the sources of items
	Families   []PackageFamily // in declared order
}

// PackageInput is a declared input: its source in the package file, and its dataset at the time when the package was
// built.
type PackageInput struct {
	Name       string
	Source     InputSource
	Location   string // path or pattern relative to the package file, or a URL; "" for a value
	Executable bool   // file: staged with the executable bits
	NoExport   bool   // an export without data omits its content
	Default    Leaf
}

// Reads reports whether a task may read an input or a part of it, or whether the input decides the items of a task. A
// value of a file of parameters is also read by tasks that read the mapping around it, or a value in it.
func (p *Package) Reads(input string) bool {
	overlap := func(name string) bool {
		return name == input || strings.HasPrefix(name, input+".") || strings.HasPrefix(input, name+".")
	}
	means := func(name string) bool {
		file, only, part := PartOf(name)
		return overlap(name) || part && slices.ContainsFunc(only, func(path string) bool { return overlap(file + "." + path) })
	}
	for i := range p.Lists {
		if l := &p.Lists[i]; l.Input != "" && means(l.Input) {
			return true
		}
	}
	for i := range p.Families {
		if p.Families[i].Pending {
			return true // its tasks are not known
		}
	}
	for i := range p.Tasks {
		for k := range p.Tasks[i].Wiring {
			switch w := &p.Tasks[i].Wiring[k]; {
			case w.Kind == WireInput && means(w.Name):
				return true
			case slices.ContainsFunc(w.Items, func(it FanItem) bool { return it.Input != "" && means(it.Input) }):
				return true
			}
		}
	}
	return false
}

// InputSource is the kind of source that a package file declares for an input. The values are the case tags on disk.
type InputSource int

// The sources of inputs.
const (
	FromDir         InputSource = iota
	FromEnvironment             // the files of an environment: paths and patterns in Location, a line each
	FromFile
	FromGlob
	FromParams // a file of parameters, or a value of such a file: params.go
	FromPart   // a file with some values of a file of parameters: PartInput
	FromSheet  // a list of items in a file with the files that it names
	FromTool   // a program on the PATH, with its name in Location; ToolInput makes the input's name
	FromURL    // a file on a web server or in S3, with its URL in Location
	FromValue
	FromVariable // an environment variable, with its name in Location; VariableInput makes the input's name
)

// Cases are the sources' names.
func (s InputSource) Cases() []string {
	return []string{"dir", "environment", "file", "glob", "params", "part", "sheet", "tool", "url", "value", "variable"}
}

// String is the word for a source in answers.
func (s InputSource) String() string {
	if s == FromTool {
		return "program"
	}
	return s.Cases()[s]
}

// OfMachine reports whether each start reads the input anew from its machine: a variable or a program.
func (s InputSource) OfMachine() bool { return s == FromVariable || s == FromTool }

// IsOneFile reports whether the dataset of an input is one file, which e3 set replaces by another one.
func (s InputSource) IsOneFile() bool { return s == FromFile || s == FromURL }

// IsFile reports whether an input comes from files, as a whole or in part.
func (s InputSource) IsFile() bool { return s != FromValue && !s.OfMachine() }

// PackageTask is a task in its package.
type PackageTask struct {
	Name   string
	Task   string // hash of the task object
	Output Kind   // kind of its dataset, so that a hit need not read the task object
	Wiring []Wire // one per input of the task object, in its order
	Policy Policy
}

// BeastType, AppendBeast and ReadBeast make a PackageTask part of a package. They are written by hand because a package
// has up to millions of tasks, and package codec takes a quarter longer to read them.
func (t *PackageTask) BeastType() beast2.Type {
	return beast2.Struct(
		beast2.F("name", beast2.String),
		beast2.F("task", beast2.String),
		beast2.F("output", kindType(outputKinds)),
		beast2.F("wiring", beast2.Array(new(Wire).BeastType())),
		beast2.F("policy", optionalPolicy.Type()))
}

func (t *PackageTask) AppendBeast(b []byte) []byte {
	b = beast2.AppendVarint(beast2.AppendString(beast2.AppendString(b, t.Name), t.Task), uint64(t.Output))
	b = beast2.AppendVarint(beast2.AppendInline(b), uint64(len(t.Wiring)))
	for i := range t.Wiring {
		b = t.Wiring[i].AppendBeast(b)
	}
	return optionalPolicy.Append(b, &t.Policy)
}

func (t *PackageTask) ReadBeast(r *codec.Reader) {
	t.Name, t.Task, t.Output = r.String(), r.String(), Kind(r.Tag(outputKinds))
	at := r.Offset()
	r.Inline()
	if n := r.Length(1, unsafe.Sizeof(Wire{})); n > 0 {
		t.Wiring = make([]Wire, n)
	}
	for i := range t.Wiring {
		if t.Wiring[i].ReadBeast(r); r.Err() != nil {
			return
		}
	}
	if err := t.checkManifests(); err != nil {
		r.Failf(at, "%v", err)
	}
	optionalPolicy.Read(r, &t.Policy)
}

var packages = codec.New[Package]("package")

// Encode returns the bytes of the package object.
func (p *Package) Encode() []byte { return packages.Encode(p, 256+160*len(p.Inputs)+160*len(p.Tasks)) }

// DecodePackage reads a package object. Packages of the reference give ErrType.
func DecodePackage(data []byte) (*Package, error) { return packages.Decode(data) }

// DecodePackageWithin is DecodePackage for an untrusted package. It refuses a package that would take more than memory
// bytes beside its texts: a decoded package can take forty times its bytes.
func DecodePackageWithin(data []byte, memory int64) (*Package, error) {
	return packages.DecodeWithin(data, codec.NewMemory(memory))
}

// Check refuses an input of the machine that has a wrong name, or a value.
func (in *PackageInput) Check() error {
	switch {
	case !in.Source.OfMachine():
	case in.Source == FromVariable && in.Name != VariableInput(in.Location):
		return fmt.Errorf("input %q holds the variable %q", in.Name, in.Location)
	case in.Source == FromTool && in.Name != ToolInput(in.Location):
		return fmt.Errorf("input %q holds the program %q", in.Name, in.Location)
	case in.Default.Kind != LeafUnassigned:
		return fmt.Errorf("%s %q has a value", in.Source.Cases()[in.Source], in.Location)
	}
	return nil
}

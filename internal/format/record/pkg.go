package record

import (
	"slices"
	"strings"
	"unsafe"

	"e3/internal/format/beast2"
)

// Package is the package object: the tasks, their wiring and policy, and the inputs with their default datasets. Only
// it holds names and wiring, so renaming a task or moving an input changes no task hash.
type Package struct {
	Name        string
	Version     string
	Description string
	Inputs      []PackageInput // in declared order
	Tasks       []PackageTask  // in declared order, matrices expanded
	// The rest is of packages with items that the file does not write out.
	Definition string          // hash of the definition; "" if all items are in the file
	Lists      []PackageList   // the sources of items
	Families   []PackageFamily // in declared order
}

// PackageInput is a declared input: its source in the package file, and the dataset that it had when the package was
// built.
type PackageInput struct {
	Name       string
	Source     InputSource
	Location   string // path or pattern relative to the package file; "" for a value
	Executable bool   // file: staged with the executable bits
	NoExport   bool   // an export without data omits its content
	Default    Leaf
}

// Reads reports whether a task may read an input, or some value of it, or whether the input decides the items of a task. For a value of a
// file of parameters, a task that reads the mapping around it does, and so does one that reads a value in it.
func (p *Package) Reads(input string) bool {
	means := func(name string) bool {
		return name == input || strings.HasPrefix(name, input+".") || strings.HasPrefix(input, name+".")
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

// InputSource is how a package file declares an input. The values are the case tags on disk.
type InputSource int

// The sources of inputs.
const (
	FromDir InputSource = iota
	FromFile
	FromGlob
	FromParams // a file of parameters, or one value of it: params.go
	FromTool   // a program on the PATH, which is Location; the input is named by ToolInput
	FromValue
	FromVariable // an environment variable, which is Location; the input is named by VariableInput
	sources      = iota
)

func sourceType() beast2.Type {
	var cases []beast2.Field
	for _, name := range [sources]string{"dir", "file", "glob", "params", "tool", "value", "variable"} {
		cases = append(cases, beast2.F(name, beast2.Null))
	}
	return beast2.Variant(cases...)
}

// String is the word for a source in answers.
func (s InputSource) String() string {
	return [sources]string{"dir", "file", "glob", "params", "program", "value", "variable"}[s]
}

// OfMachine reports whether each start reads the input anew from its machine: a variable or a program.
func (s InputSource) OfMachine() bool { return s == FromVariable || s == FromTool }

// IsFile reports whether an input comes from files.
func (s InputSource) IsFile() bool { return s == FromDir || s == FromFile || s == FromGlob }

// PackageTask is a task in its package.
type PackageTask struct {
	Name   string
	Task   string // hash of the task object
	Output Kind   // of its dataset, so that a hit need not read the task object
	Wiring []Wire // one per input of the task object, in its order
	Policy Policy
}

var packageSchema = newSchema("package", func() beast2.Type {
	str, strs := beast2.String, beast2.Array(beast2.String)
	return beast2.Struct(
		beast2.F("name", str),
		beast2.F("version", str),
		beast2.F("description", str),
		beast2.F("inputs", beast2.Dict(str, beast2.Struct(
			beast2.F("source", sourceType()),
			beast2.F("location", str),
			beast2.F("executable", beast2.Boolean),
			beast2.F("noExport", beast2.Boolean),
			beast2.F("default", leafType())))),
		beast2.F("tasks", beast2.Dict(str, beast2.Struct(
			beast2.F("task", str),
			beast2.F("output", kindType(outputKinds)),
			beast2.F("wiring", beast2.Array(wireType())),
			beast2.F("policy", beast2.Option(policyType()))))),
		beast2.F("definition", str),
		beast2.F("lists", beast2.Array(beast2.Struct(
			beast2.F("input", str), beast2.F("task", str), beast2.F("entry", str), beast2.F("from", str), beast2.F("list", str)))),
		beast2.F("families", beast2.Array(beast2.Struct(
			beast2.F("name", str), beast2.F("lists", beast2.Array(beast2.Integer)), beast2.F("readBy", strs), beast2.F("reads", strs),
			beast2.F("pending", beast2.Boolean), beast2.F("count", beast2.Integer)))))
})

// Encode returns the bytes of the package object.
func (p *Package) Encode() []byte {
	b := packageSchema.begin(256 + 160*len(p.Inputs) + 160*len(p.Tasks))
	b = beast2.AppendString(beast2.AppendString(beast2.AppendString(b, p.Name), p.Version), p.Description)
	b = beast2.AppendVarint(beast2.AppendInline(b), uint64(len(p.Inputs)))
	for i := range p.Inputs {
		in := &p.Inputs[i]
		b = beast2.AppendString(b, in.Name)
		b = beast2.AppendVarint(b, uint64(in.Source))
		b = beast2.AppendString(b, in.Location)
		b = beast2.AppendBoolean(beast2.AppendBoolean(b, in.Executable), in.NoExport)
		b = appendLeaf(b, in.Default)
	}
	b = beast2.AppendVarint(beast2.AppendInline(b), uint64(len(p.Tasks)))
	for i := range p.Tasks {
		t := &p.Tasks[i]
		b = beast2.AppendString(beast2.AppendString(b, t.Name), t.Task)
		b = beast2.AppendVarint(b, uint64(t.Output))
		b = beast2.AppendVarint(beast2.AppendInline(b), uint64(len(t.Wiring)))
		for j := range t.Wiring {
			b = appendWire(b, &t.Wiring[j])
		}
		b = appendPolicy(b, &t.Policy)
	}
	return p.appendItems(b)
}

// DecodePackage reads a package object. Packages of the reference give ErrType.
func DecodePackage(data []byte) (*Package, error) { return decodePackage(data, nil) }

// DecodePackageWithin is DecodePackage for an untrusted package. It refuses a package that would take more than memory
// bytes beside its texts: decoded, a package can take forty times its bytes.
func DecodePackageWithin(data []byte, memory int64) (*Package, error) {
	return decodePackage(data, &allowance{all: memory, left: memory})
}

// allowance bounds the memory of lists. A nil allowance sets no bound.
type allowance struct{ all, left int64 }

// count reads the number of elements of a list. Each takes at least width bytes of the input, and size bytes of
// memory.
func (a *allowance) count(r *beast2.Reader, width int, size uintptr) int {
	at := r.Offset()
	n := r.Count(width)
	if a == nil {
		return n
	}
	if a.left -= int64(n) * int64(size); a.left < 0 {
		r.Failf(at, "its lists take more than %d bytes of memory", a.all)
		return 0
	}
	return n
}

// spend counts what is no list.
func (a *allowance) spend(r *beast2.Reader, size uintptr) {
	if a == nil {
		return
	}
	if a.left -= int64(size); a.left < 0 {
		r.Failf(r.Offset(), "its parts take more than %d bytes of memory", a.all)
	}
}

func (a *allowance) strings(r *beast2.Reader) []string {
	if a == nil {
		return readStrings(r)
	}
	before := *r
	r.Inline()
	if a.count(r, 1, unsafe.Sizeof("")); r.Err() != nil {
		return nil
	}
	*r = before
	return readStrings(r)
}

func decodePackage(data []byte, a *allowance) (*Package, error) {
	r, err := packageSchema.open(data)
	if err != nil {
		return nil, err
	}
	p := &Package{Name: r.String(), Version: r.String(), Description: r.String()}
	p.Inputs = readPackageInputs(r, a)
	r.Inline()
	if n := a.count(r, 6, unsafe.Sizeof(PackageTask{})); n > 0 {
		p.Tasks = make([]PackageTask, n)
	}
	for i := range p.Tasks {
		t := &p.Tasks[i]
		t.Name, t.Task, t.Output = r.String(), r.String(), Kind(r.Tag(outputKinds))
		readWiring(r, a, t)
		if r.Tag(2) == 1 {
			t.Policy = readPolicy(r, a, data)
		}
		if r.Err() != nil {
			break
		}
	}
	readItems(r, a, p)
	return p, packageSchema.done(r)
}

// readPackageInputs reads the inputs.
func readPackageInputs(r *beast2.Reader, a *allowance) []PackageInput {
	r.Inline()
	n := a.count(r, 6, unsafe.Sizeof(PackageInput{}))
	if n == 0 {
		return nil
	}
	list := make([]PackageInput, n)
	for i := range list {
		at := r.Offset()
		in := PackageInput{
			Name:       r.String(),
			Source:     InputSource(r.Tag(sources)),
			Location:   r.String(),
			Executable: r.Boolean(),
			NoExport:   r.Boolean(),
			Default:    readLeaf(r),
		}
		switch {
		case !in.Source.OfMachine():
		case in.Source == FromVariable && in.Name != VariableInput(in.Location):
			r.Failf(at, "input %q holds the variable %q", in.Name, in.Location)
		case in.Source == FromTool && in.Name != ToolInput(in.Location):
			r.Failf(at, "input %q holds the program %q", in.Name, in.Location)
		case in.Default.Kind != LeafUnassigned:
			r.Failf(at, "%s %q has a value", map[InputSource]string{FromVariable: "variable", FromTool: "program"}[in.Source], in.Location)
		}
		if list[i] = in; r.Err() != nil {
			return list
		}
	}
	return list
}

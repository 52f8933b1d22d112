package record

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
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
	FromValue
	FromVariable // an environment variable, which is Location; the input is named by VariableInput
	FromTool     // a program on the PATH, which is Location; the input is named by ToolInput
	FromParams   // a file of parameters, or one value of it: params.go
)

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

// Policy is how to run a task. Nothing in it enters a key.
type Policy struct {
	Description string
	Timeout     time.Duration // 0: none
	Retries     int64         // further attempts after the first
	RetryOn     []string      // reasons and exit codes that are retried; none: all
	Lost        int64         // further attempts, beside Retries, of one whose worker was lost; 0: three, negative: none
	Backoff     time.Duration // before the first retry, doubled for each later one
	CPU         float64       // 0: one
	Memory      int64         // bytes, 0: not declared
	Resources   []Amount      // other declared resources
	Priority    int64         // greater runs first among ready tasks
	OOM         Escalation    // of the demand for memory, after memory ran out
	Approve     bool          // a person must approve it before it runs
	Suspend     int64         // the exit code by which the command asks to be resumed later; 0: none
	OnLost      OnLost        // what happens to the command when the lease of its process is over
	MayFail     bool          // its failure does not fail the run
	Batch       int64         // the most items for one command; 0: the task does not run in batches
	Limits      bool          // CPU and Memory are limits, where the machine can hold them
	Queue       string        // for workers; "": the run's
	Labels      []string      // a worker must have all of them
	PassEnv     []string      // of packages that were built before the task object had Passed: its Env
	Secrets     []string      // likewise its Secrets
	OutputKinds []EnvVar      // entry name → metrics, plot or report
}

// MostPassed is the number of later tasks that may overtake a task that waits for cores or memory, in a local run and
// on each worker.
const MostPassed = 32

// Escalation describes the growth of a demand from one attempt to the next.
type Escalation struct {
	Factor float64 // of the previous demand; 0: it stays
	Max    int64   // bytes; 0: no bound
}

// Amount is a named quantity of a resource.
type Amount struct {
	Name  string
	Value float64
}

// isZero reports whether a task has no policy apart from its handling.
func (p *Policy) isZero() bool {
	return p.Description == "" && p.Timeout == 0 && p.Retries == 0 && p.Backoff == 0 && p.CPU == 0 && p.Memory == 0 &&
		len(p.Resources) == 0 && p.Priority == 0 && len(p.PassEnv) == 0 && len(p.Secrets) == 0 && len(p.OutputKinds) == 0
}

// sourceCases are the cases of InputSource on disk. They are sorted, as in every variant, so a new one gets a name that sorts
// last: "which" is a program, after the command that finds one; "yaml" is a file of parameters.
var sourceCases = [...]string{"dir", "file", "glob", "value", "variable", "which", "yaml"}

// sourceType is the type of the sources up to last. Packages and links that use no later ones keep their bytes.
func sourceType(last InputSource) beast2.Type {
	var cases []beast2.Field
	for _, name := range sourceCases[:last+1] {
		cases = append(cases, beast2.F(name, beast2.Null))
	}
	return beast2.Variant(cases...)
}

// isVariable reports whether an input is an environment variable.
func (in PackageInput) isVariable() bool { return in.Source == FromVariable }

// isTool reports whether an input is a program.
func (in PackageInput) isTool() bool { return in.Source == FromTool }

// A packageForm is the set of fields of a package object. Fields were added over time, and each form also has those of
// the forms before it. A package is encoded in the first form that holds all of its data, so that its bytes and its
// hash stay the same when a form is added. A new form takes a constant at the end, its schema, a case in Package.form,
// and lines at the end of Encode and decodePackage.
type packageForm int

const (
	plainForm   packageForm = iota
	markedForm              // an input is left out of exports
	handledForm             // a task has handling
	keyedForm               // an input is an environment variable, which is one more kind of source
	onLostForm              // a task says what happens to its command when a lease is over
	toolForm                // an input is a program, which is one more kind of source
	paramsForm              // an input is a file of parameters, which is one more kind of source
	grownForm               // the tasks are made from lists of items, or one reads a part of an input
	gatherForm              // a fan-in has a manifest, and may do with some of its members
)

var packageSchemas = [...]schema{
	plainForm: newSchema("package", func() beast2.Type { return beast2.Struct(packageFields(sourceType(FromValue))...) }),
	markedForm: newSchema("package", func() beast2.Type {
		return beast2.Struct(append(packageFields(sourceType(FromValue)), marksField())...)
	}),
	handledForm: newSchema("package", func() beast2.Type {
		return beast2.Struct(append(packageFields(sourceType(FromValue)), marksField(), handlingField())...)
	}),
	keyedForm: newSchema("package", func() beast2.Type {
		return beast2.Struct(append(packageFields(sourceType(FromVariable)), marksField(), handlingField())...)
	}),
	onLostForm: newSchema("package", func() beast2.Type {
		return beast2.Struct(append(packageFields(sourceType(FromVariable)), marksField(), handlingField(), onLostField())...)
	}),
	toolForm: newSchema("package", func() beast2.Type {
		return beast2.Struct(append(packageFields(sourceType(FromTool)), marksField(), handlingField(), onLostField())...)
	}),
	paramsForm: newSchema("package", func() beast2.Type {
		return beast2.Struct(append(packageFields(sourceType(FromParams)), marksField(), handlingField(), onLostField())...)
	}),
	grownForm: newSchema("package", func() beast2.Type {
		fields := append(packageFieldsWith(sourceType(FromParams), grownWireType()), marksField(), handlingField(), onLostField())
		return beast2.Struct(append(fields, grownFields()...)...)
	}),
	gatherForm: newSchema("package", func() beast2.Type {
		fields := append(packageFieldsWith(sourceType(FromParams), gatherWireType()), marksField(), handlingField(), onLostField())
		return beast2.Struct(append(fields, grownFields()...)...)
	}),
}

// form returns the form of a package, given its marked inputs.
func (p *Package) form(marked []string) packageForm {
	switch {
	case p.isGathered():
		return gatherForm
	case p.isGrown():
		return grownForm
	case slices.ContainsFunc(p.Inputs, PackageInput.isParams):
		return paramsForm
	case slices.ContainsFunc(p.Inputs, PackageInput.isTool):
		return toolForm
	case anyTask(p.Tasks, (*Policy).saysOnLost):
		return onLostForm
	case slices.ContainsFunc(p.Inputs, PackageInput.isVariable):
		return keyedForm
	case anyTask(p.Tasks, (*Policy).isHandled):
		return handledForm
	case len(marked) > 0:
		return markedForm
	}
	return plainForm
}

// lastSource is the last kind of source that an input can have in a form.
func (f packageForm) lastSource() InputSource {
	switch {
	case f >= paramsForm:
		return FromParams
	case f >= toolForm:
		return FromTool
	case f >= keyedForm:
		return FromVariable
	}
	return FromValue
}

// lacks says what a package of a form lacks if a shorter form would hold it.
var lacks = [...]string{
	markedForm: "no input is marked", handledForm: "no task has handling", keyedForm: "no input is a variable",
	onLostForm: "no task says what happens when a lease is over", toolForm: "no input is a program", paramsForm: "no input is a file of parameters",
	grownForm: "no task is made from a list of items", gatherForm: "no fan-in has a manifest",
}

// openPackage finds the form of a package object, and returns a reader at its value.
func openPackage(data []byte) (packageForm, *beast2.Reader, error) {
	for form := range packageSchemas {
		if r, err := packageSchemas[form].open(data); !errors.Is(err, ErrType) {
			return packageForm(form), r, err
		}
	}
	return 0, nil, fmt.Errorf("package: %w", ErrType)
}

func marksField() beast2.Field { return beast2.F("noExport", beast2.Array(beast2.String)) }

func packageFields(source beast2.Type) []beast2.Field {
	str := beast2.String
	item := beast2.Struct(beast2.F("label", str), beast2.F("task", str), beast2.F("entry", str))
	return packageFieldsWith(source, beast2.Variant(
		beast2.F("fanIn", beast2.Array(item)),
		beast2.F("input", str),
		beast2.F("output", beast2.Struct(beast2.F("task", str), beast2.F("entry", str)))))
}

func packageFieldsWith(source, wire beast2.Type) []beast2.Field {
	str, integer := beast2.String, beast2.Integer
	policy := beast2.Struct(
		beast2.F("description", str), beast2.F("timeoutMs", integer), beast2.F("retries", integer), beast2.F("backoffMs", integer),
		beast2.F("cpu", beast2.Float), beast2.F("memory", integer), beast2.F("resources", beast2.Dict(str, beast2.Float)),
		beast2.F("priority", integer), beast2.F("passEnv", beast2.Array(str)), beast2.F("secrets", beast2.Array(str)),
		beast2.F("outputKinds", beast2.Dict(str, str)))
	return []beast2.Field{
		beast2.F("name", str),
		beast2.F("version", str),
		beast2.F("description", str),
		beast2.F("inputs", beast2.Dict(str, beast2.Struct(
			beast2.F("source", source),
			beast2.F("location", str),
			beast2.F("executable", beast2.Boolean),
			beast2.F("default", leafType())))),
		beast2.F("tasks", beast2.Dict(str, beast2.Struct(
			beast2.F("task", str),
			beast2.F("output", kindType()),
			beast2.F("wiring", beast2.Array(wire)),
			beast2.F("policy", beast2.Option(policy))))),
	}
}

// marked are the inputs whose content an export without data leaves out.
func (p *Package) marked() []string {
	var marked []string
	for i := range p.Inputs {
		if p.Inputs[i].NoExport {
			marked = append(marked, p.Inputs[i].Name)
		}
	}
	return marked
}

// Encode returns the bytes of the package object.
func (p *Package) Encode() []byte {
	marked := p.marked()
	form := p.form(marked)
	b := packageSchemas[form].begin(256 + 160*len(p.Inputs) + 160*len(p.Tasks))
	b = beast2.AppendString(beast2.AppendString(beast2.AppendString(b, p.Name), p.Version), p.Description)
	b = beast2.AppendVarint(beast2.AppendInline(b), uint64(len(p.Inputs)))
	for i := range p.Inputs {
		in := &p.Inputs[i]
		b = beast2.AppendString(b, in.Name)
		b = beast2.AppendVarint(b, uint64(in.Source))
		b = beast2.AppendString(b, in.Location)
		b = beast2.AppendBoolean(b, in.Executable)
		b = appendLeaf(b, in.Default)
	}
	b = beast2.AppendVarint(beast2.AppendInline(b), uint64(len(p.Tasks)))
	for i := range p.Tasks {
		t := &p.Tasks[i]
		b = beast2.AppendString(beast2.AppendString(b, t.Name), t.Task)
		b = beast2.AppendVarint(b, uint64(t.Output))
		b = beast2.AppendVarint(beast2.AppendInline(b), uint64(len(t.Wiring)))
		for j := range t.Wiring {
			b = appendWire(b, &t.Wiring[j], form)
		}
		b = appendPolicy(b, &t.Policy)
	}
	if form >= markedForm {
		b = appendStrings(b, marked)
	}
	if form >= handledForm {
		b = p.appendHandling(b)
	}
	if form >= onLostForm {
		b = p.appendOnLost(b)
	}
	if form >= grownForm {
		b = p.appendGrown(b)
	}
	return b
}

func appendPolicy(b []byte, p *Policy) []byte {
	if p.isZero() {
		return append(b, 0)
	}
	b = beast2.AppendString(append(b, 1), p.Description)
	b = beast2.AppendInteger(b, p.Timeout.Milliseconds())
	b = beast2.AppendInteger(b, p.Retries)
	b = beast2.AppendInteger(b, p.Backoff.Milliseconds())
	b = beast2.AppendFloat(b, p.CPU)
	b = beast2.AppendInteger(b, p.Memory)
	b = beast2.AppendVarint(beast2.AppendInline(b), uint64(len(p.Resources)))
	for _, a := range p.Resources {
		b = beast2.AppendFloat(beast2.AppendString(b, a.Name), a.Value)
	}
	b = beast2.AppendInteger(b, p.Priority)
	b = appendStrings(b, p.PassEnv)
	b = appendStrings(b, p.Secrets)
	b = beast2.AppendVarint(beast2.AppendInline(b), uint64(len(p.OutputKinds)))
	for _, k := range p.OutputKinds {
		b = beast2.AppendString(beast2.AppendString(b, k.Name), k.Value)
	}
	return b
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
	form, r, err := openPackage(data)
	if err != nil {
		return nil, err
	}
	p := &Package{Name: r.String(), Version: r.String(), Description: r.String()}
	p.Inputs = readPackageInputs(r, a, form)
	r.Inline()
	if n := a.count(r, 6, unsafe.Sizeof(PackageTask{})); n > 0 {
		p.Tasks = make([]PackageTask, n)
	}
	for i := range p.Tasks {
		t := &p.Tasks[i]
		t.Name, t.Task, t.Output = r.String(), r.String(), Kind(r.Tag(4))
		readWiring(r, a, form, t)
		if t.Policy = readPolicy(r, a); r.Err() != nil {
			break
		}
	}
	if form >= markedForm {
		readMarks(r, a, p.Inputs, form > markedForm)
	}
	if form >= handledForm {
		readHandling(r, a, p.Tasks, form > handledForm)
	}
	if form >= onLostForm {
		readOnLost(r, p.Tasks, form > onLostForm)
	}
	if form >= grownForm {
		readGrown(r, a, p)
	}
	if r.Err() == nil && p.form(p.marked()) != form { // each package has exactly one valid form
		r.Failf(r.Offset(), "%s", lacks[form])
	}
	return p, packageSchemas[form].done(r)
}

// readPackageInputs reads the inputs.
func readPackageInputs(r *beast2.Reader, a *allowance, form packageForm) []PackageInput {
	sources := int(form.lastSource()) + 1
	r.Inline()
	n := a.count(r, 5, unsafe.Sizeof(PackageInput{}))
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
			Default:    readLeaf(r),
		}
		switch {
		case !in.Source.OfMachine():
		case in.isVariable() && in.Name != VariableInput(in.Location):
			r.Failf(at, "input %q holds the variable %q", in.Name, in.Location)
		case in.isTool() && in.Name != ToolInput(in.Location):
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

// readMarks reads the marked inputs, in the order of the inputs. At least one must be marked, unless none is true.
func readMarks(r *beast2.Reader, a *allowance, inputs []PackageInput, none bool) {
	at := r.Offset()
	marked := a.strings(r)
	if len(marked) == 0 && !none {
		r.Failf(at, "no input is marked")
	}
	for i := range inputs {
		if len(marked) > 0 && inputs[i].Name == marked[0] {
			inputs[i].NoExport, marked = true, marked[1:]
		}
	}
	if len(marked) > 0 {
		r.Failf(at, "mark of %q: there is no such input, or the marks are in another order", marked[0])
	}
}

func readPolicy(r *beast2.Reader, a *allowance) Policy {
	var p Policy
	at := r.Offset()
	if r.Tag(2) == 0 {
		return p
	}
	p.Description = r.String()
	p.Timeout = readMillis(r)
	p.Retries = r.Integer()
	p.Backoff = readMillis(r)
	p.CPU = readAmount(r)
	p.Memory = r.Integer()
	r.Inline()
	for range a.count(r, 9, 2*unsafe.Sizeof(Amount{})) {
		p.Resources = append(p.Resources, Amount{Name: r.String(), Value: readAmount(r)})
	}
	p.Priority = r.Integer()
	p.PassEnv, p.Secrets = a.strings(r), a.strings(r)
	r.Inline()
	for range a.count(r, 2, 2*unsafe.Sizeof(EnvVar{})) { // a growing slice has up to twice the capacity
		p.OutputKinds = append(p.OutputKinds, EnvVar{Name: r.String(), Value: r.String()})
	}
	if p.isZero() {
		r.Failf(at, "policy is present but says nothing")
	}
	return p
}

// readAmount reads a quantity of a resource. It refuses numbers that would spoil a sum.
func readAmount(r *beast2.Reader) float64 {
	at := r.Offset()
	v := r.Float()
	if !(v >= 0 && v <= math.MaxFloat64) {
		r.Failf(at, "amount %v is out of range", v)
		return 0
	}
	return v
}

// readMillis reads a duration. It refuses one that a time.Duration cannot hold.
func readMillis(r *beast2.Reader) time.Duration {
	at := r.Offset()
	ms := r.Integer()
	if ms < 0 || ms > int64(1<<63-1)/int64(time.Millisecond) {
		r.Failf(at, "duration of %d ms is out of range", ms)
		return 0
	}
	return time.Duration(ms) * time.Millisecond
}

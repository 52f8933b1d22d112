package record

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"e3/internal/format/beast2"
)

// Task is the task object: all facts that decide what a task computes, and no others. Its hash is the task hash. Names
// belong to the package; timeouts, retries and the like to Policy.
type Task struct {
	Argv    []string // the command as a list: no shell
	Shell   string   // or as a script for bash -euo pipefail -c; Argv is nil then
	Env     []EnvVar // declared environment and matrix constants, in declared order
	Inputs  []Input
	Output  Output
	Version string // explicit "version:", "" without one
	Passed  Passed // variables of e3's own environment
	Room    Room   // where the command runs
	Batch   *Batch // the command reads its items from a file; nil: it serves one task, in its environment
	Image   string // hash of the manifest of the image whose files a closed room shows; "": those of the machine
}

// Passed are the names, in key order, of variables that a command gets from e3's own environment. Their values enter no
// key.
type Passed struct {
	Env     []string // passed if they are set
	Secrets []string // must be set; masked in logs
}

// Room is what a command can see and reach beside its inputs. The zero value is the open room: everything that its user
// can.
type Room struct {
	Closed  bool // the system's programs only
	Network bool // with Closed: this machine's network

	// Devices are, with Closed, the names of devices in key order, each followed by a space; see WithDevices. As text, so
	// that rooms can be compared.
	Devices string
}

// WithDevices returns a closed room that has the devices with these names too.
func (r Room) WithDevices(names []string) Room {
	r.Devices = ""
	for _, name := range Names(names) {
		r.Devices += name + " "
	}
	return r
}

// DeviceNames are the names of the room's devices, in key order.
func (r Room) DeviceNames() []string { return strings.Fields(r.Devices) }

func (r Room) String() string {
	if !r.Closed {
		return "open"
	}
	text := "closed"
	if r.Network {
		text += ", with the network"
	}
	if r.Devices != "" {
		text += ", with devices: " + strings.Join(r.DeviceNames(), ", ")
	}
	return text
}

// roomNetwork is what a task object calls Room.Network.
const roomNetwork = "network"

// roomDevice begins what a task object calls a device of a room. It sorts before roomNetwork.
const roomDevice = "device:"

// words are what the object of a task in a closed room says of the room, in key order.
func (r *Room) words() (list []string) {
	for _, name := range r.DeviceNames() {
		list = append(list, roomDevice+name)
	}
	if r.Network {
		list = append(list, roomNetwork)
	}
	return list
}

// readRoom reads a closed room. A word that this e3 does not know may open or close something: it is refused.
func readRoom(r *beast2.Reader) Room {
	room := Room{Closed: true}
	at := r.Offset()
	for _, word := range readNames(r) {
		device, ok := strings.CutPrefix(word, roomDevice)
		switch {
		case word == roomNetwork:
			room.Network = true
		case ok && ValidDevice(device):
			room.Devices += device + " "
		default:
			r.Failf(at, "a closed room with %q is not supported by this version", word)
		}
	}
	return room
}

// ValidDevice reports whether tasks can name a device of this name.
func ValidDevice(name string) bool { return name == "nvidia" }

// None reports whether no variable is passed.
func (p *Passed) None() bool { return len(p.Env) == 0 && len(p.Secrets) == 0 }

// Names sorts names into the order in which they enter the key, because their order in the declaration is irrelevant.
func Names(list []string) []string {
	list = slices.Clone(list)
	slices.SortFunc(list, beast2.CompareStrings)
	return slices.Compact(list)
}

// EnvVar is one constant of a task's environment.
type EnvVar struct{ Name, Value string }

// Kind is the form in which a task reads or writes a dataset. The values are the case tags on disk.
type Kind int

// The kinds of inputs and outputs.
const (
	KindDir        Kind = iota // a directory object
	KindExecutable             // raw bytes, staged with the executable bits
	KindFile                   // raw bytes
	KindValue                  // a beast2 value; inputs only
	KindVariable               // an environment variable: its text, or null where it is unset; inputs only
	KindTool                   // a program of the machine: the hashes of what it consists of, as text; inputs only
)

func (k Kind) String() string {
	switch k {
	case KindDir:
		return "directory"
	case KindExecutable:
		return "executable file"
	case KindFile:
		return "file"
	case KindVariable:
		return "environment variable"
	case KindTool:
		return "program"
	}
	return "value"
}

// VariableInput names the input of a package that holds the value of an environment variable. No package file can
// declare such a name.
func VariableInput(variable string) string { return "$" + variable }

// VariableOf is the environment variable whose value an input of a package holds; false for any other input.
func VariableOf(input string) (string, bool) { return strings.CutPrefix(input, "$") }

// ToolInput names the input of a package that holds the parts of a program. No package file can declare such a name.
func ToolInput(program string) string { return "%" + program }

// ToolOf is the program whose parts an input of a package holds; false for any other input.
func ToolOf(input string) (string, bool) { return strings.CutPrefix(input, "%") }

// ToolFile reports whether an input of this name is a program of the project, of tools: the command gets it at its path,
// and in no variable.
func ToolFile(input string) bool { return strings.HasPrefix(input, "./") }

// OfMachine reports whether an input of this kind comes from the machine on which a run starts, and not from a file or
// another task.
func (k Kind) OfMachine() bool { return k == KindVariable || k == KindTool }

// Input is one declared input: its name for the command, its path relative to the task's directory, and its form.
type Input struct {
	Name string
	Path string
	Kind Kind
}

// ValuesDir is the folder in which e3 stages the files that it makes of values and manifests. No declared path leads there.
const ValuesDir = ".e3-values"

// Made reports whether e3 itself makes the content: a value, a variable, a tool, or the manifest of a fan-in. No file of the
// project and no task has it.
func (in *Input) Made() bool {
	return in.Kind == KindValue || in.Kind.OfMachine() || strings.HasPrefix(in.Path, ValuesDir+"/")
}

// Output declares the files and directories that the task must produce. Without Multi it has one entry, and the
// dataset is that file or directory. With Multi the dataset is a directory whose entries have the declared names.
type Output struct {
	Multi   bool
	Entries []OutputEntry
}

// IsDir reports whether the dataset is a directory.
func (o *Output) IsDir() bool { return o.Multi || o.Entries[0].Kind == KindDir }

// OutputEntry is one declared output. Name is "out" where the output is not Multi.
type OutputEntry struct {
	Name string
	Path string
	Kind Kind
}

func kindType() beast2.Type {
	return beast2.Variant(
		beast2.F("dir", beast2.Null), beast2.F("executable", beast2.Null),
		beast2.F("file", beast2.Null), beast2.F("value", beast2.Null))
}

// keyedKindType has the kinds of a form: with variables, and with tools ("which", after the program that finds them).
func keyedKindType(tools bool) beast2.Type {
	kinds := []beast2.Field{
		beast2.F("dir", beast2.Null), beast2.F("executable", beast2.Null),
		beast2.F("file", beast2.Null), beast2.F("value", beast2.Null), beast2.F("variable", beast2.Null),
	}
	if tools {
		kinds = append(kinds, beast2.F("which", beast2.Null))
	}
	return beast2.Variant(kinds...)
}

// A taskForm is the set of fields of a task object. Fields and kinds were added over time, and each form also has those of
// the forms before it. A task is encoded in the first form that holds all of its data, so its hash stays the same when a
// form is added. An older e3 refuses a longer form: it would take tasks that differ only there for the same one, or set a
// variable that must be unset, or run a command in the open.
type taskForm int

const (
	plainTask   taskForm = iota
	passingTask          // variables are passed to it
	keyedTask            // an input is an environment variable, which is one more kind
	toolTask             // an input is a program, which is one more kind
	closedTask           // it runs in a closed room, whose field lists what the room has beyond the least
	batchTask            // its command serves several items; the room is an option
)

var taskSchemas = [...]schema{
	plainTask: newSchema("task", func() beast2.Type { return beast2.Struct(taskFields(kindType())...) }),
	passingTask: newSchema("task", func() beast2.Type {
		return beast2.Struct(append(taskFields(kindType()), passedField())...)
	}),
	keyedTask: newSchema("task", func() beast2.Type {
		return beast2.Struct(append(taskFields(keyedKindType(false)), passedField())...)
	}),
	toolTask: newSchema("task", func() beast2.Type {
		return beast2.Struct(append(taskFields(keyedKindType(true)), passedField())...)
	}),
	closedTask: newSchema("task", func() beast2.Type {
		return beast2.Struct(append(taskFields(keyedKindType(true)), passedField(), beast2.F("room", beast2.Array(beast2.String)))...)
	}),
	batchTask: newSchema("task", func() beast2.Type {
		return beast2.Struct(append(taskFields(keyedKindType(true)), passedField(),
			beast2.F("room", beast2.Option(beast2.Array(beast2.String))), beast2.F("batch", beast2.Array(beast2.String)))...)
	}),
}

// form returns the form of a task.
func (t *Task) form() taskForm {
	switch {
	case t.Batch != nil:
		return batchTask
	case t.Room.Closed:
		return closedTask
	case slices.ContainsFunc(t.Inputs, Input.isTool):
		return toolTask
	case slices.ContainsFunc(t.Inputs, Input.isVariable):
		return keyedTask
	case !t.Passed.None():
		return passingTask
	}
	return plainTask
}

// kinds is the number of kinds that an input can have.
func (f taskForm) kinds() int {
	switch f {
	case plainTask, passingTask:
		return 4
	case keyedTask:
		return 5
	}
	return 6
}

func passedField() beast2.Field {
	return beast2.F("passed", beast2.Struct(
		beast2.F("env", beast2.Array(beast2.String)), beast2.F("secrets", beast2.Array(beast2.String))))
}

func taskFields(inputKind beast2.Type) []beast2.Field {
	member := func(kind beast2.Type) beast2.Type {
		return beast2.Struct(beast2.F("name", beast2.String), beast2.F("path", beast2.String), beast2.F("kind", kind))
	}
	return []beast2.Field{
		beast2.F("command", beast2.Variant(
			beast2.F("argv", beast2.Array(beast2.String)), beast2.F("shell", beast2.String))),
		beast2.F("env", beast2.Dict(beast2.String, beast2.String)),
		beast2.F("inputs", beast2.Array(member(inputKind))),
		beast2.F("output", beast2.Struct(beast2.F("multi", beast2.Boolean), beast2.F("entries", beast2.Array(member(kindType()))))),
		beast2.F("image", beast2.Option(beast2.String)),
		beast2.F("version", beast2.Option(beast2.String)),
	}
}

// Encode returns the bytes of the task object.
func (t *Task) Encode() []byte {
	form := t.form()
	b := taskSchemas[form].begin(256 + len(t.Shell))
	if t.Argv != nil {
		b = appendStrings(append(b, 0), t.Argv)
	} else {
		b = beast2.AppendString(append(b, 1), t.Shell)
	}
	b = beast2.AppendVarint(beast2.AppendInline(b), uint64(len(t.Env)))
	for _, e := range t.Env {
		b = beast2.AppendString(beast2.AppendString(b, e.Name), e.Value)
	}
	b = beast2.AppendVarint(beast2.AppendInline(b), uint64(len(t.Inputs)))
	for _, in := range t.Inputs {
		b = appendMember(b, in.Name, in.Path, in.Kind)
	}
	b = beast2.AppendBoolean(b, t.Output.Multi)
	b = beast2.AppendVarint(beast2.AppendInline(b), uint64(len(t.Output.Entries)))
	for _, e := range t.Output.Entries {
		b = appendMember(b, e.Name, e.Path, e.Kind)
	}
	b = appendOptString(b, t.Image)
	b = appendOptString(b, t.Version)
	if form >= passingTask {
		b = appendStrings(appendStrings(b, t.Passed.Env), t.Passed.Secrets)
	}
	switch {
	case form == closedTask:
		b = appendStrings(b, t.Room.words())
	case form == batchTask:
		if b = beast2.AppendBoolean(b, t.Room.Closed); t.Room.Closed {
			b = appendStrings(b, t.Room.words())
		}
		b = appendStrings(b, t.Batch.Own)
	}
	return b
}

func appendMember(b []byte, name, path string, k Kind) []byte {
	b = beast2.AppendString(beast2.AppendString(b, name), path)
	return beast2.AppendVarint(b, uint64(k))
}

// maxTaskParts is the greatest number of arguments, constants, inputs or outputs of a task. No command line holds
// more, and the record of an execution has no room for more inputs. In memory they can take twenty times their bytes.
const maxTaskParts = 1 << 17

// readParts reads the number of a task's parts of one kind, each of which takes at least width bytes.
func readParts(r *beast2.Reader, width int) int {
	at := r.Offset()
	n := r.Count(width)
	if n > maxTaskParts {
		r.Failf(at, "%d parts of a task are more than %d", n, maxTaskParts)
		return 0
	}
	return n
}

// DecodeTask reads a task object. Task objects of the reference give ErrType: they hold
// East IR, which cannot be run here.
func DecodeTask(data []byte) (*Task, error) {
	form, r, err := openTask(data)
	if err != nil {
		return nil, err
	}
	t := &Task{}
	at := r.Offset()
	if r.Tag(2) == 0 {
		r.Inline()
		for range readParts(r, 1) {
			t.Argv = append(t.Argv, r.String())
		}
		if len(t.Argv) == 0 {
			r.Failf(at, "command is empty")
		}
	} else {
		t.Shell = r.String()
	}
	r.Inline()
	for range readParts(r, 2) {
		t.Env = append(t.Env, EnvVar{Name: r.String(), Value: r.String()})
	}
	readInputs(r, t, form)
	at = r.Offset()
	t.Output.Multi = r.Boolean()
	r.Inline()
	for range readParts(r, 3) {
		t.Output.Entries = append(t.Output.Entries, OutputEntry{Name: r.String(), Path: r.String(), Kind: Kind(r.Tag(4))})
	}
	if n := len(t.Output.Entries); n == 0 || n > 1 && !t.Output.Multi {
		r.Failf(at, "output with %d entries", n)
	}
	imageAt := r.Offset()
	t.Image = readOptString(r)
	t.Version = readOptString(r)
	if form >= passingTask {
		at = r.Offset()
		t.Passed = Passed{Env: readNames(r), Secrets: readNames(r)}
	}
	switch {
	case form == closedTask:
		t.Room = readRoom(r)
	case form == batchTask:
		if r.Tag(2) == 1 {
			t.Room = readRoom(r)
		}
		readBatch(r, t)
	}
	if r.Err() == nil && t.Image != "" && (!t.Room.Closed || !isHash(t.Image)) {
		r.Failf(imageAt, "image %.80q is not the hash of one, or its room is not closed", t.Image)
	}
	if r.Err() == nil && t.form() != form { // each task has exactly one valid form
		r.Failf(at, "%s", [...]string{passingTask: "no variable is passed", keyedTask: "no input is a variable", toolTask: "no input is a program"}[form])
	}
	return t, taskSchemas[form].done(r)
}

// openTask finds the form of a task object, and returns a reader at its value.
func openTask(data []byte) (taskForm, *beast2.Reader, error) {
	for form := range taskSchemas {
		if r, err := taskSchemas[form].open(data); !errors.Is(err, ErrType) {
			return taskForm(form), r, err
		}
	}
	return 0, nil, fmt.Errorf("task: %w", ErrType)
}

// isVariable reports whether an input is an environment variable.
func (in Input) isVariable() bool { return in.Kind == KindVariable }

// isTool reports whether an input is a program.
func (in Input) isTool() bool { return in.Kind == KindTool }

// readInputs reads the inputs.
func readInputs(r *beast2.Reader, t *Task, form taskForm) {
	r.Inline()
	for range readParts(r, 3) {
		at := r.Offset()
		in := Input{Name: r.String(), Path: r.String(), Kind: Kind(r.Tag(form.kinds()))}
		if in.Kind.OfMachine() && in.Path != "" {
			r.Failf(at, "%s %q has a path", in.Kind, in.Name)
		}
		t.Inputs = append(t.Inputs, in)
	}
}

// readNames reads names in key order, each once.
func readNames(r *beast2.Reader) []string {
	at := r.Offset()
	before := *r
	r.Inline()
	if readParts(r, 1); r.Err() != nil {
		return nil
	}
	*r = before
	names := readStrings(r)
	for i := 1; i < len(names); i++ {
		if beast2.CompareStrings(names[i-1], names[i]) >= 0 {
			r.Failf(at, "name %q is out of order", names[i])
			return nil
		}
	}
	return names
}

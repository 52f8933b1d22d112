package record

import (
	"slices"
	"strings"

	"e3/internal/format/beast2"
	"e3/internal/format/codec"
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

// ValidDevice reports whether tasks can name a device of this name.
func ValidDevice(name string) bool { return name == "nvidia" }

// Names sorts names into the order in which they enter the key, because their order in the declaration is irrelevant.
func Names(list []string) []string {
	list = slices.Clone(list)
	slices.SortFunc(list, beast2.CompareStrings)
	return slices.Compact(list)
}

// EnvVar is one constant of a task's environment.
type EnvVar struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Kind is the form in which a task reads or writes a dataset. The values are the case tags on disk.
type Kind int

// The kinds of inputs and outputs.
const (
	KindDir        Kind = iota // a directory object
	KindExecutable             // raw bytes, staged with the executable bits
	KindFile                   // raw bytes
	KindTool                   // a program of the machine: the hashes of what it consists of, as text; inputs only
	KindValue                  // a beast2 value; inputs only
	KindVariable               // an environment variable: its text, or null where it is unset; inputs only
)

// The first kinds are those of outputs.
const (
	outputKinds = int(KindFile) + 1
	inputKinds  = int(KindVariable) + 1
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

// Cases are the kinds' names.
func (k Kind) Cases() []string {
	return []string{"dir", "executable", "file", "tool", "value", "variable"}
}

// kindType is the type of the first n kinds.
func kindType(n int) beast2.Type {
	var cases []beast2.Field
	for _, name := range Kind(0).Cases()[:n] {
		cases = append(cases, beast2.F(name, beast2.Null))
	}
	return beast2.Variant(cases...)
}

var taskCodec = codec.New[Task]("task")

// Encode returns the bytes of the task object.
func (t *Task) Encode() []byte { return taskCodec.Encode(t, 256+len(t.Shell)) }

// DecodeTask reads a task object. Task objects of the reference give ErrType: they hold
// East IR, which cannot be run here.
func DecodeTask(data []byte) (*Task, error) { return taskCodec.Decode(data) }

// BeastType, AppendBeast and ReadBeast make a Task a record.
func (t *Task) BeastType() beast2.Type {
	str, strs := beast2.String, beast2.Array(beast2.String)
	members := func(kinds int) beast2.Type {
		return beast2.Array(beast2.Struct(beast2.F("name", str), beast2.F("path", str), beast2.F("kind", kindType(kinds))))
	}
	return beast2.Struct(
		beast2.F("command", beast2.Variant(beast2.F("argv", strs), beast2.F("shell", str))),
		beast2.F("env", beast2.Dict(str, str)),
		beast2.F("inputs", members(inputKinds)),
		beast2.F("output", beast2.Struct(beast2.F("multi", beast2.Boolean), beast2.F("entries", members(outputKinds)))),
		beast2.F("version", beast2.Option(str)),
		beast2.F("passed", beast2.Struct(beast2.F("env", strs), beast2.F("secrets", strs))),
		beast2.F("room", beast2.Option(beast2.Struct(beast2.F("network", beast2.Boolean), beast2.F("devices", strs)))),
		beast2.F("image", beast2.Option(str)),
		beast2.F("batch", beast2.Option(strs)))
}

func (t *Task) AppendBeast(b []byte) []byte {
	if t.Argv != nil {
		b = texts.Append(append(b, 0), &t.Argv)
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
	b = optionalText.Append(b, &t.Version)
	b = texts.Append(texts.Append(b, &t.Passed.Env), &t.Passed.Secrets)
	if b = beast2.AppendBoolean(b, t.Room.Closed); t.Room.Closed {
		devices := t.Room.DeviceNames()
		b = texts.Append(beast2.AppendBoolean(b, t.Room.Network), &devices)
	}
	b = optionalText.Append(b, &t.Image)
	if b = beast2.AppendBoolean(b, t.Batch != nil); t.Batch != nil {
		b = texts.Append(b, &t.Batch.Own)
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
func readParts(r *codec.Reader, width int) int {
	at := r.Offset()
	n := r.Count(width)
	if n > maxTaskParts {
		r.Failf(at, "%d parts of a task are more than %d", n, maxTaskParts)
		return 0
	}
	return n
}

func (t *Task) ReadBeast(r *codec.Reader) {
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
	readInputs(r, t)
	at = r.Offset()
	t.Output.Multi = r.Boolean()
	r.Inline()
	for range readParts(r, 3) {
		t.Output.Entries = append(t.Output.Entries, OutputEntry{Name: r.String(), Path: r.String(), Kind: Kind(r.Tag(outputKinds))})
	}
	if n := len(t.Output.Entries); n == 0 || n > 1 && !t.Output.Multi {
		r.Failf(at, "output with %d entries", n)
	}
	optionalText.Read(r, &t.Version)
	t.Passed = Passed{Env: readNames(r), Secrets: readNames(r)}
	if r.Tag(2) == 1 {
		t.Room = readRoom(r)
	}
	at = r.Offset()
	optionalText.Read(r, &t.Image)
	if r.Err() == nil && t.Image != "" && (!t.Room.Closed || !isHash(t.Image)) {
		r.Failf(at, "image %.80q is not the hash of one, or its room is not closed", t.Image)
	}
	if r.Tag(2) == 1 {
		readBatch(r, t)
	}
}

// readRoom reads a closed room. A device that this e3 does not know may open it: it is refused.
func readRoom(r *codec.Reader) Room {
	room := Room{Closed: true, Network: r.Boolean()}
	at := r.Offset()
	for _, name := range readNames(r) {
		if !ValidDevice(name) {
			r.Failf(at, "a closed room with the device %q is not supported", name)
		}
		room.Devices += name + " "
	}
	return room
}

// readInputs reads the inputs.
func readInputs(r *codec.Reader, t *Task) {
	r.Inline()
	for range readParts(r, 3) {
		at := r.Offset()
		in := Input{Name: r.String(), Path: r.String(), Kind: Kind(r.Tag(inputKinds))}
		if in.Kind.OfMachine() && in.Path != "" {
			r.Failf(at, "%s %q has a path", in.Kind, in.Name)
		}
		t.Inputs = append(t.Inputs, in)
	}
}

// readNames reads names in key order, each once.
func readNames(r *codec.Reader) []string {
	at := r.Offset()
	var names []string
	if texts.Read(r, &names); len(names) > maxTaskParts {
		r.Failf(at, "%d parts of a task are more than %d", len(names), maxTaskParts)
	}
	for i := 1; i < len(names); i++ {
		if beast2.CompareStrings(names[i-1], names[i]) >= 0 {
			r.Failf(at, "name %q is out of order", names[i])
			return nil
		}
	}
	return names
}

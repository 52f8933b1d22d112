package record

import (
	"fmt"
	"slices"
	"strings"

	"e3/internal/format/beast2"
	"e3/internal/format/codec"
)

// Task is the task object: exactly the facts that decide what a task computes. Its hash is the task hash. Names belong
// to the package; timeouts, retries and similar settings belong to Policy.
type Task struct {
	Argv []string `beast2:",of=command,min=1,max=131072"` // the command as a list: no shell
	// the command as a script for bash -euo pipefail -c; then Argv is nil
	Shell   string   `beast2:",of=command"`
	Env     []EnvVar `beast2:",dict,max=131072"` // declared environment and matrix constants, in declared order
	Inputs  []Input  `beast2:",max=131072"`
	Output  Output
	Version string `beast2:",option"` // explicit "version:", "" without one
	Passed  Passed // variables of e3's own environment
	Room    Room   `beast2:",option"` // where the command runs
	Image   string `beast2:",option"` // hash of the manifest of the image whose files a closed room shows; "": those of the machine
	// programs that each machine makes; nil: the task has those of the machine or the image
	Environment *Environment
	Batch       *Batch // the command reads its items from a file; nil: it serves one task, in its environment
}

// Passed are the names, in key order, of variables that a command gets from e3's own environment. Their values enter no
// key.
type Passed struct {
	Env     []string `beast2:",sorted,max=131072"` // passed if they are set
	Secrets []string `beast2:",sorted,max=131072"` // must be set; masked in logs
}

// Room tells what a command can see and reach beside its inputs. The zero value is the open room: the command can see
// and reach everything that its user can.
type Room struct {
	Closed  bool    `beast2:",present"` // the system's programs only
	Network bool    // with Closed: this machine's network
	Devices Devices // with Closed
}

// Devices are the names of devices in key order, each followed by a space; see WithDevices. It is a text, so that rooms
// can be compared.
type Devices string

// WithDevices returns a closed room that also has the devices with these names.
func (r Room) WithDevices(names []string) Room {
	r.Devices = ""
	for _, name := range Names(names) {
		r.Devices += Devices(name + " ")
	}
	return r
}

// DeviceNames are the names of the room's devices, in key order.
func (r Room) DeviceNames() []string { return strings.Fields(string(r.Devices)) }

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
	KindTool                   // a program of the machine: the hashes of its files, as text; inputs only
	KindValue                  // a beast2 value; inputs only
	KindVariable               // an environment variable: its text, or null where it is unset; inputs only
)

// outputKinds is the number of kinds of outputs. They are the first kinds.
const outputKinds = int(KindFile) + 1

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

// ToolFile reports whether an input of this name is a program of the project, declared under tools: the command gets it
// at its path, and in no variable.
func ToolFile(input string) bool { return strings.HasPrefix(input, "./") }

// OfMachine reports whether an input of this kind comes from the machine on which a run starts, instead of a file or
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

// Made reports whether e3 itself makes the content: a value, a variable, a tool, or the manifest of a fan-in. Such
// content comes from no file of the project and from no task.
func (in *Input) Made() bool {
	return in.Kind == KindValue || in.Kind.OfMachine() || strings.HasPrefix(in.Path, ValuesDir+"/")
}

// Output declares the files and directories that the task must produce. Without Multi it has one entry, and the
// dataset is that file or directory. With Multi the dataset is a directory whose entries have the declared names.
type Output struct {
	Multi   bool
	Entries []OutputEntry `beast2:",min=1,max=131072"`
}

// IsDir reports whether the dataset is a directory.
func (o *Output) IsDir() bool { return o.Multi || o.Entries[0].Kind == KindDir }

// OutputEntry is one declared output. Name is "out" unless the Output is Multi.
type OutputEntry struct {
	Name string
	Path string
	Kind Kind `beast2:",max=2"` // KindFile
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

// Body returns the part of the task object that is this task's own; [TaskObject] makes the object of it again.
func (t *Task) Body() []byte { return taskCodec.Append(nil, t) }

// TaskObject returns the bytes of a task object with a body. If this version of e3 has not made the body, they are
// another object's, or none's: their hash tells.
func TaskObject(body []byte) []byte { return append(taskCodec.Header(), body...) }

// DecodeTask reads a task object. Task objects of the reference give ErrType: they hold
// East IR, which cannot be run here.
func DecodeTask(data []byte) (*Task, error) { return taskCodec.Decode(data) }

// Check refuses a task that no package file can declare.
func (t *Task) Check() error {
	if t.Image != "" && (!t.Room.Closed || !isHash(t.Image)) {
		return fmt.Errorf("image %.80q is no hash, or the task's room is not closed", t.Image)
	}
	if err := t.checkEnvironment(); err != nil {
		return err
	}
	return t.checkBatch()
}

// Check refuses an output that has several entries without Multi.
func (o *Output) Check() error {
	if n := len(o.Entries); n > 1 && !o.Multi {
		return fmt.Errorf("output with %d entries", n)
	}
	return nil
}

// Check refuses a path for an input of the machine, which has none.
func (in *Input) Check() error {
	if in.Kind.OfMachine() && in.Path != "" {
		return fmt.Errorf("%s %q has a path", in.Kind, in.Name)
	}
	return nil
}

type deviceList struct {
	Names []string `beast2:"*,sorted,max=131072"`
}

var deviceLists = codec.New[deviceList]("devices")

// BeastType, AppendBeast and ReadBeast make devices a list of names. An unknown device is refused, since it might open
// the room.
func (d *Devices) BeastType() beast2.Type { return deviceLists.Type() }

func (d *Devices) AppendBeast(b []byte) []byte {
	return deviceLists.Append(b, &deviceList{strings.Fields(string(*d))})
}

func (d *Devices) ReadBeast(r *codec.Reader) {
	at := r.Offset()
	var list deviceList
	deviceLists.Read(r, &list)
	for _, name := range list.Names {
		if !ValidDevice(name) {
			r.Failf(at, "a closed room with the device %q is not supported", name)
		}
		*d += Devices(name + " ")
	}
}

package manifest

import "e3/internal/format/record"

// A Pos is a place in the package file. Lines and columns count from 1, columns in characters.
type Pos struct {
	Line, Column int32
}

// before reports whether p comes before q in the file.
func (p Pos) before(q Pos) bool { return p.Line < q.Line || p.Line == q.Line && p.Column < q.Column }

// A Definition is a checked package file.
type Definition struct {
	File        string // the name given to Parse
	Name        string
	Version     string
	Description string
	Room        Room              // room of tasks that name none
	Image       string            // reference to the image of tasks that name none and are not in the open room; "": none
	Images      map[string]string // result of Resolve: the hash of an image's manifest by its reference
	Inputs      []Input           // in file order
	Tasks       []Task            // in file order; the items of a matrix in the order of their dimensions
	Results     *Results          // nil if the file says nothing about results
	FanIns      [][]FanItem       // the items of each fan-in, in the order of tasks; see Source
	FanValues   FanValues         // values for the manifests of fan-ins of files
	Families    []Family          // the tasks of the file that depend on lists of items, in file order

	environments map[string]*Prepared // by name

	doubts []Warning // doubts about items of matrices

	images []string // references of tasks, in file order

	text []byte // content of the file, if it has such tasks: Expand reads it again
}

// Entry is the name of the entry that s reads if the task has several outputs; "" if s reads the whole output.
func (d *Definition) Entry(s Source) string {
	if s.Entry < 0 {
		return ""
	}
	task := s.Index
	if s.Kind == FromFanIn {
		if len(d.FanIns[s.Index]) == 0 {
			return ""
		}
		task = d.FanIns[s.Index][0].Task
	}
	return d.Tasks[task].Outputs[s.Entry].Name
}

// Results says in which folder each start leaves outputs for people.
type Results struct {
	Dir       string   // clean, relative to the package file; InPlace: each output lies at the path that its task writes
	Of        []string // names and patterns of tasks and outputs; empty: the outputs that no task reads, in place all
	GitIgnore bool     // files .gitignore name what is left in place
}

// InPlace is the folder of results of a package file whose outputs lie in the project, where their tasks write them.
const InPlace = "."

// An InputKind is the kind of an input's source.
type InputKind uint8

// The kinds of input.
const (
	FileInput InputKind = iota
	DirInput
	GlobInput
	ValueInput
	ParamsInput      // a file of parameters
	ParamInput       // one value of such a file, named by the name of the file's input, a dot and the value's path
	PartInput        // some values of such a file as a file of the same form; record.PartInput makes its name
	EnvironmentInput // the files of an environment
	SheetInput       // a list of items in a file with all files that Columns name
	URLInput         // a file on a web server or in S3
)

// An Input is a named dataset that tasks may read.
type Input struct {
	Name string
	Kind InputKind
	// path of a file or directory, also of parameters, or pattern of a glob; clean, relative, slash-separated. Of an
	// environment and of files of parameters: several of these (FilesOf); of a URL: where commands find the file
	Path    string
	URL     string   // of a file on a server; Location is its own
	Sum     string   // of a URL: the SHA-256 of the only content to use, in hex; "": whatever the server has
	Pattern string   // for a glob that was declared as files: the path with names in braces
	Columns []string // of a sheet: the columns that hold paths
	// patterns of files that a directory or glob leaves out, beside the usual ones; see Except
	LeftOut     []string
	Value       any   // for ValueInput, and for parameters after SetParams: see Value types below
	Executable  *bool // for a file: nil takes the mode from the file itself
	NoExport    bool  // an export without data omits its content
	Description string
	Pos         Pos
}

// The dynamic types of Input.Value are nil, bool, int64, float64 (finite), string, []any and Object.

// An Object is a mapping inside a value, in file order. Its names are distinct.
type Object []Member

// A Member is one entry of an Object.
type Member struct {
	Name  string
	Value any
}

// A Task is one task to run: for a matrix, one item of it.
type Task struct {
	*Spec
	Name   string          // "train", "train[4]", "train[depth=4,lr=0.1]"
	Items  []record.EnvVar // the item's constants in declared order; nil without a matrix
	Inputs []TaskInput     // in declared order
}

// Label is the text in brackets of the task's name, "" without a matrix.
func (t *Task) Label() string {
	if len(t.Name) == len(t.Base) {
		return ""
	}
	return t.Name[len(t.Base)+1 : len(t.Name)-1]
}

// A Spec is the declaration of a task in the file. All items of a matrix share one.
type Spec struct {
	Base        string // the name in the file
	Command     Command
	Outputs     []Output // at least one, in declared order
	Several     bool     // the output is a directory with one entry for each of Outputs; else there is one output, "out"
	Env         *Environment
	ToolFiles   []string // programs of the project among its tools, by the names of their inputs
	Environment string   // the name of an environment; "": the programs of the machine or the image
	Version     string   // forces new results when changed; "" when the file gives none
	Room        Room
	Network     bool           // a closed room has this machine's network
	Devices     []string       // devices in a closed room
	Image       string         // reference to the image whose files the room shows; "": the image of the package
	Policy      *record.Policy // tasks with equal policies share one
	Pos         Pos            // place of the task's name
	RunPos      Pos            // place of its command
}

// A Room is where a command runs.
type Room uint8

// The rooms.
const (
	NoRoom     Room = iota // not given
	OpenRoom               // the command sees and reaches everything that the user can
	ClosedRoom             // the command sees only the system's programs and the task's inputs
)

func (r Room) String() string { return [...]string{"", "open", "closed"}[r] }

// MarshalText gives the room its name in answers.
func (r Room) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// ParseRoom returns the room of a name: open or closed.
func ParseRoom(name string) (Room, bool) {
	for _, r := range []Room{OpenRoom, ClosedRoom} {
		if r.String() == name {
			return r, true
		}
	}
	return NoRoom, false
}

// An Environment is the part of a task's environment beyond its inputs' names and the base environment. Tasks with
// equal environments share one.
type Environment struct {
	Set     []record.EnvVar // hashed
	Pass    []string        // passed from the environment of the process that executes; not hashed
	Secrets []string        // passed in the same way, and masked in logs
	Keyed   []string        // passed from the environment of the process that starts the run; their values are implicit inputs
	Tools   []string        // programs on the PATH; their parts are implicit inputs
}

// A Command is either Argv, run without a shell, or Shell, a script for bash. The other one is empty.
type Command struct {
	Argv  []string
	Shell string
}

// A Kind is the form in which a task reads or writes data.
type Kind uint8

// The kinds of data.
const (
	File Kind = iota
	Dir
	Scalar // a value whose text goes into the environment; it has no path
	JSON   // any other value, as a JSON file
)

// An Output is one file or directory that a task produces.
type Output struct {
	Name       string // "out" unless there are several
	Path       string // clean, relative to the task's directory, without a trailing slash; see Task.PathOf
	Kind       Kind   // File or Dir
	Executable bool   // a file that is stored as executable
	ByItem     bool   // Path has names of the item's values in braces
	Pos        Pos    // place of the path
}

// A TaskInput is one input of a task under the task's own name for it.
type TaskInput struct {
	Name   string
	Path   string // where it is staged in the task's directory; "" for Scalar
	Kind   Kind
	Source Source
	Gather *Gather // for a fan-in with a manifest, which is the next input
	Own    bool    // its source depends on the item
}

// A SourceKind is the kind of a task input's source.
type SourceKind uint8

// The kinds of source.
const (
	FromInput SourceKind = iota // Definition.Inputs[Index]
	FromTask                    // the output of Definition.Tasks[Index], or one entry of it
	FromFanIn                   // a directory with the same output of each task in Definition.FanIns[Index]
	// a JSON file about the fan-in that is the task's previous input and has the same Index
	FromManifest
)

// A Source is the source end of a wire. It holds indices, not names, because a package may have millions.
type Source struct {
	Kind  SourceKind
	Index int32
	Entry int32  // FromTask, FromFanIn: index in the task's Outputs, or -1 for the whole output
	Path  string // FromInput, FromTask: path of an item below the directory; "" for the whole directory
}

// A FanItem is one entry of a fan-in.
type FanItem struct {
	Label string // the entry's name: the label of the task, or the path of an item
	Task  int32  // index in Definition.Tasks; -1 for an item of an input
	Input int32  // for an item of an input: index in Definition.Inputs
	Path  string // path of an item below the directory; "" for the whole directory
}

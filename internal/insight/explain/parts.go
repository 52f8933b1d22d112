package explain

import (
	"slices"
	"strconv"
	"strings"

	"e3/internal/format/record"
	"e3/internal/human"
	"e3/objectstore"
)

// A Difference is one part of a key that has changed. Was is "" if the part is new, Is if it was removed.
type Difference struct {
	Part     Kind           `json:"part"`
	Name     string         `json:"name,omitempty"` // the variable, input or output
	Was      string         `json:"was,omitempty"`
	Is       string         `json:"is,omitempty"`
	Input    string         `json:"input,omitempty"`    // of the package
	Producer string         `json:"producer,omitempty"` // the task that makes the input
	Lines    []Line         `json:"lines,omitempty"`    // of a command; if the command is a list, its words
	More     int            `json:"more,omitempty"`     // lines, files or items
	Change   *ContentChange `json:"change,omitempty"`
	Items    []Item         `json:"items,omitempty"` // of a fan-in

	was, is objectstore.Hash
	kind    record.Kind
	path    string
	wire    *record.Wire
}

// A Line is a line that was removed or added.
type Line struct {
	Op   string `json:"op"` // "-" or "+"
	Text string `json:"text"`
}

// A ContentChange describes how the content of an input differs.
type ContentChange struct {
	WasSize *int64        `json:"wasSize,omitempty"` // of a file
	IsSize  *int64        `json:"isSize,omitempty"`
	Files   []FileEdit    `json:"files,omitempty"`  // the first ones
	Values  []ValueChange `json:"values,omitempty"` // the first ones
	Count   int           `json:"count,omitempty"`  // number of all changes
	Gone    string        `json:"gone,omitempty"`   // missing details, and why
}

// A FileEdit is a changed file within a directory.
type FileEdit struct {
	Path    string `json:"path"`
	How     string `json:"how"` // "added", "removed", "changed", or in words: "executable now"
	WasSize int64  `json:"wasSize,omitempty"`
	IsSize  int64  `json:"isSize,omitempty"`
	IsDir   bool   `json:"dir,omitempty"`
}

// A ValueChange is a changed part of a value, before and after, as JSON; "" on the side that lacks it.
type ValueChange struct {
	Path string `json:"path,omitempty"`
	Was  string `json:"was,omitempty"`
	Is   string `json:"is,omitempty"`
}

// An Item of a fan-in.
type Item struct {
	Label string `json:"label"`
	Task  string `json:"task,omitempty"` // the task that makes the item
	How   string `json:"how"`            // "added", "removed" or "changed"

	was, is objectstore.Hash
	wire    *record.FanItem
}

// definition holds the known parts of a key.
type definition struct {
	task   objectstore.Hash
	object *record.Task     // nil: gone
	key    objectstore.Hash // inputs hash
	// partial says that some inputs are not known yet, and so neither is key.
	partial bool
	inputs  []objectstore.Hash // nil: not known; a zero hash: not known yet
}

// compare compares two definitions part by part; contents only by their hashes.
func compare(was, is *definition) []Difference {
	const most = 1000 // bound on added and removed inputs that are matched with each other
	list := parts(was, is)
	if len(list) > most {
		return list
	}
	return renames(list, was, is)
}

func parts(was, is *definition) []Difference {
	var list []Difference
	a, b := was.object, is.object
	switch {
	case was.task == is.task:
		if a == nil {
			a = b
		}
		b = a
	case a == nil || b == nil:
		list = append(list, Difference{Part: Definition, Name: "task", Was: was.task.Short(), Is: is.task.Short()})
	default:
		list = taskParts(a, b)
		if len(list) == 0 {
			list = append(list, Difference{Part: Definition, Name: "order"})
		}
	}
	if was.key == is.key {
		return list
	}
	if a == nil || b == nil || was.inputs == nil || is.inputs == nil || len(was.inputs) != len(a.Inputs) || len(is.inputs) != len(b.Inputs) {
		if !is.partial && (len(list) == 0 || was.task == is.task) {
			list = append(list, Difference{Part: Unknown, Name: "inputs"})
		}
		return list
	}
	return append(list, contentParts(was, is, a, b)...)
}

// taskParts compares two task objects except for the content of their inputs.
func taskParts(a, b *record.Task) []Difference {
	var list []Difference
	if (a.Argv == nil) != (b.Argv == nil) || !slices.Equal(a.Argv, b.Argv) || a.Shell != b.Shell {
		lines, more := diffLines(commandLines(a), commandLines(b))
		list = append(list, Difference{Part: Command, Lines: lines, More: more, Was: commandForm(a), Is: commandForm(b)})
	}
	list = append(list, envParts(a.Env, b.Env, strconv.Quote)...)
	list = append(list, envParts(passedVars(a), passedVars(b), strings.Clone)...)
	list = append(list, inputParts(a.Inputs, b.Inputs)...)
	list = append(list, outputParts(&a.Output, &b.Output)...)
	if a.Version != b.Version {
		list = append(list, Difference{Part: Version, Was: a.Version, Is: b.Version})
	}
	if a.Room != b.Room {
		list = append(list, Difference{Part: Room, Was: a.Room.String(), Is: b.Room.String()})
	}
	if was, is := batchText(a), batchText(b); was != is {
		list = append(list, Difference{Part: Batch, Was: was, Is: is})
	}
	if a.Image != b.Image {
		list = append(list, Difference{Part: Image, Was: imageText(a.Image), Is: imageText(b.Image)})
	}
	return append(list, programParts(a, b)...)
}

// programParts compares the environments of two tasks. If only one has an environment, the difference is its name.
func programParts(a, b *record.Task) []Difference {
	list := envParts(a.EnvironmentFacts(), b.EnvironmentFacts(), strings.Clone)
	if len(list) > 0 && (a.Environment == nil || b.Environment == nil) {
		list = list[:1]
	}
	for i := range list {
		list[i].Part = Programs
	}
	return list
}

// batchText says whether a command serves one item or several, and what belongs to an item.
func batchText(t *record.Task) string {
	switch {
	case t.Batch == nil:
		return "one item for each command"
	case len(t.Batch.Own) == 0:
		return "items in batches"
	}
	return "items in batches, each with its " + strings.Join(t.Batch.Own, ", ")
}

// imageText names an image as its users do; "" for none.
func imageText(hash string) string {
	if hash == "" {
		return ""
	}
	return "sha256:" + hash[:min(len(hash), 12)]
}

// commandForm says whether a command is a script or a list.
func commandForm(t *record.Task) string {
	if t.Argv != nil {
		return "list"
	}
	return "script"
}

func commandLines(t *record.Task) []string {
	if t.Argv != nil {
		return t.Argv
	}
	return strings.Split(strings.TrimSuffix(t.Shell, "\n"), "\n")
}

func envParts(a, b []record.EnvVar, show func(string) string) []Difference {
	was := make(map[string]string, len(a))
	for _, v := range a {
		was[v.Name] = v.Value
	}
	var list []Difference
	for _, v := range b {
		old, ok := was[v.Name]
		delete(was, v.Name)
		switch {
		case !ok:
			list = append(list, Difference{Part: Environment, Name: v.Name, Is: show(truncate(v.Value, maxText))})
		case old != v.Value:
			was, is := truncateBoth(old, v.Value, maxText)
			list = append(list, Difference{Part: Environment, Name: v.Name, Was: show(was), Is: show(is)})
		}
	}
	for _, v := range a {
		if old, ok := was[v.Name]; ok {
			list = append(list, Difference{Part: Environment, Name: v.Name, Was: show(truncate(old, maxText))})
			delete(was, v.Name)
		}
	}
	return list
}

// withoutVariables are the inputs that are neither environment variables, nor programs, nor files of an environment.
func withoutVariables(inputs []record.Input) []record.Input {
	return slices.DeleteFunc(slices.Clone(inputs), func(in record.Input) bool {
		_, ok := record.EnvironmentOf(in.Name)
		return ok || in.Kind.OfMachine()
	})
}

// passedVars are the variables whose values come from the caller's environment. The returned values say how each
// variable is passed.
func passedVars(t *record.Task) []record.EnvVar {
	var list []record.EnvVar
	for _, in := range t.Inputs {
		if in.Kind == record.KindVariable {
			list = append(list, record.EnvVar{Name: in.Name, Value: "taken by key_env"})
		}
		if program, ok := record.ToolOf(in.Name); ok && in.Kind == record.KindTool {
			list = append(list, record.EnvVar{Name: program, Value: ofTools})
		}
	}
	for _, name := range t.Passed.Env {
		list = append(list, record.EnvVar{Name: name, Value: "passed on by pass_env"})
	}
	for _, name := range t.Passed.Secrets {
		list = append(list, record.EnvVar{Name: name, Value: "passed on as a secret"})
	}
	return list
}

func inputParts(a, b []record.Input) []Difference {
	a, b = withoutVariables(a), withoutVariables(b)
	was := make(map[string]record.Input, len(a))
	for _, in := range a {
		was[in.Name] = in
	}
	var list []Difference
	for _, in := range b {
		old, ok := was[in.Name]
		delete(was, in.Name)
		if !ok {
			list = append(list, Difference{Part: InputAdded, Name: in.Name, Is: in.Path, kind: in.Kind, path: in.Path})
			continue
		}
		if old.Kind != in.Kind {
			list = append(list, Difference{Part: InputKind, Name: in.Name, Was: old.Kind.String(), Is: in.Kind.String(), kind: in.Kind, path: in.Path})
		}
		if old.Path != in.Path {
			list = append(list, Difference{Part: InputPath, Name: in.Name, Was: old.Path, Is: in.Path, kind: in.Kind, path: in.Path})
		}
	}
	for _, in := range a {
		if _, ok := was[in.Name]; ok {
			list = append(list, Difference{Part: InputRemoved, Name: in.Name, Was: in.Path, kind: in.Kind, path: in.Path})
			delete(was, in.Name)
		}
	}
	return list
}

func outputParts(a, b *record.Output) []Difference {
	var list []Difference
	if a.Multi != b.Multi {
		form := func(o *record.Output) string {
			if o.Multi {
				return human.Count(len(o.Entries), "named output")
			}
			return "one output"
		}
		return append(list, Difference{Part: Output, Was: form(a), Is: form(b)})
	}
	shown := func(e *record.OutputEntry) string { return e.Kind.String() + " " + e.Path }
	was := map[string]*record.OutputEntry{}
	for i := range a.Entries {
		was[a.Entries[i].Name] = &a.Entries[i]
	}
	for i := range b.Entries {
		e := &b.Entries[i]
		old, ok := was[e.Name]
		delete(was, e.Name)
		switch {
		case !ok:
			list = append(list, Difference{Part: Output, Name: e.Name, Is: shown(e)})
		case *old != *e:
			list = append(list, Difference{Part: Output, Name: e.Name, Was: shown(old), Is: shown(e)})
		}
	}
	for i := range a.Entries {
		if e := &a.Entries[i]; was[e.Name] != nil {
			list = append(list, Difference{Part: Output, Name: e.Name, Was: shown(e)})
		}
	}
	return list
}

// contentParts compares the contents of inputs of the same name.
func contentParts(was, is *definition, a, b *record.Task) []Difference {
	old := make(map[string]int, len(a.Inputs))
	for i := range a.Inputs {
		old[a.Inputs[i].Name] = i
	}
	var list []Difference
	for j := range b.Inputs {
		in := &b.Inputs[j]
		i, ok := old[in.Name]
		if !ok || was.inputs[i] == is.inputs[j] || is.inputs[j].IsZero() {
			continue
		}
		list = append(list, Difference{Part: Input, Name: in.Name, was: was.inputs[i], is: is.inputs[j], kind: in.Kind, path: in.Path})
	}
	if len(list) == 0 && was.task == is.task && !is.partial { // hostile: a record whose inputs do not fit its key
		list = append(list, Difference{Part: Unknown, Name: "inputs"})
	}
	return list
}

// renames merges a removed input and an added one of the same content into one renaming.
func renames(list []Difference, was, is *definition) []Difference {
	if was.object == nil || is.object == nil || len(was.inputs) != len(was.object.Inputs) || len(is.inputs) != len(is.object.Inputs) {
		return list
	}
	hash := func(d *definition, name string) objectstore.Hash {
		i := slices.IndexFunc(d.object.Inputs, func(in record.Input) bool { return in.Name == name })
		return d.inputs[i]
	}
	var gone []int
	for i := range list {
		if list[i].Part == InputRemoved {
			gone = append(gone, i)
		}
	}
	drop := map[int]bool{}
	for i := range list {
		d := &list[i]
		if d.Part != InputAdded {
			continue
		}
		for _, k := range gone {
			old := &list[k]
			same := hash(was, old.Name) == hash(is, d.Name)
			if drop[k] || old.kind != d.kind || !same {
				continue
			}
			drop[k] = true
			d.Part, d.Was, d.Is = InputRenamed, old.Name, d.Name
			break
		}
	}
	if len(drop) == 0 {
		return list
	}
	kept := list[:0]
	for i := range list {
		if !drop[i] {
			kept = append(kept, list[i])
		}
	}
	return kept
}

package workspace

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"

	"golang.org/x/sync/errgroup"

	"e3/internal/format/manifest"
	"e3/internal/format/record"
	"e3/internal/format/value"
	"e3/objectstore"
)

// Built is a package that was made from a package file.
type Built struct {
	Package  *record.Package
	Hash     string
	Link     *record.Link
	Warnings []manifest.Warning
	Over     *Elsewhere // the deployment that it replaced; nil: none, or a deployment of the same file
	Instead  *Elsewhere // set if no workspace was named and the package's name was taken: what holds it
	Results  *manifest.Results
	Renamed  string     // the previous name of the package in the same file; "" if it has not changed
	Replaced []Replaced // values that it replaced
}

// Build reads a package file, imports its inputs and stores its tasks and the package object. Nothing refers to the
// package yet. before, which may be nil, is the link that a previous build of the same file left: unchanged inputs are
// not read again.
func (w *Deployer) Build(ctx context.Context, file string, before *record.Link) (*Built, error) {
	read, err := w.states.readFile(file)
	if err != nil {
		return nil, err
	}
	return w.buildRead(ctx, read, before)
}

// A PackageFile is a package file that was read. It can be built many times, by one goroutine at a time.
type PackageFile struct {
	def  *manifest.Definition
	room manifest.Room // that the file names, which a build replaces in def
	link record.Link   // its path and times
}

func (w *States) readFile(file string) (*PackageFile, error) {
	file, err := clonePath(file)
	if err != nil {
		return nil, err
	}
	seen := w.Now().UnixNano()
	info, err := os.Stat(file)
	if err != nil {
		return nil, &manifest.OpenError{Err: fmt.Errorf("package file: %w", err)}
	}
	def, err := manifest.ParseFile(file)
	if err != nil {
		return nil, err
	}
	stat := fileStat(info)
	stat.Seen = seen
	return &PackageFile{def, def.Room, record.Link{File: file, Stat: stat}}, nil
}

// buildRead is Build for a file that was read.
func (w *Deployer) buildRead(ctx context.Context, read *PackageFile, before *record.Link) (*Built, error) {
	link := read.link
	read.def.Room = read.room
	return w.build(ctx, read.def, &link, before)
}

// CheckFile reports the errors of a package file that can be found without a repository to store its inputs in.
func CheckFile(file string) error {
	if _, err := clonePath(file); err != nil {
		return err
	}
	def, err := manifest.ParseFile(file)
	if err != nil {
		return err
	}
	for i := range def.Inputs {
		in := &def.Inputs[i]
		if !slices.Contains([]manifest.InputKind{manifest.FileInput, manifest.DirInput, manifest.ParamsInput, manifest.SheetInput}, in.Kind) {
			continue
		}
		for _, source := range in.Sources() {
			if _, err := os.Stat(filepath.Join(filepath.Dir(file), filepath.FromSlash(source.Path))); err != nil {
				return locate(def, &InputError{Input: in.Name, Err: err})
			}
		}
	}
	return checkParams(def, filepath.Dir(file))
}

// BuildDefinition is Build for a definition that was already read and need not lie in a file: its inputs are relative
// to base.
func (w *Deployer) BuildDefinition(ctx context.Context, def *manifest.Definition, base string) (*Built, error) {
	base, err := filepath.Abs(base)
	if err != nil {
		return nil, err
	}
	return w.build(ctx, def, &record.Link{File: filepath.Join(base, manifest.FileName)}, nil)
}

// build fills in the link, whose file and times are given, and sets the definition's room, images and parameters.
func (w *Deployer) build(ctx context.Context, def *manifest.Definition, link, before *record.Link) (*Built, error) {
	rooms, err := w.states.rooms(ctx)
	if err != nil {
		return nil, err
	}
	rooms = rooms.known(before)
	rooms.apply(def)
	link.Room = rooms.text()
	if err := w.images(ctx, def, filepath.Dir(link.File), link); err != nil {
		return nil, locate(def, err)
	}
	link.Inputs = linkInputs(def, before)
	s := &scan{states: w.states, base: filepath.Dir(link.File), verify: true}
	if err := s.inputs(ctx, link.Inputs); err != nil {
		return nil, locate(def, err)
	}
	if err := paramsOf(w.states).define(ctx, def, link); err != nil {
		return nil, err
	}
	pkg := &record.Package{Name: def.Name, Version: def.Version, Description: def.Description}
	if pkg.Inputs, err = w.packageInputs(ctx, def, link); err != nil {
		return nil, err
	}
	warn := def
	if def.Grows() {
		if warn, err = w.grownFromFile(ctx, pkg, def, before); err != nil {
			return nil, locate(def, err)
		}
	} else if pkg.Tasks, err = w.packageTasks(ctx, def, pkg.Inputs, nil); err != nil {
		return nil, err
	}
	h, err := objectstore.PutBytes(ctx, w.states.Objects, pkg.Encode())
	if err != nil {
		return nil, fmt.Errorf("store package: %w", err)
	}
	link.Package = h.String()
	return &Built{Package: pkg, Hash: link.Package, Link: link, Warnings: slices.Concat(manifest.Lint(warn), leftOut(def, link, true), emptyFamilies(def, pkg, link)), Results: def.Results}, nil
}

var sources = map[manifest.InputKind]record.InputSource{
	manifest.FileInput: record.FromFile, manifest.DirInput: record.FromDir,
	manifest.GlobInput: record.FromGlob, manifest.ValueInput: record.FromValue,
	manifest.ParamsInput: record.FromParams, manifest.ParamInput: record.FromParams, manifest.PartInput: record.FromPart,
	manifest.EnvironmentInput: record.FromEnvironment,
	manifest.SheetInput:       record.FromSheet,
	manifest.URLInput:         record.FromURL,
}

// linkInputs lists the inputs to scan, each with its entry in the earlier link.
func linkInputs(def *manifest.Definition, before *record.Link) []record.LinkInput {
	known := map[string]*record.LinkInput{}
	if before != nil {
		for i := range before.Inputs {
			known[before.Inputs[i].Name] = &before.Inputs[i]
		}
	}
	var list []record.LinkInput
	for i := range def.Inputs {
		in := &def.Inputs[i]
		if in.Kind == manifest.ValueInput || in.Kind == manifest.ParamInput {
			continue
		}
		l := record.LinkInput{Leaf: record.Leaf{Kind: record.LeafUnassigned}}
		if k := known[in.Name]; k != nil && k.Source == sources[in.Kind] && k.Location == in.Location() {
			l = *k // all that is remembered
		}
		l.Name, l.Source, l.Location, l.Sum, l.Columns, l.Except = in.Name, sources[in.Kind], in.Location(), in.Sum, in.Columns, in.LeftOut
		list = append(list, l)
	}
	return list
}

func (w *Deployer) packageInputs(ctx context.Context, def *manifest.Definition, link *record.Link) ([]record.PackageInput, error) {
	list := make([]record.PackageInput, len(def.Inputs))
	linked := link.Inputs
	for i := range def.Inputs {
		in := &def.Inputs[i]
		p := &list[i]
		*p = record.PackageInput{Name: in.Name, Source: sources[in.Kind], Location: in.Location(), NoExport: in.NoExport}
		if in.Kind == manifest.ValueInput || in.Kind == manifest.ParamInput {
			leaf, err := w.states.putValue(ctx, in.Value)
			if err != nil {
				return nil, &InputError{Input: in.Name, Err: err}
			}
			p.Default = leaf
			continue
		}
		p.Default, linked = linked[0].Leaf, linked[1:]
		p.Executable = p.Default.Executable
		if in.Executable != nil {
			p.Executable = *in.Executable
		}
	}
	return append(list, variableInputs(def)...), nil
}

func (w *States) putValue(ctx context.Context, v any) (record.Leaf, error) {
	data, err := value.Encode(v)
	if err != nil {
		return record.Leaf{}, err
	}
	h, err := objectstore.PutBytes(ctx, w.Objects, data)
	return record.Leaf{Kind: record.LeafValue, Hash: h.String()}, err
}

// packageTasks stores the task objects, several at a time, except the ones in held, which are known to be stored and
// kept.
func (w *Deployer) packageTasks(ctx context.Context, def *manifest.Definition, inputs []record.PackageInput, held map[string]bool) ([]record.PackageTask, error) {
	list := make([]record.PackageTask, len(def.Tasks))
	g, ctx := errgroup.WithContext(ctx)
	workers := max(runtime.GOMAXPROCS(0), w.states.Lookups)
	for k := range workers {
		g.Go(func() error {
			for i := k * len(list) / workers; i < (k+1)*len(list)/workers; i++ {
				t := &def.Tasks[i]
				data := taskObject(def, inputs, t).Encode()
				h := objectstore.Sum(data)
				if !held[h.String()] {
					if _, err := objectstore.PutBytes(ctx, w.states.Objects, data); err != nil {
						return fmt.Errorf("store task %s: %w", t.Name, err)
					}
				}
				list[i] = record.PackageTask{Name: t.Name, Task: h.String(), Output: outputKind(t), Wiring: wiring(def, t), Policy: *t.Policy}
			}
			return nil
		})
	}
	return list, g.Wait()
}

// taskObject returns the part of a task that enters its hash.
func taskObject(def *manifest.Definition, inputs []record.PackageInput, t *manifest.Task) *record.Task {
	obj := &record.Task{Argv: t.Command.Argv, Shell: t.Command.Shell, Version: t.Version}
	if t.Env != nil {
		obj.Env = append(obj.Env, t.Env.Set...)
		obj.Passed = record.Passed{Env: record.Names(t.Env.Pass), Secrets: record.Names(t.Env.Secrets)}
	}
	obj.Env = append(obj.Env, t.Items...)
	obj.Image = def.ImageOf(t.Spec)
	if obj.Image != "" || cmp.Or(t.Room, def.Room) == manifest.ClosedRoom {
		obj.Room = record.Room{Closed: true, Network: t.Network}.WithDevices(t.Devices)
	}
	for _, in := range t.Inputs {
		obj.Inputs = append(obj.Inputs, record.Input{Name: in.Name, Path: in.Path, Kind: inputKind(def, inputs, &in)})
	}
	for _, name := range keyed(t.Spec) {
		obj.Inputs = append(obj.Inputs, record.Input{Name: name, Kind: record.KindVariable})
	}
	for _, name := range programs(def, t.Spec) {
		obj.Inputs = append(obj.Inputs, record.Input{Name: record.ToolInput(name), Kind: record.KindTool})
	}
	obj.Environment = preparedFor(def, t)
	obj.Batch = batchOf(t)
	obj.Output.Multi = t.Several
	for i := range t.Outputs {
		out := &t.Outputs[i]
		obj.Output.Entries = append(obj.Output.Entries, record.OutputEntry{Name: out.Name, Path: t.PathOf(out), Kind: entryKind(out)})
	}
	return obj
}

// batchOf says what belongs to the items of a task that runs in batches; nil if the task runs in none.
func batchOf(t *manifest.Task) *record.Batch {
	if t.Policy.Batch == 0 {
		return nil
	}
	var own []string
	for i := range t.Items {
		own = append(own, t.Items[i].Name)
	}
	for i := range t.Inputs {
		if t.Inputs[i].Own {
			own = append(own, t.Inputs[i].Name)
		}
	}
	return &record.Batch{Own: record.Names(own)}
}

func entryKind(out *manifest.Output) record.Kind {
	switch {
	case out.Kind == manifest.Dir:
		return record.KindDir
	case out.Executable:
		return record.KindExecutable
	}
	return record.KindFile
}

func outputKind(t *manifest.Task) record.Kind {
	if t.Several {
		return record.KindDir
	}
	return entryKind(&t.Outputs[0])
}

// inputKind says how an input is staged; a file is executable if its source is.
func inputKind(def *manifest.Definition, inputs []record.PackageInput, in *manifest.TaskInput) record.Kind {
	switch in.Kind {
	case manifest.Dir:
		return record.KindDir
	case manifest.Scalar, manifest.JSON:
		return record.KindValue
	}
	executable := false
	switch src := &in.Source; {
	case src.Path != "": // for an item only the content counts
	case src.Kind == manifest.FromInput:
		executable = inputs[src.Index].Executable
	case src.Kind == manifest.FromTask:
		outputs := def.Tasks[src.Index].Outputs
		executable = outputs[max(src.Entry, 0)].Executable
	}
	if executable {
		return record.KindExecutable
	}
	return record.KindFile
}

func wiring(def *manifest.Definition, t *manifest.Task) []record.Wire {
	wires := make([]record.Wire, len(t.Inputs))
	for i := range t.Inputs {
		src := &t.Inputs[i].Source
		switch src.Kind {
		case manifest.FromInput:
			wires[i] = record.Wire{Kind: record.WireInput, Name: def.Inputs[src.Index].Name, Entry: src.Path}
		case manifest.FromTask:
			wires[i] = record.Wire{Kind: record.WireOutput, Name: def.Tasks[src.Index].Name, Entry: below(def.Entry(*src), src.Path)}
		case manifest.FromFanIn:
			items := def.FanIns[src.Index]
			w := record.Wire{Kind: record.WireFanIn, Items: make([]record.FanItem, len(items))}
			for k, it := range items {
				w.Items[k] = record.FanItem{Label: it.Label, Entry: below(def.Entry(*src), it.Path)}
				if it.Task >= 0 {
					w.Items[k].Task = def.Tasks[it.Task].Name
				} else {
					w.Items[k].Input = def.Inputs[it.Input].Name
				}
			}
			if g := t.Inputs[i].Gather; g != nil {
				values := def.ValuesOf(src.Index)
				w.Gather = &record.Gather{Need: g.Need, Names: values.Names, Values: values.Values}
			}
			wires[i] = w
		case manifest.FromManifest:
			wires[i] = record.Wire{Kind: record.WireManifest}
		}
	}
	for _, name := range keyed(t.Spec) {
		wires = append(wires, record.Wire{Kind: record.WireInput, Name: record.VariableInput(name)})
	}
	for _, name := range programs(def, t.Spec) {
		wires = append(wires, record.Wire{Kind: record.WireInput, Name: record.ToolInput(name)})
	}
	return wires
}

package manifest

import (
	"cmp"
	"encoding/binary"
	"slices"
	"strings"

	"e3/internal/format/record"
)

// place gives a task without faults its range of Definition.Tasks. It resolves the task's references if all their names
// are declared already. Most large files declare names before their use, so few references have to wait.
func (d *decoder) place(b base, refs []wire) {
	if b.items != nil {
		d.grows = true
		d.names[b.spec.Base] = named{task: true, index: int32(len(d.bases)), pos: b.spec.Pos}
		d.waiting = append(d.waiting, waiting{int32(len(d.bases)), refs})
		d.bases = append(d.bases, b)
		return
	}
	b.first, b.count = len(d.def.Tasks), 1
	for j := range b.dims {
		b.count *= len(b.dims[j].items)
	}
	if b.first+b.count > MaxTasks {
		if !d.overflow {
			d.report.add(b.spec.Pos, "split the package", "the matrices make more than %d tasks", MaxTasks)
		}
		d.overflow = true
		return
	}
	index := int32(len(d.bases))
	d.bases = append(d.bases, b)
	d.names[b.spec.Base] = named{task: true, index: index, pos: b.spec.Pos}
	d.expand(&d.bases[index])
	for i := range refs {
		name := refs[i].source
		if end := strings.IndexAny(name, "[."); end >= 0 {
			name = name[:end]
		}
		if n, ok := d.names[name]; !ok || n.task && n.index >= 0 && d.bases[n.index].items != nil {
			d.waiting = append(d.waiting, waiting{index, refs})
			return
		}
	}
	d.connect(index, refs)
}

// A waiting is a base whose references are not resolved yet.
type waiting struct {
	base int32
	refs []wire
}

// wire resolves the references that waited for later names, and checks that no task waits for itself. A reference to a
// faulty entry is not reported, because the fault of the entry is reported.
func (d *decoder) wire() {
	if d.grows {
		expander{d}.families()
	} else {
		for _, w := range d.waiting {
			d.connect(w.base, w.refs)
		}
	}
	d.cycles()
}

// A plan is a resolved reference, for all items of the referring task together.
type plan struct {
	input   TaskInput
	glob    string   // the pattern of an input that is a glob
	project bool     // the content comes from the project's files
	target  *base    // nil for an input of the package
	choices []choice // choices in a target with a matrix
	fan     bool     // the plan chooses more than one item
	own     bool     // the plan differs between the items of the referring task
	byItem  bool     // the path of the input depends on the item of the target
	column  string   // of a sheet: the input is the file that a row names here
	pos     Pos

	joined        bool // a selection by values: see joiner; then choices and own are unused
	selectors     []selector
	itemSelectors []selector // selection of files of a directory; nil: no files are selected
	text, entry   string     // the reference
	ending        string     // ending of the entries of a fan-in
	at            string     // folder in which the entries of a fan-in have the paths of their tasks; "": see ending
	roster        bool       // this plan is the manifest of the plan before
	listed        bool       // the next plan is its manifest
}

// connect resolves the references of one task and gives its items their inputs.
func (d *decoder) connect(index int32, refs []wire) {
	b := &d.bases[index]
	before := len(d.report.errs)
	plans := make([]plan, 0, len(refs))
	own, pending := false, b.pending
	b.waits = int32(len(d.targets))
	expander{d}.waitForItems(b)
	for i := range refs {
		if refs[i].gather.roster {
			plans = expander{d}.roster(b, plans, &refs[i])
			continue
		}
		p, ok := d.resolve(b, &refs[i])
		if !ok {
			continue
		}
		own, pending = own || p.own || p.joined, pending || p.target != nil && p.target.pending
		plans = append(plans, p)
	}
	b.waitsEnd = int32(len(d.targets))
	if len(d.report.errs) == before && !d.report.full() {
		d.collisions(b, plans, nil)
		itemsInCommand(d, b, plans)
	}
	if len(d.report.errs) > 0 || b.count == 0 || pending {
		return // the Definition will not be returned, or not with these tasks
	}
	d.give(b, plans, own)
	if b.spec.byItem() || slices.ContainsFunc(plans, func(p plan) bool { return p.byItem }) {
		for i := 0; i < b.count && len(d.report.errs) == 0 && !b.pending; i++ {
			d.collisions(b, plans, &d.def.Tasks[b.first+i])
		}
	}
}

// give gives the items of a task their inputs.
func (d *decoder) give(b *base, plans []plan, own bool) {
	if len(plans) == 0 {
		return
	}
	if !own {
		inputs := make([]TaskInput, len(plans))
		for i := range plans {
			inputs[i] = d.taskInput(b, &plans[i], 0)
			inputs[i].Own = plans[i].isOwn(b)
			inputs[i].follow(&plans[i], inputs[:i])
		}
		for i := range b.count {
			d.def.Tasks[b.first+i].Inputs = inputs
		}
		return
	}
	joiners := make([]*joiner, len(plans))
	for i := range plans {
		if plans[i].joined {
			if joiners[i] = (expander{d}).newJoiner(b, &plans[i]); joiners[i] == nil {
				return
			}
		}
	}
	inputs := make([]TaskInput, b.count*len(plans))
	for number := range b.count {
		mine := inputs[:len(plans):len(plans)]
		inputs = inputs[len(plans):]
		for i := range plans {
			if joiners[i] == nil {
				mine[i] = d.taskInput(b, &plans[i], number)
			} else if in, ok := joiners[i].input(number); ok {
				mine[i] = in
			} else if b.fault != nil {
				return
			}
			mine[i].Own = plans[i].isOwn(b)
			mine[i].follow(&plans[i], mine[:i])
		}
		// An empty cell of a sheet is no input.
		mine = slices.DeleteFunc(mine, func(in TaskInput) bool { return in.Name == "" })
		d.def.Tasks[b.first+number].Inputs = mine
	}
}

// resolve finds the target of a reference. It returns false if the target is faulty or unknown.
func (d *decoder) resolve(b *base, ref *wire) (plan, bool) {
	where := "task " + b.spec.Base
	if ToolFile(ref.source) {
		if found, ok := d.names[ref.source]; ok {
			p := plan{pos: ref.pos, input: TaskInput{Name: ref.name}, text: ref.source}
			p.fromInput(&d.def.Inputs[found.index], found.index)
			return p, true
		}
	}
	if _, ok := record.EnvironmentOf(ref.source); ok {
		return environmentReader{d}.resolve(where, ref)
	}
	r, fault := parseReference(ref.source)
	if fault != "" {
		hint := pathHint(ref.source)
		if hint == "" {
			hint = "a source is like sales, clean, train.model, train[4] or train[*].metrics"
		}
		d.report.add(ref.pos, hint, "%s: %q %s", where, truncate(ref.source), fault)
		return plan{}, false
	}
	found, ok := d.names[r.name]
	if !ok {
		hint := ""
		if !d.report.full() {
			if hint = didYouMean(r.name, d.declared()); hint == "" {
				hint = pathHint(ref.source)
			}
		}
		d.report.add(ref.pos, hint, "%s: there is no input or task %q", where, r.name)
		return plan{}, false
	}
	if found.index < 0 {
		return plan{}, false
	}
	p := plan{pos: ref.pos, input: TaskInput{Name: ref.name, Gather: ref.gather.of()}, text: ref.source}
	if ref.column != "" && (found.task || d.def.Inputs[found.index].Kind != SheetInput) {
		d.report.add(ref.pos, "leave it out", "%s: column belongs to a sheet with paths, and %s is none", where, r.name)
		return plan{}, false
	}
	if ref.part.pos.Line > 0 && (!found.task || ref.part.only != nil) {
		return p, d.fromPart(&p, where, ref, found, &r)
	}
	if !found.task {
		in := &d.def.Inputs[found.index]
		if in.Kind == ParamsInput && !r.selected && r.entry != "" && r.items == nil {
			index := d.param(found.index, r.entry, ref.pos)
			p.fromInput(&d.def.Inputs[index], index)
			return p, true
		}
		if in.Kind == SheetInput {
			p.fromInput(in, found.index)
			if ref.column != "" && r.entry != "" {
				d.report.add(ref.pos, "name the column once", "%s: %q and column: both name one", where, truncate(ref.source))
				return plan{}, false
			}
			r.entry = cmp.Or(r.entry, ref.column)
			ok := d.fromSheet(&p, in, where, ref, &r)
			return p, ok
		}
		if r.entry != "" || r.items != nil || r.selected && in.Kind != DirInput && in.Kind != GlobInput {
			d.report.add(ref.pos, "write "+r.name, "%s: %q: an input has no entries, and only a folder, a glob or files have items", where, truncate(ref.source))
			return plan{}, false
		}
		p.fromInput(in, found.index)
		return p, expander{d}.fromItems(&p, where, ref, r.selectors)
	}
	d.targets = append(d.targets, target{found.index, ref.pos})
	to := &d.bases[found.index]
	p.target = to
	if !to.isFamily() && r.selected && r.items == nil && to.spec.makesFolder(r.entry) && !isAll(r.selectors) {
		r.items, r.selectors, r.selected = r.selectors, nil, false // split[chunk]: a file in the output of split
	}
	p.entry, p.selectors = r.entry, r.selectors
	switch {
	case to.isFamily() && !r.selected:
		expander{d}.unselected(where, b, to, ref, &r)
		return plan{}, false
	case !to.isFamily() && r.selected:
		d.report.add(ref.pos, "write "+r.name+dotted(r.entry), "%s: %q: the task %s has no matrix", where, truncate(ref.source), r.name)
		return plan{}, false
	case to.items != nil || b.items != nil && to.dims != nil:
		p.joined, p.fan = true, anyAll(r.selectors)
		d.grows = true
	case to.dims != nil:
		if p.choices = d.choose(b, to, ref, r); p.choices == nil {
			return plan{}, false
		}
		for i := range p.choices {
			p.fan = p.fan || p.choices[i].mode == chooseAll
			p.own = p.own || p.choices[i].mode == chooseOwn
		}
	}
	p.at = ref.part.at
	if !d.fromTask(&p, where, ref, r.entry) {
		return plan{}, false
	}
	p.ending = ending(to, ref, r.entry)
	return p, expander{d}.fromItems(&p, where, ref, r.items)
}

// fromInput completes a plan for an input of the package.
func (p *plan) fromInput(in *Input, index int32) {
	p.input.Source = Source{Kind: FromInput, Index: index, Entry: -1}
	p.input.Path = in.Path
	p.project = true
	switch in.Kind {
	case FileInput, PartInput, SheetInput:
		p.input.Kind = File
	case URLInput:
		p.input.Kind, p.project = File, false // nothing lies at its path in the project
	case DirInput:
		p.input.Kind = Dir
	case GlobInput:
		p.input.Kind, p.input.Path, p.glob = Dir, GlobPrefix(in.Path), in.Path
	case ParamsInput, ParamInput: // SetParams knows the value
		p.project = false
		p.input.Kind, p.input.Path = Scalar, ""
	case ValueInput:
		p.project = false
		if _, scalar := ScalarText(in.Value); scalar {
			p.input.Kind = Scalar
		} else {
			p.input.Kind, p.input.Path = JSON, valuesDir+"/"+p.input.Name+".json"
		}
	}
}

// fromTask completes a plan for the output of a task or one entry of it.
func (d *decoder) fromTask(p *plan, where string, ref *wire, entry string) bool {
	spec := p.target.spec
	index := spec.output(entry)
	switch {
	case index < 0 && !spec.Several:
		name, ok := strings.CutSuffix(ref.source, "."+entry)
		if at := strings.LastIndex(name, "."+entry+"["); !ok && at >= 0 { // a file in the output: split[s1].parts[p]
			name = name[:at] + ".out" + name[at+1+len(entry):]
		}
		d.report.add(ref.pos, "write "+name, "%s: the task %s has a single output and no entry %q", where, spec.Base, truncate(entry))
		return false
	case index < 0 && entry != "":
		hint := d.suggest(entry, spec.outputNames())
		if hint == "" {
			hint = "the outputs are " + listed(spec.outputNames())
		}
		d.report.add(ref.pos, hint, "%s: the task %s has no output %q", where, spec.Base, truncate(entry))
		return false
	}
	in := &p.input
	in.Source.Kind, in.Source.Entry = FromTask, -1
	in.Path, in.Kind = in.Name, Dir
	if spec.Several {
		in.Source.Entry = int32(index)
	}
	if index >= 0 {
		in.Path, in.Kind, p.byItem = spec.Outputs[index].Path, spec.Outputs[index].Kind, spec.Outputs[index].ByItem
	}
	if p.fan {
		p.byItem = false
		in.Source.Kind = FromFanIn
		in.Path, in.Kind = cmp.Or(p.at, in.Name), Dir
	}
	if p.at != "" && (!p.fan || index < 0) {
		d.report.add(ref.part.pos, "leave it out", "%s: at belongs to a fan-in of one output, or to a file of parameters", where)
		return false
	}
	return true
}

// taskInput returns the input that a plan gives to one item of the referring task.
func (d *decoder) taskInput(b *base, p *plan, number int) TaskInput {
	in := p.input
	if p.target == nil {
		return in
	}
	first := 0
	for i := range p.choices {
		c := &p.choices[i]
		switch c.mode {
		case chooseFixed:
			first += int(c.fixed) * stride(p.target.dims, i)
		case chooseOwn:
			first += int(c.match[item(b.dims, c.own, number)]) * stride(p.target.dims, i)
		}
	}
	if p.fan {
		in.Source.Index = d.fanIn(p, first)
	} else {
		in.Source.Index = int32(p.target.first + first)
		d.byItem(p, &in)
	}
	return in
}

// fanIn returns the index of a fan-in. Its members differ from the item first only in dimensions of which all items are
// chosen.
func (d *decoder) fanIn(p *plan, first int) int32 {
	key := binary.AppendUvarint(nil, uint64(p.target.first))
	key = binary.AppendUvarint(key, uint64(first))
	size := 1
	for i := range p.choices {
		all := p.choices[i].mode == chooseAll
		if all {
			size *= len(p.target.dims[i].items)
			key = append(key, byte(i))
		}
	}
	key = append(append(append(key, p.ending...), 0), p.at...)
	if index, ok := d.fanIns[string(key)]; ok {
		return index
	}
	index := expander{d}.gathered(p, size, func(n int) FanItem {
		number := first
		for i := len(p.choices) - 1; i >= 0; i-- {
			if p.choices[i].mode == chooseAll {
				many := len(p.target.dims[i].items)
				number += n % many * stride(p.target.dims, i)
				n /= many
			}
		}
		return d.member(p, number)
	})
	d.fanIns[string(key)] = index
	return index
}

// member is the entry of a fan-in for one item of its target.
func (d *decoder) member(p *plan, number int) FanItem {
	task := p.target.first + number
	t := &d.def.Tasks[task]
	label := t.Label() + p.ending
	if p.at != "" {
		at, ok := strings.CutPrefix(t.PathOf(&t.Outputs[t.output(p.entry)]), p.at+"/")
		if !ok {
			d.report.add(p.pos, "give at a folder that is around all of them, and the item to the path",
				"%s: %s does not write in %s", truncate(p.text), t.Name, truncate(p.at))
		}
		label = at
	}
	return FanItem{Label: label, Task: int32(task)}
}

// cycles reports tasks that wait for themselves. Checking the tasks before expansion suffices: each item of a task in a
// cycle waits for an item of the next task, and since there are finitely many items, one must occur again.
func (d *decoder) cycles() {
	const (
		unseen = iota
		open
		done
	)
	type step struct{ base, target int }
	state := make([]uint8, len(d.bases))
	var path []step
	for root := range d.bases {
		if state[root] != unseen {
			continue
		}
		state[root] = open
		path = append(path[:0], step{root, 0})
		for len(path) > 0 {
			top := &path[len(path)-1]
			b := &d.bases[top.base]
			targets := d.targets[b.waits:b.waitsEnd]
			if top.target == len(targets) {
				state[top.base] = done
				path = path[:len(path)-1]
				continue
			}
			to := targets[top.target]
			top.target++
			switch state[to.base] {
			case unseen:
				state[to.base] = open
				path = append(path, step{int(to.base), 0})
			case open:
				names := []string{}
				for i := slices.IndexFunc(path, func(s step) bool { return s.base == int(to.base) }); i < len(path); i++ {
					names = append(names, d.bases[path[i].base].spec.Base)
				}
				d.report.add(to.pos, "", "tasks wait for each other: %s", cyclePath(names))
			}
		}
	}
}

// cyclePath prints a cycle, without the middle of a long one.
func cyclePath(names []string) string {
	const most = 12
	names = append(names, names[0])
	if len(names) > most {
		names = slices.Concat(names[:most/2], []string{"…"}, names[len(names)-most/2:])
	}
	return strings.Join(names, " → ")
}

func dotted(entry string) string {
	if entry == "" {
		return ""
	}
	return "." + entry
}

package manifest

import (
	"strconv"

	"e3/internal/format/notation"
)

// gathering holds the settings of a source under "in" that gathers many items.
type gathering struct {
	need     notation.Need
	manifest bool // the source comes with a manifest
	roster   bool // this wire is the manifest of the wire before
}

// Gather describes how a fan-in with a manifest gathers its members.
type Gather struct{ Need notation.Need }

// FanValues are the values of the items of fan-ins of files, by the index of the fan-in. For fan-ins of tasks, the
// values are the tasks' Items.
type FanValues map[int32]ItemValues

// ItemValues are the values of items.
type ItemValues struct {
	Names  []string
	Values []string // values of all items in their order, for each item as many as there are names
}

// ManifestOf returns the name of the input for a manifest, from the name of its fan-in.
func ManifestOf(name string) string { return name + "_manifest" }

// of returns the Gather of a task's input; nil unless the input has a manifest.
func (g gathering) of() *Gather {
	if !g.manifest {
		return nil
	}
	return &Gather{g.need}
}

// what describes a wire in messages.
func (w *wire) what() string {
	if w.gather.roster {
		return "the manifest of a fan-in"
	}
	return "an input"
}

// note keeps the values of the items of a fan-in of files: rows of a list.
func (d *Definition) note(fan int32, l *List, rows []int32) {
	values := ItemValues{Names: l.Columns, Values: make([]string, 0, len(rows)*len(l.Columns))}
	for _, r := range rows {
		values.Values = append(values.Values, l.Items[r]...)
	}
	if d.FanValues == nil {
		d.FanValues = FanValues{}
	}
	d.FanValues[fan] = values
}

// ValuesOf returns the values of the items of a fan-in.
func (d *Definition) ValuesOf(fan int32) ItemValues {
	if v, ok := d.FanValues[fan]; ok {
		return v
	}
	var v ItemValues
	for _, it := range d.FanIns[fan] {
		if it.Task < 0 || it.Path != "" {
			continue
		}
		for _, b := range d.Tasks[it.Task].Items {
			if len(v.Names) < len(d.Tasks[it.Task].Items) {
				v.Names = append(v.Names, b.Name)
			}
			v.Values = append(v.Values, b.Value)
		}
	}
	return v
}

// roster is the wire of the manifest of a wire, if it has one.
func (w *wire) roster(d *decoder) []wire {
	if !w.gather.manifest {
		return nil
	}
	return []wire{{name: d.intern(ManifestOf(w.name)), source: w.source, pos: w.pos, gather: gathering{roster: true}}}
}

// need reads the number of members that a fan-in needs.
func (d matrixReader) need(where string, n *node) notation.Need {
	text := n.text
	if n.kind == intNode {
		text = strconv.FormatInt(n.int(), 10)
	} else if n.kind != stringNode {
		d.wrongType(where, n, "a share like 95%, a number, or any")
		return notation.Need{}
	}
	need, ok := notation.ParseNeed(text)
	if !ok {
		d.report.add(n.pos, "write 95%, a number like 3, or any", "%s: %q is not how many members must succeed", where, truncate(text))
	}
	return need
}

// roster adds the plan of a manifest behind the plan of its fan-in. After a fault the fan-in has no plan.
func (d expander) roster(b *base, plans []plan, ref *wire) []plan {
	if len(plans) == 0 || ManifestOf(plans[len(plans)-1].input.Name) != ref.name {
		return plans
	}
	fan := &plans[len(plans)-1]
	where := "task " + b.spec.Base
	switch {
	case !fan.fan && !anyAll(fan.itemSelectors):
		d.report.add(ref.pos, "write [*] for all items", "%s: %q is not several items, so there is nothing to gather", where, truncate(ref.source))
		return plans
	case fan.itemSelectors != nil && fan.input.Gather.Need.Kind != notation.NeedAll:
		d.report.add(ref.pos, "leave need out", "%s: %q selects files, of which none can fail", where, truncate(ref.source))
		return plans
	}
	fan.listed = true
	return append(plans, plan{input: TaskInput{Name: ref.name, Path: valuesDir + "/" + ref.name + ".json", Kind: File, Source: Source{Kind: FromManifest, Entry: -1}},
		pos: ref.pos, text: ref.source, roster: true})
}

// follow completes the input of a manifest from the input of the fan-in before it.
func (in *TaskInput) follow(p *plan, before []TaskInput) {
	if p.roster {
		in.Source.Index, in.Own = before[len(before)-1].Source.Index, before[len(before)-1].Own
	}
}

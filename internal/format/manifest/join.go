package manifest

import (
	"cmp"
	"encoding/binary"
	"path"
	"slices"
	"strconv"
	"strings"
)

// A join is the resolved selection of a reference. It serves references with an itemMatrix on one side, and references
// that select files of a directory. Rows are found by their values.

// A pick is the selection in one variable of a target: none for all values.
type pick struct {
	at    int // the variable of the target
	own   int // the variable of the referring task that gives the value; -1: the value is fixed
	fixed string
}

type picks []pick

// key joins the values that a referring row selects into one text.
func (p picks) key(own func(int) string) string {
	var b strings.Builder
	for _, c := range p {
		if v := c.fixed; c.own < 0 {
			b.WriteString(v)
		} else {
			b.WriteString(own(c.own))
		}
		b.WriteByte(0) // no value holds it
	}
	return b.String()
}

// rows finds the rows of a target by their values in the selected variables.
func (p picks) rows(count int, value func(row, at int) string) map[string][]int32 {
	rows := make(map[string][]int32, count)
	var key []byte
	for row := range count {
		key = key[:0]
		for _, c := range p {
			key = append(append(key, value(row, c.at)...), 0)
		}
		rows[string(key)] = append(rows[string(key)], int32(row))
	}
	return rows
}

// pickOf resolves selectors against the variables of a target. The first naming variables must all be selected. own
// finds a variable of the referring task. fan says that several rows may be selected.
func pickOf(selectors []selector, names []string, naming int, target string, own func(string) (int, bool)) (list picks, fan bool, fault string) {
	chosen := make([]bool, len(names))
	rest := false
	for _, sel := range selectors {
		at := slices.Index(names, sel.dimension)
		mine, isOwn := own(sel.value)
		switch {
		case sel == selector{value: "*"} && (naming > 1 || len(selectors) > 1 || naming == 0):
			rest = true
			continue
		case sel.dimension != "" && at < 0:
			return nil, false, target + " has no dimension " + strconv.Quote(truncate(sel.dimension)) + ", only " + listed(names)
		case sel.dimension != "":
		case isOwn && slices.Contains(names, sel.value):
			at = slices.Index(names, sel.value)
		case naming == 1:
			at = 0
		case len(names) == 0:
			return nil, false, target + " has no dimensions"
		default:
			return nil, false, "it is unclear to which dimension of " + target + " " + strconv.Quote(truncate(sel.value)) + " belongs: write " +
				names[0] + "=" + sel.value + " or *; the dimensions are " + listed(names)
		}
		if chosen[at] {
			return nil, false, "it selects " + names[at] + " twice"
		}
		chosen[at] = true
		switch {
		case sel.value == "*":
			fan = true
		case isOwn:
			list = append(list, pick{at: at, own: mine})
		default:
			list = append(list, pick{at: at, own: -1, fixed: sel.value})
		}
	}
	for at := range naming {
		switch {
		case chosen[at]:
		case rest:
			fan = true
		default:
			return nil, false, "it does not say which " + names[at] + " of " + target + ": add * for all"
		}
	}
	return list, fan || rest, ""
}

// index maps the values of picks to rows of a family.
func (d expander) index(to *base, p picks) map[string][]int32 {
	key := make([]byte, 0, 32)
	key = binary.AppendUvarint(key, uint64(to.first))
	key = append(key, to.spec.Base...)
	for _, c := range p {
		key = binary.AppendUvarint(key, uint64(c.at))
	}
	if rows, ok := d.indices[string(key)]; ok {
		return rows
	}
	rows := p.rows(to.count, func(row, at int) string { return d.def.Tasks[to.first+row].Items[at].Value })
	if d.indices == nil {
		d.indices = map[string]map[string][]int32{}
	}
	d.indices[string(key)] = rows
	return rows
}

// own finds the variables of a referring task.
func (b *base) own(name string) (int, bool) {
	names, _ := b.variables()
	i := slices.Index(names, name)
	return i, i >= 0
}

// A joiner finds, for each row of a referring task, what one reference selects.
type joiner struct {
	d     expander
	b     *base
	p     *plan
	picks picks               // picks among the target's rows
	rows  map[string][]int32  // rows of the target by their key
	files map[string]*fileSet // the files of each source
	fans  map[string]int32    // index in Definition.FanIns, by the row's selection
}

// A fileSet holds the items of a source of files by the values of picks.
type fileSet struct {
	list  *List // of the items, as the task's matrix names them
	picks picks
	fan   bool
	rows  map[string][]int32
}

// newJoiner resolves the selection in the target's rows. It returns nil after a fault.
func (d expander) newJoiner(b *base, p *plan) *joiner {
	j := &joiner{d: d, b: b, p: p, files: map[string]*fileSet{}, fans: map[string]int32{}}
	if p.target == nil || !p.target.isFamily() {
		return j
	}
	names, naming := p.target.variables()
	list, fan, fault := pickOf(p.selectors, names, naming, p.target.spec.Base, b.own)
	if fault != "" && p.target.count > 0 {
		b.fail(d, p.pos, "%s: %s", truncate(p.text), fault)
		return nil
	}
	p.fan = fan || fault != "" && p.fan
	j.picks, j.rows = list, d.index(p.target, list)
	return j
}

// value returns a value of a row of the referring task.
func (j *joiner) value(number int) func(int) string {
	items := j.d.def.Tasks[j.b.first+number].Items
	return func(i int) string { return items[i].Value }
}

// input returns the input of one row; false after a fault.
func (j *joiner) input(number int) (TaskInput, bool) {
	d, p := j.d, j.p
	in := p.input
	if p.target == nil {
		return j.file(number, in, ItemSource{}, 0)
	}
	key := j.picks.key(j.value(number))
	var rows []int32
	if p.target.isFamily() {
		rows = j.rows[key]
	} else {
		rows = []int32{0}
	}
	if !p.fan || p.itemSelectors != nil {
		if len(rows) != 1 || p.fan {
			what := "has no item for " + d.def.Tasks[j.b.first+number].Name
			if p.fan || len(rows) > 1 {
				what = "has several items for " + d.def.Tasks[j.b.first+number].Name
			}
			hint := ""
			if names, naming := p.target.variables(); len(rows) == 0 && len(j.picks) > 0 && j.picks[0].own < 0 && naming > 0 && p.target.count > 0 {
				hint = "; its " + names[j.picks[0].at] + " is one of " + listed(j.values(j.picks[0].at))
			}
			j.b.fail(d, p.pos, "%s: %s %s%s", truncate(p.text), p.target.spec.Base, what, hint)
			return in, false
		}
		task := int32(p.target.first) + rows[0]
		if p.itemSelectors == nil {
			in.Source.Index = task
			d.byItem(p, &in)
			return in, true
		}
		s, ok := d.taskSource(j.b, p.target, p.pos, p.target.spec.Base, p.entry, &d.def.Tasks[task])
		if !ok {
			return in, false
		}
		return j.file(number, in, s, task)
	}
	index, ok := j.fans[key]
	if !ok {
		index = d.gathered(p, len(rows), func(k int) FanItem { return d.member(p, int(rows[k])) })
		j.fans[key] = index
	}
	in.Source.Kind, in.Source.Index = FromFanIn, index
	in.Path, in.Kind = cmp.Or(p.at, in.Name), Dir
	return in, true
}

// values are the first values of a variable of the target, each once.
func (j *joiner) values(at int) (list []string) {
	t := j.p.target
	for r := 0; r < t.count && len(list) < 8; r++ {
		if v := j.d.def.Tasks[t.first+r].Items[at].Value; !slices.Contains(list, v) {
			list = append(list, v)
		}
	}
	return list
}

// gathered makes a fan-in of many items.
func (d expander) gathered(p *plan, size int, item func(int) FanItem) int32 {
	if d.fanItems += size; d.fanItems > maxFanInItems {
		d.report.add(p.pos, "", "the fan-ins of this package have more than %d entries", maxFanInItems)
		return 0
	}
	items := make([]FanItem, size)
	for k := range items {
		items[k] = item(k)
	}
	d.def.FanIns = append(d.def.FanIns, items)
	return int32(len(d.def.FanIns) - 1)
}

// file returns the input of a row that reads files of an input, or of a task's output.
func (j *joiner) file(number int, in TaskInput, s ItemSource, task int32) (TaskInput, bool) {
	d, p, b := j.d, j.p, j.b
	if p.target == nil {
		var ok bool
		if s, ok = d.inputSource(b, p.pos, &d.def.Inputs[in.Source.Index]); !ok {
			return in, false
		}
	}
	l, known := d.source(b, s)
	if !known {
		return in, false
	}
	set := j.files[s.Key]
	if set == nil {
		if p.target != nil {
			l = b.matching(p.target.spec.Base, p.entry, l)
		} else if len(l.Files) > 0 {
			l = b.matching(d.def.Inputs[in.Source.Index].Name, "", l)
		}
		set = &fileSet{list: l}
		var fault string
		selectors := p.itemSelectors
		if p.column != "" {
			selectors = b.ofSheet(selectors, s.Key, l)
		}
		if set.picks, set.fan, fault = pickOf(selectors, l.Columns, l.Names, s.Key, b.own); fault != "" {
			b.fail(d, p.pos, "%s: %s", truncate(p.text), fault)
			return in, false
		}
		set.rows = set.picks.rows(len(l.Items), func(row, at int) string { return l.Items[row][at] })
		j.files[s.Key] = set
	}
	l = set.list
	key := set.picks.key(j.value(number))
	rows := set.rows[key]
	if set.fan && p.column != "" {
		return j.folder(number, in, l, rows, s.Key)
	}
	if set.fan {
		fan, ok := j.fans[s.Key+"\x00"+key]
		if !ok {
			fan = d.gathered(p, len(rows), func(k int) FanItem {
				file := strings.TrimSuffix(l.File(int(rows[k])), "/")
				it := FanItem{Label: EscapeLabel(file), Task: task, Path: file}
				if p.target == nil {
					it.Task, it.Input = -1, in.Source.Index
				}
				return it
			})
			j.fans[s.Key+"\x00"+key] = fan
			if p.listed {
				d.def.note(fan, l, rows)
			}
		}
		in.Source.Kind, in.Source.Index = FromFanIn, fan
		if p.target == nil {
			in.Source.Entry = -1
		}
		in.Path, in.Kind = in.Name, Dir
		return in, true
	}
	if len(rows) != 1 {
		what := "has no file for "
		hint := ""
		if len(rows) > 1 {
			what = "has several files for "
			if p.column != "" {
				hint = "; " + strings.Replace(p.text, "]", ", *]", 1) + " is a folder of all"
			}
		}
		b.fail(d, p.pos, "%s: %s %s%s%s", truncate(p.text), s.Key, what, d.def.Tasks[b.first+number].Name, hint)
		return in, false
	}
	if p.column != "" {
		return j.cell(in, l, int(rows[0]), s.Key)
	}
	file := l.File(int(rows[0]))
	in.Kind = File
	if strings.HasSuffix(file, "/") {
		in.Kind = Dir
	}
	file = strings.TrimSuffix(file, "/")
	in.Path, in.Source.Path = path.Join(s.Path, file), file
	if p.target != nil {
		in.Source.Index = task
	}
	return in, true
}

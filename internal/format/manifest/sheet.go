package manifest

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
)

// A sheet is a list of items in a file, of which some columns hold paths of files and folders of the project. Its
// dataset is a directory with the file and all that it names, each at its path. So an item finds its own files by its
// row, and its key has their content alone.

// columns reads the names of the columns that hold paths.
func (d *decoder) columns(where string, n *node) []string {
	list := distinct(d, where, n, "a list of columns", "the name of a column", func(item *node) bool {
		if item.text == "" {
			d.report.add(item.pos, "", "%s: a column without a name", where)
		}
		return item.text != ""
	})
	if n.kind == listNode && len(n.list) == 0 {
		d.report.add(n.pos, "", "%s: there is no column", where)
	}
	return list
}

// SheetPath reads the cell of a column with paths. The path of a folder ends in /; an empty cell names nothing.
func SheetPath(cell string) (clean string, folder bool, fault string) {
	cell = strings.TrimSpace(cell)
	if cell == "" {
		return "", false, ""
	}
	if strings.Contains(cell, "://") {
		return "", false, "the cell is a URL: declare it as an input {url: …}, or put a copy into the project"
	}
	clean, fault, hint := cleanPath(cell)
	if fault == "" && clean == "." {
		fault, hint = "the path is the folder of the package file itself", ""
	}
	if fault != "" && hint != "" {
		fault += " (" + hint + ")"
	}
	return clean, strings.HasSuffix(cell, "/"), fault
}

// fromSheet completes a plan for a sheet: its file, or a file of one of its rows.
func (d *decoder) fromSheet(p *plan, in *Input, where string, ref *wire, r *reference) bool {
	switch {
	case !r.selected && r.entry == "" && r.items == nil:
		p.input.Kind, p.input.Source.Path = File, in.Path
		return true
	case !r.selected || r.items != nil || r.entry == "":
		hint := "write " + in.Name + " for the file, or a row and a column, as " + in.Name + "[sample]." + in.Columns[0]
		d.report.add(ref.pos, hint, "%s: %q is neither the sheet nor a file of one row", where, truncate(ref.source))
		return false
	case !slices.Contains(in.Columns, r.entry):
		d.report.add(ref.pos, "the columns with paths are "+listed(in.Columns),
			"%s: %q: no path stands in the column %q", where, truncate(ref.source), truncate(r.entry))
		return false
	}
	p.joined, p.itemSelectors, p.column, p.byItem = true, r.selectors, r.entry, true
	d.grows = true
	return true
}

// cell completes an input that reads the file of a row. An empty cell leaves the task without this input, which then
// has no name.
func (j *joiner) cell(in TaskInput, l *List, row int, sheet string) (TaskInput, bool) {
	at := slices.Index(l.Columns, j.p.column)
	if at < 0 { // another sheet was set
		j.b.fail(j.d, j.p.pos, "%s: %s has no column %q; its columns are %s",
			truncate(j.p.text), sheet, j.p.column, listed(l.Columns))
		return in, false
	}
	file, folder, fault := SheetPath(l.Items[row][at])
	switch {
	case fault != "":
		j.b.fail(j.d, j.p.pos, "%s: item %d of %s: %s", truncate(j.p.text), row+1, sheet, fault)
		return in, false
	case file == "":
		return TaskInput{}, true
	}
	in.Path, in.Source.Path, in.Kind = file, file, File
	if folder {
		in.Kind = Dir
	}
	return in, true
}

// folder completes an input that reads the files of several rows. Their names begin with the number of the row in the
// selection: so the folders of two columns have the same order, and files of one name stay apart. A row with an empty
// cell has no file in it; if all cells are empty, the task has no such input.
func (j *joiner) folder(number int, in TaskInput, l *List, rows []int32, sheet string) (TaskInput, bool) {
	if len(rows) == 0 {
		j.b.fail(j.d, j.p.pos, "%s: %s has no row for %s", truncate(j.p.text), sheet, j.d.def.Tasks[j.b.first+number].Name)
		return in, false
	}
	digits := len(strconv.Itoa(len(rows)))
	var files []FanItem
	var kept []int32
	for k, row := range rows {
		one, ok := j.cell(in, l, int(row), sheet)
		if !ok {
			return in, false
		}
		if one.Name == "" {
			continue
		}
		label := fmt.Sprintf("%0*d-%s", digits, k+1, EscapeLabel(path.Base(one.Path)))
		file := strings.TrimSuffix(one.Source.Path, "/")
		files = append(files, FanItem{Label: label, Task: -1, Input: in.Source.Index, Path: file})
		kept = append(kept, row)
	}
	if files == nil {
		return TaskInput{}, true
	}
	fan := j.d.gathered(j.p, len(files), func(k int) FanItem { return files[k] })
	if j.p.listed {
		j.d.def.note(fan, l, kept)
	}
	in.Source = Source{Kind: FromFanIn, Index: fan, Entry: -1}
	in.Path, in.Kind = in.Name, Dir
	return in, true
}

// ofSheet adds the columns to selectors of a sheet that name a dimension which the task's matrix takes from it.
func (b *base) ofSheet(selectors []selector, sheet string, l *List) []selector {
	if b.items == nil {
		return selectors
	}
	selectors = slices.Clone(selectors)
	for i, s := range selectors {
		if s.dimension != "" || slices.Contains(l.Columns, s.value) {
			continue
		}
		for k := range b.items.factors {
			if f := b.items.factors[k].from; f != nil && f.ref.name == sheet && f.columnOf(s.value) != "" {
				selectors[i].dimension = f.columnOf(s.value)
			}
		}
	}
	return selectors
}

// isPath reports whether a column of a source holds paths, which are no constants of items.
func (d *decoder) isPath(f *itemsOf, column string) bool {
	n, ok := d.names[f.ref.name]
	return ok && !n.task && n.index >= 0 && slices.Contains(d.def.Inputs[n.index].Columns, column)
}

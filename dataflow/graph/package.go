package graph

import (
	"slices"
	"strings"

	"e3/internal/format/record"
)

// Grows reports whether tasks of a package make lists of items.
func Grows(pkg *record.Package) bool {
	return slices.ContainsFunc(pkg.Lists, func(l record.PackageList) bool { return l.Task != "" }) ||
		slices.ContainsFunc(pkg.Families, func(f record.PackageFamily) bool { return f.Pending })
}

// Whole returns the graph of a package, with gates if its tasks make lists of items.
func Whole(pkg *record.Package) (*Graph, error) {
	if !Grows(pkg) {
		return New(pkg)
	}
	return NewGrowing(pkg, GrowingOf(pkg))
}

// Base returns the task in the package file from which a task, or the source of a list, comes.
func Base(task string) string {
	if i := strings.IndexAny(task, "[."); i >= 0 {
		return task[:i]
	}
	return task
}

// GrowingOf returns the gates and pending tasks of a package. All tasks of a family that make lists share a gate, so that the
// graph grows once for them.
func GrowingOf(pkg *record.Package) *Growing {
	g := &Growing{}
	tasks := map[string][]string{} // by family; a task outside a matrix is its own family
	for i := range pkg.Tasks {
		name := pkg.Tasks[i].Name
		tasks[Base(name)] = append(tasks[Base(name)], name)
	}
	for i := range pkg.Families {
		if f := &pkg.Families[i]; f.Pending {
			tasks[f.Name] = []string{f.Name}
			g.Pending = append(g.Pending, Pending{Name: f.Name, After: f.Reads})
		}
	}
	readBy := map[string][]string{}
	for i := range pkg.Families {
		readBy[pkg.Families[i].Name] = pkg.Families[i].ReadBy
	}
	at := map[string]int{} // gates by source
	for i := range pkg.Families {
		f := &pkg.Families[i]
		held := slices.Clone(tasks[f.Name])
		readers := slices.Clone(f.ReadBy)
		for k := 0; k < len(readers); k++ {
			own := tasks[readers[k]]
			held = append(held, own...)
			if len(own) == 0 { // a family without items has no task that would wait
				for _, r := range readBy[readers[k]] {
					if !slices.Contains(readers, r) {
						readers = append(readers, r)
					}
				}
			}
		}
		mine := map[string]bool{}
		for _, k := range f.Lists {
			source := ListSource(&pkg.Lists[k])
			if source == "" || mine[source] {
				continue
			}
			mine[source] = true
			n, ok := at[source]
			if !ok {
				n = len(g.Gates)
				at[source] = n
				g.Gates = append(g.Gates, Gate{Source: source, Name: f.Name, After: tasks[Base(pkg.Lists[k].Task)]})
			}
			g.Gates[n].Families = append(g.Gates[n].Families, f.Name)
			g.Gates[n].Holds = append(g.Gates[n].Holds, held...)
		}
	}
	for i := range pkg.Families { // the only trace of a family without items
		f := &pkg.Families[i]
		for j := range g.Gates {
			if gt := &g.Gates[j]; Base(gt.Source) == f.Name {
				for _, k := range f.Lists {
					if source := ListSource(&pkg.Lists[k]); source != "" && !slices.Contains(gt.Behind, source) {
						gt.Behind = append(gt.Behind, source)
					}
				}
			}
		}
	}
	for i := range g.Gates {
		holds := g.Gates[i].Holds
		slices.Sort(holds)
		g.Gates[i].Holds = slices.Compact(holds)
	}
	return g
}

// ListSource returns the source of a list's gate: the family that makes the list, or one of its outputs; "" for an
// input.
func ListSource(l *record.PackageList) string {
	if l.Task == "" {
		return ""
	}
	if l.Entry != "" {
		return Base(l.Task) + "." + l.Entry
	}
	return Base(l.Task)
}

// Awaited returns the tasks whose output decides what a pending family of a package will be; nil if the package has no pending
// family of that name.
func Awaited(pkg *record.Package, family string) []string {
	families := map[string]*record.PackageFamily{}
	for i := range pkg.Families {
		families[pkg.Families[i].Name] = &pkg.Families[i]
	}
	var names []string
	seen := map[string]bool{}
	var add func(name string)
	add = func(name string) {
		f := families[name]
		if seen[name] {
			return
		}
		if seen[name] = true; f == nil || !f.Pending {
			names = append(names, name)
			return
		}
		for _, k := range f.Lists {
			if l := &pkg.Lists[k]; l.Task != "" {
				add(Base(l.Task))
			}
		}
		for _, read := range f.Reads {
			add(read)
		}
	}
	if f := families[family]; f != nil && f.Pending {
		add(family)
	}
	return names
}

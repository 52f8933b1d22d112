package items

import (
	"errors"
	"fmt"
	"slices"

	"e3/internal/format/manifest"
)

// A Cell is a path in a list.
type Cell struct {
	Path   string // clean; an empty cell is no Cell
	Folder bool
	Where  string // "line 3 of samples.csv: fq1"
}

// maxFaults bounds the faults that are told at once.
const maxFaults = 20

// Paths reads the cells of the columns that hold paths.
func Paths(name string, data []byte, columns []string) ([]Cell, error) {
	l, starts, err := read(name, data)
	if err != nil {
		return nil, placed(err, name, data, starts)
	}
	lines := starts()
	var cells []Cell
	var faults []error
	for _, column := range columns {
		at := slices.Index(l.Columns, column)
		if at < 0 {
			return nil, fmt.Errorf("%s has no column %q; its columns are %q", name, column, l.Columns)
		}
		for i, item := range l.Items {
			where := fmt.Sprintf("item %d of %s: %s", i+1, name, column)
			if i < len(lines) {
				where = fmt.Sprintf("line %d of %s: %s", lines[i], name, column)
			}
			clean, folder, fault := manifest.SheetPath(item[at])
			switch {
			case fault != "" && len(faults) < maxFaults:
				faults = append(faults, fmt.Errorf("%s: %q: %s", where, item[at], fault))
			case fault == "" && clean != "":
				cells = append(cells, Cell{clean, folder, where})
			}
		}
	}
	return cells, errors.Join(faults...)
}

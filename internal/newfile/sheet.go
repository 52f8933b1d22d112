package newfile

import (
	"bytes"
	"encoding/csv"
	"io/fs"
	"path"
	"strings"

	"e3/internal/format/manifest"
)

// mostSheet is the greatest size of a table whose cells are looked at.
const mostSheet = 1 << 20

// sheet returns the columns of a table that name files of the project, the files, and the name of its first column.
func sheet(fsys fs.FS, p string) (columns []string, files map[string]bool, first string) {
	comma, ok := map[string]rune{".csv": ',', ".tsv": '\t'}[strings.ToLower(path.Ext(p))]
	info, err := fs.Stat(fsys, p)
	if !ok || err != nil || info.Size() > mostSheet {
		return nil, nil, ""
	}
	data, err := fs.ReadFile(fsys, p)
	if err != nil {
		return nil, nil, ""
	}
	r := csv.NewReader(bytes.NewReader(bytes.TrimPrefix(data, []byte("\ufeff"))))
	r.Comma = comma
	rows, err := r.ReadAll()
	if err != nil || len(rows) < 2 {
		return nil, nil, ""
	}
	files = map[string]bool{}
	for k, name := range rows[0] {
		named := cells(fsys, rows[1:], k)
		if len(named) == 0 || !manifest.ValidParamPath(name) || strings.Contains(name, ".") {
			continue
		}
		columns = append(columns, name)
		for _, file := range named {
			files[file] = true
		}
	}
	return columns, files, rows[0][0]
}

// cells returns the files that the cells of a column name; none if one of them names none. Cells may be empty.
func cells(fsys fs.FS, rows [][]string, column int) (files []string) {
	for _, row := range rows {
		file, folder, fault := manifest.SheetPath(row[column])
		if file == "" && fault == "" {
			continue
		}
		info, err := fs.Stat(fsys, strings.TrimSuffix(file, "/"))
		if fault != "" || err != nil || info.IsDir() != folder {
			return nil
		}
		files = append(files, file)
	}
	return files
}

// sheets makes inputs of the tables that name files, and takes these files out of the data.
func (f *folder) sheets() {
	taken := map[string]bool{}
	for _, p := range f.files {
		columns, files, first := sheet(f.fsys, p)
		if columns == nil {
			continue
		}
		name := f.input("file", p, "its rows name files")
		f.wanted[p] = name
		f.Inputs[len(f.Inputs)-1].Columns = columns
		if manifest.ValidInputName(first) && first != columns[0] && f.sheetOf == nil {
			f.sheetOf = &sheetExample{name, first, columns[0]}
		}
		taken[p] = true
		for file := range files {
			taken[file] = true
		}
	}
	var rest []string
	for _, p := range f.files {
		if !taken[p] {
			rest = append(rest, p)
		}
	}
	f.files = rest
}

// A sheetExample is what an example of a sheet needs: its input, and the columns for items and for their files.
type sheetExample struct{ input, item, file string }

// exampleSheet makes a task for each item of a sheet, and one that gathers their results.
func (f *folder) exampleSheet(s *sheetExample, each *Task) {
	each.Comments = []string{
		"an example, one task for each " + s.item + ": put your own command here. \"$files\" is a folder with the files of its rows"}
	each.Matrix = "{" + s.item + ": " + s.input + "." + s.item + "}"
	each.Name, each.Out = f.name("each"), []Out{{Path: "each.txt"}}
	each.In, each.Run = []Ref{{Input: s.input + "[" + s.item + ", *]." + s.file, As: "files"}}, `cat "$files"/* | wc -c > "$out"`
	f.exampleAll(each)
}

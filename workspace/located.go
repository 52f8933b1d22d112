package workspace

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"e3/dataflow/graph"
	"e3/internal/format/manifest"
	"e3/internal/format/notation"
	"e3/internal/format/record"
	"e3/internal/projectfiles"
	"e3/objectstore"
	dirtree "e3/objectstore/tree"
)

// locate adds to the errors of inputs the place in the package file and, for a missing file, a file with a similar
// name.
func locate(def *manifest.Definition, err error) error {
	var several interface{ Unwrap() []error }
	var one *InputError
	var list *ItemsError
	switch {
	case errors.As(err, &list) && list.Where == "" && list == err:
		for i := range def.Families {
			if f := &def.Families[i]; f.Base == list.Family {
				list.Where = fmt.Sprintf("%s:%d:%d: ", def.File, f.Pos.Line, f.Pos.Column)
			}
		}
	case errors.As(err, &one) && one == err: // it may wrap several errors, of files of the input
		one.place(def)
	case errors.As(err, &several):
		for _, e := range several.Unwrap() {
			_ = locate(def, e)
		}
	case one != nil:
		one.place(def)
	}
	return err
}

// place adds the input's place in the package file, and advice.
func (e *InputError) place(def *manifest.Definition) {
	i := slices.IndexFunc(def.Inputs, func(in manifest.Input) bool { return in.Name == e.Input })
	if i < 0 || e.Where != "" {
		return
	}
	in := &def.Inputs[i]
	e.Where = fmt.Sprintf("%s:%d:%d: ", def.File, in.Pos.Line, in.Pos.Column)
	e.Advice = advice(in, e.Err)
	var folder *projectfiles.FolderError
	switch {
	case errors.As(e.Err, &folder):
		if in.Pattern != "" { // as it is written
			folder.Pattern = in.Pattern
		}
		e.Like = nearestFile(filepath.Join(filepath.Dir(def.File), filepath.FromSlash(folder.Folder)), folder.Folder)
	case errors.Is(e.Err, fs.ErrNotExist):
		for _, source := range in.Sources() {
			at := filepath.Join(filepath.Dir(def.File), filepath.FromSlash(source.Path))
			if _, err := os.Stat(at); err != nil {
				e.Like = nearestFile(at, source.Path)
				break
			}
		}
	}
}

// advice says what to do about an input that exists but cannot be stored.
func advice(in *manifest.Input, err error) string {
	var special *objectstore.SpecialFileError
	var entry *dirtree.Error
	var linked *projectfiles.LinkError
	switch {
	case in.Kind == manifest.FileInput && errors.As(err, &special) && special.Mode.IsDir():
		return fmt.Sprintf("to take in the directory with all that is in it: {dir: %s}", in.Path)
	case errors.As(err, &linked) && errors.Is(err, fs.ErrNotExist):
		return "mount what is missing, or remove the link"
	case in.Kind == manifest.DirInput && errors.As(err, &entry) && entry.Link:
		return "put a copy in the place of the link, or declare what it points to as an input of its own with file, which follows links"
	case in.Kind == manifest.DirInput && errors.Is(err, syscall.ENOTDIR) && !errors.As(err, &entry):
		return fmt.Sprintf("to take in a file: {file: %s}", in.Path)
	case in.Kind == manifest.DirInput && errors.As(err, &special):
		return "remove it, or take in the files alone with a glob"
	}
	return ""
}

// locateIn is locate for a package file that is not read yet. If the file cannot be read, the error stays as it is.
func locateIn(file string, err error) error {
	var one *InputError
	if !errors.As(err, &one) && !errors.As(err, new(*ItemsError)) {
		return err
	}
	if def, bad := manifest.ParseFile(file); bad == nil {
		_ = locate(def, err)
	}
	return err
}

// A FamilyError says why a family has no tasks although its lists are known.
type FamilyError struct {
	Where string // the place of the family in the package file with ": "
	Makes string // a clause that says which tasks make its lists, and where; "" if none does
	Err   error
}

func (e *FamilyError) Error() string { return e.Where + e.Err.Error() + e.Makes }

func (e *FamilyError) Unwrap() error { return e.Err }

// placeFaults adds two places in the package file to the faults of lists that tasks make, by family: the place of the
// matrix, and of the task that makes the list. If the file cannot be read, the errors stay as they are.
func placeFaults(file string, pkg *record.Package, faults map[string]error) {
	if len(faults) == 0 || file == "" {
		return
	}
	def, err := manifest.ParseFile(file)
	if err != nil {
		return
	}
	places := map[string]manifest.Pos{}
	for i := range def.Tasks {
		places[def.Tasks[i].Name] = def.Tasks[i].Pos
	}
	for i := range def.Families {
		places[def.Families[i].Base] = def.Families[i].Pos
	}
	for i := range pkg.Families {
		f := &pkg.Families[i]
		fault := faults[f.Name]
		if fault == nil {
			continue
		}
		placed := &FamilyError{Err: fault}
		if p, ok := places[f.Name]; ok {
			placed.Where = fmt.Sprintf("%s:%d:%d: ", file, p.Line, p.Column)
		}
		named := map[string]bool{}
		for _, k := range f.Lists {
			l := &pkg.Lists[k]
			maker := graph.Base(l.Task)
			if p, ok := places[maker]; ok && l.Task != "" && !named[maker] {
				named[maker] = true
				placed.Makes += fmt.Sprintf("; the list is made by the task %s (line %d)", maker, p.Line)
			}
		}
		faults[f.Name] = placed
	}
}

// nearestFile is the path of a file with a similar name beside a missing one, as the package file would write it; "" if
// there is none.
func nearestFile(file, written string) string {
	entries, err := os.ReadDir(filepath.Dir(file))
	if err != nil {
		return ""
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	name := notation.Nearest(filepath.Base(file), slices.Values(names))
	if name == "" {
		return ""
	}
	return filepath.ToSlash(filepath.Join(filepath.Dir(filepath.FromSlash(written)), name))
}

// emptyTree is the hash of a directory without entries.
var emptyTree = sync.OnceValue(func() string {
	data, err := dirtree.Encode(nil)
	if err != nil {
		panic(err)
	}
	return objectstore.Sum(data).String()
})

// matchesNothing reports whether an input is a pattern that fits no file.
func matchesNothing(in *record.LinkInput) bool {
	return in.Source == record.FromGlob && in.Leaf.Hash == emptyTree()
}

// emptyFamilies warns of families that have no tasks although the lists of their items are known. leftOut warns of a
// pattern without files.
func emptyFamilies(def *manifest.Definition, pkg *record.Package, link *record.Link) (warnings []manifest.Warning) {
	told := map[string]bool{}
	for i := range link.Inputs {
		in := &link.Inputs[i]
		told[in.Name] = matchesNothing(in)
	}
	for i := range pkg.Families {
		f := &pkg.Families[i]
		at := slices.IndexFunc(def.Families, func(d manifest.Family) bool { return d.Base == f.Name })
		if f.Pending || f.Count > 0 || len(f.Lists) == 0 || at < 0 || slices.ContainsFunc(f.Lists, func(k int64) bool { return told[pkg.Lists[k].Input] }) {
			continue
		}
		var sources []string
		for _, k := range f.Lists {
			l := &pkg.Lists[k]
			if source := cmp.Or(l.Input, graph.Base(l.Task)); !slices.Contains(sources, source) {
				sources = append(sources, source)
			}
		}
		pos := def.Families[at].Pos
		warnings = append(warnings, manifest.Warning{File: def.File, Line: int(pos.Line), Column: int(pos.Column),
			Msg: fmt.Sprintf("task %s: its matrix has no items; they follow from %s", f.Name, strings.Join(sources, ", "))})
	}
	return warnings
}

// leftOut warns of files that patterns leave out: hidden files, linked folders that only ** would match, and
// everything if no file matches. With usual, as where the package file is read, it warns also of what every input
// leaves out: editors would make that a warning of each start.
func leftOut(def *manifest.Definition, link *record.Link, usual bool) (warnings []manifest.Warning) {
	declared := sync.OnceValue(func() map[string]manifest.Pos {
		at := make(map[string]manifest.Pos, len(def.Inputs))
		for i := range def.Inputs {
			at[def.Inputs[i].Name] = def.Inputs[i].Pos
		}
		return at
	})
	for i := range link.Inputs {
		in := &link.Inputs[i]
		warn := func(format string, args ...any) {
			pos, ok := declared()[in.Name]
			if !ok {
				return
			}
			warnings = append(warnings, manifest.Warning{File: def.File, Line: int(pos.Line), Column: int(pos.Column), Msg: "input " + in.Name + ": " + fmt.Sprintf(format, args...)})
		}
		if matchesNothing(in) {
			warn("no file matches %s; paths are relative to the package file, and ** stands for any number of folders", in.Location)
		}
		if len(in.Passed) > 0 {
			warn("%s left out: ** enters no link to a folder, and a name or * does", isOrAre(in.Passed))
		}
		if len(in.Hidden) > 0 {
			warn("%s left out: only a pattern whose part begins with a dot matches hidden files", isOrAre(in.Hidden))
		}
		if usual && len(in.Usual) > 0 {
			warn("%s left out, as usual; except: [%q] takes it in", isOrAre(in.Usual), "!"+path.Base(in.Usual[0]))
		}
	}
	return warnings
}

// isOrAre is "a is", "a and b are" or "a, b and 7 more are".
func isOrAre(names []string) string {
	switch n := len(names); n {
	case 1:
		return names[0] + " is"
	case 2, 3:
		return strings.Join(names[:n-1], ", ") + " and " + names[n-1] + " are"
	default:
		return fmt.Sprintf("%s, %s and %d more are", names[0], names[1], n-2)
	}
}

// leftOutOf is leftOut for a package file that was not read because it has not changed, although the files of its
// patterns may have. The package file is read only if there is something to say; if that fails, the warnings name no
// place.
func leftOutOf(link *record.Link) []manifest.Warning {
	if link == nil || !slices.ContainsFunc(link.Inputs, func(in record.LinkInput) bool {
		return matchesNothing(&in) || len(in.Passed) > 0 || len(in.Hidden) > 0
	}) {
		return nil
	}
	def, err := manifest.ParseFile(link.File)
	if err != nil {
		return nil
	}
	return leftOut(def, link, false)
}

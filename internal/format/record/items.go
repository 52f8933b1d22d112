package record

import (
	"errors"
	"fmt"
)

// The tasks of a package whose matrices are all written out are in its file. Otherwise the package also names its
// definition, which is the content of the file, and the lists of items. Its tasks were made from these.

// PackageList is a source of items: an input, or the output of a task. Either Input or Task is set.
type PackageList struct {
	Input string
	Task  string // a task with its label: "split[s1]"
	Entry string // for a Task: one of several outputs; "" for the only output
	From  string // hash of the dataset from which the list was read; "" while the list is unknown
	List  string // hash of the list; "" while it is unknown
}

// Known reports whether the list was read.
func (l *PackageList) Known() bool { return l.List != "" }

// PackageFamily is a task of the file that is made anew when lists of items change: its matrix has sources, or it reads
// a family whose items are not known.
type PackageFamily struct {
	Name    string
	Lists   []int64  // the sources of its matrix: indices in Package.Lists
	ReadBy  []string // tasks of the file that read it, which its items decide as well
	Reads   []string // families with unknown items that it reads, and that therefore keep it from having items
	Pending bool     // its items are unknown, and the package has none of its tasks
	Count   int64    // items; of a pending family 0
}

// Sources returns the hashes of the definition and of the lists from which the tasks were made, each once. They are
// files.
func (p *Package) Sources() []string {
	if p.Definition == "" {
		return nil
	}
	list := []string{p.Definition}
	seen := map[string]bool{p.Definition: true}
	for i := range p.Lists {
		if h := p.Lists[i].List; h != "" && !seen[h] {
			seen[h] = true
			list = append(list, h)
		}
	}
	return list
}

// ReadsInput reports whether a wire reads one of the given inputs, or a part of one.
func (w *Wire) ReadsInput(any func(name string) bool) bool {
	if w.Kind == WireInput {
		return any(w.Name)
	}
	for i := range w.Items {
		if name := w.Items[i].Input; name != "" && any(name) {
			return true
		}
	}
	return false
}

// Check refuses a list that is half known, or has no source or two.
func (l *PackageList) Check() error {
	if (l.Input == "") == (l.Task == "") || l.Input != "" && l.Entry != "" || (l.From == "") != (l.List == "") {
		return errors.New("a list of items is neither of an input nor of a task, or is half known")
	}
	return nil
}

// Check refuses a family whose lists are not in the package.
func (p *Package) Check() error {
	for i := range p.Families {
		f := &p.Families[i]
		for _, k := range f.Lists {
			if k < 0 || k >= int64(len(p.Lists)) {
				return fmt.Errorf("family %q names list %d, and there are %d", f.Name, k, len(p.Lists))
			}
		}
	}
	return nil
}

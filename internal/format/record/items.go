package record

import (
	"unsafe"

	"e3/internal/format/beast2"
)

// The tasks of a package whose matrices are all written out are in its file. Otherwise the package also names its
// definition, which is what the file said, and the lists of items from which its tasks were made of it.

// PackageList is a source of items: an input, or what a task makes. Input or Task is set, not both.
type PackageList struct {
	Input string
	Task  string // a task with its label: "split[s1]"
	Entry string // Task: one of several outputs, "" for the only one
	From  string // hash of the dataset that the list was read from; "" while the list is unknown
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
	Reads   []string // families that it reads and whose items are not known, and which therefore keep it from having items
	Pending bool     // its items are not known, and the package has no task of it
	Count   int64    // items; of a pending family 0
}

// Sources returns the hashes of the definition and the lists that the tasks were made of, each once. They are files.
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

// ReadsInput reports whether a wire reads any of some inputs, or parts of one.
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

func (p *Package) appendItems(b []byte) []byte {
	b = beast2.AppendString(b, p.Definition)
	b = beast2.AppendVarint(beast2.AppendInline(b), uint64(len(p.Lists)))
	for i := range p.Lists {
		l := &p.Lists[i]
		for _, s := range []string{l.Input, l.Task, l.Entry, l.From, l.List} {
			b = beast2.AppendString(b, s)
		}
	}
	b = beast2.AppendVarint(beast2.AppendInline(b), uint64(len(p.Families)))
	for i := range p.Families {
		f := &p.Families[i]
		b = beast2.AppendVarint(beast2.AppendInline(beast2.AppendString(b, f.Name)), uint64(len(f.Lists)))
		for _, k := range f.Lists {
			b = beast2.AppendInteger(b, k)
		}
		b = appendStrings(b, f.ReadBy)
		b = appendStrings(b, f.Reads)
		b = beast2.AppendInteger(beast2.AppendBoolean(b, f.Pending), f.Count)
	}
	return b
}

func readItems(r *beast2.Reader, a *allowance, p *Package) {
	at := r.Offset()
	p.Definition = r.String()
	r.Inline()
	if n := a.count(r, 5, unsafe.Sizeof(PackageList{})); n > 0 {
		p.Lists = make([]PackageList, n)
	}
	for i := range p.Lists {
		l := PackageList{Input: r.String(), Task: r.String(), Entry: r.String(), From: r.String(), List: r.String()}
		if (l.Input == "") == (l.Task == "") || l.Input != "" && l.Entry != "" || (l.From == "") != (l.List == "") {
			r.Failf(at, "list %d of items is neither one of an input nor one of a task, or is half known", i)
		}
		if p.Lists[i] = l; r.Err() != nil {
			return
		}
	}
	r.Inline()
	if n := a.count(r, 5, unsafe.Sizeof(PackageFamily{})); n > 0 {
		p.Families = make([]PackageFamily, n)
	}
	for i := range p.Families {
		f := &p.Families[i]
		f.Name = r.String()
		r.Inline()
		if n := a.count(r, 1, unsafe.Sizeof(int64(0))); n > 0 {
			f.Lists = make([]int64, n)
		}
		for k := range f.Lists {
			if f.Lists[k] = r.Integer(); f.Lists[k] < 0 || f.Lists[k] >= int64(len(p.Lists)) {
				r.Failf(at, "family %q names list %d, and there are %d", f.Name, f.Lists[k], len(p.Lists))
			}
			if r.Err() != nil {
				return
			}
		}
		f.ReadBy, f.Reads = a.strings(r), a.strings(r)
		if f.Pending, f.Count = r.Boolean(), r.Integer(); r.Err() != nil {
			return
		}
	}
}

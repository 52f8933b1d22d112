package resultdir

import (
	"cmp"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"e3/internal/format/record"
	"e3/workspace"
)

const (
	ignoreFile = ".gitignore"
	maxIgnore  = 16 << 20 // bytes of such a file
)

// ignore lets the file .gitignore beside each item name it. Lines are added at the end; the only lines that are removed
// are those that an earlier call has added, of items that are gone. A file that is a link is left as it is.
func (w *writer) ignore(items []Item) error {
	wanted, known := map[string][]string{}, map[string][]string{} // lines by folder
	for _, l := range w.ignored {
		known[l.Folder], wanted[l.Folder] = append(known[l.Folder], l.Line), nil
	}
	kept := w.kept()
	for i := range items {
		if p := items[i].Path; w.o.Ignore && !kept[p] {
			wanted[path.Dir(p)] = append(wanted[path.Dir(p)], ignoreLine(path.Base(p), items[i].Leaf.Kind == record.LeafDir))
		}
	}
	w.ignored = nil
	for folder, lines := range wanted {
		at := path.Join(folder, ignoreFile)
		why, err := "", error(nil)
		if w.o.Refuse != nil {
			why = w.o.Refuse(at)
		}
		if why == "" {
			lines, why, err = w.ignoreIn(at, lines, known[folder])
		}
		if err != nil {
			return err
		}
		if why != "" {
			w.keep(at, why)
			lines = known[folder]
		}
		for _, line := range lines {
			w.ignored = append(w.ignored, record.IgnoredLine{Folder: folder, Line: line})
		}
	}
	slices.SortFunc(w.ignored, func(a, b record.IgnoredLine) int {
		return cmp.Or(cmp.Compare(a.Folder, b.Folder), cmp.Compare(a.Line, b.Line))
	})
	return nil
}

// ignoreIn brings one file up to date, and returns the lines in it that are e3's, or why it stays as it is.
func (w *writer) ignoreIn(at string, wanted, known []string) (ours []string, why string, err error) {
	text, info, why, err := w.readIgnore(at)
	if why != "" || err != nil {
		return nil, why, err
	}
	own := set(known)
	need := set(wanted)
	var b strings.Builder
	end := "\n"
	there := map[string]bool{}
	for line := range strings.Lines(text) {
		bare := strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r")
		if strings.HasSuffix(line, "\r\n") {
			end = "\r\n"
		}
		if own[bare] && !need[bare] {
			continue
		}
		there[bare] = true
		b.WriteString(line)
	}
	for _, line := range wanted {
		if !there[line] {
			if s := b.String(); s != "" && !strings.HasSuffix(s, "\n") {
				b.WriteString(end)
			}
			b.WriteString(line + end)
		}
		if !there[line] || own[line] {
			ours = append(ours, line)
		}
	}
	if b.String() == text {
		return ours, "", nil
	}
	why, err = w.writeIgnore(at, info, b.String())
	return ours, why, err
}

func set(lines []string) map[string]bool {
	m := make(map[string]bool, len(lines))
	for _, line := range lines {
		m[line] = true
	}
	return m
}

// readIgnore reads a file .gitignore. Its info is nil if there is none.
func (w *writer) readIgnore(at string) (text string, info fs.FileInfo, why string, err error) {
	if w.linked(path.Dir(at)) {
		return "", nil, viaLink, nil
	}
	info, err = w.Root.Lstat(at)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", nil, "", nil
	case err != nil:
		return "", nil, escapes(err), nil
	case !info.Mode().IsRegular():
		return "", nil, "it is no regular file, so it does not name what was left beside it", nil
	case info.Size() > maxIgnore:
		return "", nil, "it is too large to be a list of names", nil
	}
	f, err := w.Root.Open(at)
	if err != nil {
		return "", nil, "it cannot be read: " + escapes(err), nil
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxIgnore))
	return string(data), info, "", err
}

// writeIgnore replaces a file .gitignore that is as it was when it was read; one without a line is removed.
func (w *writer) writeIgnore(at string, was fs.FileInfo, text string) (why string, err error) {
	if folder, err := w.Root.Lstat(path.Dir(at)); err != nil || !folder.IsDir() {
		return "", nil // nothing was left there
	}
	now, err := w.Root.Lstat(at)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return escapes(err), nil
	}
	if (now == nil) != (was == nil) || now != nil && workspace.Stat(now) != workspace.Stat(was) {
		return "it changed just now", nil
	}
	if text == "" {
		err := w.Root.Remove(at)
		if folder := path.Dir(at); folder != "." {
			_ = w.Root.Remove(folder) // which fails unless it is empty
		}
		return "", err
	}
	if err := w.makeTemp(); err != nil {
		return "", err
	}
	f, err := w.temp.OpenFile(ignoreFile, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o666)
	if err != nil {
		return "", err
	}
	_, err = io.WriteString(f, text)
	if was != nil {
		err = errors.Join(err, f.Chmod(was.Mode().Perm()))
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return "", err
	}
	return "", w.Root.Rename(w.name+"/"+ignoreFile, at)
}

// ignoreLine is the line of .gitignore that fits a name in its own folder, and nothing else.
func ignoreLine(name string, folder bool) string {
	var b strings.Builder
	b.WriteByte('/')
	trimmed := strings.TrimRight(name, " ")
	for i := range len(name) {
		if strings.IndexByte(`*?[\`, name[i]) >= 0 || i >= len(trimmed) {
			b.WriteByte('\\')
		}
		b.WriteByte(name[i])
	}
	if folder {
		b.WriteByte('/')
	}
	return b.String()
}

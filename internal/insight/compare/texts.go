package compare

import (
	"fmt"
	"strings"

	"e3/internal/human"
)

// Lines are the lines of a text in which it differs, as diff -u shows them; none for a short text or one that a side lacks.
func (p *Part) Lines() []string {
	if p.Change != Changed || !strings.Contains(strings.TrimRight(p.Was, "\n")+strings.TrimRight(p.Is, "\n"), "\n") {
		return nil
	}
	end := func(s string) string { return strings.TrimRight(s, "\n") + "\n" } // a last line without an end is no difference
	diff := human.Diff(end(p.Was), end(p.Is))
	if diff == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(diff, "\n"), "\n")
}

// Text says in few words how a dataset differs. It is untrusted.
func (c *DatasetChange) Text() string {
	switch {
	case c.Files != nil:
		return c.Files.text()
	case c.Values != nil && len(c.Values.Changes) > 0:
		n := len(c.Values.Changes) + c.Values.More
		return fmt.Sprintf("%d of %s", n, human.Count(n+c.Values.Same, "value"))
	case c.Was == nil:
		return contentText(c.Is, true)
	case c.Is == nil:
		return contentText(c.Was, true)
	}
	kind := c.Was.Kind != c.Is.Kind && !c.Was.Open && !c.Is.Open
	was, is := contentText(c.Was, kind), contentText(c.Is, kind)
	if was == is {
		return was + ", other content"
	}
	return was + " → " + is
}

// contentText describes a dataset: the value itself if it can be shown, else its size.
func contentText(d *Dataset, kind bool) string {
	var parts []string
	switch {
	case d.Open:
		return "(to be made)"
	case d.Value != nil:
		return human.Truncate(string(d.Value), 60)
	case d.Executable:
		parts = append(parts, "executable file")
	case kind || d.Size == nil:
		parts = append(parts, d.Kind)
	}
	if d.Files != nil {
		parts = append(parts, human.Count(*d.Files, "file"))
	}
	if d.Size != nil {
		parts = append(parts, human.Bytes(*d.Size))
	}
	return strings.Join(parts, ", ")
}

// text counts the changes within a directory.
func (f *Files) text() string {
	var parts []string
	for _, c := range []struct {
		n    int
		what string
	}{{f.Changed, "changed"}, {f.Added, "added"}, {f.Removed, "removed"}} {
		if c.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", c.n, c.what))
		}
	}
	switch {
	case f.Bytes > 0:
		parts = append(parts, "+"+human.Bytes(f.Bytes))
	case f.Bytes < 0:
		parts = append(parts, "-"+human.Bytes(-f.Bytes))
	}
	if len(parts) == 0 {
		return "other content"
	}
	return strings.Join(parts, ", ")
}

// Text says in few words how a file differs. It is untrusted.
func (c *FileChange) Text() string {
	entry := func(f *File) string {
		switch {
		case f.Kind == "link":
			return "link to " + f.Target
		case f.Kind == "directory":
			return "directory"
		case f.Executable:
			return "executable, " + human.Bytes(f.Size)
		}
		return human.Bytes(f.Size)
	}
	switch {
	case c.Was == nil:
		return entry(c.Is)
	case c.Is == nil:
		return entry(c.Was)
	}
	was, is := entry(c.Was), entry(c.Is)
	if was == is {
		return was + ", other content"
	}
	return was + " → " + is
}

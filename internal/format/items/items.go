// Package items reads lists of items, from which a matrix makes tasks. A list is the content of a value, of a file, or
// the entries of a directory. The package knows no store: callers bring bytes and names.
package items

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"unicode/utf8"

	"e3/internal/format/manifest"
)

// List holds the items of a source.
type List = manifest.List

// MaxFile is the greatest size in bytes of a file with a list.
const MaxFile = manifest.MaxList

// File reads a list from a file: .json and .yaml hold a list or a mapping, .csv and .tsv rows under a header, .txt an item
// in each line.
func File(name string, data []byte) (*List, error) {
	if len(data) > MaxFile {
		return nil, fmt.Errorf("larger than %d MiB", MaxFile>>20)
	}
	l, starts, err := read(name, data)
	if err == nil {
		err = l.Check()
	}
	if err != nil {
		return nil, placed(err, name, data, starts)
	}
	return l, nil
}

// placed adds to a fault its line in the file. starts returns the lines at which the items begin, as far as they are
// known.
func placed(err error, name string, data []byte, starts func() []int) error {
	var syntax *csv.ParseError
	var item *manifest.ItemError
	switch {
	case errors.As(err, &syntax) && errors.Is(err, csv.ErrFieldCount):
		return fmt.Errorf("line %d of %s has not as many values as the header has names", syntax.StartLine, name)
	case errors.As(err, &syntax) && (errors.Is(err, csv.ErrQuote) || errors.Is(err, csv.ErrBareQuote)):
		return fmt.Errorf(`line %d of %s: in the row that begins here a quote (") is not closed, or is not doubled within quotes`, syntax.StartLine, name)
	case errors.As(err, &item):
		if at := starts(); item.Item < len(at) {
			return fmt.Errorf("line %d of %s: %s", at[item.Item], name, item.Text)
		}
	}
	return err
}

// read reads a list by the ending of its file's name. starts returns the lines at which the items begin; it is called
// after a fault.
func read(name string, data []byte) (l *List, starts func() []int, err error) {
	var at []int
	starts = func() []int { return at }
	switch ending := strings.ToLower(path.Ext(name)); ending {
	case ".csv":
		l, at, err = table(data, ',')
	case ".tsv":
		l, at, err = table(data, '\t')
	case ".json", ".yaml", ".yml":
		starts = func() []int { return manifest.ElementLines(name, data) }
		var v any
		if v, err = manifest.ParseWritten(name, data); err == nil {
			l, err = ofValue(v)
		}
	case ".txt":
		l, at = lines(data)
	default:
		err = fmt.Errorf("the ending %q names no format of a list; there are %s", ending, strings.Join(manifest.ListFormats, ", "))
	}
	return l, starts, err
}

// Value makes a list of a plain value: the elements of a list or the members of a mapping.
func Value(v any) (*List, error) {
	l, err := ofValue(v)
	if err == nil {
		err = l.Check()
	}
	if err != nil {
		return nil, err
	}
	return l, nil
}

func ofValue(v any) (*List, error) {
	switch v := v.(type) {
	case []any:
		if len(v) == 0 {
			return plain(nil)
		}
		if _, ok := v[0].(manifest.Object); ok {
			return objects(v)
		}
		return plain(v)
	case manifest.Object:
		return members(v)
	}
	return nil, errors.New("it is neither a list nor a mapping")
}

// plain makes a list of scalars.
func plain(list []any) (*List, error) {
	l := &List{Names: 1, Columns: []string{""}}
	for i, v := range list {
		text, ok := manifest.ScalarText(v)
		if !ok || v == nil {
			return nil, &manifest.ItemError{Item: i, Text: "it is " + kind(v) + ", and an element of a list of single values is not"}
		}
		l.Items = append(l.Items, []string{text})
	}
	return l, nil
}

func kind(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case []any:
		return "a list"
	case manifest.Object:
		return "a mapping"
	}
	return "a single value"
}

// A columns collects the columns of items in the order of their first appearance.
type columns struct {
	list *List
	at   map[string]int
}

func newColumns(l *List) *columns {
	c := &columns{list: l, at: map[string]int{}}
	for i, name := range l.Columns {
		c.at[name] = i
	}
	return c
}

// set sets a value of an item. A value that an item lacks is empty.
func (c *columns) set(values []string, name, text string) []string {
	k, ok := c.at[name]
	if !ok {
		k = len(c.list.Columns)
		c.at[name] = k
		c.list.Columns = append(c.list.Columns, name)
	}
	for len(values) <= k {
		values = append(values, "")
	}
	values[k] = text
	return values
}

// close gives each item a value in every column.
func (c *columns) close() error {
	if err := fits(c.list); err != nil {
		return err
	}
	for i := range c.list.Items {
		for len(c.list.Items[i]) < len(c.list.Columns) {
			c.list.Items[i] = append(c.list.Items[i], "")
		}
	}
	return nil
}

// text is the text of a member of an item; for a list or a mapping it is the JSON. null has no text.
func text(v any) string {
	if v == nil {
		return ""
	}
	if s, ok := manifest.ScalarText(v); ok {
		return s
	}
	return string(manifest.AppendJSON(nil, v))
}

// Limits of a table in memory: its columns, and the values of all items.
const (
	maxColumns = 256
	maxValues  = 16 << 20
)

// fits checks that all items can have all columns.
func fits(l *List) error {
	if len(l.Columns)*len(l.Items) > maxValues {
		return fmt.Errorf("%d items with %d columns are more than %d values", len(l.Items), len(l.Columns), maxValues)
	}
	return nil
}

// objects makes a list of mappings: a column for each of their names.
func objects(list []any) (*List, error) {
	l := &List{Columns: []string{}}
	c := newColumns(l)
	for i, v := range list {
		o, ok := v.(manifest.Object)
		if !ok {
			return nil, &manifest.ItemError{Item: i, Text: "it is " + kind(v) + ", and the first element is a mapping"}
		}
		var values []string
		for _, m := range o {
			if m.Name == "" {
				return nil, &manifest.ItemError{Item: i, Text: "it has a value without a name"}
			}
			values = c.set(values, m.Name, text(m.Value))
		}
		if len(l.Columns) > maxColumns {
			return nil, fmt.Errorf("the elements have more than %d names", maxColumns)
		}
		l.Items = append(l.Items, values)
	}
	return l, c.close()
}

// members makes a list of the members of a mapping, named by their names. Mappings in it are columns; anything else is
// the column value.
func members(o manifest.Object) (*List, error) {
	l := &List{Names: 1, Columns: []string{""}}
	c := newColumns(l)
	for i, m := range o {
		values := []string{m.Name}
		if inner, ok := m.Value.(manifest.Object); ok {
			for _, n := range inner {
				if n.Name == "" {
					return nil, &manifest.ItemError{Item: i, Text: fmt.Sprintf("%q has a value without a name", m.Name)}
				}
				values = c.set(values, n.Name, text(n.Value))
			}
		} else {
			values = c.set(values, "value", text(m.Value))
		}
		if len(l.Columns) > maxColumns {
			return nil, fmt.Errorf("the members have more than %d names", maxColumns)
		}
		l.Items = append(l.Items, values)
	}
	return l, c.close()
}

// table reads rows under a header. lines are the numbers of the lines at which the rows begin.
func table(data []byte, comma rune) (l *List, lines []int, err error) {
	if !utf8.Valid(data) {
		return nil, nil, errors.New("it is not UTF-8 text")
	}
	r := csv.NewReader(bytes.NewReader(bytes.TrimPrefix(data, []byte("\ufeff"))))
	r.Comma = comma
	r.LazyQuotes = comma == '\t'
	head, err := r.Read()
	if errors.Is(err, io.EOF) {
		return nil, nil, errors.New("it has no header: the first line names the columns")
	}
	if err != nil {
		return nil, nil, err
	}
	l = &List{Columns: head}
	for i := range head {
		if head[i] = strings.TrimSpace(head[i]); head[i] == "" {
			return nil, nil, fmt.Errorf("the header has no name for column %d", i+1)
		}
	}
	for {
		row, err := r.Read()
		if errors.Is(err, io.EOF) {
			return l, lines, nil
		}
		if err != nil {
			return nil, nil, err
		}
		line, _ := r.FieldPos(0)
		lines = append(lines, line)
		if len(row) > 1 && strings.Join(row, "") == "" { // spreadsheets write such a row at the end of a table
			return nil, lines, &manifest.ItemError{Item: len(lines) - 1, Text: "the row has no values; remove it"}
		}
		l.Items = append(l.Items, row)
		if err := fits(l); err != nil {
			return nil, nil, err
		}
	}
}

// lines reads an item from each line that is not empty. at are the numbers of these lines.
func lines(data []byte) (l *List, at []int) {
	l = &List{Names: 1, Columns: []string{""}}
	number := 0
	for line := range strings.Lines(string(bytes.TrimPrefix(data, []byte("\ufeff")))) {
		number++
		if line = strings.TrimSpace(line); line != "" {
			l.Items = append(l.Items, []string{line})
			at = append(at, number)
		}
	}
	return l, at
}

// Folder makes a list of the entries of a directory. Each item has the name of its entry; the name of a folder ends in
// "/".
func Folder(entries []string) (*List, error) {
	l := &List{Names: 1, Columns: []string{""}, Files: entries}
	for _, name := range entries {
		l.Items = append(l.Items, []string{strings.TrimSuffix(name, "/")})
	}
	return l, l.Check()
}

// Glob makes a list of the files of a glob with one wildcard, each named by the text of the wildcard. The files are paths
// below the folder at the beginning of the glob.
func Glob(glob string, files []string) (*List, error) {
	l := &List{Names: 1, Columns: []string{""}, Files: files}
	prefix := manifest.GlobPrefix(glob)
	for _, file := range files {
		text, ok := manifest.Wildcard(glob, path.Join(prefix, file))
		if !ok || text == "" {
			return nil, fmt.Errorf("%s has no name, because the wildcard of %s stands for nothing there", path.Join(prefix, file), glob)
		}
		l.Items = append(l.Items, []string{text})
	}
	return l, l.Check()
}

// Files makes a list of the files of a pattern with names, as Glob does. The glob of the pattern may match further
// files, which the pattern does not match: they are no items.
func Files(pattern string, files []string) (*List, error) {
	p, err := manifest.ParsePattern(pattern)
	if err != nil {
		return nil, err
	}
	l := &List{Names: len(p.Names), Columns: p.Names}
	prefix := manifest.GlobPrefix(p.Glob)
	for _, file := range files {
		if texts, ok := p.Match(path.Join(prefix, file)); ok {
			l.Items, l.Files = append(l.Items, texts), append(l.Files, file)
		}
	}
	return l, l.Check()
}

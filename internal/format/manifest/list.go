package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// Limits of a list of items.
const (
	MaxItems = MaxTasks  // items of one list
	MaxList  = 256 << 20 // bytes of its encoding

	maxColumns  = 256       // columns of one list
	maxConstant = 64 << 10  // bytes of one value, which a command gets in its environment
	maxItemText = 128 << 20 // bytes of all values of a list
)

// A List holds the items of a source, in the order of the source. A matrix makes tasks from them. A list is stored as
// an object, and equal lists have equal encodings. A list never changes.
type List struct {
	// Names is the number of leading columns whose values name an item. 0: the matrix must choose a column.
	Names int `json:"names"`
	// Columns are the names of the values. If the source gives no names, the only column is ""; the matrix names it.
	Columns []string `json:"columns"`
	// Items have a value for each column.
	Items [][]string `json:"items"`
	// Files are the paths of the items below their source, which is a directory; the path of a folder ends in "/". There
	// are none if the source is no directory.
	Files []string `json:"files,omitempty"`
}

// File returns the path of an item below its source, "" if it has none.
func (l *List) File(item int) string {
	if len(l.Files) == 0 {
		return ""
	}
	return l.Files[item]
}

// Encode returns the bytes of the list's object.
func (l *List) Encode() []byte {
	f := *l
	if f.Columns == nil {
		f.Columns = []string{}
	}
	if f.Items == nil {
		f.Items = [][]string{}
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(f) // lists of strings always encode
	return b.Bytes()
}

// DecodeList reads the object of a list. It refuses bytes that Encode would not write.
func DecodeList(data []byte) (*List, error) {
	if len(data) > MaxList {
		return nil, fmt.Errorf("list of items: larger than %d MiB", MaxList>>20)
	}
	l := &List{}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(l); err != nil {
		return nil, fmt.Errorf("list of items: %w", err)
	}
	if err := l.Check(); err != nil {
		return nil, fmt.Errorf("list of items: %w", err)
	}
	if !bytes.Equal(l.Encode(), data) {
		return nil, errors.New("list of items: not in its only form")
	}
	return l, nil
}

// An ItemError is the fault of one item of a list.
type ItemError struct {
	Item int // index of the item, from 0
	Text string
}

func (e *ItemError) Error() string { return fmt.Sprintf("item %d: %s", e.Item+1, e.Text) }

// Check returns the fault of a list, nil if it has none.
func (l *List) Check() error {
	switch {
	case len(l.Items) > MaxItems:
		return fmt.Errorf("%d items, and %d is the most", len(l.Items), MaxItems)
	case len(l.Columns) > maxColumns:
		return fmt.Errorf("%d columns, and %d is the most", len(l.Columns), maxColumns)
	case l.Names < 0 || l.Names > len(l.Columns):
		return fmt.Errorf("%d of %d columns name an item", l.Names, len(l.Columns))
	case len(l.Files) != 0 && len(l.Files) != len(l.Items):
		return fmt.Errorf("%d items have %d files", len(l.Items), len(l.Files))
	}
	for i, name := range l.Columns {
		if slices.Contains(l.Columns[:i], name) {
			return fmt.Errorf("two columns are named %q", truncate(name))
		}
	}
	text := 0
	for i, values := range l.Items {
		if len(values) != len(l.Columns) {
			return &ItemError{i, fmt.Sprintf("%d values, and there are %d columns", len(values), len(l.Columns))}
		}
		for k, v := range values {
			text += len(v)
			switch {
			case !utf8.ValidString(v):
				return &ItemError{i, fmt.Sprintf("%q is not valid UTF-8", truncate(v))}
			case strings.IndexByte(v, 0) >= 0:
				return &ItemError{i, "a value holds the character NUL"}
			case len(v) > maxConstant:
				return &ItemError{i, fmt.Sprintf("the %s is longer than %d KiB; give a command large data as a file", columnText(l.Columns[k]), maxConstant>>10)}
			case k < l.Names && v == "":
				return &ItemError{i, fmt.Sprintf("no name: the %s is empty", columnText(l.Columns[k]))}
			}
		}
		switch file := l.File(i); {
		case file == "" && len(l.Files) > 0:
			return &ItemError{i, "either all items have a file or none"}
		case !utf8.ValidString(file):
			return &ItemError{i, fmt.Sprintf("the path %q is not valid UTF-8", truncate(file))}
		}
	}
	if text > maxItemText {
		return fmt.Errorf("the values have more than %d MiB", maxItemText>>20)
	}
	return nil
}

func columnText(name string) string {
	if name == "" {
		return "value"
	}
	return fmt.Sprintf("column %q", truncate(name))
}

// EscapeLabel returns the form of a value in a label: characters that a label cannot have, and a percent sign that two
// hex digits follow, are written as % and two hex digits for each byte. Two values never have the same form.
func EscapeLabel(s string) string {
	if ValidLabelItem(s) && utf8.ValidString(s) && !strings.Contains(s, "%") {
		return s
	}
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	escape := func(s string) {
		for i := range len(s) {
			b.WriteByte('%')
			b.WriteByte(hex[s[i]>>4])
			b.WriteByte(hex[s[i]&15])
		}
	}
	if s == "." || s == ".." || s == "*" {
		escape(s)
		return b.String()
	}
	inner := strings.TrimSpace(s)
	lead := strings.Index(s, inner)
	for i, r := range s {
		size := utf8.RuneLen(r)
		if r == utf8.RuneError {
			_, size = utf8.DecodeRuneInString(s[i:])
		}
		switch {
		case i < lead || i >= lead+len(inner), // space at an end
			r < 0x20 || r >= 0x7f && r < 0xa0 || strings.ContainsRune("/,=[]", r),
			r == utf8.RuneError && size == 1,
			r == '%' && i+2 < len(s) && isHex(s[i+1]) && isHex(s[i+2]):
			escape(s[i : i+size])
		default:
			b.WriteString(s[i : i+size])
		}
	}
	return b.String()
}

func isHex(c byte) bool { return '0' <= c && c <= '9' || 'A' <= c && c <= 'F' || 'a' <= c && c <= 'f' }

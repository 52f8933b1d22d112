package propose

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"

	"e3/internal/format/manifest"
)

// ErrByHand is wrapped if a package file is written in a way that cannot be edited.
var ErrByHand = errors.New("edit it by hand")

// Edit returns the text of a package file with the additions of the proposal. Everything else, comments as well, stays
// as it is. The result is a correct package file.
func Edit(name string, text []byte, p *Proposal) ([]byte, error) {
	e := &editor{text: text}
	for i := range p.Tasks {
		t := &p.Tasks[i]
		var sources []string
		for _, r := range t.Reads {
			if r.Note == "" {
				sources = append(sources, r.Source)
			}
		}
		if len(sources) > 0 {
			if err := e.addSources(t.Name, sources); err != nil {
				return nil, fmt.Errorf("%s: task %s: %w", name, t.Name, err)
			}
		}
	}
	for _, in := range p.New {
		if !p.reads(in.Name) {
			continue
		}
		if err := e.addInput(in); err != nil {
			return nil, fmt.Errorf("%s: input %s: %w", name, in.Name, err)
		}
	}
	if _, err := manifest.Parse(name, e.text); err != nil {
		return nil, fmt.Errorf("%s: what is proposed does not fit the file: %w: %w", name, ErrByHand, err)
	}
	return e.text, nil
}

func (p *Proposal) reads(name string) bool {
	return slices.ContainsFunc(p.Tasks, func(t Task) bool {
		return slices.ContainsFunc(t.Reads, func(r Read) bool { return r.Source == name && r.Note == "" })
	})
}

// editor inserts text at the places that a parse names. Each edit parses anew.
type editor struct{ text []byte }

// find returns a key of a mapping below the root, with its value.
func (e *editor) find(keys ...string) (key, value *yaml.Node, err error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(e.text, &doc); err != nil || len(doc.Content) != 1 {
		return nil, nil, fmt.Errorf("%w: it is not one YAML document", ErrByHand)
	}
	value = doc.Content[0]
	for _, want := range keys {
		if value.Kind != yaml.MappingNode || value.Style&yaml.FlowStyle != 0 && len(keys) == 1 {
			return nil, nil, fmt.Errorf("%w: it is not written as an indented mapping", ErrByHand)
		}
		at := -1
		for i := 0; i+1 < len(value.Content); i += 2 {
			if value.Content[i].Value == want {
				at = i
			}
		}
		if at < 0 {
			return nil, value, nil
		}
		key, value = value.Content[at], value.Content[at+1]
	}
	if value.Kind == yaml.AliasNode || value.Anchor != "" {
		return nil, nil, fmt.Errorf("%w: an anchor stands for %s", ErrByHand, keys[len(keys)-1])
	}
	return key, value, nil
}

// addInput declares an input of the package.
func (e *editor) addInput(in NewInput) error {
	key, inputs, err := e.find("inputs")
	if err != nil {
		return err
	}
	entry := fmt.Sprintf("%s: {%s: %s}", in.Name, in.Key, quoted(in.Path))
	if key == nil {
		tasks, _, err := e.find("tasks")
		if err != nil || tasks == nil {
			return fmt.Errorf("%w: it has no tasks", ErrByHand)
		}
		indent := strings.Repeat(" ", tasks.Column-1)
		e.insertLines(tasks.Line-1, indent+"inputs:", indent+"  "+entry)
		return nil
	}
	return e.addEntry(key, inputs, entry)
}

// addEntry adds an entry to a mapping or a list.
func (e *editor) addEntry(key, list *yaml.Node, entry string) error {
	switch {
	case list.Style&yaml.FlowStyle != 0:
		return e.addFlow(list, entry)
	case len(list.Content) == 0 || list.Line == key.Line:
		return fmt.Errorf("%w: %s is empty", ErrByHand, key.Value)
	}
	first := list.Content[0]
	column := first.Column
	if list.Kind == yaml.SequenceNode {
		entry, column = "- "+entry, list.Column
	}
	e.insertLines(e.end(list.Content[len(list.Content)-step(list)].Line, column), strings.Repeat(" ", column-1)+entry)
	return nil
}

// step is the number of nodes of an entry.
func step(list *yaml.Node) int {
	if list.Kind == yaml.SequenceNode {
		return 1
	}
	return 2
}

// end is the number of lines up to the end of an entry that begins in a line, at a column: its further lines are
// indented more deeply. Comments and empty lines after it belong to the next entry.
func (e *editor) end(line, column int) int {
	lines := e.lines()
	last := line
	for i := line; i < len(lines); i++ {
		text := strings.TrimRight(lines[i], "\r\n")
		trimmed := strings.TrimLeft(text, " ")
		switch {
		case trimmed == "":
			continue
		case len(text)-len(trimmed) < column:
			return last
		case strings.HasPrefix(trimmed, "#"):
			continue
		}
		last = i + 1
	}
	return last
}

// addFlow adds an entry before the closing bracket of a list or mapping in brackets.
func (e *editor) addFlow(list *yaml.Node, entry string) error {
	open := e.offset(list.Line, list.Column)
	for open < len(e.text) && e.text[open] != '[' && e.text[open] != '{' { // behind a tag
		open++
	}
	end := closing(e.text, open)
	if end < 0 {
		return fmt.Errorf("%w: its brackets cannot be found", ErrByHand)
	}
	at := end
	for at > open+1 && strings.IndexByte(" \t\r\n", e.text[at-1]) >= 0 {
		at--
	}
	if line := e.text[bytes.LastIndexByte(e.text[:at], '\n')+1 : at]; bytes.Contains(line, []byte(" #")) {
		return fmt.Errorf("%w: a comment stands before its closing bracket", ErrByHand)
	}
	switch {
	case len(list.Content) == 0:
	case e.text[at-1] == ',':
		entry = " " + entry
	default:
		entry = ", " + entry
	}
	e.text = slices.Insert(slices.Clone(e.text), at, []byte(entry)...)
	return nil
}

// closing finds the bracket that closes the bracket at an offset.
func closing(text []byte, open int) int {
	depth, quote := 0, byte(0)
	for i := open; i < len(text); i++ {
		c := text[i]
		switch {
		case quote == '"' && c == '\\':
			i++
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '"' || c == '\'':
			if strings.IndexByte(" \t\n[{,:", text[i-1]) >= 0 {
				quote = c
			}
		case c == '#' && strings.IndexByte(" \t\n", text[i-1]) >= 0:
			for i+1 < len(text) && text[i+1] != '\n' {
				i++
			}
		case c == '[' || c == '{':
			depth++
		case c == ']' || c == '}':
			if depth--; depth == 0 {
				return i
			}
		}
	}
	return -1
}

// addSources adds sources to the inputs of a task.
func (e *editor) addSources(task string, sources []string) error {
	key, body, err := e.find("tasks", task)
	if err != nil || key == nil {
		return errors.Join(err, missing(key))
	}
	in, _, err := e.find("tasks", task, "in")
	if err != nil {
		return err
	}
	if in == nil {
		return e.addIn(body, sources)
	}
	for _, source := range sources {
		in, list, err := e.find("tasks", task, "in")
		if err != nil {
			return err
		}
		entry := quoted(source)
		switch list.Kind {
		case yaml.SequenceNode:
		case yaml.MappingNode:
			entry = localName(list, source) + ": " + entry
		default:
			return fmt.Errorf("%w: in is neither a list nor a mapping", ErrByHand)
		}
		if err := e.addEntry(in, list, entry); err != nil {
			return err
		}
	}
	return nil
}

func missing(key *yaml.Node) error {
	if key == nil {
		return fmt.Errorf("%w: the file has no such task", ErrByHand)
	}
	return nil
}

// addIn gives a task without inputs its first inputs.
func (e *editor) addIn(body *yaml.Node, sources []string) error {
	var words []string
	for _, source := range sources {
		words = append(words, quoted(source))
	}
	entry := "in: [" + strings.Join(words, ", ") + "]"
	switch {
	case body.Kind != yaml.MappingNode || len(body.Content) == 0:
		return fmt.Errorf("%w: it is no mapping", ErrByHand)
	case body.Style&yaml.FlowStyle != 0:
		at := e.offset(body.Line, body.Column) + 1
		e.text = slices.Insert(slices.Clone(e.text), at, []byte(entry+", ")...)
		return nil
	}
	first := body.Content[0]
	line, indent := first.Line-1, strings.Repeat(" ", first.Column-1)
	if strings.TrimSpace(e.lines()[line][:len(indent)]) != "" {
		return fmt.Errorf("%w: its first key stands in the line of its name", ErrByHand)
	}
	e.insertLines(line, indent+entry)
	return nil
}

// localName returns a name for a source that is new in the mapping.
func localName(list *yaml.Node, source string) string {
	base, _, _ := strings.Cut(source, "[")
	if _, entry, ok := strings.Cut(source[len(base):], "]."); ok {
		base = entry
	} else if i := strings.LastIndexByte(base, '.'); i >= 0 {
		base = base[i+1:]
	}
	base = Name(base)
	name := base
	for n := 2; ; n++ {
		taken := false
		for i := 0; i < len(list.Content); i += 2 {
			taken = taken || list.Content[i].Value == name
		}
		if !taken {
			return name
		}
		name = fmt.Sprint(base, "_", n)
	}
}

// quoted writes a text as YAML, inside brackets as well.
func quoted(s string) string {
	plain := s != "" && !strings.HasPrefix(s, "-") && strings.IndexFunc(s, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_-./", r))
	}) < 0
	if plain {
		var v any
		if yaml.Unmarshal([]byte(s), &v) == nil {
			if text, ok := v.(string); ok && text == s {
				return s
			}
		}
	}
	return fmt.Sprintf("%q", s)
}

func (e *editor) lines() []string { return strings.SplitAfter(string(e.text), "\n") }

// offset is the offset of a line and a column. Both count from 1, the column in characters.
func (e *editor) offset(line, column int) int {
	at := 0
	for _, text := range e.lines()[:line-1] {
		at += len(text)
	}
	for ; column > 1; column-- {
		_, size := utf8.DecodeRune(e.text[at:])
		at += size
	}
	return at
}

// insertLines inserts lines after the given number of lines of the text.
func (e *editor) insertLines(after int, lines ...string) {
	all := e.lines()
	ending := "\n"
	if strings.HasSuffix(all[0], "\r\n") {
		ending = "\r\n"
	}
	if after > 0 && !strings.HasSuffix(all[after-1], "\n") {
		all[after-1] += ending
	}
	for i := range lines {
		lines[i] += ending
	}
	e.text = []byte(strings.Join(slices.Insert(all, after, lines...), ""))
}

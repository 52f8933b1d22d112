package manifest

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"e3/internal/format/notation"
	"e3/internal/format/pattern"
)

// typeHint says what to write, of a node of another kind than is wanted at a place; "" if that is not clear.
func typeHint(n *node, want string) string {
	text := flow(n, 0)
	wants := func(begins string) bool { return strings.HasPrefix(want, begins) }
	switch {
	case n.kind == nullNode && n.text == "" && (wants("a mapping") || wants("a list")):
		return "indent what belongs to it below it"
	case wants("a mapping such as {file: data.csv}"):
		return inputHint(n, text)
	case wants("a string"), wants("a path or a mapping"):
		switch {
		case n.kind == boolNode || n.kind == intNode || n.kind == floatNode:
			return fmt.Sprintf("quote it: %q", n.text)
		case n.kind == listNode && wants("a path or a mapping") && len(n.list) > 0:
			return "write a name for each: " + namedPaths(n)
		}
	case wants("true or false") && n.kind == stringNode && n.text != "true" && n.text != "false":
		switch strings.ToLower(n.text) {
		case "yes", "on", "y":
			return "write true"
		case "no", "off", "n":
			return "write false"
		}
	case wants("true or false") && n.kind == stringNode:
		return "leave the quotes out"
	case wants("a list of arguments or a shell script"):
		if n.kind != mapNode {
			return ""
		}
		return "quote the command: in YAML, text in { } or with a colon and a space is a mapping"
	case wants("a list") && n.isScalar() && text != "":
		if from, to, ok := numberRange(n.text); ok {
			return fmt.Sprintf("write each number: [%d, %d, …, %d]", from, from+1, to)
		}
		return "write [" + text + "]"
	case wants("the name of an input or task") && n.kind == mapNode && len(n.list) == 2 && n.list[0].kind == stringNode:
		if n.list[1].kind == nullNode {
			return "leave the braces out: " + truncate(n.list[0].text)
		}
		return fmt.Sprintf("for a name of its own make in a mapping: in: {%s: %s}", truncate(n.list[0].text), flow(&n.list[1], 0))
	case wants("a mapping of variables") && n.kind == listNode:
		if pairs := assignments(n); pairs != "" {
			return "write {" + pairs + "}"
		}
	case want == "a mapping" && n.kind == listNode:
		return "write each under its name"
	case wants("the name of a source") && n.isScalar():
		return "name the items: matrix: {item: [" + text + ", …]}"
	}
	return ""
}

// inputHint is the hint for an input that is no mapping.
func inputHint(n *node, text string) string {
	switch {
	case text == "":
		return ""
	case n.kind == listNode && slices.ContainsFunc(n.list, func(item node) bool { return item.kind == stringNode && strings.ContainsAny(item.text, "./") }):
		return "each file is an input of its own, or all that match: {glob: \"data/*.csv\"}; a list as a value is {value: " + text + "}"
	case n.kind != stringNode:
		return "write {value: " + text + "}"
	case strings.ContainsAny(n.text, "*?"):
		return fmt.Sprintf("write {glob: %q}", truncate(n.text))
	case strings.HasSuffix(n.text, "/"):
		return "write {dir: " + text + "}"
	case strings.ContainsAny(n.text, "./"):
		return "write {file: " + text + "}"
	}
	return fmt.Sprintf("write {value: %s} for a text, or {file: %[1]s}", text)
}

// flow is a small node in YAML's flow style; "" for a large one.
func flow(n *node, depth int) string {
	const most = 60
	if depth > 3 {
		return ""
	}
	switch n.kind {
	case boolNode, intNode, floatNode:
		return truncate(n.text)
	case stringNode:
		if len(n.text) > most || strings.ContainsAny(n.text, "\n\"\\") {
			return ""
		}
		if n.plain() && !strings.ContainsAny(n.text, ",[]{}#*&!|>%@`'") {
			return n.text
		}
		return `"` + n.text + `"`
	case listNode, mapNode:
		var parts []string
		for i := 0; i < len(n.list); i++ {
			part := flow(&n.list[i], depth+1)
			if part == "" {
				return ""
			}
			if n.kind == mapNode && i%2 == 1 {
				parts[len(parts)-1] += ": " + part
				continue
			}
			parts = append(parts, part)
		}
		text := strings.Join(parts, ", ")
		if len(text) > most {
			return ""
		}
		if n.kind == mapNode {
			return "{" + text + "}"
		}
		return "[" + text + "]"
	}
	return ""
}

// namedPaths gives the paths of a list names, as outputs have them.
func namedPaths(n *node) string {
	var parts []string
	for i := range n.list {
		item := &n.list[i]
		if item.kind != stringNode || i == 3 {
			parts = append(parts, "…")
			break
		}
		base := path.Base(item.text)
		parts = append(parts, likelyName(strings.TrimSuffix(base, path.Ext(base)))+": "+truncate(item.text))
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

// assignments turns a list of NAME=value into the inside of a mapping; "" if it is none.
func assignments(n *node) string {
	var parts []string
	for i := range n.list {
		name, value, ok := strings.Cut(n.list[i].text, "=")
		if n.list[i].kind != stringNode || !ok || len(parts) == 3 {
			return strings.Join(parts, ", ")
		}
		parts = append(parts, truncate(name)+": "+strconv.Quote(truncate(value)))
	}
	return strings.Join(parts, ", ")
}

var numbers = pattern.Of(`^([0-9]{1,9})(?:\.\.\.?|-|:)([0-9]{1,9})$`)

// numberRange reads a range of numbers as other languages write it.
func numberRange(text string) (from, to int, ok bool) {
	m := numbers().FindStringSubmatch(text)
	if m == nil {
		return 0, 0, false
	}
	from, _ = strconv.Atoi(m[1])
	to, _ = strconv.Atoi(m[2])
	return from, to, from < to
}

// likelyName is a text as the name of an input: my_data of "My data".
func likelyName(text string) string {
	var b strings.Builder
	for i := range len(text) {
		switch c := text[i]; {
		case notation.IsWord(c):
			b.WriteByte(c)
		case b.Len() > 0:
			b.WriteByte('_')
		}
	}
	name := strings.Trim(b.String(), "_")
	if name == "" {
		return "data"
	}
	if first := strings.ToLower(name[:1]); !notation.IsDigit(name[0]) {
		return first + name[1:]
	}
	return "_" + name
}

// nameHint is a rule of names, with the name that a text is likely to mean.
func nameHint(rule, text string) string {
	if len(text) > 60 {
		return rule
	}
	if name := likelyName(text); name != text && strings.IndexFunc(text, func(r rune) bool { return r < 0x80 }) >= 0 {
		return rule + "; write " + name
	}
	return rule
}

// gluedHint is the hint for a key that holds its value, as file:data.csv.
func gluedHint(key string, known []string) string {
	head, value, ok := strings.Cut(key, ":")
	if !ok || !slices.Contains(known, head) {
		return ""
	}
	return fmt.Sprintf("write a space after the colon: %s: %s", head, truncate(value))
}

// marginHint is the hint for an unknown key of the file whose value looks like an input or a task.
func marginHint(value *node) string {
	if value.kind != mapNode {
		return ""
	}
	has := func(known ...string) bool {
		for i := 0; i < len(value.list); i += 2 {
			if slices.Contains(known, value.list[i].text) {
				return true
			}
		}
		return false
	}
	switch {
	case has("run", "out"):
		return "indent it: tasks are below tasks:"
	case has(inputSources...):
		return "indent it: inputs are below inputs:"
	}
	return ""
}

// expands reports whether a path begins with what a shell would replace.
func expands(text string) bool {
	if text == "~" || strings.HasPrefix(text, "~/") || strings.HasPrefix(text, "${") {
		return true
	}
	head, _, deeper := strings.Cut(text, "/")
	return deeper && strings.HasPrefix(head, "$") && ValidEnvName(head[1:])
}

// sourceHint is the hint for a source in a list that gives no name for a variable.
func sourceHint(source string) string {
	name := strings.Trim(strings.TrimPrefix(source, "$"), "{}")
	switch task, out, inside := strings.Cut(source, "/"); {
	case name != source && ValidInputName(name):
		return "write the name alone: " + name
	case inside && notation.ValidName(task) && ValidInputName(out):
		return fmt.Sprintf("an output of a task is %s.%s; a file is declared under inputs", task, out)
	}
	return "use a mapping, in: {name: source}"
}

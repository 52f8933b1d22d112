package compare

import (
	"encoding/json"
	"path"
	"slices"
	"strings"

	"e3/internal/human"
)

// Sides reads sides as a command line names them, each once; a pattern such as exp* stands for the workspaces that it
// matches. names lists all workspaces, and is called only for a pattern.
func Sides(texts []string, names func() ([]string, error)) ([]Side, error) {
	var sides []Side
	add := func(s Side) {
		if !slices.Contains(sides, s) {
			sides = append(sides, s)
		}
	}
	var known []string
	for _, text := range texts {
		if !strings.ContainsAny(text, "*?") {
			s, err := ParseSide(text, "")
			if err != nil {
				return nil, err
			}
			add(s)
			continue
		}
		if known == nil {
			list, err := names()
			if err != nil {
				return nil, err
			}
			known = slices.Sorted(slices.Values(list))
		}
		found := false
		for _, name := range known {
			if ok, err := path.Match(text, name); err == nil && ok {
				found = true
				add(Side{Workspace: name})
			}
		}
		if !found {
			return nil, &human.UnknownError{What: "workspace", Name: text, Known: known}
		}
	}
	return sides, nil
}

// HasItems reports whether rows need a column for their items. Labels that name their dimensions need none, because
// each dimension has a column of its own.
func (t *Table) HasItems() bool {
	return slices.ContainsFunc(t.Rows, func(r *TableRow) bool { return r.Item != "" && !strings.Contains(r.Item, "=") })
}

// Plain is a value of a table as people write it: a string without quotes.
func Plain(v json.RawMessage) string {
	var text string
	if err := json.Unmarshal(v, &text); err == nil {
		return text
	}
	return string(v)
}

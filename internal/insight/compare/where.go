package compare

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Where chooses rows by the values of their parameters, by name: a row must have one of the values of each name. The names
// "side" and "item" choose sides and items. Values are as [Plain] has them.
type Where map[string][]string

// A Choice is a parameter that differs between rows, with its values in their order.
type Choice struct {
	Name   string
	Values []string
}

// valued is what a Where chooses.
type valued struct {
	side, item string
	params     map[string]json.RawMessage
}

func (v *valued) value(name string) (string, bool) {
	switch p, known := v.params[name]; {
	case known:
		return Plain(p), true
	case name == "side":
		return v.side, true
	case name == "item":
		return v.item, true
	}
	return "", false
}

func (r *TableRow) valued() *valued { return &valued{r.Side, r.Item, r.Params} }

func (t *Table) valued() []*valued {
	list := make([]*valued, len(t.Rows))
	for i, r := range t.Rows {
		list[i] = r.valued()
	}
	return list
}

// has reports whether a row is chosen.
func (w Where) has(v *valued) bool {
	for name, values := range w {
		if text, _ := v.value(name); !slices.Contains(values, text) {
			return false
		}
	}
	return true
}

// choices are the parameters that differ between rows. A name that no row has is an error.
func (w Where) choices(rows []*valued) ([]Choice, error) {
	values := map[string]map[string]json.RawMessage{}
	for _, r := range rows {
		for name, v := range r.params {
			if values[name] == nil {
				values[name] = map[string]json.RawMessage{}
			}
			values[name][Plain(v)] = v
		}
	}
	for name := range w {
		if values[name] == nil && name != "side" && name != "item" {
			return nil, fmt.Errorf("parameter %q: %w; there are %s", name, ErrNoColumn,
				strings.Join(append([]string{"side", "item"}, slices.Sorted(maps.Keys(values))...), ", "))
		}
	}
	var list []Choice
	for _, name := range slices.Sorted(maps.Keys(values)) {
		of := values[name]
		if len(of) < 2 {
			continue
		}
		list = append(list, Choice{name, slices.SortedFunc(maps.Keys(of), func(a, b string) int { return compareJSON(of[a], of[b]) })})
	}
	return list, nil
}

// Chosen are the plots that where chooses, and the parameters that differ between all.
func Chosen(plots []Plot, where Where) (chosen []Plot, choices []Choice, err error) {
	of := func(p *Plot) *valued { return &valued{p.Side, p.Item, p.Params} }
	rows := make([]*valued, len(plots))
	for i := range plots {
		rows[i] = of(&plots[i])
	}
	if choices, err = where.choices(rows); err != nil {
		return nil, nil, err
	}
	for i := range plots {
		if where.has(of(&plots[i])) {
			chosen = append(chosen, plots[i])
		}
	}
	return chosen, choices, nil
}

// ParseWhere reads choices as a command line writes them: rate=0.1. Several values of one name are alternatives.
func ParseWhere(texts []string) (Where, error) {
	w := Where{}
	for _, text := range texts {
		name, v, ok := strings.Cut(text, "=")
		if !ok || name == "" {
			return nil, fmt.Errorf("a choice is such as rate=0.1, not %q", text)
		}
		w[name] = append(w[name], v)
	}
	return w, nil
}

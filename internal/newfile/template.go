package newfile

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// expression is ${name}, ${name.part}, ${name[0]} or ${name[key]}; \${ begins no expression.
var expression = pattern(`\\?\$\{\s*([^}]*?)\s*\}`)

// text puts the values of expressions into a text. Names in capitals stay: they are variables of the environment.
func (c *converter) text(s string, vars map[string]any) (string, error) {
	var fault error
	out := expression().ReplaceAllStringFunc(s, func(m string) string {
		if strings.HasPrefix(m, `\`) {
			return m[1:]
		}
		name := expression().FindStringSubmatch(m)[1]
		v, err := c.lookup(name, vars)
		if err != nil {
			if name == strings.ToUpper(name) {
				return m
			}
			fault = err
			return m
		}
		return words(v)
	})
	return out, fault
}

// evaluate returns the value of a text that is one expression; any other text it returns as it is.
func (c *converter) evaluate(s string, vars map[string]any) (any, error) {
	m := expression().FindStringSubmatch(s)
	if m == nil || m[0] != strings.TrimSpace(s) {
		return nil, fmt.Errorf("%q is no ${…}", s)
	}
	return c.lookup(m[1], vars)
}

var step = pattern(`[^.\[\]]+`)

func (c *converter) lookup(name string, vars map[string]any) (any, error) {
	parts := step().FindAllString(name, -1)
	if len(parts) == 0 {
		return nil, fmt.Errorf("${%s} has no name", name)
	}
	var at any = c.values
	if _, own := vars[parts[0]]; own {
		at = vars
	}
	for _, part := range parts {
		part = strings.Trim(part, `"'`)
		switch v := at.(type) {
		case map[string]any:
			next, ok := v[part]
			if !ok {
				return nil, fmt.Errorf("${%s} has no value in params.yaml and vars", name)
			}
			at = next
		case []any:
			i, err := strconv.Atoi(part)
			if err != nil || i < 0 || i >= len(v) {
				return nil, fmt.Errorf("${%s}: there is no item %s", name, part)
			}
			at = v[i]
		default:
			return nil, fmt.Errorf("${%s}: %s is in no mapping", name, part)
		}
	}
	return at, nil
}

// words writes a value in a command as DVC does: a mapping as flags.
func words(v any) string {
	switch v := v.(type) {
	case map[string]any:
		var b []string
		for _, k := range sortedKeys(v) {
			switch item := v[k].(type) {
			case bool:
				if item {
					b = append(b, "--"+k)
				}
			default:
				b = append(b, "--"+k+" "+words(item))
			}
		}
		return strings.Join(b, " ")
	case []any:
		b := make([]string, len(v))
		for i := range v {
			b[i] = words(v[i])
		}
		return strings.Join(b, " ")
	case nil:
		return ""
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 64)
	}
	return fmt.Sprint(v)
}

func isCollection(v any) bool {
	switch v.(type) {
	case map[string]any, []any:
		return true
	}
	return false
}

func sortedKeys(m map[string]any) []string { return slices.Sorted(maps.Keys(m)) }

func quoteShell(s string) string {
	if !strings.ContainsAny(s, " \t'\"$&|;<>()*?[]#~`\\") {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

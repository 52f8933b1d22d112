package newfile

import (
	"fmt"
	"io/fs"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"e3/internal/format/manifest"
	"e3/internal/format/pattern"
)

// An expression of DVC, ${train.rate}, becomes what it stands for: a value of a file of parameters, which a task reads
// as params.train.rate, a variable of the item of a matrix, or text. So an edit of params.yaml still counts.

// A context holds the values that expressions name.
type context struct {
	files  []valueFile
	item   map[string]any // item and key, where a stage is written out
	itemOf valuePath      // where the item is in a file of parameters
	family *family        // what item and key are, where a stage stays one task
}

// A valueFile is a file of parameters, or a mapping of vars.
type valueFile struct {
	path  string // relative to the package file; "" for vars in dvc.yaml itself
	whole manifest.Object
}

// A valuePath is the place of a value in a file of parameters; zero for none.
type valuePath struct{ file, path string }

// A piece is a part of a text: literal, or an expression's value.
type piece struct {
	text     string // the literal text, or the value as DVC writes it
	value    any
	source   string // "file.yaml" of the live value at path; "" for others
	path     string
	variable string // of the item of a matrix
	literal  bool
}

// expression is ${name}, ${name.part}, ${name[0]} or ${name[key]}; \${ begins no expression.
var expression = pattern.Of(`\\?\$\{([^}]*)\}`)

var step = pattern.Of(`[^.\[\]]+`)

// pieces splits a text at its expressions. Names in capitals that have no value stay: they are variables of the
// environment.
func (x *context) pieces(s string) ([]piece, error) {
	var list []piece
	at := 0
	for _, m := range expression().FindAllStringSubmatchIndex(s, -1) {
		list = append(list, piece{text: s[at:m[0]], literal: true})
		at = m[1]
		whole, name := s[m[0]:m[1]], strings.TrimSpace(s[m[2]:m[3]])
		if strings.HasPrefix(whole, `\`) {
			list = append(list, piece{text: whole[1:], literal: true})
			continue
		}
		if name == "key" && x.family != nil && x.family.joined {
			list = append(list, x.family.key()...)
			continue
		}
		p, err := x.lookup(name)
		if err != nil && name == strings.ToUpper(name) {
			p, err = piece{text: whole, literal: true}, nil
		}
		if err != nil {
			return nil, err
		}
		list = append(list, p)
	}
	return append(list, piece{text: s[at:], literal: true}), nil
}

// lookup finds the value of an expression. DVC merges the mappings of all sources, so each may
// have a part of a mapping.
func (x *context) lookup(name string) (piece, error) {
	steps := step().FindAllString(name, -1)
	for i := range steps {
		steps[i] = strings.Trim(steps[i], `"' `)
	}
	if len(steps) == 0 {
		return piece{}, fmt.Errorf("${%s} has no name", name)
	}
	if x.family != nil && (steps[0] == "item" || steps[0] == "key") {
		variable, ok := x.family.variable(steps)
		if !ok {
			return piece{}, &unboundError{name}
		}
		return piece{variable: variable}, nil
	}
	if v, ok := x.item[steps[0]]; ok {
		v, err := descend(v, steps[1:], name)
		p := piece{text: words(v), value: v}
		if at := strings.Join(append([]string{x.itemOf.path}, steps[1:]...), "."); steps[0] == "item" && x.itemOf.file != "" && manifest.ValidParamPath(at) {
			p.source, p.path = x.itemOf.file, at
		}
		return p, err
	}
	err := fmt.Errorf("${%s} has no value in params.yaml and vars", name)
	var found []piece
	for _, f := range slices.Backward(x.files) {
		v, ok := member(f.whole, steps[0])
		if !ok {
			continue
		}
		var fault error
		if v, fault = descend(v, steps[1:], name); fault != nil {
			err = fault
			continue
		}
		p := piece{text: words(v), value: v}
		if dotted := strings.Join(steps, "."); f.path != "" && manifest.ValidParamPath(dotted) {
			if _, same := manifest.ValueAt(f.whole, dotted); same {
				p.source, p.path = f.path, dotted
			}
		}
		if _, mapping := v.(manifest.Object); !mapping && len(found) == 0 {
			return p, nil
		}
		found = append(found, p)
	}
	switch len(found) {
	case 0:
		return piece{}, err
	case 1:
		return found[0], nil
	}
	return piece{}, fmt.Errorf("${%s} is a mapping with parts in several files and vars", name)
}

// An unboundError says that an expression cannot be said by the variables of a matrix, so the stage is written out.
type unboundError struct{ name string }

func (e *unboundError) Error() string {
	return fmt.Sprintf("${%s} is no variable of a matrix", e.name)
}

func member(o manifest.Object, name string) (any, bool) {
	i := slices.IndexFunc(o, func(m manifest.Member) bool { return m.Name == name })
	if i < 0 {
		return nil, false
	}
	return o[i].Value, true
}

// descend follows the steps of an expression into a value.
func descend(v any, steps []string, name string) (any, error) {
	for _, s := range steps {
		switch at := v.(type) {
		case manifest.Object:
			next, ok := member(at, s)
			if !ok {
				return nil, fmt.Errorf("${%s} has no value in params.yaml and vars", name)
			}
			v = next
		case []any:
			i, err := strconv.Atoi(s)
			if err != nil || i < 0 || i >= len(at) {
				return nil, fmt.Errorf("${%s}: there is no item %s", name, s)
			}
			v = at[i]
		default:
			return nil, fmt.Errorf("${%s}: %s is in no mapping", name, s)
		}
	}
	return v, nil
}

// load adds the values of a file of parameters, as far as it is there: all, or those of the names in only, separated by
// commas. at is the place that names it; nil for the usual one, which may be missing.
func (c *converter) load(x *context, file, only string, at *yaml.Node) {
	v := c.values(file)
	if v == nil {
		if at != nil {
			c.note(at, true, "vars: %s cannot be read as values: write them into the commands by hand", file)
		}
		return
	}
	if only != "" {
		names := strings.Split(only, ",")
		v = slices.DeleteFunc(slices.Clone(v), func(m manifest.Member) bool { return !slices.Contains(names, m.Name) })
	}
	if !slices.ContainsFunc(x.files, func(f valueFile) bool { return f.path == file }) {
		x.files = append(slices.Clip(x.files), valueFile{file, v})
	}
}

// values reads a file of parameters; nil if it is none.
func (c *converter) values(file string) manifest.Object {
	if v, known := c.read[file]; known {
		return v
	}
	var whole manifest.Object
	if data, err := fs.ReadFile(c.fsys, file); err == nil {
		if v, err := manifest.ParseValue(file, data); err == nil {
			whole, _ = v.(manifest.Object)
		}
	}
	c.read[file] = whole
	return whole
}

// vars reads a list of files and values.
func (c *converter) vars(n *yaml.Node, x *context, dir string) {
	for _, item := range resolved(n).Content {
		switch item = resolved(item); item.Kind {
		case yaml.ScalarNode:
			file, only, _ := strings.Cut(item.Value, ":")
			c.load(x, path.Join(dir, file), only, item)
		case yaml.MappingNode:
			if o, ok := nodeValue(item).(manifest.Object); ok {
				x.files = append(slices.Clip(x.files), valueFile{whole: o})
			}
		}
	}
}

// nodeValue is the value of a node of dvc.yaml.
func nodeValue(n *yaml.Node) any {
	text, err := yaml.Marshal(n)
	if err != nil {
		return nil
	}
	v, err := manifest.ParseValue("", text)
	if err != nil {
		return nil
	}
	return v
}

// words writes a value in a command as DVC does: a mapping as flags.
func words(v any) string {
	switch v := v.(type) {
	case manifest.Object:
		return flags("", v)
	case []any:
		b := make([]string, len(v))
		for i := range v {
			b[i] = words(v[i])
		}
		return strings.Join(b, " ")
	case nil:
		return "None"
	case float64:
		return pythonFloat(v)
	}
	text, _ := manifest.ScalarText(v)
	return text
}

// flags are the arguments that DVC makes of a mapping.
func flags(at string, o manifest.Object) string {
	var b []string
	for _, m := range o {
		name := "--" + at + m.Name
		switch v := m.Value.(type) {
		case manifest.Object:
			b = append(b, flags(at+m.Name+".", v))
		case bool:
			if v {
				b = append(b, name)
			}
		case string:
			b = append(b, name+" "+quoteShell(v))
		case []any:
			for _, item := range v {
				if s, ok := item.(string); ok {
					name += " " + quoteShell(s)
				} else {
					name += " " + words(item)
				}
			}
			b = append(b, name)
		default:
			b = append(b, name+" "+words(v))
		}
	}
	return strings.Join(slices.DeleteFunc(b, func(s string) bool { return s == "" }), " ")
}

// pythonFloat is the text of a number as Python prints it.
func pythonFloat(f float64) string {
	if exp := math.Abs(f); exp != 0 && (exp < 1e-4 || exp >= 1e16) {
		return strconv.FormatFloat(f, 'e', -1, 64)
	}
	s := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

func quoteShell(s string) string {
	if s != "" && !strings.ContainsAny(s, " \t\n'\"$&|;<>()*?[]#~`\\!{}") {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

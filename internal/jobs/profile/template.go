package profile

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"e3/internal/format/record"
	"e3/internal/jobs/cluster"
)

// A template is a text with placeholders: a command, or what one reads.
type template string

// A placeholder is ${name} or ${name:format}; $${ is none.
var placeholder = regexp.MustCompile(`\$\$\{|\$\{([a-z_0-9.]*)(?::([^}]*))?\}`)

// Placeholders that are several words, and those whose line stands once for each label or resource.
var (
	several  = []string{"args", "ids"}
	repeated = []string{"label", "resource", "amount"}
	repeat   = regexp.MustCompile(`\$\{(label|resource|amount)(:json)?\}`)
)

// names lists the placeholders of a text, with their units.
func (t template) names() (list []string) {
	for _, m := range placeholder.FindAllStringSubmatch(string(t), -1) {
		switch {
		case m[0] == "$${":
		case m[2] == "" || m[2] == "json" || m[1] == "labels" || m[1] == "resources":
			list = append(list, m[1])
		default:
			list = append(list, m[1]+":"+m[2])
		}
	}
	return list
}

func (t template) has(name string) bool { return slices.Contains(t.names(), name) }

// chosen is the text without the lines whose placeholders have no value, and with a line for each label or resource.
func (t template) chosen(v *values) string {
	var b strings.Builder
	for line := range strings.Lines(string(t)) {
		n := 1
		for _, name := range template(line).names() {
			switch {
			case name == "label":
				n = len(v.labels)
			case name == "resource" || name == "amount":
				n = len(v.resources)
			case !slices.Contains(several, name) && v.of[name] == "":
				n = 0
			}
		}
		for i := range n {
			b.WriteString(repeat.ReplaceAllString(line, fmt.Sprintf("$${$1.%d$2}", i)))
		}
	}
	return strings.ReplaceAll(b.String(), "\n\\", "") // such a line continues a word
}

// text fills the template in.
func (t template) text(v *values) string { return v.fill(t.chosen(v)) }

// words is a command: the template is split into words before it is filled in, so that no value is ever split, or read
// by a shell.
func (t template) words(v *values) ([]string, error) {
	split, err := cluster.Words(t.chosen(v))
	var words []string
	for _, word := range split {
		if list, ok := v.lists[word]; ok {
			words = append(words, list...)
		} else {
			words = append(words, v.fill(word))
		}
	}
	return words, err
}

// values are those of placeholders.
type values struct {
	of        map[string]string   // by name and unit; of label.0, resource.0 and so on, too
	lists     map[string][]string // by ${name}
	labels    []string
	resources []record.Amount
}

func (v *values) fill(text string) string {
	return placeholder.ReplaceAllStringFunc(text, func(found string) string {
		m := placeholder.FindStringSubmatch(found)
		name, format := m[1], m[2]
		switch {
		case found == "$${":
			return "${"
		case format == "json":
			quoted, _ := json.Marshal(v.of[name])
			return string(quoted)
		case name == "labels":
			return strings.Join(v.labels, format)
		case name == "resources" && format != "":
			var all []string
			for _, r := range v.resources {
				all = append(all, r.Name+format[:1]+count(r.Value))
			}
			return strings.Join(all, format[1:])
		case format != "":
			name += ":" + format
		}
		return v.of[name]
	})
}

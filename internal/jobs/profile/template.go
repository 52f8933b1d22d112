package profile

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"e3/internal/jobs/cluster"
)

// A template is a text with placeholders: a command, or what one reads.
type template string

// placeholder matches ${name} and ${name:format}; $${ is no placeholder.
var placeholder = regexp.MustCompile(`\$\$\{|\$\{([a-z_0-9.]*)(?::([A-Za-z]*))?\}`)

// Placeholders whose line stands once for each of them, and those that are several words.
var (
	repeated = []string{"label", "resource", "amount"}
	several  = []string{"args", "ids", "demands"}
)

// names lists the placeholders of a text, with their formats.
func names(text string) (list []string) {
	for _, m := range placeholder.FindAllStringSubmatch(text, -1) {
		if m[0] != "$${" {
			list = append(list, strings.TrimSuffix(m[1]+":"+strings.TrimSuffix(m[2], "json"), ":"))
		}
	}
	return list
}

// chosen is the text without the lines whose placeholders have no value, and with a line for each label or resource.
func (t template) chosen(v *values) string {
	var b strings.Builder
	for line := range strings.Lines(string(t)) {
		used := names(line)
		n := 1
		for _, name := range used {
			switch {
			case name == "label":
				n = v.labels
			case name == "resource", name == "amount":
				n = v.resources
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

var repeat = regexp.MustCompile(`\$\{(` + strings.Join(repeated, "|") + `)(:json)?\}`)

// text fills the template in.
func (t template) text(v *values) string { return v.fill(t.chosen(v)) }

// words is a command: the template is split into words before it is filled in, so that no value is ever split, or read
// by a shell.
func (t template) words(v *values) ([]string, error) {
	split, err := cluster.Words(t.chosen(v))
	var words []string
	for _, word := range split {
		if name := strings.TrimSuffix(strings.TrimPrefix(word, "${"), "}"); slices.Contains(several, name) {
			words = append(words, v.lists[name]...)
		} else {
			words = append(words, v.fill(word))
		}
	}
	return words, err
}

// values are those of placeholders.
type values struct {
	of                map[string]string // by name and format; of label.0, resource.0 and so on, too
	lists             map[string][]string
	labels, resources int
}

func (v *values) fill(text string) string {
	return placeholder.ReplaceAllStringFunc(text, func(found string) string {
		m := placeholder.FindStringSubmatch(found)
		switch {
		case found == "$${":
			return "${"
		case m[2] == "json":
			quoted, _ := json.Marshal(v.of[m[1]])
			return string(quoted)
		case m[2] != "":
			return v.of[m[1]+":"+m[2]]
		}
		return v.of[m[1]]
	})
}

package profile

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"e3/internal/format/notation"
	"e3/internal/jobs/cluster"
)

// MaxSize bounds a profile's text.
const MaxSize = 64 << 10

// A Profile says how a scheduler is asked.
type Profile struct {
	Name     string
	file     string // for messages
	texts    map[string]template
	patterns map[string]*regexp.Regexp // by key, and by <key>.<name> of states and messages
	timeout  time.Duration
	own      map[string]string // placeholders
}

// What a profile has.
var (
	keys     = []string{"submit", "input", "submitted", "status", "listed", "explain", "explained", "cancel", "states", "messages", "timeout", "values"}
	required = []string{"submit", "submitted", "status", "listed", "cancel"}
	// states are in the order in which they are tried.
	states   = []string{"waiting", "running", "held", "ending", "cancelled", "timeout", "oom", "lost", "refused", "failed", "done"}
	messages = []string{"temporary", "limit", "unknown", "none"}
	// groups are those that patterns must have; others are the groups that they may have, too.
	groups  = map[string][]string{"submitted": {"id"}, "listed": {"id", "token"}, "explained": nil}
	others  = []string{"id", "token", "index", "state", "reason", "node", "exit", "signal"}
	ownName = regexp.MustCompile(`^[a-z][a-z_]*$`)
)

// Decode reads the text of a profile. Its errors say the line of the file, and what to write there.
func Decode(name, file string, text []byte) (*Profile, error) {
	p := &Profile{Name: name, file: file, texts: map[string]template{}, patterns: map[string]*regexp.Regexp{}, own: map[string]string{}}
	if len(text) > MaxSize {
		return nil, fmt.Errorf("%s: it is longer than the %d KiB of a profile", file, MaxSize>>10)
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if len(doc.Content) == 0 {
		return nil, fmt.Errorf("%s: the file is empty; one to begin with: e3 executor show sge", file)
	}
	lines := map[string]*yaml.Node{}
	err := p.each(doc.Content[0], "a profile", keys, func(key string, n *yaml.Node) error {
		lines[key] = n
		return p.field(key, n)
	})
	if err != nil {
		return nil, err
	}
	for _, key := range required {
		if lines[key] == nil {
			return nil, p.fault(doc.Content[0], "it lacks %q", key)
		}
	}
	if (p.texts["explain"] == "") != (p.patterns["explained"] == nil) {
		return nil, p.fault(doc.Content[0], "explain and explained go together: a command, and the pattern for its answer")
	}
	for _, key := range slices.Sorted(maps.Keys(p.texts)) {
		if err := p.check(key); err != nil {
			return nil, p.fault(lines[key], "%s: %w", key, err)
		}
	}
	return p, nil
}

func (p *Profile) fault(n *yaml.Node, format string, args ...any) error {
	return fmt.Errorf("%s:%d: %w", p.file, n.Line, fmt.Errorf(format, args...))
}

// each visits the fields of a mapping. It may have those that are known; nil: any.
func (p *Profile) each(n *yaml.Node, what string, known []string, visit func(key string, n *yaml.Node) error) error {
	if n.Kind != yaml.MappingNode {
		return p.fault(n, "%s is a mapping: %s", what, cmp.Or(strings.Join(known, ", "), "names and texts"))
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i].Value
		switch {
		case known != nil && !slices.Contains(known, key):
			return p.fault(n.Content[i], "%s has no %q; %s", what, key, near(key, known))
		case seen[key]:
			return p.fault(n.Content[i], "%q is there twice", key)
		}
		seen[key] = true
		if err := visit(key, n.Content[i+1]); err != nil {
			return err
		}
	}
	return nil
}

func near(word string, known []string) string {
	if guess := notation.Nearest(word, slices.Values(known)); guess != "" {
		return fmt.Sprintf("did you mean %q?", guess)
	}
	return "there are " + strings.Join(known, ", ")
}

// field reads a field of the profile.
func (p *Profile) field(key string, n *yaml.Node) error {
	switch key {
	case "states", "messages":
		known, form := states, "^(?:%s)$"
		if key == "messages" {
			known, form = messages, "(?m)%s"
		}
		return p.each(n, key, known, func(name string, n *yaml.Node) error { return p.pattern(key+"."+name, n, form) })
	case "submitted", "listed", "explained":
		return p.pattern(key, n, "(?m)%s")
	case "values":
		return p.each(n, key, nil, func(name string, n *yaml.Node) (err error) {
			if !ownName.MatchString(name) {
				return p.fault(n, "%q is no name for a placeholder: a to z and _", name)
			}
			p.own[name], err = p.text(n)
			return err
		})
	}
	text, err := p.text(n)
	if err != nil || key != "timeout" {
		p.texts[key] = template(text)
		return err
	}
	if p.timeout, err = notation.DurationOf(text); err != nil || p.timeout <= 0 {
		return p.fault(n, "timeout is a duration like 2m, not %q", text)
	}
	return nil
}

// text is a scalar.
func (p *Profile) text(n *yaml.Node) (string, error) {
	if n.Kind != yaml.ScalarNode {
		return "", p.fault(n, "this is a text; write several lines after \"|\"")
	}
	return n.Value, nil
}

func (p *Profile) pattern(key string, n *yaml.Node, form string) error {
	text, err := p.text(n)
	if err != nil {
		return err
	}
	r, err := regexp.Compile(fmt.Sprintf(form, text))
	if err != nil {
		return p.fault(n, "%s: %w (see the syntax of Go's regexp)", key, err)
	}
	for _, name := range groups[key] {
		if r.SubexpIndex(name) < 0 {
			return p.fault(n, "%s: the pattern must have a group (?P<%s>…)", key, name)
		}
	}
	for _, name := range r.SubexpNames() {
		if name != "" && !slices.Contains(others, name) {
			return p.fault(n, "%s: no group %q is read; %s", key, name, near(name, others))
		}
	}
	p.patterns[key] = r
	return nil
}

// check checks the placeholders of a template.
func (p *Profile) check(key string) error {
	text := string(p.texts[key])
	b := &cluster.Batch{Jobs: nothing.Jobs}
	if key != "status" && key != "cancel" {
		b.Token, b.Name, b.Script = "t", "n", "s"
	}
	v := (&Options{Program: "e3"}).values(p, b)
	for name := range p.own {
		v.of[name] = "x"
	}
	if key == "explain" || key == "cancel" {
		v.of["id"] = "1"
	}
	known := slices.Concat(slices.Collect(maps.Keys(v.of)), several, repeated)
	for _, name := range names(text) {
		if !slices.Contains(known, name) {
			return fmt.Errorf("there is no ${%s}; %s", name, near(name, known))
		}
	}
	if key == "input" {
		for _, m := range placeholder.FindAllStringSubmatch(text, -1) {
			if slices.Contains(free, m[1]) && m[2] != "json" && strings.TrimSpace(text) != "${script}" {
				return fmt.Errorf("${%s} may have any characters: write ${%[1]s:json} to have it quoted", m[1])
			}
		}
		return nil
	}
	first, _, _ := strings.Cut(text, "\n")
	if template(first).chosen(v) == "" {
		return fmt.Errorf("the first line has a placeholder without a value at times, and would be left out then: put it on a line of its own: %s", first)
	}
	switch has := names(text + string(p.texts["input"])); {
	case key == "submit" && !slices.Contains(has, "token"):
		return fmt.Errorf("it lacks ${token}, by which the job is found again, as in its name: e3-${token}")
	case key == "cancel" && !slices.Contains(has, "ids") && !slices.Contains(has, "id"):
		return fmt.Errorf("it lacks ${ids}, or ${id}")
	}
	_, err := p.texts[key].words(v)
	return err
}

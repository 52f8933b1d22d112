package profile

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
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
	Name     string // for messages
	file     string // for messages
	texts    map[string]template
	patterns map[string]*regexp.Regexp // by key, and by <key>.<name> of states and messages
	timeout  time.Duration
	own      map[string]string // placeholders
	array    int               // jobs in a batch
	index    string            // the variable of a job's index in it
}

// What a profile has, and the groups that its patterns must and may have. States are in the order in which they are tried.
var (
	keys     = []string{"submit", "submitted", "status", "listed", "cancel", "input", "explain", "explained", "states", "messages", "timeout", "name", "values", "array", "index", "reserved", "unset", "keep"}
	required = keys[:5]
	states   = []string{"waiting", "running", "held", "ending", "cancelled", "timeout", "oom", "lost", "refused", "failed", "done"}
	messages = []string{"temporary", "limit", "unknown", "none"}
	must     = map[string][]string{"submitted": {"id"}, "listed": {"id", "token"}}
	may      = []string{"id", "token", "index", "state", "reason", "node", "exit", "signal"}
)

// Decode reads the text of a profile. Its errors say the line of the file, and what to write there.
func Decode(name, file string, text []byte) (*Profile, error) {
	p := &Profile{Name: name, file: file, texts: map[string]template{}, patterns: map[string]*regexp.Regexp{}, own: map[string]string{}, array: 1}
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
	if err := p.each(doc.Content[0], "a profile", keys, lines, p.field); err != nil {
		return nil, err
	}
	for _, key := range required {
		if lines[key] == nil {
			return nil, p.fault(doc.Content[0], "it lacks %q", key)
		}
	}
	for _, both := range [][2]string{{"explain", "explained"}, {"array", "index"}} {
		if (lines[both[0]] == nil) != (lines[both[1]] == nil) {
			return nil, p.fault(doc.Content[0], "%s and %s go together", both[0], both[1])
		}
	}
	for _, key := range slices.Sorted(maps.Keys(p.texts)) {
		if err := p.check(key, p.texts[key]); err != nil {
			return nil, p.fault(lines[key], "%s: %w", key, err)
		}
	}
	return p, nil
}

func (p *Profile) fault(n *yaml.Node, format string, args ...any) error {
	return fmt.Errorf("%s:%d: %w", p.file, n.Line, fmt.Errorf(format, args...))
}

// each reads the fields of a mapping, and fills seen; known nil: any.
func (p *Profile) each(n *yaml.Node, what string, known []string, seen map[string]*yaml.Node, read func(key string, n *yaml.Node) error) error {
	if n.Kind != yaml.MappingNode {
		return p.fault(n, "%s is a mapping of names to texts", what)
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i].Value
		switch {
		case known != nil && !slices.Contains(known, key):
			return p.fault(n.Content[i], "%s has no %q; %s", what, key, near(key, known))
		case seen[key] != nil:
			return p.fault(n.Content[i], "%q is there twice", key)
		}
		seen[key] = n.Content[i+1]
		if n := seen[key]; n.Kind != yaml.ScalarNode && key != "states" && key != "messages" && key != "values" {
			return p.fault(n, "%s is a text; write several lines after \"|\"", key)
		}
		if err := read(key, seen[key]); err != nil {
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
func (p *Profile) field(key string, n *yaml.Node) (err error) {
	seen := map[string]*yaml.Node{}
	switch key {
	case "states":
		return p.each(n, key, states, seen, func(name string, n *yaml.Node) error { return p.pattern(key+"."+name, n, "^(?:", ")$") })
	case "messages":
		return p.each(n, key, messages, seen, func(name string, n *yaml.Node) error { return p.pattern(key+"."+name, n, "(?m)", "") })
	case "submitted", "listed", "explained":
		return p.pattern(key, n, "(?m)", "")
	case "reserved", "unset", "keep":
		return p.pattern(key, n, "^(?:", ")$")
	case "name":
		p.Name = n.Value
	case "index":
		p.index = n.Value
	case "array":
		if p.array, err = strconv.Atoi(n.Value); err != nil || p.array < 1 {
			return p.fault(n, "array is the number of jobs that one may have, not %q", n.Value)
		}
	case "values":
		return p.each(n, key, nil, seen, func(name string, n *yaml.Node) error {
			p.own[name] = n.Value
			return nil
		})
	case "timeout":
		if p.timeout, err = notation.DurationOf(n.Value); err != nil || p.timeout <= 0 {
			return p.fault(n, "timeout is a duration like 2m, not %q", n.Value)
		}
	default:
		p.texts[key] = template(n.Value)
	}
	return nil
}

func (p *Profile) pattern(key string, n *yaml.Node, before, after string) error {
	r, err := regexp.Compile(before + n.Value + after)
	if err != nil {
		return p.fault(n, "%s: %w", key, err)
	}
	for _, name := range must[key] {
		if r.SubexpIndex(name) < 0 {
			return p.fault(n, "%s: the pattern must have a group (?P<%s>…)", key, name)
		}
	}
	for _, name := range r.SubexpNames() {
		if name != "" && !slices.Contains(may, name) {
			return p.fault(n, "%s: no group %q is read; %s", key, name, near(name, may))
		}
	}
	p.patterns[key] = r
	return nil
}

// check checks the placeholders of a text.
func (p *Profile) check(key string, t template) error {
	v := (&Options{Program: "e3"}).values(p, &cluster.Batch{Jobs: nothing.Jobs})
	switch key {
	case "submit", "input":
		v = (&Options{Program: "e3"}).values(p, &cluster.Batch{Token: "t", Name: "n", Script: "s", Logs: "l", Jobs: nothing.Jobs})
	case "explain":
		v.of["id"], v.of["token"] = "1", "t"
	case "cancel":
		v.of["id"] = "1"
	}
	for name := range p.own {
		v.of[name] = "x"
	}
	known := slices.Concat(slices.Collect(maps.Keys(v.of)), several, repeated)
	for _, name := range t.names() {
		if !slices.Contains(known, name) {
			return fmt.Errorf("there is no ${%s}; %s", name, near(name, known))
		}
	}
	first, _, _ := strings.Cut(string(t), "\n")
	for _, m := range placeholder.FindAllStringSubmatch(string(t), -1) {
		if key == "input" && slices.Contains(free, m[1]) && m[2] != "json" && strings.TrimSpace(string(t)) != "${script}" {
			return fmt.Errorf("${%s} may have any characters: write ${%[1]s:json} to have it quoted", m[1])
		}
	}
	switch words, err := t.words(v); {
	case key == "input":
	case err != nil:
		return err
	case len(words) == 0 || template(first).chosen(v) == "":
		return fmt.Errorf("the first line, %q, has a placeholder that may have no value, and would be left out then: put that on a line of its own", first)
	case key == "submit" && !(t + p.texts["input"]).has("token"):
		return fmt.Errorf("it lacks ${token}, by which the job is found again, as in its name: e3-${token}")
	case key == "cancel" && !t.has("ids") && !t.has("id"):
		return fmt.Errorf("it lacks ${ids}, or ${id}")
	}
	return nil
}

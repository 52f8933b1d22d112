package profile

import (
	"cmp"
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
	lines    map[string]*yaml.Node
}

// What a profile has, and the groups that its patterns must and may have. States are in the order in which they are tried.
var (
	keys     = []string{"submit", "submitted", "status", "listed", "cancel", "input", "explain", "explained", "states", "messages", "timeout", "name", "values", "array", "index", "reserved", "unset", "keep"}
	required = keys[:5]
	states   = []string{"waiting", "running", "held", "ending", "cancelled", "timeout", "oom", "lost", "refused", "failed", "done"}
	parts    = map[string][]string{"states": states, "messages": {"temporary", "limit", "unknown", "none"}, "values": nil}
	must     = map[string][]string{"submitted": {"id"}, "listed": {"id", "token"}}
	may      = []string{"id", "token", "index", "state", "reason", "node", "exit", "signal"}
)

// Decode reads the text of a profile. Its errors say the line of the file, and what to write there.
func Decode(name, file string, text []byte) (*Profile, error) {
	p := &Profile{Name: name, file: file, texts: map[string]template{}, patterns: map[string]*regexp.Regexp{}, own: map[string]string{}, array: 1, lines: map[string]*yaml.Node{}}
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
	if err := p.each(doc.Content[0], "", keys); err != nil {
		return nil, err
	}
	for _, key := range required {
		if p.lines[key] == nil {
			return nil, p.fault(doc.Content[0], "it lacks %q", key)
		}
	}
	for one, other := range map[string]string{"explain": "explained", "array": "index"} {
		if (p.lines[one] == nil) != (p.lines[other] == nil) {
			return nil, p.fault(doc.Content[0], "%s and %s go together", one, other)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(p.texts)) {
		if err := p.check(key, p.texts[key]); err != nil {
			return nil, p.fault(p.lines[key], "%s: %w", key, err)
		}
	}
	return p, nil
}

func (p *Profile) fault(n *yaml.Node, format string, args ...any) error {
	return fmt.Errorf("%s:%d: %w", p.file, n.Line, fmt.Errorf(format, args...))
}

// each reads the fields of a mapping, whose keys it puts after a prefix; known nil: any.
func (p *Profile) each(n *yaml.Node, prefix string, known []string) error {
	what := cmp.Or(strings.TrimSuffix(prefix, "."), "a profile")
	if n.Kind != yaml.MappingNode {
		return p.fault(n, "%s is a mapping of names to texts", what)
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i].Value, n.Content[i+1]
		switch {
		case known != nil && !slices.Contains(known, key):
			return p.fault(n.Content[i], "%s has no %q; %s", what, key, near(key, known))
		case p.lines[prefix+key] != nil:
			return p.fault(n.Content[i], "%q is there twice", key)
		}
		p.lines[prefix+key] = value
		if err := p.field(prefix+key, value); err != nil {
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
	part, name, within := strings.Cut(key, ".")
	if known, mapping := parts[part]; mapping && !within {
		return p.each(n, part+".", known)
	}
	if n.Kind != yaml.ScalarNode {
		return p.fault(n, "%s is a text; write several lines after \"|\"", key)
	}
	switch part {
	case "states", "reserved", "unset", "keep":
		return p.pattern(key, n, "^(?:", ")$")
	case "messages", "submitted", "listed", "explained":
		return p.pattern(key, n, "(?m)", "")
	case "values":
		p.own[name] = n.Value
	case "name":
		p.Name = n.Value
	case "index":
		p.index = n.Value
	case "array":
		if p.array, err = strconv.Atoi(n.Value); err != nil || p.array < 1 {
			return p.fault(n, "array is the number of jobs that one may have, not %q", n.Value)
		}
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
	v := (&Options{}).values(p, nothing)
	switch key {
	case "submit", "input":
		v = (&Options{}).values(p, &cluster.Batch{Token: "t", Name: "n", Script: "s", Jobs: nothing.Jobs})
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
	for _, m := range placeholder().FindAllStringSubmatch(string(t), -1) {
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

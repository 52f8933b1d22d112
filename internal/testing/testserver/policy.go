package testserver

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// An Access is one thing that a request does, as AWS asks policies about it.
type Access struct {
	Action   string // as in "dynamodb:GetItem"
	Resource string // its ARN
	// Context are the condition keys that the request has, with their values: dynamodb:LeadingKeys, s3:prefix.
	Context map[string][]string
	// Absent says that the request was answered, and that this decides only whether it may know that a key is absent.
	Absent bool
}

// String shows an access in a line.
func (a Access) String() string {
	text := a.Action + " " + a.Resource
	for _, key := range []string{leadingKeys, listPrefix} {
		if values, ok := a.Context[key]; ok {
			text += fmt.Sprintf(" %s=%q", key, values)
		}
	}
	return text
}

// The condition keys that requests have.
const (
	leadingKeys = "dynamodb:LeadingKeys"
	listPrefix  = "s3:prefix"
)

// A Policy is an IAM policy. The grammar is what doc/rights.md needs of AWS's: statements that allow actions on
// resources, with conditions StringLike and ForAllValues:StringLike. Anything else is an error, so that a policy is
// never taken to say less than it does.
type Policy struct {
	Statements []Statement
}

// A Statement allows actions on resources on conditions, which all must hold.
type Statement struct {
	Sid       string
	Actions   []string
	Resources []string
	Like      map[string][]string // the key is in the request, and matches a pattern
	AllLike   map[string][]string // each of the key's values matches a pattern; none need be there
}

// ParsePolicy reads a policy.
func ParsePolicy(text []byte) (*Policy, error) {
	var doc struct {
		Version   string
		Statement []struct {
			Sid       string
			Effect    string
			Action    texts
			Resource  texts
			Condition map[string]map[string]texts
		}
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&doc); err != nil {
		return nil, fmt.Errorf("policy: %w", err)
	}
	if doc.Version != "2012-10-17" {
		return nil, fmt.Errorf("policy: version %q", doc.Version)
	}
	p := &Policy{}
	for _, s := range doc.Statement {
		if s.Effect != "Allow" || len(s.Action) == 0 || len(s.Resource) == 0 {
			return nil, fmt.Errorf("policy: statement %q does not allow actions on resources", s.Sid)
		}
		st := Statement{Sid: s.Sid, Actions: s.Action, Resources: s.Resource}
		for operator, keys := range s.Condition {
			into := map[string]*map[string][]string{"StringLike": &st.Like, "ForAllValues:StringLike": &st.AllLike}[operator]
			if into == nil {
				return nil, fmt.Errorf("policy: statement %q has the unknown condition %s", s.Sid, operator)
			}
			*into = map[string][]string{}
			for key, patterns := range keys {
				(*into)[key] = patterns
			}
		}
		p.Statements = append(p.Statements, st)
	}
	return p, nil
}

// texts is a text, or a list of texts, in JSON.
type texts []string

// UnmarshalJSON implements [json.Unmarshaler].
func (t *texts) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '"' {
		*t = make(texts, 1)
		return json.Unmarshal(data, &(*t)[0])
	}
	return json.Unmarshal(data, (*[]string)(t))
}

// Allowing returns the parts of the policy that allow an access, as texts to compare: a statement's action, resource
// and the patterns of its conditions that match. It is nil if no statement allows the access.
func (p *Policy) Allowing(a Access) []string {
	for i := range p.Statements {
		if parts, ok := p.Statements[i].allows(a); ok {
			return parts
		}
	}
	return nil
}

// Parts returns all that Allowing can return, so that what no request needs shows.
func (p *Policy) Parts() []string {
	var parts []string
	for i := range p.Statements {
		s := &p.Statements[i]
		for _, action := range s.Actions {
			parts = append(parts, s.Sid+" "+action)
		}
		for _, resource := range s.Resources {
			parts = append(parts, s.Sid+" "+resource)
		}
		for _, condition := range []map[string][]string{s.Like, s.AllLike} {
			for _, patterns := range condition {
				for _, pattern := range patterns {
					parts = append(parts, s.Sid+" "+pattern)
				}
			}
		}
	}
	slices.Sort(parts)
	return parts
}

func (s *Statement) allows(a Access) (parts []string, ok bool) {
	take := func(patterns []string, value string, matches func(pattern, text string) bool) bool {
		i := slices.IndexFunc(patterns, func(pattern string) bool { return matches(pattern, value) })
		if i >= 0 {
			parts = append(parts, s.Sid+" "+patterns[i])
		}
		return i >= 0
	}
	// The names of actions are compared without regard to case.
	action := func(pattern, name string) bool { return like(strings.ToLower(pattern), strings.ToLower(name)) }
	if !take(s.Actions, a.Action, action) || !take(s.Resources, a.Resource, like) {
		return nil, false
	}
	for key, patterns := range s.Like {
		values := a.Context[key]
		if len(values) != 1 || !take(patterns, values[0], like) {
			return nil, false
		}
	}
	for key, patterns := range s.AllLike {
		for _, value := range a.Context[key] {
			if !take(patterns, value, like) {
				return nil, false
			}
		}
	}
	return parts, true
}

// like reports whether a text matches a pattern, in which * is any text and ? any character. Both match slashes.
func like(pattern, text string) bool {
	for pattern != "" {
		switch pattern[0] {
		case '*':
			for i := range len(text) + 1 {
				if like(pattern[1:], text[i:]) {
					return true
				}
			}
			return false
		case '?':
			if text == "" {
				return false
			}
		default:
			if text == "" || text[0] != pattern[0] {
				return false
			}
		}
		pattern, text = pattern[1:], text[1:]
	}
	return text == ""
}

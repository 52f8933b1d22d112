package settings

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"e3/internal/format/signature"
)

// A member is one entry of a JSON object. Unknown members are kept unchanged.
type member struct {
	name  string
	value json.RawMessage
}

// Decode reads the record. Unknown members are kept for Encode.
func Decode(data []byte) (*Settings, error) {
	all, err := members(data)
	if err != nil {
		return nil, err
	}
	s := &Settings{}
	for _, m := range all {
		switch m.name {
		case "requireSigned":
			err = into(m, &s.RequireSigned)
		case "trustedKeys":
			err = s.decodeKeys(m)
		case "eventsRetention":
			if err = into(m, &s.EventsRetention); err != nil {
				break
			}
			if _, err = ParseRetention(s.EventsRetention); err != nil {
				err = fmt.Errorf("eventsRetention: %w", err)
			}
		case "room":
			if err = into(m, &s.Room); err == nil && s.Room != "open" && s.Room != "closed" {
				err = fmt.Errorf("room: %q is neither open nor closed", s.Room)
			}
		case "executor":
			err = into(m, &s.Runs.Executor)
		case "queue":
			err = into(m, &s.Runs.Queue)
		case "workspaces":
			err = s.decodeWorkspaces(m)
		default:
			s.unknown = append(s.unknown, m)
		}
		if err != nil {
			return nil, err
		}
	}
	if err := s.Runs.check(); err != nil {
		return nil, fmt.Errorf("executor or queue: %w", err)
	}
	return s, nil
}

// decodeWorkspaces reads the settings of workspaces: an object of objects.
func (s *Settings) decodeWorkspaces(all member) error {
	list, err := members(all.value)
	if err != nil {
		return fmt.Errorf("workspaces: %w", err)
	}
	for _, ws := range list {
		said, err := members(ws.value)
		if err != nil {
			return fmt.Errorf("workspaces.%s: %w", ws.name, err)
		}
		var bad error
		err = s.SetRuns(ws.name, func(r *Runs) {
			for _, m := range said {
				switch m.name {
				case "executor":
					bad = errors.Join(bad, into(m, &r.Executor))
				case "queue":
					bad = errors.Join(bad, into(m, &r.Queue))
				default:
					r.others = append(r.others, m)
				}
			}
		})
		if err = errors.Join(bad, err); err != nil {
			return fmt.Errorf("workspaces.%s: %w", ws.name, err)
		}
	}
	return nil
}

func (s *Settings) decodeKeys(m member) error {
	var list []json.RawMessage
	if err := into(m, &list); err != nil {
		return err
	}
	for i, raw := range list {
		k, err := decodeKey(raw)
		if err == nil {
			err = s.Trust(k) // names and keys are unique
		}
		if err != nil {
			return fmt.Errorf("trustedKeys[%d]: %w", i, err)
		}
	}
	return nil
}

func decodeKey(raw []byte) (TrustedKey, error) {
	all, err := members(raw)
	if err != nil {
		return TrustedKey{}, err
	}
	var k TrustedKey
	found := false
	for _, m := range all {
		switch m.name {
		case "name":
			err = into(m, &k.Name)
		case "key":
			var text string
			if err = into(m, &text); err == nil {
				k.Key, err = signature.ParsePublicKey(text)
			}
			found = true
		case "addedBy":
			err = into(m, &k.AddedBy)
		case "addedAt":
			err = into(m, &k.AddedAt)
		default:
			k.others = append(k.others, m)
		}
		if err != nil {
			return TrustedKey{}, err
		}
	}
	if !found {
		return TrustedKey{}, errors.New(`there is no "key"`)
	}
	k.AddedAt = k.AddedAt.UTC().Truncate(time.Second)
	if year := k.AddedAt.Year(); year < 0 || year > 9999 { // in UTC it may leave the four digits
		return TrustedKey{}, errors.New("addedAt: the year does not have four digits")
	}
	return k, nil
}

// into reads the value of a member; null is an error, although encoding/json ignores it.
func into(m member, v any) error {
	if bytes.Equal(m.value, []byte("null")) {
		return fmt.Errorf("%s: null says nothing", m.name)
	}
	if err := json.Unmarshal(m.value, v); err != nil {
		return fmt.Errorf("%s: %w", m.name, err)
	}
	return nil
}

// members splits a JSON object. encoding/json would accept names in any case, and the last of several equal names.
func members(data []byte) ([]member, error) {
	var whole json.RawMessage // decoding it bounds the depth, also for Encode
	if err := json.Unmarshal(data, &whole); err != nil {
		return nil, err
	}
	dec := json.NewDecoder(bytes.NewReader(whole))
	if open, err := dec.Token(); err != nil || open != json.Delim('{') {
		return nil, errors.New("not a JSON object")
	}
	var list []member
	seen := map[string]bool{}
	for dec.More() {
		t, err := dec.Token()
		if err != nil {
			return nil, err
		}
		m := member{}
		m.name, _ = t.(string) // a key is always a string
		if seen[m.name] {
			return nil, fmt.Errorf("member %q is there twice", m.name)
		}
		seen[m.name] = true
		if err := dec.Decode(&m.value); err != nil {
			return nil, err
		}
		list = append(list, m)
	}
	return list, nil
}

// Encode returns the bytes of the record: indented JSON, with one setting or key per line. Only known members are laid
// out: indenting unknown ones could multiply their size by their depth.
func (s *Settings) Encode() []byte {
	keys := []byte("[")
	for i := range s.TrustedKeys {
		k := &s.TrustedKeys[i]
		if i > 0 {
			keys = append(keys, ',')
		}
		keys = append(keys, "\n    "...)
		keys = object(keys, "", []member{
			known("name", k.Name), known("key", k.Key.String()), known("addedBy", k.AddedBy),
			known("addedAt", k.AddedAt.UTC().Format(time.RFC3339)),
		}, k.others)
	}
	if len(s.TrustedKeys) > 0 {
		keys = append(keys, "\n  "...)
	}
	keys = append(keys, ']')
	list := []member{known("requireSigned", s.RequireSigned), {"trustedKeys", keys}}
	if s.EventsRetention != "" {
		list = append(list, known("eventsRetention", s.EventsRetention))
	}
	if s.Room != "" {
		list = append(list, known("room", s.Room))
	}
	list = append(list, s.Runs.members()...)
	if len(s.Workspaces) > 0 {
		var all []byte
		for i, name := range slices.Sorted(maps.Keys(s.Workspaces)) {
			r := s.Workspaces[name]
			if i > 0 {
				all = append(all, ',')
			}
			all = append(append(append(all, "\n    "...), text(name)...), ": "...)
			all = object(all, "", r.members(), r.others)
		}
		list = append(list, member{"workspaces", append(append([]byte("{"), all...), "\n  }"...)})
	}
	b := object(nil, "\n  ", list, s.unknown)
	return append(b, '\n')
}

func (r *Runs) members() (list []member) {
	if r.Executor != "" {
		list = append(list, known("executor", r.Executor))
	}
	if r.Queue != "" {
		list = append(list, known("queue", r.Queue))
	}
	return list
}

func known(name string, v any) member { return member{name, text(v)} }

// text encodes a value; its types cannot fail to encode.
func text(v any) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// object appends an object to b, with lineBreak, a line break and its indent, before each member; "" for one line.
func object(b []byte, lineBreak string, lists ...[]member) []byte {
	b = append(b, '{')
	for i, m := range slices.Concat(lists...) {
		switch {
		case i > 0 && lineBreak == "":
			b = append(b, ", "...)
		case i > 0:
			b = append(b, ',')
		}
		b = append(append(append(b, lineBreak...), text(m.name)...), ": "...)
		b = append(b, m.value...)
	}
	if lineBreak != "" {
		b = append(b, '\n')
	}
	return append(b, '}')
}

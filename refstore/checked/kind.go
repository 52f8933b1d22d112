package checked

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"e3/refstore"
)

// kind is the place of a record's sums.
type kind int

const (
	plain  kind = iota // no sums: it has no bytes, or lives for seconds
	own                // its value and its fields end in trailers
	beside             // the value has the reference's format: its sum is in the side field refstore.SumField
	within             // the value has the reference's format: its sum is in the trailer of a field that is always present
)

// fieldDetail is the field of an execution that holds the sums of the value and of other fields.
const fieldDetail = "detail.beast2"

func kindOf(partition string) kind {
	name, _, _ := strings.Cut(partition, "/")
	switch name {
	case "EXECUTION":
		return within
	case "WORKSPACE", "DATAFLOW", "PACKAGE":
		return beside
	case "TASKS", "INPUTS", "RUNS", "LEASE", "FORMAT":
		return plain
	}
	return own
}

// carries reports whether the seal of a record in a partition may lie beside content of the caller's, which writers need not
// repeat.
func carries(partition string) bool {
	name, _, _ := strings.Cut(partition, "/")
	return name == "DATAFLOW"
}

// witnessed reports whether the absence of a record in a partition has a meaning: nothing is pinned, set, followed or
// waiting. Such records have a witness beside them, so that a removed record differs from one that never existed.
func witnessed(partition string) bool {
	name, rest, _ := strings.Cut(partition, "/")
	switch name {
	case "WORKSPACE", "PACKAGE", "PIN", settings, "TOMBSTONE", "APPROVAL":
		return true
	case "INDEX":
		below, _, _ := strings.Cut(rest, "/")
		return below == "links" || below == "deployments"
	case "QUEUE":
		return rest == "names"
	}
	return false
}

// sealField is the field that holds the seal.
func (k kind) sealField() string {
	if k == within {
		return fieldDetail
	}
	return refstore.SumField
}

// sealed reports whether a record has a seal with the sum of its value.
func (k kind) sealed() bool { return k == beside || k == within }

// foreign reports whether a field has no trailer: its bytes have the reference's format, or no known one.
func (k kind) foreign(field string) bool {
	return k == plain || k == within && (field == "output" || k.unsummed(field))
}

// unsummed reports whether a field has no sum: a log, since long logs are streams.
func (k kind) unsummed(field string) bool {
	return k == within && (field == "stdout.txt" || field == "stderr.txt")
}

// ask returns the fields needed to read and check the given ones. The seal comes last, because writers write it first.
func (k kind) ask(fields []string) []string {
	if !k.sealed() {
		return fields
	}
	rest := slices.DeleteFunc(slices.Clone(fields), func(f string) bool { return f == k.sealField() })
	return append(rest, k.sealField())
}

// open checks a record that was read with ask, and removes the trailers. An error describes the damage; the intact
// parts are returned with it.
func (k kind) open(rec refstore.Record, fields []string) (refstore.Record, error) {
	if k == plain {
		return rec, nil
	}
	out := refstore.Record{Key: rec.Key, Version: rec.Version}
	s, detail, err := k.openSeal(rec)
	var bad error
	if out.Value, bad = k.openValue(rec, s); err == nil {
		err = bad
	}
	for _, name := range fields {
		data, there := rec.Field(name)
		if k.sealed() && name == k.sealField() {
			data, there, bad = detail, s != nil && !s.bare, nil
		} else if data, there, bad = k.openField(rec.Key, name, data, there, s); bad != nil && err == nil {
			err = fmt.Errorf("field %s: %w", name, bad)
		}
		if there {
			out.Fields = append(out.Fields, refstore.Field{Name: name, Value: data})
		}
	}
	return out, err
}

// openSeal reads the seal, nil if it is missing or torn: then there is nothing to check against.
func (k kind) openSeal(rec refstore.Record) (*seal, []byte, error) {
	if !k.sealed() {
		return nil, nil, nil
	}
	data, there := rec.Field(k.sealField())
	if !there && k == within {
		return nil, nil, fmt.Errorf("field %s is gone", fieldDetail)
	}
	content, s, err := disclose(rec.Key, k.sealField(), data)
	switch {
	case err == nil:
		return &s, content, nil
	case k == within:
		return nil, nil, fmt.Errorf("field %s: %w", fieldDetail, err)
	}
	return nil, nil, nil
}

// openField checks a field and removes its trailer.
func (k kind) openField(key refstore.Key, name string, data []byte, there bool, s *seal) ([]byte, bool, error) {
	if k.unsummed(name) {
		return data, there, nil
	}
	if !there {
		if s != nil && (s.has[name] || len(s.sums[name]) > 0) {
			return nil, false, errGone
		}
		return nil, false, nil
	}
	if k.foreign(name) {
		if k == within && s == nil {
			return nil, false, nil // without a sum there is nothing to check
		}
		if s != nil && len(s.sums[name]) > 0 && !s.allows(key, name, data) {
			return nil, false, fmt.Errorf("it does not have its sum")
		}
		return data, true, nil
	}
	data, _, err := disclose(key, name, data)
	return data, err == nil, err
}

// openValue checks a value, and removes the trailer if there is one. Settings may be edited by hand, without a
// trailer: a JSON object and a line feed.
func (k kind) openValue(rec refstore.Record, s *seal) ([]byte, error) {
	switch {
	case k == within && s == nil:
		return nil, nil // without a sum there is nothing to check
	case k.sealed() && s != nil && !s.allows(rec.Key, "", rec.Value):
		return nil, fmt.Errorf("its value does not have its sum")
	case k.sealed():
		return rec.Value, nil
	}
	value, _, err := disclose(rec.Key, "", rec.Value)
	if err != nil && rec.Key.Partition == settings && bytes.HasSuffix(rec.Value, []byte("}\n")) && json.Valid(rec.Value) {
		return rec.Value, nil
	}
	return value, err
}

// close adds trailers and sums to a record about to be written. old is the record that it replaces, nil if
// the new seal takes nothing from it.
func (k kind) close(rec refstore.Record, old *refstore.Record) refstore.Record {
	switch k {
	case plain:
		return rec
	case own:
		rec.Value = enclose(rec.Key, "", rec.Value, seal{})
		rec.Fields = k.closeFields(rec, nil)
		return rec
	}
	s, detail := k.renew(rec, old)
	fields := k.closeFields(rec, &s)
	first := refstore.Field{Name: k.sealField(), Value: enclose(rec.Key, k.sealField(), detail, s)}
	rec.Fields = append([]refstore.Field{first}, fields...)
	return rec
}

// closeFields adds trailers to the given fields, except the one with the seal, and notes them in the seal.
func (k kind) closeFields(rec refstore.Record, s *seal) []refstore.Field {
	var fields []refstore.Field
	for _, f := range rec.Fields {
		if k.sealed() && f.Name == k.sealField() {
			continue
		}
		if !k.foreign(f.Name) {
			f.Value = enclose(rec.Key, f.Name, f.Value, seal{})
			if s != nil {
				s.has[f.Name] = true
			}
		}
		fields = append(fields, f)
	}
	return fields
}

// renew makes the seal of a record about to be written, and the content of the field that holds it. Bytes that the
// old seal allowed, and that exist, are allowed by the new one too. A damaged old seal is dropped
// with the content of its field.
func (k kind) renew(rec refstore.Record, old *refstore.Record) (seal, []byte) {
	s := newSeal()
	detail, given := rec.Field(k.sealField())
	s.bare = !given
	if old != nil {
		was, content, err := k.openSeal(*old)
		if err == nil && was == nil && k == beside && len(old.Value) > 0 {
			s.add(rec.Key, "", old.Value) // a value without a sum is allowed until it is replaced
		}
		if err == nil && was != nil {
			s.keep(*was, *old)
			if len(old.Value) == 0 { // otherwise a truncated value would pass as the earlier one
				delete(s.sums, "")
			}
			if !given {
				detail, s.bare = content, was.bare
			}
		}
	}
	s.add(rec.Key, "", rec.Value)
	for _, f := range rec.Fields {
		if k.foreign(f.Name) && !k.unsummed(f.Name) {
			s.add(rec.Key, f.Name, f.Value)
		}
	}
	return s, detail
}

// keep copies the field names of an older seal, and those of its sums that match the existing bytes.
func (s *seal) keep(was seal, old refstore.Record) {
	for name := range was.has {
		s.has[name] = true
	}
	for name, sums := range was.sums {
		data, there := old.Value, true
		if name != "" {
			data, there = old.Field(name)
		}
		if sum := sumOf(old.Key, name, data); there && slices.Contains(sums, sum) {
			s.sums[name] = []uint32{sum}
		}
	}
}

// add allows bytes in a field.
func (s *seal) add(key refstore.Key, field string, data []byte) {
	if sum := sumOf(key, field, data); !slices.Contains(s.sums[field], sum) {
		s.sums[field] = append(s.sums[field], sum)
	}
}

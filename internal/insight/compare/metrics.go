package compare

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"e3/internal/format/record"
	"e3/objectstore"
	"e3/objectstore/tree"
)

// Bounds on a metrics file that is read into memory.
const (
	maxMetrics = 4 << 20 // bytes
	maxDepth   = 64
	maxKeys    = 16 << 20 // bytes of all keys
)

// kindMetrics marks an output that holds JSON to be compared by key.
const kindMetrics = "metrics"

// metrics compares the metrics files of outputs that both sides have.
func (c *comparison) metrics(d *Difference) error {
	marked := map[string]map[string]bool{} // task → entries
	for _, side := range []*side{c.was, c.is} {
		if side.pkg == nil {
			continue
		}
		for i := range side.pkg.Tasks {
			t := &side.pkg.Tasks[i]
			for _, k := range t.Policy.OutputKinds {
				if k.Value != kindMetrics {
					continue
				}
				if marked[t.Name] == nil {
					marked[t.Name] = map[string]bool{}
				}
				marked[t.Name][k.Name] = true
			}
		}
	}
	for i := range d.Outputs.Changes {
		name := d.Outputs.Changes[i].Name
		was, ok := c.was.outputs.leaves[name]
		is, also := c.is.outputs.leaves[name]
		if !ok || !also {
			continue
		}
		for _, entry := range slices.Sorted(maps.Keys(marked[name])) {
			m, err := c.metricsOf(name, entry, was, is)
			if err != nil {
				return fmt.Errorf("metrics of %s: %w", name, err)
			}
			if m != nil {
				d.Metrics = append(d.Metrics, *m)
			}
		}
	}
	return nil
}

// metricsOf compares one metrics file; nil where no value differs.
func (c *comparison) metricsOf(task, entry string, was, is record.Leaf) (*Metrics, error) {
	m := &Metrics{Task: task, Entry: entry, Changes: []Metric{}}
	if was.Kind == record.LeafFile && is.Kind == record.LeafFile {
		m.Entry = ""
	}
	a, lostA, err := c.metricsFile(was, entry)
	if err != nil {
		return nil, err
	}
	b, lostB, err := c.metricsFile(is, entry)
	if err != nil {
		return nil, err
	}
	if bytes.Equal(a, b) && lostA == "" && lostB == "" {
		return nil, nil
	}
	old, faultA := flatten(a)
	now, faultB := flatten(b)
	if m.Unknown = join(firstOf(lostA, faultA), firstOf(lostB, faultB)); m.Unknown != "" {
		return m, nil
	}
	keys := maps.Clone(old)
	maps.Copy(keys, now)
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		change, differs := compareMetric(key, old[key], now[key])
		switch {
		case !differs:
			m.Same++
		case len(m.Changes) < MaxMetrics:
			m.Changes = append(m.Changes, change)
		default:
			m.More++
		}
	}
	if len(m.Changes) == 0 {
		return nil, nil // other bytes, the same values
	}
	return m, nil
}

func firstOf(a string, err error) string {
	if a == "" && err != nil {
		return err.Error()
	}
	return a
}

// metricsFile reads the metrics of an output: the output itself if it is a file, or else one of its entries. A missing
// entry is empty; lost says why an existing one cannot be read.
func (c *comparison) metricsFile(l record.Leaf, entry string) (data []byte, lost string, err error) {
	h, err := objectstore.ParseHash(l.Hash)
	if err != nil {
		return nil, "", err
	}
	if l.Kind == record.LeafDir {
		e, err := tree.Lookup(c.ctx, c.objects, h, entry)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil, "", nil
		case errors.Is(err, objectstore.ErrNotFound):
			return nil, "an output is no longer here", nil
		case err != nil:
			return nil, "", err
		case e.Kind != tree.KindFile:
			return nil, "it is no file", nil
		}
		h = e.Hash
	}
	data, err = objectstore.ReadAll(c.ctx, c.objects, h, maxMetrics)
	var large *objectstore.TooLargeError
	switch {
	case errors.Is(err, objectstore.ErrNotFound):
		return nil, "an output is no longer here", nil
	case errors.As(err, &large):
		return nil, fmt.Sprintf("it is larger than %d MiB", maxMetrics>>20), nil
	}
	return data, "", err
}

// flatten returns the values of a JSON document by their keys, each as JSON. Empty data holds no values.
func flatten(data []byte) (map[string]json.RawMessage, error) {
	f := flattener{values: map[string]json.RawMessage{}}
	if len(data) == 0 {
		return f.values, nil
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var doc any
	if err := dec.Decode(&doc); err != nil {
		return nil, fmt.Errorf("the metrics are not JSON: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("the metrics are more than one JSON document")
	}
	return f.values, f.add("", doc, 0)
}

type flattener struct {
	values map[string]json.RawMessage
	bytes  int
}

func (f *flattener) add(key string, v any, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("the metrics nest deeper than %d levels", maxDepth)
	}
	switch v := v.(type) {
	case map[string]any:
		for name, item := range v {
			if err := f.add(member(key, name), item, depth+1); err != nil {
				return err
			}
		}
		if len(v) > 0 {
			return nil
		}
	case []any:
		for i, item := range v {
			if err := f.add(key+"["+strconv.Itoa(i)+"]", item, depth+1); err != nil {
				return err
			}
		}
		if len(v) > 0 {
			return nil
		}
	}
	if f.bytes += len(key); f.bytes > maxKeys {
		return errors.New("the metrics are too large to be compared by key")
	}
	text, err := json.Marshal(v)
	f.values[key] = text
	return err
}

// member is the key of a member of an object. Names with characters that separate keys are quoted, so that no two keys
// are the same.
func member(key, name string) string {
	if name == "" || strings.ContainsAny(name, `.[]"`) {
		return key + "[" + strconv.Quote(name) + "]"
	}
	if key == "" {
		return name
	}
	return key + "." + name
}

// compareMetric compares two values; one may be missing.
func compareMetric(key string, was, is json.RawMessage) (m Metric, differs bool) {
	m = Metric{Key: key, Was: was, Is: is, Change: Changed}
	switch {
	case was == nil:
		m.Change = Added
		return m, true
	case is == nil:
		m.Change = Removed
		return m, true
	case bytes.Equal(was, is):
		return m, false
	}
	if a, b, ok := integers(was, is); ok {
		delta := float64(b) - float64(a)
		if d := b - a; (d > 0) == (b > a) { // no overflow
			delta = float64(d)
		}
		m.differ(float64(a), delta)
		return m, true
	}
	a, okA := number(was)
	b, okB := number(is)
	if !okA || !okB {
		return m, true
	}
	if a == b && !(whole(was) && whole(is)) {
		return m, false // 1.0 and 1
	}
	m.differ(a, b-a)
	return m, true
}

// DeltaText is the change of a number, also in percent of the first value; "" if a value is no number.
func (m *Metric) DeltaText() string {
	if m.Delta == nil {
		return ""
	}
	text := fmt.Sprintf("%+.4g", *m.Delta)
	if m.Percent != nil {
		text += fmt.Sprintf(" (%+.1f%%)", *m.Percent)
	}
	return text
}

func (m *Metric) differ(was, delta float64) {
	if math.IsInf(delta, 0) {
		return
	}
	m.Delta = &delta
	if percent := delta / math.Abs(was) * 100; was != 0 && !math.IsInf(percent, 0) {
		m.Percent = &percent
	}
}

func integers(a, b json.RawMessage) (x, y int64, ok bool) {
	x, errA := strconv.ParseInt(string(a), 10, 64)
	y, errB := strconv.ParseInt(string(b), 10, 64)
	return x, y, errA == nil && errB == nil
}

// number reads a JSON number that a float64 can hold.
func number(text json.RawMessage) (float64, bool) {
	if c := text[0]; c != '-' && (c < '0' || c > '9') {
		return 0, false
	}
	f, err := strconv.ParseFloat(string(text), 64)
	return f, err == nil
}

// whole reports whether a number is written without a fraction or an exponent.
func whole(text json.RawMessage) bool { return !bytes.ContainsAny(text, ".eE") }

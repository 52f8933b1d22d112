// Package figures reads what programs leave for people to look at: metrics and tables, in JSON, YAML, TOML, CSV and
// TSV.
package figures

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"

	"e3/internal/format/manifest"
	"e3/internal/format/pattern"
)

// Bounds of a document. Its bytes are the caller's to bound.
const (
	maxDepth   = 64
	maxAliased = 1 << 20 // values that aliases of YAML stand for
)

// Numbers that are not finite, as JSON: the texts that protocol buffers, JavaScript and Python read as numbers. A text
// of a document that is one of them is the number.
const (
	NaN      = `"NaN"`
	Infinity = `"Infinity"`
	Negative = `"-Infinity"` // infinity
)

// A Document is the content of a file: a table with a header, or a value with members or elements.
type Document struct {
	root  any    // object, []any, or json.RawMessage
	table *Table // of CSV and TSV
}

// object is a mapping in the order of its file. A name may occur twice: then the last one counts.
type object []member

type member struct {
	name  string
	value any
}

// A Table has rows of texts. A row may be shorter than the head.
type Table struct {
	Head []string
	Rows [][]string
}

// Read reads a document. The ending of the file's name says the format. Without a known ending, the content begins with
// { or [ if it is JSON, and its first line has a comma or a tab and no ": " if it is a table; else it is YAML.
func Read(name string, data []byte) (*Document, error) {
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	text := bytes.TrimSpace(data)
	switch {
	case len(text) == 0:
		return nil, errors.New("it is empty")
	case !utf8.Valid(data):
		return nil, errors.New("it is not text in UTF-8")
	}
	line, _, _ := bytes.Cut(text, []byte("\n"))
	columns := bytes.ContainsAny(line, ",\t") && !bytes.Contains(line, []byte(": "))
	var root any
	var err error
	switch ending := strings.ToLower(path.Ext(name)); {
	case ending == ".json", !known[ending] && (text[0] == '{' || text[0] == '['):
		root, err = readJSON(data)
	case ending == ".toml":
		root, err = readTOML(data)
	case ending == ".csv", ending == ".tsv", !known[ending] && columns:
		return readTable(data, ending == ".tsv" || ending != ".csv" && bytes.ContainsRune(line, '\t'))
	default:
		root, err = readYAML(data)
	}
	if err != nil {
		return nil, err
	}
	return &Document{root: root}, nil
}

var known = map[string]bool{".json": true, ".yaml": true, ".yml": true, ".toml": true, ".csv": true, ".tsv": true}

func readTable(data []byte, tabs bool) (*Document, error) {
	r := csv.NewReader(bytes.NewReader(data))
	r.FieldsPerRecord = -1
	if tabs {
		r.Comma, r.LazyQuotes = '\t', true
	} else if line, _, _ := bytes.Cut(data, []byte("\n")); bytes.Contains(line, []byte("\t")) && !bytes.Contains(line, []byte(",")) {
		r.Comma = '\t' // some programs write tabs whatever the name says
	}
	rows, err := r.ReadAll()
	if err != nil {
		return nil, fmt.Errorf("it is no table: %w", err)
	}
	for i, row := range rows[1:] {
		if len(row) > len(rows[0]) {
			return nil, fmt.Errorf("it is no table: row %d has %d cells, and the head has %d", i+1, len(row), len(rows[0]))
		}
	}
	return &Document{table: &Table{rows[0], rows[1:]}}, nil
}

// bare are the numbers that programs write into JSON although it has none, and the texts among which they are none.
var bare = pattern.Of(`"(?:[^"\\]|\\.)*"|\bNaN\b|-?\bInfinity\b`)

func readJSON(data []byte) (any, error) {
	if bytes.Contains(data, []byte("NaN")) || bytes.Contains(data, []byte("Infinity")) {
		data = bare().ReplaceAllFunc(data, func(m []byte) []byte {
			if m[0] == '"' {
				return m
			}
			return []byte(`"` + string(m) + `"`)
		})
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	root, err := jsonValue(d, 0)
	if err == nil {
		if _, err = d.Token(); errors.Is(err, io.EOF) {
			return root, nil
		}
		err = errors.New("more follows after its end")
	}
	if errors.Is(err, errDeep) {
		return nil, err
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return nil, fmt.Errorf("it is not JSON: %w", err)
}

var errDeep = fmt.Errorf("it nests deeper than %d levels", maxDepth)

func jsonValue(d *json.Decoder, depth int) (any, error) {
	if depth > maxDepth {
		return nil, errDeep
	}
	tok, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch tok {
	case json.Delim('{'):
		o := object{}
		for d.More() {
			key, err := d.Token()
			if err != nil {
				return nil, err
			}
			v, err := jsonValue(d, depth+1)
			if err != nil {
				return nil, err
			}
			o = append(o, member{key.(string), v})
		}
		_, err := d.Token()
		return o, err
	case json.Delim('['):
		list := []any{}
		for d.More() {
			v, err := jsonValue(d, depth+1)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		_, err := d.Token()
		return list, err
	}
	return scalar(tok), nil
}

// scalar is a plain value as JSON.
func scalar(v any) json.RawMessage {
	switch n := v.(type) {
	case float64:
		switch {
		case math.IsNaN(n):
			return json.RawMessage(NaN)
		case math.IsInf(n, 1):
			return json.RawMessage(Infinity)
		case math.IsInf(n, -1):
			return json.RawMessage(Negative)
		}
	case string:
		if f, ok := notFinite[n]; ok {
			return json.RawMessage(f)
		}
	}
	text, err := json.Marshal(v)
	if err != nil { // no value that a reader gives
		text = json.RawMessage("null")
	}
	return text
}

// notFinite has the spellings of numbers that are not finite, of Python, JSON, YAML and TOML.
var notFinite = map[string]string{
	"NaN": NaN, "nan": NaN, "+nan": NaN, "-nan": NaN, ".nan": NaN, ".NaN": NaN, ".NAN": NaN,
	"Infinity": Infinity, "inf": Infinity, "+inf": Infinity,
	".inf": Infinity, ".Inf": Infinity, ".INF": Infinity, "+.inf": Infinity,
	"-Infinity": Negative, "-inf": Negative, "-.inf": Negative, "-.Inf": Negative, "-.INF": Negative,
}

// Cell is the text of a table as JSON: a number if it is one.
func Cell(text string) json.RawMessage {
	text = strings.TrimSpace(text)
	if f, err := strconv.ParseFloat(text, 64); err == nil && !math.IsInf(f, 0) && !math.IsNaN(f) {
		if json.Valid([]byte(text)) {
			return json.RawMessage(text)
		}
		return scalar(f)
	}
	return scalar(text)
}

// Number is the number that a value is: one that JSON has, or one that is not finite.
func Number(v json.RawMessage) (float64, bool) {
	switch string(v) {
	case "":
		return 0, false
	case NaN:
		return math.NaN(), true
	case Infinity:
		return math.Inf(1), true
	case Negative:
		return math.Inf(-1), true
	}
	if c := v[0]; c != '-' && (c < '0' || c > '9') {
		return 0, false
	}
	f, err := strconv.ParseFloat(string(v), 64)
	return f, err == nil
}

// yamlBounds bounds nesting; aliases are bounded where they are followed.
type yamlBounds struct{}

func (yamlBounds) CheckDepth(depth int, _ *yaml.DepthContext) error {
	if depth > 2*maxDepth { // the library counts more levels than we do
		return errDeep
	}
	return nil
}

func (yamlBounds) CheckAlias(int, int) error { return nil }

func readYAML(data []byte) (any, error) {
	loader, err := yaml.NewLoader(bytes.NewReader(data), yaml.WithPlugin(yamlBounds{}))
	var doc, more yaml.Node
	if err == nil {
		err = loader.Load(&doc)
	}
	switch {
	case errors.Is(err, io.EOF) || err == nil && len(doc.Content) == 0:
		return nil, errors.New("it is empty")
	case err != nil:
		return nil, fmt.Errorf("it is not YAML: %w", err)
	}
	if err := loader.Load(&more); !errors.Is(err, io.EOF) {
		return nil, errors.New("it is more than one document of YAML")
	}
	r := yamlReader{}
	return r.value(doc.Content[0], 0)
}

type yamlReader struct{ inAlias, aliased int }

func (r *yamlReader) value(n *yaml.Node, depth int) (any, error) {
	if depth > maxDepth {
		return nil, errDeep
	}
	if r.inAlias > 0 {
		if r.aliased++; r.aliased > maxAliased {
			return nil, fmt.Errorf("its aliases stand for more than %d values", maxAliased)
		}
	}
	switch n.Kind {
	case yaml.AliasNode:
		r.inAlias++
		defer func() { r.inAlias-- }()
		return r.value(n.Alias, depth+1)
	case yaml.SequenceNode:
		list := make([]any, len(n.Content))
		for i, item := range n.Content {
			v, err := r.value(item, depth+1)
			if err != nil {
				return nil, err
			}
			list[i] = v
		}
		return list, nil
	case yaml.MappingNode:
		o := make(object, 0, len(n.Content)/2)
		for i := 0; i+1 < len(n.Content); i += 2 {
			v, err := r.value(n.Content[i+1], depth+1)
			if err != nil {
				return nil, err
			}
			o = append(o, member{n.Content[i].Value, v})
		}
		return o, nil
	}
	return yamlScalar(n), nil
}

func yamlScalar(n *yaml.Node) json.RawMessage {
	switch n.ShortTag() {
	case "!!int", "!!float":
		if json.Valid([]byte(n.Value)) {
			return json.RawMessage(n.Value) // with the digits that were written
		}
		var v any
		if n.Decode(&v) == nil {
			return scalar(v)
		}
	case "!!bool":
		return scalar(strings.EqualFold(n.Value, "true"))
	case "!!null":
		return json.RawMessage("null")
	}
	return scalar(n.Value)
}

func readTOML(data []byte) (any, error) {
	doc, md, err := manifest.DecodeTOML(data)
	if err != nil {
		return nil, fmt.Errorf("it is not TOML: %w", err)
	}
	rank := map[string]int{}
	for i, k := range md.Keys() {
		for n := range k { // a table may be named only on the way to another
			if p := strings.Join(k[:n+1], "\x00"); rank[p] == 0 {
				rank[p] = i + 1
			}
		}
	}
	return tomlValue(doc, "", rank, 0)
}

// tomlValue gives the members of tables the order of the file, which rank has by their paths.
func tomlValue(v any, at string, rank map[string]int, depth int) (any, error) {
	if depth > maxDepth {
		return nil, errDeep
	}
	switch v := v.(type) {
	case map[string]any:
		o := make(object, 0, len(v))
		for name, item := range v {
			inner, err := tomlValue(item, at+name+"\x00", rank, depth+1)
			if err != nil {
				return nil, err
			}
			o = append(o, member{name, inner})
		}
		slices.SortFunc(o, func(a, b member) int {
			return cmp.Or(cmp.Compare(rank[at+a.name], rank[at+b.name]), cmp.Compare(a.name, b.name))
		})
		return o, nil
	case []map[string]any:
		list := make([]any, len(v))
		for i := range v {
			inner, err := tomlValue(v[i], at, rank, depth+1)
			if err != nil {
				return nil, err
			}
			list[i] = inner
		}
		return list, nil
	case []any:
		list := make([]any, len(v))
		for i := range v {
			inner, err := tomlValue(v[i], at, rank, depth+1)
			if err != nil {
				return nil, err
			}
			list[i] = inner
		}
		return list, nil
	}
	return scalar(v), nil
}

package manifest

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/BurntSushi/toml"

	"e3/internal/format/pattern"
)

// maxTOML bounds a TOML document: the stack of the library grows with nesting, 64 KiB of it to some 30 MB.
const maxTOML = 64 << 10

// dottedTOML finds a key of very many parts, for which the library takes quadratic time.
var dottedTOML = pattern.Of(fmt.Sprintf(`(?:(?:[\w-]+|"[^"\n]*"|'[^'\n]*')[ \t]*\.[ \t]*){%d}`, maxDepth))

// DecodeTOML reads a TOML document within bounds.
func DecodeTOML(data []byte) (doc map[string]any, md toml.MetaData, err error) {
	switch {
	case len(data) > maxTOML:
		return nil, md, fmt.Errorf("it is larger than the %d KiB of TOML that are read", maxTOML>>10)
	case dottedTOML().Match(data):
		return nil, md, fmt.Errorf("it nests deeper than %d levels", maxDepth)
	}
	md, err = toml.Decode(string(data), &doc)
	return doc, md, err
}

// readTOML reads a TOML document as one mapping. Members are in the order of their names.
func readTOML(data []byte) (node, *syntaxError) {
	whole, _, err := DecodeTOML(data)
	if err != nil {
		fault := &syntaxError{Pos{1, 1}, "TOML: " + err.Error(), ""}
		if at, ok := errors.AsType[toml.ParseError](err); ok {
			fault.pos, fault.msg = Pos{int32(at.Position.Line), int32(max(at.Position.Col, 1))}, "TOML: "+at.Message
		}
		return node{}, fault
	}
	return tomlNode(whole), nil
}

func tomlNode(v any) node {
	plain := func(text string) node { return node{kind: stringNode, text: text, bits: 1} }
	switch v := v.(type) {
	case map[string]any:
		n := node{kind: mapNode}
		for _, name := range slices.Sorted(maps.Keys(v)) {
			n.list = append(n.list, node{kind: stringNode, text: name}, tomlNode(v[name]))
		}
		return n
	case []map[string]any:
		n := node{kind: listNode}
		for _, item := range v {
			n.list = append(n.list, tomlNode(item))
		}
		return n
	case []any:
		n := node{kind: listNode}
		for _, item := range v {
			n.list = append(n.list, tomlNode(item))
		}
		return n
	case string:
		return node{kind: stringNode, text: v}
	case bool:
		n, _ := resolvePlain(strconv.FormatBool(v))
		return n
	case int64:
		return node{kind: intNode, bits: uint64(v), text: strconv.FormatInt(v, 10)}
	case float64:
		switch {
		case math.IsNaN(v):
			return plain("nan")
		case math.IsInf(v, 0):
			return plain(map[bool]string{true: "inf", false: "-inf"}[v > 0])
		}
		return node{kind: floatNode, bits: math.Float64bits(v), text: formatFloat(v)}
	case time.Time:
		return plain(v.Format(tomlTime(v)))
	}
	return node{kind: badNode}
}

// tomlTime is the layout of a date or time. The library names a location for those without an offset.
func tomlTime(t time.Time) string {
	switch t.Location().String() {
	case "datetime-local":
		return "2006-01-02T15:04:05.999999999"
	case "date-local":
		return time.DateOnly
	case "time-local":
		return "15:04:05.999999999"
	}
	return time.RFC3339Nano
}

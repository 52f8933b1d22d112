package value

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"e3/internal/format/manifest"
)

// ParseJSON reads one JSON text as a plain value: members keep their order, a number without fraction and exponent is
// an integer. It refuses repeated names, invalid UTF-8, and numbers that fit neither an Integer nor a Float.
func ParseJSON(data []byte) (any, error) {
	if !utf8.Valid(data) {
		return nil, errors.New("JSON: the text is not UTF-8")
	}
	// programs of Windows begin files with a byte order mark
	dec := json.NewDecoder(bytes.NewReader(bytes.TrimPrefix(data, []byte("\ufeff"))))
	dec.UseNumber()
	v, err := parse(dec, 0)
	if err == nil {
		if _, after := dec.Token(); after != io.EOF {
			err = errors.New("text after the end of the value")
		}
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return nil, fmt.Errorf("JSON: %w", err)
	}
	return v, nil
}

func parse(dec *json.Decoder, depth int) (any, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("nested more than %d deep", maxDepth)
	}
	tok, err := dec.Token()
	if err != nil {
		return nil, err
	}
	switch tok := tok.(type) {
	case json.Number:
		return number(tok.String())
	case json.Delim:
		if tok == '[' {
			return parseList(dec, depth)
		}
		return parseObject(dec, depth)
	}
	return tok, nil // nil, bool or string
}

func number(text string) (any, error) {
	if !strings.ContainsAny(text, ".eE") {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("the integer %s is out of range; write %s.0 for a float", text, text)
		}
		return n, nil
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsInf(f, 0) {
		return nil, fmt.Errorf("the number %s is out of range", text)
	}
	return f, nil
}

func parseList(dec *json.Decoder, depth int) (any, error) {
	list := []any{}
	for dec.More() {
		v, err := parse(dec, depth+1)
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	_, err := dec.Token()
	return list, err
}

func parseObject(dec *json.Decoder, depth int) (any, error) {
	o := manifest.Object{}
	seen := map[string]bool{}
	for dec.More() {
		tok, err := dec.Token()
		if err != nil {
			return nil, err
		}
		name, ok := tok.(string)
		if !ok || seen[name] {
			return nil, fmt.Errorf("the name %q is repeated", fmt.Sprint(tok))
		}
		seen[name] = true
		v, err := parse(dec, depth+1)
		if err != nil {
			return nil, err
		}
		o = append(o, manifest.Member{Name: name, Value: v})
	}
	_, err := dec.Token()
	return o, err
}

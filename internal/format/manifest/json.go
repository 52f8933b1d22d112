package manifest

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
)

// readJSON reads the whole file as one JSON text, token by token.
func readJSON(file io.Reader, d *decoder) *syntaxError {
	r := newJSONReader(file, d)
	if fault := r.document(); fault != nil {
		return fault
	}
	switch tok, fault := r.token(); {
	case fault != nil:
		return fault
	case tok != nil:
		return &syntaxError{r.pos, "JSON: text after the end of the package", onePackage}
	}
	return nil
}

// readJSONValue reads a whole JSON text as one value.
func readJSONValue(data []byte, d *decoder) (node, *syntaxError) {
	r := newJSONReader(bytes.NewReader(data), d)
	tok, fault := r.token()
	if fault != nil {
		return node{}, fault
	}
	n, fault := r.value(tok, 0)
	if fault != nil {
		return node{}, fault
	}
	if tok, fault = r.token(); fault == nil && tok != nil || len(d.report.errs) > 0 {
		fault = &syntaxError{r.pos, "JSON: text after the end of the value", ""}
	}
	return n, fault
}

func newJSONReader(file io.Reader, d *decoder) *jsonReader {
	r := &jsonReader{decoder: d, window: window{in: file}, line: 1}
	r.dec = json.NewDecoder(&r.window)
	r.dec.UseNumber()
	return r
}

// A jsonReader turns JSON into calls of a decoder.
type jsonReader struct {
	decoder *decoder
	dec     *json.Decoder
	window  window
	pos     Pos    // place of the latest token
	raw     []byte // text of the latest token, until the next token
	line    int    // up to the beginning of the window
	column  int    // characters of that line up to the beginning of the window
}

// A window keeps the bytes that the JSON decoder has read but not returned as tokens, because it gives neither
// positions nor the original text.
type window struct {
	in    io.Reader
	text  []byte
	start int64 // offset of text in the file
}

func (w *window) Read(p []byte) (int, error) {
	n, err := w.in.Read(p)
	w.text = append(w.text, p[:n]...)
	return n, err
}

// advance moves the beginning of the window to an offset and counts lines and columns on the way.
func (r *jsonReader) advance(offset int64) {
	passed := r.window.text[:offset-r.window.start]
	if lines := bytes.Count(passed, []byte("\n")); lines > 0 {
		r.line += lines
		r.column = utf8.RuneCount(passed[bytes.LastIndexByte(passed, '\n')+1:])
	} else {
		r.column += utf8.RuneCount(passed)
	}
	r.window.text = r.window.text[len(passed):]
	r.window.start = offset
}

// token reads the next token and notes its position. At the end of the text the token is nil.
func (r *jsonReader) token() (json.Token, *syntaxError) {
	r.advance(r.dec.InputOffset())
	tok, err := r.dec.Token()
	// Errors of the decoder have no reliable offset, so they are reported at the beginning of the token.
	text := r.window.text
	space := len(text) - len(bytes.TrimLeft(text, " \t\r\n,:"))
	r.advance(r.window.start + int64(space))
	r.pos = Pos{int32(r.line), int32(r.column) + 1}
	switch {
	case errors.Is(err, io.EOF):
		return nil, nil
	case err != nil:
		return nil, &syntaxError{r.pos, "JSON: " + err.Error(), ""}
	case tok == nil:
		tok = json.RawMessage("null")
	}
	r.raw = r.window.text[:r.dec.InputOffset()-r.window.start]
	return tok, nil
}

func (r *jsonReader) end() *syntaxError {
	return &syntaxError{r.pos, "JSON: unexpected end of the file", ""}
}

// document passes a whole file to the decoder.
func (r *jsonReader) document() *syntaxError {
	tok, fault := r.token()
	if fault != nil {
		return fault
	}
	if tok != json.Delim('{') {
		n, fault := r.value(tok, 0)
		if fault == nil {
			r.decoder.notMapping(&n)
		}
		return fault
	}
	return r.members(func(key *node, tok json.Token) *syntaxError {
		if tok == json.Delim('{') && r.decoder.streams(key) {
			r.decoder.section(key)
			return r.members(func(key *node, tok json.Token) *syntaxError {
				value, fault := r.value(tok, 2)
				if fault == nil {
					r.decoder.entry(key, &value)
				}
				return fault
			})
		}
		value, fault := r.value(tok, 1)
		if fault == nil {
			r.decoder.field(key, &value)
		}
		return fault
	})
}

// members reads the rest of an object behind its opening brace. It calls each with a key and the first token of its
// value.
func (r *jsonReader) members(each func(key *node, tok json.Token) *syntaxError) *syntaxError {
	for {
		tok, fault := r.token()
		if fault != nil {
			return fault
		}
		if tok == json.Delim('}') {
			return nil
		}
		text, ok := tok.(string)
		if !ok {
			return r.end()
		}
		key := r.text(text)
		if tok, fault = r.token(); fault != nil {
			return fault
		}
		if fault := each(&key, tok); fault != nil {
			return fault
		}
	}
}

// value reads the rest of the value that begins with tok.
func (r *jsonReader) value(tok json.Token, depth int) (node, *syntaxError) {
	n := node{pos: r.pos}
	if depth > maxDepth {
		return n, &syntaxError{r.pos, fmt.Sprintf("nested deeper than %d levels", maxDepth), ""}
	}
	switch tok := tok.(type) {
	case nil:
		return n, r.end()
	case json.RawMessage:
		n.kind, n.text = nullNode, "null"
	case bool:
		n.kind, n.text = boolNode, strconv.FormatBool(tok)
		if tok {
			n.bits = 1
		}
	case string:
		return r.text(tok), nil
	case json.Number:
		return r.number(tok.String()), nil
	case json.Delim:
		if tok == '{' {
			n.kind = mapNode
			fault := r.members(func(key *node, tok json.Token) *syntaxError {
				value, fault := r.value(tok, depth+1)
				n.list = append(n.list, *key, value)
				return fault
			})
			return n, fault
		}
		n.kind = listNode
		for {
			tok, fault := r.token()
			if fault != nil {
				return n, fault
			}
			if tok == json.Delim(']') {
				return n, nil
			}
			item, fault := r.value(tok, depth+1)
			if fault != nil {
				return n, fault
			}
			n.list = append(n.list, item)
		}
	}
	return n, nil
}

func (r *jsonReader) bad(format string, args ...any) node {
	r.decoder.report.add(r.pos, "", format, args...)
	return node{kind: badNode, pos: r.pos}
}

func (r *jsonReader) text(s string) node {
	if strings.IndexByte(s, 0) >= 0 {
		return r.bad("text cannot hold the character NUL")
	}
	// The decoder silently turns half of a surrogate pair into U+FFFD.
	if strings.ContainsRune(s, '\ufffd') && strings.Count(s, "\ufffd") != strings.Count(string(r.raw), "\ufffd")+countEscapes(r.raw, `\ufffd`) {
		return r.bad("text holds half of a surrogate pair")
	}
	return node{kind: stringNode, pos: r.pos, text: s}
}

// countEscapes counts an escape sequence, in either case, outside of escaped backslashes.
func countEscapes(raw []byte, escape string) int {
	count := 0
	for i := 0; i < len(raw); i++ {
		if raw[i] != '\\' {
			continue
		}
		if i+len(escape) <= len(raw) && strings.EqualFold(string(raw[i:i+len(escape)]), escape) {
			count++
		}
		i++
	}
	return count
}

func (r *jsonReader) number(s string) node {
	n, fault := resolvePlain(s)
	if fault != "" {
		return r.bad("%s", fault)
	}
	n.pos = r.pos
	return n
}

// floatOf returns the node of a whole number that is declared to be a float.
func floatOf(n node) node {
	return node{kind: floatNode, bits: math.Float64bits(float64(n.int())), text: n.text}
}

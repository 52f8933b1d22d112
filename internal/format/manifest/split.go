package manifest

import (
	"bytes"
	"io"

	"go.yaml.in/yaml/v4"

	"e3/internal/format/notation"
)

// A YAML tree takes some ten times the memory of its text. readPieces therefore parses a large file in pieces: each
// top-level key by itself, and the sections inputs and tasks a few hundred entries at a time. It returns false if the
// file has an unusual form or a piece does not parse. Then the decoder, which may be incomplete, must be dropped, and
// the file must be read whole.
//
// The result is the same as for a file that is read whole. A piece begins at a line with exactly the indentation of its
// mapping's first entry, where a key may start. If the text before that line parses by itself, nothing is open there:
// an unfinished quoted scalar or flow collection does not parse, and block collections and scalars below the mapping's
// entries end at such a line. An alias means the latest anchor before it. So either this anchor is in the same piece,
// or the piece does not parse. Files with tabs in indentation, document markers, directives, or line breaks that only
// the YAML library counts are read whole.
func readPieces(file *io.SectionReader, size int64, d *decoder) (bool, error) {
	pieces, err := planPieces(file, size, d)
	if err != nil || pieces == nil {
		return false, err
	}
	c := &yamlReader{decoder: d}
	var text []byte
	for _, p := range pieces {
		n := int(p.end - p.start)
		if cap(text) < n {
			text = make([]byte, n+n/2)
		}
		text = text[:n]
		if _, err := file.ReadAt(text, p.start); err != nil && err != io.EOF {
			return false, err
		}
		if !c.piece(p, text) {
			return false, nil
		}
	}
	return true, nil
}

// A piece is a part of a file that is parsed by itself: a top-level key with its value, or some entries of a section.
type piece struct {
	start, end int64
	line       int32 // lines before it
	indent     int   // indentation of entries; 0 for a top-level key
	opens      *node // the key of the section, in its first piece
}

// planPieces finds the places to cut. It returns none if the file has an unusual form.
func planPieces(file *io.SectionReader, size int64, d *decoder) ([]piece, error) {
	var pieces []piece
	var key *node // key of a section whose first entry is still to come
	var keyPiece piece
	open := false // the last piece continues
	lines := newLineScanner(file)
	close := func() {
		if open {
			pieces[len(pieces)-1].end = lines.start
		}
		if key != nil { // a section without entries is an ordinary key
			keyPiece.end = lines.start
			pieces = append(pieces, keyPiece)
		}
		open, key = false, nil
	}
	for lines.next() {
		text := lines.text
		spaces := len(text) - len(bytes.TrimLeft(text, " "))
		if isBlank(text[spaces:]) || text[spaces] == '#' {
			if lines.cut && isBlank(text) {
				return nil, nil
			}
			continue
		}
		switch {
		case spaces == 0:
			if !keyStart(text) {
				return nil, nil
			}
			close()
			p := piece{start: lines.start, line: lines.line}
			if name, ok := sectionKey(text); ok && d.streams(name) {
				name.pos = Pos{lines.line + 1, 1}
				key, keyPiece = &node{kind: stringNode, pos: name.pos, text: name.text}, p
				continue
			}
			pieces, open = append(pieces, p), true
		case key != nil:
			if !keyStart(text[spaces:]) {
				return nil, nil
			}
			pieces = append(pieces, piece{start: lines.start, line: lines.line, indent: spaces, opens: key})
			open, key = true, nil
		case !open:
			return nil, nil // the top level itself is indented
		default:
			last := &pieces[len(pieces)-1]
			if spaces == last.indent && lines.start-last.start >= size && keyStart(text[spaces:]) {
				last.end = lines.start
				pieces = append(pieces, piece{start: lines.start, line: lines.line, indent: spaces})
			}
		}
	}
	lines.start = lines.end
	close()
	return pieces, lines.err
}

// sectionKey recognises a line with a plain key and nothing after it but a comment.
func sectionKey(line []byte) (*node, bool) {
	name, rest, ok := bytes.Cut(line, []byte(":"))
	if !ok || !isBlank(rest) && !(rest[0] == ' ' && bytes.HasPrefix(bytes.TrimLeft(rest, " "), []byte("#"))) {
		return nil, false
	}
	return &node{kind: stringNode, text: string(name)}, true
}

// piece parses one piece and feeds the decoder, or returns false.
func (c *yamlReader) piece(p piece, text []byte) bool {
	c.line = p.line
	root, fault := c.parse(text)
	const unusual = yaml.FlowStyle | yaml.TaggedStyle
	if fault != nil || root.Kind != yaml.MappingNode || root.Style&unusual != 0 || root.Anchor != "" || root.Column != p.indent+1 {
		return false
	}
	if p.indent == 0 {
		if len(root.Content) != 2 {
			return false
		}
		c.document(root)
		return true
	}
	if p.opens != nil {
		c.decoder.section(p.opens)
	}
	c.entries(root)
	return true
}

func isBlank(line []byte) bool { return len(bytes.Trim(line, " \r\n")) == 0 }

// keyStart reports whether text begins like a plain or quoted key. Document markers and directives begin with other
// characters.
func keyStart(text []byte) bool { return notation.IsWord(text[0]) || text[0] == '"' || text[0] == '\'' }

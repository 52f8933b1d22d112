package manifest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v4"
)

// maxNodes bounds the memory of one YAML document: the parser needs about 250 bytes for a node.
const maxNodes = 4_000_000

// Texts of faults that other files than package files have, too.
const (
	emptyFile  = "the file is empty"
	onePackage = "one file holds one package"
)

// readYAML reads the whole file as one YAML document.
func readYAML(data []byte, d *decoder) *syntaxError {
	c := &yamlReader{decoder: d}
	root, fault := c.parse(data)
	if fault != nil {
		return fault
	}
	c.document(root)
	return nil
}

// A yamlReader turns YAML into calls of a decoder. One reader serves all pieces of a file, because the bound on
// aliases holds for the file.
type yamlReader struct {
	decoder *decoder
	line    int32 // lines before the present piece
	aliased int   // nodes made by aliases so far
	inAlias int
}

// limits bounds nesting. Aliases are bounded where they are expanded, in convert.
type limits struct{}

func (limits) CheckDepth(depth int, _ *yaml.DepthContext) error {
	if depth > maxDepth {
		return fmt.Errorf("nested deeper than %d levels", maxDepth)
	}
	return nil
}

func (limits) CheckAlias(int, int) error { return nil }

// parse gives the root of the only document in data.
func (c *yamlReader) parse(data []byte) (*yaml.Node, *syntaxError) {
	if len(data) > maxNodes && possibleNodes(data) > maxNodes {
		return nil, &syntaxError{Pos{c.line + 1, 1}, "this is too large to be read in one piece",
			"in a large file write inputs and tasks as plain indented mappings without flow style around them, or write JSON"}
	}
	loader, err := yaml.NewLoader(bytes.NewReader(data), yaml.WithPlugin(limits{}))
	if err != nil {
		return nil, &syntaxError{Pos{1, 1}, err.Error(), ""}
	}
	var doc, next yaml.Node
	switch err := loader.Load(&doc); {
	case errors.Is(err, io.EOF) || err == nil && len(doc.Content) == 0:
		return nil, &syntaxError{Pos{c.line + 1, 1}, emptyFile, "a package file begins with \"e3: 1\""}
	case err != nil:
		return nil, c.syntax(err, data)
	}
	switch err := loader.Load(&next); {
	case err == nil:
		return nil, &syntaxError{c.pos(&next), "a second YAML document begins here", onePackage}
	case !errors.Is(err, io.EOF):
		return nil, c.syntax(err, data)
	}
	return doc.Content[0], nil
}

// possibleNodes is an upper bound on the nodes of a YAML text: every node but the first follows one of these
// characters.
func possibleNodes(data []byte) int {
	n := 1
	for _, c := range data {
		switch c {
		case ',', ':', '-', '?', '[', '{', '\n':
			n++
		}
	}
	return n
}

// syntax translates an error of the YAML library.
func (c *yamlReader) syntax(err error, data []byte) *syntaxError {
	var load *yaml.LoadError
	if !errors.As(err, &load) {
		return &syntaxError{Pos{c.line + 1, 1}, err.Error(), ""}
	}
	s := &syntaxError{pos: Pos{int32(load.Mark.Line) + c.line, int32(load.Mark.Column)}, msg: "YAML: " + load.Message}
	if load.Mark.Line == 0 {
		s.pos = Pos{c.line + 1, 1}
	}
	s.pos.Column = max(s.pos.Column, 1)
	if load.ContextMsg != "" {
		s.msg = fmt.Sprintf("YAML: %s, %s", load.ContextMsg, load.Message)
		if load.ContextMark.Line > 0 && load.ContextMark != load.Mark {
			s.msg += fmt.Sprintf(" (begun at %d:%d)", int32(load.ContextMark.Line)+c.line, load.ContextMark.Column)
		}
	}
	s.hint = syntaxHint(load, data, int(c.line))
	return s
}

func (c *yamlReader) pos(n *yaml.Node) Pos {
	return Pos{int32(n.Line) + c.line, int32(max(n.Column, 1))}
}

// document passes a whole file to the decoder.
func (c *yamlReader) document(root *yaml.Node) {
	if root.Kind != yaml.MappingNode {
		n := c.convert(root, 0)
		c.decoder.notMapping(&n)
		return
	}
	for i := 0; i+1 < len(root.Content); i += 2 {
		key, value := c.key(root.Content[i], 1), root.Content[i+1]
		if value.Kind == yaml.MappingNode && value.Style&yaml.TaggedStyle == 0 && c.decoder.streams(&key) {
			c.decoder.section(&key)
			c.entries(value)
			continue
		}
		n := c.convert(value, 1)
		c.decoder.field(&key, &n)
	}
}

// entries passes a mapping of the open section to the decoder.
func (c *yamlReader) entries(mapping *yaml.Node) {
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		key := c.key(mapping.Content[i], 2)
		n := c.convert(mapping.Content[i+1], 2)
		c.decoder.entry(&key, &n)
	}
}

func (c *yamlReader) bad(n *yaml.Node, hint, format string, args ...any) node {
	c.decoder.report.add(c.pos(n), hint, format, args...)
	return node{kind: badNode, pos: c.pos(n)}
}

// key converts the key of a mapping, which must be a string.
func (c *yamlReader) key(y *yaml.Node, depth int) node {
	if isMerge(y) {
		return c.bad(y, "repeat the keys, or generate the file", "merge keys (<<) are not part of YAML 1.2")
	}
	n := c.convert(y, depth)
	if c.decoder.values && n.kind >= nullNode && n.kind <= floatNode {
		return node{kind: stringNode, pos: n.pos, text: n.text, bits: 1}
	}
	if n.kind != stringNode && n.kind != badNode {
		return c.bad(y, "quote it", "keys are strings, and this one is %s", n.kind)
	}
	return n
}

// convert turns a YAML node into a node, replacing aliases by their targets.
func (c *yamlReader) convert(y *yaml.Node, depth int) node {
	if depth > maxDepth {
		return c.bad(y, "", "nested deeper than %d levels", maxDepth)
	}
	if c.inAlias > 0 {
		if c.aliased++; c.aliased > maxAliasNodes {
			if c.aliased == maxAliasNodes+1 {
				return c.bad(y, "repeat less, or generate the file", "the file's aliases stand for more than %d values", maxAliasNodes)
			}
			return node{kind: badNode}
		}
	}
	n := node{pos: c.pos(y)}
	switch y.Kind {
	case yaml.AliasNode:
		c.inAlias++
		n = c.convert(y.Alias, depth+1)
		c.inAlias--
		n.pos = c.pos(y)
		return n
	case yaml.ScalarNode:
		return c.scalar(y)
	case yaml.SequenceNode:
		if y.Style&yaml.TaggedStyle != 0 && y.ShortTag() != "!!seq" {
			return c.bad(y, "remove it", "the tag %s is not known", truncate(y.Tag))
		}
		n.kind = listNode
		n.list = make([]node, len(y.Content))
		for i, item := range y.Content {
			n.list[i] = c.convert(item, depth+1)
		}
	case yaml.MappingNode:
		if y.Style&yaml.TaggedStyle != 0 && y.ShortTag() != "!!map" {
			return c.bad(y, "remove it", "the tag %s is not known", truncate(y.Tag))
		}
		n.kind = mapNode
		n.list = make([]node, 0, len(y.Content))
		merged := c.merges(&n, y.Content, depth+1)
		for i := 0; i+1 < len(y.Content); i += 2 {
			if merged != nil && isMerge(y.Content[i]) {
				continue
			}
			key, v := c.key(y.Content[i], depth+1), c.convert(y.Content[i+1], depth+1)
			if k, ok := merged[key.text]; ok {
				n.list[k], n.list[k+1] = key, v
			} else {
				n.list = append(n.list, key, v)
			}
		}
	}
	return n
}

// isMerge reports whether a key merges other mappings into its own: https://yaml.org/type/merge.html.
func isMerge(y *yaml.Node) bool {
	return y.Kind == yaml.ScalarNode && y.Value == "<<" && y.Style == 0
}

// merges gives n the members of the mappings that content merges, of which earlier ones count. It returns the places of
// their names; nil if content merges nothing.
func (c *yamlReader) merges(n *node, content []*yaml.Node, depth int) map[string]int {
	var places map[string]int
	for i := 0; c.decoder.values && i+1 < len(content); i += 2 {
		if !isMerge(content[i]) {
			continue
		}
		if places == nil {
			places = map[string]int{}
		}
		from := c.convert(content[i+1], depth)
		list := []node{from}
		if from.kind == listNode {
			list = from.list
		}
		for _, m := range list {
			if m.kind != mapNode && m.kind != badNode {
				c.bad(content[i+1], "give it a mapping", "a merge key (<<) takes mappings, and this is %s", m.kind)
			}
			for k := 0; m.kind == mapNode && k+1 < len(m.list); k += 2 {
				if _, there := places[m.list[k].text]; !there {
					places[m.list[k].text] = len(n.list)
					n.list = append(n.list, m.list[k], m.list[k+1])
				}
			}
		}
	}
	return places
}

// tagKinds are the kinds of scalars by their tags; without a tag, the text itself tells the kind.
var tagKinds = map[string]nodeKind{
	"": badNode, "!!str": stringNode, "!!null": nullNode, "!!bool": boolNode, "!!int": intNode, "!!float": floatNode,
}

// scalar resolves a scalar. The library's own resolution is not used, since it partly follows YAML 1.1.
func (c *yamlReader) scalar(y *yaml.Node) node {
	if strings.IndexByte(y.Value, 0) >= 0 {
		return c.bad(y, "", "text cannot hold the character NUL")
	}
	const quoted = yaml.DoubleQuotedStyle | yaml.SingleQuotedStyle | yaml.LiteralStyle | yaml.FoldedStyle
	tag := ""
	switch {
	case y.Style&yaml.TaggedStyle != 0:
		tag = y.ShortTag()
	case y.Style&quoted != 0 || y.Tag == "!":
		tag = "!!str"
	}
	want, known := tagKinds[tag]
	switch {
	case !known:
		return c.bad(y, "remove it", "the tag %s is not known", truncate(y.Tag))
	case want == stringNode:
		return node{kind: stringNode, pos: c.pos(y), text: y.Value}
	}
	n, fault := resolvePlain(y.Value)
	if fault != "" && c.decoder.values && want == badNode {
		n, fault = node{kind: stringNode, text: y.Value}, ""
	}
	if n.kind == stringNode {
		n.bits = 1
	}
	if fault != "" {
		return c.bad(y, "quote it to make it a string", "%s", fault)
	}
	if want == floatNode && n.kind == intNode {
		n = floatOf(n)
	}
	if want != badNode && n.kind != want {
		return c.bad(y, "", "%q is not %s, as its tag says", truncate(y.Value), want)
	}
	n.pos = c.pos(y)
	return n
}

// Package markdown shows reports that tasks write in Markdown: headings, paragraphs, lists, quotes, code, tables and links, as
// nodes of package markup.
//
// A report is hostile. HTML in it is shown as text, pictures are replaced by their descriptions, and only addresses of the web
// and of mail become links, so that a page asks nothing of any network. Nesting is bounded; time grows with the length of the
// text.
//
// A library, goldmark, was tried: what it prepares costs each command 1 ms of 8 before it begins, and the time of a hostile
// report grows with the square of its length.
package markdown

import (
	"strings"

	h "e3/internal/insight/markup"

	"e3/internal/format/pattern"
)

// Bounds of a report.
const (
	maxDepth = 10   // of nested quotes, lists and emphases
	maxAhead = 2000 // bytes within which an emphasis or a link ends
	maxCells = 64   // of a row of a table
)

// Render returns a report as nodes. Its headings are two levels below those that the text asks for, since they stand within
// the section of a page.
func Render(text string) h.Node {
	text = strings.NewReplacer("\r\n", "\n", "\r", "\n", "\t", "    ").Replace(text)
	return blocks(strings.Split(text, "\n"), 0)
}

var (
	heading = pattern.Of(`^ {0,3}(#{1,6})(?: +(.*?))?(?: +#+)? *$`)
	fence   = pattern.Of("^ {0,3}(`{3,}|~{3,})[^`]*$")
	rule    = pattern.Of(`^ {0,3}(?:(?:- *){3,}|(?:\* *){3,}|(?:_ *){3,})$`)
	quote   = pattern.Of(`^ {0,3}> ?`)
	marker  = pattern.Of(`^( {0,3})([-*+]|\d{1,9}[.)])( {1,4}|$)`)
	under   = pattern.Of(`^ {0,3}(=+|-+) *$`)
	columns = pattern.Of(`^ {0,3}\|? *:?-+:? *(\| *:?-+:? *)*\|? *$`)
)

// reader reads the lines of a block.
type reader struct {
	lines []string
	depth int
	out   h.Group
}

func blocks(lines []string, depth int) h.Group {
	r := &reader{lines: lines, depth: depth}
	for len(r.lines) > 0 {
		r.block()
	}
	return r.out
}

func (r *reader) add(n h.Node) { r.out = append(r.out, n) }

// take returns the first line, which is read then.
func (r *reader) take() string {
	line := r.lines[0]
	r.lines = r.lines[1:]
	return line
}

func blank(line string) bool { return strings.TrimSpace(line) == "" }

// block reads the next block.
func (r *reader) block() {
	line := r.lines[0]
	switch {
	case blank(line):
		r.take()
	case r.depth > maxDepth:
		r.paragraph()
	case fence().MatchString(line):
		r.fenced()
	case strings.HasPrefix(line, "    "):
		r.indented()
	case heading().MatchString(line):
		m := heading().FindStringSubmatch(r.take())
		r.title(len(m[1]), m[2])
	case rule().MatchString(line):
		r.take()
		r.add(h.El("hr"))
	case quote().MatchString(line):
		var inner []string
		for len(r.lines) > 0 && quote().MatchString(r.lines[0]) {
			inner = append(inner, quote().ReplaceAllString(r.take(), ""))
		}
		r.add(h.El("blockquote", blocks(inner, r.depth+1)))
	case marker().MatchString(line):
		r.list()
	case len(r.lines) > 1 && strings.Contains(line, "|") && columns().MatchString(r.lines[1]):
		r.table()
	default:
		r.paragraph()
	}
}

func (r *reader) title(level int, text string) {
	r.add(h.El([]string{"h3", "h4", "h5", "h6"}[min(level, 4)-1], inline(text, 0)))
}

// begins reports whether a line ends a paragraph, because another block begins.
func begins(line string) bool {
	m := marker().FindStringSubmatch(line)
	return blank(line) || fence().MatchString(line) || heading().MatchString(line) || rule().MatchString(line) || quote().MatchString(line) ||
		m != nil && m[3] != "" && (len(m[2]) == 1 || m[2][:len(m[2])-1] == "1")
}

func (r *reader) paragraph() {
	list := []string{strings.TrimLeft(r.take(), " ")}
	for len(r.lines) > 0 {
		if m := under().FindStringSubmatch(r.lines[0]); m != nil && r.depth <= maxDepth {
			r.take()
			r.title(map[byte]int{'=': 1, '-': 2}[m[1][0]], strings.Join(list, "\n"))
			return
		}
		if begins(r.lines[0]) {
			break
		}
		list = append(list, strings.TrimLeft(r.take(), " "))
	}
	r.add(h.El("p", inline(strings.TrimRight(strings.Join(list, "\n"), " "), 0)))
}

func (r *reader) fenced() {
	mark := fence().FindStringSubmatch(r.take())[1]
	var list []string
	for len(r.lines) > 0 {
		line := r.take()
		if end := strings.TrimSpace(line); strings.HasPrefix(end, mark) && strings.Trim(end, mark[:1]) == "" {
			break
		}
		list = append(list, line)
	}
	r.code(list)
}

func (r *reader) indented() {
	var list []string
	for len(r.lines) > 0 && (strings.HasPrefix(r.lines[0], "    ") || blank(r.lines[0])) {
		list = append(list, strings.TrimPrefix(r.take(), "    "))
	}
	for len(list) > 0 && blank(list[len(list)-1]) {
		list = list[:len(list)-1]
	}
	r.code(list)
}

func (r *reader) code(lines []string) {
	r.add(h.El("pre", h.Attr("tabindex", "0"), h.Text(strings.Join(lines, "\n"))))
}

// list reads items with one kind of mark. A line belongs to an item if it is as far to the right as the item's text, or if it
// goes on with the item's last line.
func (r *reader) list() {
	kind := func(mark string) string { return mark[len(mark)-1:] }
	first := marker().FindStringSubmatch(r.lines[0])
	var items [][]string
	loose := false
	for len(r.lines) > 0 {
		m := marker().FindStringSubmatch(r.lines[0])
		if m == nil || kind(m[2]) != kind(first[2]) || rule().MatchString(r.lines[0]) {
			break
		}
		wide := len(m[0])
		item := []string{r.take()[wide:]}
		if m[3] == "" {
			wide++
		}
		for len(r.lines) > 0 {
			line := r.lines[0]
			inside := strings.HasPrefix(line, strings.Repeat(" ", wide))
			goesOn := !blank(item[len(item)-1]) && !begins(line) && !marker().MatchString(line)
			if !inside && !goesOn && !(blank(line) && r.follows(wide)) {
				break
			}
			loose = loose || blank(line)
			if inside {
				line = line[wide:]
			}
			item = append(item, line)
			r.take()
		}
		items = append(items, item)
		if len(r.lines) > 1 && blank(r.lines[0]) && marker().MatchString(r.lines[1]) {
			loose = true
			r.take()
		}
	}
	name := "ul"
	var start h.Node
	if number := strings.TrimRight(first[2], ".)"); number != first[2] {
		name = "ol"
		start = h.If(number != "1", h.Attr("start", number))
	}
	r.add(h.El(name, start, h.Map(items, func(item []string) h.Node { return h.El("li", r.item(item, loose)) })))
}

// follows reports whether, after blank lines, a line of the item follows.
func (r *reader) follows(wide int) bool {
	for _, line := range r.lines[:min(len(r.lines), 8)] {
		if !blank(line) {
			return strings.HasPrefix(line, strings.Repeat(" ", wide))
		}
	}
	return false
}

// item is the content of an item. In a list without blank lines its text is no paragraph.
func (r *reader) item(lines []string, loose bool) h.Node {
	box := ""
	for mark, sign := range map[string]string{"[ ] ": "☐ ", "[x] ": "☑ ", "[X] ": "☑ "} {
		if strings.HasPrefix(lines[0], mark) {
			box, lines[0] = sign, lines[0][len(mark):]
		}
	}
	if loose || begins(lines[0]) || strings.HasPrefix(lines[0], "    ") {
		return h.Group{h.Text(box), blocks(lines, r.depth+1)}
	}
	n := 1
	for n < len(lines) && !begins(lines[n]) && !marker().MatchString(lines[n]) {
		n++
	}
	return h.Group{h.Text(box), inline(strings.Join(lines[:n], "\n"), 0), blocks(lines[n:], r.depth+1)}
}

func (r *reader) table() {
	head, align := cells(r.take()), cells(r.take())
	row := func(name string, list []string) h.Node {
		return h.El("tr", h.Map(list[:min(len(list), len(head))], func() func(string) h.Node {
			k := -1
			return func(text string) h.Node {
				k++
				right := k < len(align) && strings.HasSuffix(align[k], ":") && !strings.HasPrefix(align[k], ":")
				return h.El(name, h.If(name == "th", h.Attr("scope", "col")), h.If(right, h.Class("num")), inline(text, 0))
			}
		}()))
	}
	var rows h.Group
	for len(r.lines) > 0 && !begins(r.lines[0]) && strings.Contains(r.lines[0], "|") {
		rows = append(rows, row("td", cells(r.take())))
	}
	r.add(h.El("div.scroll", h.Attr("tabindex", "0"), h.El("table", h.El("thead", row("th", head)), h.El("tbody", rows))))
}

// cells are the cells of a row of a table; a bar behind a backslash is text.
func cells(line string) []string {
	line = strings.TrimSpace(line)
	line = strings.TrimPrefix(line, "|")
	if strings.HasSuffix(line, "|") && !strings.HasSuffix(line, `\|`) {
		line = line[:len(line)-1]
	}
	var list []string
	from := 0
	for i := 0; i < len(line) && len(list) < maxCells-1; i++ {
		switch line[i] {
		case '\\':
			i++
		case '|':
			list, from = append(list, line[from:i]), i+1
		}
	}
	list = append(list, line[from:])
	for i := range list {
		list[i] = strings.TrimSpace(list[i])
	}
	return list
}

package diagram_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"e3/internal/insight/diagram"
	"e3/internal/insight/markup"
	"e3/internal/testing/suite"
)

var allStatuses = []diagram.Status{
	"", "cached", "success", "failed", "error", "skipped", "running", "retrying",
	"claimed", "deferred", "abandoned",
	"interrupted", diagram.Hit, diagram.Run, diagram.Waits, diagram.Current, diagram.Stale, diagram.Missing, "of the future",
}

// hostile are names with a special meaning in one of the languages.
var hostile = []string{
	`a"]; x[`, `<script>document.title="pwned"</script>`, "two\nlines", "%% comment", `%%{init: {"theme":"dark"}}%%`, "end", `back\slash\N`,
	`q"uote`, "&lt;b&gt; &amp;", "日本語のタスク", "a\x00b\x07c\x1b[31m", "\xff\xfe", "\u202eevil", strings.Repeat("W", 128), "", " ", "`md`",
	"style a:#b;", "]]>", "-->", "<!--", "#quot;", "x;y", "{}", "'", `"-->n1["`,
}

func sample() *diagram.Graph {
	g := &diagram.Graph{Title: `of "<hostile> & names`}
	for i, name := range hostile {
		g.Nodes = append(g.Nodes, diagram.Node{
			Label: name, Status: allStatuses[i%len(allStatuses)], Note: name, Kind: diagram.Kind(i % 2), Anchor: name,
		})
		if i > 0 {
			g.Edges = append(g.Edges, diagram.Edge{From: i / 2, To: i})
		}
	}
	return g
}

func render(t testing.TB, write func(io.Writer) error) string {
	t.Helper()
	var b bytes.Buffer
	if err := write(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// drawGraph generates a random graph, mostly without cycles.
func drawGraph(t *rapid.T, most int) *diagram.Graph {
	n := rapid.IntRange(0, most).Draw(t, "nodes")
	g := &diagram.Graph{Nodes: make([]diagram.Node, n)}
	for i := range g.Nodes {
		g.Nodes[i] = diagram.Node{
			Label:  rapid.SampledFrom([]string{"a", "train[4]", "a much longer name of a task", "日本語"}).Draw(t, "label"),
			Status: rapid.SampledFrom(allStatuses).Draw(t, "status"),
			Kind:   diagram.Kind(rapid.IntRange(0, 4).Draw(t, "kind") / 4),
			Group:  rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "group"),
		}
	}
	if n == 0 {
		return g
	}
	cyclic := rapid.IntRange(0, 9).Draw(t, "cyclic") == 0
	for range rapid.IntRange(0, 3*n).Draw(t, "edges") {
		a, b := rapid.IntRange(0, n-1).Draw(t, "from"), rapid.IntRange(0, n-1).Draw(t, "to")
		if !cyclic {
			a, b = min(a, b), max(a, b)
			if a == b {
				continue
			}
		}
		g.Edges = append(g.Edges, diagram.Edge{From: a, To: b})
	}
	return g
}

func TestLayout(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := drawGraph(t, 60)
		boxes, ways := g.Boxes()
		checkLayout(t, g, boxes, ways)
	})
}

func checkLayout(t interface{ Fatalf(string, ...any) }, g *diagram.Graph, boxes []diagram.Box, ways [][][2]float64) {
	for i, a := range boxes {
		if a.X < -1 || a.Y < -1 {
			t.Fatalf("node %d lies outside: %+v", i, a)
		}
		for k, b := range boxes[:i] {
			if a.X < b.X+b.W-0.01 && b.X < a.X+a.W-0.01 && a.Y < b.Y+b.H-0.01 && b.Y < a.Y+a.H-0.01 {
				t.Fatalf("nodes %d and %d overlap: %+v %+v", k, i, b, a)
			}
		}
	}
	for k, way := range ways {
		e := g.Edges[k]
		if e.From == e.To {
			continue
		}
		if len(way) < 2 {
			t.Fatalf("edge %v has no way", e)
		}
		for i := 1; i < len(way); i++ {
			if way[i][0] < way[i-1][0]-0.01 {
				t.Fatalf("edge %v goes back to the left: %v", e, way)
			}
		}
		left, right := boxes[e.From], boxes[e.To]
		if left.X > right.X {
			left, right = right, left
		}
		first, last := way[0], way[len(way)-1]
		if d := first[0] - (left.X + left.W); d < -0.01 || d > 0.01 {
			t.Fatalf("edge %v begins at %v, beside its node %+v", e, first, left)
		}
		if d := last[0] - right.X; d < -0.01 || d > 0.01 {
			t.Fatalf("edge %v ends at %v, beside its node %+v", e, last, right)
		}
	}
}

// Bends keep a distance from boxes, so that no edge runs through a node.
func TestLongEdgesKeepClear(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := drawGraph(t, 40)
		boxes, ways := g.Boxes()
		for k, way := range ways {
			for i := 1; i+2 < len(way); i += 2 { // the level parts
				for n, b := range boxes {
					if y := way[i][1]; y > b.Y && y < b.Y+b.H && way[i][0] < b.X+b.W && b.X < way[i+1][0] {
						t.Fatalf("edge %v runs through node %d", g.Edges[k], n)
					}
				}
			}
		}
	})
}

func TestLayoutOfLargeGraphsIsFast(t *testing.T) {
	diamonds := &diagram.Graph{Nodes: make([]diagram.Node, 1)}
	for i := range 300 {
		first := 3 * i
		diamonds.Nodes = append(diamonds.Nodes, make([]diagram.Node, 3)...)
		diamonds.Edges = append(diamonds.Edges, diagram.Edge{From: first, To: first + 1}, diagram.Edge{From: first, To: first + 2},
			diagram.Edge{From: first + 1, To: first + 3}, diagram.Edge{From: first + 2, To: first + 3})
	}
	chain := &diagram.Graph{Nodes: make([]diagram.Node, 400)}
	for i := range 400 {
		for k := range i { // each reads all before it
			chain.Edges = append(chain.Edges, diagram.Edge{From: k, To: i})
		}
	}
	stages := &diagram.Graph{Nodes: make([]diagram.Node, 600)}
	for i := range 400 {
		for k := range 200 {
			stages.Edges = append(stages.Edges, diagram.Edge{From: i/200*200 + k, To: i/200*200 + 200 + i%200})
		}
	}
	wide := &diagram.Graph{Nodes: make([]diagram.Node, 10_000)}
	for i := 1; i < 10_000; i++ {
		wide.Edges = append(wide.Edges, diagram.Edge{From: (i - 1) / 3, To: i})
	}
	for name, g := range map[string]*diagram.Graph{"diamonds": diamonds, "chain": chain, "stages": stages, "tree": wide} {
		t.Run(name, func(t *testing.T) {
			var boxes []diagram.Box
			var ways [][][2]float64
			suite.Cheap(t, 20*time.Second, func() { boxes, ways = g.Boxes() })
			if len(g.Nodes) < 2000 {
				checkLayout(t, g, boxes, ways)
			}
		})
	}
}

func TestSameBytes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := drawGraph(t, 30)
		draw := func() string {
			var b bytes.Buffer
			folded := diagram.Fold(g, 10)
			inline := func(w io.Writer) error {
				drawing, err := folded.Drawing()
				if err == nil {
					_, err = io.WriteString(w, markup.String(drawing))
				}
				return err
			}
			for _, write := range []func(io.Writer) error{g.DOT, g.Mermaid, g.SVG, folded.DOT, inline} {
				if err := write(&b); err != nil {
					t.Fatalf("%v", err)
				}
			}
			return b.String()
		}
		first := draw()
		if again := draw(); again != first {
			t.Fatalf("got %s\nthe first time %s", again, first)
		}
	})
}

func TestSVGIsWellFormed(t *testing.T) {
	g := sample()
	text := render(t, g.SVG)
	if !utf8.ValidString(text) {
		t.Error("not UTF-8")
	}
	d := xml.NewDecoder(strings.NewReader(text))
	elements := map[string]int{}
	var words strings.Builder
	for {
		tok, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
		switch tok := tok.(type) {
		case xml.StartElement:
			elements[tok.Name.Local]++
			for _, a := range tok.Attr {
				if a.Name.Local == "href" && !strings.HasPrefix(a.Value, "#") || strings.HasPrefix(a.Name.Local, "on") {
					t.Errorf("attribute %s=%q", a.Name.Local, a.Value)
				}
			}
		case xml.CharData:
			words.Write(tok)
		}
	}
	if elements["script"] > 0 || elements["foreignObject"] > 0 || elements["image"] > 0 {
		t.Errorf("elements %v", elements)
	}
	if elements["path"] != len(g.Edges)+1 {
		t.Errorf("%d paths, want one for each of %d edges and the arrow", elements["path"], len(g.Edges))
	}
	for _, want := range []string{`a"]; x[`, `<script>document.title="pwned"</script>`, `two\nlines`, `\x1b[31m`, `\xff\xfe`, `\u202eevil`, "(no name)", "日本語のタスク"} {
		if !strings.Contains(words.String(), want) {
			t.Errorf("the text does not contain %q", want)
		}
	}
	for _, not := range []string{"http:", "https:", "@import", "url(h"} {
		if strings.Contains(strings.ReplaceAll(text, "http://www.w3.org/2000/svg", ""), not) {
			t.Errorf("it refers to something outside: %s", not)
		}
	}
}

// The forms of a line of Mermaid; a label has only the characters that Graph.Mermaid documents.
var mermaidLine = regexp.MustCompile(`^(flowchart LR|  n\d+(\["` + mermaidLabel + `"\]|\(\["` + mermaidLabel + `"\]\)):::[a-z]+|  n\d+ --> n\d+|  classDef [a-z]+ fill:#[0-9a-f]{6},stroke:#[0-9a-f]{6},color:#[0-9a-f]{6})$`)

const mermaidLabel = `(?:[\p{L}\p{Nd} _\-.,/=\[\]·×…]|#\d+;|<br/>)+`

func TestMermaid(t *testing.T) {
	g := sample()
	for i, line := range strings.Split(strings.TrimSuffix(render(t, g.Mermaid), "\n"), "\n") {
		if !mermaidLine.MatchString(line) {
			t.Errorf("line %d: %q", i+1, line)
		}
	}
	if got, want := render(t, (&diagram.Graph{Nodes: []diagram.Node{{Label: `a"]; x[`, Status: "failed"}}}).Mermaid), `n0["a#34;]#59; x[<br/>failed"]:::failed`; !strings.Contains(got, want) {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

func TestDOT(t *testing.T) {
	g := sample()
	nodes, edges, err := parseDOT(render(t, g.DOT))
	if err != nil {
		t.Fatal(err)
	}
	if edges != len(g.Edges) || len(nodes) != len(g.Nodes) {
		t.Fatalf("%d nodes and %d edges, want %d and %d", len(nodes), edges, len(g.Nodes), len(g.Edges))
	}
	for i, want := range map[int]string{0: `a"]; x[`, 2: `two\nlines`, 6: `back\slash\N`, 8: "&lt;b&gt; &amp;", 9: "日本語のタスク"} {
		if got, _, _ := strings.Cut(nodes[fmt.Sprintf("n%d", i)], "\n"); got != want {
			t.Errorf("node %d: got label %q, want %q", i, got, want)
		}
	}
}

func TestGraphvizReadsDOT(t *testing.T) {
	dot, err := exec.LookPath("dot")
	if err != nil {
		t.Skip("there is no dot: install graphviz")
	}
	cmd := exec.CommandContext(t.Context(), dot, "-Tplain")
	cmd.Stdin = strings.NewReader(render(t, sample().DOT))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("dot: %v\n%s", err, out)
	}
}

// parseDOT reads the part of the language that Graph.DOT writes: nodes with attributes, edges, quoted strings with
// their escapes and entities. It returns the labels of nodes.
func parseDOT(text string) (labels map[string]string, edges int, err error) {
	tokens, err := dotTokens(text)
	if err != nil {
		return nil, 0, err
	}
	next := func() string {
		if len(tokens) == 0 {
			return ""
		}
		t := tokens[0]
		tokens = tokens[1:]
		return t
	}
	if next() != "digraph" || !strings.HasPrefix(next(), `"`) || next() != "{" {
		return nil, 0, errors.New("it does not begin a graph")
	}
	labels = map[string]string{}
	for {
		id := next()
		if id == "}" {
			break
		}
		switch op := next(); op {
		case "=":
			next()
		case "->":
			if !strings.HasPrefix(next(), "n") {
				return nil, 0, errors.New("an edge leads to no node")
			}
			edges++
		case "[":
			for {
				name, eq, value := next(), next(), next()
				if eq != "=" {
					return nil, 0, fmt.Errorf("attribute %q of %s has no value", name, id)
				}
				if name == "label" {
					labels[id] = strings.TrimPrefix(value, `"`)
				}
				if sep := next(); sep == "]" {
					break
				} else if sep != "," {
					return nil, 0, fmt.Errorf("%q between attributes", sep)
				}
			}
		default:
			return nil, 0, fmt.Errorf("%q after %q", op, id)
		}
		if end := next(); end != ";" {
			return nil, 0, fmt.Errorf("%q at the end of the statement of %s", end, id)
		}
	}
	if len(tokens) > 0 {
		return nil, 0, fmt.Errorf("%q after the graph", tokens[0])
	}
	return labels, edges, nil
}

// dotTokens splits DOT. A quoted string is a token that begins with a quote.
func dotTokens(text string) (tokens []string, err error) {
	for text = strings.TrimSpace(text); text != ""; text = strings.TrimSpace(text) {
		switch {
		case text[0] == '"':
			var b strings.Builder
			i := 1
			for ; i < len(text) && text[i] != '"'; i++ {
				if text[i] != '\\' {
					b.WriteByte(text[i])
					continue
				}
				i++
				switch text[i] {
				case 'n':
					b.WriteByte('\n')
				case '\\', '"':
					b.WriteByte(text[i])
				default:
					return nil, fmt.Errorf("escape \\%c", text[i])
				}
			}
			if i == len(text) {
				return nil, errors.New("a string does not end")
			}
			tokens = append(tokens, `"`+strings.ReplaceAll(b.String(), "&amp;", "&"))
			text = text[i+1:]
		case strings.HasPrefix(text, "->"):
			tokens, text = append(tokens, "->"), text[2:]
		case strings.ContainsRune("{}[];,=", rune(text[0])):
			tokens, text = append(tokens, text[:1]), text[1:]
		default:
			word := regexp.MustCompile(`^[A-Za-z0-9_.]+`).FindString(text)
			if word == "" {
				return nil, fmt.Errorf("unexpected %.20q", text)
			}
			tokens, text = append(tokens, word), text[len(word):]
		}
	}
	return tokens, nil
}

func TestEdgesThatLeadNowhere(t *testing.T) {
	for _, e := range []diagram.Edge{{From: 0, To: 1}, {From: -1, To: 0}} {
		g := &diagram.Graph{Nodes: make([]diagram.Node, 1), Edges: []diagram.Edge{e}}
		for name, write := range map[string]func(io.Writer) error{"dot": g.DOT, "mermaid": g.Mermaid, "svg": g.SVG} {
			if err := write(io.Discard); err == nil {
				t.Errorf("%s: edge %v: got no error", name, e)
			}
		}
	}
}

func TestFoldMatrices(t *testing.T) {
	g := &diagram.Graph{Nodes: []diagram.Node{{Label: "prepare", Status: "cached"}}}
	for i := range 400 {
		status := diagram.Status("success")
		if i%100 == 7 {
			status = "failed"
		}
		g.Nodes = append(g.Nodes, diagram.Node{Label: fmt.Sprintf("train[%d]", i), Group: "train", Status: status})
		g.Edges = append(g.Edges, diagram.Edge{From: 0, To: i + 1})
	}
	g.Nodes = append(g.Nodes, diagram.Node{Label: "report", Status: "skipped"})
	for i := range 400 {
		g.Edges = append(g.Edges, diagram.Edge{From: i + 1, To: 401})
	}
	if same := diagram.Fold(g, 402); same != g {
		t.Error("a graph that is small enough was folded")
	}
	folded := diagram.Fold(g, 100)
	if len(folded.Nodes) != 3 || len(folded.Edges) != 2 || folded.Count() != 402 {
		t.Fatalf("got %d nodes for %d and %d edges, want 3 for 402 and 2", len(folded.Nodes), folded.Count(), len(folded.Edges))
	}
	if n := folded.Nodes[1]; n.Label != "train ×400" || n.Status != "failed" || fmt.Sprint(n.Tallies) != "[{failed 4} {success 396}]" {
		t.Errorf("got %+v", n)
	}
	if text := render(t, folded.SVG); !strings.Contains(text, "4 failed, 396 success") {
		t.Errorf("the drawing does not tell how the items stand:\n%s", text)
	}
}

func TestFold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := drawGraph(t, 60)
		most := rapid.IntRange(2, 30).Draw(t, "most")
		folded := diagram.Fold(g, most)
		if len(folded.Nodes) > most {
			t.Fatalf("%d nodes of %d after folding, want at most %d", len(folded.Nodes), len(g.Nodes), most)
		}
		if len(g.Nodes) > 0 && folded.Count() != len(g.Nodes) {
			t.Fatalf("it stands for %d nodes, want %d", folded.Count(), len(g.Nodes))
		}
		boxes, ways := folded.Boxes()
		checkLayout(t, folded, boxes, ways)
	})
}

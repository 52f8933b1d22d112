package markdown_test

import (
	"encoding/xml"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"e3/internal/insight/markdown"
	"e3/internal/insight/markup"
	"e3/internal/testing/suite"
)

// TestRender: what each form becomes.
func TestRender(t *testing.T) {
	for text, want := range map[string]string{
		"# Results #\nwords\nmore":      `<h3>Results</h3><p>words` + "\n" + `more</p>`,
		"Title\n===\n\nPart\n---":       `<h3>Title</h3><h4>Part</h4>`,
		"###### six":                    `<h6>six</h6>`,
		"#no heading":                   `<p>#no heading</p>`,
		"a **b** *c* _d_ ***e*** ~~f~~": `<p>a <strong>b</strong> <em>c</em> <em>d</em> <strong><em>e</em></strong> <del>f</del></p>`,
		"snake_case_name 2 * 3 * 4":     `<p>snake_case_name 2 * 3 * 4</p>`,
		"`a *b*` and ``c ` d``":         "<p><code>a *b*</code> and <code>c ` d</code></p>",
		`\*plain\* \<b\>`:               `<p>*plain* &lt;b&gt;</p>`,
		"one  \ntwo\\\nthree":           `<p>one<br>two<br>three</p>`,
		"- a\n- b\n  - c\n- d":          `<ul><li>a</li><li>b<ul><li>c</li></ul></li><li>d</li></ul>`,
		"3. a\n4. b":                    `<ol start="3"><li>a</li><li>b</li></ol>`,
		"- a\n\n  more\n\n- b":          `<ul><li><p>a</p><p>more</p></li><li><p>b</p></li></ul>`,
		"- [ ] open\n- [x] done":        `<ul><li>☐ open</li><li>☑ done</li></ul>`,
		"words\n- a":                    `<p>words</p><ul><li>a</li></ul>`,
		"> quoted\n> > twice":           `<blockquote><p>quoted</p><blockquote><p>twice</p></blockquote></blockquote>`,
		"```go\na < b\n\n*c*\n```\nd":   `<pre tabindex="0">a &lt; b` + "\n\n" + `*c*</pre><p>d</p>`,
		"    code\n\n    more\nwords":   `<pre tabindex="0">code` + "\n\n" + `more</pre><p>words</p>`,
		"a\n\n* * *\n\nb":               `<p>a</p><hr><p>b</p>`,
		"| a | n |\n|:--|--:|\n| x \\| y | **1** |\nend": `<div class="scroll" tabindex="0"><table><thead><tr><th scope="col">a</th><th scope="col" class="num">n</th></tr></thead>` +
			`<tbody><tr><td>x | y</td><td class="num"><strong>1</strong></td></tr></tbody></table></div><p>end</p>`,
		"[e3](https://example.org/a_(b) \"title\")":                                                      `<p><a href="https://example.org/a_(b)" rel="noopener noreferrer nofollow">e3</a></p>`,
		"see https://example.org/x. <mailto:a@b.c>":                                                      `<p>see <a href="https://example.org/x" rel="noopener noreferrer nofollow">https://example.org/x</a>. <a href="mailto:a@b.c" rel="noopener noreferrer nofollow">mailto:a@b.c</a></p>`,
		"![a **curve**](http://evil/x.png)":                                                              `<p><em>[picture: a **curve**]</em></p>`,
		"[run](javascript:alert(1)) [here](../x) [data](data:text/html,x) [v](VBSCRIPT:x) [p](//evil/x)": `<p>run here data v p</p>`,
		"<script>x</script> <b onclick=y>":                                                               `<p>&lt;script&gt;x&lt;/script&gt; &lt;b onclick=y&gt;</p>`,
		"[a](https://x\" onload=\"y)":                                                                    `<p><a href="https://x&#34;" rel="noopener noreferrer nofollow">a</a></p>`,
		"a\u202eb":                                                                                       "<p>a\ufffdb</p>",
		"":                                                                                               "",
	} {
		got := markup.String(markdown.Render(text))
		if got != want {
			t.Errorf("%q\n is %s\nwant %s", text, got, want)
		}
	}
}

// elements are those that a report may have, and attributes what they may have.
var (
	elements   = strings.Fields("h3 h4 h5 h6 p br hr strong em del code pre ul ol li blockquote div table thead tbody tr th td a")
	attributes = strings.Fields("tabindex class scope start href rel")
	addresses  = regexp.MustCompile(`(?i)^(https?://|mailto:)`)
	voids      = regexp.MustCompile(`<(br|hr)>`)
)

// FuzzRender: whatever the text is, the result is well formed, has harmless elements and addresses alone, and needs little time.
func FuzzRender(f *testing.F) {
	for _, seed := range []string{
		"# a\n- b\n  1. c\n> d\n```\ne\n```\n|a|\n|-|\n|b|", "[a](javascript:x)", "<img src=x onerror=y>", "***a** b*", "[[[[", "````", "- - - - a", "> > > >\n- >\n", "a\n=", "\\", "![", "[](", "~~", "__a_", "<http://",
		"\x00\xff\u2028", "1)\n2)\n\n\n3)", "-\n\n  a\n-", "|\n-|\n|",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		limit := 5 * time.Second
		if len(text) >= 64<<10 {
			limit = suite.Stuck
		}
		var got string
		suite.Cheap(t, limit, func() { got = markup.String(markdown.Render(text)) })
		if most := 4096 + 120*len(text); len(got) > most {
			t.Fatalf("%d bytes became %d, want at most %d", len(text), len(got), most)
		}
		d := xml.NewDecoder(strings.NewReader("<x>" + voids.ReplaceAllString(got, "<$1/>") + "</x>"))
		for {
			token, err := d.Token()
			if err == io.EOF {
				return
			}
			if err != nil {
				t.Fatalf("%v in %s", err, got)
			}
			e, is := token.(xml.StartElement)
			if !is || e.Name.Local == "x" {
				continue
			}
			if !slices.Contains(elements, e.Name.Local) {
				t.Fatalf("element %s in %s", e.Name.Local, got)
			}
			for _, a := range e.Attr {
				if !slices.Contains(attributes, a.Name.Local) || a.Name.Local == "href" && !addresses.MatchString(a.Value) {
					t.Fatalf("attribute %s=%q in %s", a.Name.Local, a.Value, got)
				}
			}
		}
	})
}

// TestLargeReports: time grows with the length, not with its square.
func TestLargeReports(t *testing.T) {
	for _, piece := range []string{"*a ", "[", "`", "_a_ **b ", "> ", "- ", "|a", "<http://", "![a](", "~~a", "***a", "1. "} {
		text := strings.Repeat(piece, 64<<10/len(piece))
		for _, s := range []string{text, strings.ReplaceAll(text, " ", "\n")} {
			if n := len(markup.String(markdown.Render(s))); n < 1 {
				t.Errorf("%q gives %d bytes", piece, n)
			}
		}
	}
}

package markup_test

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"

	"pgregory.net/rapid"

	h "e3/internal/insight/markup"
)

func TestElements(t *testing.T) {
	node := h.El("div.a.b", h.ID("x"), nil, h.If(false, h.Text("no")), h.If(true, h.Flag("hidden"), h.Text("1 < 2")),
		h.Map([]string{"m", "n"}, func(s string) h.Node { return h.El("b", h.Text(s)) }),
		h.El("br"), h.El("rect", h.Number("x", 1.25), h.Number("y", -0.04)), h.Raw("<i>"), h.Group{h.Attr("title", `"`)})
	const want = `<div class="a b" id="x" hidden title="&#34;">1 &lt; 2<b>m</b><b>n</b><br><rect x="1.3" y="0"/><i></div>`
	if got := h.String(node); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got := string(h.HTML(h.El("html"))); got != "<!doctype html>\n<html></html>\n" {
		t.Errorf("a page: %s", got)
	}
}

// hostile are texts that would be more than text in a page that does not escape, or that read otherwise than they are.
var hostile = []string{
	`<script>alert(1)</script>`, `</title></style></script><img src=x onerror=alert(1)>`, `" onmouseover="alert(1)`,
	`' autofocus onfocus='alert(1)`, "`${alert(1)}`", "a\x00b", "\xff\xfe<b>", "\u202eevil\u202c", "\u2066x\u2069", "\x1b[31mred",
	"&lt;b&gt;", "&#x3c;b>", "<!--", "-->", "]]>", "two\r\nlines\t", "{{.}}", "\ufeff", "日本語",
}

// TestWordsStayWords: whatever a text holds, a reader of the page sees that text, and no element or attribute more.
func TestWordsStayWords(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := strings.Join(rapid.SliceOfN(rapid.OneOf(rapid.SampledFrom(hostile), rapid.String()), 1, 4).Draw(t, "words"), "")
		page := h.String(h.El("p", h.Attr("title", s), h.Attr("href", s), h.Class("c "+s), h.Text(s), h.El("b", h.Line(s))))
		var names []string
		d := xml.NewDecoder(strings.NewReader(page))
		for {
			token, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%q: %v", page, err)
			}
			switch x := token.(type) {
			case xml.StartElement:
				names = append(names, x.Name.Local)
				for _, a := range x.Attr {
					names = append(names, a.Name.Local)
				}
			case xml.CharData:
				if strings.ContainsAny(string(x), "\x00\x1b\u202e\u2066") {
					t.Fatalf("%q holds what is hidden", x)
				}
			case xml.Comment, xml.Directive, xml.ProcInst:
				t.Fatalf("%q has a %T", page, x)
			}
		}
		if got := strings.Join(names, " "); got != "p title href class b" {
			t.Fatalf("%q has %s", page, got)
		}
	})
}

// TestTextsAreWhole: what is no markup is shown as it is.
func TestTextsAreWhole(t *testing.T) {
	for in, want := range map[string]string{
		`a & b < c > d "e" 'f'`: "a &amp; b &lt; c &gt; d &#34;e&#34; &#39;f&#39;", "日本語 é\n\t": "日本語 é\n\t", "a\x00b\u202ec\xffd": "a\ufffdb\ufffdc\ufffdd",
	} {
		if got := h.String(h.Text(in)); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
	if got := h.String(h.Line("a\n\u202eb")); got != `a\n\u202eb` {
		t.Errorf("a line: %q", got)
	}
}

// TestAddressesRunNothing: an address that a browser follows has a scheme that only shows something.
func TestAddressesRunNothing(t *testing.T) {
	for address, ok := range map[string]bool{
		"/run?w=a&t=b:c": true, "task-1.html": true, "#t-a:b": true, "?x=y:z": true, "": true, "https://example.org/a:b": true,
		"HTTP://example.org": true, "mailto:a@example.org": true, "a/b:c": true,
		"javascript:alert(1)": false, "JaVaScRiPt:alert(1)": false, " javascript:alert(1)": false, "java\nscript:alert(1)": false,
		"\x00javascript:alert(1)": false, "java\tscript:alert(1)": false, "vbscript:x": false, "file:///etc/passwd": false,
		"data:text/html,<script>alert(1)</script>": false, "data:image/png;base64,AA": false, "blob:x": false, "javascript&colon;alert(1)": true,
	} {
		for _, name := range []string{"href", "action", "formaction"} {
			got := h.String(h.El("a", h.Attr(name, address)))
			if refused := got == `<a `+name+`="#refused"></a>`; refused == ok {
				t.Errorf("%s of %q: %s", name, address, got)
			}
		}
	}
	for address, ok := range map[string]bool{
		"data:image/svg+xml;base64,AA": true, "/content?x": true, "data:text/html;base64,AA": false, "javascript:1": false,
	} {
		if got := h.String(h.El("img", h.Attr("src", address))); strings.Contains(got, "#refused") == ok {
			t.Errorf("src of %q: %s", address, got)
		}
	}
}

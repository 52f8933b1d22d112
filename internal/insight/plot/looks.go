package plot

import (
	"fmt"
	"strings"

	"e3/internal/human"
	h "e3/internal/insight/markup"
)

// inks are the colours of lines and of their names on the light and on the dark ground of a page. Neighbours are far
// apart, and the contrast of each to its ground is at least 4.5 to 1.
var inks = [...][2]string{
	{"#0072b2", "#22bbff"}, {"#d03a00", "#ff9a5c"}, {"#2a7a4a", "#00cc60"}, {"#dd1188", "#dd6699"},
	{"#3f4a55", "#c9ced6"}, {"#5500aa", "#8877ff"}, {"#701800", "#ccee00"}, {"#0055ff", "#66eeff"},
}

// strokes are the ways in which lines of one colour are broken, as classes of [Style]. Points have other shapes.
var strokes = [...]string{"", " e1", " e2", " e3"}

const mostLooks = len(inks) * len(strokes)

// lookOf is the look of the i-th line, as classes of [Style]: neighbours differ in colour, and lines of one colour in
// their strokes. Looks repeat after mostLooks.
func lookOf(i int) string {
	return fmt.Sprintf("k%d%s", i%len(inks), strokes[i/len(inks)%len(strokes)])
}

// Style is for pages that show charts. --text, --dim, --rule and --card are the page's.
var Style = func() string {
	var light, dark strings.Builder
	for i, ink := range inks {
		fmt.Fprintf(&light, ".k%d{color:%s}", i, ink[0])
		fmt.Fprintf(&dark, ".k%d{color:%s}", i, ink[1])
	}
	return `.chart{display:block;width:100%;max-width:36rem;height:auto;font:12px system-ui,sans-serif}
.chart text:not(.end){fill:var(--dim,#5b6675)}.chart text.y{fill:var(--text,#1f2328);font-weight:600}
.chart .grid{stroke:var(--rule,#e1e5ea);fill:none}:where(.chart,.swatch) .l{fill:none;stroke:currentColor;stroke-width:1.6;stroke-linejoin:round;stroke-linecap:round}.chart .many{stroke-width:1.1}
.chart g:hover>.l{stroke-width:3;opacity:1}
.e1{stroke-dasharray:6 4}.e2{stroke-dasharray:1 4}.e3{stroke-dasharray:9 4 1 4}
.dots{stroke-width:5;opacity:.8;stroke-dasharray:none}.dots:is(.e1,.e3){stroke-linecap:square}.dots:is(.e2,.e3){stroke-width:9;opacity:.5}.chart .faint{opacity:.3}.chart g:hover>.dots{stroke-width:6}
.bar{fill:currentColor}.bar:is(.e1,.e2,.e3){fill-opacity:.35;stroke:currentColor}
.chart .lead{fill:none;stroke:currentColor;stroke-width:1;stroke-dasharray:none;opacity:.5}.chart .end{font-size:11px;fill:currentColor;stroke:var(--card,#fff);stroke-width:3;stroke-dasharray:none;paint-order:stroke}.chart.wide{max-width:78rem;min-width:34rem}
.chart .cell{stroke:var(--rule,#e1e5ea)}.chart text.on{fill:#fff}
.legend{display:flex;flex-wrap:wrap;gap:.1rem 1rem;list-style:none;margin:.3rem 0;padding:0;font-size:.85rem}.swatch{width:1.8rem;height:.6rem;vertical-align:middle}
` + light.String() + "\n@media screen and (prefers-color-scheme:dark){" + dark.String() + "}\n"
}()

// Swatch is a piece of a line of a look, or a point.
func Swatch(look string) h.Node {
	path := "M2 5h24"
	if strings.Contains(look, "dots") {
		path = "M14 5h0"
	}
	return h.El("svg.swatch", h.Attr("viewBox", "0 0 28 10"), h.Attr("aria-hidden", "true"), h.El("path", h.Class(look), h.Attr("d", path)))
}

// legendOf names the looks of lines of a class, in their order.
func legendOf(names []string, class string) h.Node {
	list := make(h.Group, len(names))
	for i, n := range names {
		list[i] = h.El("li", Swatch(class+" "+lookOf(i)), h.Text(" "), h.Text(human.Line(h.Shorten(n, 40))))
	}
	return h.El("ul.legend", list)
}

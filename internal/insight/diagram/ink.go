package diagram

import (
	"fmt"
	"slices"
	"strings"
)

// An ink is the pair of colours of a status: for lines and words, and for the background behind them.
type ink struct{ line, fill string }

// The inks by class of status, on a light and on a dark page. The contrast of words to their background is at least 4.5
// to 1.
var (
	lightInks = map[string]ink{
		"failed": {"#b42318", "#fef3f2"}, "error": {"#b42318", "#fef3f2"}, "interrupted": {"#b54708", "#fff6ed"},
		"deferred": {"#93610a", "#fffaeb"}, "claimed": {"#175cd3", "#eff8ff"}, "abandoned": {"#5b6675", "#f4f6f8"},
		"running": {"#175cd3", "#eff8ff"}, "retrying": {"#b54708", "#fff6ed"}, "run": {"#175cd3", "#eff8ff"},
		"waits": {"#5b6675", "#f4f6f8"}, "skipped": {"#5b6675", "#f4f6f8"}, "stale": {"#93610a", "#fffaeb"},
		"missing": {"#5b6675", "#ffffff"}, "success": {"#067647", "#ecfdf3"}, "hit": {"#0b6b6b", "#effafa"},
		"cached": {"#0b6b6b", "#effafa"}, "current": {"#067647", "#ecfdf3"}, "none": {"#5b6675", "#ffffff"},
	}
	darkInks = map[string]ink{
		"failed": {"#ff9a8f", "#33191a"}, "error": {"#ff9a8f", "#33191a"}, "interrupted": {"#f7b27a", "#33241a"},
		"deferred": {"#e9c46a", "#2f2818"}, "claimed": {"#84bfff", "#16263c"}, "abandoned": {"#a3adba", "#21262e"},
		"running": {"#84bfff", "#16263c"}, "retrying": {"#f7b27a", "#33241a"}, "run": {"#84bfff", "#16263c"},
		"waits": {"#a3adba", "#21262e"}, "skipped": {"#a3adba", "#21262e"}, "stale": {"#e9c46a", "#2f2818"},
		"missing": {"#a3adba", "#1b2028"}, "success": {"#6fd8a2", "#15291f"}, "hit": {"#74d0cf", "#152a2b"},
		"cached": {"#74d0cf", "#152a2b"}, "current": {"#6fd8a2", "#15291f"}, "none": {"#a3adba", "#1b2028"},
	}
)

// Style is the style sheet that an inline drawing needs. In a page every element of class s-<status> has the custom
// properties --ink and --ground from it, for light and dark pages.
func Style() string {
	var b strings.Builder
	classes := make([]string, 0, len(lightInks))
	for class := range lightInks {
		classes = append(classes, class)
	}
	slices.Sort(classes)
	rules := func(inks map[string]ink) {
		for _, class := range classes {
			fmt.Fprintf(&b, ".s-%s{--ink:%s;--ground:%s}", class, inks[class].line, inks[class].fill)
		}
	}
	b.WriteString(".graph text{font-family:system-ui,-apple-system,'Segoe UI',Roboto,Helvetica,Arial,sans-serif}")
	b.WriteString(".graph .b{fill:var(--ground);stroke:var(--ink)}.graph .c{fill:var(--ink)}.graph .l{fill:#1f2328}")
	b.WriteString(".graph a:focus .b,.graph a:hover .b{stroke-width:2.2}")
	rules(lightInks)
	b.WriteString("@media (prefers-color-scheme:dark){.graph .l{fill:#e6e9ee}.graph .e{stroke:#5d6774}.graph .m{fill:#5d6774}")
	rules(darkInks)
	b.WriteString("}")
	return b.String()
}

package diagram

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"e3/internal/human"
)

// An ink is the pair of colours of a status: for lines and words, and for the background behind them.
type ink struct{ line, fill string }

// inks are the colours on a light and on a dark page. The contrast of words to their background is at least 4.5 to 1.
var inks = map[human.Tone]struct{ light, dark ink }{
	human.Good:   {ink{"#067647", "#ecfdf3"}, ink{"#6fd8a2", "#15291f"}},
	human.Reused: {ink{"#0b6b6b", "#effafa"}, ink{"#74d0cf", "#152a2b"}},
	human.Bad:    {ink{"#b42318", "#fef3f2"}, ink{"#ff9a8f", "#33191a"}},
	human.Shaken: {ink{"#b54708", "#fff6ed"}, ink{"#f7b27a", "#33241a"}},
	human.Held:   {ink{"#93610a", "#fffaeb"}, ink{"#e9c46a", "#2f2818"}},
	human.Busy:   {ink{"#175cd3", "#eff8ff"}, ink{"#84bfff", "#16263c"}},
	human.Quiet:  {ink{"#586270", "#f4f6f8"}, ink{"#a3adba", "#21262e"}},
	human.Absent: {ink{"#586270", "#ffffff"}, ink{"#a3adba", "#1b2028"}},
}

// lightInk is the ink of a status on a light page.
func lightInk(class string) ink { return inks[human.LookOf(class).Tone].light }

// Style is the style sheet that an inline drawing needs. In a page every element of class s-<status> has the custom
// properties --ink and --ground from it, for light and dark pages.
func Style() string {
	var b strings.Builder
	selectors := map[human.Tone][]string{}
	for _, word := range slices.Sorted(slices.Values(human.Statuses())) {
		if tone := human.LookOf(word).Tone; !strings.Contains(word, " ") { // the others are no classes
			selectors[tone] = append(selectors[tone], ".s-"+word)
		}
	}
	tones := slices.Sorted(maps.Keys(selectors))
	rules := func(dark bool) {
		for _, tone := range tones {
			c := inks[tone].light
			if dark {
				c = inks[tone].dark
			}
			fmt.Fprintf(&b, "%s{--ink:%s;--ground:%s}", strings.Join(selectors[tone], ","), c.line, c.fill)
		}
	}
	b.WriteString(".graph text{font-family:system-ui,-apple-system,'Segoe UI',Roboto,Helvetica,Arial,sans-serif}")
	b.WriteString(".graph .b{fill:var(--ground);stroke:var(--ink)}.graph .c{fill:var(--ink)}.graph .l{fill:#1f2328}")
	b.WriteString(".graph a:focus .b,.graph a:hover .b{stroke-width:2.2}")
	rules(false)
	b.WriteString("@media screen and (prefers-color-scheme:dark){.graph .l{fill:#e6e9ee}.graph .e{stroke:#5d6774}.graph .m{fill:#5d6774}")
	rules(true)
	b.WriteString("}")
	return b.String()
}

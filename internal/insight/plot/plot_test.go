package plot_test

import (
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"e3/internal/insight/markup"
	"e3/internal/insight/plot"
)

// TestRead: tables of numbers are plots, and nothing else is.
func TestRead(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{"round,error\n0,1.5\n20,0.5\n", "round [0 20] error=[1.5 0.5]"},
		{"\ufeffround\terror\n0\t1\n1\t2\n", "round [0 1] error=[1 2]"},
		{"day,mean,top\nmon,1,2\ntue,,4\n", "day [mon tue] mean=[1 NaN] top=[2 4]"},
		{"x,y,note\n1,2,good\n2,3,\n", "x [1 2] y=[2 3]"},
		{`[{"x": 1, "y": 2}, {"x": 2, "z": "3"}]`, "x [1 2] y=[2 NaN] z=[NaN 3]"},
		{"x,y\n", ""}, {"", ""}, {"x\n1\n", ""}, {"x,y\na,b\n", ""}, {"<svg/>", ""}, {`[{"x": {}}]`, ""}, {"[1]", ""}, {`{"x": 1}`, ""}, {"x,y\n1,2,3\n", ""}, {"x,y\n1,inf\n", ""},
	} {
		table, ok := plot.Read([]byte(test.text))
		got := ""
		if ok {
			got = fmt.Sprint(table.X, " ", table.At)
			if table.At == nil {
				got = fmt.Sprint(table.X, " ", table.Labels)
			}
			for i, name := range table.Names {
				got += fmt.Sprint(" ", name, "=", table.Values[i])
			}
		}
		if got != test.want {
			t.Errorf("%q is %q, want %q", test.text, got, test.want)
		}
	}
}

func table(t testing.TB, text string) *plot.Table {
	t.Helper()
	table, ok := plot.Read([]byte(text))
	if !ok {
		t.Fatalf("%q is no table", text)
	}
	return table
}

// TestTogether: the items of a matrix are one chart for each column, with a line for each; a table alone has a line for each
// column.
func TestTogether(t *testing.T) {
	items := []plot.Item{
		{Name: "fold=a", Table: table(t, "round,error,rate\n0,4,1\n10,2,1\n")},
		{Name: "fold=b", Table: table(t, "round,error\n0,5\n10,1\n")},
	}
	charts := plot.Together(items)
	if len(charts) != 2 || charts[0].Y != "error" || len(charts[0].Lines) != 2 || charts[1].Y != "rate" || len(charts[1].Lines) != 1 {
		t.Fatalf("charts: %+v", charts)
	}
	svg := markup.String(charts[0].Drawing("fit · curve.csv"))
	for _, want := range []string{"fold=a", "fold=b", ">error<", ">round<", "#0072b2", "#d55e00", `aria-label="fit · curve.csv"`} {
		if !strings.Contains(svg, want) {
			t.Errorf("the chart lacks %s:\n%s", want, svg)
		}
	}
	alone := plot.Alone(items[0].Table)
	if len(alone.Lines) != 2 || alone.Lines[1].Name != "rate" {
		t.Errorf("alone: %+v", alone)
	}
	words := plot.Together([]plot.Item{{Name: "a", Table: table(t, "day,n\nmon,1\ntue,2\n")}, {Name: "b", Table: table(t, "day,n\ntue,3\nwed,4\n")}})
	if got := fmt.Sprint(words[0].Labels, words[0].Lines[1].X); got != "[mon tue wed] [1 2]" {
		t.Errorf("labels and places: %s", got)
	}
	var many []plot.Item
	for i := range 50 {
		many = append(many, plot.Item{Name: fmt.Sprintf("day%02d", i), Table: table(t, "hour,warm\n0,1\n1,2\n")})
	}
	if got := plot.Together(many)[0].Names(); got != "50 lines, from day00 (blue) to day49 (red); point at a line for its name" {
		t.Errorf("names: %s", got)
	}
}

// TestSVGIsWhole draws tables of any numbers and texts: the picture is well-formed, its coordinates are finite, and it stays small.
func TestSVGIsWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cell := rapid.OneOf(rapid.Custom(func(t *rapid.T) string { return fmt.Sprint(rapid.Float64().Draw(t, "v")) }),
			rapid.SampledFrom([]string{"0", "1", "-3", "", "1e308", "-1e308", "1e-320", "<b>", "\"", "&", "日本"}))
		var items []plot.Item
		for i := range rapid.IntRange(1, 20).Draw(t, "items") {
			text := "x&y,<v>,w\n"
			for range rapid.IntRange(1, 30).Draw(t, "rows") {
				text += strings.ReplaceAll(cell.Draw(t, "x"), `"`, `""""`) + "," + strings.ReplaceAll(cell.Draw(t, "y"), `"`, `""""`) + ",1\n"
			}
			if table, ok := plot.Read([]byte(text)); ok {
				items = append(items, plot.Item{Name: fmt.Sprintf("<item> %d&", i), Table: table})
			}
		}
		if len(items) == 0 {
			return
		}
		for _, c := range append(plot.Together(items), plot.Alone(items[0].Table)) {
			svg := markup.String(c.Drawing("a <title> & \"more\""))
			if strings.Contains(svg, "NaN") || strings.Contains(svg, "Inf") || len(svg) > 100<<10 {
				t.Fatalf("of %d bytes: %.3000s", len(svg), svg)
			}
			d := xml.NewDecoder(strings.NewReader(svg))
			for {
				if _, err := d.Token(); err == io.EOF {
					break
				} else if err != nil {
					t.Fatalf("%v: %s", err, svg)
				}
			}
		}
	})
}

// TestLargeTables: a chart has no more points than pixels, and its last row.
func TestLargeTables(t *testing.T) {
	var b strings.Builder
	b.WriteString("x,y\n")
	for i := range 50_000 {
		fmt.Fprintf(&b, "%d,%g\n", i, math.Sin(float64(i)))
	}
	svg := markup.String(plot.Alone(table(t, b.String())).Drawing("large"))
	if len(svg) > 40<<10 || !strings.Contains(svg, "L390 ") {
		t.Errorf("%d bytes", len(svg))
	}
}

package plot_test

import (
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"e3/internal/format/record"
	"e3/internal/insight/markup"
	"e3/internal/insight/plot"
)

// TestRead: the tables of all formats, the columns that a plot names, and what is no table.
func TestRead(t *testing.T) {
	xy := record.Plot{X: "fpr", Y: []string{"tpr"}}
	confusion, bars := record.Plot{Template: "confusion"}, record.Plot{Template: "bar_horizontal"}
	for _, test := range []struct {
		name, text string
		plot       record.Plot
		want       string
	}{
		{"a.csv", "round,error\n0,1.5\n20,0.5\n", record.Plot{}, "round [0 20] error=[1.5 0.5]"},
		{"a.csv", "\ufeffround\terror\n0\t1\n1\t2\n", record.Plot{}, "round [0 1] error=[1 2]"},
		{"a.tsv", "day\tmean\ttop\nmon\t1\t2\ntue\t\t4\n", record.Plot{}, "day [mon tue] mean=[1 NaN] top=[2 4]"},
		{"a", "x,y,note\n1,2,good\n2,3,\n", record.Plot{}, "x [1 2] y=[2 3]"},
		{"a", "x,y\n1,inf\n2,3\n3,nan\n4,1e300\n", record.Plot{}, "x [1 2 3 4] y=[NaN 3 NaN NaN]"},
		{"a.json", `[{"x": 1, "y": 2}, {"x": 2, "z": "3"}]`, record.Plot{}, "x [1 2] y=[2 NaN] z=[NaN 3]"},
		{"a.json", `{"auc": 0.5, "roc": [{"x": 1, "y": NaN}, {"x": 2, "y": 3}]}`, record.Plot{}, "x [1 2] y=[NaN 3]"},
		{"a.json", `{"prc": [{"p": 1, "r": 2}], "roc": [{"tpr": 1, "fpr": 2, "t": 0}]}`, xy, "fpr [2] tpr=[1]"},
		{"a.yaml", "roc:\n- {fpr: 0, tpr: .nan}\n- {fpr: 1, tpr: 1}\n", xy, "fpr [0 1] tpr=[NaN 1]"},
		{"a.csv", "epoch,acc,loss\n1,0.5,3\n2,0.6,2\n", record.Plot{Y: []string{"loss", "acc"}}, "epoch [1 2] loss=[3 2] acc=[0.5 0.6]"},
		{"a.csv", "loss,acc\n5,1\n4,2\n", record.Plot{Y: []string{"loss"}}, "row [0 1] loss=[5 4]"},
		{"a.csv", "actual,predicted\ncat,dog\ncat,cat\n", confusion, "actual [cat cat] predicted [dog cat]"},
		{"a.csv", "id,p,a\n1,x,y\n", record.Plot{X: "a", Y: []string{"p"}, Template: "confusion"}, "a [y] p [x]"},
		{"a.csv", "name,note,n\na,b,3\nc,d,4\n", bars, "n name [a c] n=[3 4]"},
		{"a.json", `[{"importance": 0.4, "name": "w"}]`, record.Plot{X: "importance", Y: []string{"name"}, Template: "bar_horizontal"}, "importance name [w] importance=[0.4]"},
		{"a.csv", "a,b\n1,2\n", xy, "error: it has no column tpr; there are a, b"},
		{"a.csv", "fpr,tpr\n1,x\n", xy, "error: its column tpr has no numbers"},
		{"a.csv", "a\n1\n", confusion, "error: it has fewer than two columns"},
		{"a.csv", "a,b\nx,y\n", bars, "error: it has no column of numbers beside the names"},
		{"a", "x,y\n", record.Plot{}, "error: it has no rows of a table with a header"},
		{"a", "", record.Plot{}, "error: it is empty"},
		{"a", "x\n1\n", record.Plot{}, "error: it has no rows of a table with a header"},
		{"a", "x,y\na,b\n", record.Plot{}, "error: it has no column of numbers beside the first"},
		{"a", "x,y\n1,inf\n", record.Plot{}, "error: it has no column of numbers beside the first"},
		{"a", "<svg/>", record.Plot{}, "error: it is no table"},
		{"a.json", `[{"x": {}}]`, record.Plot{}, "error: it has no column of numbers beside the first"},
		{"a.json", "[1]", record.Plot{}, "error: it has no rows of a table with a header"},
		{"a", "x,y\n1,2,3\n", record.Plot{}, "error: it is no table: row 1 has 3 cells, and the head has 2"},
	} {
		table, err := plot.Read(test.name, []byte(test.text), &test.plot)
		got := ""
		switch {
		case err != nil:
			got = "error: " + err.Error()
		case table.TextsX != nil:
			got = fmt.Sprint(table.X, " ", table.TextsX, " ", table.Y, " ", table.Texts)
		case table.Texts != nil:
			got = fmt.Sprint(table.X, " ", table.Y, " ", table.Texts)
		case table.At == nil:
			got = fmt.Sprint(table.X, " ", table.Labels)
		default:
			got = fmt.Sprint(table.X, " ", table.At)
		}
		for i := 0; err == nil && i < len(table.Names); i++ {
			got += fmt.Sprint(" ", table.Names[i], "=", table.Values[i])
		}
		if got != test.want {
			t.Errorf("%s %q\n is %q\nwant %q", test.name, test.text, got, test.want)
		}
	}
}

func table(t testing.TB, text string, p record.Plot) *plot.Table {
	t.Helper()
	table, err := plot.Read("t.csv", []byte(text), &p)
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return table
}

// drawn are the drawings of tables, named a, b and so on.
func drawn(t testing.TB, p record.Plot, texts ...string) (list []string, charts []plot.Chart) {
	t.Helper()
	items := make([]plot.Item, len(texts))
	for i, text := range texts {
		items[i].Table = table(t, text, p)
		if len(texts) > 1 {
			items[i].Name = string(rune('a' + i))
		}
	}
	charts = plot.Draw(items, &p)
	for _, c := range charts {
		list = append(list, markup.String(c.Drawing("title", plot.Look{})))
	}
	return list, charts
}

func wantIn(t *testing.T, svg string, want ...string) {
	t.Helper()
	for _, w := range want {
		if !strings.Contains(svg, w) {
			t.Errorf("the chart lacks %s:\n%s", w, svg)
		}
	}
}

// TestTogether: several tasks are one chart for each column, with a line for each; a table alone has a line for each column, and so
// has a plot that chooses its columns.
func TestTogether(t *testing.T) {
	long, short := "round,error,rate\n0,4,1\n10,2,1\n", "round,error\n0,5\n10,1\n"
	svgs, charts := drawn(t, record.Plot{}, long, short)
	if len(charts) != 2 || charts[0].Caption() != "error by round" || charts[1].Caption() != "rate by round" {
		t.Fatalf("charts: %q", svgs)
	}
	wantIn(t, svgs[0], "<title>a</title>", "<title>b</title>", ">error<", ">round<", `"l k0"`, `"l k1"`, `aria-label="title"`)
	if strings.Contains(svgs[1], "<title>b</title>") {
		t.Error("a line of a column that the table lacks")
	}
	svgs, _ = drawn(t, record.Plot{}, long)
	wantIn(t, svgs[0], "<title>error</title>", "<title>rate</title>")
	svgs, _ = drawn(t, record.Plot{Y: []string{"error"}, XLabel: "rounds", YLabel: "loss"}, long, short)
	if len(svgs) != 1 {
		t.Errorf("%d charts, want 1", len(svgs))
	}
	wantIn(t, svgs[0], "<title>a</title>", "<title>b</title>", ">rounds<", ">loss<")
	svgs, _ = drawn(t, record.Plot{Y: []string{"error", "rate"}}, long, long)
	wantIn(t, svgs[0], "<title>a error</title>", "<title>b rate</title>")
	svgs, _ = drawn(t, record.Plot{}, "day,n\nmon,1\ntue,2\n", "day,n\ntue,3\nwed,4\n")
	wantIn(t, svgs[0], ">mon<", ">tue<", ">wed<", `d="M221 `)
	_, charts = drawn(t, record.Plot{}, slices.Repeat([]string{"hour,warm\n0,1\n1,2\n"}, 50)...)
	if got := charts[0].Note(plot.Look{}); got != "without a label: 37 of 50 lines; point at a line for its name; there are 32 looks, which repeat" {
		t.Errorf("names: %q", got)
	}
}

// TestTemplates: what each template draws.
func TestTemplates(t *testing.T) {
	const curve = "x,y\n0,0\n1,8\n2,0\n3,8\n4,0\n5,8\n6,0\n7,8\n8,0\n9,8\n"
	for _, name := range record.Templates {
		for _, texts := range [][]string{{curve}, {curve, "x,y\n0,1\n1,2\n"}} {
			svgs, _ := drawn(t, record.Plot{Template: name}, texts...)
			if len(svgs) == 0 || !strings.HasPrefix(svgs[0], "<svg") {
				t.Errorf("%s draws nothing of %d tables", name, len(texts))
			}
		}
	}
	svgs, _ := drawn(t, record.Plot{Template: "scatter"}, curve)
	if strings.Contains(svgs[0], "L390") || strings.Count(svgs[0], "h0") != 10 {
		t.Errorf("points: %s", svgs[0])
	}
	svgs, _ = drawn(t, record.Plot{Template: "smooth"}, curve)
	wantIn(t, svgs[0], "faint", `class="l k0"`)

	svgs, charts := drawn(t, record.Plot{Template: "bar_horizontal_sorted"}, "name,n\nlow,-1\nhigh,3\nnone,\nmid,2\n", "name,n\nmid,5\n")
	wantIn(t, svgs[0], ">name<", "<title>high a</title>", "<title>mid b</title>")
	if h, m, l, n := strings.Index(svgs[0], ">high<"), strings.Index(svgs[0], ">mid<"), strings.Index(svgs[0], ">low<"), strings.Index(svgs[0], ">none<"); !(h < m && m < l && l < n) {
		t.Errorf("bars are not sorted: %d %d %d %d", h, m, l, n)
	}
	if got := charts[0].Caption(); got != "n by name" {
		t.Errorf("caption %q", got)
	}

	const classes = "actual,predicted\ncat,cat\ncat,cat\ncat,dog\ndog,dog\n10,9\n9,9\n"
	svgs, charts = drawn(t, record.Plot{Template: "confusion"}, classes, classes)
	if len(charts) != 2 || charts[1].Caption() != "predicted by actual of b" {
		t.Errorf("matrices of two tasks: %d, %q", len(charts), charts[len(charts)-1].Caption())
	}
	wantIn(t, svgs[0], "<title>actual cat, predicted cat: 2</title>", "<title>actual cat, predicted dog: 1</title>", "<title>actual dog, predicted cat: 0</title>")
	if nine, ten, cat := strings.Index(svgs[0], ">9<"), strings.Index(svgs[0], ">10<"), strings.Index(svgs[0], ">cat<"); !(nine < ten && ten < cat) {
		t.Errorf("classes are not ordered: %d %d %d", nine, ten, cat)
	}
	svgs, _ = drawn(t, record.Plot{Template: "confusion_normalized"}, classes)
	wantIn(t, svgs[0], "<title>actual cat, predicted dog: 0.50</title>", "<title>actual cat, predicted cat: 1.00</title>")
}

// TestSVGIsWhole draws tables of any numbers and texts: the picture is well-formed, its coordinates are finite, and it stays small.
func TestSVGIsWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cell := rapid.OneOf(rapid.Custom(func(t *rapid.T) string { return fmt.Sprint(rapid.Float64().Draw(t, "v")) }),
			rapid.SampledFrom([]string{"0", "1", "-3", "", "1e308", "-1e308", "1e-320", "<b>", "\"", "&", "日本"}))
		p := record.Plot{Template: rapid.SampledFrom(record.Templates).Draw(t, "template")}
		var items []plot.Item
		for i := range rapid.IntRange(1, 20).Draw(t, "items") {
			text := "x&y,<v>,w\n"
			for range rapid.IntRange(1, 30).Draw(t, "rows") {
				text += strings.ReplaceAll(cell.Draw(t, "x"), `"`, `""""`) + "," + strings.ReplaceAll(cell.Draw(t, "y"), `"`, `""""`) + ",1\n"
			}
			if table, err := plot.Read("t.csv", []byte(text), &p); err == nil {
				items = append(items, plot.Item{Name: fmt.Sprintf("<item> %d&", i), Table: table})
			}
		}
		if len(items) == 0 {
			return
		}
		for _, c := range append(plot.Draw(items, &p), plot.Draw(items[:1], &p)...) {
			svg := markup.String(c.Drawing("a <title> & \"more\"", plot.Look{}))
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
	for _, name := range record.Templates {
		svgs, charts := drawn(t, record.Plot{Template: name}, b.String())
		if len(svgs[0]) > 100<<10 {
			t.Errorf("%s: %d bytes", name, len(svgs[0]))
		}
		if name == "linear" && !strings.Contains(svgs[0], "L390 ") {
			t.Errorf("the last row is not drawn")
		}
		if many := strings.HasPrefix(name, "bar") || strings.HasPrefix(name, "conf"); many != (charts[0].Note(plot.Look{}) != "") {
			t.Errorf("%s: note %q", name, charts[0].Note(plot.Look{}))
		}
	}
}

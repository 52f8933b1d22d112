package ui_test

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"e3/internal/format/record"
	"e3/internal/insight/compare"
	"e3/internal/insight/figures"
	"e3/internal/insight/runview"
	"e3/internal/ui"
)

// sweep writes two runs of a matrix of twelve items, with a curve, metrics and a confusion matrix each.
func (b *bench) sweep() {
	b.t.Helper()
	for k, id := range []string{"0194fdc1-fa2f-7cc0-81d3-ff12045b73c8", runID} {
		b.id, b.began, b.pkg = id, now.Add(time.Duration(k-2)*time.Hour), record.Package{Name: "demo", Version: "1." + strconv.Itoa(k) + ".0"}
		var list []made
		for _, depth := range []int{2, 4, 8} {
			for _, rate := range []string{"0.001", "0.01", "0.1", "1"} {
				r, err := strconv.ParseFloat(rate, 64)
				if err != nil {
					b.t.Fatal(err)
				}
				curve := "step,loss\n"
				loss := func(step int) float64 {
					return float64(k+1) * (0.1/float64(depth) + math.Exp(-r*float64(step*depth)/50)) / 3
				}
				for step := 0; step <= 400; step += 20 {
					curve += fmt.Sprintf("%d,%.9f\n", step, loss(step))
				}
				item := fmt.Sprintf("[depth=%d,rate=%s]", depth, rate)
				list = append(list,
					made{name: "curve" + item, state: runview.TaskSuccess, file: "c.csv", output: curve, kind: "plot", took: time.Second},
					made{name: "train" + item, state: runview.TaskSuccess, file: "m.json", output: fmt.Sprintf(`{"loss": %.12f, "same": 1}`, loss(400)), kind: "metrics"},
					made{name: "classes" + item, state: runview.TaskSuccess, file: "k.csv", output: "actual,predicted\na,a\na,b\nb,b\n",
						views: []record.View{{Kind: record.ViewPlot, Plot: record.Plot{Template: "confusion"}}}})
			}
		}
		b.run(false, list...)
	}
}

// TestSweepIsOneChart: the items of two runs are one chart whose numbers are those of their files, at the pointer, in the
// address, and without a script; the address chooses values, colours and axes.
func TestSweepIsOneChart(t *testing.T) {
	b := newBench(t)
	b.sweep()
	b.serve(ui.Options{})
	page := b.page("/experiments?view=curves&sides=prod@+prod@-1")
	if n := strings.Count(page, "data-x="); n != 24 {
		t.Errorf("%d lines, want 24 in one chart", n)
	}
	wantIn(t, page, ">prod@ depth=8,rate=1</text>", ">prod@-1 depth=2,rate=0.001</text>", `value="depth=4"> 4</label>`, "Other charts", "predicted by actual of prod@ depth=2,rate=0.001",
		"e3 compare /srv/e3 prod@ prod@-1 --plots curves.html")
	page = b.page("/experiments?view=curves&sides=prod@&where=depth%3D4&where=&colour=rate&logy=1&at=40")
	wantIn(t, page, `value="depth=4" checked> 4</label>`, "At step 40", "> rate=0.01</li>", `<option value="rate" selected>`, "--where depth=4")
	if n := strings.Count(page, "data-x="); n != 4 {
		t.Errorf("%d lines of depth 4, want 4", n)
	}

	// The numbers of the table are those of the files, which e3 compare --json reads.
	plots, err := b.stores.Compare.Plots(t.Context(), []compare.Side{{Workspace: "prod", What: compare.Earlier}})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]map[string]string{} // by label and step
	for _, p := range plots {
		if !strings.HasPrefix(p.Task, "curve[depth=4,") {
			continue
		}
		rows, err := csv.NewReader(bytes.NewReader(p.Data)).ReadAll()
		if err != nil {
			t.Fatal(err)
		}
		label := strings.TrimSuffix(strings.TrimPrefix(p.Item, "depth=4,"), "]")
		want[label] = map[string]string{}
		for _, row := range rows[1:] {
			v, err := strconv.ParseFloat(row[1], 64)
			if err != nil {
				t.Fatal(err)
			}
			want[label][row[0]] = figures.ShortNumber(v)
		}
	}
	row := regexp.MustCompile(`>(rate=[\d.]+)</a></th>.*?data-line="\d+">([^<]*)<`)
	found := row.FindAllStringSubmatch(page, -1)
	if len(found) != 4 {
		t.Fatalf("%d lines in the table, want 4", len(found))
	}
	for _, m := range found {
		if m[2] != want[m[1]]["40"] {
			t.Errorf("%s at step 40: the page has %s, its file %s", m[1], m[2], want[m[1]]["40"])
		}
	}
	if !strings.Contains(page, `best">`) {
		t.Error("no best value is marked")
	}

	t.Run("browser", func(t *testing.T) {
		tab := b.tab()
		tab.Go(b.front.URL + "/experiments?view=curves&sides=prod@&where=depth%3D4&still=1")
		tab.Window(1280, 900, false)
		for _, share := range []float64{0, 0.26, 0.5, 1} {
			var got map[string]string
			tab.Eval(fmt.Sprintf(`(() => {
				const chart = document.querySelector("svg[data-scale]"), m = chart.getScreenCTM();
				const [left, right] = chart.dataset.scale.split(" ").slice(1, 3).map(Number);
				chart.dispatchEvent(new PointerEvent("pointermove", { bubbles: true, clientX: m.e + m.a * (left + %g * (right - left)), clientY: 300 }));
				const out = { at: document.querySelector("th.here").textContent.replace("At step ", "") };
				for (const row of document.querySelectorAll("tbody tr")) {
					const cell = row.querySelector("[data-line]");
					if (cell) out[row.querySelector("a").textContent] = cell.textContent.replace(/\u2007/g, "");
				}
				return out;
			})()`, share), &got)
			if want := strconv.Itoa(int(math.Round(share*20)) * 20); got["at"] != want {
				t.Errorf("pointing at %g of the axis shows step %q, want %s", share, got["at"], want)
			}
			for label, steps := range want {
				if got[label] != steps[got["at"]] {
					t.Errorf("%s at step %s: the script shows %q, the file has %s", label, got["at"], got[label], steps[got["at"]])
				}
			}
		}
		if said := tab.Said(); len(said) > 0 {
			t.Errorf("the page says %q", said)
		}
		for _, path := range []string{"/experiments?view=curves&sides=prod@+prod@-1", "/experiments?view=scatter&sides=prod@&x=rate&y=loss&logx=1", "/experiments?sides=prod@"} {
			tab.Go(b.front.URL + path + "&still=1")
			tab.Window(360, 800, true)
			var wide int
			if tab.Eval("document.documentElement.scrollWidth", &wide); wide > 360 {
				t.Errorf("%s is %d wide in a window of 360", path, wide)
			}
			if tab.Eval(`Math.max(0, ...[...document.querySelectorAll("svg.chart")].map(e => e.parentElement.scrollWidth - e.parentElement.clientWidth))`, &wide); wide > 0 {
				t.Errorf("%s: %d pixels of a chart run out of it in a window of 360", path, wide)
			}
			keepShot(t, tab, "curves"+urlOf(path[13:]), 360, true)
		}
	})
}

// TestTwoRunsInTwoClicks: the first click picks a run, the second one compares it with another; the earlier one is A.
func TestTwoRunsInTwoClicks(t *testing.T) {
	b := newBench(t)
	b.sweep()
	b.serve(ui.Options{})
	page := b.page("/history?w=prod")
	wantIn(t, page, "what changed")
	url, _ := link(t, page, `<a href="(/history[^"]*a=0194fdc2[^"]*)">(compare with…)`)
	page = b.page(url)
	wantIn(t, page, "<b>picked</b>", "Compare run <b>0194fdc2-fa2f-7cc0</b>")
	url, _ = link(t, page, `<a href="(/compare[^"]*)">(compare with 0194fdc2-fa2f-7cc0)`)
	page = b.page(url)
	wantIn(t, page, "A: prod@0194fdc1-fa2f-7cc0-81d3-ff12045b73c8", "B: @0194fdc2-fa2f-7cc0-81d3-ff12045b73c8")
	if status, _ := b.get("/history?w=prod&a=0194fdc3-fa2f-7cc0-81d3-ff12045b73c8"); status != 404 {
		t.Errorf("a run that there is not: status %d, want 404", status)
	}
}

// TestScatter: a metric against a parameter, with a point for each row.
func TestScatter(t *testing.T) {
	b := newBench(t)
	b.sweep()
	b.serve(ui.Options{})
	page := b.page("/experiments?view=scatter&sides=prod@&x=rate&y=loss&logx=1&colour=depth")
	if n := strings.Count(page, `<g><path class="l dots k`); n != 12 {
		t.Errorf("%d points, want one for each item", n)
	}
	wantIn(t, page, "<title>prod@ depth=8,rate=0.1</title>", "> depth=8</li>", ">0.001</text>", "loss by rate", `<option value="rate" selected>`)
	if status, text := b.get("/experiments?view=scatter&sides=prod@&x=nope"); status != 400 {
		t.Errorf("an unknown column: %d %s", status, text)
	}
}

// TestTableOfManyRows: columns that differ come first, numbers have six digits, rows have pages, a family or a value can be
// chosen, and no column is cut at 1920 pixels.
func TestTableOfManyRows(t *testing.T) {
	b := newBench(t)
	var list []made
	for i := range 250 {
		metrics := `{"a_same": 3`
		for k := range 40 {
			metrics += fmt.Sprintf(`, "metric_%02d.score": %.12f`, k, math.Abs(math.Sin(float64(i*40+k+1))))
		}
		list = append(list, made{name: fmt.Sprintf("train[seed=%d]", i), state: runview.TaskSuccess, file: "m.json", output: metrics + "}", kind: "metrics"})
	}
	list = append(list, made{name: "eval[seed=1]", state: runview.TaskSuccess, file: "e.json", output: `{"auc": 0.5}`, kind: "metrics"},
		made{name: "curve[seed=900]", state: runview.TaskFailed, file: "e.json", kind: "metrics"})
	b.run(false, list...)
	b.serve(ui.Options{})
	page := b.page("/experiments?sides=prod@&family=train")
	wantIn(t, page, "250 rows", "1 to 100 of 250", `<option value="train" selected>`, "columns, part 1 of")
	if strings.Contains(page, "a_<wbr>same") {
		t.Error("a column that is the same everywhere is on the first part")
	}
	if digits := regexp.MustCompile(`>0\.0*[1-9]\d{6,}`).FindString(page); digits != "" {
		t.Errorf("more than six digits: %s", digits)
	}
	wantIn(t, b.page("/experiments?sides=prod@"), "Without metrics: prod@ seed=900", "eval.<wbr>auc")
	if page := b.page("/experiments?sides=prod@&family=eval"); strings.Contains(page, "metric_") || !strings.Contains(page, "1 row<") {
		t.Error("another family is shown")
	}
	t.Run("browser", func(t *testing.T) {
		tab := b.tab()
		for part := 1; ; part++ {
			tab.Go(fmt.Sprintf("%s/experiments?sides=prod@&cols=%d&still=1", b.front.URL, part))
			tab.Window(1920, 1000, false)
			var cut, high int
			tab.Eval(`(e => e.scrollWidth - e.clientWidth)(document.querySelector("table.trials").parentElement)`, &cut)
			tab.Eval("document.documentElement.scrollHeight", &high)
			if cut > 0 || high > 6000 {
				t.Errorf("part %d: %d pixels are cut, and the page is %d high", part, cut, high)
			}
			keepShot(t, tab, fmt.Sprintf("trials-%d", part), 1920, false)
			var more bool
			if tab.Eval(`!!document.querySelector("nav.pages[aria-label=Columns] a[rel=next]")`, &more); !more {
				break
			}
		}
	})
}

// TestRowsLeadToTasks: the row of an item leads to its task in that run; the side's name is seen once.
func TestRowsLeadToTasks(t *testing.T) {
	b := newBench(t)
	b.sweep()
	b.serve(ui.Options{})
	page := b.page("/experiments?sides=prod@+prod@-1")
	if seen, again := strings.Count(page, `<th scope="row"><a`), strings.Count(page, `<th scope="row" class="again"><a`); seen != 2 || again != 22 {
		t.Errorf("the names of sides are seen %d times and hidden %d times, want 2 and 22", seen, again)
	}
	wantIn(t, page, `<td><a href="/task?r=0194fdc1-fa2f-7cc0-81d3-ff12045b73c8&amp;t=train%5Bdepth%3D8%2Crate%3D0.01%5D&amp;view=data&amp;w=prod">8</a></td>`)
}

// TestMarkdownReports: a report in Markdown is rendered in the page and in the file of a run, and nothing in it is more than text.
func TestMarkdownReports(t *testing.T) {
	const text = "# Summary\n\nAll **four** agree, [see](https://example.org/x) and [this](javascript:alert).\n\n| a | b |\n|---|--:|\n| 1 | 2 |\n\n<script>document.title=\"pwned\"</script>\n\n![p](http://evil.example/x.png)\n"
	b := newBench(t)
	b.run(false, made{name: "report", state: runview.TaskSuccess, file: "report.md", output: text, kind: "report"})
	b.serve(ui.Options{})
	a := newArchive(t)
	a.add(part{name: "report", state: runview.TaskSuccess, outputs: []output{{"", "report.md", "report", text}}})
	a.store()
	for name, page := range map[string]string{"page": b.page("/task?w=prod&t=report&view=data"), "file": a.page()} {
		wantIn(t, page, `<div class="prose"><h3>Summary</h3>`, "<strong>four</strong>", `<a href="https://example.org/x" rel="noopener noreferrer nofollow">see</a> and this.`,
			`<td class="num">2</td>`, "&lt;script&gt;", "[picture: p]")
		if strings.Contains(page, "evil.example") || strings.Contains(page, "javascript:") {
			t.Errorf("the %s holds an address that it must not: %s", name, page)
		}
	}
}

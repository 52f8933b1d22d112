package report_test

import (
	"encoding/base64"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"e3/internal/format/record"
	"e3/internal/insight/markup"
	"e3/internal/insight/report"
)

// pixel is a picture of one pixel.
var pixel, _ = base64.StdEncoding.DecodeString("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==")

func TestPlain(t *testing.T) {
	for _, tt := range []struct{ name, in, want string }{
		{"colours", "\x1b[1;31mred\x1b[0m", "red"},
		{"title", "\x1b]0;evil\x07text", "text"},
		{"unfinished title", "\x1b]0;evil\ntext", "\ntext"},
		{"cursor", "a\x1b[2Jb\x1b(Bc\x1b7d", "abcd"},
		{"progress", "10%\r50%\r100%\nnext\r\n", "100%\nnext\n"},
		{"ends in a return", "10%\r", "10%"},
		{"binary", "a\x00b\x07\xffc", "a\ufffdb\ufffd\ufffdc"},
		{"direction", "a\u202eb", "a\ufffdb"},
		{"unicode", "naïve 日本語 👩\u200d🚀\tx", "naïve 日本語 👩\u200d🚀\tx"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := report.Plain([]byte(tt.in)); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestMetrics(t *testing.T) {
	for _, tt := range []struct{ name, in, want string }{
		{"flat", `{"b": 1, "a": "x"}`, "[[metric value] [b 1] [a x]] "},
		{"nested", `{"a": {"b": {"c": true}}, "d": null}`, "[[metric value] [a.b.c true] [d null]] "},
		{"arrays", `{"few": [1, "x"], "none": [], "many": [1,2,3,4,5,6,7,8,9], "deep": [[1], {"a": 2}]}`, "[[metric value] [few [1, x]] [none []] [many 9 values] [deep 2 values]] "},
		{"numbers", `{"long": 0.1234567890123, "big": 12345678901234567890, "exp": 1e999}`, "[[metric value] [long 0.123457] [big 12345678901234567890] [exp 1e999]] "},
		{"repeated", `{"a": 1, "a": 2}`, "[[metric value] [a 2]] "},
		{"empty object", `{}`, "[] it has no keys"},
		{"byte order mark", "\ufeff{\"a\": 1}", "[[metric value] [a 1]] "},
		{"nothing", ``, "[] it is empty"},
		{"no object", `[1]`, "[] it has no keys"},
		{"cut", `{"a": 1`, "[] it is not JSON: unexpected EOF"},
		{"more", `{"a": 1} {}`, "[] it is not JSON: more follows after its end"},
		{"no JSON", `accuracy is fine`, "[] it has no keys"},
		{"csv", "degree,rmse\n1,0.25\n2,x\n", "[[degree rmse] [1 0.25] [2 x]] "},
		{"deep", strings.Repeat(`{"a":`, 100) + "1" + strings.Repeat("}", 100), "[] it nests deeper than 64 levels"},
		{"deep array", `{"a":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + "}", "[] it nests deeper than 64 levels"},
		{"not finite", `{"loss": NaN, "top": [Infinity, "-Infinity"]}`, "[[metric value] [loss NaN] [top [Infinity, -Infinity]]] "},
		{"yaml", "a: {b: .nan, c: 0.1234567890123}\n", "[[metric value] [a.b NaN] [a.c 0.123457]] "},
		{"tsv", "degree\trmse\n1\tnan\n2\tinf\n", "[[degree rmse] [1 NaN] [2 Infinity]] "},
		{"control characters", "{\"a\\u0007\": \"\\u001b[31m\"}", `[[metric value] [a\a \x1b[31m]] `},
	} {
		t.Run(tt.name, func(t *testing.T) {
			lines, note := report.MetricsTable([]byte(tt.in))
			if got := fmt.Sprint(lines, " ", note); got != tt.want {
				t.Errorf("got  %q\nwant %q", got, tt.want)
			}
		})
	}
}

func FuzzMetrics(f *testing.F) {
	f.Add([]byte(`{"a": {"b": [1, {"c": null}]}, "d": 1e5}`))
	f.Add([]byte("a,b\n1,\"2\n3\"\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		lines, _ := report.MetricsTable(data)
		for _, line := range lines {
			for _, text := range line {
				if strings.ContainsAny(text, "\n\x00\x1b") || !utf8.ValidString(text) || len(text) > 1600 {
					t.Errorf("%q in a table of %q", text, data)
				}
			}
		}
	})
}

func FuzzPlain(f *testing.F) {
	f.Add([]byte("\x1b[31mred\x1b[0m 10%\r20%\n\xff"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if got := report.Plain(data); strings.ContainsAny(got, "\x00\x1b\x07\r") || !utf8.ValidString(got) {
			t.Errorf("%q of %q", got, data)
		}
	})
}

func TestSniff(t *testing.T) {
	for in, want := range map[string]string{
		string(pixel): "image/png", "\xff\xd8\xff\xe0": "image/jpeg", "GIF89a…": "image/gif", "RIFF\x00\x00\x00\x00WEBPVP8 ": "image/webp",
		`<svg xmlns="…">`: "image/svg+xml", "<?xml version='1.0'?>\n<!DOCTYPE svg>\n<svg>": "image/svg+xml", "\ufeff <!-- c --><svg>": "image/svg+xml",
		"<!DOCTYPE html><svg>": "text/html", "<HTML><body><svg>": "text/html", "<div>x</div>": "text/html", "<!-- c --><html><svg>": "text/html",
		"# title": "text/plain", "": "text/plain", "a,b\n1,2": "text/plain", "< 5": "text/plain", "%PDF-1.7\xff": "", "\x00\x01": "",
	} {
		if got := report.Sniff([]byte(in)); got != want {
			t.Errorf("%.30q: got %q, want %q", in, got, want)
		}
	}
}

func TestHarmless(t *testing.T) {
	const in = `<head><LINK rel=preconnect href=//x><meta http-equiv=refresh content=0><base href=//x></head><style>p{}</style><p>linked metadata`
	const want = `<head><x-LINK rel=preconnect href=//x><x-meta http-equiv=refresh content=0><x-base href=//x></head><style>p{}</style><p>linked metadata`
	if got := report.Harmless(in); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// TestChartsOf: a table alone is one chart, and other content is none.
func TestChartsOf(t *testing.T) {
	c, reason := report.ChartsOf(report.Plotted{Name: "curve.csv"}, []byte("x,y\n1,2\n2,3\n"))
	if reason != "" || len(c) != 1 || !strings.HasPrefix(markup.String(c[0].Drawing(report.Look{})), "<svg") {
		t.Errorf("a table: %+v, %s", c, reason)
	}
	if c, reason := report.ChartsOf(report.Plotted{Name: "x.txt"}, []byte("words")); len(c) > 0 || reason == "" {
		t.Errorf("words are %d charts, %q", len(c), reason)
	}
}

// TestOneTitle: the plots of one title are one chart, with a line for each file and column; others of the same files are not.
func TestOneTitle(t *testing.T) {
	var c report.Charts
	add := func(task, name, text string, p record.Plot) {
		t.Helper()
		if reason, err := c.Take(report.Plotted{Task: task, Name: name, Plot: p}, int64(len(text)), func() ([]byte, error) { return []byte(text), nil }); reason != "" || err != nil {
			t.Fatalf("%s: %q, %v", name, reason, err)
		}
	}
	add("eval", "train/roc.json", `{"roc": [{"fpr": 0, "tpr": 0.5}, {"fpr": 1, "tpr": 1}]}`, record.Plot{X: "fpr", Y: []string{"tpr"}, Title: "ROC"})
	add("eval", "test/roc.json", `{"roc": [{"fpr": 0, "tpr": 0.4}, {"fpr": 1, "tpr": 1}]}`, record.Plot{X: "fpr", Y: []string{"tpr"}, Title: "ROC"})
	add("train", "log.csv", "a,b,c\n1,2,3\n2,3,4\n", record.Plot{Y: []string{"b"}})
	add("train", "log.csv", "a,b,c\n1,2,3\n2,3,4\n", record.Plot{Y: []string{"c"}})
	add("fold[1]", "log.csv", "a,b\n1,2\n2,3\n", record.Plot{Title: "All", YLabel: "loss", Y: []string{"b"}})
	add("fold[2]", "log.csv", "a,b\n1,2\n2,3\n", record.Plot{Title: "All", YLabel: "loss", Y: []string{"b"}})
	add("final", "log.csv", "a,b\n1,2\n2,3\n", record.Plot{Title: "All", YLabel: "loss", Y: []string{"b"}})
	var got []string
	for _, chart := range c.Draw() {
		svg := markup.String(chart.Drawing(report.Look{}))
		var names []string
		for _, m := range regexp.MustCompile("<title>([^<]*)</title>").FindAllStringSubmatch(svg, -1) {
			names = append(names, m[1])
		}
		label := regexp.MustCompile(`aria-label="([^"]*)"`).FindStringSubmatch(svg)[1]
		got = append(got, fmt.Sprintf("%s|%s|%s|%s", chart.Task, chart.Name, label, strings.Join(names, ",")))
	}
	want := []string{
		"ROC||ROC: tpr by fpr|train/roc.json,test/roc.json", "train|log.csv|train · log.csv: b by a|", "train|log.csv|train · log.csv: c by a|",
		"All||All: loss by a|fold 1,fold 2,final",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("charts differ (-want +got):\n%s", diff)
	}
}

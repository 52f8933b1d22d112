package ui_test

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"html"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"e3/executions"
	"e3/internal/format/moment"
	"e3/internal/format/record"
	"e3/internal/insight/runview"
	"e3/internal/testing/suite"
	"e3/refstore"
)

// pixel is a picture of one pixel.
var pixel, _ = base64.StdEncoding.DecodeString("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==")

// between returns the part of a page between two marks.
func between(t testing.TB, page, from, to string) string {
	t.Helper()
	_, rest, ok := strings.Cut(page, from)
	text, _, ended := strings.Cut(rest, to)
	if !ok || !ended {
		t.Fatalf("the page has nothing between %q and %q", from, to)
	}
	return text
}

func smallRun(t testing.TB) *archive {
	a := newArchive(t)
	a.add(part{name: "clean", state: runview.TaskCached, took: 2 * time.Second, stdout: "cleaned\n"})
	for i := range 3 {
		a.add(part{name: fmt.Sprintf("train[%d]", i), state: runview.TaskSuccess, reads: []string{"clean"}, took: time.Duration(i+1) * time.Second, outputs: []output{
			{"metrics", "metrics.json", "metrics", fmt.Sprintf(`{"accuracy": 0.9%d, "loss": {"train": %d, "test": 0.123456789}, "tags": ["a", 1]}`, i, i)},
			{"curve", "curve.png", "plot", string(pixel)},
		}})
	}
	a.add(part{name: "broken", state: runview.TaskFailed, reads: []string{"train[0]", "train[1]", "train[2]"}, took: time.Second,
		stdout: "working\n", stderr: "\x1b[31mValueError\x1b[0m: no <data>\n"})
	a.add(part{name: "after", state: runview.TaskSkipped, reads: []string{"broken"}})
	a.run.State, a.run.FailedTask, a.run.Error = record.RunFailed, "broken", "3"
	a.run.Summary = record.Summary{Completed: 4, Cached: 1, Failed: 1, Skipped: 1}
	a.store()
	return a
}

func TestPage(t *testing.T) {
	a := smallRun(t)
	page := a.page()
	if again := a.page(); again != page {
		t.Error("the same run gives other bytes the second time")
	}
	wantIn(t, page, "<h1>prod ", "1 task failed; the first was broken (exit code 3).", "demo@1.0.0", a.run.RunID, "ann@mill", "2026-11-20 11:00:00 +00:00", "59m00s",
		"1.2.3", "e3 9.9 · made on 2026-11-20 12:00:00 +00:00", "/srv/e3",
		`class="graph"`, "train[1]", "success · 2.0s",
		`class="line"`, "ann@mill0", "ann@mill1",
		`<span class="t-1">ValueError</span>: no &lt;data&gt;`, "exit code 3", "cleaned",
		"accuracy", "loss.train", "0.123457", `title="0.123456789"`, "[a, 1]",
		`src="data:image/png;base64,`)
	if n := strings.Count(page, "<tr id="); n != 6 {
		t.Errorf("the table has %d tasks, want 6", n)
	}
	if i, k := strings.Index(page, `id="failed-h"`), strings.Index(page, `id="metrics-h"`); i < 0 || i > k {
		t.Error("what failed does not come first")
	}
	last := 0
	for _, id := range []string{"metrics", "figures", "tasks", "timeline", "graph", "logs"} {
		at := strings.Index(page, `id="`+id+`-h"`)
		if at < last {
			t.Errorf("%s is at %d, want it below the part before, at %d", id, at, last)
		}
		last = at
	}
}

// The policy names the style and the script by their hashes; a browser refuses any others.
func TestPolicy(t *testing.T) {
	page := smallRun(t).page()
	policy := html.UnescapeString(between(t, page, `http-equiv="Content-Security-Policy" content="`, `"`))
	for element, directive := range map[string]string{"<style>": "style-src", `<script type="module">`: "script-src"} {
		sum := sha256.Sum256([]byte(between(t, page, element, "</")))
		if want := directive + " 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "';"; !strings.Contains(policy, want) {
			t.Errorf("policy %s\nwant %s", policy, want)
		}
	}
	if !strings.HasPrefix(policy, "default-src 'none';") {
		t.Errorf("policy %s", policy)
	}
	withFrame := newArchive(t)
	withFrame.add(part{name: "r", state: runview.TaskSuccess, outputs: []output{{"", "r.html", "report", "<!doctype html><p>hi"}}})
	withFrame.store()
	if page := withFrame.page(); !strings.Contains(page, "style-src &#39;unsafe-inline&#39;") || !strings.Contains(page, `sandbox=""`) {
		t.Error("a report in HTML has no styles, or no sandbox")
	}
}

// hostileWords are untrusted names and outputs.
var hostileWords = []string{
	`<script>document.title="pwned"</script>`, `"><img src=x onerror="document.title='pwned'">`, `</pre></script><script>document.title="pwned"</script>`,
	`</style><script>document.title="pwned"</script>`, "{{.Title}}", "a\x00b\x1b]0;pwned\x07c", "\xff\xfe\xc3", "\u202epwned\u2066", "]]><!--", "javascript:document.title='pwned'",
	"`${document.title='pwned'}`", strings.Repeat("W", 128), "two\nlines", `'onmouseover='document.title="pwned"`,
}

func hostileRun(t testing.TB) *archive {
	a := newArchive(t)
	a.run.WorkspaceName = "prod"
	states := []runview.TaskState{runview.TaskSuccess, runview.TaskFailed, runview.TaskError, runview.TaskCached}
	for i, word := range hostileWords {
		name := word
		if !utf8.ValidString(word) { // no record has it
			name = "not UTF-8"
		}
		a.add(part{name: name, state: states[i%len(states)], stdout: strings.Repeat(word+"\n", 3), stderr: word, message: name, took: time.Duration(i) * time.Second,
			reads: hostileWords[:i/4], outputs: []output{
				{"m", name, "metrics", fmt.Sprintf(`{%s: %s, "n": 1}`, quoteJSON(word), quoteJSON(word))},
				{"bad", "bad.json", "metrics", word},
				{"text", "t.md", "report", word},
				{"html", "t.html", "report", "<!doctype html><html><body>" + word + "</body></html>"},
				{"svg", "t.svg", "plot", `<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"><script>document.title="pwned"</script></svg>`},
			}})
	}
	a.run.State, a.run.FailedTask, a.run.Error = record.RunFailed, hostileWords[1], hostileWords[0]
	a.run.PackageRef, a.run.Process.Host, a.run.By = hostileWords[0], hostileWords[1], hostileWords[0]
	a.run.Damage = fmt.Errorf("line %s", hostileWords[0])
	a.store()
	return a
}

func quoteJSON(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, c := range []byte(s) {
		if c == '"' || c == '\\' || c < ' ' {
			fmt.Fprintf(&b, `\u%04x`, c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String() + `"`
}

// withHandlers matches the beginning of an element that has a handler: what stands in the values of attributes is none.
var withHandlers = regexp.MustCompile(`<[a-z]+(?:\s+[-a-z:]+(?:="[^"]*")?)*\s+on[a-z]+=`)

func TestHostileWords(t *testing.T) {
	page := hostileRun(t).page()
	if !utf8.ValidString(page) {
		t.Error("the page is not UTF-8")
	}
	if n := strings.Count(page, "<script"); n != 1 {
		t.Errorf("the page has %d scripts, want its own", n)
	}
	if n := strings.Count(page, "<img"); n != strings.Count(page, `<img src="data:image/svg+xml;base64,`) {
		t.Errorf("%d pictures, of which others are not the tasks' plots", n)
	}
	if found := withHandlers.FindAllString(page, -1); len(found) > 0 {
		t.Errorf("elements with handlers: %q", found)
	}
	page = regexp.MustCompile(` srcdoc="[^"]*"`).ReplaceAllString(page, "") // a document of its own
	for _, c := range []string{"\x00", "\x1b", "\x07", "\u202e", "\u2066"} {
		if strings.Contains(page, c) {
			t.Errorf("the page contains %q", c)
		}
	}
	if strings.Contains(page, "http:") && strings.Contains(strings.ReplaceAll(page, "http://www.w3.org/2000/svg", ""), "http:") {
		t.Error("the page names something on a network")
	}
}

func TestLogTails(t *testing.T) {
	a := newArchive(t)
	many := strings.Repeat("a line of many\n", 10_000)
	a.add(part{name: "many", state: runview.TaskFailed, stdout: many + "the last line\n"})
	a.add(part{name: "silent", state: runview.TaskFailed})
	a.add(part{name: "gone", state: runview.TaskFailed, gone: true})
	a.add(part{name: "one long line", state: runview.TaskFailed, stderr: strings.Repeat("x", 100_000) + "END"})
	a.add(part{name: "huge", state: runview.TaskSuccess})
	key, ok := executions.ParseKey(a.run.Tasks[4].Key)
	if !ok {
		t.Fatal("no key")
	}
	const huge = 100 << 20
	chunk := []byte(strings.Repeat("0123456789abcde\n", 1<<16))
	stream := refstore.Key{Partition: "LOG/" + key.Task.String() + "/" + key.Inputs.String() + "/" + a.run.Tasks[4].ExecutionID, Sort: string(executions.Stdout)}
	for at := int64(0); at < huge; at += int64(len(chunk)) {
		if err := a.records.Append(t.Context(), stream, at, chunk); err != nil {
			t.Fatal(err)
		}
	}
	a.store()
	var page string
	suite.Cheap(t, 5*time.Second, func() { page = a.page() })
	wantIn(t, page, "the last line", "the end of 146.5 KiB", "It printed nothing.", "xxxEND", "the end of 100.0 MiB")
	if len(page) > 200<<10 {
		t.Errorf("the page has %d bytes", len(page))
	}
	if n := strings.Count(page[strings.Index(page, `id="logs"`):], "a line of many"); n != 199 {
		t.Errorf("%d lines of the long log are shown, want 199 and the last", n)
	}
}

// The page says what is missing or cannot be shown.
func TestWhatIsMissing(t *testing.T) {
	a := newArchive(t)
	a.add(part{name: "gone", state: runview.TaskSuccess, gone: true, outputs: []output{{"", "m.json", "metrics", `{"a": 1}`}}})
	a.add(part{name: "binary", state: runview.TaskSuccess, outputs: []output{{"", "r.pdf", "report", "%PDF\x00"}}})
	a.add(part{name: "large", state: runview.TaskSuccess, outputs: []output{{"", "p.png", "plot", string(pixel) + strings.Repeat("x", 4<<20)}}})
	a.add(part{name: "long", state: runview.TaskSuccess, outputs: []output{{"", "r.txt", "report", strings.Repeat("words ", 20_000)}}})
	a.add(part{name: "wrong", state: runview.TaskSuccess, outputs: []output{{"", "m.json", "metrics", `{"a": `}}})
	var many []output
	for i := range 40 {
		many = append(many, output{name: fmt.Sprintf("p%02d.png", i), content: string(pixel)})
	}
	a.add(part{name: "many", state: runview.TaskSuccess, dir: true, kind: "plot", outputs: many})
	a.store()
	page := a.page()
	wantIn(t, page, "The outputs of gone cannot be shown: its execution is no longer in the repository.", "a format that a page cannot show", "too large for this page",
		"its first 64.0 KiB", "it is not JSON: unexpected EOF", "Of the directory dir of many only the first 24 files are shown.", "dir/p00.png", "dir/p23.png")
	if strings.Contains(page, "p24.png") {
		t.Error("there are more files of the directory than are said")
	}
}

// The run's record may be all that is left: no package, no events, no executions.
func TestBareRun(t *testing.T) {
	a := newArchive(t)
	a.run.State, a.run.CompletedAt, a.run.Live = record.RunRunning, time.Time{}, true
	a.run.Total, a.run.Done = 5, 1
	a.run.Tasks = []runview.TaskReport{{Task: "a", State: runview.TaskRunning, ExecutionID: "x", StartedAt: moment.At(now)}, {Task: "b"}}
	a.run.Provenance = &record.Provenance{Steps: []record.Step{{By: "bob@far", Repository: "/r", ImportedAt: now, ImportedBy: "ann@mill"}}}
	wantIn(t, a.page(), "running", "1 of 5 tasks done.", "1h00m so far", "not in the repository in a form that can be drawn",
		"from bob@far:/r on 2026-11-20 by ann@mill", "<b>4</b> waits")
}

func TestLargeRun(t *testing.T) {
	suite.Thorough(t)
	a := newArchive(t)
	a.add(part{name: "split", state: runview.TaskSuccess, took: time.Second})
	for i := range 9_998 {
		m := part{name: fmt.Sprintf("train[fold=%d,model=gbm]", i), state: runview.TaskSuccess, reads: []string{"split"}, took: time.Duration(i%50) * time.Second}
		switch {
		case i%100 == 7:
			m.state, m.stderr = runview.TaskFailed, strings.Repeat("it went wrong\n", 2_000)
		case i%3 == 0:
			m.state = runview.TaskCached
		case i%500 == 1:
			m.outputs = []output{{"", "m.json", "metrics", `{"a": 1}`}}
		}
		if i%2 == 0 {
			m.stdout = strings.Repeat("progress\n", 100)
		}
		a.add(m)
	}
	a.add(part{name: "report", state: runview.TaskSkipped})
	a.store()
	var page string
	suite.Cheap(t, 20*time.Second, func() { page = a.page() })
	if len(page) > 10e6 {
		t.Errorf("10,000 tasks: %d bytes, want less than 10 MB", len(page))
	}
	wantIn(t, page, "train ×9998", "10000 nodes are drawn as 3", "The longest 2000 of", "are left out to keep the page small")
	if path := os.Getenv("E3_REPORT_PAGE"); path != "" { // to look at it
		if err := os.WriteFile(path, []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

package ui_test

import (
	"bytes"
	"fmt"
	"image/color"
	"image/png"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"e3/internal/format/record"
	"e3/internal/insight/runview"
	"e3/internal/testing/browser"
)

// opened opens a file, and returns the page as it is once its script has run, and what the browser had to
// say about it.
func opened(tab *browser.Tab, file string) (dom string, said []string) {
	tab.Go("file://" + file)
	tab.Eval("document.documentElement.outerHTML", &dom)
	return dom, tab.Said()
}

// colours counts the pixels of the page in each colour.
func colours(t testing.TB, tab *browser.Tab, dark bool) map[color.RGBA]int {
	t.Helper()
	tab.Window(1280, 6000, dark)
	img, err := png.Decode(bytes.NewReader(tab.Shot()))
	if err != nil {
		t.Fatal(err)
	}
	counts := map[color.RGBA]int{}
	for y := img.Bounds().Min.Y; y < img.Bounds().Max.Y; y++ {
		for x := img.Bounds().Min.X; x < img.Bounds().Max.X; x++ {
			counts[color.RGBAModel.Convert(img.At(x, y)).(color.RGBA)]++
		}
	}
	return counts
}

func saved(t testing.TB, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "page.html")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func titleOf(tab *browser.Tab) (title string) {
	tab.Eval("document.title", &title)
	return title
}

const fileTitle = "prod: run 0194fdc2-fa2f-7cc0, failed · e3"

func TestFileOfARunInABrowser(t *testing.T) {
	tab := browser.Open(t)
	dom, said := opened(tab, saved(t, smallRun(t).page()))
	if len(said) > 0 {
		t.Errorf("the policy holds back parts of the page itself: %q", said)
	}
	if got := titleOf(tab); got != fileTitle {
		t.Errorf("title %q, want %q", got, fileTitle)
	}
	const rows = `[...document.querySelectorAll("#list tbody tr")].filter(r => !r.hidden).map(r => r.cells[0].innerText + " " + r.querySelector(".state").lastChild.textContent.trim() + " " + r.cells[2].innerText)`
	shows := func(when string, want ...string) {
		t.Helper()
		var got []string
		if tab.Eval(rows, &got); !slices.Equal(got, want) {
			t.Errorf("tasks %s\n got %q\nwant %q", when, got, want)
		}
	}
	clean, one, two, three, broken, after := "clean cached 2.0s", "train[0] success 1.0s", "train[1] success 2.0s", "train[2] success 3.0s", "broken failed 1.0s", "after skipped "
	shows("in the order of the run", clean, one, two, three, broken, after)
	head := func(name string) string {
		return `[...document.querySelectorAll("#list thead button")].find(b => b.textContent === "` + name + `").click()`
	}
	tab.Eval(head("Duration"), nil)
	shows("by duration", three, clean, two, one, broken, after)
	tab.Eval(head("Duration"), nil)
	shows("by duration, the shortest first", after, one, broken, clean, two, three)
	tab.Eval(`(() => { const e = document.getElementById("state"); e.value = "success"; e.dispatchEvent(new Event("change")) })()`, nil)
	shows("that succeeded", one, two, three)
	tab.Eval(`(() => { const e = document.getElementById("find"); e.value = "N[2"; e.dispatchEvent(new Event("input")) })()`, nil)
	shows("with a name", three)
	wantIn(t, dom, `<svg xmlns="http://www.w3.org/2000/svg" class="graph"`, `<svg class="line"`,
		`<th scope="col" class="num">accuracy</th>`, `<td class="num" title="0.123456789">0.123457</td>`,
		`alt="curve.png of train[1]"`, `<span class="t-1">ValueError</span>: no &lt;data&gt;`)
	if colours(t, tab, false)[color.RGBA{0xf6, 0xf7, 0xf9, 0xff}] < 10_000 {
		t.Error("the page does not have the colour that its style gives it")
	}
	if colours(t, tab, true)[color.RGBA{0x12, 0x16, 0x1c, 0xff}] < 10_000 {
		t.Error("the page is not dark where that is preferred")
	}
	for _, width := range []int{360, 420, 1280, 2560} {
		for _, dark := range []bool{false, true} {
			tab.Window(width, 900, dark)
			var wide int
			if tab.Eval("document.documentElement.scrollWidth", &wide); wide > width {
				t.Errorf("the page is %d wide in a window of %d", wide, width)
			}
			keepShot(t, tab, "file", width, dark)
		}
	}
	// Every link leads to a part of the page.
	var lost []string
	tab.Eval(`[...document.querySelectorAll("a")].map(a => a.getAttribute("href")).filter(h => !h || h[0] !== "#" || !document.getElementById(decodeURIComponent(h.slice(1))))`, &lost)
	if len(lost) > 0 {
		t.Errorf("links that lead nowhere: %q", lost)
	}
}

// Without its script a file has everything but sorting and filtering.
func TestFileWithoutScript(t *testing.T) {
	tab := browser.Open(t)
	tab.Script(false)
	tab.Go("file://" + saved(t, smallRun(t).page()))
	tab.Script(true)
	var dom string
	tab.Eval("document.documentElement.outerHTML", &dom)
	wantIn(t, dom, `role="search" aria-label="Tasks of the run" hidden="">`, `<th scope="col">Task</th>`, ": no &lt;data&gt;")
}

func TestFileRunsNothingOfOthers(t *testing.T) {
	tab := browser.Open(t)
	// A page without escaping shows that the mark works.
	tab.Go("file://" + saved(t, "<title>calm</title>"+hostileWords[0]))
	if got := titleOf(tab); got != "pwned" {
		t.Fatalf("a script that runs sets no mark: title %q", got)
	}
	dom, _ := opened(tab, saved(t, hostileRun(t).page()))
	if got := titleOf(tab); got != fileTitle {
		t.Errorf("title %q, want %q", got, fileTitle)
	}
	// Untrusted elements that are not text occur only in the attribute of a sandboxed frame.
	dom = regexp.MustCompile(` srcdoc="[^"]*"`).ReplaceAllString(dom, "")
	if found := withHandlers.FindAllString(dom, -1); len(found) > 0 {
		t.Errorf("elements with handlers: %q", found)
	}
	if n := strings.Count(dom, "<script"); n != 1 {
		t.Errorf("%d scripts, want the page's own", n)
	}
	if strings.Contains(dom, `aria-label="Tasks of the run" hidden`) {
		t.Error("the page's own script did not run")
	}
}

// The colours of documents in the page when they are shown, and when their scripts run.
var (
	shown  = color.RGBA{0x12, 0xab, 0x34, 0xff}
	ran    = color.RGBA{0xfe, 0x01, 0xdc, 0xff}
	drawn  = color.RGBA{0xcd, 0x56, 0x0a, 0xff}
	asHTML = func(c color.RGBA) string { return fmt.Sprintf("#%02x%02x%02x", c.R, c.G, c.B) }
)

// documentsRun is a run with a report and plots that try to contact a host.
func documentsRun(t testing.TB, host string) *archive {
	at := "http://" + host
	a := newArchive(t)
	page := `<!doctype html><html dns-prefetch="on"><head><base href="` + at + `/"><meta http-equiv="refresh" content="0;url=` + at + `/refresh">
<link rel="preconnect" href="` + at + `"><link rel="dns-prefetch" href="` + at + `"><link rel="stylesheet" href="` + at + `/s.css"><link rel="prefetch" href="` + at + `/p">
<link rel="icon" href="` + at + `/i"><link rel="manifest" href="` + at + `/m"><link rel="prerender" href="` + at + `/r"><LINK REL=preload AS=image HREF="` + at + `/l">
<style>@import url("` + at + `/i.css"); @font-face{font-family:f;src:url("` + at + `/f.woff")} body{background:` + asHTML(shown) + `;font-family:f} p{background-image:url("` + at + `/b.png")}</style>
<script>document.body.style.background="` + asHTML(ran) + `"; fetch("` + at + `/fetch")</script><script src="` + at + `/s.js"></script></head>
<body onload="document.body.style.background='` + asHTML(ran) + `'; new Image().src='` + at + `/onload'"><p>words</p><img src="` + at + `/img.png"><img srcset="` + at + `/set.png 2x">
<iframe src="` + at + `/frame"></iframe><iframe srcdoc="<img src='` + at + `/inner'>"></iframe><object data="` + at + `/object"></object><embed src="` + at + `/embed">
<video src="` + at + `/video" poster="` + at + `/poster" autoplay></video><audio src="` + at + `/audio" autoplay></audio><form action="` + at + `/form"><input autofocus onfocus="this.form.submit()"></form>
<svg><image href="` + at + `/image"/><use href="` + at + `/use#x"/></svg><table background="` + at + `/table"><tr><td>x</table></body></html>`
	svg := `<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" width="200" height="200"><style>@import url("` + at + `/svg.css");</style>
<script>fetch("` + at + `/svg")</script><image xlink:href="` + at + `/svgimage" width="9" height="9"/><rect width="200" height="200" fill="` + asHTML(drawn) + `"/></svg>`
	a.add(part{name: `<img src="` + at + `/name">`, state: runview.TaskSuccess, stdout: `<img src="` + at + `/log">`, outputs: []output{
		{"page", "page.html", "report", page}, {"plot", "plot.svg", "plot", svg}, {"md", "r.md", "report", `![x](` + at + `/md)`},
		{"m", "m.json", "metrics", `{"<img src='` + at + `/key'>": "<img src='` + at + `/value'>"}`},
	}})
	a.run.State = record.RunCompleted
	a.store()
	return a
}

// listen counts the connections to a port of this machine.
func listen(t testing.TB) (host string, seen *atomic.Int64) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	seen = &atomic.Int64{}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			seen.Add(1)
			c.Close()
		}
	}()
	return l.Addr().String(), seen
}

func TestFileAsksNothingOfTheNetwork(t *testing.T) {
	tab := browser.Open(t)
	host, seen := listen(t)
	// A page without a policy shows that requests are counted.
	tab.Go("file://" + saved(t, `<img src="http://`+host+`/">`))
	if seen.Load() == 0 {
		t.Fatal("the listener sees no request of a page that makes one")
	}
	seen.Store(0)
	tab.Go("file://" + saved(t, documentsRun(t, host).page()))
	counts := colours(t, tab, false) // loads everything, as a viewer does
	for range 20 {                   // the frames in a page are painted after it
		if counts[shown] >= 10_000 && counts[drawn] >= 10_000 {
			break
		}
		counts = colours(t, tab, false)
	}
	if n := seen.Load(); n > 0 {
		t.Errorf("the page made %d connections, want none", n)
	}
	if counts[shown] < 10_000 {
		t.Errorf("%d pixels of the report in HTML are seen: it is not shown, or not with its own style", counts[shown])
	}
	if counts[ran] > 0 {
		t.Error("a script of the report in HTML has run")
	}
	if counts[drawn] < 10_000 {
		t.Errorf("%d pixels of the plot are seen", counts[drawn])
	}
}

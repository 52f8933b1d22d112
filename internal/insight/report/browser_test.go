package report_test

import (
	"bytes"
	"context"
	"fmt"
	"image/color"
	"image/png"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"e3/internal/format/record"
	"e3/internal/insight/runview"
)

// A browser is a headless Chromium or a derivative.
type browser struct {
	t       testing.TB
	program string
}

func newBrowser(t testing.TB) *browser {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable"} {
		if program, err := exec.LookPath(name); err == nil {
			return &browser{t, program}
		}
	}
	t.Skip("there is no browser to open the page in: install chromium")
	return nil
}

// open opens a page and returns what the browser writes to standard output, and to standard error.
func (b *browser) open(page string, flags ...string) (stdout, stderr string) {
	b.t.Helper()
	home := b.t.TempDir()
	ctx, cancel := context.WithTimeout(b.t.Context(), 90*time.Second)
	defer cancel()
	args := append([]string{
		"--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
		"--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--enable-logging=stderr", "--user-data-dir=" + filepath.Join(home, "profile"),
	}, flags...)
	cmd := exec.CommandContext(ctx, b.program, append(args, "file://"+page)...)
	cmd.Env = append(os.Environ(), "HOME="+home, "XDG_CONFIG_HOME="+home, "XDG_CACHE_HOME="+home)
	cmd.WaitDelay = 5 * time.Second
	var out, log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &log
	if err := cmd.Run(); err != nil {
		b.t.Fatalf("%s: %v\n%.2000s", b.program, err, log.String())
	}
	return out.String(), log.String()
}

// offline makes every lookup of a host name fail.
const offline = "--host-resolver-rules=MAP * ~NOTFOUND"

// dom opens a page and returns it as it is once its script has run. refused has the browser's messages about blocked
// content.
func (b *browser) dom(page string, flags ...string) (dom string, refused []string) {
	b.t.Helper()
	dom, log := b.open(page, append(flags, "--dump-dom")...)
	for line := range strings.Lines(log) {
		if strings.Contains(line, "Content Security Policy") {
			refused = append(refused, strings.TrimSpace(line))
		}
	}
	return dom, refused
}

// colours opens a page and counts its pixels in each of the test's colours.
func (b *browser) colours(page string, flags ...string) map[color.RGBA]int {
	b.t.Helper()
	shot := filepath.Join(b.t.TempDir(), "page.png")
	b.open(page, append(flags, "--screenshot="+shot, "--window-size=1280,6000", "--hide-scrollbars")...)
	f, err := os.Open(shot)
	if err != nil {
		b.t.Fatal(err)
	}
	defer f.Close()
	img, err := png.Decode(f)
	if err != nil {
		b.t.Fatal(err)
	}
	counts := map[color.RGBA]int{}
	for y := img.Bounds().Min.Y; y < img.Bounds().Max.Y; y++ {
		for x := img.Bounds().Min.X; x < img.Bounds().Max.X; x++ {
			counts[color.RGBAModel.Convert(img.At(x, y)).(color.RGBA)]++
		}
	}
	return counts
}

func savePage(t testing.TB, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "page.html")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// title is the title of a page in the browser.
func title(t testing.TB, dom string) string {
	t.Helper()
	return between(t, dom, "<title>", "</title>")
}

func TestBrowserShowsTheRun(t *testing.T) {
	b := newBrowser(t)
	a := smallRun(t)
	page := savePage(t, a.page())
	dom, refused := b.dom(page, offline)
	if len(refused) > 0 {
		t.Errorf("the policy holds back parts of the page itself: %q", refused)
	}
	if got, want := title(t, dom), "prod: run 0194fdc2-fa2f-7cc0, failed"; got != want {
		t.Errorf("title %q, want %q", got, want)
	}
	var rows []string
	row := regexp.MustCompile(`<tr id="t\d+"><th scope="row">([^<]*)</th><td class="s-[a-z]+"><span class="state">([a-z]+)</span></td><td class="num"[^>]*>([^<]*)</td>`)
	for _, m := range row.FindAllStringSubmatch(dom, -1) {
		rows = append(rows, strings.Join(m[1:], " "))
	}
	if got, want := fmt.Sprint(rows), "[clean cached 2.0s train[0] success 1.0s train[1] success 2.0s train[2] success 3.0s broken failed 1.0s after skipped ]"; got != want {
		t.Errorf("tasks\n got %s\nwant %s", got, want)
	}
	wantIn(t, dom, `<svg xmlns="http://www.w3.org/2000/svg" class="graph"`, `<svg class="line"`,
		`<th scope="col" class="num">accuracy</th>`, `<td class="num" title="0.123456789">0.123457</td>`,
		`alt="curve.png of train[1]"`, "ValueError: no &lt;data&gt;",
		`<form id="filter">`, `<button type="button">Duration</button>`) // what the script has made
	light := b.colours(page, offline)
	if light[color.RGBA{0xf6, 0xf7, 0xf9, 0xff}] < 10_000 {
		t.Error("the page does not have the colour that its style gives it")
	}
	dark := b.colours(page, offline, "--blink-settings=preferredColorScheme=0")
	if dark[color.RGBA{0x12, 0x16, 0x1c, 0xff}] < 10_000 {
		t.Error("the page is not dark where that is preferred")
	}
}

// A page whose script does not run has everything but sorting and filtering.
func TestBrowserWithoutScript(t *testing.T) {
	b := newBrowser(t)
	page := smallRun(t).page()
	script := between(t, page, "<script>", "</script>")
	dom, _ := b.dom(savePage(t, strings.Replace(page, script, script+" ", 1)), offline) // another than the policy names
	wantIn(t, dom, `<form id="filter" hidden="">`, `<th scope="col">Task</th>`, "ValueError: no &lt;data&gt;")
}

func TestBrowserRunsNothingOfOthers(t *testing.T) {
	b := newBrowser(t)
	// A page without escaping shows that the mark works.
	dom, _ := b.dom(savePage(t, "<title>calm</title>"+hostileWords[0]), offline)
	if got := title(t, dom); got != "pwned" {
		t.Fatalf("a script that runs sets no mark: title %q", got)
	}
	dom, _ = b.dom(savePage(t, hostileRun(t).page()), offline)
	if got, want := title(t, dom), "prod: run 0194fdc2-fa2f-7cc0, failed"; got != want {
		t.Errorf("title %q, want %q", got, want)
	}
	// Untrusted elements that are not text occur only in the attribute of a sandboxed frame.
	dom = regexp.MustCompile(` srcdoc="[^"]*"`).ReplaceAllString(dom, "")
	if found := regexp.MustCompile(`<[a-z]+\b[^>]*\son[a-z]+=`).FindAllString(dom, -1); len(found) > 0 {
		t.Errorf("elements with handlers: %q", found)
	}
	if n := strings.Count(dom, "<script"); n != 1 {
		t.Errorf("%d scripts, want the page's own", n)
	}
	if !strings.Contains(dom, `<form id="filter">`) {
		t.Error("the page's own script did not run")
	}
}

// The colours of documents in the page when they are shown, and when their scripts run.
var (
	shown  = color.RGBA{0x12, 0xab, 0x34, 0xff}
	ran    = color.RGBA{0xfe, 0x01, 0xdc, 0xff}
	plot   = color.RGBA{0xcd, 0x56, 0x0a, 0xff}
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
<script>fetch("` + at + `/svg")</script><image xlink:href="` + at + `/svgimage" width="9" height="9"/><rect width="200" height="200" fill="` + asHTML(plot) + `"/></svg>`
	a.add(made{name: `<img src="` + at + `/name">`, state: runview.TaskSuccess, stdout: `<img src="` + at + `/log">`, outputs: []output{
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

func TestBrowserAsksNothingOfTheNetwork(t *testing.T) {
	b := newBrowser(t)
	host, seen := listen(t)
	// A page without a policy shows that requests are counted.
	b.dom(savePage(t, `<img src="http://`+host+`/">`))
	if seen.Load() == 0 {
		t.Fatal("the listener sees no request of a page that makes one")
	}
	seen.Store(0)
	page := savePage(t, documentsRun(t, host).page())
	counts := b.colours(page) // loads everything, as a viewer does
	if n := seen.Load(); n > 0 {
		t.Errorf("the page made %d connections, want none", n)
	}
	if counts[shown] < 10_000 {
		t.Errorf("%d pixels of the report in HTML are seen: it is not shown, or not with its own style", counts[shown])
	}
	if counts[ran] > 0 {
		t.Error("a script of the report in HTML has run")
	}
	if counts[plot] < 10_000 {
		t.Errorf("%d pixels of the plot are seen", counts[plot])
	}
}

package ui_test

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"e3/internal/format/record"
	"e3/internal/insight/runview"
	"e3/internal/testing/browser"
	"e3/internal/ui"
	"e3/objectstore"
)

// tab opens a browser that the bench's server lets in.
func (b *bench) tab() *browser.Tab {
	b.t.Helper()
	tab := browser.Open(b.t)
	c := b.cookie()
	tab.Cookie(b.front.URL, c.Name, c.Value)
	return tab
}

// keepShot writes a picture of the page to the folder that E3_SHOTS names, and returns it; nil without a folder.
func keepShot(t testing.TB, tab *browser.Tab, name string, width int, dark bool) []byte {
	t.Helper()
	dir := os.Getenv("E3_SHOTS")
	if dir == "" {
		return nil
	}
	shot := tab.Shot()
	if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%s-%d-%s.png", name, width, scheme(dark))), shot, 0o644); err != nil {
		t.Fatal(err)
	}
	return shot
}

func scheme(dark bool) string {
	if dark {
		return "dark"
	}
	return "light"
}

// A stage is a repository whose pages are looked at.
type stage struct {
	name  string
	write func(b *bench)
	views map[string]string
	acts  bool // with the forms of --actions
	slow  bool // not in the quick suite
}

// stages are runs that have failed, that are at work, that are done, and large ones.
func stages() []stage {
	large := func(n int) func(*bench) {
		return func(b *bench) {
			b.large(n)
			hash, err := objectstore.ParseHash(b.pkg.Tasks[0].Task)
			if err != nil {
				b.t.Fatal(err)
			}
			for i := 0; i < n; i += 100 {
				b.change(hash, i, 1)
			}
			if err := b.log.Flush(); err != nil {
				b.t.Fatal(err)
			}
		}
	}
	run := map[string]string{
		"workspaces": "/", "run": "/run?w=prod", "timeline": "/run?w=prod&view=timeline", "graph": "/run?w=prod&view=graph",
		"families": "/run?w=prod&by=family", "task": "/task?w=prod&t=" + urlOf("train7[3]"), "history": "/history?w=prod",
	}
	done := func(b *bench) {
		b.run(false, small()[:3]...)
		b.record(record.Run{
			RunID: b.id, WorkspaceName: "prod", PackageRef: "demo@1.0.0", StartedAt: b.began, CompletedAt: b.began.Add(time.Minute),
			State: record.RunCompleted, Summary: record.Summary{Total: 3, Completed: 3, Cached: 1},
		})
	}
	ended := maps.Clone(run)
	ended["task"], ended["experiments"] = "/task?w=prod&view=data&t="+urlOf("train[1]"), "/experiments?sides=prod@"
	return []stage{
		{name: "failed", write: func(b *bench) { b.rich(false) }, views: richViews()},
		{name: "live", write: func(b *bench) { b.rich(true) }, views: richViews(), acts: true},
		{name: "done", write: done, views: ended, slow: true},
		{name: "500", write: large(500), views: run, slow: true},
		{name: "10000", write: large(10_000), views: run, slow: true},
	}
}

// At each width nothing is wider than the window: only tables, drawings and logs scroll by themselves. Pictures of all pages, and
// sheets of them by stage, width and colours, go to the folder that E3_SHOTS names.
func TestPagesFitEveryWindow(t *testing.T) {
	for _, st := range stages() {
		if st.slow && testing.Short() {
			continue
		}
		t.Run(st.name, func(t *testing.T) { st.look(t) })
	}
}

func (st *stage) look(t *testing.T) {
	b := newBench(t)
	st.write(b)
	o := ui.Options{}
	if st.acts {
		o.Actions = &deeds{}
	}
	b.serve(o)
	tab := b.tab()
	widths, schemes := []int{360, 1280, 1920, 2560}, []bool{false, true}
	if testing.Short() {
		widths, schemes = widths[:1], schemes[:1]
	}
	sheets := map[string]*browser.Sheet{}
	for _, name := range slices.Sorted(maps.Keys(st.views)) {
		tab.Go(b.front.URL + st.views[name])
		for _, width := range widths {
			for _, dark := range schemes {
				tab.Window(width, 900, dark)
				var wide int
				tab.Eval("document.documentElement.scrollWidth", &wide)
				if wide > width {
					t.Errorf("%s is %d wide in a window of %d", name, wide, width)
				}
				shot := keepShot(t, tab, st.name+"-"+name, width, dark)
				if shot == nil {
					continue
				}
				sheet := fmt.Sprintf("sheet-%s-%d-%s.png", st.name, width, scheme(dark))
				if sheets[sheet] == nil {
					sheets[sheet] = browser.NewSheet(t, 5)
				}
				sheets[sheet].Add(shot)
			}
		}
		if said := tab.Said(); len(said) > 0 && name != "fault" && (st.acts || name != "sign") { // which are not there
			t.Errorf("%s: %q", name, said)
		}
	}
	for file, sheet := range sheets {
		sheet.Write(filepath.Join(os.Getenv("E3_SHOTS"), file))
	}
}

// hostile are names and texts that run where a page forgets to escape them.
var hostile = []string{
	`<script>document.title="pwned"</script>`, `"><img src=x onerror="document.title='pwned'">`, `'-document.title='pwned'-'`,
	`</pre><svg onload="document.title='pwned'">`, `javascript:document.title="pwned"`, `{{.}}`, "a\u202eb\x00\x1b]0;pwned\x07",
}

func TestNothingOfTasksRuns(t *testing.T) {
	b := newBench(t)
	var list []made
	for i, h := range hostile {
		list = append(list, made{name: fmt.Sprintf("t%d %s", i, h), state: runview.TaskSuccess, stdout: h + "\n", stderr: h, file: "o" + h, output: `{"` + "k" + `": "v"}`, kind: "metrics"})
	}
	page := `<!doctype html><html><head><title>x</title><script>parent.document.title="pwned";top.location="/x"</script></head><body onload="top.document.title='pwned'">words</body></html>`
	svg := `<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9" onload="document.title='pwned'"><script>document.title="pwned"</script><rect width="9" height="9"/></svg>`
	list = append(list,
		made{name: "page", state: runview.TaskSuccess, file: "p.html", output: page, kind: "report"},
		made{name: "svg", state: runview.TaskSuccess, file: "p.svg", output: svg, kind: "plot"},
		made{name: "metrics", state: runview.TaskSuccess, file: "m.json", output: `{"<img src=x onerror=document.title='pwned'>": "<script>document.title='pwned'</script>"}`, kind: "metrics"},
		made{name: "failed", state: runview.TaskError, message: hostile[0], file: "x"},
	)
	b.run(false, list...)
	b.serve(ui.Options{})
	tab := b.tab()
	paths := []string{"/run?w=prod", "/run?w=prod&view=timeline", "/run?w=prod&view=graph", "/run?w=prod&q=" + urlOf(hostile[1]), "/task?w=prod&t=" + urlOf(hostile[0]), "/run?w=prod&by=family"}
	if testing.Short() {
		list = append(list[:1:1], list[len(list)-4:]...)
	}
	for _, m := range list {
		for _, view := range []string{"", "data", "history"} {
			paths = append(paths, "/task?w=prod&t="+urlOf(m.name)+"&view="+view)
		}
		paths = append(paths, "/task?w=prod&t="+urlOf(m.name)+"&log=stderr&find="+urlOf(hostile[1]))
	}
	for _, path := range paths {
		tab.Go(b.front.URL + path)
		var title string
		tab.Eval("document.title", &title)
		if title == "pwned" || !strings.HasSuffix(title, "· e3") {
			t.Errorf("%s: title %q", path, title)
		}
		var scripts, handlers int
		tab.Eval("document.scripts.length", &scripts)
		tab.Eval("[...document.querySelectorAll('*')].filter(e => [...e.attributes].some(a => a.name.startsWith('on') || a.value.startsWith('javascript:') && a.name !== 'value')).length", &handlers)
		if scripts != 1 || handlers > 0 {
			t.Errorf("%s: %d scripts and %d handlers, want the page's own one", path, scripts, handlers)
		}
	}
	// Content that a browser shows by itself runs nothing either.
	for _, name := range []string{"page", "svg"} {
		data := b.page("/task?w=prod&t=" + name + "&view=data")
		at, _ := link(t, data, `(?:src|href)="(/content[^"]*)"()`)
		tab.Go(b.front.URL + at)
		var title string
		tab.Eval("document.title", &title)
		if title == "pwned" {
			t.Errorf("%s: its script ran", name)
		}
	}
}

// The pages are complete without scripts.
func TestPagesWithoutScript(t *testing.T) {
	b := newBench(t)
	b.run(false, small()...)
	b.serve(ui.Options{})
	page := b.page("/run?w=prod")
	wantIn(t, page, `id="t-train[2]"`, `href="/task?t=train%5B2%5D&amp;w=prod"`, "Where the time went", "e3 run /srv/e3 prod")
	page = b.page("/task?w=prod&t=broken")
	wantIn(t, page, `<span class="t-1">ValueError</span>: no &lt;data&gt;`, `id="L1"`, "exit code 3")
	page = b.page("/task?w=prod&t=train[2]&view=data")
	wantIn(t, page, ">accuracy<", ">0.7<")
	b = newBench(t)
	b.rich(false)
	b.serve(ui.Options{})
	for name, path := range richViews() {
		if name == "fault" || name == "sign" { // no such run, and no such task in a run that has ended
			continue
		}
		if page := b.page(path); strings.Contains(page, "onclick") || strings.Count(page, "<script") != 1 || strings.Contains(page, "style=") {
			t.Errorf("%s has scripts or styles of its own", path)
		} else if i := strings.Index(page, "%!"); i >= 0 { // what fmt says of a wrong argument
			t.Errorf("%s: %.60q", path, page[i:])
		}
	}
}

// A live page changes in its place: what a person types and where a person is stays.
func TestLivePagesKeepTheirPlace(t *testing.T) {
	b := newBench(t)
	b.run(true, small()[:3]...)
	b.serve(ui.Options{})
	tab := b.tab()
	tab.Go(b.front.URL + "/run?w=prod")
	tab.Until(`document.getElementById("live").textContent === "live"`)
	tab.Eval(`(() => { const q = document.querySelector("input[name=q]"); q.focus(); q.value = "half a wor"; document.getElementById("t-clean").marked = true })()`, nil)
	b.tell(lateTask())
	tab.Until(`document.getElementById("t-late") !== null`)
	var kept bool
	tab.Eval(`document.activeElement === document.querySelector("input[name=q]") && document.activeElement.value === "half a wor" && document.getElementById("t-clean").marked === true`, &kept)
	if !kept {
		t.Error("the focus, the text or the row was replaced")
	}
	if said := tab.Said(); len(said) > 0 {
		t.Errorf("%q", said)
	}
}

// A page that is told of a change while it is hidden, and before it has looked, looks when it is shown.
func TestHiddenPagesMakeUp(t *testing.T) {
	b := newBench(t)
	b.run(true, small()[:3]...)
	b.serve(ui.Options{})
	tab := b.tab()
	tab.Go(b.front.URL + "/run?w=prod")
	tab.Until(`document.getElementById("live").textContent === "live"`)
	tab.Eval(`window.asked = 0; window.hide = true; Object.defineProperty(document, "hidden", {get() { asked++; return hide }, configurable: true}); 1`, nil)
	b.tell(lateTask())
	tab.Until(`asked > 0`)
	tab.Eval(`hide = false; document.dispatchEvent(new Event("visibilitychange"))`, nil)
	tab.Until(`document.getElementById("t-late") !== null`)
}

// Where the repository is gone, a page says so in place of nothing. An open page keeps what it shows, and goes on when the repository is there
// again.
func TestRepositoryGone(t *testing.T) {
	b := newBench(t)
	b.run(true, small()[:3]...)
	var gone atomic.Bool
	b.serve(ui.Options{Here: func() error {
		if gone.Load() {
			return errors.New("stat /srv/e3: no such file or directory")
		}
		return nil
	}})
	tab := b.tab()
	tab.Go(b.front.URL + "/run?w=prod")
	tab.Until(`document.getElementById("live").textContent === "live"`)
	gone.Store(true)
	for _, path := range []string{"/", "/run?w=prod", "/queue", "/store"} {
		if status, text := b.get(path); status != http.StatusServiceUnavailable || !strings.Contains(text, "the repository is not there: stat /srv/e3") {
			t.Errorf("%s: %d, without what is wrong", path, status)
		}
	}
	b.tell(lateTask())
	tab.Until(`document.getElementById("live").textContent.startsWith("the repository does not answer")`)
	var kept bool
	if tab.Eval(`document.getElementById("t-clean") !== null`, &kept); !kept {
		t.Error("what the page showed is gone")
	}
	gone.Store(false)
	tab.Until(`document.getElementById("t-late") !== null && document.getElementById("live").textContent === "live"`)
}

// A hidden tab closes its stream. Shown again, it shows what has happened meanwhile.
func TestHiddenTabsCloseTheStream(t *testing.T) {
	b := newBench(t)
	b.run(true, small()[:3]...)
	b.serve(ui.Options{})
	tab := b.tab()
	tab.Go(b.front.URL + "/run?w=prod")
	tab.Until(`document.getElementById("live").textContent === "live"`)
	turn := func(hidden bool) {
		tab.Eval(fmt.Sprintf(`Object.defineProperty(document, "hidden", {value: %v, configurable: true}); document.dispatchEvent(new Event("visibilitychange"))`, hidden), nil)
	}
	turn(true)
	for b.server.Streams() > 0 {
		runtime.Gosched()
		if t.Context().Err() != nil {
			t.Fatal("the stream stays open")
		}
	}
	b.tell(lateTask())
	turn(false)
	tab.Until(`document.getElementById("t-late") !== null`)
}

//go:build linux

package e2e

import (
	"cmp"
	"encoding/json"
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"e3/internal/testing/browser"
)

// liveGraph has a family in which one task fails, one succeeds in its second attempt and one lasts until it is released, and a task that
// waits for approval.
const liveGraph = `
e3: 1
name: live
inputs:
  a: {file: a.txt}
tasks:
  fit:
    matrix: {n: [%s]}
    in: [a]
    out: fit.txt
    retries: 1
    pass_env: [E2E_STATE]
    run: |
      if [ "$n" = 3 ]; then echo "no <b>data</b> in 3" >&2; exit 7; fi
      if [ "$n" = 5 ]; then mkdir "$E2E_STATE/tried" && exit 9; fi
      if [ "$n" = 7 ]; then until test -e "$E2E_STATE/release"; do sleep 0.05; done; fi
      echo "$n" > "$out"
  sign:
    in: ["fit[1]"]
    out: signed.txt
    approve: true
    run: echo signed > "$out"
  publish: {in: [sign], out: p.txt, run: 'cp "$sign" "$out"'}
`

// livePages are pages of every kind.
var livePages = map[string]string{
	"workspaces": "/", "run": "/run?w=live", "timeline": "/run?w=live&view=timeline", "graph": "/run?w=live&view=graph", "families": "/run?w=live&by=family",
	"failed": "/task?w=live&t=fit%5B3%5D", "why": "/task?w=live&t=fit%5B5%5D&view=why", "data": "/task?w=live&t=fit%5B1%5D&view=data", "attempts": "/task?w=live&t=fit%5B5%5D&view=history",
	"waits": "/task?w=live&t=sign", "history": "/history?w=live", "compare": "/compare?w=live", "queue": "/queue", "experiments": "/experiments", "store": "/store",
}

// A livePage is a browser with the pages of a program that serves them.
type livePage struct {
	*browser.Tab
	t  *testing.T
	at string
}

func (p *livePage) open(path string) {
	p.t.Helper()
	p.Go(p.at + path)
	if said := p.Said(); len(said) > 0 {
		p.t.Errorf("%s: %q", path, said)
	}
}

// press clicks the button of a form with a text, and waits for what the program says to that.
func (p *livePage) press(form, button, note string) string {
	p.t.Helper()
	p.Follow(fmt.Sprintf(`const f = document.querySelector(%q); const n = f.querySelector("input[name=note]"); if (n) n.value = %q; [...f.querySelectorAll("button")].find(b => b.textContent === %q).click()`, form, note, button))
	var said string
	p.Eval(`document.querySelector("main") ? document.querySelector("h1").textContent + ": " + document.querySelector("p.lead").textContent : document.body.textContent`, &said)
	return said
}

// states are the tasks of the run as the pages of its list show them.
func (p *livePage) states(tasks int) map[string]string {
	p.t.Helper()
	all := map[string]string{}
	for page := 1; page == 1 || (page-1)*100 < tasks; page++ {
		p.open(fmt.Sprintf("/run?w=live&page=%d&still=1", page))
		var part map[string]string
		p.Eval(`Object.fromEntries([...document.querySelectorAll("tr[id^='t-']")].map(r => [r.id.slice(2), r.querySelector(".state").lastChild.textContent.trim()]))`, &part)
		for task, state := range part {
			all[task] = state
		}
	}
	return all
}

// TestLiveRunInTheBrowser follows a run of 500 tasks with a failure, a retry and an approval in the browser, while it is at work: the
// pages show what the command says, and do what they offer. Pages of other origins do nothing.
func TestLiveRunInTheBrowser(t *testing.T) {
	n := 500
	if testing.Short() || raceBuild {
		n = 30
	}
	numbers := make([]string, n)
	for i := range numbers {
		numbers[i] = fmt.Sprint(i)
	}
	tasks := n + 2
	p := newProjectBelow(t, inMemory(), map[string]string{"e3.yaml": fmt.Sprintf(liveGraph, strings.Join(numbers, ", ")), "a.txt": "a\n"})
	run := p.spawn("start", "-f", "e3.yaml", "--progress", "none")
	defer run.kill(true)
	p.eventuallyRuns(t, "live")
	x := p.spawn("ui", ".", "live", "--no-open", "--json", "--actions")
	defer x.kill(true)
	var doc struct{ URL string }
	if err := json.Unmarshal([]byte(<-x.lines), &doc); err != nil {
		t.Fatal(err)
	}
	at, _, _ := strings.Cut(doc.URL, "/login")
	tab := &livePage{browser.Open(t), t, at}
	ask, err := http.NewRequestWithContext(t.Context(), "GET", doc.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultTransport.RoundTrip(ask)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	for _, c := range answer.Cookies() {
		tab.Cookie(at, c.Name, c.Value)
	}
	tab.open("/run?w=live")

	// The page that is open all the time comes to show what has happened.
	tab.Until(`[...document.querySelectorAll(".failures a")].some(a => a.textContent === "fit[3]")`)
	tab.Until(`[...document.querySelectorAll("section[aria-labelledby=waiting-h] a")].some(a => a.textContent === "sign")`)
	tab.Until(fmt.Sprintf(`document.querySelector(".counts .s-success b").textContent === "%d"`, n-2))
	tab.open("/task?w=live&t=fit%5B3%5D")
	tab.Until(`document.querySelector(".log").textContent.includes("no <b>data</b> in 3")`)
	tab.open("/task?w=live&t=fit%5B5%5D&view=history")
	var attempts []string
	tab.Eval(`[...document.querySelectorAll("main table tbody .state")].map(s => s.lastChild.textContent.trim())`, &attempts)
	if !slices.Contains(attempts, "success") || !slices.Contains(attempts, "failed") {
		t.Errorf("the attempts of the task that was tried twice: %q", attempts)
	}
	p.sameStates(tab, tasks)
	for _, path := range livePages {
		tab.open(path)
	}
	shots(t, tab)

	// A page of another origin on this machine, to which the browser sends the cookie, and requests without one.
	evil := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, `<!doctype html><form method="post" action="%s/do/%s"><input name="w" value="live"><input name="t" value="sign"><input name="note" value="mine"></form>`, at, html.EscapeString(r.URL.Query().Get("do")))
	}))
	defer evil.Close()
	for _, what := range []string{"approve", "cancel"} {
		tab.Go(evil.URL + "/?do=" + what)
		tab.Follow("document.forms[0].submit()")
		var text string
		tab.Eval("document.body.textContent", &text)
		if !strings.Contains(text, "other site") && !strings.Contains(text, "another site") && !strings.Contains(text, "origin") {
			t.Errorf("%s by a page of another origin: %q", what, text)
		}
	}
	tab.Go(at + "/queue")
	_ = tab.Said() // of the refusals
	if status := p.must("status", ".", "live", "--json").stdout; !strings.Contains(status, `"sign"`) {
		t.Errorf("sign waits no more:\n%s", status)
	}

	tab.open("/run?w=live")
	if said := tab.press("form[action='/do/approve']", "Approve", "seen in the browser"); !strings.HasPrefix(said, "Done: ") {
		t.Errorf("approval: %q", said)
	}
	tab.open("/run?w=live&q=publish")
	tab.Until(`document.getElementById("t-publish") !== null && document.getElementById("t-publish").querySelector(".s-success") !== null`)
	if events := p.must("events", ".", "live", "--json").stdout; !strings.Contains(events, "seen in the browser") {
		t.Error("no event has the note of the approval")
	}
	p.write("state/release", "")
	tab.open("/run?w=live")
	tab.Until(`document.querySelector("h1 .badge").textContent.includes("failed")`)
	if r := run.wait(); r.code != 1 {
		t.Errorf("the run: exit code %d\n%s", r.code, r.text())
	}
	p.sameStates(tab, tasks)

	// Another run is started and cancelled by the pages.
	if err := os.Remove(p.path("state/release")); err != nil {
		t.Fatal(err)
	}
	p.write("a.txt", "b\n")
	tab.open("/")
	if said := tab.press("form[action='/do/start']", "Start", ""); !strings.Contains(said, "Started live") {
		t.Errorf("start: %q", said)
	}
	tab.open("/run?w=live")
	tab.Until(`document.querySelector("form[action='/do/cancel']") !== null`)
	if said := tab.press("form[action='/do/cancel']", "Cancel this run", "enough seen"); !strings.HasPrefix(said, "Done: ") {
		t.Errorf("cancel: %q", said)
	}
	tab.open("/run?w=live")
	tab.Until(`document.querySelector("h1 .badge").textContent.includes("cancelled") && document.querySelector("main").textContent.includes("enough seen")`)
}

// eventuallyRuns waits until a run of a workspace is at work.
func (p *project) eventuallyRuns(t *testing.T, ws string) {
	t.Helper()
	eventually(t, patience, "the run begins", func() string {
		if r := p.spawn("run", ".", ws, "--json").wait(); r.code != 0 {
			return r.text()
		}
		return ""
	})
}

// sameStates compares what the pages of a run's list show with what the command says, when both have come to the same point.
func (p *project) sameStates(tab *livePage, tasks int) {
	tab.t.Helper()
	var doc struct {
		Tasks []struct{ Task, State string }
	}
	if err := json.Unmarshal([]byte(p.must("run", ".", "live", "--json").stdout), &doc); err != nil {
		tab.t.Fatal(err)
	}
	got := tab.states(tasks)
	if len(got) != len(doc.Tasks) || len(got) == 0 {
		tab.t.Errorf("%d tasks in the pages, %d in the command's answer", len(got), len(doc.Tasks))
	}
	for _, task := range doc.Tasks {
		if got[task.Task] != task.State {
			tab.t.Errorf("%s is %q in the page, want %q", task.Task, cmp.Or(got[task.Task], "missing"), task.State)
		}
	}
}

// shots puts pictures of the pages into the folder that E3_SHOTS names.
func shots(t *testing.T, tab *livePage) {
	dir := os.Getenv("E3_SHOTS")
	if dir == "" {
		return
	}
	for name, path := range livePages {
		for _, width := range []int{360, 1280, 2560} {
			for _, dark := range []bool{false, true} {
				tab.Window(width, 900, dark)
				tab.open(path + map[bool]string{true: "&", false: "?"}[strings.Contains(path, "?")] + "still=1")
				file := fmt.Sprintf("live-%s-%d-%s.png", name, width, map[bool]string{true: "dark", false: "light"}[dark])
				if err := os.WriteFile(filepath.Join(dir, file), tab.Shot(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	tab.Window(1280, 900, false)
}

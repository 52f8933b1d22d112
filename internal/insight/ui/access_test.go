package ui_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"

	"e3/internal/insight/ui"
)

// violation is a rule of axe-core that a page breaks.
type violation struct {
	ID    string `json:"id"`
	Help  string `json:"help"`
	Nodes []struct {
		HTML    string `json:"html"`
		Summary string `json:"failureSummary"`
	} `json:"nodes"`
}

// axe-core finds nothing on any page, in both schemes.
func TestPagesAreAccessible(t *testing.T) {
	path := os.Getenv("E3_AXE")
	if path == "" {
		t.Skip("axe-core is not here: npm install axe-core somewhere, and let E3_AXE name its axe.min.js")
	}
	script, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b := newBench(t)
	b.run(false, small()...)
	b.serve(ui.Options{Actions: &deeds{}})
	tab := b.tab()
	for name, path := range views() {
		for _, dark := range []bool{false, true} {
			tab.Window(1280, 900, dark)
			tab.Go(b.front.URL + path)
			tab.Eval(string(script)+"; 1", nil)
			var found string
			tab.Eval(`axe.run(document, {runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}).then(r => JSON.stringify(r.violations))`, &found)
			var list []violation
			if err := json.Unmarshal([]byte(found), &list); err != nil {
				t.Fatal(err)
			}
			for _, v := range list {
				t.Errorf("%s, dark %v: %s: %s", name, dark, v.ID, v.Help)
				for _, n := range v.Nodes[:min(len(v.Nodes), 3)] {
					t.Logf("  %.300s\n  %.300s", n.HTML, n.Summary)
				}
			}
		}
	}
}

// With the keyboard alone: the first stop skips to the content, every link and field of a page is reached, each shows where the focus is,
// and Enter follows a link.
func TestKeyboardWalk(t *testing.T) {
	b := newBench(t)
	b.run(false, small()...)
	b.serve(ui.Options{})
	tab := b.tab()
	tab.Window(1280, 900, false)
	walked := views()
	if testing.Short() {
		walked = map[string]string{"run": walked["run"], "task": walked["task"]}
	}
	for name, path := range walked {
		tab.Go(b.front.URL + path)
		var want int
		tab.Eval(`[...document.querySelectorAll("a[href], button, input:not([type=hidden]), select, [tabindex='0'], summary, iframe")].filter(e => e.tabIndex >= 0 && e.getClientRects().length && e.tagName !== "IFRAME").length`, &want)
		tab.Eval(`window.seen = new Set(); window.hidden_ = []; 1`, nil)
		for i := range want + 3 {
			tab.Press("Tab", 9)
			var at string
			tab.Eval(`(() => { const e = document.activeElement; if (!e || e === document.body) return ""; seen.add(e); const s = getComputedStyle(e); if (s.outlineStyle === "none" || s.outlineWidth === "0px") hidden_.push(e.outerHTML.slice(0, 80)); return e.className + " " + e.textContent.slice(0, 20) })()`, &at)
			if i == 0 && !strings.HasPrefix(at, "skip") {
				t.Errorf("%s: the first stop is %q, want the link to the content", name, at)
			}
		}
		var got int
		var hidden []string
		tab.Eval("seen.size", &got)
		tab.Eval("hidden_", &hidden)
		if got < want {
			t.Errorf("%s: %d of %d stops are reached", name, got, want)
		}
		if len(hidden) > 0 {
			t.Errorf("%s: no focus is seen on %q", name, hidden)
		}
	}
	tab.Go(b.front.URL + "/run?w=prod")
	tab.Eval(`document.querySelector("#t-broken a").focus()`, nil)
	tab.Press("Enter", 13)
	tab.Until(`location.pathname === "/task" && document.readyState === "complete"`)
	var heading string
	tab.Eval(`document.querySelector("h1").textContent`, &heading)
	if !strings.HasPrefix(heading, "broken") {
		t.Errorf("Enter leads to %q", heading)
	}
}

// The script is typed by its comments.
func TestScriptIsTyped(t *testing.T) {
	tsc, err := exec.LookPath("tsc")
	if err != nil {
		t.Skip("tsc is not on the PATH: npm install -g typescript")
	}
	out, err := exec.Command(tsc, "--noEmit", "--allowJs", "--checkJs", "--strict", "--target", "es2022", "--lib", "es2022,dom,dom.iterable", "--module", "esnext", "static/ui.js").CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

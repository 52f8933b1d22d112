package ui_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"e3/internal/testing/browser"
	"e3/internal/ui"
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

// axe-core finds nothing on any page, wide and narrow, light and dark: pages that only show, forms, files of an export, and a report.
func TestPagesAreAccessible(t *testing.T) {
	path := os.Getenv("E3_AXE")
	if path == "" {
		t.Skip("axe-core is not here: npm install axe-core somewhere, and let E3_AXE name its axe.min.js")
	}
	script, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	look := func(tab *browser.Tab, name, address string) {
		t.Helper()
		tab.Go(address)
		tab.Eval(string(script)+"; 1", nil)
		for _, width := range []int{360, 1280} {
			for _, dark := range []bool{false, true} {
				tab.Window(width, 900, dark)
				var found string
				tab.Eval(`axe.run(document, {runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}).then(r => JSON.stringify(r.violations))`, &found)
				var list []violation
				if err := json.Unmarshal([]byte(found), &list); err != nil {
					t.Fatal(err)
				}
				for _, v := range list {
					t.Errorf("%s, %d wide, dark %v: %s: %s", name, width, dark, v.ID, v.Help)
					for _, n := range v.Nodes[:min(len(v.Nodes), 3)] {
						t.Logf("  %.300s\n  %.300s", n.HTML, n.Summary)
					}
				}
			}
		}
	}
	for _, live := range []bool{false, true} {
		b := newBench(t)
		b.rich(live)
		o := ui.Options{}
		if live {
			o.Actions = &deeds{}
		}
		b.serve(o)
		tab := b.tab()
		for name, path := range richViews() {
			look(tab, fmt.Sprintf("%s, live %v", name, live), b.front.URL+path)
		}
		if live {
			continue
		}
		dir := t.TempDir()
		if _, err := b.server.Export(t.Context(), "prod", runID, nil, folder(dir)); err != nil {
			t.Fatal(err)
		}
		files, err := filepath.Glob(filepath.Join(dir, "*.html"))
		if err != nil || len(files) < 20 {
			t.Fatalf("%d files, %v", len(files), err)
		}
		for _, file := range files {
			if n := filepath.Base(file); !strings.HasPrefix(n, "task-") || strings.HasPrefix(n, "task-3") { // one task stands for all
				look(tab, n, "file://"+file)
			}
		}
		look(tab, "report", "file://"+saved(t, b.report()))
	}
}

// folder is where files of an export go.
type folder string

func (f folder) Write(name string, data []byte) error {
	return os.WriteFile(filepath.Join(string(f), name), data, 0o600)
}

// report is the report of the run.
func (b *bench) report() string {
	b.t.Helper()
	r, err := b.stores.Runs.Report(b.t.Context(), "prod", "")
	if err != nil {
		b.t.Fatal(err)
	}
	var page bytes.Buffer
	if err := ui.WriteRun(b.t.Context(), &page, b.stores, r, ui.Options{Now: func() time.Time { return now }, Version: "9.9", Repository: "/srv/e3"}); err != nil {
		b.t.Fatal(err)
	}
	return page.String()
}

// With the keyboard alone: the first stop skips to the content, every link and field of a page is reached, each shows where the focus is,
// and Enter follows a link.
func TestKeyboardWalk(t *testing.T) {
	b := newBench(t)
	b.rich(true)
	b.serve(ui.Options{Actions: &deeds{}}) // with forms, so that these are walked through as well
	tab := b.tab()
	tab.Window(1280, 900, false)
	walked := map[string]string{"report": "file://" + saved(t, b.report())}
	for name, path := range richViews() {
		walked[name] = b.front.URL + path
	}
	if testing.Short() {
		walked = map[string]string{"run": walked["run"], "task": walked["task"]}
	}
	for name, address := range walked {
		tab.Go(address)
		var want int
		tab.Eval(`[...document.querySelectorAll("a[href], button, input:not([type=hidden]), select, [tabindex='0'], summary, iframe")].filter(e => e.tabIndex >= 0 && e.getClientRects().length && e.checkVisibility() && e.tagName !== "IFRAME").length`, &want)
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
	out, err := exec.Command(tsc, "--noEmit", "--allowJs", "--checkJs", "--strict", "--target", "es2022", "--lib", "es2022,dom,dom.iterable", "--moduleDetection", "force", "--module", "esnext", "static/ui.js", "static/file.js", "static/curves.js").CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"e3/internal/human"
	"e3/internal/insight/compare"
	"e3/internal/insight/history"
	"e3/internal/insight/runview"
	"e3/internal/insight/stats"
	"e3/internal/jobs/approval"
	"e3/internal/testing/browser"
	"e3/internal/ui"
	"e3/workspace"
)

// uiProject has cached and failed tasks, retries, an approval, a family, and metrics that differ between its two runs.
const uiProject = `e3: 1
name: prod
inputs:
  rows: {file: rows.csv}
  rate: {value: 0.5}
tasks:
  clean:
    in: [rows]
    out: clean.csv
    run: cat "$rows" > "$out"
  train:
    matrix: {n: [%s]}
    in: [clean, rate]
    retries: 1
    out: {scores: {file: m.json, kind: metrics}, log: log.txt}
    run: |
      echo "item $n"; echo "warning of $n" >&2
      [ "$n" -ne 3 ]
      echo "{\"loss\": $rate}" > "$scores"; echo ok > "$log"
  after:
    in: [train]
    out: {file: a.txt}
    run: echo > "$out"
  publish:
    in: [clean]
    approve: true
    out: done.txt
    run: echo done > "$out"
`

// uiStage is a project whose pages are served.
type uiStage struct {
	t      *testing.T
	client *http.Client
	at     string
}

func newUIStage(t *testing.T, items int) *uiStage {
	t.Helper()
	t.Chdir(t.TempDir())
	t.Setenv("E3_REPO", "")
	numbers := make([]string, items)
	for i := range numbers {
		numbers[i] = fmt.Sprint(i + 1)
	}
	s := &uiStage{t: t}
	write := func(name, text string) {
		if err := os.WriteFile(name, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	project := fmt.Sprintf(strings.Replace(uiProject, "{file: a.txt}", "a.txt", 1), strings.Join(numbers, ", "))
	project = strings.Replace(project, "in: [train]", "in: {three: 'train[3].log'}", 1)
	write("e3.yaml", project)
	write("rows.csv", "a,b\n1,2\n")
	if err := os.MkdirAll(".git/refs/heads", 0o777); err != nil {
		t.Fatal(err)
	}
	write(".git/HEAD", "ref: refs/heads/main\n")
	write(".git/refs/heads/main", strings.Repeat("abcd", 10)+"\n")
	s.e3("start", "-f", "e3.yaml", "--no-wait", "--progress", "none")
	write("e3.yaml", strings.Replace(project, "0.5", "0.25", 1))
	s.e3("start", ".", "prod", "--no-wait", "--progress", "none")

	s.serve()
	return s
}

// serve begins to serve the pages of the repository in the present folder.
func (s *uiStage) serve() {
	s.t.Helper()
	a := newApp()
	r, err := a.open(s.t.Context(), ".")
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { r.Close() })
	server := ui.New(s.t.Context(), uiStores(a, r), ui.Options{Repository: ".", Version: "9.9"})
	front := httptest.NewServer(server.Handler())
	s.t.Cleanup(front.Close)
	jar, err := cookiejar.New(nil)
	if err != nil {
		s.t.Fatal(err)
	}
	s.client, s.at = &http.Client{Jar: jar}, front.URL
	s.page(server.Login(ui.Start("")))
}

// e3 runs a command and returns what it prints.
func (s *uiStage) e3(args ...string) string {
	s.t.Helper()
	var out, said bytes.Buffer
	a := newApp()
	a.Stdout, a.Stderr = &out, &said
	if code := run(s.t.Context(), args, a); code > 1 || code == 1 && args[0] != "start" {
		s.t.Fatalf("e3 %s: exit code %d: %s", strings.Join(args, " "), code, said.String())
	}
	return out.String()
}

// json runs a command with --json.
func (s *uiStage) json(into any, args ...string) {
	s.t.Helper()
	if err := json.Unmarshal([]byte(s.e3(append(args, "--json")...)), into); err != nil {
		s.t.Fatal(err)
	}
}

func (s *uiStage) page(path string) string {
	s.t.Helper()
	answer, err := s.client.Get(s.at + path)
	if err != nil {
		s.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != 200 {
		s.t.Fatalf("%s: %d %v\n%.1000s", path, answer.StatusCode, err, text)
	}
	return string(text)
}

// shownIn returns the groups of a pattern wherever it fits, as a browser shows them.
func shownIn(page, pattern string) []string {
	var list []string
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(page, -1) {
		for i := range m[1:] {
			m[i+1] = html.UnescapeString(strings.TrimSpace(regexp.MustCompile(`<[^>]*>`).ReplaceAllString(m[i+1], "")))
		}
		list = append(list, strings.Join(m[1:], " | "))
	}
	return list
}

func same(t *testing.T, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s\n got %q\nwant %q", what, got, want)
	}
	if len(want) == 0 {
		t.Errorf("%s: nothing was compared", what)
	}
}

// TestPagesSayWhatCommandsSay: what a page shows is what the command that it names prints with --json.
func TestPagesSayWhatCommandsSay(t *testing.T) {
	items := 500
	if testing.Short() {
		items = 120 // more than a page of the list
	}
	s := newUIStage(t, items)

	t.Run("run", func(t *testing.T) {
		var doc runview.Run
		s.json(&doc, "run", ".", "prod")
		var want, got []string
		for _, task := range doc.Tasks {
			attempt := ""
			if task.Attempt > 0 {
				attempt = fmt.Sprint(task.Attempt)
			}
			want = append(want, fmt.Sprintf("%s | %s | %d | %s", task.Task, task.State, task.Duration, attempt))
		}
		row := `<tr id="t-[^"]*"><th scope="row">(.*?)</th><td><span class="state s-([a-z]+)">.*?</td><td class="num[^"]*" data-ms="(\d+)">.*?</td><td class="when later"[^>]*>.*?</td><td class="num opt" data-l="attempt">(\d*)</td>`
		for n := 1; (n-1)*100 < len(doc.Tasks); n++ {
			got = append(got, shownIn(s.page(fmt.Sprintf("/run?w=prod&page=%d", n)), row)...)
		}
		same(t, "tasks", got, want)
		page := s.page("/run?w=prod")
		same(t, "status", shownIn(page, `<h1>prod <span class="badge s-([a-z]+)">`), []string{doc.Status})
		same(t, "run and package", shownIn(page, `<dt>(?:Run|Package)</dt><dd>(.*?)</dd>`), []string{doc.Package, doc.Run})
		same(t, "commit", shownIn(page, `<dt>Commit</dt><dd>(.*?)</dd>`), []string{doc.Git.Commit + ", main"})
		counts := map[string]int{}
		for _, task := range doc.Tasks {
			counts[string(task.State)]++
		}
		for state, n := range counts {
			if text := fmt.Sprintf("<b>%d</b> %s", n, state); !strings.Contains(page, text) {
				t.Errorf("the page has no %q", text)
			}
		}
		failed := slices.DeleteFunc(slices.Clone(doc.Tasks), func(task runview.TaskReport) bool { return task.State != "failed" })
		filtered := shownIn(s.page("/run?w=prod&status=failed"), row)
		if len(filtered) != len(failed) || len(failed) == 0 {
			t.Errorf("%d failed tasks, want %d", len(filtered), len(failed))
		}
	})
	t.Run("history", func(t *testing.T) {
		var doc struct {
			Runs []runview.Past `json:"runs"`
		}
		s.json(&doc, "history", ".", "prod")
		var want []string
		for _, run := range doc.Runs {
			want = append(want, fmt.Sprintf("%s | %s | %s | %s", human.Short(run.Run.Run), run.Status, run.By, run.Git.Short()))
		}
		got := shownIn(s.page("/history?w=prod"), `<tr id="r-[^"]*"><th class="mono" scope="row">(.*?)</th><td><span class="badge s-([a-z]+)">(?s:.*?)<td class="opt">[^<]*</td><td class="opt">(.*?)</td><td class="opt">(.*?)</td>`)
		same(t, "runs", got, want)
	})
	t.Run("attempts", func(t *testing.T) {
		var doc struct {
			Tasks []history.TaskList `json:"tasks"`
		}
		s.json(&doc, "history", ".", "prod.train[3]")
		var want []string
		for _, x := range doc.Tasks[0].Attempts {
			want = append(want, fmt.Sprintf("%s | %s | %s | %s", human.Short(x.Execution), x.State, human.Bytes(x.PeakRSS), x.Worker))
		}
		got := shownIn(s.page("/task?w=prod&t=train%5B3%5D&view=history"), `<tr[^>]* id="x-[^"]*"><th class="mono" scope="row">(.*?)</th><td><span class="state s-([a-z]+)">(?s:.*?)<td class="num">([^<]*B)</td>(?s:.*?)<td class="opt">(.*?)</td>`)
		same(t, "attempts", got, want)
	})
	t.Run("why", func(t *testing.T) {
		var last runview.Run
		s.json(&last, "run", ".", "prod")
		ran := map[string]string{} // executed in the run: the page tells why
		for i := range last.Tasks {
			if t := &last.Tasks[i]; t.State == runview.TaskSuccess {
				ran[t.Task] = "@" + t.ExecutionID
			}
		}
		if len(ran) == 0 {
			t.Fatal("no task was executed in the run")
		}
		for _, task := range []string{"train[1]", "train[3]", "after", "publish", "clean"} {
			var doc struct{ Sentence string }
			s.json(&doc, "why", ".", "prod."+task+ran[task])
			got := shownIn(s.page("/task?w=prod&view=why&t="+url.QueryEscape(task)), `<p class="lead" id="sentence">(.*?)</p>`)
			same(t, task, got, []string{human.Line(doc.Sentence)})
		}
	})
	t.Run("log", func(t *testing.T) {
		for stream, flag := range map[string]string{"stdout": "--stdout", "stderr": "--stderr"} {
			want := strings.Split(strings.TrimSuffix(s.e3("logs", ".", "prod.train[3]", flag), "\n"), "\n")
			got := shownIn(s.page("/task?w=prod&t=train%5B3%5D&log="+stream), `<span class="l">(.*?)</span></li>`)
			same(t, stream, got, want)
		}
	})
	t.Run("compare", func(t *testing.T) {
		var doc compare.Difference
		s.json(&doc, "diff", ".", "prod@-1", "@")
		page := s.page("/compare?w=prod")
		var want []string
		for _, c := range doc.Inputs.Changes {
			want = append(want, fmt.Sprintf("%s | %s | %s → %s", c.Name, c.Change, c.Was.Value, c.Is.Value))
		}
		commit := doc.A.Git.String()
		same(t, "commits", shownIn(page, `<th scope="row">Commit</th><td>(.*?)</td><td>(.*?)</td>`), []string{commit + " | " + commit})
		inputs, _, _ := strings.Cut(page, `id="metrics-h"`)
		_, inputs, _ = strings.Cut(inputs, `id="params-h"`)
		same(t, "inputs", shownIn(inputs, `<tr><th scope="row">(.*?)</th><td>(.*?)</td><td[^>]*>(.*?)</td></tr>`), want)
		want = nil
		items := 0
		for _, m := range doc.FoldedMetrics() { // items in which a value was, and is, the same share a row
			for _, c := range m.Rows {
				want = append(want, fmt.Sprintf("%s | %s | %s | %s", c.Key, human.Few(c.Items), c.Was, c.Is))
				items += len(c.Items)
			}
		}
		if items != len(doc.Metrics) {
			t.Errorf("the rows are of %d items, the answer of %d", items, len(doc.Metrics))
		}
		_, metrics, _ := strings.Cut(page, `id="metrics-h"`)
		metrics, _, _ = strings.Cut(metrics, `id="outputs-h"`)
		same(t, "metrics", shownIn(metrics, `<tr><th scope="row">(.*?)</th><td>(.*?)</td><td class="num" title="(.*?)">.*?</td><td class="num" title="(.*?)">`), want)
	})
	t.Run("status", func(t *testing.T) {
		var doc struct {
			Workspaces []struct {
				Workspace string
				Package   *workspace.ListedPackage
				LastRun   runview.Run
				Deferred  []approval.Waiting
			}
		}
		s.json(&doc, "status", ".")
		page := s.page("/")
		w := doc.Workspaces[0]
		same(t, "workspaces", shownIn(page, `<h2><a href="[^"]*">(.*?)</a></h2><span class="badge s-([a-z]+)">`), []string{w.Workspace + " | " + w.LastRun.Status})
		if w.Package == nil || !strings.Contains(page, w.Package.Name+"@"+w.Package.Version) {
			t.Error("the package is not on the page")
		}
		for _, d := range w.Deferred {
			if !strings.Contains(page, ">"+d.Task+"</a> waits for approval") {
				t.Errorf("the page does not say that %s waits", d.Task)
			}
		}
	})
	t.Run("stats", func(t *testing.T) {
		var doc stats.Stats
		s.json(&doc, "stats", ".")
		page := s.page("/store")
		want := fmt.Sprintf("all | %d | %d | %.1f %%", doc.Total.Runs, doc.Total.Hits, 100*doc.Total.HitRate)
		same(t, "sums", shownIn(page, `<tr><th scope="row">(all)</th><td class="num">(.*?)</td><td class="num">(.*?)</td><td class="num">(.*?)</td>`), []string{want})
	})
}

// The page of experiments is the table of e3 compare.
func TestExperimentsPage(t *testing.T) {
	s := newUIStage(t, 5)
	for i, rate := range []string{"0.125", "0.75"} {
		s.e3("start", ".", "prod", "--as", fmt.Sprint("exp", i+1), "--set", "rate="+rate, "--no-wait", "--progress", "none")
	}
	for _, sort := range []string{"", "-loss"} {
		var doc compare.Table
		s.json(&doc, "compare", ".", "prod", "exp*", "--sort", sort)
		page := s.page("/experiments?sides=prod+exp*&sort=" + sort)
		want, best := []string{}, 0
		for i, r := range doc.Rows {
			if len(r.Metrics) == 0 { // it is named below the table
				continue
			}
			cells := []string{r.Side, r.Item}
			for _, name := range doc.Params {
				cells = append(cells, compare.Plain(r.Params[name]))
			}
			for _, c := range doc.Metrics {
				cells = append(cells, compare.Plain(r.Metrics[c.Name]))
				if slices.Contains(c.Best, i) {
					best++
					cells[len(cells)-1] += "*"
				}
			}
			want = append(want, strings.Join(cells, " | "))
		}
		if bare := doc.BareNote(); bare == "" || !strings.Contains(page, html.EscapeString(bare)) {
			t.Errorf("the page does not say %q of the rows without metrics", bare)
		}
		if len(want) < 3 || best == 0 || len(doc.Params) == 0 || len(doc.Metrics) == 0 {
			t.Fatalf("the command's table is too small: %q", want)
		}
		var got []string
		spaces := regexp.MustCompile(`<span aria-hidden="true">\x{2007}+</span>`) // which align the points
		marks := strings.NewReplacer(`<span class="star" aria-hidden="true">*</span><span class="away"> best</span>`, "*")
		for _, row := range regexp.MustCompile(`<tr id="e-[^"]*">(.*?)</tr>`).FindAllStringSubmatch(marks.Replace(page), -1) {
			var cells []string
			for _, cell := range regexp.MustCompile(`<t[hd][^>]*>(?:<a [^>]*>)?(.*?)(?:</a>)?</t[hd]>`).FindAllStringSubmatch(row[1], -1) {
				cells = append(cells, html.UnescapeString(spaces.ReplaceAllString(cell[1], "")))
			}
			got = append(got, strings.Join(cells[:len(cells)-1], " | ")) // without the time
		}
		same(t, "rows, sorted by "+sort, got, want)
	}
}

// Each of three questions is answered after at most three clicks from the first page, in a browser.
func TestThreeClicks(t *testing.T) {
	s := newUIStage(t, 5)
	tab := browser.Open(t)
	at, err := url.Parse(s.at)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range s.client.Jar.Cookies(at) {
		tab.Cookie(s.at, c.Name, c.Value)
	}
	for _, q := range []struct {
		name   string
		clicks []string // texts of the links, the first of each that is seen
		answer string   // an expression
	}{
		{"which task made this run slow", []string{"prod"}, `[...document.querySelectorAll("section")].some(s => s.querySelector("h2")?.textContent === "Where the time went" && s.querySelector(".path a, tbody a"))`},
		{"why did it run again", []string{"prod", "train[1]", "Why"}, `document.getElementById("sentence").textContent.includes("rate")`},
		{"what did the failed one print", []string{"prod", "train[3]"}, `document.querySelector(".log").innerText.includes("warning of 3")`},
	} {
		t.Run(q.name, func(t *testing.T) {
			if len(q.clicks) > 3 {
				t.Errorf("%d clicks", len(q.clicks))
			}
			tab.Go(s.at + "/")
			for _, text := range q.clicks {
				link := fmt.Sprintf(`[...document.querySelectorAll("main a, nav a")].find(a => a.textContent.trim() === %q && a.getClientRects().length)`, text)
				var seen bool
				if tab.Eval(link+" !== undefined", &seen); !seen {
					t.Fatalf("no link %q is seen", text)
				}
				tab.Follow(link + ".click()")
			}
			var answered bool
			if tab.Eval(q.answer, &answered); !answered {
				t.Error("the page does not have the answer")
			}
			if said := tab.Said(); len(said) > 0 {
				t.Errorf("%q", said)
			}
		})
	}
}

// The command serves until it is told to end. Started again, it serves the tabs that are open, at the same address.
func TestUIServesAndGoesOn(t *testing.T) {
	s := newUIStage(t, 4)
	t.Setenv("E3_STATE_DIR", t.TempDir())
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	serve := func() (address string, end func()) {
		ctx, cancel := context.WithCancel(t.Context())
		in, out := io.Pipe()
		a := newApp()
		a.Stdout, a.Stderr = out, io.Discard
		ended := make(chan int, 1)
		go func() {
			ended <- run(ctx, []string{"ui", ".", "prod", "--no-open", "--json"}, a)
			out.Close()
		}()
		var doc uiAddress
		if err := json.NewDecoder(in).Decode(&doc); err != nil {
			t.Fatal(err)
		}
		go func() { _, _ = io.Copy(io.Discard, in) }()
		return doc.URL, func() {
			cancel()
			if code := <-ended; code != 0 {
				t.Errorf("exit code %d, want 0", code)
			}
		}
	}
	address, end := serve()
	at, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	s.client, s.at = &http.Client{Jar: jar}, "http://"+at.Host
	s.page(at.RequestURI())
	if page := s.page("/run?w=prod"); !strings.Contains(page, "train[3]") {
		t.Error("the run is not there")
	}
	end()
	again, end := serve()
	defer end()
	if !strings.HasPrefix(again, s.at+"/") {
		t.Errorf("at %s, want %s", again, s.at)
	}
	if page := s.page("/run?w=prod"); !strings.Contains(page, "train[3]") {
		t.Error("the tab does not go on")
	}
}

// The page of a run whose results were proven has them, and the first run of a workspace is compared with none.
func TestPageOfAProvenRun(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv("E3_REPO", "")
	s := &uiStage{t: t}
	const project = "e3: 1\nname: demo\ntasks:\n  eval: {out: {file: m.yaml, kind: metrics}, run: 'echo \"loss: 0.125\" > m.yaml'}\n"
	if err := os.WriteFile("e3.yaml", []byte(project), 0o666); err != nil {
		t.Fatal(err)
	}
	for n := range 2 {
		s.e3("start", "-f", "e3.yaml", "--no-wait", "--progress", "none")
		s.serve()
		page := s.page("/run?w=demo")
		if !strings.Contains(page, ">0.125<") {
			t.Errorf("run %d: the page lacks the metric:\n%s", n+1, page)
		}
		if got, want := strings.Contains(page, "What differs from"), n > 0; got != want {
			t.Errorf("run %d: a link compares it with another: %v, want %v", n+1, got, want)
		}
	}
}

// A server that is started again goes on with its port and its secret, which only this user can read.
func TestKeptServer(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(t.TempDir())
	s := &uiStage{t: t}
	s.e3("init", ".")
	a := newApp()
	r, err := a.open(t.Context(), ".")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	first := keptServer(dir, r)
	l, err := first.listen(0)
	if err != nil {
		t.Fatal(err)
	}
	if err := first.save(l); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%q %v, want one file", files, err)
	}
	if info, err := os.Stat(files[0]); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v %v, want 0600", info.Mode(), err)
	}
	beside := keptServer(dir, r)
	l2, err := beside.listen(0)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Equal(first.Secret, beside.Secret) {
		t.Error("two servers at a time share a secret: what one tab may, the other may")
	}
	l2.Close()
	at := l.Addr().String()
	l.Close()
	again := keptServer(dir, r)
	l3, err := again.listen(0)
	if err != nil {
		t.Fatal(err)
	}
	defer l3.Close()
	if l3.Addr().String() != at || !bytes.Equal(first.Secret, again.Secret) {
		t.Errorf("%s, want %s and the same secret", l3.Addr(), at)
	}
	// The same words name another repository from another folder.
	t.Chdir(t.TempDir())
	s.e3("init", ".")
	other, err := a.open(t.Context(), ".")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if bytes.Equal(keptServer(dir, other).Secret, first.Secret) {
		t.Error("servers of two repositories share a secret: who may read one may read the other")
	}
}

package ui_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"e3/dataflow/remaining"
	"e3/internal/events"
	"e3/internal/human"
	"e3/internal/insight/runview"
	"e3/internal/ui"
)

// busyRun writes a run at work: a wide matrix of which the last items run, and what reads it. Durations are on record.
func (b *bench) busyRun(items int) {
	b.t.Helper()
	b.began, b.desk.took, b.limits = now.Add(-time.Duration(2*(items*3/4)+2)*time.Second), map[string]time.Duration{}, &events.Limits{Cores: 4}
	list := []made{{name: "clean", state: runview.TaskSuccess, took: time.Second, file: "c", output: "1"}}
	for i := range items {
		train := made{name: fmt.Sprintf("train[%d]", i), state: runview.TaskSuccess, took: 3 * time.Second, file: "t", output: "1", reads: []string{"clean"}}
		switch {
		case i >= items*3/4:
			train.state = runview.TaskWaits
		case i >= items*3/4-4:
			train.state = "running"
		}
		score := made{name: fmt.Sprintf("score[%d]", i), state: runview.TaskWaits, file: "s", reads: []string{train.name}}
		b.desk.took[train.name], b.desk.took[score.name] = 3*time.Second, time.Second
		list = append(list, train, score)
	}
	const report = "a_report_with_a_name_that_is_as_long_as_they_may_be_and_no_blank"
	b.desk.took[report] = time.Second
	list = append(list, made{name: report, state: runview.TaskWaits, file: "r", reads: []string{"score[0]"}})
	b.run(true, list...)
}

// asked is the answer that commands give about the run.
func (b *bench) asked() *runview.Now {
	b.t.Helper()
	r, err := b.stores.Runs.Report(b.t.Context(), "prod", "")
	if err != nil {
		b.t.Fatal(err)
	}
	n, err := remaining.Ask(b.t.Context(), b.stores.Runs, r)
	if err != nil || n == nil {
		b.t.Fatalf("no answer about the run: %v", err)
	}
	return n
}

// The page of a run at work tells what the answer of e3 run tells: the time left, what runs, what waits and for what,
// what is next, and what each family has done.
func TestPageOfRunAtWork(t *testing.T) {
	b := newBench(t)
	b.busyRun(24)
	b.serve(ui.Options{})
	n := b.asked()
	if want := "about "; !strings.HasPrefix(n.Text, want) || len(n.Running) != 4 || len(n.Waits) < 3 || n.Families[0].Name != "train" {
		t.Errorf("the answer is %+v, want four commands of train at work, and a time", n)
	}
	tab := b.tab()
	tab.Go(b.front.URL + "/run?w=prod")
	text := func(selector string) (list []string) {
		tab.Eval(fmt.Sprintf("[...document.querySelectorAll(%q)].map(x => x.textContent.replace(/\\s+/g, ' '))", selector), &list)
		return list
	}
	const at = "section[aria-labelledby=now-h] "
	wants := func(what string, got []string, texts ...string) {
		t.Helper()
		for _, want := range texts {
			if !slices.ContainsFunc(got, func(s string) bool { return strings.Contains(s, want) }) {
				t.Errorf("%s: got %q, want one with %q", what, got, want)
			}
		}
	}
	wants("time left", text(".left"), n.Text+" left")
	for _, w := range n.Running {
		wants("what runs", text(at+"table:first-of-type tbody th"), w.Task)
	}
	for _, w := range n.Waits {
		wants("what waits", text(at+"ul.plain li"), human.Count(w.Tasks, "task"), w.Text(), w.First[0])
	}
	for _, next := range n.Next[:3] {
		wants("what is next", text(at+"ul.inline li"), next.Task)
	}
	for _, f := range n.Families {
		row := text(fmt.Sprintf("[id='f-%s'] td", f.Name))
		for state, count := range f.States {
			wants("family "+f.Name, row, fmt.Sprintf("%d ", count), string(state))
		}
	}
	for _, width := range []int{360, 1280, 1920} {
		for _, dark := range []bool{false, true} {
			tab.Window(width, 900, dark)
			keepShot(t, tab, "now", width, dark)
			var wide int
			if tab.Eval("document.documentElement.scrollWidth", &wide); wide > width {
				t.Errorf("the page is %d wide in a window of %d", wide, width)
			}
		}
	}
}

// A run of 10,000 tasks at work is told by families, in as many lines as one of 24.
func TestPageOfLargeRunAtWork(t *testing.T) {
	lines := map[int]int{}
	for _, items := range []int{24, 5_000} {
		b := newBench(t)
		b.busyRun(items)
		b.serve(ui.Options{})
		page := b.page("/run?w=prod")
		_, part, _ := strings.Cut(page, `aria-labelledby="now-h"`)
		part, _, _ = strings.Cut(part, "</section>")
		lines[items] = strings.Count(part, "<tr") + strings.Count(part, "<li")
		for _, w := range b.asked().Waits[:2] {
			wantIn(t, part, human.Count(w.Tasks, "task")+"</b> wait "+w.Text())
		}
	}
	if lines[24] != lines[5_000] || lines[24] == 0 {
		t.Errorf("%d lines for 24 items, %d for 5,000, want as many", lines[24], lines[5_000])
	}
}

// Where the time went tells the same time as the header, however long ago the last event was.
func TestWhereTheTimeWentNow(t *testing.T) {
	b := newBench(t)
	b.run(true, small()...)
	at := b.began.Add(time.Minute)
	b.serve(ui.Options{Now: func() time.Time { return at }})
	for _, want := range []string{"1m00s", "2m00s"} {
		wantIn(t, b.page("/run?w=prod"), want+" so far", "in a run of "+want)
		at = at.Add(time.Minute)
	}
}

// Ends that overlap by what is measured around a command make no more lanes of the timeline.
func TestLanesOfTimeline(t *testing.T) {
	for _, test := range []struct {
		took  time.Duration // of commands that begin each second
		lanes int
	}{{1020 * time.Millisecond, 1}, {1500 * time.Millisecond, 2}, {2020 * time.Millisecond, 2}} {
		b := newBench(t)
		var list []made
		for i := range 6 {
			list = append(list, made{name: fmt.Sprintf("t[%d]", i), state: runview.TaskSuccess, took: test.took, file: "t", output: "1"})
		}
		b.run(false, list...)
		b.serve(ui.Options{})
		lanes := map[string]bool{}
		for _, bar := range regexp.MustCompile(`<rect class="span" [^>]* y="([0-9.]+)"`).FindAllStringSubmatch(b.page("/run?w=prod&view=timeline"), -1) {
			lanes[bar[1]] = true
		}
		if len(lanes) != test.lanes {
			t.Errorf("commands of %v, one each second, are in %d lanes, want %d", test.took, len(lanes), test.lanes)
		}
	}
}

// Where the time went: the critical path where it decided, not for a wide matrix.
func TestWhereTheTimeWent(t *testing.T) {
	b := newBench(t)
	b.run(false, small()...)
	b.serve(ui.Options{})
	wantIn(t, b.page("/run?w=prod"), "Commands took 13.0s together, in a run of ", "Cores in use over time")
	wide := newBench(t)
	wide.busyRun(24)
	wide.serve(ui.Options{})
	page := wide.page("/run?w=prod")
	if strings.Contains(page, "The critical path</h3>") {
		t.Error("a wide matrix has a critical path")
	}
	wantIn(t, page, "Where the time went")
	at, name := link(t, page, `<th scope="row"><a href="([^"]*)">(train)</a></th>`)
	wantIn(t, wide.page(at), "18 of 19", name+"[0]")
}

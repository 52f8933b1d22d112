package ui_test

import (
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"e3/internal/insight/runview"
	"e3/internal/jobs/queue"
	"e3/internal/ui"
)

// Long lines are searched whole, and say how much of them is not shown. Of a line that was written over, the last text is shown, as on a
// terminal.
func TestLongLines(t *testing.T) {
	b := newBench(t)
	endless := strings.Repeat("x", 300_000) + " NeedleHere " + strings.Repeat("y", 300_000)
	split := strings.Repeat("z", 64<<10-3) + "needle" + strings.Repeat("z", 9_000) // its word is in two reads
	var progress strings.Builder
	for range 20_000 {
		progress.WriteString("\rworking, some of it")
	}
	progress.WriteString("\rall of it is done\r\n")
	b.run(false, made{name: "long", state: runview.TaskSuccess, file: "o", output: "o", stdout: "first\n" + endless + "\n" + progress.String() + split + "\nneedle at the end"})
	b.serve(ui.Options{})
	page := b.page("/task?w=prod&t=long")
	wantIn(t, page, "5 lines", "more of this line", "… and 57", ">all of it is done<")
	if strings.Contains(page, "some of it") {
		t.Error("what was written over is shown")
	}
	page = b.page("/task?w=prod&t=long&find=nEEdle")
	wantIn(t, page, "3 lines with", "x NeedleHere y", "needlezz", "needle at the end")
	if i := strings.Index(page, `class="hits"`); len(page[i:strings.Index(page, `class="log"`)]) > 4_000 {
		t.Error("the hits hold the whole lines")
	}
}

// Of content that is too large for a page, its beginning is shown; a picture is the browser's to load.
func TestLargeContent(t *testing.T) {
	b := newBench(t)
	text := "ä" + strings.Repeat("é", 3<<20)
	table := "day,rain\n" + strings.Repeat("mon,1.5\n", 400_000)
	picture := "\x89PNG\r\n\x1a\n" + strings.Repeat("\x00", 3<<20)
	one := func(name, file, output string) made {
		return made{name: name, state: runview.TaskSuccess, file: file, output: output}
	}
	b.run(false, one("small", "t.CSV", "day,rain\ntue,0.25\n"), one("text", "t.txt", text), one("table", "t.csv", table), one("picture", "p.png", picture), one("binary", "b", "\x00"+text),
		one("letters", "l.txt", "x"+strings.Repeat("é", 4_000)))
	b.serve(ui.Options{})
	wantIn(t, b.page("/task?w=prod&t=small&view=data"), ">rain</th>", ">0.25</td>")
	page := b.page("/task?w=prod&t=text&view=data")
	wantIn(t, page, "its first 32.0 KiB of 6.0 MiB", "äéé")
	if strings.Contains(page, "\ufffd") {
		t.Error("a character was cut")
	}
	wantIn(t, b.page("/task?w=prod&t=table&view=data"), "of 3.1 MiB", ">rain</th>", ">1.5</td>")
	wantIn(t, b.page("/task?w=prod&t=picture&view=data"), `<img src="/content?`)
	wantIn(t, b.page("/task?w=prod&t=binary&view=data"), "are too large to show here")
	at, _ := link(t, b.page("/task?w=prod&t=letters&view=data"), `href="(/content[^"]*)"()`)
	r, err := b.client.Get(b.front.URL + at)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	if kind := r.Header.Get("Content-Type"); r.StatusCode != http.StatusOK || kind != "text/plain; charset=utf-8" {
		t.Errorf("%d %q, want a text, although its 4,096th byte is within a character", r.StatusCode, kind)
	}
}

// While a run is at work, the page of a task to which it has not come says that it shows an earlier run.
func TestTaskThatHasNotBegun(t *testing.T) {
	b := newBench(t)
	b.id, b.began = "0194fdc1-fa2f-7cc0-81d3-ff12045b73c8", now.Add(-26*time.Hour)
	b.run(false, made{name: "clean", state: runview.TaskSuccess, file: "c", output: "c", stdout: "of yesterday\n"})
	b.pkg.Tasks, b.id, b.began = nil, runID, now.Add(-time.Hour)
	b.run(true, made{name: "other", state: runview.TaskRunning, file: "o"})
	b.serve(ui.Options{})
	const note = "This is its latest execution of an earlier run"
	wantIn(t, b.page("/task?w=prod&t=clean"), "of yesterday", note)
	if strings.Contains(b.page("/task?w=prod&t=other"), note) {
		t.Error("a task that runs is said to have not begun")
	}
}

// A queue in which tasks wait and no worker is at work says which command starts one.
func TestQueueWithoutWorkers(t *testing.T) {
	b := newBench(t)
	waits := []queue.Job{{ID: "j", Workspace: "prod", Task: "clean", Status: queue.Queued, Created: queue.TimeOf(now)}}
	b.stores.Answers = answers{
		queues: []queue.State{{Queue: "gpu", Ready: 1}, {Queue: "default", Ready: 1, Running: running(waits...)}},
		jobs:   map[string][]queue.Job{"gpu": waits, "default": waits},
	}
	b.serve(ui.Options{})
	page := b.page("/queue")
	if n := strings.Count(page, "No worker is at work here"); n != 1 || !strings.Contains(page, "e3 worker /srv/e3 --queue gpu</code>") {
		t.Errorf("%d queues without a worker, want one with its command", n)
	}
}

// A clock that was set back between a run's begin and now gives no times below zero.
func TestClockSetBack(t *testing.T) {
	b := newBench(t)
	b.run(true, append(small(), made{name: "busy", state: runview.TaskRunning, file: "o"})...)
	b.serve(ui.Options{Now: func() time.Time { return b.began.Add(-48 * time.Hour) }})
	for _, path := range []string{"/", "/run?w=prod", "/run?w=prod&view=timeline", "/run?w=prod&by=family", "/task?w=prod&t=busy", "/history?w=prod", "/queue"} {
		page := b.page(path)
		if m := regexp.MustCompile(`(width|height|data-ms)="-\d|NaN|[ >]-\d`).FindString(page); m != "" {
			t.Errorf("%s has %q", path, m)
		}
	}
}

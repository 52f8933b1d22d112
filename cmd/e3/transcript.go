package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"e3/internal/events"
)

// A transcript prints what a run does, a line for each task, in the manner of seed 003.
// Where it is written to a terminal, a live line below it counts all steps.
type transcript struct {
	out  io.Writer
	live *display // nil without a terminal

	mu       sync.Mutex
	buf      *bufio.Writer
	ws, repo string
	run      string
	total    int64 // steps, once they are known
	done     int64
	failures []failure
	style    style
}

// failure is remembered for the report at the end.
type failure struct {
	task, execution, key, message string
	ended                         bool // no retry follows
}

func newTranscript(out io.Writer, live *display, st style, repo, ws string) *transcript {
	return &transcript{out: out, buf: bufio.NewWriterSize(out, 32<<10), live: live, style: st, repo: repo, ws: ws}
}

// line writes one line, above the live one if there is one.
func (t *transcript) line(format string, args ...any) {
	if t.live != nil {
		t.live.clear()
	}
	fmt.Fprintf(t.buf, format+"\n", args...)
	t.buf.Flush()
	if t.live != nil {
		t.live.draw()
	}
}

// event prints an event.
func (t *transcript) event(e events.Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	d := e.Data
	if d == nil {
		d = &events.Data{}
	}
	switch e.Type {
	case events.RunStarted:
		t.run = e.Run
		t.line("Run %s started", short(e.Run))
	case events.TaskCreated:
		t.steps(int64(d.Tasks))
	case events.TaskCached:
		t.cached(e, d)
	case events.TaskStarted:
		t.running(e)
		if d.Attempt > 1 {
			t.task("start", "", e.Task, fmt.Sprintf(" (attempt %d)", d.Attempt))
		} else {
			t.task("start", "", e.Task, "")
		}
	case events.TaskCompleted:
		t.ended(e)
		t.task("done", t.style.green, e.Task, fmt.Sprintf(" (%s)", elapsed(time.Duration(d.Duration)*time.Millisecond)))
	case events.TaskFailed:
		t.failed(e, d)
	case events.TaskRetryScheduled:
		if n := len(t.failures); n > 0 && t.failures[n-1].task == e.Task {
			t.failures = t.failures[:n-1]
		}
		t.steps(1)
		t.task("retry", t.style.yellow, e.Task, fmt.Sprintf(" (attempt %d in %s)", d.Attempt, elapsed(time.Duration(d.DelayMs)*time.Millisecond)))
	case events.TaskSkipped:
		t.done++
		t.task("skip", t.style.dim, e.Task, fmt.Sprintf(" (%s failed)", printable(d.Because, false)))
	}
}

// task prints "  [word]   name note", the names in one column.
func (t *transcript) task(word, color, name, note string) {
	pad := strings.Repeat(" ", max(1, 9-len(word)-2))
	t.line("  %s[%s]%s%s%s%s", color, word, t.style.endOf(color), pad, printable(name, false), note)
}

func (t *transcript) cached(e events.Event, d *events.Data) {
	if e.Task != "" {
		if d.As != "" { // proven, so not among the steps that were announced
			t.total++
		}
		t.ended(e)
		t.task("cached", t.style.dim, e.Task, "")
		return
	}
	t.total += int64(d.Tasks)
	t.done += int64(d.Tasks)
	t.task("cached", t.style.dim, plural(int64(d.Tasks), "task"), "")
}

func (t *transcript) failed(e events.Event, d *events.Data) {
	t.ended(e)
	word, note := "error", d.Message
	if d.Message == "" {
		word, note = "failed", fmt.Sprintf("exit code %d", d.ExitCode)
	}
	t.failures = append(t.failures, failure{task: e.Task, execution: e.Execution, key: d.Key, message: note})
	if d.Duration > 0 {
		note += ", " + elapsed(time.Duration(d.Duration)*time.Millisecond)
	}
	t.task(word, t.style.red, e.Task, " ("+printable(note, false)+")")
}

func (t *transcript) steps(n int64) {
	t.total += n
	if t.live != nil {
		t.live.progress(t.done, t.total)
	}
}

func (t *transcript) running(e events.Event) {
	if t.live != nil {
		t.live.start(e.Task, e.Time)
	}
}

func (t *transcript) ended(e events.Event) {
	t.done++
	if t.live != nil {
		t.live.end(e.Task, t.done, t.total)
	}
}

// close ends the live line.
func (t *transcript) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.live != nil {
		t.live.close()
		t.live = nil
	}
	t.buf.Flush()
}

// tail returns the last lines of a log's end.
func tail(data []byte, n int) []string {
	data = bytes.TrimRight(data, "\n")
	if len(data) == 0 {
		return nil
	}
	lines := strings.Split(string(data), "\n")
	return lines[max(0, len(lines)-n):]
}

// style is the escape sequences of colours, all empty where there are none.
type style struct{ red, green, yellow, dim, bold, reset string }

func (s style) endOf(color string) string {
	if color == "" {
		return ""
	}
	return s.reset
}

// styleFor decides about colour: the flag, then NO_COLOR and FORCE_COLOR, then whether w
// is a terminal.
func (a *app) styleFor(w io.Writer) style {
	on := terminal(w) != nil && a.getenv("TERM") != "dumb"
	if a.getenv("NO_COLOR") != "" {
		on = false
	} else if a.getenv("FORCE_COLOR") != "" {
		on = true
	}
	switch a.color {
	case "always":
		on = true
	case "never":
		on = false
	}
	if !on {
		return style{}
	}
	return style{red: "\x1b[31m", green: "\x1b[32m", yellow: "\x1b[33m", dim: "\x1b[2m", bold: "\x1b[1m", reset: "\x1b[0m"}
}

package term

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"e3/internal/human"
)

// A Live is the live line below a transcript on a terminal. It shows the number of done steps, the running tasks and
// their times. It redraws itself a few times a second.
//
// The cursor waits at the beginning of the line, so that erasing from there to the end of the screen removes the whole
// line, even after a narrower window has folded it. Wrapping is off while the line is drawn, so that a character of an
// unexpected width cannot start another line.
type Live struct {
	w     io.Writer
	width func() int
	now   func() time.Time

	mu          sync.Mutex
	done, total int64
	Unit        func(int64) string // formats a count; nil: a plain number
	running     []runningTask      // in the order of their start
	waiting     int                // tasks that wait for approval
	failed      int64
	Bar         bool          // a bar is drawn before the counts, where there is room
	Left        func() string // the time that is left, as text; nil or "": unknown
	shown       bool
	closed      bool
	stop        chan struct{}
	stopped     sync.WaitGroup
}

type runningTask struct {
	name  string
	since time.Time
}

// redraw is the interval at which the running times are updated.
const redraw = 200 * time.Millisecond

const (
	eraseBelow = "\r\x1b[J"
	wrapOff    = "\x1b[?7l"
	wrapOn     = "\x1b[?7h"
)

// Hidden is a live line that nobody sees, where there is no terminal for one.
func Hidden() *Live { return &Live{closed: true} }

// Shows reports whether there is a terminal with the line.
func (d *Live) Shows() bool { return d.stop != nil }

// NewLive draws on a terminal. It reads the width each time.
func NewLive(f *os.File, now func() time.Time) *Live {
	return newLive(f, func() int { return Width(f) }, now)
}

func newLive(w io.Writer, width func() int, now func() time.Time) *Live {
	d := &Live{w: w, width: width, now: now, stop: make(chan struct{})}
	d.stopped.Go(func() {
		tick := time.NewTicker(redraw)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				d.mu.Lock()
				d.draw()
				d.mu.Unlock()
			case <-d.stop:
				return
			}
		}
	})
	return d
}

// Progress sets the counts.
func (d *Live) Progress(done, total int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.done, d.total = done, total
}

// Phase replaces what runs by one thing, with the time since its beginning.
func (d *Live) Phase(name string, since time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.running = append(d.running[:0], runningTask{name, since})
}

// Start adds a running task.
func (d *Live) Start(name string, since time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.closed {
		d.running = append(d.running, runningTask{name, since})
	}
}

// End removes a running task.
func (d *Live) End(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if i := slices.IndexFunc(d.running, func(t runningTask) bool { return t.name == name }); i >= 0 {
		d.running = slices.Delete(d.running, i, i+1)
	}
}

// Fail adds to the number of tasks that have failed.
func (d *Live) Fail(n int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.failed += n
}

// Wait adds to the number of tasks that wait for approval.
func (d *Live) Wait(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.waiting += n
}

// Above calls print to write lines above the live one, which moves down.
func (d *Live) Above(print func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.clear()
	print()
	d.draw()
}

// clear erases the line; d.mu is held.
func (d *Live) clear() {
	if d.shown {
		fmt.Fprint(d.w, eraseBelow)
		d.shown = false
	}
}

// draw draws the line; d.mu is held.
func (d *Live) draw() {
	if d.total == 0 || d.closed {
		return
	}
	fmt.Fprint(d.w, eraseBelow+wrapOff+d.line(d.width()-1)+wrapOn+"\r")
	d.shown = true
}

// line is the text for a width: the count first, then as many running tasks as fit.
func (d *Live) line(room int) string {
	line := fmt.Sprintf("[%d/%d]", d.done, d.total)
	if d.Unit != nil {
		line = fmt.Sprintf("[%s/%s]", d.Unit(d.done), d.Unit(d.total))
	}
	if d.Bar && room >= 60 {
		line = bar(d.done, d.total) + line
	}
	if d.failed > 0 {
		line += fmt.Sprintf(" %d failed", d.failed)
		if len(d.running)+d.waiting > 0 {
			line += ";"
		}
	}
	end := ""
	if d.Left != nil && room >= 40 {
		if text := d.Left(); text != "" {
			end = "; " + text + " left"
			room -= Columns(end)
		}
	}
	line = d.withTasks(line, room) + end
	return Truncate(line, max(room+Columns(end), 0))
}

// bar draws the share that is done in a fixed width.
func bar(done, total int64) string {
	const width = 20
	n := int(width * min(max(done, 0), total) / max(total, 1))
	head := ""
	if n < width {
		head = ">"
	}
	return "[" + strings.Repeat("=", n) + head + strings.Repeat(" ", max(width-n-1, 0)) + "] "
}

// withTasks adds the tasks that wait, and as many running ones as fit.
func (d *Live) withTasks(line string, room int) string {
	if d.waiting > 0 {
		line += fmt.Sprintf(" %d waiting for approval", d.waiting)
		if len(d.running) > 0 {
			line += ";"
		}
	}
	now := d.now()
	for i, t := range d.running {
		space, more := " ", ""
		if i > 0 {
			space = ", "
		}
		if left := len(d.running) - i - 1; left > 0 {
			more = fmt.Sprintf(", +%d more", left)
		}
		name, since := human.Line(t.name), " "+human.Seconds(now.Sub(t.since))
		left := room - Columns(line+space+since+more)
		if i == 0 {
			name = Middle(name, max(left, 8))
		} else if Columns(name) > left {
			line += fmt.Sprintf(", +%d more", len(d.running)-i)
			break
		}
		line += space + name + since
	}
	return Truncate(line, max(room, 0))
}

// Close stops redrawing and erases the line.
func (d *Live) Close() {
	if !d.Shows() {
		return
	}
	close(d.stop)
	d.stopped.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.clear()
	d.closed = true
}

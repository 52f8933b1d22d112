package main

import (
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"golang.org/x/term"
)

// A display is the live line below a transcript on a terminal: how many of all steps are
// done, what is running and since when. It redraws itself a few times a second.
//
// The cursor waits at the beginning of the line, so that erasing from there to the end of the
// screen takes all of the line away, also after a narrower window has folded it.
// While it is drawn the terminal does not wrap, so that a character of an unexpected width costs no line.
type display struct {
	w     io.Writer
	width func() int
	now   func() time.Time

	mu          sync.Mutex
	done, total int64
	unit        func(int64) string // shows a count; nil: as a number
	running     []runningTask      // in the order of their start
	waiting     int                // tasks that wait for somebody to approve
	shown       bool
	closed      bool
	stop        chan struct{}
	stopped     sync.WaitGroup
}

type runningTask struct {
	name  string
	since time.Time
}

// redraw is how often the running times move on.
const redraw = 200 * time.Millisecond

const (
	eraseBelow = "\r\x1b[J"
	wrapOff    = "\x1b[?7l"
	wrapOn     = "\x1b[?7h"
)

// newDisplay draws on w, whose width in columns is asked for every time.
func newDisplay(w io.Writer, width func() int, now func() time.Time) *display {
	d := &display{w: w, width: width, now: now, stop: make(chan struct{})}
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

// widthOf asks the terminal for its width.
func widthOf(fd int) func() int {
	return func() int {
		if w, _, err := term.GetSize(fd); err == nil && w > 0 {
			return w
		}
		return 80
	}
}

// progress sets the counts.
func (d *display) progress(done, total int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.done, d.total = done, total
}

// start adds a running task.
func (d *display) start(name string, since time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.running = append(d.running, runningTask{name, since})
}

// end takes a running task away.
func (d *display) end(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if i := slices.IndexFunc(d.running, func(t runningTask) bool { return t.name == name }); i >= 0 {
		d.running = slices.Delete(d.running, i, i+1)
	}
}

// wait adds to the number of tasks that wait for somebody to approve.
func (d *display) wait(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.waiting += n
}

// above has print write lines in the place of the live one, which moves down.
func (d *display) above(print func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.clear()
	print()
	d.draw()
}

// clear takes the line away; d.mu is held.
func (d *display) clear() {
	if d.shown {
		fmt.Fprint(d.w, eraseBelow)
		d.shown = false
	}
}

// draw draws the line; d.mu is held.
func (d *display) draw() {
	if d.total == 0 || d.closed {
		return
	}
	fmt.Fprint(d.w, eraseBelow+wrapOff+d.line(d.width()-1)+wrapOn+"\r")
	d.shown = true
}

// line fits the width: the count first, then as many running tasks as there is room for.
func (d *display) line(room int) string {
	line := fmt.Sprintf("[%d/%d]", d.done, d.total)
	if d.unit != nil {
		line = fmt.Sprintf("[%s/%s]", d.unit(d.done), d.unit(d.total))
	}
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
		name, since := printable(t.name, false), " "+seconds(now.Sub(t.since))
		left := room - columns(line+space+since+more)
		if i == 0 {
			name = clip(name, max(left, 8))
		} else if columns(name) > left {
			line += fmt.Sprintf(", +%d more", len(d.running)-i)
			break
		}
		line += space + name + since
	}
	return clip(line, max(room, 0))
}

// close stops redrawing and takes the line away.
func (d *display) close() {
	close(d.stop)
	d.stopped.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.clear()
	d.closed = true
}

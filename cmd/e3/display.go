package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"
)

// A display is the live line below a transcript on a terminal: how many of all steps are
// done, what is running and since when. It redraws itself a few times a second.
type display struct {
	w     io.Writer
	width func() int
	now   func() time.Time

	mu          sync.Mutex
	done, total int64
	running     []runningTask // in the order of their start
	shown       bool
	stop        chan struct{}
	stopped     sync.WaitGroup
}

type runningTask struct {
	name  string
	since time.Time
}

// redraw is how often the running times move on.
const redraw = 200 * time.Millisecond

func newDisplay(f *os.File, now func() time.Time) *display {
	d := &display{w: f, now: now, stop: make(chan struct{}), width: func() int {
		if w, _, err := term.GetSize(int(f.Fd())); err == nil && w > 0 {
			return w
		}
		return 80
	}}
	d.stopped.Go(func() {
		tick := time.NewTicker(redraw)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				d.mu.Lock()
				d.show()
				d.mu.Unlock()
			case <-d.stop:
				return
			}
		}
	})
	return d
}

func (d *display) progress(done, total int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.done, d.total = done, total
}

func (d *display) start(name string, since time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.running = append(d.running, runningTask{name, since})
}

func (d *display) end(name string, done, total int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.done, d.total = done, total
	for i := range d.running {
		if d.running[i].name == name {
			d.running = append(d.running[:i], d.running[i+1:]...)
			return
		}
	}
}

// clear takes the line away, so that something can be printed in its place.
func (d *display) clear() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.shown {
		fmt.Fprint(d.w, "\r\x1b[K")
		d.shown = false
	}
}

func (d *display) draw() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.show()
}

// show draws the line; d.mu is held.
func (d *display) show() {
	if d.total == 0 {
		return
	}
	fmt.Fprintf(d.w, "\r\x1b[K%s", d.line(d.width()-1))
	d.shown = true
}

// line fits the width: the count first, then as many running tasks as there is room for.
func (d *display) line(width int) string {
	line := fmt.Sprintf("[%d/%d]", d.done, d.total)
	now := d.now()
	for i, t := range d.running {
		part := fmt.Sprintf(" %s %s", printable(t.name, false), elapsed(now.Sub(t.since).Truncate(time.Second)))
		if i > 0 {
			part = "," + part
		}
		more := fmt.Sprintf(", +%d more", len(d.running)-i)
		if len([]rune(line+part)) > width-len(more) && i < len(d.running)-1 || len([]rune(line+part)) > width {
			line += strings.TrimPrefix(more, strings.Repeat(",", btoi(i == 0)))
			break
		}
		line += part
	}
	if r := []rune(line); len(r) > width {
		line = string(r[:max(width, 0)])
	}
	return line
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// close stops redrawing and takes the line away.
func (d *display) close() {
	close(d.stop)
	d.stopped.Wait()
	d.clear()
}

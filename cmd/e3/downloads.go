package main

import (
	"sync"

	"e3/cmd/e3/internal/term"
	"e3/internal/human"
)

// downloads shows the files that are being fetched from servers, on one live line.
type downloads struct {
	app  *app
	mu   sync.Mutex
	live *term.Live // nil: nothing is being fetched
	now  []*download
}

type download struct {
	url         string
	done, total int64
}

// begin is a fetch.Watch.
func (d *downloads) begin(url string) (progress func(done, total int64), end func()) {
	d.app.Notef("Fetching %s", human.Line(url))
	one := &download{url: url}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.live == nil {
		d.live = d.app.Live()
		d.live.Unit = human.Bytes
	}
	d.now = append(d.now, one)
	d.live.Start(url, d.app.Now())
	return func(done, total int64) { d.progress(one, done, max(done, total)) }, func() { d.end(one) }
}

func (d *downloads) progress(one *download, done, total int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	one.done, one.total = done, total
	done, total = 0, 0
	for _, o := range d.now {
		done, total = done+o.done, total+o.total
	}
	d.live.Progress(done, total)
}

// end removes the line after the last file.
func (d *downloads) end(one *download) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.live.End(one.url)
	one.url = ""
	for _, o := range d.now {
		if o.url != "" {
			return
		}
	}
	d.live.Close()
	d.live, d.now = nil, nil
}

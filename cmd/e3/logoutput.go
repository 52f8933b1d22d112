package main

import (
	"bytes"
	"encoding/base64"
	"errors"
	"io"
	"sync"
	"unicode/utf8"

	"e3/cmd/e3/internal/term"
	"e3/executions"
	"e3/internal/human"
	"e3/internal/insight/history"
	"e3/internal/insight/runview"
)

// A logOutput is where the logs of one execution go: raw, made safe for a terminal, or as JSON lines.
// Its streams may be written to by several goroutines.
type logOutput struct {
	a       *app
	mu      sync.Mutex
	safe    *term.SafeWriter // nil unless the output is a terminal
	lines   map[executions.Stream]*lineWriter
	written int64
	err     error // of the header
}

// newLogOutput begins the output of an execution with its header.
func newLogOutput(a *app, e *executions.Execution) *logOutput {
	o := &logOutput{a: a}
	switch {
	case a.JSON:
		o.lines = map[executions.Stream]*lineWriter{}
		head := history.EntryOf(e)
		head.Type = "execution"
		o.err = a.Document(head, false)
		return o
	case a.ToTerminal():
		o.safe = a.Safe()
	}
	a.Notef("[execution %s]", e.ExecutionID)
	if e.Provenance != nil {
		for i, line := range runview.Whence(runview.Steps(e.Provenance), a.Now()) {
			if i == 0 {
				line = "imported " + line
			}
			a.Notef("[%s]", human.Line(line))
		}
	}
	if e.Rejected() {
		a.Notef("[%s]", human.Line(runview.RejectionOf(e.Rejection).Text(a.Now())))
	}
	return o
}

// stream returns the writer for one of the logs.
func (o *logOutput) stream(s executions.Stream) io.Writer {
	o.a.Introduced()
	var w io.Writer = o.a.Stdout
	switch {
	case o.lines != nil:
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.lines[s] == nil {
			o.lines[s] = &lineWriter{a: o.a, stream: streamName(s)}
		}
		w = o.lines[s]
	case o.safe != nil:
		w = o.safe
	}
	return &streamWriter{o, w}
}

// streamWriter writes one stream; a lock separates it from the other stream of its output.
type streamWriter struct {
	o *logOutput
	w io.Writer
}

func (w *streamWriter) Write(p []byte) (int, error) {
	w.o.mu.Lock()
	defer w.o.mu.Unlock()
	w.o.written += int64(len(p))
	return w.w.Write(p)
}

// close writes the unfinished last lines, and returns the first errors.
func (o *logOutput) close() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	err := o.err
	for _, l := range o.lines {
		err = errors.Join(err, l.flush(true))
	}
	if o.safe != nil {
		err = errors.Join(err, o.safe.Close())
	}
	return err
}

func streamName(s executions.Stream) string {
	if s == executions.Stderr {
		return "stderr"
	}
	return "stdout"
}

// logLine is a line of a log.
type logLine struct {
	Type    string  `json:"type"`   // log
	Stream  string  `json:"stream"` // stdout or stderr
	Text    *string `json:"text,omitempty"`
	Base64  string  `json:"base64,omitempty"`  // instead of text that is not UTF-8
	Partial bool    `json:"partial,omitempty"` // no newline follows
}

// lineWriter turns lines into objects.
type lineWriter struct {
	a      *app
	stream string
	buf    []byte
}

// longestLine is the length at which a line without a newline is split.
const longestLine = 64 << 10

func (l *lineWriter) Write(p []byte) (int, error) {
	l.buf = append(l.buf, p...)
	return len(p), l.flush(false)
}

func (l *lineWriter) flush(all bool) error {
	for {
		line, rest, whole := bytes.Cut(l.buf, []byte("\n"))
		switch {
		case !whole && len(line) >= longestLine:
			line, rest = line[:longestLine], line[longestLine:]
		case !whole && (!all || len(line) == 0):
			return nil
		}
		doc := logLine{Type: "log", Stream: l.stream, Partial: !whole}
		if text := string(line); utf8.ValidString(text) {
			doc.Text = &text
		} else {
			doc.Base64 = base64.StdEncoding.EncodeToString(line)
		}
		l.buf = rest
		if err := l.a.Document(doc, false); err != nil {
			return err
		}
	}
}
